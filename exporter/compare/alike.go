package compare

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/omnitap/omnitap/exporter/compare/internal/interval"
	"github.com/omnitap/omnitap/exporter/stats"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// Alike is one line of the check that both sides did the same work.
type Alike struct {
	Name string `json:"name"`
	// Unit of A and B: empty for a share.
	Unit string `json:"unit"`
	// A and B are means over a side's successes (of its runs' means), or shares.
	A *float64 `json:"a"`
	B *float64 `json:"b"`
	// Change is (B − A)/A, of shares B − A.
	Change   *float64       `json:"change"`
	Interval stats.Interval `json:"interval"`
	// Verdict is alike, less, more, differs, cannot tell, or empty for what is only shown.
	Verdict string `json:"verdict"`
}

// share says that A and B are shares.
func (a *Alike) share() bool { return a.Interval.Method == "newcombe" }

// failedAs begins the name of a share of requests that failed in one way.
const failedAs = "failed: "

// Words of Alike.Verdict.
const (
	alike    = "alike"
	less     = "less"
	more     = "more"
	differs  = "differs"
	unlike   = "cannot tell"
	onlyShow = ""
)

// length is a length of inputs or outputs. A fallback is looked at where no other of its
// kind was measured on both sides.
type length struct {
	name, unit       string
	output, fallback bool
	value            func(*timeline.Record) *float64
}

const nLengths = 8

var lengthsOf = [nLengths]length{
	{"input characters", "", false, false, func(r *timeline.Record) *float64 { return float(r.InputChars) }},
	{"input audio", "s", false, false, func(r *timeline.Record) *float64 {
		if r.Input == nil {
			return nil
		}
		return &r.Input.AudioS
	}},
	{"request bytes", "B", false, true, func(r *timeline.Record) *float64 { return float(&r.BytesUp) }},
	{"text", "B", true, false, func(r *timeline.Record) *float64 { return float(r.TextBytes) }},
	{"declared tokens", "", true, false, func(r *timeline.Record) *float64 { return float(r.DeclaredTokens) }},
	{"audio", "s", true, false, func(r *timeline.Record) *float64 { return r.AudioS }},
	{"audible", "s", true, false, func(r *timeline.Record) *float64 { return r.AudibleS }},
	{"response bytes", "B", true, true, func(r *timeline.Record) *float64 { return float(&r.BytesDown) }},
}

func float(v *int64) *float64 {
	if v == nil {
		return nil
	}
	f := float64(*v)
	return &f
}

// Bounds of what counts as alike.
const (
	// lengthFloor is below what a difference of lengths, however sure, is none.
	lengthFloor = 0.01
	// lengthSame is within what an interval shows that lengths are alike.
	lengthSame = 0.05
	// shareSame is by how much shares may differ.
	shareSame = 0.05
	// loadSame is by how much loads may differ, as a share.
	loadSame = 0.10
)

// alike fills in the check and the doubts that follow from it.
func (f *flow) alike() {
	f.out.Alike = []Alike{}
	for _, output := range []bool{false, true} {
		some := false
		for i := range lengthsOf {
			if l := &lengthsOf[i]; l.output == output && (!l.fallback || !some) {
				some = f.length(i) || some
			}
		}
	}
	f.shares()
	f.load()
}

// length compares one length and reports whether both sides have it.
func (f *flow) length(i int) bool {
	l := &lengthsOf[i]
	ma, mb := merged(f.a, i), merged(f.b, i)
	if ma.mean == 0 && mb.mean == 0 { // there is none, or all are empty
		return false
	}
	line := Alike{Name: l.name, Unit: l.unit, Interval: unknown()}
	shareA, shareB := float64(ma.n)/float64(max(1, f.successes(f.a))), float64(mb.n)/float64(max(1, f.successes(f.b)))
	if math.Abs(shareA-shareB) > shareSame {
		line.A, line.B, line.Verdict = finite(ma.average()), finite(mb.average()), differs
		f.out.Alike = append(f.out.Alike, line)
		f.doubts = append(f.doubts, doubt{aboutTimes, 0, true, math.Inf(1), CannotTell, fmt.Sprintf(
			"the sides are not alike: %s was measured in %.0f %% of A's successes and %.0f %% of B's", l.name, 100*shareA, 100*shareB)})
		return ma.n > 0 && mb.n > 0
	}
	change, iv := f.lengthChange(i, &ma, &mb, &line)
	line.Change, line.Interval = finite(change), iv
	line.Verdict = alikeVerdict(change, iv)
	f.out.Alike = append(f.out.Alike, line)
	f.doubtLength(l, line.Verdict, change, iv)
	return true
}

func (f *flow) successes(side []*digest) (n int) {
	for _, d := range side {
		n += d.success
	}
	return n
}

// merged is over all runs of a side.
func merged(side []*digest, i int) (m moments) {
	for _, d := range side {
		o := &d.lengths[i]
		if o.n == 0 {
			continue
		}
		n := m.n + o.n
		step := o.mean - m.mean
		m.m2 += o.m2 + step*step*float64(m.n)*float64(o.n)/float64(n)
		m.mean += step * float64(o.n) / float64(n)
		m.n = n
	}
	return m
}

// lengthChange is the relative change of a mean length. With a run a side its interval
// takes requests for independent, which serves here: it makes a doubt, no claim.
func (f *flow) lengthChange(i int, ma, mb *moments, line *Alike) (float64, stats.Interval) {
	a, b := means(f.a, i), means(f.b, i)
	line.A, line.B = finite(stat.Mean(a, nil)), finite(stat.Mean(b, nil))
	if slices.ContainsFunc(slices.Concat(a, b), math.IsNaN) || len(a) < 2 || len(b) < 2 {
		line.A, line.B = finite(ma.average()), finite(mb.average())
		return withinLengths(ma, mb)
	}
	c := stats.RelativeChange(blocksOf(a), blocksOf(b), stats.Mean, stats.Design{Paired: f.c.order.Paired, Level: level, Seed: f.c.opts.Seed})
	if c.Why == "" {
		return c.Estimate, c.Interval
	}
	return exact(*line.A, *line.B), unknown()
}

// exact is a change that has no spread.
func exact(a, b float64) float64 {
	if a == b {
		return 0
	}
	return b/a - 1
}

func withinLengths(a, b *moments) (float64, stats.Interval) {
	iv := unknown()
	change := exact(a.mean, b.mean)
	da, db := 1.96*a.deviation(), 1.96*b.deviation()
	switch {
	case change == 0 || da+db == 0:
		return change, iv
	case !(a.mean-da > 0) || !(b.mean-db > 0): // too few, or too different, for an interval
		return math.NaN(), iv
	}
	lo, hi := interval.Mover(interval.Known{At: a.mean, Lo: a.mean - da, Hi: a.mean + da}.Log(), interval.Known{At: b.mean, Lo: b.mean - db, Hi: b.mean + db}.Log())
	iv.Lo, iv.Hi, iv.Method = math.Expm1(lo), math.Expm1(hi), "mover/normal/within a run"
	return change, iv
}

func means(side []*digest, i int) []float64 {
	out := make([]float64, len(side))
	for k, d := range side {
		out[k] = d.lengths[i].average()
	}
	return out
}

// blocksOf makes a block of each run's one figure.
func blocksOf(v []float64) stats.Blocks {
	out := make(stats.Blocks, len(v))
	for i, x := range v {
		out[i] = []float64{x}
	}
	return out
}

// alikeVerdict judges a change of length. Without an interval all runs of a side have the
// same length to the last digit, or there are too few requests for one.
func alikeVerdict(change float64, iv stats.Interval) string {
	bounded := !math.IsNaN(iv.Lo)
	sure := !bounded || iv.Lo > 0 || iv.Hi < 0
	switch {
	case math.IsNaN(change):
		return unlike
	case sure && change <= -lengthFloor:
		return less
	case sure && change >= lengthFloor:
		return more
	case !bounded || iv.Lo >= -lengthSame && iv.Hi <= lengthSame:
		return alike
	}
	return unlike
}

// doubtLength makes doubts of a difference of lengths: it may be the cause of a change
// up to ten times its size where it is sure, up to twice where it is only possible. What
// a request costs whatever its length makes RTF rise and fall with it either way.
func (f *flow) doubtLength(l *length, verdict string, change float64, iv stats.Interval) {
	size := math.Abs(math.Log1p(change))
	switch {
	case verdict == less || verdict == more:
		word, sign := "shorter", 1.0
		if verdict == more {
			word, sign = "longer", -1
		}
		if !l.output {
			f.doubts = append(f.doubts, doubt{
				aboutTimes, 0, true, math.Inf(1), CannotTell,
				fmt.Sprintf("the inputs are not alike: %s %s", l.name, changeText(change)),
			})
			return
		}
		text := fmt.Sprintf("the output is %s: %s %s", word, l.name, changeText(change))
		f.doubts = append(f.doubts,
			doubt{aboutFirst | aboutWhole, sign, false, 10 * size, SemanticChange, text},
			doubt{aboutRTF, 0, false, 10 * size, SemanticChange, text},
			doubt{aboutWhole, noChange, true, math.Inf(1), CannotTell, text})
	case verdict == unlike && l.output && !math.IsNaN(iv.Lo):
		f.doubts = append(f.doubts,
			doubt{
				aboutWhole, 1, false, 2 * math.Abs(min(0, math.Log1p(iv.Lo))), CannotTell,
				fmt.Sprintf("the output may be shorter, by up to %.1f %% (%s)", -100*min(0, iv.Lo), l.name),
			},
			doubt{
				aboutWhole, -1, false, 2 * math.Abs(max(0, math.Log1p(iv.Hi))), CannotTell,
				fmt.Sprintf("the output may be longer, by up to %.1f %% (%s)", 100*max(0, iv.Hi), l.name),
			})
	}
}
