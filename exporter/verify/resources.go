package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/parquet-go/parquet-go"

	"github.com/omnitap/omnitap/exporter/rundir"
)

// resourcesFile is what a run sampled of cards, machine and stages.
const resourcesFile = "resources.parquet"

// resource is what is verified of a row of it: names carry units.
type resource struct {
	Kind         string  `parquet:"kind"`
	MonoNS       int64   `parquet:"mono_ns"`
	Device       *string `parquet:"device,optional"`
	PID          *int64  `parquet:"pid,optional"`
	StartTicks   *int64  `parquet:"start_ticks,optional"`
	NetNamespace *string `parquet:"net_namespace,optional"`
	State        *string `parquet:"state,optional"`

	PowerW              *float64 `parquet:"power_w,optional"`
	PowerAverageW       *float64 `parquet:"power_average_w,optional"`
	EnergyMJ            *int64   `parquet:"energy_mj,optional"`
	GPUPercent          *int32   `parquet:"gpu_percent,optional"`
	GPUMemoryPercent    *int32   `parquet:"gpu_memory_percent,optional"`
	GPUMemoryUsedBytes  *int64   `parquet:"gpu_memory_used_bytes,optional"`
	GPUMemoryTotalBytes *int64   `parquet:"gpu_memory_total_bytes,optional"`
	SMClockMHz          *int32   `parquet:"sm_clock_mhz,optional"`
	MemoryClockMHz      *int32   `parquet:"memory_clock_mhz,optional"`
	TemperatureC        *int32   `parquet:"temperature_c,optional"`
	ThrottleBits        *int64   `parquet:"throttle_bits,optional"`

	CPUNS            *int64 `parquet:"cpu_ns,optional"`
	NetReceivedBytes *int64 `parquet:"net_received_bytes,optional"`
	NetSentBytes     *int64 `parquet:"net_sent_bytes,optional"`

	Unmeasured *string `parquet:"unmeasured,optional"`
}

// who is what a row is of.
type who struct {
	kind, device, net string
	pid, start        int64
}

func (r *resource) who() who {
	return who{r.Kind, orZero(r.Device), orZero(r.NetNamespace), orZero(r.PID), orZero(r.StartTicks)}
}

func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// resources reads the rows, and holds them to themselves and the energy in metadata.json
// to them.
func (v *verifier) resources() {
	f, err := os.Open(filepath.Join(v.dir, resourcesFile))
	if errors.Is(err, fs.ErrNotExist) {
		if v.meta.Run.Energy != nil {
			v.say(Error, KindFile, resourcesFile, 0, "it is missing: %s tells energy that comes of it", rundir.MetadataFile)
		}
		return
	}
	if err == nil {
		defer func() { _ = f.Close() }()
		s := sampled{v: v, last: map[who]*resource{}, cards: v.meta.Run.Energy.cards()}
		err = s.read(f)
	}
	if err != nil {
		v.say(Error, KindFile, resourcesFile, 0, "%v", err)
		return
	}
}

// sampled is what is known of the rows so far: of everything that has rows the last one.
type sampled struct {
	v     *verifier
	n     int
	last  map[who]*resource
	cards cards
}

// read reads all rows. What the library cannot read may make it panic.
func (s *sampled) read(f io.ReaderAt) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("row %d: %v", s.n+1, r)
		}
	}()
	r := parquet.NewGenericReader[resource](f)
	defer func() { _ = r.Close() }()
	rows := make([]resource, 256)
	for {
		clear(rows)
		n, err := r.Read(rows)
		for i := range rows[:n] {
			s.n++
			s.row(&rows[i])
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("row %d: %w", s.n+1, err)
		}
	}
	s.v.res.Compared[resourcesFile+" rows"] += int64(s.n)
	if e := s.v.meta.Run.Energy; e != nil {
		e.compare(s.v, s.cards)
	}
	return nil
}

func (s *sampled) say(kind Kind, format string, a ...any) {
	s.v.say(Error, kind, resourcesFile, s.n, format, a...)
}

func (s *sampled) row(r *resource) {
	s.nulls(r)
	s.bounds(r)
	id := r.who()
	if last := s.last[id]; last != nil {
		if r.MonoNS < last.MonoNS {
			s.say(KindOrder, "%s of %d ns stands behind one of %d", clip(r.Kind), r.MonoNS, last.MonoNS)
		}
		for _, c := range [...]struct {
			name     string
			was, now *int64
		}{
			{"energy_mj", last.EnergyMJ, r.EnergyMJ},
			{"cpu_ns", last.CPUNS, r.CPUNS},
			{"net_received_bytes", last.NetReceivedBytes, r.NetReceivedBytes},
			{"net_sent_bytes", last.NetSentBytes, r.NetSentBytes},
		} {
			if c.was != nil && c.now != nil && *c.now < *c.was {
				s.say(KindConservation, "%s fell from %d to %d", c.name, *c.was, *c.now)
			}
		}
	}
	s.cards.add(r)
	s.keep(id, r)
}

// keep makes a row the last one; what it has no value of keeps the last one's.
func (s *sampled) keep(id who, r *resource) {
	kept := *r
	if last := s.last[id]; last != nil {
		for _, c := range [...]struct{ was, now **int64 }{
			{&last.EnergyMJ, &kept.EnergyMJ},
			{&last.CPUNS, &kept.CPUNS},
			{&last.NetReceivedBytes, &kept.NetReceivedBytes},
			{&last.NetSentBytes, &kept.NetSentBytes},
		} {
			if *c.now == nil {
				*c.now = *c.was
			}
		}
	}
	s.last[id] = &kept
}

// nulls wants a reason for each quantity of a card that is null, and none for others.
func (s *sampled) nulls(r *resource) {
	why := map[string]string{}
	if r.Unmeasured != nil {
		if err := json.Unmarshal([]byte(*r.Unmeasured), &why); err != nil {
			s.say(KindSchema, "unmeasured: %v", err)
			return
		}
	}
	if r.Kind != "gpu" && r.Kind != "mig" {
		return
	}
	for name, null := range map[string]bool{
		"power_w": r.PowerW == nil, "power_average_w": r.PowerAverageW == nil, "energy_mj": r.EnergyMJ == nil, "gpu_percent": r.GPUPercent == nil,
		"gpu_memory_percent": r.GPUMemoryPercent == nil, "gpu_memory_used_bytes": r.GPUMemoryUsedBytes == nil,
		"gpu_memory_total_bytes": r.GPUMemoryTotalBytes == nil, "sm_clock_mhz": r.SMClockMHz == nil, "memory_clock_mhz": r.MemoryClockMHz == nil,
		"temperature_c": r.TemperatureC == nil, "throttle_bits": r.ThrottleBits == nil,
	} {
		switch reason := why[name]; {
		case null && reason == "":
			s.say(KindSchema, "%s is null without a reason", name)
		case !null && reason != "":
			s.say(KindSchema, "%s has a value and a reason to have none: %s", name, clip(reason))
		}
	}
}

// bounds wants figures that can be.
func (s *sampled) bounds(r *resource) {
	for name, v := range map[string]*float64{"power_w": r.PowerW, "power_average_w": r.PowerAverageW} {
		if v != nil && (*v < 0 || math.IsNaN(*v) || math.IsInf(*v, 0)) {
			s.say(KindConservation, "%s is %v", name, *v)
		}
	}
	for name, v := range map[string]*int32{"gpu_percent": r.GPUPercent, "gpu_memory_percent": r.GPUMemoryPercent} {
		if v != nil && (*v < 0 || *v > 100) {
			s.say(KindConservation, "%s is %d", name, *v)
		}
	}
	if used, total := r.GPUMemoryUsedBytes, r.GPUMemoryTotalBytes; used != nil && total != nil && *used > *total {
		s.say(KindConservation, "%d bytes of memory are used, of %d", *used, *total)
	}
}
