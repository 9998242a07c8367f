package load

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/omnitap/omnitap/exporter/stats"
)

func TestValidate(t *testing.T) {
	ms := time.Millisecond
	for _, p := range []Plan{
		{Requests: 1, Concurrency: 1},
		{Requests: MaxRequests, Concurrency: MaxUnderWay, Timeout: time.Second},
		{Requests: 1, Rate: 0.01},
		{Times: []time.Duration{0, 0, ms}},
		{Requests: 2, Times: []time.Duration{0, ms}},
	} {
		if err := p.Validate(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for _, c := range []struct {
		p    Plan
		want string
	}{
		{Plan{}, "exactly one of"},
		{Plan{}, "requests must lie between"},
		{Plan{Requests: 1}, "not 0 of them"},
		{Plan{Requests: 1, Concurrency: 1, Rate: 1}, "not 2 of them"},
		{Plan{Requests: 1, Concurrency: 1, Rate: 1, Times: []time.Duration{0}}, "not 3 of them"},
		{Plan{Requests: -1, Concurrency: 1}, "not -1"},
		{Plan{Requests: MaxRequests + 1, Concurrency: 1}, "requests must lie between"},
		{Plan{Requests: 1, Concurrency: -1}, "concurrency must lie"},
		{Plan{Requests: 1, Concurrency: MaxUnderWay + 1}, "concurrency must lie"},
		{Plan{Requests: 1, Rate: -1}, "rate must be"},
		{Plan{Requests: 1, Rate: math.NaN()}, "rate must be"},
		{Plan{Requests: 1, Rate: math.Inf(1)}, "rate must be"},
		{Plan{Requests: 1000, Rate: 1e-9}, "take longer than"},
		{Plan{Requests: 3, Times: []time.Duration{0, ms}}, "3 requests, but 2 times"},
		{Plan{Times: []time.Duration{-ms, 0}}, "before the start"},
		{Plan{Times: []time.Duration{ms, 0}}, "ascending"},
		{Plan{Times: []time.Duration{math.MaxInt64}}, "longer than"},
		{Plan{Requests: 1, Concurrency: 1, Timeout: -1}, "negative"},
	} {
		if err := c.p.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want something about %q", c.p, err, c.want)
		}
	}
}

// gaps are the times between arrivals, in units of the mean that the rate asks for.
func gaps(p Plan) (out []float64) {
	before := time.Duration(0)
	for _, at := range p.schedule() {
		out = append(out, (at-before).Seconds()*p.Rate)
		before = at
	}
	return out
}

// TestPoisson: gaps are exponential with the mean of the rate, whatever the rate, and
// those of one seed are independent of each other.
func TestPoisson(t *testing.T) {
	const n = 20000
	for i, rate := range []float64{0.5, 40, 3000} {
		g := gaps(Plan{Requests: n, Rate: rate, Seed: uint64(i + 1)})
		mean := stats.Mean(g)
		var square, pairs float64
		for j := range g {
			square += (g[j] - mean) * (g[j] - mean)
			if j > 0 {
				pairs += (g[j] - mean) * (g[j-1] - mean)
			}
		}
		// Four standard errors: 1/√n of the mean and of the neighbours' correlation, √2/√n
		// of the coefficient of variation of an exponential.
		four := 4 / math.Sqrt(n)
		if cv := math.Sqrt(square/n) / mean; math.Abs(mean-1) > four || math.Abs(cv-1) > math.Sqrt2*four || math.Abs(pairs/square) > four {
			t.Errorf("rate %v: mean %v, cv %v, correlation %v", rate, mean, cv, pairs/square)
		}
		slices.Sort(g)
		d := 0.0 // Kolmogorov-Smirnov; 1.95/√n is passed once in a thousand
		for j, x := range g {
			f := 1 - math.Exp(-x)
			d = max(d, math.Abs(f-float64(j)/n), math.Abs(f-float64(j+1)/n))
		}
		if d > 1.95/math.Sqrt(n) {
			t.Errorf("rate %v: not exponential, D√n = %v", rate, d*math.Sqrt(n))
		}
	}
}

func TestSeedDecides(t *testing.T) {
	p := Plan{Requests: 50, Rate: 10, Seed: 7}
	a := p.schedule()
	if !slices.Equal(a, p.schedule()) {
		t.Error("the same seed gives two schedules")
	}
	if p.Seed = 8; slices.Equal(a, p.schedule()) {
		t.Error("two seeds give the same schedule")
	}
	if !slices.IsSorted(a) || a[0] < 0 {
		t.Errorf("not in order: %v", a)
	}
}
