package stats

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"
)

// reference is testdata/scipy.json, made by testdata/scipy_cases.py.
type reference struct {
	Versions  map[string]string
	Quantiles []struct {
		Name                    string
		Values, P, Numpy, Scipy []float64
		Mean, Median            float64
	}
	Student []struct{ Freedom, Level, T float64 }
	Changes []struct {
		A, B   Blocks
		Level  float64
		Paired bool
		Want   map[string]struct{ Estimate, Lo, Hi float64 }
	}
	Bootstraps, Errors []struct {
		Values                  []float64
		Statistic               string
		Level, Estimate, Lo, Hi float64
		StandardError           float64 `json:"standard_error"`
	}
	Permutations []struct {
		A, B          []float64
		Paired, Exact bool
		P             float64
	}
}

func readReference(t *testing.T) reference {
	t.Helper()
	text, err := os.ReadFile("testdata/scipy.json")
	if err != nil {
		t.Fatal(err)
	}
	var r reference
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if r.Versions["scipy"] == "" || r.Versions["numpy"] == "" {
		t.Error("scipy.json does not name the versions that it came from")
	}
	for _, n := range []int{len(r.Quantiles), len(r.Student), len(r.Changes), len(r.Bootstraps), len(r.Errors), len(r.Permutations)} {
		if n == 0 {
			t.Fatal("scipy.json lacks a part")
		}
	}
	return r
}

func named(t *testing.T, name string) Statistic {
	t.Helper()
	s := map[string]Statistic{"mean": Mean, "median": Median, "p90": Quantile(0.9), "p99": Quantile(0.99)}[name]
	if s == nil {
		t.Fatalf("no statistic %q", name)
	}
	return s
}

// single makes a block of each value.
func single(v []float64) Blocks {
	out := make(Blocks, len(v))
	for i, x := range v {
		out[i] = []float64{x}
	}
	return out
}

// near fails unless got is want but for a share of its size.
func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if !(math.Abs(got-want) <= share*max(math.Abs(want), 1e-300)) {
		t.Errorf("%s = %.17g, want %.17g", what, got, want)
	}
}

func TestSciPyQuantiles(t *testing.T) {
	for _, c := range readReference(t).Quantiles {
		near(t, c.Name+": mean", Mean(c.Values), c.Mean, 1e-12)
		near(t, c.Name+": median", Median(c.Values), c.Median, 1e-12)
		for i, p := range c.P {
			near(t, fmt.Sprintf("%s: %v-quantile of NumPy", c.Name, p), Quantile(p)(c.Values), c.Numpy[i], 1e-12)
			near(t, fmt.Sprintf("%s: %v-quantile of SciPy", c.Name, p), Quantile(p)(c.Values), c.Scipy[i], 1e-12)
		}
	}
}

func TestSciPyStudent(t *testing.T) {
	for _, c := range readReference(t).Student {
		near(t, fmt.Sprintf("t of %v degrees at %v", c.Freedom, c.Level), student(c.Level, c.Freedom), c.T, 1e-9)
	}
}

func TestSciPyChange(t *testing.T) {
	for i, c := range readReference(t).Changes {
		for name, want := range c.Want {
			got := RelativeChange(c.A, c.B, named(t, name), Design{Paired: c.Paired, Level: c.Level})
			what := fmt.Sprintf("case %d: change of the %s (%s)", i, name, got.Why)
			near(t, what, got.Estimate, want.Estimate, 1e-9)
			near(t, what+": low", got.Interval.Lo, want.Lo, 1e-8)
			near(t, what+": high", got.Interval.Hi, want.Hi, 1e-8)
		}
	}
}

// Both sides resample: bounds differ by a few per cent of the width.
func TestSciPyBCa(t *testing.T) {
	for i, c := range readReference(t).Bootstraps {
		estimate, got, why := Bootstrap(single(c.Values), named(t, c.Statistic), Design{Level: c.Level, Resamples: 50_000})
		if why != "" || got.Method != "bca" {
			t.Fatalf("case %d: %q by %q", i, why, got.Method)
		}
		near(t, fmt.Sprintf("case %d: %s", i, c.Statistic), estimate, c.Estimate, 1e-12)
		if slack := 0.02 * (c.Hi - c.Lo); math.Abs(got.Lo-c.Lo) > slack || math.Abs(got.Hi-c.Hi) > slack {
			t.Errorf("case %d: %s from %v to %v, want %v to %v", i, c.Statistic, got.Lo, got.Hi, c.Lo, c.Hi)
		}
	}
}

func TestSciPyStandardError(t *testing.T) {
	for i, c := range readReference(t).Errors {
		estimate, got, why := Bootstrap(single(c.Values), named(t, c.Statistic), Design{Level: c.Level, Resamples: 100_000})
		if why != "" || got.Method != "student-t/blocks" {
			t.Fatalf("case %d: %q by %q", i, why, got.Method)
		}
		n := float64(len(c.Values))
		half := student(c.Level, n-1) * c.StandardError * math.Sqrt(n/(n-1))
		what := fmt.Sprintf("case %d: %s", i, c.Statistic)
		near(t, what, estimate, c.Estimate, 1e-12)
		near(t, what+": half width above", got.Hi-estimate, half, 0.02)
		near(t, what+": half width below", estimate-got.Lo, half, 0.02)
	}
}

func TestSciPyPermutation(t *testing.T) {
	for i, c := range readReference(t).Permutations {
		p, exact, why := Permutation(single(c.A), single(c.B), Mean, Design{Paired: c.Paired, Resamples: 100_000})
		if why != "" || exact != c.Exact {
			t.Errorf("case %d: exact %v (%s), want %v", i, exact, why, c.Exact)
		}
		slack := 1e-12
		if !exact { // five standard errors of either side, times two
			slack = 10 * math.Sqrt(2*c.P/100_000)
		}
		if math.Abs(p-c.P) > slack {
			t.Errorf("case %d: p = %v, want %v", i, p, c.P)
		}
	}
}
