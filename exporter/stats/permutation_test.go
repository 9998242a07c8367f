package stats

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// Darwin's maize, crossed against self-fertilised, in eighths of an inch: Fisher (The
// Design of Experiments, 1935, section 21) went through all 32 768 signs and found the
// difference as large in 1726 of them.
func TestPermutationFisher(t *testing.T) {
	differences := []float64{49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48}
	crossed, selfed := make([]float64, len(differences)), make([]float64, len(differences))
	for i, d := range differences {
		crossed[i], selfed[i] = 100+d, 100
	}
	p, exact, why := Permutation(single(selfed), single(crossed), Mean, Design{Paired: true})
	if want := 1726.0 / 32768; !exact || why != "" || math.Abs(p-want) > 1e-12 {
		t.Errorf("p = %v, exact %v, %q, want %v", p, exact, why, want)
	}
	other, _, _ := Permutation(single(crossed), single(selfed), Mean, Design{Paired: true})
	if other != p {
		t.Errorf("turned round p = %v, want %v", other, p)
	}
}

func TestPermutation(t *testing.T) {
	steps := func(n int, from float64) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = from + float64(i)
		}
		return out
	}
	cases := []struct {
		name   string
		a, b   []float64
		paired bool
		p      float64
		exact  bool
	}{
		{"the least of two pairs", []float64{1, 2}, []float64{3, 5}, true, 0.5, true},
		{"the least of four pairs", steps(4, 0), steps(4, 9), true, 0.125, true},
		{"the least of three against three", steps(3, 0), steps(3, 9), false, 0.1, true},
		{"no difference in pairs", []float64{1, 2, 3}, []float64{1, 2, 3}, true, 1, true},
		{"all alike", []float64{5, 5, 5}, []float64{5, 5}, false, 1, true},
		{"zeros", []float64{0, 0}, []float64{0, 0}, true, 1, true},
		{"sixteen pairs, all one way", steps(16, 0), steps(16, 9), true, 2.0 / 65536, true},
		{"seventeen pairs, all one way", steps(17, 0), steps(17, 9), true, 2.0 / 2001, false},
		{"a hundred pairs, all one way", steps(100, 0), steps(100, 9), true, 2.0 / 2001, false},
		{"nine against nine", steps(9, 0), steps(9, 9), false, 2.0 / 48620, true},
		{"ten against ten", steps(10, 0), steps(10, 99), false, 2.0 / 2001, false},
		{"sums that differ by rounding", []float64{0.1, 0.2, 0.3}, []float64{0.3, 0.1, 0.2}, false, 1, true},
	}
	for _, c := range cases {
		p, exact, why := Permutation(single(c.a), single(c.b), Mean, Design{Paired: c.paired})
		if why != "" || exact != c.exact || math.Abs(p-c.p) > 1e-12 {
			t.Errorf("%s: p = %v, exact %v, %q, want %v, %v", c.name, p, exact, why, c.p, c.exact)
		}
	}
}

// Sums that are equal but for rounding are equal: tenths give the p of whole numbers.
func TestPermutationOfTenths(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 1))
	for range 200 {
		n := 3 + rng.IntN(5)
		whole, tenths := [2][]float64{}, [2][]float64{}
		for range n {
			for g := range 2 {
				x := float64(1 + rng.IntN(9) + 2*g)
				whole[g], tenths[g] = append(whole[g], x), append(tenths[g], x*0.1)
			}
		}
		for _, d := range []Design{{Paired: true}, {}} {
			want, _, _ := Permutation(single(whole[0]), single(whole[1]), Mean, d)
			got, _, _ := Permutation(single(tenths[0]), single(tenths[1]), Mean, d)
			if got != want {
				t.Errorf("paired %v, %v: p = %v in tenths, %v whole", d.Paired, whole, got, want)
			}
		}
	}
}

// Without a difference p is below a level that often, whatever the blocks look like.
func TestPermutationFalseAlarms(t *testing.T) {
	same := usual
	same.change, same.values = 0, 16
	for _, d := range []Design{{Paired: true}, {}} {
		const trials, n = 400, 6
		alarms := 0
		for seed := range trials {
			rng := newRand(uint64(seed))
			a, b := same.draw(rng, n)
			p, _, why := Permutation(a, b, Median, d)
			if why != "" {
				t.Fatal(why)
			}
			if p <= 0.05 {
				alarms++
			}
		}
		if share := float64(alarms) / trials; share > 0.07 || share < 0.005 {
			t.Errorf("paired %v: %.3f alarms at 0.05", d.Paired, share)
		}
	}
}

func TestPermutationSaysWhy(t *testing.T) {
	cases := []struct {
		name string
		a, b Blocks
		s    Statistic
		d    Design
		why  string
	}{
		{"nothing", nil, nil, Mean, Design{}, "no blocks"},
		{"one block", Blocks{{1}}, Blocks{{2}}, Mean, Design{Paired: true}, "single block"},
		{"an empty block", Blocks{{1}, {}}, Blocks{{2}, {3}}, Mean, Design{}, "empty"},
		{"no pairs", before, after[:2], Mean, Design{Paired: true}, "no pairs"},
		{"NaN", Blocks{{1}, {nan}}, Blocks{{2}, {3}}, Mean, Design{}, "no finite"},
		{"undefined", before, after, undefined, Design{}, "undefined"},
		{"no statistic", before, after, nil, Design{}, "no statistic"},
		{"a p99 of three", before, after, Quantile(0.99), Design{}, "50 values"},
		{"too large", single([]float64{1e308, 1e308}), single([]float64{1e308, 2}), Mean, Design{}, "too large"},
		{"resamples", before, after, Mean, Design{Resamples: 1}, "resamples 1"},
	}
	for _, c := range cases {
		p, exact, why := Permutation(c.a, c.b, c.s, c.d)
		if !math.IsNaN(p) || exact || why == "" || !strings.Contains(why, c.why) {
			t.Errorf("%s: p = %v, exact %v, %q, want %q in the reason", c.name, p, exact, why, c.why)
		}
	}
}
