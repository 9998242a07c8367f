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
	DeviceUUID   *string `parquet:"device_uuid,optional"`
	PID          *int64  `parquet:"pid,optional"`
	StartTicks   *int64  `parquet:"start_ticks,optional"`
	NetNamespace *string `parquet:"net_namespace,optional"`

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

	CPUNS *int64 `parquet:"cpu_ns,optional"`

	Unmeasured *string `parquet:"unmeasured,optional"`
}

// who is what a row is of.
type who struct {
	kind, device, uuid, net string
	pid, start              int64
}

func (r *resource) who() who {
	return who{r.Kind, orZero(r.Device), orZero(r.DeviceUUID), orZero(r.NetNamespace), orZero(r.PID), orZero(r.StartTicks)}
}

// last is the last row of something: when, and its counters so far.
type last struct {
	at           int64
	energy, cpu  int64
	counted, ran bool // whether there is any
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
		if f := v.meta.Run.Resources.File; v.meta.Run.Energy != nil || f != nil && f.RowsWritten > 0 {
			v.say(Error, KindFile, resourcesFile, 0, "it is missing: %s tells what comes of it", rundir.MetadataFile)
		}
		return
	}
	if err == nil {
		defer func() { _ = f.Close() }()
		s := sampled{v: v, last: map[who]last{}, cards: v.meta.Run.Energy.cards()}
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
	last  map[who]last
	cards cards
	other map[string]bool // cards that the energy does not tell of, and that were told
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
	if f := s.v.meta.Run.Resources.File; f != nil {
		if f.RowsWritten != int64(s.n) {
			s.v.say(Error, KindConservation, resourcesFile, 0, "%d rows, %s says %d", s.n, rundir.MetadataFile, f.RowsWritten)
		}
		if f.RowsLost > 0 {
			s.v.say(Error, KindLost, resourcesFile, 0, "%d rows were lost when the run was written", f.RowsLost)
		}
	}
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
	s.order(r)
	if r.Kind == "gpu" {
		s.card(r)
	}
}

// order holds a row to the last one of the same.
func (s *sampled) order(r *resource) {
	id := r.who()
	l, ok := s.last[id]
	if ok && r.MonoNS < l.at {
		s.say(KindOrder, "%s of %d ns stands behind one of %d", clip(r.Kind), r.MonoNS, l.at)
	}
	l.at = r.MonoNS
	if r.EnergyMJ != nil {
		if l.counted && *r.EnergyMJ < l.energy {
			s.v.say(Note, KindConservation, resourcesFile, s.n, "energy_mj fell from %d to %d: the driver was loaded anew", l.energy, *r.EnergyMJ)
		}
		l.energy, l.counted = *r.EnergyMJ, true
	}
	// where only ticks of 10 ms can be had of user and of system time, it is less by so much
	const coarse = 20e6
	if r.CPUNS != nil && r.Kind == "process" {
		if l.ran && *r.CPUNS < l.cpu-coarse {
			s.say(KindConservation, "cpu_ns fell from %d to %d", l.cpu, *r.CPUNS)
		}
		l.cpu, l.ran = *r.CPUNS, true
	}
	s.last[id] = l
}

// card adds a row to what is reckoned of the cards.
func (s *sampled) card(r *resource) {
	e := s.v.meta.Run.Energy
	if name := orZero(r.Device); e != nil && s.cards[name] == nil && !s.other[name] && r.MonoNS >= e.Load.FromNS && r.MonoNS <= e.Load.ToNS {
		if s.other == nil {
			s.other = map[string]bool{}
		}
		s.other[name] = true
		s.say(KindValue, "%s was sampled, and run.energy does not tell of it", clip(name))
	}
	s.cards.add(r)
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
	for _, c := range [...]struct {
		name string
		null bool
	}{
		{"power_w", r.PowerW == nil},
		{"power_average_w", r.PowerAverageW == nil},
		{"energy_mj", r.EnergyMJ == nil},
		{"gpu_percent", r.GPUPercent == nil},
		{"gpu_memory_percent", r.GPUMemoryPercent == nil},
		{"gpu_memory_used_bytes", r.GPUMemoryUsedBytes == nil},
		{"gpu_memory_total_bytes", r.GPUMemoryTotalBytes == nil},
		{"sm_clock_mhz", r.SMClockMHz == nil},
		{"memory_clock_mhz", r.MemoryClockMHz == nil},
		{"temperature_c", r.TemperatureC == nil},
		{"throttle_bits", r.ThrottleBits == nil},
	} {
		switch reason := why[c.name]; {
		case c.null && reason == "":
			s.say(KindSchema, "%s is null without a reason", c.name)
		case !c.null && reason != "":
			s.say(KindSchema, "%s has a value and a reason to have none: %s", c.name, clip(reason))
		}
	}
}

// bounds wants figures that can be.
func (s *sampled) bounds(r *resource) {
	for _, c := range [...]struct {
		name string
		v    *float64
	}{{"power_w", r.PowerW}, {"power_average_w", r.PowerAverageW}} {
		if c.v != nil && (*c.v < 0 || math.IsNaN(*c.v) || math.IsInf(*c.v, 0)) {
			s.say(KindConservation, "%s is %v", c.name, *c.v)
		}
	}
	for _, c := range [...]struct {
		name string
		v    *int32
	}{{"gpu_percent", r.GPUPercent}, {"gpu_memory_percent", r.GPUMemoryPercent}} {
		if c.v != nil && (*c.v < 0 || *c.v > 100) {
			s.say(KindConservation, "%s is %d", c.name, *c.v)
		}
	}
}
