package stats

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// spatial is the spatial test data of Efron and Tibshirani, An Introduction to the
// Bootstrap (1993), table 14.1, task A.
var spatial = []float64{48, 36, 20, 29, 42, 42, 20, 42, 22, 41, 45, 14, 6, 0, 33, 28, 34, 4, 32, 24, 47, 41, 24, 26, 30, 41}

func variance(v []float64) float64 {
	m, sum := Mean(v), 0.0
	for _, x := range v {
		sum += (x - m) * (x - m)
	}
	return sum / float64(len(v))
}

// Their figures of the variance: 171.5, acceleration 0.061, and at 90 % from 115.8 to
// 259.6 (table 14.2, 2000 resamples, hence the slack).
func TestBCaPublished(t *testing.T) {
	p := newPool(single(spatial))
	estimate := variance(spatial)
	if math.Abs(estimate-171.5) > 0.05 {
		t.Errorf("variance %v, want 171.5", estimate)
	}
	if a := p.acceleration(variance); math.Abs(a-0.061) > 0.0005 {
		t.Errorf("acceleration %.4f, want 0.061", a)
	}
	d := Design{Resamples: 100_000, Level: 0.9}
	draws, why := p.resample(variance, d, estimate)
	if why != "" {
		t.Fatal(why)
	}
	i, why := p.bca(variance, draws, estimate, d)
	if why != "" || math.Abs(i.Lo-115.8) > 2 || math.Abs(i.Hi-259.6) > 4 {
		t.Errorf("from %.1f to %.1f %s, want 115.8 to 259.6", i.Lo, i.Hi, why)
	}
}

func TestBootstrapSaysWhy(t *testing.T) {
	ramp := func(blocks, size int) Blocks {
		out := make(Blocks, blocks)
		for i := range out {
			for j := range size {
				out[i] = append(out[i], float64(1+i*3+j*j))
			}
		}
		return out
	}
	mixed := func(v []float64) float64 { // undefined of values that are all alike
		if v[0] == v[len(v)-1] {
			return nan
		}
		return Mean(v)
	}
	different := func(v []float64) float64 { // a resample has fewer than the sample, always
		n := 1.0
		for i := range v[1:] {
			if v[i] != v[i+1] {
				n++
			}
		}
		return n
	}
	cases := []struct {
		name string
		v    Blocks
		s    Statistic
		d    Design
		why  string
	}{
		{"nothing", nil, Mean, Design{}, "no blocks"},
		{"one block", Blocks{{1, 2, 3}}, Mean, Design{}, "single block"},
		{"an empty block", Blocks{{1}, {}}, Mean, Design{}, "block 2 of the group is empty"},
		{"NaN", Blocks{{1}, {nan}}, Mean, Design{}, "no finite numbers"},
		{"no statistic", Blocks{{1}, {2}}, nil, Design{}, "no statistic"},
		{"undefined", Blocks{{1}, {2}}, undefined, Design{}, "undefined"},
		{"no spread", Blocks{{1, 3}, {3, 1}}, Mean, Design{}, "do not differ"},
		{"zeros", Blocks{{0}, {0}}, Mean, Design{}, "do not differ"},
		{"a p99 of 499", append(ramp(4, 100), ramp(1, 99)...), Quantile(0.99), Design{}, "500 values are needed"},
		{"the maximum", ramp(8, 100), Quantile(1), Design{}, "extreme"},
		{"the minimum", ramp(8, 100), Quantile(0), Design{}, "extreme"},
		{"a bad level", Blocks{{1}, {2}}, Mean, Design{Level: 2}, "level 2"},
		{"a fine level of few", ramp(60, 2), Mean, Design{Level: 0.999, Resamples: 2000}, "needs 10000"},
		{"too few resamples", Blocks{{1}, {2}}, Mean, Design{Resamples: 1}, "resamples 1"},
		{"undefined of some", Blocks{{1}, {2}}, mixed, Design{}, "some resamples"},
		{"worlds apart", Blocks{{1e-300}, {1e300}}, Mean, Design{}, "differ too much"},
		{"on one side", ramp(60, 1), different, Design{}, "one side"},
	}
	for _, c := range cases {
		estimate, i, why := Bootstrap(c.v, c.s, c.d)
		if why == "" || !strings.Contains(why, c.why) {
			t.Errorf("%s: why is %q, want %q in it", c.name, why, c.why)
		}
		if !math.IsNaN(estimate) || !math.IsNaN(i.Lo) || !math.IsNaN(i.Hi) {
			t.Errorf("%s: figures %v, %+v beside the reason", c.name, estimate, i)
		}
	}
	if _, _, why := Bootstrap(append(ramp(4, 100), ramp(1, 100)...), Quantile(0.99), Design{}); why != "" {
		t.Errorf("a p99 of 500: %s", why)
	}
}

func TestBootstrapMethods(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	w := world{values: 20, sigma: 0.3, block: 0.1}
	few, _ := w.draw(rng, 49)
	many, _ := w.draw(rng, 50)
	below := single([]float64{-3, 1, 4, -2, 0.5})
	cases := []struct {
		name   string
		v      Blocks
		within bool
		method string
	}{
		{"49 blocks", few, false, "student-t/blocks"},
		{"49 blocks, hierarchical", few, true, "student-t/hierarchical"},
		{"50 blocks", many, false, "bca"},
		{"50 blocks, hierarchical", many, true, "bca/hierarchical"},
		{"below 0", below, false, "student-t/blocks"},
	}
	for _, c := range cases {
		d := Design{Within: c.within, Seed: 3}
		estimate, i, why := Bootstrap(c.v, Median, d)
		if why != "" || i.Method != c.method || i.Level != 0.95 || !(i.Lo < estimate && estimate < i.Hi) {
			t.Errorf("%s: %v, %+v, %q, want method %q", c.name, estimate, i, why, c.method)
		}
		if again, j, _ := Bootstrap(c.v, Median, d); again != estimate || j != i {
			t.Errorf("%s: the same seed gives %+v, then %+v", c.name, i, j)
		}
		all := []float64{}
		for _, block := range c.v {
			all = append(all, block...)
		}
		if estimate != Median(all) {
			t.Errorf("%s: %v, the median of all values is %v", c.name, estimate, Median(all))
		}
	}
}

// What BCa cannot do, which no sample of fifty blocks was found for.
func TestBCaSaysWhy(t *testing.T) {
	lopsided := single(make([]float64, 50))
	lopsided[0][0] = 1
	draws := make([]float64, 2000)
	for i := range draws {
		draws[i] = float64(i)
	}
	d := Design{Resamples: 2000, Level: 0.995}
	if i, why := newPool(lopsided).bca(Mean, draws, 1999, d); !strings.Contains(why, "lopsided") {
		t.Errorf("%+v, %q, want lopsided", i, why)
	}
	withOne := func(v []float64) float64 { // undefined without the value 1
		if v[len(v)-1] != 1 {
			return nan
		}
		return Mean(v)
	}
	if i, why := newPool(lopsided).bca(withOne, draws, 1000, d); !strings.Contains(why, "without some") {
		t.Errorf("%+v, %q, want undefined", i, why)
	}
}

// More blocks than the acceleration leaves out one by one.
func TestBCaOfVeryMany(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	v := make([]float64, 3001)
	for i := range v {
		v[i] = rng.ExpFloat64()
	}
	estimate, i, why := Bootstrap(single(v), Mean, Design{Seed: 1})
	half := 1.96 * math.Sqrt(variance(v)/3001)
	if why != "" || math.Abs(i.Hi-estimate-half) > 0.15*half || math.Abs(estimate-i.Lo-half) > 0.15*half {
		t.Errorf("%v, %+v, %q, want a half width of %.4f", estimate, i, why, half)
	}
}

func BenchmarkBootstrap(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	v, _ := world{values: 640, sigma: 0.3, block: 0.05}.draw(rng, 12)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, why := Bootstrap(v, Quantile(0.99), Design{}); why != "" {
			b.Fatal(why)
		}
	}
}
