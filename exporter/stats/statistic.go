package stats

import (
	"math"
	"slices"
)

// QuantileMethod names how Quantile, Median and Summary reckon. Print it beside
// percentiles.
const QuantileMethod = "linear interpolation between closest ranks (Hyndman-Fan 7)"

// Statistic is one figure of a sample of finite numbers, in the values' unit or in
// its own; NaN where it is undefined. Their order says nothing: resampling hands
// them over in ascending order. It must not keep or change the slice.
type Statistic func(values []float64) float64

// Mean is the arithmetic mean. It is NaN of an empty sample, and of one with a
// value that is no finite number.
func Mean(v []float64) float64 {
	if len(v) == 0 || !allFinite(v) {
		return math.NaN()
	}
	m := mean(v)
	if math.IsInf(m, 0) || math.IsNaN(m) { // a difference of two values overflowed
		m = 0
		for _, x := range v {
			m += x / float64(len(v))
		}
	}
	return m
}

// Median is Quantile(0.5).
func Median(v []float64) float64 { return Quantile(0.5)(v) }

// Quantile returns the statistic that is the p-quantile, 0 ≤ p ≤ 1, by
// QuantileMethod: NaN of an empty sample, of one with a value that is no finite
// number, and always for a p out of range.
func Quantile(p float64) Statistic {
	return func(v []float64) float64 {
		if !allFinite(v) {
			return math.NaN()
		}
		if !slices.IsSorted(v) {
			v = slices.Clone(v)
			slices.Sort(v)
		}
		return quantile(v, p)
	}
}

func allFinite(v []float64) bool {
	for _, x := range v {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	return true
}

// quantile is the q-quantile of a sample of finite numbers in ascending order:
// with h = (n−1)q, the value at rank h, counted from 0, or between the two closest
// ranks in proportion. It is NaN for an empty sample and for a q out of range.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 || !(q >= 0 && q <= 1) {
		return math.NaN()
	}
	h := float64(len(sorted)-1) * q
	low := int(h)
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return between(sorted[low], sorted[low+1], h-float64(low))
}

// between is the share of the way from a to b, a ≤ b. The clamp keeps rounding from
// leaving the interval, so that p90 ≤ p95 holds also between equal neighbours.
func between(a, b, share float64) float64 {
	step := (b - a) * share
	if math.IsInf(b-a, 0) {
		return a*(1-share) + b*share
	}
	return min(max(a+step, a), b)
}

// mean adds up differences from the running mean, which cannot overflow for
// values of one sign and loses less than a plain sum.
func mean(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	m := 0.0
	for i, x := range v {
		m += (x - m) / float64(i+1)
	}
	return m
}

// probeRanks is how many values the ramp has that aim looks at a statistic with.
const probeRanks = 1001

// aim tells which quantile a statistic of place aims at, from what it makes of
// 0, 1, 2 … : 0.99 for the p99, 0.5 for the mean and the median, 1 for the maximum.
// It is false for a statistic that does not move along with its values (a
// deviation, a share above a limit): that one may rest on any of them.
func aim(s Statistic) (p float64, ok bool) {
	ramp := make([]float64, probeRanks)
	for i := range ramp {
		ramp[i] = float64(i)
	}
	at := s(ramp)
	for i := range ramp {
		ramp[i] += probeRanks
	}
	moved := s(ramp) - at
	p = at / (probeRanks - 1)
	return p, math.Abs(moved-probeRanks) < 1e-6 && p >= 0 && p <= 1
}
