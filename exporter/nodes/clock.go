package nodes

import (
	"cmp"
	"slices"
	"sort"
)

const (
	// windowNS is how long the surest sample of a window stands for: in it one busy moment
	// of a network is outlived.
	windowNS = 1_000_000_000
	// Two clocks part by as much, nanoseconds in a millisecond, where nobody asked before
	// or after: crystals are good for 50, NTP slews by up to 500 either way.
	outsidePPM = 1000
	// Between two samples their line is followed: the clocks part from it by half as much.
	betweenPPM = outsidePPM / 2
)

// Clock is what lies between two clocks over a run, from the exchanges that were made.
type Clock struct {
	knots []Sample // by MonoNS, the surest of each window
}

// NewClock makes a Clock of samples of one peer, in any order. They stay the caller's.
func NewClock(samples []Sample) *Clock {
	sorted := slices.Clone(samples)
	slices.SortStableFunc(sorted, func(a, b Sample) int { return cmp.Compare(a.MonoNS, b.MonoNS) })
	c := &Clock{}
	for i := range sorted {
		s := &sorted[i]
		n := len(c.knots)
		switch {
		case n == 0 || s.MonoNS/windowNS != c.knots[n-1].MonoNS/windowNS:
			c.knots = append(c.knots, *s)
		case s.UncertaintyNS < c.knots[n-1].UncertaintyNS:
			c.knots[n-1] = *s
		}
	}
	c.prune()
	return c
}

// prune takes out knots that are less sure than the line between their neighbours, the
// least sure first.
func (c *Clock) prune() {
	order := make([]int64, 0, len(c.knots)) // moments, since places change
	byUncertainty := slices.Clone(c.knots)
	slices.SortStableFunc(byUncertainty, func(a, b Sample) int { return cmp.Compare(b.UncertaintyNS, a.UncertaintyNS) })
	for i := range byUncertainty {
		order = append(order, byUncertainty[i].MonoNS)
	}
	for _, at := range order {
		i, _ := slices.BinarySearchFunc(c.knots, at, func(s Sample, at int64) int { return cmp.Compare(s.MonoNS, at) })
		if i == 0 || i+1 >= len(c.knots) || c.knots[i].Same {
			continue
		}
		a, b := &c.knots[i-1], &c.knots[i+1]
		if c.knots[i].UncertaintyNS > max(a.UncertaintyNS, b.UncertaintyNS)+parted(min(at-a.MonoNS, b.MonoNS-at), betweenPPM) {
			c.knots = slices.Delete(c.knots, i, i+1)
		}
	}
}

// At returns what is added to the asker's clock at mono for the peer's, and how far that
// may be off. ok is false without a sample.
func (c *Clock) At(mono int64) (offset, uncertainty int64, ok bool) {
	if len(c.knots) == 0 {
		return 0, 0, false
	}
	i := sort.Search(len(c.knots), func(i int) bool { return c.knots[i].MonoNS >= mono })
	switch {
	case i == 0:
		return outside(&c.knots[0], mono)
	case i == len(c.knots):
		return outside(&c.knots[i-1], mono)
	}
	a, b := &c.knots[i-1], &c.knots[i]
	if a.Same && b.Same {
		return 0, 0, true
	}
	part := float64(mono-a.MonoNS) / float64(b.MonoNS-a.MonoNS)
	offset = a.OffsetNS + int64(part*float64(b.OffsetNS-a.OffsetNS))
	return offset, max(a.UncertaintyNS, b.UncertaintyNS) + parted(min(mono-a.MonoNS, b.MonoNS-mono), betweenPPM), true
}

func outside(s *Sample, mono int64) (offset, uncertainty int64, ok bool) {
	if s.Same {
		return 0, 0, true
	}
	return s.OffsetNS, s.UncertaintyNS + parted(max(mono-s.MonoNS, s.MonoNS-mono), outsidePPM), true
}

// parted is by how much clocks part in ns nanoseconds.
func parted(ns, ppm int64) int64 { return ns / 1_000_000 * ppm }

// Worst is the largest uncertainty between two moments of the asker's clock, -1 without a
// sample.
func (c *Clock) Worst(from, to int64) int64 {
	worst := int64(-1)
	look := func(at int64) {
		if _, u, ok := c.At(at); ok {
			worst = max(worst, u)
		}
	}
	look(from)
	look(to)
	for i := 1; i < len(c.knots); i++ {
		if mid := c.knots[i-1].MonoNS/2 + c.knots[i].MonoNS/2; mid > from && mid < to {
			look(mid)
		}
	}
	return worst
}
