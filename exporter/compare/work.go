package compare

import (
	"github.com/omnitap/omnitap/exporter/stats"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// work is what the stages did for the successes of one run in one group. Histograms
// bound what a run of millions of hand-overs takes.
type work struct {
	ttfa   moments // of all successes that have one
	onPath moments // of those that have a way to first audio too
	gaps   map[string]*gapSum
	stages map[stageKey]*stats.Histogram
	edges  map[edgeKey]*stats.Histogram
}

// gapSum adds a gap up; at is where on the way it began, as a share of the way.
type gapSum struct {
	n      int
	ms, at float64
}

// stageKey is a figure of a stage, what being wait or service.
type stageKey struct{ stage, what string }

type edgeKey struct{ from, to, transport string }

func newWork() work {
	return work{gaps: map[string]*gapSum{}, stages: map[stageKey]*stats.Histogram{}, edges: map[edgeKey]*stats.Histogram{}}
}

// add takes one success.
func (w *work) add(r *timeline.Record) {
	for i := range r.Stages {
		s := &r.Stages[i]
		if s.WaitMS != nil {
			histogram(w.stages, stageKey{clean(s.Stage), "wait"}).Add(*s.WaitMS)
		}
		if s.ServiceMS != nil {
			histogram(w.stages, stageKey{clean(s.Stage), "service"}).Add(*s.ServiceMS)
		}
	}
	for i := range r.Transfers {
		t := &r.Transfers[i]
		if t.Unread || t.EndNS == nil || *t.EndNS < t.StartNS {
			continue
		}
		histogram(w.edges, edgeKey{clean(t.From), clean(t.To), clean(t.Transport)}).Add(float64(*t.EndNS-t.StartNS) / 1e6)
	}
	if r.TTFAMS != nil {
		w.ttfa.add(*r.TTFAMS)
		w.path(r)
	}
}

func histogram[K comparable](m map[K]*stats.Histogram, k K) *stats.Histogram {
	if m[k] == nil {
		m[k] = &stats.Histogram{}
	}
	return m[k]
}

func (w *work) path(r *timeline.Record) {
	if len(r.CriticalPath) == 0 {
		return
	}
	w.onPath.add(*r.TTFAMS)
	at := 0.0
	for _, g := range r.CriticalPath {
		name := clean(g.Gap)
		s := w.gaps[name]
		if s == nil {
			s = &gapSum{}
			w.gaps[name] = s
		}
		s.n++
		s.ms += g.MS
		s.at += at / max(*r.TTFAMS, 1e-9)
		at += g.MS
	}
}

// gap is the mean of a gap over the requests that have a way: 0 for those without it,
// NaN where no request has a way.
func (w *work) gap(name string) float64 {
	if w.onPath.n == 0 {
		return orNaN(nil)
	}
	if s := w.gaps[name]; s != nil {
		return s.ms / float64(w.onPath.n)
	}
	return 0
}
