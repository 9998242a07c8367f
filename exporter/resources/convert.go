package resources

import (
	"encoding/json"
	"math"
	"strings"
	"sync"

	"github.com/omnitap/omnitap/probes/gpu"
	"github.com/omnitap/omnitap/probes/host/usage"
)

// converter makes rows of samples.
type converter struct {
	node    string
	strings map[string]*string // what repeats in every row
	mu      sync.Mutex         // protects strings and stages
	stages  map[int64]process
}

type process struct {
	start int64
	stage string
}

func newConverter(node string) *converter {
	return &converter{node: node, strings: map[string]*string{}, stages: map[int64]process{}}
}

// maxStrings bounds what is kept of strings: names of devices, stages and states.
const maxStrings = 4096

// text is a pointer to a string, nil where it is empty. The caller holds mu.
func (c *converter) text(s string) *string {
	if s == "" {
		return nil
	}
	return c.string(s)
}

func (c *converter) string(s string) *string {
	p := c.strings[s]
	if p == nil {
		if len(c.strings) >= maxStrings {
			clear(c.strings)
		}
		p = &s
		c.strings[s] = p
	}
	return p
}

// number narrows what a card counts. What does not fit a column is none: nothing that a
// card counts comes near.
func number[To int32 | int64, From uint32 | uint64](v *From) *To {
	if v == nil || uint64(*v) > math.MaxInt64 || To(*v) < 0 || From(To(*v)) != *v {
		return nil
	}
	return new(To(*v))
}

// gpu makes a row of each device and of each of its processes.
func (c *converter) gpu(s *gpu.Sample) []Row {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows := make([]Row, 0, len(s.Devices))
	for i := range s.Devices {
		d := &s.Devices[i]
		rows = append(rows, c.device(d))
		for j := range d.Processes {
			rows = append(rows, c.gpuProcess(d, &d.Processes[j]))
		}
	}
	if len(rows) > 0 {
		rows[0].SampleTookNS, rows[0].SampleCPUNS = &s.TookNS, s.CPUNS
	}
	return rows
}

func (c *converter) device(d *gpu.Device) Row {
	r := Row{
		Kind: KindGPU, Node: c.node, MonoNS: d.MonoNS, WallNS: d.WallNS, Device: c.text(d.Name), DeviceUUID: c.text(d.UUID),
		PowerW: d.PowerW, PowerKind: c.text(d.PowerKind), PowerAverageW: d.PowerAverageW, EnergyMJ: number[int64](d.EnergyMJ),
		GPUPercent: number[int32](d.GPUPercent), GPUMemoryPercent: number[int32](d.MemoryPercent),
		GPUMemoryUsedBytes: number[int64](d.MemoryUsedBytes), GPUMemoryTotalBytes: number[int64](d.MemoryTotalBytes), GPUMemorySource: c.text(d.MemorySource),
		SMClockMHz: number[int32](d.SMClockMHz), MemoryClockMHz: number[int32](d.MemoryClockMHz), TemperatureC: number[int32](d.TemperatureC),
		ThrottleBits: number[int64](d.Throttle), MIG: &d.MIG, XID: number[int64](d.XID), Unmeasured: c.reasons(d.Unmeasured),
	}
	if d.Instance {
		r.Kind = KindMIG
	}
	if d.Throttle != nil {
		r.Throttle = c.string(strings.Join(gpu.Names(*d.Throttle), "+"))
	}
	if d.Lost != "" {
		r.State, r.StateReason = c.text("lost"), c.text(d.Lost)
	}
	return r
}

// gpuProcess joins a process of a device to the stage whose process has its pid.
func (c *converter) gpuProcess(d *gpu.Device, p *gpu.Process) Row {
	pid := int64(p.PID)
	r := Row{
		Kind: KindGPUProcess, Node: c.node, MonoNS: d.MonoNS, WallNS: d.WallNS, Device: c.text(d.Name), DeviceUUID: c.text(d.UUID), PID: &pid,
		GPUMemoryUsedBytes: number[int64](p.MemoryBytes), GPUPercent: number[int32](p.SMPercent), GPUMemoryPercent: number[int32](p.MemoryPercent),
		Unmeasured: c.reasons(p.Unmeasured),
	}
	if known, ok := c.stages[pid]; ok {
		r.StartTicks, r.Stage = &known.start, c.text(known.stage)
	}
	return r
}

// usage makes a row of the machine, of each network and of each process.
func (c *converter) usage(s *usage.Sample) []Row {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &s.Machine
	rows := make([]Row, 0, 1+len(s.Networks)+len(s.Processes))
	rows = append(rows, Row{
		Kind: KindMachine, Node: c.node, MonoNS: s.MonoNS, WallNS: s.WallNS, CPUNS: m.BusyNS, CPUIdleNS: m.IdleNS,
		MemoryTotalBytes: m.MemoryTotalBytes, MemoryAvailableBytes: m.MemoryAvailableBytes, Unmeasured: c.reasons(m.Unmeasured),
		SampleTookNS: &s.TookNS, SampleCPUNS: s.CPUNS,
	})
	for i := range s.Networks {
		n := &s.Networks[i]
		rows = append(rows, Row{
			Kind: KindNetwork, Node: c.node, MonoNS: s.MonoNS, WallNS: s.WallNS, NetNamespace: c.text(n.Namespace), NetOwn: &n.Own,
			NetReceivedBytes: n.ReceivedBytes, NetSentBytes: n.SentBytes, NetLoopbackBytes: n.LoopbackBytes, Unmeasured: c.reasons(n.Unmeasured),
		})
	}
	clear(c.stages)
	for i := range s.Processes {
		rows = append(rows, c.process(&s.Processes[i]))
	}
	return rows
}

func (c *converter) process(u *usage.Use) Row {
	r := Row{
		Kind: KindProcess, Node: c.node, MonoNS: u.MonoNS, WallNS: u.WallNS, PID: new(int64(u.PID)), StartTicks: new(int64(u.StartTicks)), Stage: c.text(u.Stage),
		CPUNS: u.CPUNS, RSSBytes: u.RSSBytes, PSSBytes: u.PSSBytes, Threads: u.Threads, NetNamespace: c.text(u.Namespace),
		Unmeasured: c.reasons(u.Unmeasured),
	}
	if u.CPUNS != nil {
		r.CPUCoarse = &u.CPUCoarse
	}
	if u.Ended != "" {
		r.State, r.StateReason = c.text("ended"), &u.Ended
	} else {
		c.stages[int64(u.PID)] = process{int64(u.StartTicks), u.Stage}
	}
	return r
}

// reasons is the JSON of why columns are NULL, nil where none is. The samplers name them
// as the columns are named.
func (c *converter) reasons(m map[string]string) *string {
	if len(m) == 0 {
		return nil
	}
	b, _ := json.Marshal(m) // a map of strings always encodes, its keys in order
	return c.text(string(b))
}
