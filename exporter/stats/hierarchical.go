package stats

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat"
)

// unit is what is drawn as one: a block, or the two blocks of a pair.
type unit struct{ plus, minus *redrawer }

// hierarchical is the variance of the mean logarithm (of ratios, where paired) when
// blocks are resampled, and the values inside of those drawn.
func hierarchical(a, b Blocks, s Statistic, d Design) (variance float64, why string) {
	rng := newRand(d.Seed)
	if d.Paired {
		return twoStage(units(b, a), s, rng, d.Resamples)
	}
	va, why := twoStage(units(a, nil), s, rng, d.Resamples)
	if why != "" {
		return 0, why
	}
	vb, why := twoStage(units(b, nil), s, rng, d.Resamples)
	return va + vb, why
}

func units(plus, minus Blocks) []unit {
	out := make([]unit, len(plus))
	for i := range plus {
		out[i].plus = newRedrawer(plus[i])
		if minus != nil {
			out[i].minus = newRedrawer(minus[i])
		}
	}
	return out
}

// twoStage draws the units and their values. Resampling n units knows only
// (n−1)/n of their variance; the factor at the end gives the rest back.
func twoStage(u []unit, s Statistic, rng *rand.Rand, resamples int) (variance float64, why string) {
	n := len(u)
	means := make([]float64, resamples)
	for k := range means {
		sum := 0.0
		for range n {
			sum += u[rng.IntN(n)].log(s, rng)
		}
		means[k] = sum / float64(n)
		if math.IsNaN(means[k]) || math.IsInf(means[k], 0) {
			return 0, "the statistic of resampled values is undefined or not above 0"
		}
	}
	return stat.Variance(means, nil) * float64(n) / float64(n-1), ""
}

// log is the logarithm of the statistic of newly drawn values, of a pair that of the
// ratio.
func (u unit) log(s Statistic, rng *rand.Rand) float64 {
	x := math.Log(s(u.plus.draw(rng)))
	if u.minus != nil {
		x -= math.Log(s(u.minus.draw(rng)))
	}
	return x
}
