package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// world draws experiments whose truth is known.
type world struct {
	values int     // in a block
	sigma  float64 // of the logarithm of a value
	pair   float64 // of what both blocks of a pair share
	block  float64 // of what a block has to itself
	change float64 // of b against a
}

// usual is what a calibration looks like: requests of one server, some drift.
var usual = world{values: 64, sigma: 0.3, pair: 0.1, block: 0.05, change: 0.05}

func (w world) draw(rng *rand.Rand, n int) (a, b Blocks) {
	one := func(level float64) []float64 {
		level *= math.Exp(w.block * rng.NormFloat64())
		out := make([]float64, w.values)
		for i := range out {
			out[i] = level * math.Exp(w.sigma*rng.NormFloat64())
		}
		return out
	}
	for range n {
		level := math.Exp(w.pair * rng.NormFloat64())
		a, b = append(a, one(level)), append(b, one(level*(1+w.change)))
	}
	return a, b
}

// result is what became of many experiments.
type result struct {
	covered float64 // share of intervals that hold the truth
	half    float64 // mean half width
}

// experiment draws n pairs (or n blocks a side) that often and looks at each
// statistic.
func experiment(t *testing.T, w world, n, trials int, s []Statistic, d Design) []result {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, uint64(n)))
	out := make([]result, len(s))
	for trial := range trials {
		a, b := w.draw(rng, n)
		d.Seed = uint64(trial)
		for i := range s {
			c := RelativeChange(a, b, s[i], d)
			if c.Why != "" {
				t.Fatal(c.Why)
			}
			if c.Interval.Lo <= w.change && w.change <= c.Interval.Hi {
				out[i].covered += 1 / float64(trials)
			}
			out[i].half += (c.Interval.Hi - c.Interval.Lo) / 2 / float64(trials)
		}
	}
	return out
}

var (
	places = []Statistic{Mean, Median, Quantile(0.99)}
	names  = []string{"mean", "median", "p99"}
	// widest is the mean half width at four pairs that still says something.
	widest = []float64{0.16, 0.18, 0.30}
)

// A 95 % interval holds the truth in 92 of 100 experiments at least, without being so
// wide that this would be no art.
func TestCoverage(t *testing.T) {
	for _, n := range []int{2, 3, 4, 6, 8, 12} {
		for i, r := range experiment(t, usual, n, 1500, places, Design{Paired: true}) {
			t.Logf("%2d pairs: %.1f %% of intervals hold the %s, half width %.3f", n, 100*r.covered, names[i], r.half)
			if r.covered < 0.92 || r.covered > 0.98 {
				t.Errorf("%d pairs: %.1f %% of intervals hold the %s, want 92 to 98", n, 100*r.covered, names[i])
			}
			if bound := widest[i] * math.Sqrt(4/float64(n)); n >= 4 && r.half > bound {
				t.Errorf("%d pairs: the half width of the %s is %.3f, want %.3f at the most", n, names[i], r.half, bound)
			}
		}
	}
}

// No more than 6 of 100 comparisons of a with itself come out as a difference.
func TestFalseAlarms(t *testing.T) {
	same := usual
	same.change, same.pair, same.block = 0, 0.2, 0.03 // another world than TestCoverage's, so another check
	for _, n := range []int{4, 6, 8, 12} {
		for i, r := range experiment(t, same, n, 1500, places, Design{Paired: true}) {
			alarms := 1 - r.covered
			t.Logf("%2d pairs: %.1f %% false alarms of the %s", n, 100*alarms, names[i])
			if alarms > 0.06 || alarms < 0.02 {
				t.Errorf("%d pairs: %.1f %% false alarms of the %s, want 2 to 6", n, 100*alarms, names[i])
			}
		}
	}
}

// Other worlds: heavier tails, strong drift, no pairs, values resampled too.
func TestCoverageElsewhere(t *testing.T) {
	const trials = 800
	cases := []struct {
		name string
		w    world
		d    Design
		most float64
	}{
		{"heavy tails", world{values: 16, sigma: 0.8, pair: 0.1, block: 0.05, change: -0.1}, Design{Paired: true}, 0.99},
		{"strong drift", world{values: 32, sigma: 0.3, pair: 0.7, block: 0.02, change: 0.2}, Design{Paired: true}, 0.99},
		{"one value a block", world{values: 1, sigma: 0.3, change: 0.1}, Design{Paired: true}, 0.99},
		{"no pairs", world{values: 32, sigma: 0.3, block: 0.05, change: 0.05}, Design{}, 0.99},
		{"hierarchical", world{values: 16, sigma: 0.3, pair: 0.1, block: 0.02, change: 0.05}, Design{Paired: true, Within: true, Resamples: 200}, 1},
		{"hierarchical, no pairs", world{values: 16, sigma: 0.3, block: 0.02, change: 0.05}, Design{Within: true, Resamples: 200}, 1},
	}
	for _, c := range cases {
		trials := trials
		if c.d.Within {
			trials = 100
		}
		for _, n := range []int{4, 8} {
			r := experiment(t, c.w, n, trials, []Statistic{Median}, c.d)[0]
			t.Logf("%s, %d blocks: %.1f %% covered, half width %.3f", c.name, n, 100*r.covered, r.half)
			if r.covered < 0.92 || r.covered > c.most+1e-9 {
				t.Errorf("%s, %d blocks: %.1f %% covered, want 92 to %.0f", c.name, n, 100*r.covered, 100*c.most)
			}
		}
	}
}

// What the change of a p99 does not cover with 64 requests a block: here two of a
// hundred requests of b take three times as long. The figures stand in the comment of
// RelativeChange.
func TestTailOfFewRequests(t *testing.T) {
	const n, trials = 8, 300
	rng := rand.New(rand.NewPCG(5, 5))
	all := mixtureQuantile(0.99, 0.3, 0.02, 3)/mixtureQuantile(0.99, 0.3, 0, 3) - 1
	same := usual
	same.change = 0
	estimate, half := 0.0, 0.0
	for range trials {
		a, b := same.draw(rng, n)
		for _, block := range b {
			for i := range block {
				if rng.Float64() < 0.02 {
					block[i] *= 3
				}
			}
		}
		c := RelativeChange(a, b, Quantile(0.99), Design{Paired: true})
		estimate += c.Estimate / trials
		half += (c.Interval.Hi - c.Interval.Lo) / 2 / trials
	}
	t.Logf("the p99 of all requests rises by %.3f, that of blocks by %.3f ±%.3f", all, estimate, half)
	if math.Abs(all-0.50) > 0.005 || math.Abs(estimate-0.32) > 0.02 || half < 0.2 {
		t.Errorf("the p99 of all requests rises by %.3f, that of blocks by %.3f ±%.3f, want 0.50, 0.32 and over 0.2", all, estimate, half)
	}
}

// mixtureQuantile is the p-quantile of lognormal values of which a share takes factor
// times as long, by bisection.
func mixtureQuantile(p, sigma, share, factor float64) float64 {
	cdf := func(x float64) float64 {
		phi := func(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }
		return (1-share)*phi(math.Log(x)/sigma) + share*phi(math.Log(x/factor)/sigma)
	}
	low, high := 0.01, 100.0
	for range 100 {
		if mid := (low + high) / 2; cdf(mid) < p {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// Bootstrap of one group: the truth is that of all values that could have come.
func TestBootstrapCoverage(t *testing.T) {
	spread := math.Hypot(0.1, 0.3)
	cases := []struct {
		name      string
		s         Statistic
		truth     float64
		n, values int
		least     float64
	}{
		{"mean", Mean, math.Exp(spread * spread / 2), 4, 16, 0.91},
		{"mean", Mean, math.Exp(spread * spread / 2), 8, 16, 0.91},
		{"median", Median, 1, 4, 16, 0.91},
		{"median", Median, 1, 8, 1, 0.91},
		{"median", Median, 1, 12, 16, 0.91},
		{"mean, many blocks", Mean, math.Exp(spread * spread / 2), 60, 2, 0.90},
		{"p99 of 512", Quantile(0.99), math.Exp(spread * 2.3263478740408408), 8, 64, 0.86},
	}
	for _, c := range cases {
		const trials = 200
		rng := rand.New(rand.NewPCG(3, uint64(c.n)))
		w := world{values: c.values, sigma: 0.3, block: 0.1}
		hits := 0
		for trial := range trials {
			v, _ := w.draw(rng, c.n)
			_, i, why := Bootstrap(v, c.s, Design{Resamples: 200, Seed: uint64(trial)})
			if why != "" {
				t.Fatal(why)
			}
			if i.Lo <= c.truth && c.truth <= i.Hi {
				hits++
			}
		}
		share := float64(hits) / trials
		t.Logf("%s of %d blocks of %d: %.1f %%", c.name, c.n, c.values, 100*share)
		if share < c.least || share > 0.99 {
			t.Errorf("%s of %d blocks of %d: %.1f %% covered, want %.0f to 99", c.name, c.n, c.values, 100*share, 100*c.least)
		}
	}
}

// Why the interval is what it is: the table of the package comment. Percentiles of
// resampled pairs and BCa cover too seldom with few pairs, the bootstrap-t is too
// wide with four.
func TestMethodsCompared(t *testing.T) {
	const trials, resamples = 200, 200
	for _, n := range []int{4, 8} {
		rng := rand.New(rand.NewPCG(9, uint64(n)))
		hits, width := map[string]int{}, map[string]float64{}
		for trial := range trials {
			a, b := usual.draw(rng, n)
			d := Design{Paired: true, Level: 0.95, Resamples: resamples, Seed: uint64(trial)}
			all := rivals(a, b, d)
			all["student-t"] = RelativeChange(a, b, Mean, d).Interval
			for name, i := range all {
				if i.Lo <= usual.change && usual.change <= i.Hi {
					hits[name]++
				}
				width[name] += (i.Hi - i.Lo) / 2 / trials
			}
		}
		row := ""
		for _, name := range []string{"percentile", "bca", "bootstrap-t", "student-t"} {
			row += fmt.Sprintf("  %s %.1f %% ±%.3f", name, 100*float64(hits[name])/trials, width[name])
		}
		t.Logf("%d pairs:%s", n, row)
		for _, name := range []string{"percentile", "bca"} {
			if share := float64(hits[name]) / trials; share > 0.91 {
				t.Errorf("%d pairs: %s covers %.3f: it could be used after all", n, name, share)
			}
		}
		if n == 4 && width["bootstrap-t"] < 2*width["student-t"] {
			t.Errorf("%d pairs: bootstrap-t is ±%.3f, Student's t ±%.3f: it could be used after all", n, width["bootstrap-t"], width["student-t"])
		}
	}
}
