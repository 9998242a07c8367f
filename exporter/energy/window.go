package energy

import (
	"fmt"
	"slices"
	"sort"
	"time"
)

// Sample is one reading of a card. Nil is not measured.
type Sample struct {
	MonoNS   int64
	PowerW   *float64
	EnergyMJ *uint64
	// Lost says that the card was gone.
	Lost bool
}

// Device is one card with its samples in the order of their time. Instances of a split
// card are no devices here: their card's sensors measure them.
type Device struct {
	Name string
	// PowerKind is what its power is, as probes/gpu names it: "instant" or "usage".
	PowerKind string
	Samples   []Sample
}

// Window is a time, CLOCK_MONOTONIC.
type Window struct {
	FromNS int64 `json:"from_mono_ns"`
	ToNS   int64 `json:"to_mono_ns"`
}

// Reading is the energy that one card took in a window, by both sensors.
type Reading struct {
	CounterJ *float64 `json:"counter_j"`
	PowerJ   *float64 `json:"power_j"`
	// CounterS and PowerS are how much of the window the samples of each cover, 0 where
	// it is nil.
	CounterS float64 `json:"counter_s"`
	PowerS   float64 `json:"power_s"`
	// Samples are those in the window, LongestGapMS the longest time between two.
	Samples      int               `json:"samples"`
	LongestGapMS float64           `json:"longest_gap_ms"`
	Unmeasured   map[string]string `json:"unmeasured,omitempty"`
}

const (
	// leastSamples is how many a window needs. Below, one sample of power is more than a
	// tenth of the figure. Of a counter, which counts between its readings too, leastCounts
	// of them will do.
	leastSamples = 10
	leastCounts  = 3
	// gapIntervals, and at least leastGap, is how long power may be unknown inside the
	// window, and either sensor at its edges.
	gapIntervals = 5
	leastGap     = int64(time.Second)
)

// Over reads the energy of a card over a window. intervalNS is the time that was meant to
// be between samples.
func Over(d Device, w Window, intervalNS int64) Reading {
	r := Reading{Unmeasured: map[string]string{}}
	gap := Edge(intervalNS)
	in := cut(d.Samples, w, gap, func(*Sample) bool { return true })
	r.Samples = len(within(d.Samples, w))
	r.LongestGapMS = float64(longest(in)) / 1e6
	why := unfit(in, r.Samples, w)
	r.CounterJ, r.CounterS = r.sensor("counter_j", why, func() (float64, float64, error) { return counter(cut(d.Samples, w, gap, hasCounter), w, gap) })
	r.PowerJ, r.PowerS = r.sensor("power_j", why, func() (float64, float64, error) { return integral(in, w, gap) })
	return r
}

// Edge is how far outside of a window a sample may be to say what is at the window's edge,
// nanoseconds. intervalNS is the time that was meant to be between samples.
func Edge(intervalNS int64) int64 { return max(gapIntervals*intervalNS, leastGap) }

func hasCounter(s *Sample) bool { return s.EnergyMJ != nil }

func (r *Reading) sensor(name string, why error, read func() (joule, seconds float64, err error)) (*float64, float64) {
	joule, seconds := 0.0, 0.0
	if why == nil {
		joule, seconds, why = read()
	}
	if why != nil {
		r.Unmeasured[name] = why.Error()
		return nil, 0
	}
	return &joule, seconds
}

// cut is the samples in a window, with the next one on each side that has what is asked
// for, where that is no farther away than gap: not every sample has the counter.
func cut(s []Sample, w Window, gap int64, has func(*Sample) bool) []Sample {
	from := sort.Search(len(s), func(i int) bool { return s[i].MonoNS > w.FromNS })
	to := sort.Search(len(s), func(i int) bool { return s[i].MonoNS >= w.ToNS })
	first, last := from, max(to, from)
	for i := from - 1; i >= 0 && s[i].MonoNS >= w.FromNS-gap; i-- {
		if has(&s[i]) {
			first = i
			break
		}
	}
	for i := to; i < len(s) && s[i].MonoNS <= w.ToNS+gap; i++ {
		if has(&s[i]) {
			last = i + 1
			break
		}
	}
	return s[first:max(last, first)]
}

func within(s []Sample, w Window) []Sample {
	from := sort.Search(len(s), func(i int) bool { return s[i].MonoNS >= w.FromNS })
	to := sort.Search(len(s), func(i int) bool { return s[i].MonoNS > w.ToNS })
	return s[from:max(from, to)]
}

func longest(s []Sample) (gap int64) {
	for i := 1; i < len(s); i++ {
		gap = max(gap, s[i].MonoNS-s[i-1].MonoNS)
	}
	return gap
}

// unfit says why no sensor can be read over a window.
func unfit(in []Sample, n int, w Window) error {
	switch {
	case w.ToNS <= w.FromNS:
		return fmt.Errorf("the window has no length: from %d to %d", w.FromNS, w.ToNS)
	case slices.ContainsFunc(in, func(s Sample) bool { return s.Lost }):
		return fmt.Errorf("the card was lost")
	case n < leastSamples:
		return fmt.Errorf("%d samples in the window, at least %d are needed", n, leastSamples)
	default:
		return nil
	}
}

// point is a sensor's value at a time.
type point struct {
	ns int64
	v  float64
}

// clip cuts a line at a window's edges, where the points reach them, and says how much
// time is left.
func clip(p []point, w Window, gap int64, least int) ([]point, float64, error) {
	if len(p) < least {
		return nil, 0, fmt.Errorf("%d samples have a value, at least %d are needed", len(p), least)
	}
	if late := p[0].ns - w.FromNS; late > gap {
		return nil, 0, fmt.Errorf("the samples begin %v after the window", time.Duration(late))
	}
	if early := w.ToNS - p[len(p)-1].ns; early > gap {
		return nil, 0, fmt.Errorf("the samples end %v before the window", time.Duration(early))
	}
	p = slices.Clone(p)
	if p[0].ns < w.FromNS {
		p[0] = between(p[0], p[1], w.FromNS)
	}
	if n := len(p) - 1; p[n].ns > w.ToNS {
		p[n] = between(p[n-1], p[n], w.ToNS)
	}
	return p, float64(p[len(p)-1].ns-p[0].ns) / 1e9, nil
}

// between is the point at a time on the line from a to b.
func between(a, b point, ns int64) point {
	if b.ns == a.ns {
		return point{ns, b.v}
	}
	return point{ns, a.v + (b.v-a.v)*float64(ns-a.ns)/float64(b.ns-a.ns)}
}

// counter is the difference of the energy counter. It counts on through a gap.
func counter(in []Sample, w Window, gap int64) (joule, seconds float64, err error) {
	var p []point
	var last, first uint64
	for _, s := range in {
		if s.EnergyMJ == nil {
			continue
		}
		if len(p) == 0 {
			first, last = *s.EnergyMJ, *s.EnergyMJ
		}
		if *s.EnergyMJ < last {
			return 0, 0, fmt.Errorf("the counter went backwards, from %d to %d mJ: the driver was loaded anew", last, *s.EnergyMJ)
		}
		last = *s.EnergyMJ
		p = append(p, point{s.MonoNS, float64(last - first)}) // a counter of years has more digits than a float
	}
	p, seconds, err = clip(p, w, gap, leastCounts)
	if err != nil {
		return 0, 0, err
	}
	if last == first {
		return 0, 0, fmt.Errorf("the counter stood still at %d mJ", last)
	}
	return (p[len(p)-1].v - p[0].v) / 1000, seconds, nil
}

// integral is that of power, by trapezoids. It knows nothing of a gap.
func integral(in []Sample, w Window, gap int64) (joule, seconds float64, err error) {
	var p []point
	for _, s := range in {
		if s.PowerW != nil {
			p = append(p, point{s.MonoNS, *s.PowerW})
		}
	}
	p, seconds, err = clip(p, w, gap, leastSamples)
	if err != nil {
		return 0, 0, err
	}
	for i := 1; i < len(p); i++ {
		a, b := p[i-1], p[i]
		if b.ns-a.ns > gap {
			return 0, 0, fmt.Errorf("no power for %v in the window", time.Duration(b.ns-a.ns))
		}
		joule += (a.v + b.v) / 2 * float64(b.ns-a.ns) / 1e9
	}
	return joule, seconds, nil
}
