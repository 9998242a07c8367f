// Package stats describes samples: counts, percentiles, mean, extremes.
//
//	s := stats.Summarize(values)
//	s.N, s.P50, s.P99
//
// Every function is pure, keeps no reference to its argument and leaves it as it
// was. Values that are no numbers (NaN, infinities) are left out and counted,
// never taken for 0; an empty sample has NaN for every figure and null in JSON.
//
// Out of scope: deciding which requests belong in a sample, and confidence
// intervals. The quantile is written here and not imported because the package
// stands on the standard library alone, and gonum's closest kind
// (stat.LinInterp) interpolates the empirical distribution, not the closest
// ranks: its median of 1, 2, 3, 4 is 2, not 2.5.
package stats

import (
	"encoding/json"
	"math"
	"slices"
)

// Method names how percentiles are reckoned. Print it beside them.
const Method = "linear interpolation between closest ranks (Hyndman-Fan 7)"

// Summary describes one sample. All figures are NaN when N is 0.
type Summary struct {
	// N is the number of values that the figures are over.
	N int
	// LeftOut is the number of values that were no finite numbers.
	LeftOut int

	Min, Mean, Max     float64
	P50, P90, P95, P99 float64
}

// Summarize describes values, in any order.
func Summarize(values []float64) Summary {
	sorted := make([]float64, 0, len(values))
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			sorted = append(sorted, v)
		}
	}
	slices.Sort(sorted)
	s := Summary{
		N: len(sorted), LeftOut: len(values) - len(sorted),
		Min: Quantile(sorted, 0), Mean: mean(sorted), Max: Quantile(sorted, 1),
		P50: Quantile(sorted, 0.50), P90: Quantile(sorted, 0.90), P95: Quantile(sorted, 0.95), P99: Quantile(sorted, 0.99),
	}
	return s
}

// Quantile returns the q-quantile, 0 ≤ q ≤ 1, of a sample of finite numbers in
// ascending order: with h = (n−1)q, the value at rank h, counted from 0, or
// between the two closest ranks in proportion. It is NaN for an empty sample and
// for a q out of range.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 || !(q >= 0 && q <= 1) {
		return math.NaN()
	}
	h := float64(len(sorted)-1) * q
	low := int(h)
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	a, b := sorted[low], sorted[low+1]
	// The clamp keeps rounding from leaving the interval, so that p90 ≤ p95
	// holds also between equal neighbours.
	return min(max(a+(b-a)*(h-float64(low)), a), b)
}

// mean adds up differences from the running mean, which cannot overflow for
// values of one sign and loses less than a plain sum.
func mean(sorted []float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	m := 0.0
	for i, v := range sorted {
		m += (v - m) / float64(i+1)
	}
	return m
}

// wireSummary is a Summary with null where a figure is not measured.
type wireSummary struct {
	N       int      `json:"n"`
	LeftOut int      `json:"left_out,omitempty"`
	Min     *float64 `json:"min"`
	Mean    *float64 `json:"mean"`
	P50     *float64 `json:"p50"`
	P90     *float64 `json:"p90"`
	P95     *float64 `json:"p95"`
	P99     *float64 `json:"p99"`
	Max     *float64 `json:"max"`
}

// MarshalJSON writes null for a figure that is not a number.
func (s Summary) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireSummary{
		N: s.N, LeftOut: s.LeftOut,
		Min: finite(s.Min), Mean: finite(s.Mean), Max: finite(s.Max),
		P50: finite(s.P50), P90: finite(s.P90), P95: finite(s.P95), P99: finite(s.P99),
	})
}

// UnmarshalJSON reads null as NaN.
func (s *Summary) UnmarshalJSON(text []byte) error {
	var w wireSummary
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	*s = Summary{
		N: w.N, LeftOut: w.LeftOut,
		Min: orNaN(w.Min), Mean: orNaN(w.Mean), Max: orNaN(w.Max),
		P50: orNaN(w.P50), P90: orNaN(w.P90), P95: orNaN(w.P95), P99: orNaN(w.P99),
	}
	return nil
}

func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

var (
	_ json.Marshaler   = Summary{}
	_ json.Unmarshaler = (*Summary)(nil)
)
