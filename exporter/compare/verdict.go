package compare

import (
	"cmp"
	"fmt"
	"math"

	"github.com/omnitap/omnitap/exporter/compare/internal/interval"
	"github.com/omnitap/omnitap/exporter/stats"
)

// Verdict is what is said of a figure's change from A to B.
type Verdict string

// The verdicts.
const (
	// Faster and Slower: the whole interval lies to one side of no change, and the change
	// is larger than the noise. Better and Worse are the same of the success rate, Grew
	// and Shrank of the rows of a table about stages.
	Faster Verdict = "faster"
	Slower Verdict = "slower"
	Better Verdict = "better"
	Worse  Verdict = "worse"
	Grew   Verdict = "grew"
	Shrank Verdict = "shrank"
	// NoDifference: none was seen; the interval says how large a one may hide.
	NoDifference Verdict = "no difference seen"
	// CannotTell: see the reason.
	CannotTell Verdict = "cannot tell"
	// SemanticChange: the output is of another length, and that is what changed.
	SemanticChange Verdict = "semantic change"
)

const (
	// blind is how large a change an interval around none may hold before "no difference
	// seen" would say more than is known.
	blind = 0.25
	// sharp is the half width that the number of further runs is told for.
	sharp = 0.10
	// carriedFactor is how many times the carried drift a change must be: a pace that is
	// known from a few runs may be off by as much.
	carriedFactor = 2
)

// judged is what a verdict needs to know of a figure.
type judged struct {
	up, down Verdict // the words for more and for less
	// gain is the sign of a change for the better: −1 for times, +1 for rates.
	gain float64
	// scope says which doubts are about it.
	scope scope
}

// judge gives a relative change its verdict. The order is that of what makes the rest
// worthless.
func (f *flow) judge(d *Delta, j judged) {
	d.Verdict, d.Reason = CannotTell, f.unfit
	if j.scope != aboutSuccess {
		d.Reason = cmp.Or(f.unfit, f.empty)
	}
	if d.Reason = cmp.Or(d.Reason, whyNot(d)); d.Reason != "" {
		return
	}
	lo, hi, est := d.Change.Interval.Lo, d.Change.Interval.Hi, d.Change.Estimate
	if lo <= 0 && hi >= 0 {
		d.Verdict = NoDifference
		if w := max(-lo, hi); w > blind {
			d.Verdict, d.Reason = CannotTell, tooWide(d)
		} else if s := f.doubts.about(j.scope, 0, 0); s.verdict != "" {
			d.Verdict, d.Reason = s.verdict, s.reason
		}
		return
	}
	if d.Reason = drowned(d); d.Reason != "" {
		return
	}
	size := math.Abs(math.Log1p(est))
	if s := f.doubts.about(j.scope, math.Copysign(1, est)*j.gain, size); s.verdict != "" {
		d.Verdict, d.Reason = s.verdict, s.reason
		return
	}
	if d.Verdict = j.down; est > 0 {
		d.Verdict = j.up
	}
}

// whyNot says why a change has no interval between runs.
func whyNot(d *Delta) string {
	switch {
	case len(d.RunsA) < 2 || len(d.RunsB) < 2:
		return interval.OneRun
	case d.Change.Why != "":
		return d.Change.Why
	case math.IsNaN(d.Change.Interval.Lo) || math.IsNaN(d.Change.Interval.Hi):
		return "there is no interval"
	}
	return ""
}

// tooWide says by how many runs an interval would be narrow enough to say something.
func tooWide(d *Delta) string {
	text := fmt.Sprintf("anything from %s to %s %% is possible", percent(d.Change.Interval.Lo), percent(d.Change.Interval.Hi))
	half := (d.Change.Interval.Hi - d.Change.Interval.Lo) / 2
	n := min(len(d.RunsA), len(d.RunsB))
	if more := stats.BlocksNeeded(n, half, sharp); more > 0 && more < 1000 {
		text += fmt.Sprintf("; at most %d runs more a side would tell it to ±%.0f %%", more, 100*sharp)
	}
	return text
}

// drowned says that a change is not larger than what the runs of one side differ by, or
// "".
func drowned(d *Delta) string {
	size := math.Abs(math.Log1p(d.Change.Estimate))
	if n := orNaN(d.Noise); math.Log1p(n) >= size {
		return fmt.Sprintf("runs of one side differ by %.1f %% from early to late, the sides by %.1f %%", 100*n, 100*math.Abs(d.Change.Estimate))
	}
	if i := d.LessDrift; i != nil && !(i.Lo > 0 && d.Change.Estimate > 0 || i.Hi < 0 && d.Change.Estimate < 0) {
		return fmt.Sprintf("all runs of one side came first; without the drift that the runs of each side show, %s to %s %% are left", percent(i.Lo), percent(i.Hi))
	}
	if c := orNaN(d.Carried); d.LessDrift == nil && carriedFactor*math.Log1p(c) >= size {
		return fmt.Sprintf("at the pace at which the runs of each side drift, %.1f %% of it came with time", 100*c)
	}
	return ""
}
