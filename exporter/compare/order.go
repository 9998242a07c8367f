package compare

import (
	"cmp"
	"slices"
)

// Kinds of order of the runs.
const (
	// OrderAlternating: runs that are neighbours in time are pairs of an A and a B.
	OrderAlternating = "alternating"
	// OrderMixed: the sides lie among each other, and not in pairs.
	OrderMixed = "mixed"
	// OrderSeparate: all runs of one side came before all of the other, so that what
	// drifts meanwhile cannot be told from what was changed.
	OrderSeparate = "separate"
	// OrderUnknown: a run does not say when it began.
	OrderUnknown = "unknown"
)

// Order is how the runs lay in time.
type Order struct {
	// Pattern is the sides in the order of their start: "A B B A".
	Pattern string `json:"pattern"`
	Kind    string `json:"kind"`
	// Overlap says that some runs ran at the same time.
	Overlap bool `json:"overlap"`
	// Paired says that the runs are compared in pairs, in their order.
	Paired bool `json:"paired"`
}

// minPairs is how many pairs of runs pairing is worth its degrees of freedom for.
const minPairs = 4

// placed is a run with its place in the order of all.
type placed struct {
	*Run
	side  byte
	place float64
}

// arrange sorts each side by the start of its runs and says how the sides lie.
func arrange(a, b []*Run) (sa, sb []placed, o Order) {
	var all []placed
	known := true
	for _, r := range a {
		all = append(all, placed{Run: r, side: 'A'})
	}
	for _, r := range b {
		all = append(all, placed{Run: r, side: 'B'})
	}
	for _, p := range all {
		known = known && p.meta.Start.WallNS > 0
	}
	if known {
		slices.SortStableFunc(all, func(x, y placed) int { return cmp.Compare(x.meta.Start.WallNS, y.meta.Start.WallNS) })
	}
	sides := make([]byte, len(all))
	latest := int64(0)
	for i := range all {
		all[i].place = float64(i)
		sides[i] = all[i].side
		if known && all[i].meta.Start.WallNS < latest {
			o.Overlap = true
		}
		if e := all[i].meta.End; e != nil {
			latest = max(latest, e.WallNS)
		}
		if all[i].side == 'A' {
			sa = append(sa, all[i])
		} else {
			sb = append(sb, all[i])
		}
	}
	o.Kind = OrderUnknown
	if known {
		o.Kind = kindOf(sides)
	}
	o.Pattern = string(join(sides))
	o.Paired = o.Kind == OrderAlternating && len(sa) >= minPairs && !o.Overlap
	return sa, sb, o
}

// kindOf tells the kind of a sequence of As and Bs.
func kindOf(sides []byte) string {
	changes, pairs := 0, len(sides)%2 == 0
	for i := 1; i < len(sides); i++ {
		if sides[i] != sides[i-1] {
			changes++
		} else if i%2 == 1 {
			pairs = false
		}
	}
	switch {
	case changes <= 1:
		return OrderSeparate
	case pairs:
		return OrderAlternating
	}
	return OrderMixed
}

func join(sides []byte) []byte {
	var out []byte
	for i, s := range sides {
		if i > 0 {
			out = append(out, ' ')
		}
		out = append(out, s)
	}
	return out
}
