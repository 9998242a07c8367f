package prometheus

import (
	"math"
	"slices"
)

// steps are bounds from lo to hi, so many a decade, with powers of ten among them. Of n a
// decade each is 10^(1/n) times the one before: a percentile that is interpolated between
// two of them is off by less than that.
func steps(lo, hi float64, perDecade int) []float64 {
	var out []float64
	n := float64(perDecade)
	for i := math.Ceil(math.Log10(lo)*n - 1e-9); ; i++ {
		v := math.Pow(10, i/n)
		if v > hi*(1+1e-9) {
			return out
		}
		out = append(out, digits(v))
	}
}

// digits rounds to four significant ones, for labels that can be read.
func digits(v float64) float64 {
	scale := math.Pow(10, math.Floor(math.Log10(v))-3)
	return math.Round(math.Round(v/scale)*scale*1e10) / 1e10
}

// union is all bounds in order.
func union(parts ...[]float64) []float64 {
	all := slices.Concat(parts...)
	slices.Sort(all)
	return slices.Compact(all)
}

// fine is how many bounds a decade make a percentile right to within 10 %.
const fine = 25

// The bounds of histograms: fine where percentiles are asked for, coarse around it. Round
// limits that people alert on are among them.
var (
	// toFirst is up to first output, seconds.
	toFirst = union([]float64{0.005, 0.01, 0.02, 0.03, 0.04, 0.05}, steps(0.045, 2, fine), []float64{0.2, 0.25, 0.5, 0.75, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10, 15, 20, 30, 60, 120})
	// toEnd is to complete output, seconds.
	toEnd = union([]float64{0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8}, steps(0.9, 300, fine), []float64{2, 5, 20, 30, 60, 120, 300, 450, 600, 900, 1800, 3600})
	// factors are of real time.
	factors = union(steps(0.01, 10, 12), []float64{0.25, 0.5, 2, 5, 20, 50})
	// gaps are between chunks, seconds.
	gaps = union(steps(0.01, 10, 8), []float64{0.02, 0.05, 0.2, 0.5, 2, 5, 30, 60})
	// work is what stages wait and take, seconds.
	work = union(steps(0.001, 100, 6), []float64{0.0001, 0.00025, 0.0005, 0.05, 0.5, 5, 50, 300, 600})
	// brief is what hand-overs and the relay's own forwarding take, seconds.
	brief = union(steps(0.00001, 1, 3), []float64{0.0005, 0.005, 0.05, 0.5, 5, 30})
)
