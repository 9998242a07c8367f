package compare

import (
	"math"
	"strings"

	"gonum.org/v1/gonum/stat"

	"github.com/omnitap/omnitap/exporter/compare/internal/interval"
	"github.com/omnitap/omnitap/exporter/stats"
)

// level of every interval that stands for itself.
const level = 0.95

// Delta is a figure of both sides and its change from A to B.
type Delta struct {
	// Unit of A, B, Difference and the figures of the runs: ms, s/s, 1/s, or empty for a
	// share.
	Unit string `json:"unit"`
	// A and B are over the runs of a side: of a relative change their geometric mean,
	// else the mean; nil where a run has none.
	A *float64 `json:"a"`
	B *float64 `json:"b"`
	// RunsA and RunsB are the figures of the runs in the order of their start; null for
	// a run without.
	RunsA []*float64 `json:"runs_a"`
	RunsB []*float64 `json:"runs_b"`
	// Change is (B − A)/A. Difference is B − A with its own interval.
	Change             stats.Change   `json:"change"`
	Difference         *float64       `json:"difference"`
	DifferenceInterval stats.Interval `json:"difference_interval"`
	// Noise is the A/A noise as a share, Carried the drift that the runs of each side
	// show carried over to the time between the sides; null where there is one run a
	// side, or no order.
	Noise   *float64 `json:"aa_noise"`
	Carried *float64 `json:"carried_drift"`
	// LessDrift bounds the change less a linear drift that the runs of each side show,
	// where all runs of one side came before those of the other; else null.
	LessDrift *stats.Interval `json:"change_less_drift"`
	// WithinRun is, for one run a side, what resampling stretches of each run gives for
	// Change. It says nothing of how runs differ.
	WithinRun *stats.Interval `json:"within_run"`
	// P is the two-sided p of the permutation test over runs, null where there is none.
	P       *float64 `json:"permutation_p"`
	Verdict Verdict  `json:"verdict"`
	// Reason says why the verdict is no plain one, or what stands beside it.
	Reason string `json:"reason"`
}

// sides are a figure's values by run, in the order of the runs' start.
type sides struct {
	a, b stats.Blocks
	s    stats.Statistic
	unit string
}

// relative reckons everything about a figure but its verdict.
func (c *comparison) relative(f sides) Delta {
	d := c.delta(f)
	design := stats.Design{Paired: c.order.Paired, Level: level, Seed: c.opts.Seed}
	d.Change = stats.RelativeChange(f.a, f.b, f.s, design)
	d.Change.Why = inRuns.Replace(d.Change.Why)
	figA, figB := figures(f.a, f.s), figures(f.b, f.s)
	d.A, d.B = finite(geometric(figA)), finite(geometric(figB))
	est, iv, _ := interval.Difference(figA, figB, c.spread(), level)
	d.Difference, d.DifferenceInterval = finite(est), iv
	if p, _, why := stats.Permutation(f.a, f.b, f.s, design); why == "" {
		d.P = finite(p)
	}
	c.drift(&d, figA, figB)
	if len(f.a) == 1 && len(f.b) == 1 {
		d.WithinRun = c.withinRun(f)
		if a, b := figA[0], figB[0]; a > 0 && b > 0 {
			d.Change.Estimate = (b - a) / a
		}
	}
	return d
}

// spread says how the runs of both sides lie to each other.
func (c *comparison) spread() interval.Spread {
	if c.order.Paired {
		return interval.Pairs
	}
	return interval.Groups
}

// inRuns speaks of runs where stats speaks of blocks.
var inRuns = strings.NewReplacer("block", "run", " of a:", " of A:", " of b:", " of B:", " of a is", " of A is", " of b is", " of B is")

// delta has the runs' own figures.
func (c *comparison) delta(f sides) Delta {
	return Delta{
		Unit: f.unit, RunsA: pointers(figures(f.a, f.s)), RunsB: pointers(figures(f.b, f.s)),
		Change:             stats.Change{Estimate: math.NaN(), Interval: unknown(), Why: "not reckoned"},
		DifferenceInterval: unknown(),
	}
}

func unknown() stats.Interval { return stats.Interval{Lo: math.NaN(), Hi: math.NaN(), Level: level} }

// figures are the runs' own.
func figures(v stats.Blocks, s stats.Statistic) []float64 {
	out := make([]float64, len(v))
	for i, block := range v {
		out[i] = s(block)
	}
	return out
}

func pointers(v []float64) []*float64 {
	out := make([]*float64, len(v))
	for i, x := range v {
		out[i] = finite(x)
	}
	return out
}

// geometric is the geometric mean, NaN unless all values are above 0.
func geometric(v []float64) float64 {
	return math.Exp(stat.Mean(logs(v), nil))
}

// logs of values; NaN of one that is not above 0.
func logs(v []float64) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		if out[i] = math.Log(x); math.IsInf(out[i], 0) {
			out[i] = math.NaN()
		}
	}
	return out
}

// Bounds of what is resampled within a run.
const (
	// stretches is how many stretches of a run are its blocks: enough for BCa, and long
	// enough that requests that disturb each other mostly lie in one.
	stretches = 60
	// maxWithin is up to how many values are resampled.
	maxWithin = 50_000
	// withinDraws is how often.
	withinDraws = 400
)

// withinRun resamples stretches of one run a side. nil where that gives nothing.
func (c *comparison) withinRun(f sides) *stats.Interval {
	if len(f.a[0]) > maxWithin || len(f.b[0]) > maxWithin {
		return nil
	}
	design := stats.Design{Level: level, Seed: c.opts.Seed, Resamples: withinDraws}
	a, ia, whyA := stats.Bootstrap(cut(f.a[0]), f.s, design)
	b, ib, whyB := stats.Bootstrap(cut(f.b[0]), f.s, design)
	if whyA != "" || whyB != "" || !(ia.Lo > 0) || !(ib.Lo > 0) {
		return nil
	}
	lo, hi := interval.Mover(interval.Known{At: a, Lo: ia.Lo, Hi: ia.Hi}.Log(), interval.Known{At: b, Lo: ib.Lo, Hi: ib.Hi}.Log())
	return &stats.Interval{Lo: math.Expm1(lo), Hi: math.Expm1(hi), Level: level, Method: "mover/" + ib.Method + "/within a run"}
}

// cut cuts a run's values, which are in the order of their requests, into stretches.
func cut(v []float64) stats.Blocks {
	n := min(len(v), stretches)
	out := make(stats.Blocks, n)
	for i := range out {
		out[i] = v[i*len(v)/n : (i+1)*len(v)/n]
	}
	return out
}
