package stats

import (
	"encoding/json"
	"math"
	"slices"
)

// Method is QuantileMethod: how a Summary's percentiles are reckoned.
const Method = QuantileMethod

// Summary describes one sample. All figures are NaN when N is 0.
type Summary struct {
	// N is the number of values that the figures are over.
	N int
	// LeftOut is the number of values that were no finite numbers.
	LeftOut int

	Min, Mean, Max     float64
	P50, P90, P95, P99 float64
}

// Summarize describes values, in any order. Values that are no numbers (NaN,
// infinities) are left out and counted, never taken for 0; an empty sample has NaN
// for every figure and null in JSON.
func Summarize(values []float64) Summary {
	sorted := make([]float64, 0, len(values))
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			sorted = append(sorted, v)
		}
	}
	slices.Sort(sorted)
	return Summary{
		N: len(sorted), LeftOut: len(values) - len(sorted),
		Min: quantile(sorted, 0), Mean: mean(sorted), Max: quantile(sorted, 1),
		P50: quantile(sorted, 0.50), P90: quantile(sorted, 0.90), P95: quantile(sorted, 0.95), P99: quantile(sorted, 0.99),
	}
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
