package reconcile

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/omnitap/omnitap/exporter/stats"
)

// methods are other ways to read a percentile off sorted values.
var methods = []struct {
	name string
	of   func(sorted []float64, p float64) float64
}{
	{"nearest rank", func(v []float64, p float64) float64 {
		return v[min(len(v)-1, max(0, int(math.Ceil(p*float64(len(v))))-1))]
	}},
	{"the value below", func(v []float64, p float64) float64 { return v[int(math.Floor(p*float64(len(v)-1)))] }},
	{"the value above", func(v []float64, p float64) float64 { return v[int(math.Ceil(p*float64(len(v)-1)))] }},
}

// percentiles holds those of the generator's file to its own requests.
func (w *world) percentiles() {
	g := w.in.Generator
	if g == nil {
		return
	}
	for _, d := range durations() {
		var values []float64
		for i := range g.Requests {
			if v := d.client(&g.Requests[i]); v != nil {
				values = append(values, *v)
			}
		}
		f := g.Figures[d.quantity]
		if len(values) == 0 {
			continue
		}
		slices.Sort(values)
		for _, p := range slices.Sorted(maps.Keys(f.Percentiles)) {
			w.percentile(d.quantity, values, p, f.Percentiles[p])
		}
	}
}

func (w *world) percentile(q Quantity, sorted []float64, p, said float64) {
	ours := stats.Quantile(p / 100)(sorted)
	if near(ours, said) {
		return
	}
	f := Finding{Quantity: q, A: Client, B: Wire, Cause: NotExplained, Amount: new(said - ours), N: len(sorted), Evidence: fmt.Sprintf("its p%g is %.3f, of its own values it is %.3f", p, said, ours)}
	for _, m := range methods {
		if near(m.of(sorted, p/100), said) {
			f.Cause = OtherPercentiles
			f.Evidence = fmt.Sprintf("its p%g is %s of its own values; %s gives %.3f", p, m.name, stats.Method, ours)
			break
		}
	}
	w.find(f)
}

// near allows for what a file rounds to.
func near(a, b float64) bool { return math.Abs(a-b) <= 0.005+1e-6*math.Abs(b) }
