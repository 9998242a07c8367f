package stats

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"
)

func spreadOut(seed uint64, n int) []float64 {
	rng := rand.New(rand.NewPCG(seed, 1))
	v := make([]float64, n)
	for i := range v {
		v[i] = math.Exp(10*rng.Float64() - 6) // 0.0025 to 55
	}
	return v
}

func TestHistogramError(t *testing.T) {
	for _, scale := range []float64{1, 1e3, 1e9} {
		v := spreadOut(1, 5000)
		for i := range v {
			v[i] *= scale
		}
		var h Histogram
		h.Add(v...)
		for _, p := range []float64{0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.9999, 1} {
			near(t, "quantile", h.Quantile(p), Quantile(p)(v), HistogramError)
		}
		got, want := h.Summary(), Summarize(v)
		if got.N != want.N || got.Min != want.Min || got.Max != want.Max {
			t.Errorf("%+v, want %+v", got, want)
		}
		near(t, "mean", got.Mean, want.Mean, HistogramError)
		near(t, "p95", got.P95, want.P95, HistogramError)
	}
}

// The bound holds at each border of buckets, and below it the unit does.
func TestHistogramErrorAtBorders(t *testing.T) {
	for exponent := range 62 {
		for _, off := range []float64{-1, -0.5, 0, 0.49, 1} {
			v := (math.Ldexp(1, exponent) + off) * HistogramUnit
			if v < 0 || v > HistogramMax {
				continue
			}
			var h Histogram
			h.Add(v, v*1.9, v*1.9) // the middle is not clamped by an extreme
			got, want := h.Quantile(0.5), v*1.9
			if 1.9*v > HistogramMax {
				continue
			}
			if bound := max(HistogramError*want, HistogramUnit/2*1.000001); want < 0.001 && math.Abs(got-want) > HistogramUnit/2*1.000001 || math.Abs(got-want) > bound {
				t.Errorf("2^%d%+v: %v, want %v", exponent, off, got, want)
			}
		}
	}
}

// Several runs add up to what one histogram of all would be.
func TestHistogramMerge(t *testing.T) {
	var all, sum Histogram
	for run := range 5 {
		v := spreadOut(uint64(run), 300*run) // the first one is empty
		var h Histogram
		h.Add(v...)
		h.Add(-1)
		all.Add(v...)
		all.Add(-1)
		given, _ := json.Marshal(&h)
		if err := sum.Merge(&h); err != nil {
			t.Fatal(err)
		}
		if left, _ := json.Marshal(&h); string(left) != string(given) {
			t.Errorf("Merge changed its argument from %s to %s", given, left)
		}
	}
	want, _ := json.Marshal(&all)
	got, _ := json.Marshal(&sum)
	if string(got) != string(want) {
		t.Errorf("merged %s, want %s", got, want)
	}
	if diff := cmp.Diff(all.Summary(), sum.Summary(), approx); diff != "" {
		t.Errorf("summaries differ (-want +got):\n%s", diff)
	}
	if err := sum.Merge(&sum); err != nil || sum.N() != 2*all.N() || sum.LeftOut() != 2*all.LeftOut() {
		t.Errorf("merged with itself: %d values and %d left out, %v", sum.N(), sum.LeftOut(), err)
	}
}

func TestHistogramMergeOverflow(t *testing.T) {
	var h Histogram
	h.Add(1)
	if err := h.counts.RecordValues(5, math.MaxInt64-10); err != nil {
		t.Fatal(err)
	}
	before := h.N()
	if err := h.Merge(&h); err == nil || h.N() != before {
		t.Errorf("%d values after %v, want an error and %d", h.N(), err, before)
	}
}

func TestHistogramLeavesOut(t *testing.T) {
	var h Histogram
	h.Add(nan, math.Inf(1), math.Inf(-1), -1e-9, 1e300, HistogramMax*1.01)
	if h.N() != 0 || h.LeftOut() != 6 {
		t.Errorf("%d counted and %d left out, want 0 and 6", h.N(), h.LeftOut())
	}
	if got := h.Quantile(0.5); !math.IsNaN(got) {
		t.Errorf("median of nothing is %v", got)
	}
	if diff := cmp.Diff(Summary{LeftOut: 6, Min: nan, Mean: nan, Max: nan, P50: nan, P90: nan, P95: nan, P99: nan}, h.Summary(), approx); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	h.Add(0, HistogramMax)
	if s := h.Summary(); s.N != 2 || s.Min != 0 || s.Max != HistogramMax {
		t.Errorf("the ends: %+v", s)
	}
	for _, p := range []float64{-0.1, 1.1, nan} {
		if got := h.Quantile(p); !math.IsNaN(got) {
			t.Errorf("%v-quantile is %v, want NaN", p, got)
		}
	}
}

func TestHistogramJSON(t *testing.T) {
	var empty, some Histogram
	some.Add(spreadOut(3, 1000)...)
	some.Add(nan)
	for _, h := range []*Histogram{&empty, &some} {
		text, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		if byValue, err := json.Marshal(struct{ H Histogram }{*h}); err != nil || !strings.Contains(string(byValue), string(text)) {
			t.Errorf("as a value %s, %v, want %s", byValue, err, text)
		}
		var back Histogram
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if again, _ := json.Marshal(&back); string(again) != string(text) {
			t.Errorf("%s reads back as %s", text, again)
		}
		if diff := cmp.Diff(h.Summary(), back.Summary(), approx); diff != "" {
			t.Errorf("reads back differently (-want +got):\n%s", diff)
		}
		back.Add(1) // what was read goes on counting
		if back.N() != h.N()+1 {
			t.Errorf("%d values, want %d", back.N(), h.N()+1)
		}
	}
	text, err := json.Marshal(&empty)
	if want := `{"n":0,"unit":0.000001,"relative_error":0.001,"min":null,"max":null}`; err != nil || string(text) != want {
		t.Errorf("empty histogram = %s, %v, want %s", text, err, want)
	}
}

func TestHistogramReadsNoNonsense(t *testing.T) {
	var h Histogram
	h.Add(10, 20, 30)
	text, _ := json.Marshal(&h)
	good := string(text)
	other, _ := json.Marshal(func() *Histogram { var o Histogram; o.Add(10, 20); return &o }())
	hdrOf := func(text []byte) string {
		var w wireHistogram
		if err := json.Unmarshal(text, &w); err != nil {
			t.Fatal(err)
		}
		return w.HDR
	}
	// Counts of another make: an hour of microseconds, and more than JSON's numbers tell.
	foreign, full := hdr.New(1, 3_600_000_000, 3), hdr.NewPacked(hdrLowest, hdrHighest, hdrFigures)
	if err := errors.Join(foreign.RecordValues(10, 3), full.RecordValues(10_000_000, 1<<54)); err != nil {
		t.Fatal(err)
	}
	foreignText, _ := foreign.Encode(hdr.V2CompressedEncodingCookieBase)
	fullText, _ := full.Encode()
	cases := map[string]string{
		"not JSON":          `{`,
		"another type":      `{"n":"3"}`,
		"no unit":           `{"n":0}`,
		"another unit":      strings.Replace(good, `"unit":0.000001`, `"unit":1`, 1),
		"another count":     strings.Replace(good, `"n":3`, `"n":4`, 1),
		"no counts":         strings.Replace(good, hdrOf(text), "", 1),
		"others' counts":    strings.Replace(good, hdrOf(text), hdrOf(other), 1),
		"foreign counts":    strings.Replace(good, hdrOf(text), string(foreignText), 1),
		"too many":          strings.Replace(good, hdrOf(text), string(fullText), 1),
		"broken counts":     strings.Replace(good, hdrOf(text), hdrOf(text)[:20], 1),
		"no base64":         strings.Replace(good, hdrOf(text), "!!", 1),
		"left out below 0":  strings.Replace(good, `"n":3`, `"n":3,"left_out":-1`, 1),
		"no minimum":        strings.Replace(good, `"min":10`, `"min":null`, 1),
		"a false minimum":   strings.Replace(good, `"min":10`, `"min":11`, 1),
		"a false maximum":   strings.Replace(good, `"max":30`, `"max":1e300`, 1),
		"a maximum below 0": strings.Replace(good, `"max":30`, `"max":-30`, 1),
	}
	for name, text := range cases {
		if text == good {
			t.Fatalf("%s: nothing was replaced", name)
		}
		back := Histogram{leftOut: 77}
		if err := json.Unmarshal([]byte(text), &back); err == nil {
			t.Errorf("%s: read %d values, want an error", name, back.N())
		} else {
			t.Logf("%s: %v", name, err)
		}
		if back.leftOut != 77 || back.counts != nil {
			t.Errorf("%s: what was there before was lost", name)
		}
	}
}

func FuzzHistogramJSON(f *testing.F) {
	var h Histogram
	h.Add(0, 1e-6, 10, 20, 30, 1e9)
	text, _ := json.Marshal(&h)
	f.Add(text)
	f.Add([]byte(`{"n":0,"unit":0.000001}`))
	f.Add([]byte(`{"n":1,"unit":0.000001,"min":1,"max":1,"hdr":"HISTFAAAAA=="}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var h Histogram
		if json.Unmarshal(text, &h) != nil {
			return
		}
		s := h.Summary()
		if s.N == 0 {
			return
		}
		if figures := []float64{s.Min, s.P50, s.P90, s.P95, s.P99, s.Max}; !slices.IsSorted(figures) || !allFinite(figures) {
			t.Errorf("%s: %+v", text, s)
		}
		again, err := json.Marshal(&h)
		if err != nil {
			t.Fatal(err)
		}
		var back Histogram
		if err := json.Unmarshal(again, &back); err != nil || back.N() != h.N() {
			t.Errorf("%s reads back as %d values, %v", again, back.N(), err)
		}
	})
}

func BenchmarkHistogramAdd(b *testing.B) {
	v := spreadOut(1, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		var h Histogram
		h.Add(v...)
	}
}
