package verify

import (
	"math"

	"github.com/omnitap/omnitap/exporter/rundir"
)

// spent is the energy of a run as metadata.json tells it (contract section 3).
type spent struct {
	Counter, Power figures
	Devices        []struct {
		Device     string
		Idle, Load reading
	}
	IntervalMS float64 `json:"interval_ms"`
	Idle       window
	Load       window
	Successes  int64
	AudioS     *float64 `json:"audio_s"`
}

type figures struct {
	TotalJ          *float64 `json:"total_j"`
	IdleW           *float64 `json:"idle_w"`
	NetJ            *float64 `json:"net_j"`
	PerSuccessJ     *float64 `json:"per_success_j"`
	PerAudioSecondJ *float64 `json:"per_audio_s_j"`
}

type reading struct {
	CounterJ *float64 `json:"counter_j"`
	PowerJ   *float64 `json:"power_j"`
	CounterS float64  `json:"counter_s"`
	PowerS   float64  `json:"power_s"`
}

type window struct {
	FromNS int64 `json:"from_mono_ns"`
	ToNS   int64 `json:"to_mono_ns"`
}

// cards are the sums over a window of each card that has figures, by its name.
type cards map[string]*card

type card struct {
	idle, load over
}

// cards makes the sums that the figures of a run are compared with.
func (e *spent) cards() cards {
	c := cards{}
	if e == nil {
		return c
	}
	edge := max(int64(5*e.IntervalMS*1e6), 1e9)
	for i := range e.Devices {
		c[e.Devices[i].Device] = &card{over{w: e.Idle, edge: edge}, over{w: e.Load, edge: edge}}
	}
	return c
}

// add takes a row of a card in.
func (c cards) add(r *resource) {
	if r.Kind != "gpu" || r.Device == nil || c[*r.Device] == nil {
		return
	}
	one := c[*r.Device]
	for _, o := range []*over{&one.idle, &one.load} {
		if r.PowerW != nil {
			o.power.add(o, r.MonoNS, *r.PowerW, true)
		} else {
			o.power.torn = true
		}
		if r.EnergyMJ != nil {
			o.counter.add(o, r.MonoNS, float64(*r.EnergyMJ-o.counter.zero(*r.EnergyMJ))/1e3, false)
		}
	}
}

// over is what one card took in a window, by both sensors.
type over struct {
	w              window
	edge           int64 // how far outside of the window a neighbour may be
	power, counter line
}

// line is a sensor's values so far as a line from sample to sample: the area under it, or
// what it rose by, within the window, and how many seconds of the window it covers.
type line struct {
	at, base   int64
	v          float64
	began      bool
	based      bool
	torn       bool // a sample without a value came since
	sum, lasts float64
}

// zero is the first value of a counter: one of years has more digits than a float.
func (l *line) zero(v int64) int64 {
	if !l.based {
		l.base, l.based = v, true
	}
	return l.base
}

// add takes the next value. Power is known at the window's edge only if the very next
// sample has it, the counter if one does that is near.
func (l *line) add(o *over, at int64, v float64, area bool) {
	from, to := l.at, at
	was, torn := l.v, l.torn
	began := l.began
	l.at, l.v, l.began, l.torn = at, v, true, false
	if !began || at <= from {
		return
	}
	left, right := from < o.w.FromNS, to > o.w.ToNS
	far := left && from < o.w.FromNS-o.edge || right && to > o.w.ToNS+o.edge
	if (left || right) && (far || area && torn) {
		return
	}
	a, b := max(from, o.w.FromNS), min(to, o.w.ToNS)
	if a >= b {
		return
	}
	on := func(ns int64) float64 { return was + (v-was)*float64(ns-from)/float64(to-from) }
	seconds := float64(b-a) / 1e9
	if l.lasts += seconds; area {
		l.sum += (on(a) + on(b)) / 2 * seconds
	} else {
		l.sum += on(b) - on(a)
	}
}

// compare holds the figures of a run to the rows, and the sums to the figures.
func (e *spent) compare(v *verifier, c cards) {
	h := held{v, resourcesFile + " gives"}
	var counter, power sums
	for i := range e.Devices {
		d := &e.Devices[i]
		got := c[d.Device]
		name := "run.energy.devices[" + itoa(int64(i)) + "]."
		for _, p := range []struct {
			name string
			told *reading
			got  *over
		}{{name + "idle", &d.Idle, &got.idle}, {name + "load", &d.Load, &got.load}} {
			h.hold(p.name+".counter_j", p.told.CounterJ, p.got.counter.sum)
			h.hold(p.name+".power_j", p.told.PowerJ, p.got.power.sum)
			if p.told.CounterJ != nil {
				h.hold(p.name+".counter_s", &p.told.CounterS, p.got.counter.lasts)
			}
			if p.told.PowerJ != nil {
				h.hold(p.name+".power_s", &p.told.PowerS, p.got.power.lasts)
			}
		}
		counter.add(&got.idle.counter, &got.load.counter)
		power.add(&got.idle.power, &got.load.power)
	}
	if len(e.Devices) > 0 {
		h.figures("run.energy.counter.", &e.Counter, &counter, e)
		h.figures("run.energy.power.", &e.Power, &power, e)
	}
	if m := &v.measured; m.phases {
		h := held{v, "the records give"}
		successes, audio := float64(e.Successes), 0.0
		h.hold("run.energy.successes", &successes, float64(m.successes))
		if e.AudioS != nil {
			audio = m.audioS
		}
		h.hold("run.energy.audio_s", e.AudioS, audio)
	}
}

// sums are those over all cards.
type sums struct{ total, idle, net float64 }

func (s *sums) add(idle, load *line) {
	watts := 0.0
	if idle.lasts > 0 {
		watts = idle.sum / idle.lasts
	}
	s.total += load.sum
	s.idle += watts
	s.net += load.sum - watts*load.lasts
}

// held compares with what comes of others.
type held struct {
	v      *verifier
	others string
}

func (h held) figures(name string, f *figures, s *sums, e *spent) {
	h.hold(name+"total_j", f.TotalJ, s.total)
	h.hold(name+"idle_w", f.IdleW, s.idle)
	h.hold(name+"net_j", f.NetJ, s.net)
	if e.Successes > 0 {
		h.hold(name+"per_success_j", f.PerSuccessJ, s.net/float64(e.Successes))
	}
	if e.AudioS != nil && *e.AudioS > 0 {
		h.hold(name+"per_audio_s_j", f.PerAudioSecondJ, s.net / *e.AudioS)
	}
}

// hold wants a figure, where it is told, to be what the rows give, but for rounding.
func (h held) hold(name string, told *float64, got float64) {
	if told == nil {
		return
	}
	h.v.res.Compared["run.energy"]++
	if d := math.Abs(*told - got); !(d <= 1e-6*math.Max(math.Abs(got), 1)) {
		h.v.say(Error, KindValue, rundir.MetadataFile, 0, "%s is %v, %s %v", name, *told, h.others, got)
	}
}
