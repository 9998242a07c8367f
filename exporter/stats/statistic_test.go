package stats

import (
	"math"
	"slices"
	"testing"
)

func TestMean(t *testing.T) {
	cases := []struct {
		name   string
		values []float64
		want   float64
	}{
		{"empty", nil, nan},
		{"one", []float64{7}, 7},
		{"some", []float64{1, 2, 6}, 3},
		{"not a number", []float64{1, nan}, nan},
		{"infinite", []float64{1, math.Inf(1)}, nan},
		{"opposite ends", []float64{math.MaxFloat64, -math.MaxFloat64}, 0},
		{"near the end", []float64{math.MaxFloat64, math.MaxFloat64}, math.MaxFloat64},
	}
	for _, c := range cases {
		if got := Mean(c.values); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%s: mean %v, want %v", c.name, got, c.want)
		}
	}
}

func TestQuantileStatistic(t *testing.T) {
	v := []float64{4, 1, 3, 2}
	given := slices.Clone(v)
	if got := Median(v); got != 2.5 {
		t.Errorf("median %v, want 2.5", got)
	}
	if got := Quantile(1)(v); got != 4 {
		t.Errorf("maximum %v, want 4", got)
	}
	if !slices.Equal(v, given) {
		t.Errorf("the argument became %v", v)
	}
	for _, p := range []float64{-0.1, 1.1, nan} {
		if got := Quantile(p)(v); !math.IsNaN(got) {
			t.Errorf("%v-quantile %v, want NaN", p, got)
		}
	}
	for _, v := range [][]float64{nil, {1, nan}, {math.Inf(-1), 1}} {
		if got := Median(v); !math.IsNaN(got) {
			t.Errorf("median of %v is %v, want NaN", v, got)
		}
	}
	if got := Median([]float64{-math.MaxFloat64, math.MaxFloat64}); got != 0 {
		t.Errorf("median of the ends is %v, want 0", got)
	}
}

func TestQuantileMethodIsSummarys(t *testing.T) {
	v := []float64{5, 1, 9, 2, 2, 7, 31}
	s := Summarize(v)
	for p, want := range map[float64]float64{0: s.Min, 0.5: s.P50, 0.9: s.P90, 0.95: s.P95, 0.99: s.P99, 1: s.Max} {
		if got := Quantile(p)(v); got != want {
			t.Errorf("%v-quantile %v, the summary has %v", p, got, want)
		}
	}
	if Method != QuantileMethod {
		t.Errorf("Method %q, QuantileMethod %q", Method, QuantileMethod)
	}
}

func TestAim(t *testing.T) {
	deviation := func(v []float64) float64 {
		m, sum := Mean(v), 0.0
		for _, x := range v {
			sum += math.Abs(x - m)
		}
		return sum / float64(len(v))
	}
	above := func(v []float64) float64 {
		n := 0
		for _, x := range v {
			if x > 200 {
				n++
			}
		}
		return float64(n) / float64(len(v))
	}
	cases := []struct {
		name string
		s    Statistic
		p    float64
		ok   bool
	}{
		{"mean", Mean, 0.5, true},
		{"median", Median, 0.5, true},
		{"p99", Quantile(0.99), 0.99, true},
		{"p1", Quantile(0.01), 0.01, true},
		{"maximum", Quantile(1), 1, true},
		{"deviation", deviation, 0, false},
		{"share above a limit", above, 0, false},
		{"never defined", Quantile(2), 0, false},
	}
	for _, c := range cases {
		p, ok := aim(c.s)
		if ok != c.ok || ok && math.Abs(p-c.p) > 1e-9 {
			t.Errorf("%s aims at %v, %v, want %v, %v", c.name, p, ok, c.p, c.ok)
		}
	}
}
