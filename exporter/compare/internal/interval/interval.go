// Package interval has the intervals that comparing runs needs and exporter/stats does not
// have: of a difference in its own unit, and of shares. It is pure.
//
//	est, iv, why := interval.Difference(a, b, interval.Groups, 0.95)
//	lo, hi := interval.Newcombe(interval.Share{K: 56, N: 70}, interval.Share{K: 48, N: 80}, 0.95)
//
// Out of scope: relative changes and percentiles, which are exporter/stats'.
package interval

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/omnitap/omnitap/exporter/stats"
)

// OneRun is why one figure a side has no interval.
const OneRun = "one run a side: how far runs differ is not known"

// Spread says how the figures of two sides lie to each other.
type Spread int

const (
	// Groups are two groups, each with a spread of its own: Welch's t.
	Groups Spread = iota
	// OneSpread are two groups that are taken to be equally noisy: Student's t.
	OneSpread
	// Pairs belong together one by one; there must be as many of both.
	Pairs
)

// noSpread is the standard error, as a share of the figures, below which they differ by
// rounding alone.
const noSpread = 1e-12

// Difference is the mean of b less that of a, in their own unit. why is set, and the
// interval unknown, for fewer than two figures a side, for one that is no finite number
// (then the estimate is NaN too), and for figures that do not differ.
func Difference(a, b []float64, how Spread, level float64) (estimate float64, iv stats.Interval, why string) {
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
		return estimate, iv, OneRun
	case how == Pairs && len(a) != len(b):
		return estimate, iv, "unequal numbers are no pairs"
	}
	variance, freedom := welch(va, vb, float64(len(a)), float64(len(b)))
	method := "welch-t"
	switch how {
	case Groups:
	case OneSpread:
		freedom, method = float64(len(a)+len(b)-2), "student-t/one spread"
		variance = (va*float64(len(a)-1) + vb*float64(len(b)-1)) / freedom * (1/float64(len(a)) + 1/float64(len(b)))
	case Pairs:
		d := make([]float64, len(b))
		for i := range d {
			d[i] = b[i] - a[i]
		}
		_, v := stat.MeanVariance(d, nil)
		variance, freedom, method = v/float64(len(d)), float64(len(d)-1), "student-t"
	}
	se := math.Sqrt(variance)
	if !(se > noSpread*(math.Abs(ma)+math.Abs(mb))) {
		return estimate, iv, "the runs do not differ from each other at all, so their spread is not known"
	}
	half := Student(level, freedom) * se
	iv.Lo, iv.Hi, iv.Method = estimate-half, estimate+half, method
	return estimate, iv, ""
}

// welch is the variance of the difference of two means, with the degrees of freedom of
// Welch and Satterthwaite.
func welch(va, vb, na, nb float64) (variance, freedom float64) {
	variance = va/na + vb/nb
	return variance, variance * variance / (va*va/na/na/(na-1) + vb*vb/nb/nb/(nb-1))
}

// Student is how many standard errors a two-sided interval of the level has on either
// side.
func Student(level, freedom float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile((1 + level) / 2)
}

// Share is K of N.
type Share struct{ K, N int }

// Wilson is Wilson's score interval of a share (Journal of the American Statistical
// Association 22, 1927), from 0 to 1 of nothing.
func Wilson(s Share, level float64) (lo, hi float64) {
	if s.N == 0 {
		return 0, 1
	}
	z := distuv.UnitNormal.Quantile((1 + level) / 2)
	p, n := float64(s.K)/float64(s.N), float64(s.N)
	middle := (p + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return max(0, middle-half), min(1, middle+half)
}

// Newcombe is the interval of b − a (Newcombe's method 10, Statistics in Medicine 17,
// 1998). Neither may be of nothing.
func Newcombe(a, b Share, level float64) (lo, hi float64) {
	known := func(s Share) Known {
		lo, hi := Wilson(s, level)
		return Known{At: float64(s.K) / float64(s.N), Lo: lo, Hi: hi}
	}
	return Mover(known(a), known(b))
}

// Known is a figure with its interval.
type Known struct{ At, Lo, Hi float64 }

// Mover is the interval of b − a from those of both (the method of variance estimates
// recovery: Zou and Donner, Statistics in Medicine 27, 2008).
func Mover(a, b Known) (lo, hi float64) {
	return b.At - a.At - math.Hypot(b.At-b.Lo, a.Hi-a.At), b.At - a.At + math.Hypot(b.Hi-b.At, a.At-a.Lo)
}

// Log is the logarithm of a figure above 0.
func (k Known) Log() Known {
	return Known{At: math.Log(k.At), Lo: math.Log(k.Lo), Hi: math.Log(k.Hi)}
}
