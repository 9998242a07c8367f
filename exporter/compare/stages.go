package compare

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/omnitap/omnitap/exporter/compare/internal/interval"
	"github.com/omnitap/omnitap/exporter/stats"
)

// Row is a line of the tables about stages: a figure in milliseconds.
type Row struct {
	Name string `json:"name"`
	// A and B are the means of the runs' figures, Difference is B − A.
	A          *float64       `json:"a_ms"`
	B          *float64       `json:"b_ms"`
	Difference *float64       `json:"difference_ms"`
	Interval   stats.Interval `json:"interval_ms"`
	// Noise is the A/A noise.
	Noise *float64 `json:"aa_noise_ms"`
	// Share is the row's part of the change of TTFA, null where that is not established
	// or the row is no gap.
	Share   *float64 `json:"share"`
	Verdict Verdict  `json:"verdict"`
	Reason  string   `json:"reason"`
}

// Path is the mean way to first audio: its gaps sum to TTFA.
type Path struct {
	// With is how many successes of A and B have a way, Of how many have a TTFA.
	With [2]int `json:"with"`
	Of   [2]int `json:"of"`
	// TTFA is the mean of all that have one, Gaps of those with a way.
	TTFA Row   `json:"ttfa"`
	Gaps []Row `json:"gaps"`
	// Residual is what of TTFA's difference the gaps' differences do not sum to: requests
	// without a way.
	Residual *float64 `json:"residual_ms"`
}

// stages fills in the tables about stages.
func (f *flow) stages() {
	f.out.Stages, f.out.Edges = []Row{}, []Row{}
	f.path()
	var names []stageKey
	var edges []edgeKey
	for _, d := range slices.Concat(f.a, f.b) {
		names = append(names, slices.Collect(maps.Keys(d.work.stages))...)
		edges = append(edges, slices.Collect(maps.Keys(d.work.edges))...)
	}
	names, edges = distinctOf(names, compareStages), distinctOf(edges, compareEdges)
	for _, k := range names {
		for _, p := range []float64{0.50, 0.95} {
			f.out.Stages = append(f.out.Stages, f.row(fmt.Sprintf("%s %s p%.0f", k.stage, k.what, 100*p), 2*len(names), func(d *digest) float64 {
				return quantile(d.work.stages[k], p)
			}))
		}
	}
	for _, k := range edges {
		for _, p := range []float64{0.50, 0.95, 0.99} {
			f.out.Edges = append(f.out.Edges, f.row(fmt.Sprintf("%s->%s (%s) p%.0f", k.from, k.to, k.transport, 100*p), 3*len(edges), func(d *digest) float64 {
				return quantile(d.work.edges[k], p)
			}))
		}
	}
}

func distinctOf[K comparable](keys []K, order func(a, b K) int) []K {
	slices.SortFunc(keys, order)
	return slices.Compact(keys)
}

func compareStages(a, b stageKey) int {
	return cmp.Or(cmp.Compare(a.stage, b.stage), -cmp.Compare(a.what, b.what))
}

func compareEdges(a, b edgeKey) int {
	return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.transport, b.transport))
}

// quantile of a run's histogram: NaN where there is none, or too few values for it, as
// stats.RelativeChange has it.
func quantile(h *stats.Histogram, p float64) float64 {
	if h == nil || float64(h.N())*min(p, 1-p) < 0.5-1e-9 {
		return math.NaN()
	}
	return h.Quantile(p)
}

// fewLevel is the level that a table's rows hold together at where there are too few runs
// for Welch's t: see row.
const fewLevel = 1 - (1-level)/2

// row compares a figure of each run; its interval holds together with those of all rows
// of its table. With two or three runs on either side both count as equally noisy, at
// half the error: of 15 rows without a change one then grew in 2 of 100 experiments, in 3
// to 4 where one side was twice as noisy, in 5 to 8 where four times. Welch's t, for
// which that makes no difference, has intervals several times as wide.
func (f *flow) row(name string, rows int, of func(*digest) float64) Row {
	a, b := collect(f.a, of), collect(f.b, of)
	r := Row{Name: name, A: finite(stat.Mean(a, nil)), B: finite(stat.Mean(b, nil)), Verdict: CannotTell}
	together, how := level, f.c.spread()
	if rows > 1 && len(a) == len(b) && len(a) < minPairs {
		together, how = fewLevel, interval.OneSpread
	}
	est, iv, why := interval.Difference(a, b, how, 1-(1-together)/float64(max(1, rows)))
	r.Difference, r.Interval = finite(est), iv
	noise, drift := f.c.noise(a, b)
	r.Noise, r.Reason = finite(noise), cmp.Or(f.unfit, f.empty)
	switch {
	case r.Reason != "":
	case why != "" && est == 0 && len(a) > 1 && len(b) > 1:
		r.Verdict = NoDifference
	case why != "":
		r.Reason = why
	case iv.Lo <= 0 && iv.Hi >= 0:
		if r.Verdict = NoDifference; max(-iv.Lo, iv.Hi) > blind*max(orNaN(r.A), f.scale()) {
			r.Verdict, r.Reason = CannotTell, fmt.Sprintf("%s a side are too few for these tables, or too different", plural(min(len(a), len(b)), "run"))
		}
	case noise >= math.Abs(est):
		r.Reason = fmt.Sprintf("runs of one side differ by %.2f ms from early to late", noise)
	case drift.explains(est):
		r.Reason = "the runs of each side drift by as much"
	default:
		if s := f.doubts.about(aboutFirst, 0, 0); s.verdict != "" {
			r.Reason = s.reason
			break
		}
		if r.Verdict = Grew; est < 0 {
			r.Verdict = Shrank
		}
	}
	return r
}

// scale is what a row's interval is large beside: A's mean TTFA, 0 where there is none.
func (f *flow) scale() float64 {
	if v := meanOf(f.a, func(d *digest) float64 { return d.work.ttfa.average() }); v > 0 {
		return v
	}
	return 0
}

func collect(side []*digest, of func(*digest) float64) []float64 {
	out := make([]float64, len(side))
	for i, d := range side {
		out[i] = of(d)
	}
	return out
}

// path compares the way to first audio.
func (f *flow) path() {
	p := Path{Gaps: []Row{}}
	at := map[string]*moments{}
	for side, runs := range [2][]*digest{f.a, f.b} {
		for _, d := range runs {
			p.With[side] += d.work.onPath.n
			p.Of[side] += d.work.ttfa.n
			for name, g := range d.work.gaps {
				if at[name] == nil {
					at[name] = &moments{}
				}
				at[name].add(g.at / float64(g.n))
			}
		}
	}
	if p.With[0] == 0 && p.With[1] == 0 {
		return
	}
	f.out.Path = &p
	p.TTFA = f.row("TTFA", 1, func(d *digest) float64 { return d.work.ttfa.average() })
	f.asHeadline(&p.TTFA)
	sum := 0.0
	for _, name := range slices.SortedFunc(maps.Keys(at), func(x, y string) int {
		return cmp.Or(cmp.Compare(at[x].mean, at[y].mean), cmp.Compare(x, y))
	}) {
		r := f.row(name, len(at), func(d *digest) float64 { return d.work.gap(name) })
		sum += orNaN(r.Difference)
		if p.TTFA.Verdict == Grew || p.TTFA.Verdict == Shrank {
			r.Share = finite(orNaN(r.Difference) / orNaN(p.TTFA.Difference))
		}
		p.Gaps = append(p.Gaps, r)
	}
	p.Residual = finite(orNaN(p.TTFA.Difference) - sum)
}

// asHeadline gives the row of the mean TTFA the verdict that the headline has of it, so
// that the two cannot disagree at the edge.
func (f *flow) asHeadline(r *Row) {
	d, _ := f.mean(atTTFA)
	r.Verdict, r.Reason = d.Verdict, d.Reason
	switch d.Verdict {
	case Slower:
		r.Verdict = Grew
	case Faster:
		r.Verdict = Shrank
	default: // it says the same of both
	}
}
