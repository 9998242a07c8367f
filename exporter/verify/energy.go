package verify

import (
	"math"
	"slices"

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
		c[e.Devices[i].Device] = &card{newOver(e.Idle, edge), newOver(e.Load, edge)}
	}
	return c
}

// add takes a row of a card in.
func (c cards) add(r *resource) {
	one := c[orZero(r.Device)]
	if one == nil {
		return
	}
	for _, o := range []*over{&one.idle, &one.load} {
		if r.PowerW != nil {
			o.power.area(r.MonoNS, *r.PowerW)
		} else {
			o.power.torn = true
		}
		if r.EnergyMJ != nil {
			o.counter.rise(r.MonoNS, *r.EnergyMJ)
		}
	}
}

// over is what one card took in a window, by both sensors.
type over struct{ power, counter line }

func newOver(w window, edge int64) over {
	return over{line{w: w, edge: edge}, line{w: w, edge: edge}}
}

// line is a sensor's values so far as a line from sample to sample: the area under it, or
// what it rose by, within the window, and how many seconds of the window it covers.
type line struct {
	w    window
	edge int64 // how far outside of the window a neighbour may be

	at, base int64
	v        float64
	began    bool
	torn     bool // a sample without a value came since
	// unsure says that nobody can tell what is at an edge of the window: the neighbour is
	// far away, or one that is nearer had no value.
	unsure     bool
	sum, lasts float64
}

// area takes the next value of power.
func (l *line) area(at int64, v float64) {
	l.next(at, v, func(a, b float64, seconds float64) float64 { return (a + b) / 2 * seconds })
}

// rise takes the next value of a counter, in thousandths. One of years has more digits than
// a float: it counts from its first value.
func (l *line) rise(at, v int64) {
	if !l.began {
		l.base = v
	}
	l.next(at, float64(v-l.base)/1e3, func(a, b, _ float64) float64 { return b - a })
}

func (l *line) next(at int64, v float64, sum func(a, b, seconds float64) float64) {
	from, was, began, torn := l.at, l.v, l.began, l.torn
	l.at, l.v, l.began, l.torn = at, v, true, false
	a, b := max(from, l.w.FromNS), min(at, l.w.ToNS)
	if !began || a >= b {
		return
	}
	if left, right := a > from, b < at; left && from < l.w.FromNS-l.edge || right && at > l.w.ToNS+l.edge || (left || right) && torn {
		l.unsure = true
	}
	on := func(ns int64) float64 { return was + (v-was)*float64(ns-from)/float64(at-from) }
	seconds := float64(b-a) / 1e9
	l.lasts += seconds
	l.sum += sum(on(a), on(b), seconds)
}

// compare holds the figures of a run to the rows, and the sums to the figures. A figure that
// is null is taken as told.
func (e *spent) compare(v *verifier, c cards) {
	h := held{v, resourcesFile + " gives"}
	var counter, power sums
	for i := range e.Devices {
		d := &e.Devices[i]
		got := c[d.Device]
		name := "run.energy.devices[" + itoa(int64(i)) + "]."
		h.reading(name+"idle", &d.Idle, &got.idle)
		h.reading(name+"load", &d.Load, &got.load)
		counter.add(&got.idle.counter, &got.load.counter)
		power.add(&got.idle.power, &got.load.power)
	}
	if len(e.Devices) > 0 {
		h.figures("run.energy.counter.", &e.Counter, &counter, e)
		h.figures("run.energy.power.", &e.Power, &power, e)
	}
	e.shares(v)
}

// shares holds what the energy is shared among to the records.
func (e *spent) shares(v *verifier) {
	m := &v.measured
	if !m.phases {
		return
	}
	h := held{v, "the records give"}
	h.v.res.Compared["run.energy"]++
	if e.Successes != m.successes {
		h.say("run.energy.successes", e.Successes, m.successes)
	}
	h.hold("run.energy.audio_s", e.AudioS, m.audioS)
	if e.AudioS == nil && m.audioS > 0 {
		h.say("run.energy.audio_s", nil, m.audioS)
	}
	at := slices.IndexFunc(v.meta.Run.Phases, func(p phase) bool { return p.Name == "measured" })
	if at < 0 {
		return
	}
	if p := v.meta.Run.Phases[at]; e.Load.FromNS != p.StartNS || p.EndNS != 0 && e.Load.ToNS != p.EndNS {
		v.say(Error, KindValue, rundir.MetadataFile, 0, "run.energy.load is from %d to %d, the measured part from %d to %d", e.Load.FromNS, e.Load.ToNS, p.StartNS, p.EndNS)
	}
}

// sums are those over all cards.
type sums struct {
	total, idle, net float64
	unsure           bool
}

func (s *sums) add(idle, load *line) {
	watts := 0.0
	if idle.lasts > 0 {
		watts = idle.sum / idle.lasts
	}
	s.total += load.sum
	s.idle += watts
	s.net += load.sum - watts*load.lasts
	s.unsure = s.unsure || idle.unsure || load.unsure
}

// held compares with what comes of others.
type held struct {
	v      *verifier
	others string
}

func (h held) reading(name string, told *reading, got *over) {
	h.sensor(name+".counter_", told.CounterJ, told.CounterS, &got.counter)
	h.sensor(name+".power_", told.PowerJ, told.PowerS, &got.power)
}

func (h held) sensor(name string, joule *float64, seconds float64, got *line) {
	switch {
	case joule == nil:
	case got.unsure:
		h.v.lacks("run.energy", "a sample at the window's edge has no value, or is missing")
	default:
		h.hold(name+"j", joule, got.sum)
		h.hold(name+"s", &seconds, got.lasts)
	}
}

func (h held) figures(name string, f *figures, s *sums, e *spent) {
	if s.unsure {
		return
	}
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
		h.say(name, *told, got)
	}
}

func (h held) say(name string, told, got any) {
	h.v.say(Error, KindValue, rundir.MetadataFile, 0, "%s is %v, %s %v", name, told, h.others, got)
}
