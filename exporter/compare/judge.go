package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/exporter/compare/gate"
	"github.com/omnitap/omnitap/exporter/compare/internal/interval"
	"github.com/omnitap/omnitap/exporter/stats"
)

// Judge holds the comparison to gates, flow by flow: an outcome for each flow that has
// the gate's metric on either side, of those that it is about, one that cannot be told
// where none has. It keeps
// them in Gates too. allowed says that a gate that cannot be told does not fail.
func (r *Result) Judge(gates []gate.Gate, allowed bool) []gate.Outcome {
	r.Gates = []gate.Outcome{}
	for _, g := range gates {
		found := false
		for i := range r.Flows {
			if f := r.Flows[i].flow; r.Flows[i].is(g.Flow) && f.has(g) {
				o := f.held(g)
				o.Gate, o.Flow, o.Allowed = g, r.Flows[i].label(), allowed
				r.Gates = append(r.Gates, o)
				found = true
			}
		}
		if !found {
			o := nothing("no flow has " + g.Metric.Name)
			if g.Flow != "" {
				o = nothing(r.lacks(g))
			}
			if g.Metric.Name == goodput && r.NoSLO != "" {
				o = nothing(r.NoSLO)
			}
			o.Gate, o.Allowed = g, allowed
			r.Gates = append(r.Gates, o)
		}
	}
	return r.Gates
}

// is says whether it is the flow of a name; empty is any.
func (f *Flow) is(name string) bool { return name == "" || name == f.Name || name == f.label() }

// lacks says why a gate about one flow has nothing to hold: there is no such flow, or it
// has no such metric.
func (r *Result) lacks(g gate.Gate) string {
	var names []string
	for i := range r.Flows {
		if r.Flows[i].is(g.Flow) {
			return fmt.Sprintf("the flow %s has no %s", g.Flow, g.Metric.Name)
		}
		names = append(names, r.Flows[i].label())
	}
	return fmt.Sprintf("there is no flow %s, but %s", g.Flow, strings.Join(names, ", "))
}

func (f *Flow) label() string { return group{f.Name, f.TIn}.label() }

func nothing(reason string) gate.Outcome {
	return gate.Outcome{Verdict: gate.CannotTell, Estimate: math.NaN(), Lo: math.NaN(), Hi: math.NaN(), Reason: reason}
}

// has says whether the gate is about something of the flow.
func (f *flow) has(g gate.Gate) bool {
	if m := latencyOf(g.Metric); m >= 0 {
		return f.measured(m)
	}
	return g.Metric.Name != goodput || f.c.slo.why == ""
}

// measured says whether any success of either side has the metric, paired or not.
func (f *flow) measured(m int) bool {
	for _, d := range slices.Concat(f.a, f.b) {
		if slices.ContainsFunc(d.rows, func(w row) bool { return w.ok && !math.IsNaN(w.v[m]) }) {
			return true
		}
	}
	return false
}

// held holds one gate to one flow.
func (f *flow) held(g gate.Gate) gate.Outcome {
	figure, s := f.named(g)
	d := &figure.Delta
	o := nothing("")
	switch g.About {
	case gate.Change:
		o.Estimate, o.Lo, o.Hi = d.Change.Estimate, d.Change.Interval.Lo, d.Change.Interval.Hi
	case gate.Difference:
		o.Estimate, o.Lo, o.Hi = orNaN(d.Difference), d.DifferenceInterval.Lo, d.DifferenceInterval.Hi
	case gate.Figure:
		o.Reason = f.own(&o, g, d)
	}
	if why := f.gateFault(d, s, g.About); why != "" {
		o.Reason, o.Verdict = why, gate.CannotTell
		return o
	}
	if o.Reason != "" {
		return o
	}
	o.Verdict = g.Judge(o.Lo, o.Hi)
	switch o.Verdict {
	case gate.CannotTell:
		o.Reason = "the interval reaches over the limit"
	case gate.Held, gate.Broken:
		f.doubted(&o, g, d, s)
	}
	return o
}

// named is the figure that a gate is about, and the scope of its doubts.
func (f *flow) named(g gate.Gate) (Figure, scope) {
	if m := latencyOf(g.Metric); m >= 0 {
		return f.latency(m, g.Quantile()), latencies[m].scope
	}
	switch g.Metric.Name {
	case successRate:
		return f.succeeded, aboutSuccess
	case goodput:
		return f.goodput(), aboutWhole
	}
	return f.throughput(), aboutWhole
}

// gateFault says why nothing can be held to the gate.
func (f *flow) gateFault(d *Delta, s scope, about gate.About) string {
	switch {
	case f.unfit != "":
		return f.unfit
	case f.empty != "" && s != aboutSuccess:
		return f.empty
	case about != gate.Figure && (len(d.RunsA) < 2 || len(d.RunsB) < 2):
		return interval.OneRun
	case about != gate.Figure && d.Change.Why != "":
		return d.Change.Why
	}
	return ""
}

// own is the interval of B's own figure, over all its values.
func (f *flow) own(o *gate.Outcome, g gate.Gate, d *Delta) (why string) {
	if len(d.RunsB) < 2 {
		return "one run of B: how far runs differ is not known"
	}
	if g.Metric.Name == successRate {
		b := &f.out.Counts[1]
		if b.Requests == 0 {
			return "B has no requests"
		}
		o.Estimate = float64(b.Success) / float64(b.Requests)
		o.Lo, o.Hi = interval.Wilson(interval.Share{K: b.Success, N: b.Requests}, level)
		if _, iv, why := stats.Bootstrap(values1(d.RunsB), stats.Mean, stats.Design{Level: level, Seed: f.c.opts.Seed}); why == "" {
			o.Lo, o.Hi = min(o.Lo, max(0, iv.Lo)), max(o.Hi, min(1, iv.Hi))
		}
		return ""
	}
	v, s := values1(d.RunsB), stats.Statistic(stats.Mean)
	if m := latencyOf(g.Metric); m >= 0 {
		v, s = unpaired(f.b, "").values[m], stats.Quantile(g.Quantile())
	}
	est, iv, why := stats.Bootstrap(v, s, stats.Design{Level: level, Seed: f.c.opts.Seed})
	o.Estimate, o.Lo, o.Hi = est, iv.Lo, iv.Hi
	return why
}

// values1 makes blocks of runs' single figures; one that is not known is left NaN, which
// stats refuses.
func values1(v []*float64) stats.Blocks {
	out := make(stats.Blocks, len(v))
	for i, p := range v {
		out[i] = []float64{orNaN(p)}
	}
	return out
}

// doubted takes a verdict back where something else makes it worthless: noise as large as
// the room that is left, an output of another length, inputs that are not alike.
func (f *flow) doubted(o *gate.Outcome, g gate.Gate, d *Delta, s scope) {
	room := math.Abs(g.Limit() - o.Estimate)
	scale := 1.0
	switch g.About {
	case gate.Change:
	case gate.Difference:
		scale = orNaN(d.A)
	case gate.Figure:
		scale = orNaN(d.B)
	}
	n := orZero(d.Noise)
	if d.LessDrift == nil {
		n = max(n, carriedFactor*orZero(d.Carried))
	} else if g.About != gate.Figure {
		of := map[gate.About]float64{gate.Change: 1, gate.Difference: scale}[g.About]
		if g.Judge(of*d.LessDrift.Lo, of*d.LessDrift.Hi) != o.Verdict {
			o.Verdict, o.Reason = gate.CannotTell, fmt.Sprintf(
				"all runs of one side came first; without the drift that the runs of each side show, %s to %s %% are left", percent(d.LessDrift.Lo), percent(d.LessDrift.Hi))
			return
		}
	}
	if n*scale > room {
		o.Verdict, o.Reason = gate.CannotTell, fmt.Sprintf("the runs of one side drift by %.1f %%, more than what lies between figure and limit", 100*n)
		return
	}
	if g.About == gate.Figure {
		return // it is about B alone
	}
	sign := -1.0 // for the worse
	if o.Verdict == gate.Held {
		sign = 1
	}
	q := f.doubts.about(s, 0, 0)
	if q.verdict == "" {
		q = f.doubts.about(s, sign, math.Abs(math.Log1p(orZero(finite(d.Change.Estimate)))))
	}
	switch {
	case q.verdict == "":
	case o.Verdict == gate.Held:
		o.Verdict, o.Reason = gate.CannotTell, q.reason
	default:
		o.Reason = q.reason
	}
}

func orZero(p *float64) float64 {
	if p == nil {
		return 0
	}
	return *p
}
