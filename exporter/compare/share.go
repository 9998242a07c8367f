package compare

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/omnitap/omnitap/exporter/compare/internal/interval"
	"github.com/omnitap/omnitap/exporter/stats"
)

// shares compares what successes are, and how attempts fail.
func (f *flow) shares() {
	names := map[string]bool{}
	for _, d := range slices.Concat(f.a, f.b) {
		for name := range d.traits {
			names[name] = true
		}
	}
	traits := func(d *digest) map[string]int { return d.traits }
	for _, name := range slices.Sorted(maps.Keys(names)) {
		f.share(name, traits, func(d *digest) int { return d.success })
	}
	kinds := map[string]bool{}
	for _, d := range slices.Concat(f.a, f.b) {
		for name := range d.failed {
			kinds[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		f.share(failedAs+name, func(d *digest) map[string]int { return map[string]int{failedAs + name: d.failed[name]} }, func(d *digest) int { return d.requests })
	}
}

// share compares how many of a side's requests are of a kind.
func (f *flow) share(name string, of func(*digest) map[string]int, all func(*digest) int) {
	sum := func(side []*digest) (k, n int) {
		for _, d := range side {
			k += of(d)[name]
			n += all(d)
		}
		return k, n
	}
	ka, na := sum(f.a)
	kb, nb := sum(f.b)
	line := Alike{Name: name, Interval: unknown(), Verdict: unlike}
	line.Interval.Method = "newcombe"
	if na > 0 {
		line.A = finite(float64(ka) / float64(na))
	}
	if nb > 0 {
		line.B = finite(float64(kb) / float64(nb))
	}
	if na > 0 && nb > 0 {
		line.Interval.Lo, line.Interval.Hi = interval.Newcombe(interval.Share{K: ka, N: na}, interval.Share{K: kb, N: nb}, level)
		line.Change = finite(*line.B - *line.A)
		line.Verdict = shareVerdict(*line.Change, line.Interval)
	}
	f.out.Alike = append(f.out.Alike, line)
	if line.Verdict == differs {
		f.doubtShare(name, *line.A, *line.B)
	}
}

func shareVerdict(change float64, iv stats.Interval) string {
	switch {
	case math.Abs(change) < shareSame && iv.Lo > -2*shareSame && iv.Hi < 2*shareSame:
		return alike
	case math.Abs(change) >= shareSame && (iv.Lo > 0 || iv.Hi < 0):
		return differs
	}
	return unlike
}

// doubtShare makes doubts, or notes, of shares that differ.
func (f *flow) doubtShare(name string, a, b float64) {
	text := fmt.Sprintf("the sides are not alike: %s %.0f %% of A and %.0f %% of B", name, 100*a, 100*b)
	switch name {
	case traitText, traitAudio, traitStream:
		f.doubts = append(f.doubts, doubt{aboutTimes, 0, true, math.Inf(1), CannotTell, text})
	case traitRateAssumed:
		f.doubts = append(f.doubts, doubt{aboutRTF, 0, true, math.Inf(1), CannotTell, text})
	default:
		f.note("%s.", text)
	}
}

// load shows how much was asked of the server. A change may be the cause of a different
// load as well as its effect, so it is told and no doubt.
func (f *flow) load() {
	rate := func(d *digest) float64 { return float64(d.requests) / d.seconds() }
	flight := func(d *digest) float64 { return d.busy / 1e3 / d.seconds() }
	change := [2]float64{}
	for i, l := range []struct {
		name, unit string
		of         func(*digest) float64
	}{{"requests a second", "1/s", rate}, {"requests in flight", "", flight}} {
		a, b := meanOf(f.a, l.of), meanOf(f.b, l.of)
		change[i] = exact(a, b)
		f.out.Alike = append(f.out.Alike, Alike{Name: l.name, Unit: l.unit, A: finite(a), B: finite(b), Change: finite(change[i]), Interval: unknown(), Verdict: onlyShow})
	}
	if math.Abs(change[0]) > loadSame && math.Abs(change[1]) > loadSame {
		f.note("the load differs: %s %% requests a second with %s %% in flight.", percent(change[0]), percent(change[1]))
	}
}

// changeText is a change in words, also one from or to nothing.
func changeText(change float64) string {
	switch {
	case math.IsInf(change, 1):
		return "where there was none"
	case change == -1:
		return "is gone"
	}
	return percent(change) + " %"
}

func meanOf(side []*digest, of func(*digest) float64) float64 {
	sum := 0.0
	for _, d := range side {
		sum += of(d)
	}
	return sum / float64(len(side))
}
