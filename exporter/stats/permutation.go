package stats

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/combin"
)

// maxExact is up to how many arrangements all are gone through.
const maxExact = 1 << 16

// Permutation is the two-sided p of a difference between two groups of blocks: how
// often blocks that were dealt out anew differ as much as these do. What is compared
// is the mean of the blocks' statistics, each block counted once; a statistic of 0 or
// below is as good as any. Where d.Paired, the two blocks of a pair change places
// (sign flips), else blocks go to either group. p is twice the smaller of the two
// one-sided ones, 1 at the most.
//
// Up to 65 536 arrangements all are gone through and exact is true: 16 pairs, 9
// against 9 blocks. With more, d.Resamples are drawn, and p has their number plus one
// for denominator: it is never 0. Few blocks cannot have a small p: of n pairs the
// smallest is 2/2ⁿ, 0.125 with four of them. d.Within and d.Level say nothing here.
//
// why is set, and p is NaN, as in RelativeChange, but for figures of 0 and below, and
// for blocks that do not differ (p is 1).
func Permutation(a, b Blocks, s Statistic, d Design) (p float64, exact bool, why string) {
	d, why = d.withDefaults(len(a) + len(b))
	if why == "" {
		why = compareFault(a, b, s, d.Paired)
	}
	if why == "" {
		why = thinBlocks(s, a, b)
	}
	if why != "" {
		return math.NaN(), false, why
	}
	figures := make([]float64, 0, len(a)+len(b))
	for _, block := range append(append(Blocks{}, b...), a...) {
		figures = append(figures, s(block))
	}
	if !allFinite(figures) {
		return math.NaN(), false, "the statistic of some blocks is undefined"
	}
	if math.IsInf(absSum(figures), 0) {
		return math.NaN(), false, "the figures are too large to be added up"
	}
	if d.Paired {
		p, exact = flips(figures[:len(b)], figures[len(b):], d)
	} else {
		p, exact = deals(figures, len(b), d)
	}
	return p, exact, ""
}

// tally counts how many arrangements lie as far to either side as the one that was
// measured. Sums that differ by rounding alone are equal.
type tally struct {
	measured, slack float64
	low, high, n    int
}

// newTally is told all figures that enter the sums, for their rounding.
func newTally(measured float64, figures []float64) *tally {
	return &tally{measured: measured, slack: absSum(figures) * 1e-13}
}

func absSum(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += math.Abs(x)
	}
	return sum
}

func (t *tally) add(x float64) {
	t.n++
	if x <= t.measured+t.slack {
		t.low++
	}
	if x >= t.measured-t.slack {
		t.high++
	}
}

// p counts the measured arrangement in, if it is not among those gone through.
func (t *tally) p(exact bool) float64 {
	extra := 1
	if exact {
		extra = 0
	}
	return min(1, 2*float64(min(t.low, t.high)+extra)/float64(t.n+extra))
}

// flips changes the signs of the differences of pairs.
func flips(b, a []float64, d Design) (p float64, exact bool) {
	n := len(a)
	differences := make([]float64, n)
	sum := 0.0
	for i := range differences {
		differences[i] = b[i] - a[i]
		sum += differences[i]
	}
	t := newTally(sum, differences)
	if n <= 16 {
		for signs := range uint64(maxExact) >> (16 - n) {
			t.add(signed(differences, signs))
		}
		return t.p(true), true
	}
	rng := newRand(d.Seed)
	for range d.Resamples {
		t.add(signedAtRandom(differences, rng))
	}
	return t.p(false), false
}

// signed is the sum of the values, negative where their bit is set.
func signed(v []float64, signs uint64) float64 {
	sum := 0.0
	for i, x := range v {
		if signs>>(i%64)&1 != 0 {
			x = -x
		}
		sum += x
	}
	return sum
}

// signedAtRandom is the sum of the values with a sign that is drawn for each.
func signedAtRandom(v []float64, rng *rand.Rand) float64 {
	sum := 0.0
	for len(v) > 0 {
		k := min(len(v), 64)
		sum += signed(v[:k], rng.Uint64())
		v = v[k:]
	}
	return sum
}

// deals deals all figures out to two groups again; the first k are those of b.
func deals(figures []float64, k int, d Design) (p float64, exact bool) {
	n := len(figures)
	total := 0.0
	for _, x := range figures {
		total += x
	}
	// difference of the means, from the sum of what b got.
	difference := func(sum float64) float64 { return sum/float64(k) - (total-sum)/float64(n-k) }
	sum := 0.0
	for _, x := range figures[:k] {
		sum += x
	}
	t := newTally(difference(sum), figures)
	if combin.LogGeneralizedBinomial(float64(n), float64(k)) <= math.Log(maxExact)+1e-9 {
		dealAll(t, figures, k, difference)
		return t.p(true), true
	}
	rng := newRand(d.Seed)
	shuffled := append([]float64(nil), figures...)
	for range d.Resamples {
		sum := 0.0
		for i := range k { // the beginning of a Fisher-Yates shuffle
			j := i + rng.IntN(n-i)
			shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
			sum += shuffled[i]
		}
		t.add(difference(sum))
	}
	return t.p(false), false
}

// dealAll goes through all ways to give b k of the figures.
func dealAll(t *tally, figures []float64, k int, difference func(sum float64) float64) {
	g := combin.NewCombinationGenerator(len(figures), k)
	places := make([]int, k)
	for g.Next() {
		sum := 0.0
		for _, i := range g.Combination(places) {
			sum += figures[i]
		}
		t.add(difference(sum))
	}
}
