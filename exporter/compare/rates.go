package compare

import (
	"fmt"
	"math"

	"github.com/omnitap/omnitap/exporter/compare/internal/interval"
	"github.com/omnitap/omnitap/exporter/stats"
)

// rate is a figure that a run has one of.
func (f *flow) rate(name, label, unit, missing string, of func(*digest) float64) Figure {
	out := Figure{Name: name, Label: label, N: [2]int{f.successes(f.a), f.successes(f.b)}}
	v := [2]stats.Blocks{}
	why := ""
	for side, runs := range [2][]*digest{f.a, f.b} {
		for _, d := range runs {
			x := of(d)
			if math.IsNaN(x) || math.IsInf(x, 0) {
				why = missing
			}
			v[side] = append(v[side], []float64{x})
		}
	}
	out.Delta = f.c.relative(sides{a: v[0], b: v[1], s: stats.Mean, unit: unit})
	if why != "" {
		out.Change.Why = why
	}
	f.judge(&out.Delta, judged{up: Faster, down: Slower, gain: 1, scope: aboutWhole})
	return out
}

func (f *flow) throughput() Figure {
	return f.rate(throughput, "throughput", "1/s", "a run's window has no length", func(d *digest) float64 {
		return float64(d.success) / d.seconds()
	})
}

// goodput counts the successes within the SLO.
func (f *flow) goodput() Figure {
	return f.rate(goodput, "goodput", "1/s", "a run's window has no length", func(d *digest) float64 {
		n := 0
		for i := range d.rows {
			if d.rows[i].met {
				n++
			}
		}
		return float64(n) / d.seconds()
	})
}

// success is the success rate. Where no request ever fails, runs do not differ and their
// spread is not known; the interval is therefore never narrower than that of counting so
// many independent requests (Newcombe's), nor than that of the runs (Student's t).
func (f *flow) success() {
	out := Figure{Name: successRate, Label: "success rate", N: [2]int{f.out.Counts[0].Requests, f.out.Counts[1].Requests}}
	share := func(d *digest) float64 { return float64(d.success) / float64(d.requests) }
	v := [2]stats.Blocks{}
	for side, runs := range [2][]*digest{f.a, f.b} {
		for _, d := range runs {
			v[side] = append(v[side], []float64{share(d)})
		}
	}
	s := sides{a: v[0], b: v[1], s: stats.Mean}
	out.Delta = f.c.delta(s)
	figA, figB := figures(s.a, s.s), figures(s.b, s.s)
	if p, _, why := stats.Permutation(s.a, s.b, s.s, stats.Design{Paired: f.c.order.Paired, Level: level, Seed: f.c.opts.Seed}); why == "" {
		out.P = finite(p)
	}
	f.c.drift(&out.Delta, figA, figB)
	f.shareChange(&out.Delta, figA, figB)
	f.judge(&out.Delta, judged{up: Better, down: Worse, gain: 1, scope: aboutSuccess})
	f.succeeded = out
	f.doubtSuccess(&out.Delta)
}

// shareChange fills in the change of a share of all requests.
func (f *flow) shareChange(d *Delta, figA, figB []float64) {
	a, b := &f.out.Counts[0], &f.out.Counts[1]
	if a.Requests == 0 || b.Requests == 0 {
		d.Change.Why = "a side has no requests"
		return
	}
	pa, pb := float64(a.Success)/float64(a.Requests), float64(b.Success)/float64(b.Requests)
	d.A, d.B, d.Difference = finite(pa), finite(pb), finite(pb-pa)
	lo, hi := interval.Newcombe(interval.Share{K: a.Success, N: a.Requests}, interval.Share{K: b.Success, N: b.Requests}, level)
	iv := stats.Interval{Lo: lo, Hi: hi, Level: level, Method: "newcombe"}
	_, t, why := interval.Difference(figA, figB, f.c.spread(), level)
	if why == "" {
		half := (t.Hi - t.Lo) / 2
		iv.Lo, iv.Hi, iv.Method = max(-1, min(lo, pb-pa-half)), min(1, max(hi, pb-pa+half)), t.Method+"+newcombe"
	}
	if len(figA) < 2 || len(figB) < 2 {
		d.WithinRun = scaled(iv, pa)
		d.Change.Why = interval.OneRun
		if pa > 0 {
			d.Change.Estimate = (pb - pa) / pa
		}
		return
	}
	d.DifferenceInterval = iv
	if pa == 0 {
		d.Change.Why = "no request of A succeeded"
		return
	}
	d.Change = stats.Change{Estimate: (pb - pa) / pa, Interval: *scaled(iv, pa), N: a.Requests + b.Requests, Blocks: min(len(figA), len(figB))}
}

// scaled is an interval of a difference as a share of a figure, nil of nothing.
func scaled(iv stats.Interval, of float64) *stats.Interval {
	if of == 0 {
		return nil
	}
	iv.Lo, iv.Hi = iv.Lo/of, iv.Hi/of
	return &iv
}

// doubtSuccess: where requests are not paired, those that still succeed may be the easy
// ones.
func (f *flow) doubtSuccess(d *Delta) {
	if f.paired.By != ByNone || d.Verdict != Better && d.Verdict != Worse || math.Abs(orNaN(d.Difference)) < lengthFloor {
		return
	}
	sign := 1.0
	if d.Verdict == Better {
		sign = -1
	}
	f.doubts = append(f.doubts, doubt{aboutTimes, sign, false, math.Inf(1), CannotTell, fmt.Sprintf(
		"%.1f %% of A's requests succeed and %.1f %% of B's, and requests are not paired: those that are left may be the easy ones", 100**d.A, 100**d.B)})
}
