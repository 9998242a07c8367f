package compare

import (
	"math"
	"testing"
)

func near(t *testing.T, what string, got, want, slack float64) {
	t.Helper()
	if !(math.Abs(got-want) <= slack) {
		t.Errorf("%s is %v, want %v", what, got, want)
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
	many := func(length int64) (a, b []*Run) {
		for i := range int64(minPairs) {
			a, b = append(a, at(20*i+1, 20*i+1+length)), append(b, at(20*i+11, 20*i+11+length))
		}
		return a, b
	}
	one, two := many(9)
	if _, _, o = arrange(one, two); !o.Paired || o.Overlap {
		t.Errorf("%+v", o)
	}
	one, two = many(15)
	if _, _, o = arrange(one, two); o.Paired || !o.Overlap {
		t.Errorf("%+v", o)
	}
	if _, _, o = arrange([]*Run{at(0, 0)}, []*Run{at(30, 39)}); o.Kind != OrderUnknown {
		t.Errorf("%+v", o)
	}
}
