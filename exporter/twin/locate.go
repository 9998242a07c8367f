package twin

import "math"

// nowhere is the lag of no piece.
const nowhere = math.MinInt

// path is the cheapest way to read the frames so far: how much it costs, up to
// where they agreed at the first lag, and from where on at the second.
type path struct {
	cost        float64
	stop, again int
}

// locate returns up to which frame, from start to end, the stream agrees with its
// twin at the lag at hand, and from which on at the next lag. Between the two lie
// frames that agree at neither.
//
// It reads the frames as three states in a row (one lag, neither, the other lag)
// and takes the cheapest way through: a frame costs the square of its difference,
// or in the middle state a little more than agreeing frames differ by. Of equal
// ways the one that stays longest at the first lag counts.
func (w *walk) locate(start, end, next int) (stop, again int) {
	neither := 4 * max(same*same, 4*w.noise)
	one := path{stop: start, again: start}
	none, other := path{cost: math.Inf(1)}, path{cost: math.Inf(1)}
	var x, y, z [block]float64
	for from := start; from < end; from += block {
		n := min(block, end-from)
		w.a.read(x[:n], from, 0)
		w.b.read(y[:n], from+w.lag, 0)
		if next != nowhere {
			w.b.read(z[:n], from+next, 0)
		}
		for i := range n {
			f := from + i
			here, there := w.differ(f, w.lag, x[i], y[i]), w.differ(f, next, x[i], z[i])
			other = cheapest(path{one.cost, f, f}, path{none.cost, none.stop, f}, other)
			none = cheapest(path{one.cost, f, f}, none)
			other.cost += there
			none.cost += neither
			one.cost += here
		}
	}
	if next == nowhere {
		best := cheapest(path{one.cost, end, end}, none)
		return best.stop, end
	}
	return other.stop, other.again
}

// differ is what a frame costs at a lag: as much as anything where there is no
// twin to it.
func (w *walk) differ(f, lag int, x, y float64) float64 {
	if lag == nowhere || f+lag < 0 || f+lag >= w.lb {
		return 16
	}
	return (x - y) * (x - y)
}

func cheapest(p path, more ...path) path {
	for _, q := range more {
		if q.cost < p.cost {
			p = q
		}
	}
	return p
}
