package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/exporter/stats"
)

// headline says in a sentence what became of the flow: of the mean TTFA, which is what
// the gaps of the way to first audio sum to, or of the first metric that there is.
func (f *flow) headline() {
	for _, m := range []int{atTTFA, atTTFT, atJCT} {
		if d, ok := f.mean(m); ok {
			f.out.Headline = latencies[m].label + " " + f.sentence(m, &d)
			return
		}
	}
	f.out.Headline = cmp.Or(f.unfit, f.empty, "no latency was measured") + "."
}

// mean is the change of a metric's mean a run.
func (f *flow) mean(m int) (Delta, bool) {
	v, n := f.paired.values[m], len(f.a)
	if m == atTTFA && f.out.Path != nil { // over what the gaps are over
		v = blocksOf(collect(slices.Concat(f.a, f.b), func(d *digest) float64 { return d.work.ttfa.average() }))
	}
	if total(v) == 0 {
		return Delta{}, false
	}
	d := f.c.relative(sides{a: v[:n], b: v[n:], s: stats.Mean, unit: latencies[m].unit})
	f.judge(&d, judged{up: Slower, down: Faster, gain: -1, scope: latencies[m].scope})
	return d, true
}

// sentence tells of a change.
func (f *flow) sentence(m int, d *Delta) string {
	change := changeOf(d)
	switch d.Verdict {
	case Faster, Slower:
		if m == atTTFA && f.out.Path != nil {
			return change + ": " + f.out.Path.blame() + "."
		}
		return change + "."
	case NoDifference:
		return string(NoDifference) + ": " + change + "."
	default:
		return fmt.Sprintf("%s: %s (%s).", change, d.Verdict, d.Reason)
	}
}

// changeOf writes a change: +38.1 ms (+21.2 %, +18.9 to +23.6).
func changeOf(d *Delta) string {
	out := signed(orNaN(d.Difference), 1) + " ms (" + percent(d.Change.Estimate) + " %"
	if !math.IsNaN(d.Change.Interval.Lo) {
		out += ", " + percent(d.Change.Interval.Lo) + " to " + percent(d.Change.Interval.Hi)
	}
	return strings.ReplaceAll(out+")", "- ms (- %)", "not known")
}

// maxBlamed bounds the gaps that a headline names.
const maxBlamed = 3

// blame names the gaps that the change lies in.
func (p *Path) blame() string {
	want := Grew
	if orNaN(p.TTFA.Difference) < 0 {
		want = Shrank
	}
	var found []*Row
	for i := range p.Gaps {
		if p.Gaps[i].Verdict == want {
			found = append(found, &p.Gaps[i])
		}
	}
	slices.SortStableFunc(found, func(a, b *Row) int {
		return cmp.Compare(math.Abs(*b.Difference), math.Abs(*a.Difference))
	})
	var out []string
	for _, r := range found[:min(maxBlamed, len(found))] {
		out = append(out, fmt.Sprintf("%s ms of it in %s", signed(*r.Difference, 1), r.Name))
	}
	if out == nil {
		return "in no gap of the way to first audio for sure"
	}
	return strings.Join(out, ", ")
}
