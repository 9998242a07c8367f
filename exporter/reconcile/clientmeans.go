package reconcile

import "fmt"

// clientMeans explains a duration of which the generator has the mean alone, over requests
// that are paired: their starts and the wire's instants bound it from below.
func (w *world) clientMeans(d duration, mean float64) {
	var own, counted, start float64 // sums
	n, none, both, empty := 0, 0, 0, 0.0
	for _, p := range w.pairs.pairs {
		if p.client.Failed {
			continue
		}
		n++
		at, known := w.start(p)
		t := d.instant(p.wire)
		c := t
		if d.counted != nil && w.in.Generator.Reading.EmptyAudio {
			c = d.counted(p.wire)
		}
		if !known {
			w.find(Finding{Quantity: d.quantity, A: Client, B: Wire, Cause: NotExplained, N: 1, Evidence: "a start is not on this node's clock"})
			return
		}
		if c == nil {
			none++
			continue
		}
		counted += ms(*c - at)
		start += ms(*p.wire.Points.TIn - at)
		if t != nil {
			both++
			own += ms(*t - *p.wire.Points.TIn)
			empty += ms(*c - *t)
		}
	}
	w.means(d, meansOf{mean, n, none, both, own, counted, start, empty})
}

// meansOf are the sums of clientMeans: n requests, none of them without the event; over the
// both that have the wire's instant as well, own is its duration and empty what the event
// that the generator counts lies behind it.
type meansOf struct {
	mean                       float64
	n, none, both              int
	own, counted, start, empty float64
}

func (w *world) means(d duration, m meansOf) {
	if m.both == 0 || m.n == 0 {
		return
	}
	wire := m.own / float64(m.both)
	left := m.mean - wire
	find := func(c Cause, amount float64, n int, evidence string) {
		left -= amount
		if c == ZeroForNone || amount > w.in.Tolerance || -amount > w.in.Tolerance {
			w.find(Finding{Quantity: d.quantity, A: Client, B: Wire, Cause: c, Amount: &amount, N: n, Evidence: evidence})
		}
	}
	reached := m.n - m.none
	if m.empty < 0 {
		find(EmptyAudioAsAudio, m.empty/float64(m.both), m.both, "first audio event less first playable audio, mean on the wire")
	}
	find(GeneratorStart, m.start/float64(reached), reached, "t_in less its start, on one clock")
	full := m.mean
	if m.none > 0 && w.in.Generator.Reading.ZeroForNone {
		full = m.mean * float64(m.n) / float64(reached)
		find(ZeroForNone, m.mean-full, m.none, fmt.Sprintf("%d of its %d successes have no such event on the wire; their values are 0", m.none, m.n))
	}
	switch least := m.counted / float64(reached); {
	case d.quantity == JCT && full < least && w.in.Generator.Reading.EndsEarly:
		find(EndMarkerLeftOut, full-least, reached, "its mean end lies ahead of the mean end marker, on one clock")
	case full >= least:
		find(GeneratorRead, full-least, reached, "its mean instant less that of the wire, on one clock")
	}
	if tol := w.tolerance(wire); left > tol || -left > tol {
		w.find(Finding{Quantity: d.quantity, A: Client, B: Wire, Cause: NotExplained, Amount: &left, N: m.n, Evidence: "what is left of the difference of means"})
	}
}
