//go:build linux && cgo

package gpu

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const (
	libraryName = "libnvidia-ml.so.1"
	// maxDevices bounds what a library may claim, maxXIDs what one look takes.
	maxDevices = 256
	maxXIDs    = 64
	maxText    = 200
)

// driver is the driver's library. A function that it lacks would end the program when it
// is called: each call asks has first.
type driver struct {
	path   string
	lib    nvml.Interface
	found  map[string]bool
	list   []*handle
	events nvml.EventSet // nil where there are none
}

func newLibrary() library { return &driver{path: libraryName} }

// failure is what NVML answered, as ours. SUCCESS is no error.
func failure(ret nvml.Return) error {
	if ret == nvml.SUCCESS {
		return nil
	}
	return code(ret)
}

// open looks first whether a library of that name is NVML at all, since the functions
// that start it cannot be looked up through go-nvml.
func (d *driver) open() (v Version, err error) {
	peek := dl.New(d.path, dl.RTLD_LAZY|dl.RTLD_LOCAL)
	if err := peek.Open(); err != nil {
		return v, fmt.Errorf("%w (%w)", errLibraryNotFound, err)
	}
	defer func() { _ = peek.Close() }()
	for _, name := range []string{"nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlShutdown"} {
		if peek.Lookup(name+"_v2") != nil && peek.Lookup(name) != nil {
			return v, fmt.Errorf("%w: %s", errLibraryIncomplete, name)
		}
	}
	d.lib, d.found = nvml.New(nvml.WithLibraryPath(d.path)), map[string]bool{}
	if err := failure(d.lib.Init()); err != nil {
		return v, err
	}
	if d.has("nvmlSystemGetDriverVersion") {
		s, _ := d.lib.SystemGetDriverVersion() // "" where it does not say
		v.Driver = text(s)
	}
	if d.has("nvmlSystemGetNVMLVersion") {
		s, _ := d.lib.SystemGetNVMLVersion()
		v.NVML = text(s)
	}
	return v, nil
}

func (d *driver) close() {
	if d.events != nil {
		_ = d.events.Free()
		d.events = nil
	}
	d.list = nil
	_ = d.lib.Shutdown()
}

// has says whether the library has a function. A lookup costs more than most calls.
func (d *driver) has(symbol string) bool {
	yes, known := d.found[symbol]
	if !known {
		yes = d.lib.Extensions().LookupSymbol(symbol) == nil
		d.found[symbol] = yes
	}
	return yes
}

func text(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "")
	}
	return s
}

func (d *driver) cards() ([]card, error) {
	n, ret := d.lib.DeviceGetCount()
	if err := failure(ret); err != nil {
		return nil, err
	}
	d.list = nil
	for i := range min(n, maxDevices) {
		h := d.handle(i, -1)
		if h.dev, ret = d.lib.DeviceGetHandleByIndex(i); ret != nvml.SUCCESS {
			h.id.err = code(ret)
		} else {
			h.describe()
			h.id.mig = h.split()
		}
		d.list = append(d.list, h)
		if h.id.mig {
			d.instances(h)
		}
	}
	d.watch()
	out := make([]card, len(d.list))
	for i, h := range d.list {
		out[i] = h
	}
	return out, nil
}

// handle makes one that is not filled in.
func (d *driver) handle(index, instance int) *handle {
	h := &handle{d: d, id: identity{index: index, instance: instance}}
	h.fields[0].FieldId, h.fields[1].FieldId = nvml.FI_DEV_POWER_INSTANT, nvml.FI_DEV_POWER_AVERAGE
	return h
}

// instances lists the parts of a split card that are there.
func (d *driver) instances(parent *handle) {
	if !d.has("nvmlDeviceGetMaxMigDeviceCount") || !d.has("nvmlDeviceGetMigDeviceHandleByIndex") {
		return
	}
	n, ret := parent.dev.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return
	}
	for i := range min(n, maxDevices) {
		dev, ret := parent.dev.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // no instance in that place
		}
		h := d.handle(parent.id.index, i)
		h.dev = dev
		h.describe()
		d.list = append(d.list, h)
	}
}

// watch asks to be told of critical errors. Where that cannot be had, a lost card is
// still told by what it answers.
func (d *driver) watch() {
	for _, name := range []string{"nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetFree"} {
		if !d.has(name) {
			return
		}
	}
	if !d.has("nvmlEventSetWait") && !d.has("nvmlEventSetWait_v2") {
		return
	}
	set, ret := d.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return
	}
	for _, h := range d.list {
		if h.id.instance < 0 && h.id.err == nil {
			_ = h.dev.RegisterEvents(nvml.EventTypeXidCriticalError, set) // not every card has them
		}
	}
	d.events = set
}

func (d *driver) xids() ([]xid, error) {
	if d.events == nil {
		return nil, errOld
	}
	var out []xid
	for range maxXIDs {
		e, ret := d.events.Wait(0)
		if ret == nvml.ERROR_TIMEOUT {
			break
		}
		if ret != nvml.SUCCESS {
			return out, code(ret)
		}
		for _, h := range d.list {
			if h.dev == e.Device && h.id.instance < 0 && e.EventType&nvml.EventTypeXidCriticalError != 0 {
				out = append(out, xid{h.id.uuid, e.EventData})
			}
		}
	}
	return out, nil
}

// handle is a card or an instance.
type handle struct {
	d      *driver
	dev    nvml.Device
	id     identity
	fields [2]nvml.FieldValue
	fresh  bool // fields are of this sample: the first that is asked for reads both
}

func (h *handle) describe() {
	if h.d.has("nvmlDeviceGetName") {
		s, _ := h.dev.GetName()
		h.id.name = text(s)
	}
	if h.d.has("nvmlDeviceGetUUID") {
		s, _ := h.dev.GetUUID()
		h.id.uuid = text(s)
	}
}

func (h *handle) split() bool {
	if !h.d.has("nvmlDeviceGetMigMode") {
		return false
	}
	now, _, ret := h.dev.GetMigMode()
	return ret == nvml.SUCCESS && now == nvml.DEVICE_MIG_ENABLE
}

func (h *handle) identity() identity { return h.id }

func (h *handle) power(kind powerKind) (uint32, error) {
	if kind == powerUsage {
		if !h.d.has("nvmlDeviceGetPowerUsage") {
			return 0, errOld
		}
		v, ret := h.dev.GetPowerUsage()
		return v, failure(ret)
	}
	if !h.d.has("nvmlDeviceGetFieldValues") {
		return 0, errOld
	}
	if kind == powerInstant || !h.fresh {
		if err := failure(h.dev.GetFieldValues(h.fields[:])); err != nil {
			return 0, err
		}
		h.fresh = true
	}
	f := &h.fields[0]
	if kind == powerAverage {
		f, h.fresh = &h.fields[1], false
	}
	return field(f)
}

// field is the number of a field that is milliwatts.
func field(f *nvml.FieldValue) (uint32, error) {
	if f.NvmlReturn != 0 {
		return 0, code(f.NvmlReturn)
	}
	switch nvml.ValueType(f.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_INT, nvml.VALUE_TYPE_SIGNED_INT:
		return binary.NativeEndian.Uint32(f.Value[:]), nil
	default:
		v := binary.NativeEndian.Uint64(f.Value[:])
		if v == ^uint64(0) {
			return ^uint32(0), nil
		}
		if v > 1<<31 {
			return 0, fmt.Errorf("a power of %d mW, of value type %d, is none", v, f.ValueType)
		}
		return uint32(v), nil
	}
}

func (h *handle) energy() (uint64, error) {
	if !h.d.has("nvmlDeviceGetTotalEnergyConsumption") {
		return 0, errOld
	}
	v, ret := h.dev.GetTotalEnergyConsumption()
	return v, failure(ret)
}

func (h *handle) use() (gpu, memory uint32, err error) {
	if !h.d.has("nvmlDeviceGetUtilizationRates") {
		return 0, 0, errOld
	}
	u, ret := h.dev.GetUtilizationRates()
	return u.Gpu, u.Memory, failure(ret)
}

func (h *handle) memory(version int) (used, total uint64, err error) {
	if version == 2 {
		if !h.d.has("nvmlDeviceGetMemoryInfo_v2") {
			return 0, 0, errOld
		}
		m, ret := h.dev.GetMemoryInfo_v2()
		return m.Used, m.Total, failure(ret)
	}
	if !h.d.has("nvmlDeviceGetMemoryInfo") {
		return 0, 0, errOld
	}
	m, ret := h.dev.GetMemoryInfo()
	return m.Used, m.Total, failure(ret)
}

func (h *handle) clock(kind clockKind) (uint32, error) {
	if !h.d.has("nvmlDeviceGetClockInfo") {
		return 0, errOld
	}
	of := nvml.CLOCK_SM
	if kind == clockMemory {
		of = nvml.CLOCK_MEM
	}
	v, ret := h.dev.GetClockInfo(of)
	return v, failure(ret)
}

func (h *handle) temperature() (uint32, error) {
	if !h.d.has("nvmlDeviceGetTemperature") {
		return 0, errOld
	}
	v, ret := h.dev.GetTemperature(nvml.TEMPERATURE_GPU)
	return v, failure(ret)
}

func (h *handle) throttle() (uint64, error) {
	switch {
	case h.d.has("nvmlDeviceGetCurrentClocksEventReasons"): // since driver 535
		v, ret := h.dev.GetCurrentClocksEventReasons()
		return v, failure(ret)
	case h.d.has("nvmlDeviceGetCurrentClocksThrottleReasons"):
		v, ret := h.dev.GetCurrentClocksThrottleReasons()
		return v, failure(ret)
	default:
		return 0, errOld
	}
}

// any says whether one of the versions of a function is there: go-nvml takes the newest.
func (d *driver) any(symbol string) bool {
	return d.has(symbol+"_v3") || d.has(symbol+"_v2") || d.has(symbol)
}

// processes are those that compute and, where the library tells them, those that draw.
func (h *handle) processes() ([]held, error) {
	if !h.d.any("nvmlDeviceGetComputeRunningProcesses") {
		return nil, errOld
	}
	list, ret := h.dev.GetComputeRunningProcesses()
	if err := failure(ret); err != nil {
		return nil, err
	}
	if h.d.any("nvmlDeviceGetGraphicsRunningProcesses") {
		if drawing, ret := h.dev.GetGraphicsRunningProcesses(); ret == nvml.SUCCESS {
			list = append(list, drawing...)
		}
	}
	out := make([]held, 0, min(len(list), maxProcesses))
	for _, p := range list[:min(len(list), maxProcesses)] {
		out = append(out, held{int(p.Pid), p.UsedGpuMemory})
	}
	return out, nil
}

func (h *handle) processUse(after uint64) ([]used, error) {
	if !h.d.has("nvmlDeviceGetProcessUtilization") {
		return nil, errOld
	}
	list, ret := h.dev.GetProcessUtilization(after)
	if err := failure(ret); err != nil && ret != nvml.ERROR_INSUFFICIENT_SIZE {
		return nil, err
	}
	out := make([]used, 0, len(list))
	for _, u := range list {
		out = append(out, used{int(u.Pid), u.TimeStamp, u.SmUtil, u.MemUtil})
	}
	return out, nil
}

var (
	_ library = (*driver)(nil)
	_ card    = (*handle)(nil)
)
