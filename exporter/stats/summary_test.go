package stats

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	nan    = math.NaN()
	approx = cmp.Options{cmpopts.EquateApprox(0, 1e-12), cmpopts.EquateNaNs()}
)

// The wanted values are those of Python's statistics.quantiles(method="inclusive"),
// which is R's type 7.
func TestSummarize(t *testing.T) {
	cases := []struct {
		name   string
		values []float64
		want   Summary
	}{
		{"empty", nil, Summary{Min: nan, Mean: nan, Max: nan, P50: nan, P90: nan, P95: nan, P99: nan}},
		{"one", []float64{7}, Summary{N: 1, Min: 7, Mean: 7, Max: 7, P50: 7, P90: 7, P95: 7, P99: 7}},
		{"two", []float64{20, 10}, Summary{N: 2, Min: 10, Mean: 15, Max: 20, P50: 15, P90: 19, P95: 19.5, P99: 19.9}},
		{"four", []float64{4, 1, 3, 2}, Summary{N: 4, Min: 1, Mean: 2.5, Max: 4, P50: 2.5, P90: 3.7, P95: 3.85, P99: 3.97}},
		{
			"R's rivers, the first ten",
			[]float64{735, 320, 325, 392, 524, 450, 1459, 135, 465, 600},
			Summary{N: 10, Min: 135, Mean: 540.5, Max: 1459, P50: 457.5, P90: 807.4, P95: 1133.2, P99: 1393.84},
		},
		{"negative", []float64{-1, 1}, Summary{N: 2, Min: -1, Mean: 0, Max: 1, P50: 0, P90: 0.8, P95: 0.9, P99: 0.98}},
		{"equal", []float64{0.1, 0.1, 0.1}, Summary{N: 3, Min: 0.1, Mean: 0.1, Max: 0.1, P50: 0.1, P90: 0.1, P95: 0.1, P99: 0.1}},
		{
			"not numbers",
			[]float64{nan, 10, math.Inf(1), 20, math.Inf(-1)},
			Summary{N: 2, LeftOut: 3, Min: 10, Mean: 15, Max: 20, P50: 15, P90: 19, P95: 19.5, P99: 19.9},
		},
		{
			"only not numbers",
			[]float64{nan, nan},
			Summary{LeftOut: 2, Min: nan, Mean: nan, Max: nan, P50: nan, P90: nan, P95: nan, P99: nan},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			given := slices.Clone(c.values)
			if diff := cmp.Diff(c.want, Summarize(c.values), approx); diff != "" {
				t.Errorf("Summarize(%v) (-want +got):\n%s", c.values, diff)
			}
			if !cmp.Equal(given, c.values, approx) {
				t.Errorf("Summarize changed its argument to %v", c.values)
			}
		})
	}
}

func TestSummarizeHundred(t *testing.T) {
	var values []float64
	for i := 100; i >= 0; i-- {
		values = append(values, float64(i))
	}
	want := Summary{N: 101, Min: 0, Mean: 50, Max: 100, P50: 50, P90: 90, P95: 95, P99: 99}
	if diff := cmp.Diff(want, Summarize(values), approx); diff != "" {
		t.Errorf("Summarize (-want +got):\n%s", diff)
	}
}

func TestQuantileRange(t *testing.T) {
	for _, q := range []float64{-0.1, 1.1, nan} {
		if got := quantile([]float64{1, 2}, q); !math.IsNaN(got) {
			t.Errorf("quantile(1 2, %v) = %v, want NaN", q, got)
		}
	}
}

// Quantiles never leave the sample and never fall.
func FuzzQuantile(f *testing.F) {
	f.Add(1.0, 2.0, 3.0, 0.5, 0.9)
	f.Add(0.1, 0.1, 0.1, 0.95, 0.99)
	f.Add(-1e300, 0.0, 1e300, 0.01, 0.02)
	f.Fuzz(func(t *testing.T, a, b, c, p, q float64) {
		sorted := []float64{a, b, c}
		for _, v := range sorted {
			if !(math.Abs(v) < 1e307) {
				t.Skip("the difference of neighbours overflows")
			}
		}
		slices.Sort(sorted)
		if !(p >= 0 && p <= q && q <= 1) {
			t.Skip("no pair of quantiles")
		}
		low, high := quantile(sorted, p), quantile(sorted, q)
		if !(sorted[0] <= low && low <= high && high <= sorted[2]) {
			t.Errorf("quantile(%v): %v at %v, %v at %v", sorted, low, p, high, q)
		}
	})
}

func TestSummaryJSON(t *testing.T) {
	for _, s := range []Summary{Summarize(nil), Summarize([]float64{1, 2, nan})} {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back Summary
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, back, approx); diff != "" {
			t.Errorf("%s reads back differently (-want +got):\n%s", text, diff)
		}
	}
	text, err := json.Marshal(Summarize(nil))
	if want := `{"n":0,"min":null,"mean":null,"p50":null,"p90":null,"p95":null,"p99":null,"max":null}`; err != nil || string(text) != want {
		t.Errorf("empty summary = %s, %v, want %s", text, err, want)
	}
}

func BenchmarkSummarize(b *testing.B) {
	values := make([]float64, 10_000)
	for i := range values {
		values[i] = float64(i * 7919 % 10_007)
	}
	b.ReportAllocs()
	for b.Loop() {
		Summarize(values)
	}
}
