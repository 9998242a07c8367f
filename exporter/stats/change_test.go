package stats

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	before = Blocks{{10, 11, 12}, {20, 22, 21}, {9, 10, 9.5}}
	after  = Blocks{{11, 12.5, 13}, {21, 23, 24}, {10, 10.5, 11}}
)

func zeros(v []float64) float64 { return 0 * v[0] }

func ones([]float64) float64 { return 1 }

func undefined([]float64) float64 { return nan }

// In every one of these cases nothing is known: there is a reason, and no figure.
func TestRelativeChangeSaysWhy(t *testing.T) {
	paired := Design{Paired: true}
	many := func(n int) Blocks {
		out := make(Blocks, 4)
		for i := range out {
			for j := range n {
				out[i] = append(out[i], float64(i+j+1))
			}
		}
		return out
	}
	cases := []struct {
		name string
		a, b Blocks
		s    Statistic
		d    Design
		why  string
	}{
		{"nothing", nil, nil, Mean, paired, "a has no blocks"},
		{"no b", before, nil, Mean, Design{}, "b has no blocks"},
		{"one block", before[:1], after[:1], Mean, paired, "single block"},
		{"one block of b", before, after[:1], Mean, Design{}, "b is a single block"},
		{"an empty block", before, Blocks{{1}, nil, {2}}, Mean, paired, "block 2 of b is empty"},
		{"NaN", Blocks{{1}, {nan, 2, nan}}, before[:2], Mean, paired, "block 2 of a: 2 of its 3 values"},
		{"infinite", before, Blocks{{1}, {math.Inf(1)}, {2}}, Mean, paired, "no finite numbers"},
		{"no pairs", before, after[:2], Mean, paired, "3 blocks of a and 2 of b"},
		{"zero base", Blocks{{0, 0}, {0}, {0}}, after, Mean, paired, "block 1 of a: the figure is 0"},
		{"zero result", before, Blocks{{1}, {0}, {0}}, Mean, Design{}, "block 2 of b: the figure is 0"},
		{"negative", Blocks{{1}, {-2}, {3}}, after, Mean, paired, "block 2 of a: the figure is -2"},
		{"a statistic that is 0", before, after, zeros, paired, "above 0"},
		{"an undefined statistic", before, after, undefined, paired, "undefined"},
		{"no statistic", before, after, nil, paired, "no statistic"},
		{"a quantile that is none", before, after, Quantile(1.5), paired, "undefined"},
		{"the same data twice", before, before, Mean, paired, "do not differ"},
		{"figures that are all equal", before, after, ones, Design{}, "do not differ"},
		{"ratios that are equal but for rounding", Blocks{{0.1}, {0.7}, {1.3}}, Blocks{{0.3}, {2.1}, {3.9}}, Mean, paired, "do not differ"},
		{"worlds apart", Blocks{{1e-300}, {1e300}}, Blocks{{1e300}, {1e-300}}, Mean, paired, "differ too much"},
		{"a p99 of 49", many(49), many(49), Quantile(0.99), Design{}, "50 values are needed"},
		{"a p95 of 9", many(9), many(9), Quantile(0.95), Design{}, "10 values are needed"},
		{"a maximum", many(99), many(99), Quantile(1), Design{}, "extreme"},
		{"level 1", before, after, Mean, Design{Level: 1}, "level 1"},
		{"level −1", before, after, Mean, Design{Level: -1}, "level -1"},
		{"level NaN", before, after, Mean, Design{Level: nan}, "level NaN"},
		{"too few resamples", before, after, Mean, Design{Resamples: 5}, "resamples 5"},
		{"resamples below 0", before, after, Mean, Design{Resamples: -1}, "resamples -1"},
		{"resamples without end", before, after, Mean, Design{Resamples: 1 << 40}, "resamples"},
		{"resampled figures of 0", Blocks{{0, 0, 2}, {0, 2, 2}}, Blocks{{1, 2, 3}, {2, 3, 5}}, Mean, Design{Paired: true, Within: true}, "resampled"},
		{"resampled figures of 0 in a", Blocks{{0, 0, 2}, {0, 2, 2}}, Blocks{{1, 2, 3}, {2, 3, 5}}, Mean, Design{Within: true}, "resampled"},
		{"resampled figures of 0 in b", Blocks{{1, 2, 3}, {2, 3, 5}}, Blocks{{0, 0, 2}, {0, 2, 2}}, Mean, Design{Within: true}, "resampled"},
	}
	for _, c := range cases {
		got := RelativeChange(c.a, c.b, c.s, c.d)
		if !strings.Contains(got.Why, c.why) || got.Why == "" {
			t.Errorf("%s: why is %q, want %q in it", c.name, got.Why, c.why)
		}
		if !math.IsNaN(got.Estimate) || !math.IsNaN(got.Interval.Lo) || !math.IsNaN(got.Interval.Hi) {
			t.Errorf("%s: figures %v, %v beside the reason", c.name, got.Estimate, got.Interval)
		}
	}
}

func TestRelativeChange(t *testing.T) {
	got := RelativeChange(before, after, Median, Design{Paired: true})
	want := math.Cbrt(12.5/11*23/21*10.5/9.5) - 1
	if got.Why != "" || math.Abs(got.Estimate-want) > 1e-12 {
		t.Errorf("change %v (%s), want %v", got.Estimate, got.Why, want)
	}
	if got.N != 18 || got.Blocks != 3 || got.Interval.Level != 0.95 || got.Interval.Method != "student-t" {
		t.Errorf("n %d, blocks %d, interval %+v", got.N, got.Blocks, got.Interval)
	}
	if !(got.Interval.Lo < got.Estimate && got.Estimate < got.Interval.Hi) {
		t.Errorf("%v is not inside of %+v", got.Estimate, got.Interval)
	}
}

// What does not matter changes nothing: the unit, the order of pairs and of values
// inside. Turned round, the change is the inverse.
func TestRelativeChangeSymmetries(t *testing.T) {
	scaled := func(v Blocks, by float64) Blocks {
		out := make(Blocks, len(v))
		for i, block := range v {
			for _, x := range block {
				out[i] = append(out[i], x*by)
			}
			slices.Reverse(out[i])
		}
		slices.Reverse(out)
		return out
	}
	for _, d := range []Design{{Paired: true}, {}} {
		c := RelativeChange(before, after, Median, d)
		other := RelativeChange(scaled(before, 1e-3), scaled(after, 1e-3), Median, d)
		turned := RelativeChange(after, before, Median, d)
		for what, pair := range map[string][2]float64{
			"estimate":        {other.Estimate, c.Estimate},
			"low":             {other.Interval.Lo, c.Interval.Lo},
			"high":            {other.Interval.Hi, c.Interval.Hi},
			"turned estimate": {1 / (1 + turned.Estimate), 1 + c.Estimate},
			"turned low":      {1 / (1 + turned.Interval.Hi), 1 + c.Interval.Lo},
			"turned high":     {1 / (1 + turned.Interval.Lo), 1 + c.Interval.Hi},
		} {
			if math.Abs(pair[0]-pair[1]) > 1e-9 {
				t.Errorf("paired %v: %s is %v, want %v", d.Paired, what, pair[0], pair[1])
			}
		}
	}
}

// What both of a pair share does not count in pairs, and does without.
func TestPairsCancelDrift(t *testing.T) {
	a, b := Blocks{{10, 11}, {100, 108}, {1000, 1010}}, Blocks{{10.5, 11.3}, {104, 110}, {1030, 1050}}
	paired, apart := RelativeChange(a, b, Mean, Design{Paired: true}), RelativeChange(a, b, Mean, Design{})
	if w, v := paired.Interval.Hi-paired.Interval.Lo, apart.Interval.Hi-apart.Interval.Lo; !(w < 0.2 && v > 10) {
		t.Errorf("widths %v in pairs and %v apart, want under 0.2 and over 10", w, v)
	}
}

func TestWithin(t *testing.T) {
	for _, d := range []Design{{Paired: true}, {}} {
		d.Level, d.Seed = 0.9, 42
		plain := RelativeChange(before, after, Mean, d)
		d.Within = true
		wide := RelativeChange(before, after, Mean, d)
		if again := RelativeChange(before, after, Mean, d); again != wide {
			t.Errorf("the same seed gives %+v, then %+v", wide, again)
		}
		if wide.Estimate != plain.Estimate || !strings.HasSuffix(wide.Interval.Method, "-t/hierarchical") {
			t.Errorf("hierarchical %+v, plain %+v", wide, plain)
		}
		// The values of a block lie further apart than the pairs' ratios.
		if w, v := wide.Interval.Hi-wide.Interval.Lo, plain.Interval.Hi-plain.Interval.Lo; !(w > v && w < v*6) {
			t.Errorf("paired %v: hierarchical width %v, plain %v", d.Paired, w, v)
		}
		d.Seed++
		if other := RelativeChange(before, after, Mean, d); other.Interval == wide.Interval {
			t.Errorf("another seed gives the same interval %+v", other.Interval)
		}
	}
	// Blocks that agree by chance: the values inside say that this means nothing.
	a, b := Blocks{{9, 10, 14}, {9, 11, 13}}, Blocks{{9, 10, 14}, {9, 11, 13}}
	if c := RelativeChange(a, b, Mean, Design{Paired: true, Within: true}); c.Why != "" || c.Interval.Hi < 0.2 {
		t.Errorf("%+v, want a wide interval", c)
	}
}

// Blocks of one value are figures: there is nothing inside to resample, and a
// quantile of one is it.
func TestBlocksOfOne(t *testing.T) {
	a, b := single([]float64{10, 12, 11, 13}), single([]float64{11, 12.5, 12, 15})
	d := Design{Paired: true}
	plain := RelativeChange(a, b, Mean, d)
	if p99 := RelativeChange(a, b, Quantile(0.99), d); p99 != plain {
		t.Errorf("as p99 %+v, as mean %+v", p99, plain)
	}
	d.Within, d.Resamples = true, 50_000
	within := RelativeChange(a, b, Mean, d)
	near(t, "low", within.Interval.Lo, plain.Interval.Lo, 0.05)
	near(t, "high", within.Interval.Hi, plain.Interval.Hi, 0.05)
}

func TestRelativeChangeLeavesItsArguments(t *testing.T) {
	a, b := Blocks{{3, 1, 2}, {5, 4, 7}}, Blocks{{2, 3, 1}, {9, 8, 5}}
	RelativeChange(a, b, Median, Design{Paired: true, Within: true, Resamples: 100})
	Bootstrap(a, Median, Design{Resamples: 100})
	Permutation(a, b, Median, Design{})
	if diff := cmp.Diff([]Blocks{{{3, 1, 2}, {5, 4, 7}}, {{2, 3, 1}, {9, 8, 5}}}, []Blocks{a, b}); diff != "" {
		t.Errorf("the arguments changed (-want +got):\n%s", diff)
	}
}

func TestChangeJSON(t *testing.T) {
	for _, c := range []Change{
		RelativeChange(before, after, Mean, Design{Paired: true}),
		RelativeChange(nil, after, Mean, Design{}),
	} {
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var back Change
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, back, approx); diff != "" {
			t.Errorf("%s reads back differently (-want +got):\n%s", text, diff)
		}
	}
	text, err := json.Marshal(RelativeChange(nil, after, Mean, Design{}))
	if want := `{"estimate":null,"interval":{"lo":null,"hi":null,"level":0.95,"method":""},"n":9,"blocks":0,"why":"a has no blocks"}`; err != nil || string(text) != want {
		t.Errorf("unknown change = %s, %v, want %s", text, err, want)
	}
	var c Change
	if err := json.Unmarshal([]byte(`{}`), &c); err != nil || !math.IsNaN(c.Estimate) || !math.IsNaN(c.Interval.Lo) {
		t.Errorf("an empty object reads as %+v, %v: want no figures", c, err)
	}
	for _, text := range []string{`[]`, `{"interval":{"lo":"x"}}`, `{"estimate":"x"}`} {
		if err := json.Unmarshal([]byte(text), &c); err == nil {
			t.Errorf("%s reads as %+v, want an error", text, c)
		}
	}
}

// Whatever comes in: a reason and no figure, or figures in order and no reason.
func FuzzRelativeChange(f *testing.F) {
	f.Add([]byte{1, 10, 20, 30, 40, 50, 60, 70}, 3)
	f.Add([]byte{7, 1, 1, 1, 1, 1, 1}, 2)
	f.Add([]byte{0, 255, 254, 253, 9, 9, 1, 3, 3}, 1)
	odd := []float64{0, -1, nan, math.Inf(1), math.MaxFloat64, math.SmallestNonzeroFloat64, -math.MaxFloat64}
	f.Fuzz(func(t *testing.T, raw []byte, size int) {
		if len(raw) < 1 || len(raw) > 60 || size < 1 {
			t.Skip("no blocks")
		}
		groups := [2]Blocks{}
		for i, block := range slices.Collect(slices.Chunk(raw[1:], size)) {
			v := make([]float64, len(block))
			for j, x := range block {
				v[j] = float64(x)
				if raw[0]&1 != 0 && int(x) < len(odd) {
					v[j] = odd[x]
				}
			}
			groups[i%2] = append(groups[i%2], v)
		}
		d := Design{Paired: raw[0]&2 != 0, Within: raw[0]&4 != 0, Resamples: 100}
		s := []Statistic{Mean, Median, Quantile(0.9), Quantile(1)}[raw[0]>>4%4]
		c := RelativeChange(groups[0], groups[1], s, d)
		if known := c.Interval.Lo <= c.Estimate && c.Estimate <= c.Interval.Hi && c.Interval.Lo >= -1; known != (c.Why == "") {
			t.Errorf("%+v", c)
		}
		estimate, i, why := Bootstrap(groups[0], s, d)
		if known := i.Lo <= i.Hi && !math.IsInf(i.Lo, 0) && !math.IsInf(i.Hi, 0) && allFinite([]float64{estimate}); known != (why == "") {
			t.Errorf("%v %+v %q", estimate, i, why)
		}
		p, _, why := Permutation(groups[0], groups[1], s, d)
		if known := p > 0 && p <= 1; known != (why == "") {
			t.Errorf("p = %v, %q", p, why)
		}
	})
}
