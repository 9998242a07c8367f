package reconcile

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/omnitap/omnitap/exporter/upstream"
)

// figure is what the server counted of one quantity, over all its labels.
type figure struct {
	meaning upstream.Meaning
	names   []string
	n       float64 // observations, or the counter
	sum     float64
	failing float64
	buckets []upstream.Bucket
	resets  int
}

// serverView is the server's known figures; nil where it has none.
type serverView map[upstream.Quantity]*figure

// preference: of two names for one quantity the whole pipeline's is taken.
func preference(name string) int {
	if strings.HasPrefix(name, "vllm_omni:") {
		return 1
	}
	return 0
}

// readServer adds the known series up. Where one name has several stages (vLLM-Omni relabels
// vLLM's own so), only the first stage's count: it is the one that speaks, and the others'
// tokens are codes.
func readServer(d *upstream.Difference) serverView {
	v := serverView{}
	if d == nil {
		return v
	}
	first := firstStages(d.Deltas)
	for i := range d.Deltas {
		x := &d.Deltas[i]
		m, ok := upstream.Known(x.Name)
		if !ok || (strings.HasPrefix(x.Name, "vllm:") && x.Labels["stage"] != first[x.Name]) {
			continue
		}
		f := v[m.Quantity]
		if f == nil || preference(x.Name) > preference(f.meaning.Name) {
			f = &figure{meaning: m}
			v[m.Quantity] = f
		}
		if f.meaning.Name != x.Name {
			continue
		}
		f.take(x)
	}
	return v
}

func (f *figure) take(x *upstream.Delta) {
	f.names = append(f.names, x.String())
	f.resets += x.Resets
	if x.Increase != nil {
		f.n += float64(*x.Increase)
		if slices.Contains(f.meaning.Failing, x.Labels[f.meaning.Label]) {
			f.failing += float64(*x.Increase)
		}
	}
	if x.Count == nil {
		return
	}
	f.n += float64(*x.Count)
	if x.Sum != nil {
		f.sum += float64(*x.Sum)
	}
	switch {
	case len(f.names) == 1:
		f.buckets = slices.Clone(x.Buckets)
	case len(f.buckets) != len(x.Buckets):
		f.buckets = nil
	default:
		for i := range f.buckets {
			if f.buckets[i].LE != x.Buckets[i].LE {
				f.buckets = nil
				break
			}
			f.buckets[i].Count += x.Buckets[i].Count
		}
	}
}

// firstStages is the first stage of each name: the lowest number, else the first by name.
func firstStages(deltas []upstream.Delta) map[string]string {
	seen := map[string]map[string]bool{}
	for _, d := range deltas {
		if s, ok := d.Labels["stage"]; ok {
			if seen[d.Name] == nil {
				seen[d.Name] = map[string]bool{}
			}
			seen[d.Name][s] = true
		}
	}
	out := map[string]string{}
	for name, stages := range seen {
		out[name] = slices.MinFunc(slices.Sorted(maps.Keys(stages)), byNumber)
	}
	return out
}

func byNumber(a, b string) int {
	x, errX := strconv.Atoi(a)
	y, errY := strconv.Atoi(b)
	if errX == nil && errY == nil {
		return x - y
	}
	return strings.Compare(a, b)
}

// cell is a duration's or a size's, in the table's unit.
func (f *figure) cell(scale float64) Cell {
	if f == nil {
		return Cell{}
	}
	if !sane(f.n) {
		return Cell{}
	}
	n := int(f.n)
	c := Cell{N: &n, Source: f.meaning.Name}
	if total := f.sum * scale; n > 0 && sane(total) {
		c.Total, c.Mean = &total, new(total/f.n)
		c.P50In, c.P99In = f.bounds(0.5, scale), f.bounds(0.99, scale)
	}
	return c
}

// bounds are those of the bucket that a percentile lies in.
func (f *figure) bounds(p, scale float64) []float64 {
	low := 0.0
	for _, b := range f.buckets {
		if float64(b.Count) >= p*f.n {
			if b.LE > 1e300 {
				return []float64{low * scale}
			}
			return []float64{low * scale, float64(b.LE) * scale}
		}
		low = float64(b.LE)
	}
	return nil
}
