package compare

import (
	"math"
	"testing"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// What was never read, or ends before it began, is no hand-over's time; a gap that a
// request does not have counts as 0 in the mean.
func TestWork(t *testing.T) {
	t.Parallel()
	w := newWork()
	w.add(&timeline.Record{
		TTFAMS: new(30.0), CriticalPath: []timeline.PathStep{{Gap: "relay", MS: 10}, {Gap: "thinker.queue", MS: 20}},
		Transfers: []timeline.Transfer{
			{From: "a", To: "b", Transport: "shm", StartNS: 1e6, EndNS: new(int64(4e6))},
			{From: "a", To: "b", Transport: "shm", StartNS: 1e6, EndNS: new(int64(9e6)), Unread: true},
			{From: "a", To: "b", Transport: "shm", StartNS: 1e6},
			{From: "a", To: "b", Transport: "shm", StartNS: 5e6, EndNS: new(int64(4e6))},
		},
		Stages: []timeline.Stage{{Stage: "a", WaitMS: new(2.0)}, {Stage: "a", ServiceMS: new(5.0)}},
	})
	w.add(&timeline.Record{TTFAMS: new(12.0), CriticalPath: []timeline.PathStep{{Gap: "relay", MS: 12}}})
	w.add(&timeline.Record{TTFAMS: new(90.0)})
	w.add(&timeline.Record{})
	if h := w.edges[edgeKey{"a", "b", "shm"}]; h.N() != 1 || h.Quantile(0.5) != 3 {
		t.Errorf("%d hand-overs of %v ms", h.N(), h.Quantile(0.5))
	}
	if wait, service := w.stages[stageKey{"a", "wait"}], w.stages[stageKey{"a", "service"}]; wait.N() != 1 || service.N() != 1 {
		t.Errorf("%d waits, %d services", wait.N(), service.N())
	}
	if w.ttfa.n != 3 || w.onPath.n != 2 || w.gap("relay") != 11 || w.gap("thinker.queue") != 10 || w.gap("none") != 0 {
		t.Errorf("%+v", w)
	}
	empty := newWork()
	if !math.IsNaN(empty.gap("relay")) {
		t.Error("a gap of no request is a number")
	}
	if !math.IsNaN(quantile(nil, 0.5)) || !math.IsNaN(quantile(w.edges[edgeKey{"a", "b", "shm"}], 0.95)) {
		t.Error("a p95 of one value")
	}
}
