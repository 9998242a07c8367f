package prometheus

import (
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/omnitap/omnitap/exporter/stats"
)

// fromBuckets reckons a quantile as Prometheus' histogram_quantile does: linear within the
// bucket that its rank lies in. A test against a real one holds it to that.
func fromBuckets(bounds, cumulative []float64, q float64) float64 {
	rank := q * cumulative[len(cumulative)-1]
	i := slices.IndexFunc(cumulative, func(n float64) bool { return n >= rank })
	if i == len(bounds) {
		return bounds[i-1] // in the bucket without an end
	}
	lo, below := 0.0, 0.0
	if i > 0 {
		lo, below = bounds[i-1], cumulative[i-1]
	}
	return lo + (bounds[i]-lo)*(rank-below)/(cumulative[i]-below)
}

// histogramOf reads the one histogram of a name.
func histogramOf(t testing.TB, s *Sink, name string) (bounds, cumulative []float64) {
	t.Helper()
	type bucket struct{ le, n float64 }
	var all []bucket
	re := regexp.MustCompile(`^` + name + `_bucket\{.*le="([^"]+)"\}$`)
	for series, n := range series(t, s) {
		if m := re.FindStringSubmatch(series); m != nil {
			le, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, bucket{le, n})
		}
	}
	slices.SortFunc(all, func(a, b bucket) int { return int(math.Copysign(1, a.le-b.le)) })
	for _, b := range all {
		if !math.IsInf(b.le, 1) {
			bounds = append(bounds, b.le)
		}
		cumulative = append(cumulative, b.n)
	}
	return bounds, cumulative
}

// TestC78Percentiles: p95 and others from the buckets lie within 10 % of the records',
// over what the case names, however the values lie. A point is the worst there is: all of
// a bucket's values may lie at its end.
func TestC78Percentiles(t *testing.T) {
	const n = 400
	draw := rand.New(rand.NewPCG(1, 2))
	for _, tc := range []struct {
		metric string
		lo, hi float64 // seconds
	}{{"omnitap_ttft_seconds", 0.05, 2}, {"omnitap_ttfa_seconds", 0.05, 2}, {"omnitap_ttfaudible_seconds", 0.05, 2}, {"omnitap_jct_seconds", 1, 300}} {
		log := func(u float64) float64 { return tc.lo * math.Pow(tc.hi/tc.lo, u) }
		shapes := map[string]func() float64{
			"uniform":   func() float64 { return tc.lo + (tc.hi-tc.lo)*draw.Float64() },
			"log":       func() float64 { return log(draw.Float64()) },
			"lognormal": func() float64 { return min(tc.hi, max(tc.lo, log(0.4)*math.Exp(0.4*draw.NormFloat64()))) },
			"tail":      func() float64 { return min(tc.hi, tc.lo+(tc.hi-tc.lo)/50*draw.ExpFloat64()) },
		}
		// 12 % in the upper one, just that: were it 10, p90 would lie between the two, where nothing is
		drawn := 0
		shapes["two modes"] = func() float64 {
			drawn++
			mode := 0.3
			if drawn%25 < 3 {
				mode = 0.8
			}
			return log(mode) * (1 + 0.01*draw.Float64())
		}
		for i := range 20 { // points, also just above a bound and just at one
			at := log(float64(i) / 19)
			shapes["point "+strconv.FormatFloat(at, 'g', 4, 64)] = func() float64 { return at }
		}
		for _, bound := range toFirst {
			if above := math.Nextafter(bound, 1e9); above > tc.lo && above < tc.hi {
				shapes["above "+strconv.FormatFloat(bound, 'g', 4, 64)] = func() float64 { return above }
			}
		}
		for _, shape := range slices.Sorted(maps.Keys(shapes)) {
			value := shapes[shape]
			s := sinkOf(t, Config{}, Deps{})
			var values []float64
			r := speech()
			r.Stages, r.Transfers = nil, nil
			for range n {
				v := value()
				values = append(values, v)
				r.TTFTMS, r.TTFAMS, r.TTFAudibleMS, r.JCTMS = new(1e3*v), new(1e3*v), new(1e3*v), new(1e3*v)
				s.Record(r)
			}
			bounds, cumulative := histogramOf(t, s, tc.metric)
			exact := stats.Summarize(values)
			for _, q := range []struct{ q, want float64 }{{0.5, exact.P50}, {0.9, exact.P90}, {0.95, exact.P95}, {0.99, exact.P99}} {
				if got := fromBuckets(bounds, cumulative, q.q); math.Abs(got-q.want) > 0.1*q.want {
					t.Errorf("%s, %s: p%v is %.4g from the buckets, %.4g of the records", tc.metric, shape, 100*q.q, got, q.want)
				}
			}
		}
	}
}

// TestSteps: bounds rise, and the fine ones are never further apart than 10 %.
func TestSteps(t *testing.T) {
	for _, m := range schema {
		if !slices.IsSorted(m.Buckets) || len(slices.Compact(slices.Clone(m.Buckets))) != len(m.Buckets) {
			t.Errorf("%s: bounds do not rise: %v", m.Name, m.Buckets)
		}
		if m.Kind == Histogram && len(m.Buckets) > 100 {
			t.Errorf("%s has %d bounds", m.Name, len(m.Buckets))
		}
	}
	for _, tc := range []struct {
		bounds []float64
		lo, hi float64
	}{{toFirst, 0.05, 2}, {toEnd, 1, 300}} {
		if !slices.Contains(tc.bounds, tc.lo) || !slices.Contains(tc.bounds, tc.hi) {
			t.Errorf("%v or %v is no bound", tc.lo, tc.hi)
		}
		for i := 1; i < len(tc.bounds); i++ {
			if a, b := tc.bounds[i-1], tc.bounds[i]; a >= tc.lo && b <= tc.hi && b/a > 1.1 {
				t.Errorf("from %v to %v is %.3f", a, b, b/a)
			}
		}
	}
}
