package gpu

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/probes/host"
)

// columns is a device as resources.parquet names it, nil where it is null.
func columns(d Device) map[string]any {
	out := map[string]any{}
	for name, v := range map[string]any{
		fieldPower: d.PowerW, fieldPowerAverage: d.PowerAverageW, fieldEnergy: d.EnergyMJ, fieldGPU: d.GPUPercent,
		fieldMemoryPercent: d.MemoryPercent, fieldUsed: d.MemoryUsedBytes, fieldTotal: d.MemoryTotalBytes,
		fieldSM: d.SMClockMHz, fieldMemoryClock: d.MemoryClockMHz, fieldTemperature: d.TemperatureC, fieldThrottle: d.Throttle,
	} {
		if p := reflect.ValueOf(v); !p.IsNil() {
			out[name] = p.Elem().Interface()
		}
	}
	if d.Processes != nil {
		out[fieldProcesses] = len(d.Processes)
	}
	return out
}

// holds checks that what is null has a reason, and nothing else, and that no sentinel
// got through.
func holds(t *testing.T, d Device) {
	t.Helper()
	got := columns(d)
	for _, name := range fields {
		_, there := got[name]
		if name == fieldProcesses && !d.ProcessesRead {
			continue
		}
		if why := d.Unmeasured[name]; there == (why != "") {
			t.Errorf("%s is %v, with the reason %q", name, got[name], why)
		}
	}
	for name := range d.Unmeasured {
		if !strings.Contains(strings.Join(fields[:], " ")+" ", name+" ") {
			t.Errorf("a reason for %q, which is no field", name)
		}
	}
	text, err := json.Marshal(got)
	if err != nil || strings.Contains(string(text), "18446744073709551615") || strings.Contains(string(text), "4294967295") {
		t.Errorf("%s (%v)", text, err)
	}
	for _, p := range d.Processes {
		if (p.MemoryBytes == nil) != (p.Unmeasured[fieldUsed] != "") || (p.SMPercent == nil) != (p.Unmeasured[fieldGPU] != "") ||
			(p.MemoryPercent == nil) != (p.Unmeasured[fieldMemoryPercent] != "") || (p.MemoryBytes != nil && *p.MemoryBytes == math.MaxUint64) {
			t.Errorf("%+v", p)
		}
	}
}

// freely is a reader whose readings cost nothing: all samples have all.
func freely(c card) *reader {
	r := newReader(c, testClocks())
	r.cpu = func() (int64, bool) { return 0, true }
	return r
}

func TestDevice(t *testing.T) {
	f := newFake(3)
	d := freely(f).device(true)
	holds(t, d)
	want := map[string]any{
		fieldPower: 120.5, fieldPowerAverage: 118.25, fieldEnergy: uint64(1_000_000), fieldGPU: uint32(37), fieldMemoryPercent: uint32(21),
		fieldUsed: uint64(10 << 30), fieldTotal: uint64(140 << 30), fieldSM: uint32(1980), fieldMemoryClock: uint32(3201),
		fieldTemperature: uint32(41), fieldThrottle: uint64(5), fieldProcesses: 1,
	}
	if diff := cmp.Diff(want, columns(d)); diff != "" {
		t.Error(diff)
	}
	if d.Name != "gpu3" || d.MemorySource != "nvml_v2" || d.PowerKind != KindInstant || d.MIG || d.Lost != "" || len(d.Unmeasured) != 0 {
		t.Errorf("%+v", d)
	}
	p := d.Processes[0]
	if p.PID != 4242 || *p.MemoryBytes != 3<<30 || *p.SMPercent != 55 || *p.MemoryPercent != 12 {
		t.Errorf("%+v", p)
	}
	if diff := cmp.Diff([]string{"gpu_idle", "sw_power_cap"}, Names(*d.Throttle)); diff != "" {
		t.Error(diff)
	}
	if got := Names(1 << 40); len(got) != 1 || got[0] != "other" {
		t.Errorf("%v", got)
	}
	if f.asked["usage"] != 0 {
		t.Error("the old call was asked, though the card says which power it is")
	}
}

// C73: what each call refuses is null with its reason, and the rest is there.
func TestNotSupportedIsNotZero(t *testing.T) {
	for name, c := range map[string]struct {
		set      func(*fakeCard)
		null     []string
		says     string
		memory   string
		power    string
		lasting  string // a call that is not asked again soon
		mayRetry string // a call that is
	}{
		"memory version 2": {set: func(f *fakeCard) { f.errs["memory2"] = errNotSupported }, memory: "nvml_v1", power: KindInstant, lasting: "memory2"},
		"old library":      {set: func(f *fakeCard) { f.errs["memory2"] = errOld }, memory: "nvml_v1", power: KindInstant, lasting: "memory2"},
		"no memory": {
			set:  func(f *fakeCard) { f.errs["memory2"], f.errs["memory1"] = errNotSupported, errNotSupported },
			null: []string{fieldUsed, fieldTotal}, says: "version 1: ERROR_NOT_SUPPORTED; version 2: ERROR_NOT_SUPPORTED", power: KindInstant, lasting: "memory1",
		},
		"a total of 0":        {set: func(f *fakeCard) { f.used, f.total = 0, 0 }, null: []string{fieldUsed, fieldTotal}, says: "0 bytes", power: KindInstant, mayRetry: "memory1"},
		"memory all ones":     {set: func(f *fakeCard) { f.used = ones64 }, null: []string{fieldUsed, fieldTotal}, says: "not available", power: KindInstant},
		"use refused":         {set: func(f *fakeCard) { f.errs["use"] = errNotSupported }, null: []string{fieldGPU, fieldMemoryPercent}, says: "NOT_SUPPORTED", memory: "nvml_v2", power: KindInstant, lasting: "use"},
		"use beyond 100":      {set: func(f *fakeCard) { f.gpu = 180 }, null: []string{fieldGPU, fieldMemoryPercent}, says: "100 percent", memory: "nvml_v2", power: KindInstant},
		"use all ones":        {set: func(f *fakeCard) { f.gpu = ones32 }, null: []string{fieldGPU, fieldMemoryPercent}, says: "not available", memory: "nvml_v2", power: KindInstant},
		"energy all ones":     {set: func(f *fakeCard) { f.energ = ones64 }, null: []string{fieldEnergy}, says: "not available", memory: "nvml_v2", power: KindInstant},
		"energy of no card":   {set: func(f *fakeCard) { f.errs["energy"] = errNotSupported }, null: []string{fieldEnergy}, says: "NOT_SUPPORTED", memory: "nvml_v2", power: KindInstant, lasting: "energy"},
		"energy once unknown": {set: func(f *fakeCard) { f.errs["energy"] = errUnknownToNVML }, null: []string{fieldEnergy}, says: "UNKNOWN", memory: "nvml_v2", power: KindInstant, mayRetry: "energy"},
		"the old power alone": {
			set:  func(f *fakeCard) { f.errs["instant"], f.errs["average"] = errOld, errOld },
			null: []string{fieldPowerAverage}, says: "too old", memory: "nvml_v2", power: KindUsage, lasting: "instant",
		},
		"instant all ones": {set: func(f *fakeCard) { f.watts[powerInstant] = ones32 }, memory: "nvml_v2", power: KindUsage},
		"no power at all": {
			set: func(f *fakeCard) {
				f.errs["instant"], f.errs["average"], f.errs["usage"] = errNotSupported, errNotSupported, errNotSupported
			},
			null: []string{fieldPower, fieldPowerAverage}, says: "NOT_SUPPORTED", memory: "nvml_v2", lasting: "usage",
		},
		"power alone": {
			set: func(f *fakeCard) { f.all(errNotSupported); delete(f.errs, "instant") },
			null: []string{
				fieldPowerAverage, fieldEnergy, fieldGPU, fieldMemoryPercent, fieldUsed, fieldTotal, fieldSM, fieldMemoryClock,
				fieldTemperature, fieldThrottle, fieldProcesses,
			}, says: "NOT_SUPPORTED", power: KindInstant, lasting: "throttle",
		},
		"clocks all ones": {set: func(f *fakeCard) { f.clocks = [2]uint32{ones32, ones32} }, null: []string{fieldSM, fieldMemoryClock}, says: "not available", memory: "nvml_v2", power: KindInstant},
		"MIG":             {set: func(f *fakeCard) { f.id.mig, f.gpu = true, 0 }, null: []string{fieldGPU, fieldMemoryPercent}, says: "MIG", memory: "nvml_v2", power: KindInstant},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(0)
			c.set(f)
			r := freely(f)
			for range 2 {
				d := r.device(true)
				holds(t, d)
				got := columns(d)
				for _, field := range c.null {
					if got[field] != nil || !strings.Contains(d.Unmeasured[field], c.says) {
						t.Errorf("%s is %v, because of %q", field, got[field], d.Unmeasured[field])
					}
				}
				if len(got) != len(fields)-len(c.null) || d.MemorySource != c.memory || d.PowerKind != c.power || d.Lost != "" {
					t.Errorf("%v, memory of %q, power %q, lost %q", got, d.MemorySource, d.PowerKind, d.Lost)
				}
			}
			if c.lasting != "" && f.asked[c.lasting] != 1 {
				t.Errorf("asked %d times for %s, which is refused for good", f.asked[c.lasting], c.lasting)
			}
			if c.mayRetry != "" && f.asked[c.mayRetry] != 2 {
				t.Errorf("asked %d times for %s, which may come back", f.asked[c.mayRetry], c.mayRetry)
			}
			r.again()
			r.device(true)
			if c.lasting != "" && f.asked[c.lasting] != 2 {
				t.Errorf("%s is not tried again", c.lasting)
			}
		})
	}
}

// An instance of a split card is a device of its own, with the memory that it has.
func TestInstance(t *testing.T) {
	f := newFake(1)
	f.id.instance = 2
	d := freely(f).device(false)
	holds(t, d)
	if d.Name != "gpu1/mig2" || !d.MIG || !d.Instance || d.GPUPercent != nil || d.MemoryUsedBytes == nil {
		t.Errorf("%+v", d)
	}
}

// Processes: all ones is no memory, one listed twice is one, and use that is not news is
// null.
func TestProcesses(t *testing.T) {
	f := newFake(0)
	f.list = []held{{1, ones64}, {2, 5}, {2, ones64}, {3, 7}}
	f.use1 = []used{{3, 100, 40, 1}, {3, 90, 10, 0}, {2, 95, 300, 2}, {9, 100, 99, 9}}
	r := freely(f)
	d := r.device(true)
	holds(t, d)
	if len(d.Processes) != 3 || d.Processes[0].MemoryBytes != nil || *d.Processes[1].MemoryBytes != 5 || d.Processes[1].SMPercent != nil ||
		*d.Processes[1].MemoryPercent != 2 || *d.Processes[2].SMPercent != 40 || d.Processes[0].SMPercent != nil {
		t.Errorf("%+v", d.Processes)
	}
	f.errs["processUse"] = errNotFound
	d = r.device(true)
	holds(t, d)
	if f.after != 100 || d.Processes[2].SMPercent != nil || d.Processes[2].Unmeasured[fieldGPU] != "ERROR_NOT_FOUND" {
		t.Errorf("asked after %d: %+v", f.after, d.Processes[2])
	}
	if d = r.device(false); d.ProcessesRead || d.Processes != nil {
		t.Errorf("%+v", d)
	}
}

// A card that is lost in the middle of a sample says nothing of it, and is not asked on.
func TestLostCard(t *testing.T) {
	for _, err := range []error{errGPUIsLost, errResetRequired} {
		f := newFake(0)
		r := freely(f)
		f.errs["use"] = err
		for range 3 {
			d := r.device(true)
			holds(t, d)
			if len(columns(d)) != 0 || d.Lost != err.Error() || !strings.Contains(d.Unmeasured[fieldPower], "lost: "+err.Error()) {
				t.Errorf("%v: %+v", columns(d), d)
			}
		}
		if f.asked["energy"] != 1 || f.asked["memory2"] != 0 {
			t.Errorf("%v", f.asked)
		}
		f.errs["use"] = nil
		if r.again(); r.device(true).Lost != "" {
			t.Error("the card is back, and not sampled")
		}
	}
}

// The reasons are shared while they stay the same: 8 cards at 10 Hz make no garbage of
// them.
func TestReasonsAreShared(t *testing.T) {
	f := newFake(0)
	f.errs["energy"] = errNotSupported
	r := freely(f)
	a, b := r.device(true), r.device(true)
	if reflect.ValueOf(a.Unmeasured).Pointer() != reflect.ValueOf(b.Unmeasured).Pointer() {
		t.Error("the same reasons twice")
	}
	f.errs["throttle"] = errTimedOut
	if c := r.device(true); len(c.Unmeasured) != 2 || len(a.Unmeasured) != 1 {
		t.Errorf("%v after %v", c.Unmeasured, a.Unmeasured)
	}
}

// TestEnergyCost: the counter is read as seldom as its cost asks for, and each sample
// without it says why; a cheap one is read each time.
func TestEnergyCost(t *testing.T) {
	for _, c := range []struct {
		name         string
		cost         int64 // nanoseconds a reading
		want, refuse int   // readings in 100 samples, of a card that refuses
	}{{"cheap", 30e3, 100, 1}, {"4 ms", 4e6, 25, 1}, {"12 ms", 12e6, 12, 1}, {"0.1 s", 1e8, 5, 1}, {"a second", 1e9, 1, 1}} {
		t.Run(c.name, func(t *testing.T) {
			for _, refuses := range []bool{false, true} {
				f := newFake(0)
				if refuses {
					f.errs["energy"] = errNotSupported
				}
				now, spent := int64(1e9), int64(0)
				clock := func() int64 { return now }
				r := newReader(f, host.Clocks{Wall: clock, Mono: clock, Boot: clock})
				r.cpu = func() (int64, bool) { spent += c.cost; return spent, true }
				for i := range 100 {
					asked := f.times("energy")
					d := r.device(false)
					switch why := d.Unmeasured[fieldEnergy]; {
					case f.times("energy") == asked+1 && !refuses:
						if d.EnergyMJ == nil || why != "" {
							t.Errorf("sample %d: read, %v (%s)", i, d.EnergyMJ, why)
						}
					case d.EnergyMJ != nil || refuses && !strings.Contains(why, "NOT_SUPPORTED") || !refuses && !strings.Contains(why, "not read in this sample"):
						t.Errorf("sample %d: not read, %v (%s)", i, d.EnergyMJ, why)
					}
					now += 100e6 + int64(i%3-1)*1e5 // a ticker is never exact
				}
				want := c.want
				if refuses {
					want = c.refuse
				}
				if got := f.times("energy"); got != want {
					t.Errorf("refuses %v: read %d times, want %d", refuses, got, want)
				}
			}
		})
	}
}
