package stats

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

const (
	// manyBlocks is from how many blocks on BCa is used.
	manyBlocks = 50
	// maxFolds bounds what the acceleration of BCa costs.
	maxFolds = 500
)

// Bootstrap is the statistic over the values of all blocks, with an interval from
// resampling whole blocks (and the values inside, where d.Within). d.Paired says
// nothing here.
//
// With fewer than 50 blocks the interval is Student's t with the standard error of
// the resamples, on the logarithm where all of them are above 0: a 95 % interval held
// the truth in 93 to 98 of 100 experiments with 3 to 12 blocks of lognormal values, for
// mean and median, where BCa held it in 67 to 93. From 50 blocks on it is BCa.
//
// A quantile needs five values beyond it, a p99 thus 500 values in all blocks
// together: with that many, about 90 of 100 intervals held the p99. With fewer, and
// for the maximum, why says so and there is no figure; so for fewer than two blocks,
// an empty block, values that are no finite numbers, a statistic that is undefined,
// blocks that do not differ, a design that cannot be.
//
// It costs d.Resamples passes over the values.
func Bootstrap(v Blocks, s Statistic, d Design) (estimate float64, i Interval, why string) {
	d, why = d.withDefaults(v.count())
	if why == "" && s == nil {
		why = "no statistic was asked for"
	}
	if why == "" {
		why = v.fault("the group")
	}
	if why == "" {
		why = thin(s, v.count(), poolTail)
	}
	if why != "" {
		return math.NaN(), unknown(d.Level), why
	}
	p := newPool(v)
	estimate = s(p.sorted)
	draws, why := p.resample(s, d, estimate)
	if why != "" {
		return math.NaN(), unknown(d.Level), why
	}
	if len(v) >= manyBlocks {
		i, why = p.bca(s, draws, estimate, d)
	} else {
		i, why = studentised(draws, estimate, len(v), d)
	}
	if why != "" {
		return math.NaN(), unknown(d.Level), why
	}
	if d.Within {
		i.Method += suffixHierarchical
	}
	return estimate, i, ""
}

// resample is the statistic of each resample, in ascending order.
func (p *pool) resample(s Statistic, d Design, estimate float64) ([]float64, string) {
	if math.IsNaN(estimate) || math.IsInf(estimate, 0) {
		return nil, "the statistic is undefined"
	}
	rng := newRand(d.Seed)
	draws := make([]float64, d.Resamples)
	for k := range draws {
		draws[k] = s(p.draw(rng, d.Within))
	}
	if !allFinite(draws) {
		return nil, "the statistic of some resamples is undefined"
	}
	slices.Sort(draws)
	if draws[len(draws)-1]-draws[0] <= noSpread*math.Abs(estimate) {
		return nil, "the blocks do not differ from each other at all, so their spread is not known"
	}
	return draws, ""
}

// studentised is Student's t with the standard error of the resamples. Resampling n
// blocks knows only (n−1)/n of their variance; the factor gives the rest back.
func studentised(draws []float64, estimate float64, n int, d Design) (Interval, string) {
	i := Interval{Level: d.Level, Method: methodStudent}
	if !d.Within {
		i.Method += suffixBlocks
	}
	errors := student(d.Level, float64(n-1)) * math.Sqrt(float64(n)/float64(n-1))
	if draws[0] > 0 && estimate > 0 {
		logs := make([]float64, len(draws))
		for k, x := range draws {
			logs[k] = math.Log(x)
		}
		f := math.Exp(errors * stat.StdDev(logs, nil))
		i.Lo, i.Hi = estimate/f, estimate*f
	} else {
		half := errors * stat.StdDev(draws, nil)
		i.Lo, i.Hi = estimate-half, estimate+half
	}
	if !allFinite([]float64{i.Lo, i.Hi}) {
		return i, "the blocks differ too much for an interval"
	}
	return i, ""
}

// bca is Efron's interval (Better Bootstrap Confidence Intervals, 1987): percentiles
// of the resamples, shifted by how many of them lie below the estimate and by how
// the statistic's spread changes with its value.
func (p *pool) bca(s Statistic, draws []float64, estimate float64, d Design) (Interval, string) {
	if least := int(math.Ceil(10 / (1 - d.Level))); d.Resamples < least {
		return Interval{}, fmt.Sprintf("resamples %d: a level of %v needs %d", d.Resamples, d.Level, least)
	}
	below, _ := slices.BinarySearch(draws, estimate)
	upTo, _ := slices.BinarySearch(draws, math.Nextafter(estimate, math.Inf(1)))
	share := float64(below+upTo) / 2 / float64(len(draws))
	if share == 0 || share == 1 {
		return Interval{}, "all resamples lie on one side of the figure"
	}
	bias := distuv.UnitNormal.Quantile(share)
	pull := p.acceleration(s)
	if math.IsNaN(pull) {
		return Interval{}, "the statistic without some of the blocks is undefined"
	}
	z := distuv.UnitNormal.Quantile((1 + d.Level) / 2)
	if pull*(bias+z) >= 1 || pull*(bias-z) >= 1 {
		return Interval{}, "the blocks are too lopsided for an interval of this level"
	}
	at := func(z float64) float64 {
		return quantile(draws, distuv.UnitNormal.CDF(bias+(bias+z)/(1-pull*(bias+z))))
	}
	return Interval{Lo: at(-z), Hi: at(z), Level: d.Level, Method: methodBCa}, ""
}

// acceleration is the skewness of the statistic as blocks are left out in turn, one
// at a time or, of very many, some; 0 where that changes nothing.
func (p *pool) acceleration(s Statistic) float64 {
	n := len(p.drawn)
	folds := min(n, maxFolds)
	left := make([]float64, folds)
	for k := range left {
		left[k] = s(p.without(k*n/folds, (k+1)*n/folds))
	}
	m := mean(left)
	cubes, squares := 0.0, 0.0
	for _, x := range left {
		cubes += (m - x) * (m - x) * (m - x)
		squares += (m - x) * (m - x)
	}
	if squares == 0 {
		return 0
	}
	return cubes / (6 * math.Pow(squares, 1.5))
}
