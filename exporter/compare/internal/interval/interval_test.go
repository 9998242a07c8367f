package interval_test

import (
	"math"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/compare/internal/interval"
)

func near(t *testing.T, what string, got, want, slack float64) {
	t.Helper()
	if !(math.Abs(got-want) <= slack) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// Student's sleep data as R's t.test has them: extra hours of sleep of ten patients with
// two drugs.
func TestDifferencePublished(t *testing.T) {
	t.Parallel()
	one := []float64{0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0, 2}
	two := []float64{1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4}
	for _, test := range []struct {
		how    interval.Spread
		lo, hi float64
		method string
	}{
		{interval.Groups, -0.2054832, 3.3654832, "welch-t"},
		{interval.OneSpread, -0.203874, 3.363874, "student-t/one spread"},
		{interval.Pairs, 0.7001142, 2.4598858, "student-t"},
	} {
		est, iv, why := interval.Difference(one, two, test.how, 0.95)
		near(t, test.method+": estimate", est, 1.58, 1e-12)
		near(t, test.method+": lower bound", iv.Lo, test.lo, 1e-6)
		near(t, test.method+": upper bound", iv.Hi, test.hi, 1e-6)
		if why != "" || iv.Method != test.method || iv.Level != 0.95 {
			t.Errorf("%q, %+v", why, iv)
		}
	}
}

func TestDifferenceOfLittle(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for name, test := range map[string]struct {
		a, b []float64
		how  interval.Spread
		est  float64
		why  string
	}{
		"none":           {nil, []float64{1, 2}, interval.Groups, nan, "no runs"},
		"one a side":     {[]float64{1}, []float64{3}, interval.Pairs, 2, interval.OneRun},
		"one of a":       {[]float64{1}, []float64{3, 4}, interval.OneSpread, 2.5, interval.OneRun},
		"not everywhere": {[]float64{1, nan}, []float64{3, 4}, interval.Groups, nan, "not measured in every run"},
		"infinite":       {[]float64{1, math.Inf(1)}, []float64{3, 4}, interval.Groups, nan, "not measured in every run"},
		"no pairs":       {[]float64{1, 2}, []float64{3, 4, 5}, interval.Pairs, 2.5, "no pairs"},
		"no spread":      {[]float64{1, 1}, []float64{3, 3}, interval.Groups, 2, "do not differ from each other"},
		"ties":           {[]float64{5, 5, 5}, []float64{5, 5, 5}, interval.OneSpread, 0, "do not differ from each other"},
		"zeros":          {[]float64{0, 0}, []float64{0, 0}, interval.Pairs, 0, "do not differ from each other"},
	} {
		est, iv, why := interval.Difference(test.a, test.b, test.how, 0.95)
		if math.IsNaN(est) != math.IsNaN(test.est) || !math.IsNaN(est) && est != test.est || !strings.Contains(why, test.why) || !math.IsNaN(iv.Lo) || !math.IsNaN(iv.Hi) || iv.Method != "" {
			t.Errorf("%s: %v, %v, %q", name, est, iv, why)
		}
	}
}

// Newcombe's own examples (Statistics in Medicine 17, 1998, pages 857 and 873).
func TestSharesPublished(t *testing.T) {
	t.Parallel()
	lo, hi := interval.Wilson(interval.Share{K: 81, N: 263}, 0.95)
	near(t, "Wilson's lower bound", lo, 0.2553, 5e-5)
	near(t, "Wilson's upper bound", hi, 0.3662, 5e-5)
	lo, hi = interval.Wilson(interval.Share{K: 0, N: 20}, 0.95)
	near(t, "Wilson's lower bound of none", lo, 0, 1e-12)
	near(t, "Wilson's upper bound of none", hi, 0.1611, 5e-5)
	if lo, hi = interval.Wilson(interval.Share{}, 0.95); lo != 0 || hi != 1 {
		t.Errorf("of nothing: %v to %v", lo, hi)
	}
	lo, hi = interval.Newcombe(interval.Share{K: 48, N: 80}, interval.Share{K: 56, N: 70}, 0.95)
	near(t, "Newcombe's lower bound", lo, 0.0524, 5e-5)
	near(t, "Newcombe's upper bound", hi, 0.3339, 5e-5)
	if lo, hi = interval.Newcombe(interval.Share{K: 10, N: 10}, interval.Share{K: 0, N: 10}, 0.95); lo < -1 || hi > 0 {
		t.Errorf("from all to none: %v to %v", lo, hi)
	}
}

// Intervals of equal halves join as standard errors do.
func TestMover(t *testing.T) {
	t.Parallel()
	lo, hi := interval.Mover(interval.Known{At: 1, Lo: 0.7, Hi: 1.3}, interval.Known{At: 2, Lo: 1.6, Hi: 2.4})
	near(t, "lower bound", lo, 0.5, 1e-12)
	near(t, "upper bound", hi, 1.5, 1e-12)
	if k := (interval.Known{At: 1, Lo: 0, Hi: math.E}).Log(); k.At != 0 || !math.IsInf(k.Lo, -1) || k.Hi != 1 {
		t.Errorf("%+v", k)
	}
}
