package compare

import (
	"math"
	"strings"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

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
	est, iv, _ := difference(figA, figB, c.order.Paired, level)
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

// noSpread is the spread, as a share of the figures, below which they differ by rounding
// alone.
const noSpread = 1e-12

// difference is the mean of b less that of a, in their own unit, by Student's t on pairs
// or Welch's on two groups. why is set, and the interval unknown, for fewer than two
// runs a side, a run without a figure, and runs that do not differ.
func difference(a, b []float64, paired bool, level float64) (estimate float64, iv stats.Interval, why string) {
	return differenceBy(a, b, paired, false, level)
}

// differenceBy is difference; pooled takes two groups' spread for the same (Student's t).
func differenceBy(a, b []float64, paired, pooled bool, level float64) (estimate float64, iv stats.Interval, why string) {
	iv = stats.Interval{Lo: math.NaN(), Hi: math.NaN(), Level: level}
	if len(a) == 0 || len(b) == 0 {
		return math.NaN(), iv, "a side has no runs"
	}
	ma, va := stat.MeanVariance(a, nil)
	mb, vb := stat.MeanVariance(b, nil)
	estimate = mb - ma
	switch {
	case math.IsNaN(estimate) || math.IsInf(estimate, 0):
		return math.NaN(), iv, "it was not measured in every run"
	case len(a) < 2 || len(b) < 2:
		return estimate, iv, oneRun
	}
	variance, freedom := welch(va, vb, float64(len(a)), float64(len(b)))
	switch iv.Method = "welch-t"; {
	case paired:
		d := make([]float64, len(b))
		for i := range d {
			d[i] = b[i] - a[i]
		}
		_, v := stat.MeanVariance(d, nil)
		variance, freedom, iv.Method = v/float64(len(d)), float64(len(d)-1), "student-t"
	case pooled:
		freedom, iv.Method = float64(len(a)+len(b)-2), "student-t/one spread"
	}
	if se := math.Sqrt(variance); se > noSpread*(math.Abs(ma)+math.Abs(mb)) {
		half := student(level, freedom) * se
		iv.Lo, iv.Hi = estimate-half, estimate+half
		return estimate, iv, ""
	}
	iv.Method = ""
	return estimate, iv, "the runs do not differ from each other at all, so their spread is not known"
}

// welch is the variance of the difference of two means, with the degrees of freedom of
// Welch and Satterthwaite.
func welch(va, vb, na, nb float64) (variance, freedom float64) {
	variance = va/na + vb/nb
	return variance, variance * variance / (va*va/na/na/(na-1) + vb*vb/nb/nb/(nb-1))
}

// student is how many standard errors a two-sided interval has on either side.
func student(level, freedom float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile((1 + level) / 2)
}

// oneRun is why one run a side says nothing of builds.
const oneRun = "one run a side: how far runs differ is not known"

// drift fills in the A/A noise, and what the drift within sides explains.
func (c *comparison) drift(d *Delta, a, b []float64) {
	noise, t := c.noise(logs(a), logs(b))
	d.Noise, d.Carried = finite(math.Expm1(noise)), finite(math.Expm1(math.Abs(t.carried)))
	if t.known() {
		d.LessDrift = &stats.Interval{Lo: math.Expm1(t.lo), Hi: math.Expm1(t.hi), Level: level, Method: "student-t/linear drift"}
	}
}

// noise is by how much the runs of a side differ from early to late, and what of that is
// carried over to the other side; NaN for what cannot be told.
func (c *comparison) noise(a, b []float64) (noise float64, t trend) {
	if c.order.Kind == OrderUnknown {
		return math.NaN(), trend{math.NaN(), math.NaN(), math.NaN()}
	}
	noise = halves(a)
	if n := halves(b); math.IsNaN(noise) || n > noise {
		noise = n
	}
	return noise, c.trend(a, b)
}

// halves is by how much the mean of the later half of some figures differs from that of
// the earlier half; the middle one of an odd number is in neither. NaN for fewer than two.
func halves(v []float64) float64 {
	k := len(v) / 2
	if k == 0 {
		return math.NaN()
	}
	return math.Abs(stat.Mean(v[len(v)-k:], nil) - stat.Mean(v[:k], nil))
}

// trend is what a linear drift within the sides explains of a change between them.
type trend struct {
	// carried is the drift from the middle of A's runs to the middle of B's.
	carried float64
	// lo and hi bound the change less that drift, of OrderSeparate alone: where sides
	// alternate the drift is carried over no distance to speak of.
	lo, hi float64
}

func (t trend) known() bool { return !math.IsNaN(t.lo) }

// explains says whether the drift may be the cause of a change: where the sides came one
// after the other, if nothing of it is sure to be left without the drift; else if it is
// not carriedFactor times as large.
func (t trend) explains(change float64) bool {
	if t.known() {
		return !(t.lo > 0 && change > 0 || t.hi < 0 && change < 0)
	}
	return carriedFactor*math.Abs(t.carried) >= math.Abs(change)
}

// trend fits one slope to the runs of both sides, each with its own level.
func (c *comparison) trend(a, b []float64) trend {
	t := trend{math.NaN(), math.NaN(), math.NaN()}
	xa, xb := places(c.a), places(c.b)
	freedom := float64(len(a) + len(b) - 3)
	if len(a) < 2 || len(b) < 2 {
		return t
	}
	sxy, sxx, syy := 0.0, 0.0, 0.0
	for _, side := range []struct{ x, y []float64 }{{xa, a}, {xb, b}} {
		mx, my := stat.Mean(side.x, nil), stat.Mean(side.y, nil)
		for i, x := range side.x {
			sxy += (x - mx) * (side.y[i] - my)
			sxx += (x - mx) * (x - mx)
			syy += (side.y[i] - my) * (side.y[i] - my)
		}
	}
	distance := stat.Mean(xb, nil) - stat.Mean(xa, nil)
	slope := sxy / sxx
	t.carried = slope * distance
	if c.order.Kind == OrderSeparate {
		variance := max(0, syy-slope*sxy) / freedom * (1/float64(len(a)) + 1/float64(len(b)) + distance*distance/sxx)
		left := stat.Mean(b, nil) - stat.Mean(a, nil) - t.carried
		half := student(level, freedom) * math.Sqrt(variance)
		t.lo, t.hi = left-half, left+half
	}
	return t
}

func places(p []placed) []float64 {
	out := make([]float64, len(p))
	for i := range p {
		out[i] = p[i].place
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
	lo, hi := mover(math.Log(a), math.Log(ia.Lo), math.Log(ia.Hi), math.Log(b), math.Log(ib.Lo), math.Log(ib.Hi))
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

// mover is the interval of b − a from those of both (the method of variance estimates
// recovery: Zou and Donner, Statistics in Medicine 27, 2008).
func mover(a, aLo, aHi, b, bLo, bHi float64) (lo, hi float64) {
	return b - a - math.Hypot(b-bLo, aHi-a), b - a + math.Hypot(bHi-b, a-aLo)
}

// wilson is Wilson's interval of a share.
func wilson(k, n int) (lo, hi float64) {
	z := distuv.UnitNormal.Quantile((1 + level) / 2)
	p, m := float64(k)/float64(n), float64(n)
	middle := (p + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	return max(0, middle-half), min(1, middle+half)
}

// newcombe is the interval of the difference of two shares (Newcombe's method 10,
// Statistics in Medicine 17, 1998).
func newcombe(ka, na, kb, nb int) (lo, hi float64) {
	aLo, aHi := wilson(ka, na)
	bLo, bHi := wilson(kb, nb)
	return mover(float64(ka)/float64(na), aLo, aHi, float64(kb)/float64(nb), bLo, bHi)
}
