package energy

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

const (
	interval = int64(100e6)
	second   = int64(1e9)
)

// card is one at 100 W up to t = 20 s and at 600 W after, sampled for 40 s.
func card(edit func(i int, s *Sample)) Device {
	d := Device{Name: "gpu0", PowerKind: "instant"}
	for i := range 401 {
		ns := int64(i) * interval
		joule := 100 * float64(min(ns, 20*second)) / 1e9
		watts := 100.0
		if ns > 20*second {
			joule += 600 * float64(ns-20*second) / 1e9
			watts = 600
		}
		s := Sample{MonoNS: ns, PowerW: &watts, EnergyMJ: new(uint64(1<<54) + uint64(math.Round(joule*1000)))}
		if edit != nil {
			edit(i, &s)
		}
		d.Samples = append(d.Samples, s)
	}
	return d
}

func input(d ...Device) Input {
	return Input{
		Devices: d, IntervalNS: interval, Idle: Window{0, 15 * second}, Load: Window{25 * second, 35 * second}, IdleState: "server up",
		Successes: 50, AudioS: new(125.0),
	}
}

func near(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	if got == nil || math.Abs(*got-want) > 1e-3*math.Abs(want) {
		t.Errorf("%s is %v, want %v", what, show(got), want)
	}
}

func show(v *float64) any {
	if v == nil {
		return nil
	}
	return *v
}

func TestRun(t *testing.T) {
	r := Of(input(card(nil), card(nil)))
	for _, f := range []Figures{r.Counter, r.Power} {
		near(t, "total", f.TotalJ, 12000)
		near(t, "idle", f.IdleW, 200)
		near(t, "net", f.NetJ, 10000)
		near(t, "per success", f.PerSuccessJ, 200)
		near(t, "per audio second", f.PerAudioSecondJ, 80)
		if len(f.Unmeasured) != 0 {
			t.Errorf("%v", f.Unmeasured)
		}
	}
	near(t, "power over counter", r.Devices[0].PowerOverCounter, 1)
	if r.Preferred != "counter" || r.Counter.Sensor != SensorCounter || r.Power.Sensor != SensorInstant || r.IntervalMS != 100 || len(r.Warnings) != 0 ||
		r.Includes[0] != "gpu" || r.IdleState != "server up" || r.Devices[0].Load.Samples != 101 {
		t.Errorf("%+v", r)
	}
}

// Not every sample has the counter: the next ones that have it do, on both sides of a
// window, unless they are far.
func TestSparseCounter(t *testing.T) {
	every := func(n int) Device {
		return card(func(i int, s *Sample) {
			if i%n != 0 {
				s.EnergyMJ = nil
			}
		})
	}
	w := Window{25*second + 33e6, 35*second + 77e6}
	for _, n := range []int{2, 4, 7} {
		r := Over(every(n), w, interval)
		near(t, "counter", r.CounterJ, 600*10.044)
		near(t, "seconds of it", &r.CounterS, 10.044)
		near(t, "power", r.PowerJ, 600*10.044)
	}
	whole := Over(every(4), Window{0, 40 * second}, interval)
	near(t, "counter of all", whole.CounterJ, 100*20+600*20)
	near(t, "counter of 1 s", Over(every(4), Window{25 * second, 26 * second}, interval).CounterJ, 600)
	far := Over(every(200), Window{15 * second, 35 * second}, interval)
	if far.CounterJ != nil {
		t.Errorf("of two readings 20 s apart: %+v", far)
	}
}

// Between samples the counter is a straight line: windows need not begin at a sample.
func TestEdges(t *testing.T) {
	d := card(nil)
	r := Over(d, Window{25*second + 33e6, 35*second + 77e6}, interval)
	near(t, "counter", r.CounterJ, 600*10.044)
	near(t, "power", r.PowerJ, 600*10.044)
	if math.Abs(r.CounterS-10.044) > 1e-9 || math.Abs(r.PowerS-10.044) > 1e-9 {
		t.Errorf("%v, %v s", r.CounterS, r.PowerS)
	}
	// half a second more than was sampled is left out, and said
	r = Over(d, Window{30 * second, 40*second + second/2}, interval)
	near(t, "counter", r.CounterJ, 6000)
	if r.CounterS != 10 {
		t.Errorf("%v s", r.CounterS)
	}
}

func TestNotMeasured(t *testing.T) {
	none := func(_ int, s *Sample) { s.EnergyMJ = nil }
	for name, c := range map[string]struct {
		edit           func(int, *Sample)
		change         func(*Input)
		counter, power string // why net_j is null, "" where it is not
		prefers        string
	}{
		"no counter":      {edit: none, counter: "0 samples have a value", prefers: "power"},
		"no power":        {edit: func(_ int, s *Sample) { s.PowerW = nil }, power: "0 samples have a value", prefers: "counter"},
		"backwards":       {edit: func(i int, s *Sample) { *s.EnergyMJ -= uint64(i / 300 * 300 * 1e6) }, counter: "went backwards", prefers: "power"},
		"still":           {edit: func(_ int, s *Sample) { *s.EnergyMJ = 7 }, counter: "stood still", prefers: "power"},
		"lost":            {edit: func(i int, s *Sample) { s.Lost = i == 300 }, counter: "the card was lost", power: "the card was lost"},
		"lost after":      {edit: func(i int, s *Sample) { s.Lost = i > 360 }, prefers: "counter"},
		"a gap":           {edit: func(i int, s *Sample) { gap(i, s, 280, 292) }, power: "no power for 1.3s", prefers: "counter"},
		"a short gap":     {edit: func(i int, s *Sample) { gap(i, s, 280, 285) }, prefers: "counter"},
		"few":             {change: func(in *Input) { in.Load = Window{25 * second, 25*second + 850e6} }, counter: "9 samples in the window", power: "9 samples"},
		"late":            {change: func(in *Input) { in.Load = Window{25 * second, 45 * second} }, counter: "end 5s before", power: "end 5s before"},
		"early":           {change: func(in *Input) { in.Idle = Window{-3 * second, 5 * second} }, counter: "idle baseline: gpu0: the samples begin 3s after", power: "begin 3s after"},
		"no idle":         {change: func(in *Input) { in.Idle = Window{} }, counter: "idle baseline: gpu0: the window has no length", power: "no length"},
		"no card":         {change: func(in *Input) { in.Devices = nil }, counter: "no card was sampled", power: "no card"},
		"one card of two": {change: func(in *Input) { in.Devices = append(in.Devices, Device{Name: "gpu1"}) }, counter: "gpu1: 0 samples", power: "gpu1: 0 samples"},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(card(c.edit))
			if c.change != nil {
				c.change(&in)
			}
			r := Of(in)
			for _, f := range []struct {
				Figures
				says string
			}{{r.Counter, c.counter}, {r.Power, c.power}} {
				if (f.NetJ == nil) != (f.says != "") || !strings.Contains(f.Unmeasured["net_j"], f.says) {
					t.Errorf("%s: net is %v, because of %q", f.Sensor, show(f.NetJ), f.Unmeasured["net_j"])
				}
				if (f.NetJ == nil) != (f.PerSuccessJ == nil) || (f.PerSuccessJ == nil) != (f.Unmeasured["per_success_j"] != "") {
					t.Errorf("%+v", f.Figures)
				}
			}
			if r.Preferred != c.prefers {
				t.Errorf("prefers %q", r.Preferred)
			}
			if _, err := json.Marshal(r); err != nil {
				t.Error(err) // no infinity, no NaN
			}
		})
	}
}

func gap(i int, s *Sample, from, to int) {
	if i >= from && i < to {
		s.PowerW, s.EnergyMJ = nil, nil
	}
}

// Without successes or audio there is no energy per one of them, and the rest is there.
func TestNothingToDivideBy(t *testing.T) {
	in := input(card(nil))
	in.Successes, in.AudioS = 0, new(0.0)
	f := Of(in).Counter
	if f.NetJ == nil || f.PerSuccessJ != nil || f.PerAudioSecondJ != nil || f.Unmeasured["per_success_j"] != "no request succeeded" ||
		f.Unmeasured["per_audio_s_j"] != "the run brought no audio" {
		t.Errorf("%+v", f)
	}
	in.AudioS = nil
	if f = Of(in).Counter; f.Unmeasured["per_audio_s_j"] != "the seconds of audio are not known" {
		t.Errorf("%+v", f)
	}
}

func TestWarnings(t *testing.T) {
	in := input(card(func(_ int, s *Sample) { *s.PowerW *= 1.2 }))
	in.Idle = Window{30 * second, 38 * second}
	in.Load = Window{0, 32 * second}
	r := Of(in)
	all := strings.Join(r.Warnings, "\n")
	for _, want := range []string{"less than the idle baseline", "of the energy counter", "overlaps"} {
		if !strings.Contains(all, want) {
			t.Errorf("no warning of %q in %q", want, all)
		}
	}
	if r.Counter.NetJ == nil || *r.Counter.NetJ >= 0 {
		t.Errorf("%v", show(r.Counter.NetJ))
	}
	if got := Of(input(Device{Name: "gpu0", PowerKind: "usage", Samples: card(nil).Samples})).Power.Sensor; got != SensorUsage {
		t.Error(got)
	}
}
