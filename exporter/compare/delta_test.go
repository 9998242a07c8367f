package compare

import (
	"math"
	"strings"
	"testing"
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
	est, iv, why := difference(one, two, false, 0.95)
	near(t, "estimate", est, 1.58, 1e-12)
	near(t, "Welch's lower bound", iv.Lo, -0.2054832, 1e-6)
	near(t, "Welch's upper bound", iv.Hi, 3.3654832, 1e-6)
	_, iv, whyPaired := difference(one, two, true, 0.95)
	near(t, "Student's lower bound", iv.Lo, 0.7001142, 1e-6)
	near(t, "Student's upper bound", iv.Hi, 2.4598858, 1e-6)
	if why != "" || whyPaired != "" || iv.Method != "student-t" {
		t.Errorf("%q, %q, %s", why, whyPaired, iv.Method)
	}
}

func TestDifferenceOfLittle(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for name, test := range map[string]struct {
		a, b []float64
		est  float64
		why  string
	}{
		"none":           {nil, []float64{1, 2}, nan, "no runs"},
		"one a side":     {[]float64{1}, []float64{3}, 2, oneRun},
		"one of a":       {[]float64{1}, []float64{3, 4}, 2.5, oneRun},
		"not everywhere": {[]float64{1, nan}, []float64{3, 4}, nan, "not measured in every run"},
		"infinite":       {[]float64{1, math.Inf(1)}, []float64{3, 4}, nan, "not measured in every run"},
		"no spread":      {[]float64{1, 1}, []float64{3, 3}, 2, "do not differ from each other"},
		"ties":           {[]float64{5, 5, 5}, []float64{5, 5, 5}, 0, "do not differ from each other"},
		"zeros":          {[]float64{0, 0}, []float64{0, 0}, 0, "do not differ from each other"},
	} {
		est, iv, why := difference(test.a, test.b, false, 0.95)
		if math.IsNaN(est) != math.IsNaN(test.est) || !math.IsNaN(est) && est != test.est || !strings.Contains(why, test.why) || !math.IsNaN(iv.Lo) || !math.IsNaN(iv.Hi) {
			t.Errorf("%s: %v, %v, %q", name, est, iv, why)
		}
	}
}

// Newcombe's own examples (Statistics in Medicine 17, 1998, pages 857 and 873).
func TestSharesPublished(t *testing.T) {
	t.Parallel()
	lo, hi := wilson(81, 263)
	near(t, "Wilson's lower bound", lo, 0.2553, 5e-5)
	near(t, "Wilson's upper bound", hi, 0.3662, 5e-5)
	lo, hi = wilson(0, 20)
	near(t, "Wilson's lower bound of none", lo, 0, 1e-12)
	near(t, "Wilson's upper bound of none", hi, 0.1611, 5e-5)
	lo, hi = newcombe(48, 80, 56, 70)
	near(t, "Newcombe's lower bound", lo, 0.0524, 5e-5)
	near(t, "Newcombe's upper bound", hi, 0.3339, 5e-5)
	lo, hi = newcombe(10, 10, 0, 10)
	if lo < -1 || hi > 0 {
		t.Errorf("from all to none: %v to %v", lo, hi)
	}
}

// A straight line is carried over as it is, and explains itself.
func TestTrend(t *testing.T) {
	t.Parallel()
	at := func(pattern string) *comparison {
		c := &comparison{}
		for i, side := range pattern {
			p := placed{place: float64(i), side: byte(side)}
			if side == 'A' {
				c.a = append(c.a, p)
			} else {
				c.b = append(c.b, p)
			}
		}
		c.order.Kind = kindOf([]byte(pattern))
		return c
	}
	line := func(p []placed, noise ...float64) []float64 {
		out := make([]float64, len(p))
		for i := range p {
			out[i] = 2 * p[i].place
			if i < len(noise) {
				out[i] += noise[i]
			}
		}
		return out
	}
	for pattern, want := range map[string]float64{"AAABBB": 6, "BBBAAA": -6, "ABAB": 2, "ABBA": 0, "AABB": 4} {
		c := at(pattern)
		got := c.trend(line(c.a), line(c.b))
		near(t, pattern+" carries", got.carried, want, 1e-9)
		if got.known() != (c.order.Kind == OrderSeparate) {
			t.Errorf("%s: %+v", pattern, got)
		}
	}
	c := at("AAABBB")
	got := c.trend(line(c.a, 0.1, -0.1), line(c.b, 0, 0.1, -0.1))
	if !got.explains(6) || got.explains(60) == true && got.lo > 0 {
		t.Errorf("a line: %+v", got)
	}
	b := line(c.b)
	for i := range b {
		b[i] += 20
	}
	if got = c.trend(line(c.a, 0.1, -0.1), b); got.explains(26) {
		t.Errorf("a line and a step: %+v", got)
	}
	if got := at("AB").trend([]float64{1}, []float64{2}); !math.IsNaN(got.carried) || got.explains(1) {
		t.Errorf("one a side: %+v", got)
	}
	if !math.IsNaN(halves(nil)) || !math.IsNaN(halves([]float64{1})) || halves([]float64{1, 9, 4}) != 3 {
		t.Error("halves")
	}
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"AB": OrderSeparate, "AABB": OrderSeparate, "BA": OrderSeparate, "ABAB": OrderAlternating, "ABBA": OrderAlternating, "BAAB": OrderAlternating,
		"ABBAABBA": OrderAlternating, "ABA": OrderMixed, "AABBAABB": OrderMixed, "ABBBAA": OrderMixed, "AAB": OrderSeparate,
	} {
		if got := kindOf([]byte(pattern)); got != want {
			t.Errorf("%s: %s, want %s", pattern, got, want)
		}
	}
}

func TestArrange(t *testing.T) {
	t.Parallel()
	at := func(start, end int64) *Run {
		r := &Run{}
		r.meta = metadataOf(0, 0)
		r.meta.Start.WallNS, r.meta.End.WallNS = start, end
		return r
	}
	// given out of their order
	a, b, o := arrange([]*Run{at(70, 79), at(10, 19)}, []*Run{at(30, 39), at(50, 59)})
	if o.Pattern != "A B B A" || o.Kind != OrderAlternating || o.Overlap || o.Paired || a[0].meta.Start.WallNS != 10 || b[1].place != 2 {
		t.Errorf("%+v, %v, %v", o, a[0].place, b[1].place)
	}
	if _, _, o = arrange([]*Run{at(10, 31)}, []*Run{at(30, 39)}); !o.Overlap {
		t.Errorf("%+v", o)
	}
	if _, _, o = arrange([]*Run{at(0, 0)}, []*Run{at(30, 39)}); o.Kind != OrderUnknown {
		t.Errorf("%+v", o)
	}
}
