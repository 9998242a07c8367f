package stats

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// rivals are the intervals that RelativeChange could have used for the change of the
// mean of pairs, over the values of all drawn blocks.
func rivals(a, b Blocks, d Design) map[string]Interval {
	n := len(a)
	change := func(places []int) float64 {
		var va, vb []float64
		for _, i := range places {
			va, vb = append(va, a[i]...), append(vb, b[i]...)
		}
		return Mean(vb)/Mean(va) - 1
	}
	all := make([]int, n)
	ratios := make([]float64, n)
	for i := range all {
		all[i], ratios[i] = i, math.Log(Mean(b[i])/Mean(a[i]))
	}
	estimate, m, se := change(all), mean(ratios), stat.StdDev(ratios, nil)/math.Sqrt(float64(n))

	rng := newRand(d.Seed)
	draws, pivots := make([]float64, d.Resamples), make([]float64, d.Resamples)
	places, drawn := make([]int, n), make([]float64, n)
	below := 0.0
	for k := range draws {
		for i := range places {
			places[i] = rng.IntN(n)
			drawn[i] = ratios[places[i]]
		}
		draws[k] = change(places)
		if draws[k] < estimate {
			below++
		}
		pivots[k] = (mean(drawn) - m) / max(stat.StdDev(drawn, nil)/math.Sqrt(float64(n)), se/100)
	}
	slices.Sort(draws)
	slices.Sort(pivots)

	left := make([]float64, n)
	for i := range left {
		left[i] = change(slices.Delete(slices.Clone(all), i, i+1))
	}
	dot, cubes, squares := mean(left), 0.0, 0.0
	for _, x := range left {
		cubes += (dot - x) * (dot - x) * (dot - x)
		squares += (dot - x) * (dot - x)
	}
	pull, bias := cubes/(6*math.Pow(squares, 1.5)), distuv.UnitNormal.Quantile((below+0.5)/(float64(d.Resamples)+1))
	at := func(z float64) float64 {
		return quantile(draws, distuv.UnitNormal.CDF(bias+(bias+z)/(1-pull*(bias+z))))
	}
	return map[string]Interval{
		"percentile":  {Lo: quantile(draws, 0.025), Hi: quantile(draws, 0.975)},
		"bca":         {Lo: at(-1.959964), Hi: at(1.959964)},
		"bootstrap-t": {Lo: math.Expm1(m - quantile(pivots, 0.975)*se), Hi: math.Expm1(m - quantile(pivots, 0.025)*se)},
	}
}
