package main

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/exporter/experiment"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// phased is a run's phases with a sink of the test behind them.
type phased struct {
	*phases
	kept caseSink
}

func newPhased(requests int, lasts time.Duration) *phased {
	p := &phased{phases: newPhases(requests, lasts)}
	p.next = &p.kept
	return p
}

// begin has a request begin.
func (p *phased) begin(id string, at int64) {
	p.Event(&timeline.Event{Event: "ingress", RequestID: id, MonoNS: at})
}

// end has a request end; began is 0 for a record without a beginning. The record itself
// stays as it was: others read it, too.
func (p *phased) end(id string, began, at int64, state timeline.State) {
	r := &timeline.Record{RequestID: id, Terminal: timeline.Terminal{State: state}}
	if r.Points.TTerm = &at; began != 0 {
		r.Points.TIn = &began
	}
	p.Record(r)
	if r.RunPhase != "" {
		panic("a record was changed")
	}
}

// tagged are the phases of the records, in their order.
func (p *phased) tagged() (list []string) {
	for _, r := range p.kept.records {
		list = append(list, r.RequestID+" "+r.RunPhase)
	}
	return list
}

// left is how many requests the phases still wait for.
func (p *phased) left() int { return len(p.of) }

const second = int64(time.Second)

// TestPhasesCount: so many requests are the warm-up, whenever they end and whichever ends
// first.
func TestPhasesCount(t *testing.T) {
	p := newPhased(2, 0)
	for i, id := range []string{"a", "b", "c", "d"} {
		p.begin(id, int64(10+i))
	}
	p.end("d", 13, 20, timeline.Success)
	p.end("b", 11, 21, timeline.Success)
	p.end("c", 12, 22, timeline.Success)
	p.end("a", 10, 23, timeline.Success)
	if d := cmp.Diff([]string{"d measured", "b warmup", "c measured", "a warmup"}, p.tagged()); d != "" {
		t.Error(d)
	}
	want := []rundir.RunPhase{{Name: "warmup", StartNS: 10, EndNS: 12}, {Name: "measured", StartNS: 12, EndNS: 22}}
	if d := cmp.Diff(want, p.spans()); d != "" {
		t.Error(d)
	}
	if p.left() != 0 {
		t.Errorf("%d requests are kept", p.left())
	}
}

// TestPhasesDuration: the warm-up lasts from the first request's beginning on. A request
// that is heard of late may have begun earlier.
func TestPhasesDuration(t *testing.T) {
	p := newPhased(0, time.Second)
	ids := []string{"a", "b", "c", "d", "late"}
	begins := []int64{5 * second, 6*second - 1, 6 * second, 7 * second, 5*second + 1}
	for i, id := range ids {
		p.begin(id, begins[i])
	}
	for i, id := range ids {
		p.end(id, begins[i], 8*second, timeline.Success)
	}
	if d := cmp.Diff([]string{"a warmup", "b warmup", "c measured", "d measured", "late warmup"}, p.tagged()); d != "" {
		t.Error(d)
	}
	want := []rundir.RunPhase{{Name: "warmup", StartNS: 5 * second, EndNS: 6 * second}, {Name: "measured", StartNS: 6 * second, EndNS: 8 * second}}
	if d := cmp.Diff(want, p.spans()); d != "" {
		t.Error(d)
	}
}

// TestPhasesBoth: of a number and a duration the one that is over first ends the warm-up.
func TestPhasesBoth(t *testing.T) {
	for name, c := range map[string]struct {
		requests int
		lasts    time.Duration
		want     []string
	}{
		"the number":   {1, time.Hour, []string{"a warmup", "b measured", "c measured"}},
		"the duration": {3, 2 * time.Nanosecond, []string{"a warmup", "b warmup", "c measured"}},
		"neither":      {0, 0, []string{"a measured", "b measured", "c measured"}},
	} {
		p := newPhased(c.requests, c.lasts)
		for i, id := range []string{"a", "b", "c"} {
			p.begin(id, int64(1+i))
			p.end(id, int64(1+i), int64(10+i), timeline.Success)
		}
		if d := cmp.Diff(c.want, p.tagged()); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// TestPhasesSameID: requests of one id are told apart by their order.
func TestPhasesSameID(t *testing.T) {
	p := newPhased(1, 0)
	p.begin("x", 1)
	p.begin("x", 2)
	p.end("x", 1, 3, timeline.Success)
	p.end("x", 2, 4, timeline.Success)
	p.begin("x", 5)
	p.end("x", 5, 6, timeline.Success)
	if d := cmp.Diff([]string{"x warmup", "x measured", "x measured"}, p.tagged()); d != "" {
		t.Error(d)
	}
	if p.left() != 0 {
		t.Errorf("%d ids are kept", p.left())
	}
}

// TestPhasesNoIngress: a record that nothing announced is of the phase that it ended in, and
// takes no request's place in the warm-up.
func TestPhasesNoIngress(t *testing.T) {
	p := newPhased(1, 0)
	p.end("opaque", 0, 3, timeline.TransportError)
	p.begin("a", 4)
	p.end("a", 4, 5, timeline.Success)
	p.begin("b", 6)
	p.end("turn", 0, 7, timeline.Success)
	p.end("b", 6, 8, timeline.Success)
	if d := cmp.Diff([]string{"opaque warmup", "a warmup", "turn measured", "b measured"}, p.tagged()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]rundir.RunPhase{{Name: "warmup", StartNS: 3, EndNS: 6}, {Name: "measured", StartNS: 6, EndNS: 8}}, p.spans()); d != "" {
		t.Error(d)
	}
	none := newPhased(0, 0)
	if none.spans() != nil {
		t.Errorf("phases without a request: %v", none.spans())
	}
	none.begin("never ends", 7)
	if d := cmp.Diff([]rundir.RunPhase{{Name: "measured", StartNS: 7, EndNS: 7}}, none.spans()); d != "" {
		t.Errorf("a request without an end: %s", d)
	}
}

// TestPhasesSessions: the request that opens a session has no record; its first turn takes
// its place in the warm-up, and a session without a turn gives it to nobody.
func TestPhasesSessions(t *testing.T) {
	p := newPhased(2, 0)
	turn := func(session, id string, at int64) {
		p.Event(&timeline.Event{Event: "ingress", RequestID: id, SessionID: timeline.Text(session), MonoNS: at})
	}
	p.begin("s", 10)
	p.begin("idle", 11)
	p.begin("x", 12)
	turn("s", "s-t0", 13)
	turn("s", "s-t1", 14)
	p.begin("d", 15)
	unasked := &timeline.Record{RequestID: "d-t0", SessionID: new("d"), Terminal: timeline.Terminal{State: timeline.Success}, Points: timeline.Points{TTerm: new(int64(18))}}
	p.Record(unasked)
	p.end("s-t0", 13, 20, timeline.Success)
	p.end("s-t1", 14, 21, timeline.Success)
	p.end("x", 12, 22, timeline.Success)
	for _, id := range []string{"s", "idle", "d"} {
		p.Session(&timeline.Session{SessionID: id})
	}
	if d := cmp.Diff([]string{"d-t0 measured", "s-t0 warmup", "s-t1 measured", "x measured"}, p.tagged()); d != "" {
		t.Error(d)
	}
	if p.left() != 0 {
		t.Errorf("%v are kept", p.of)
	}
}

// TestPhasesProgress: what was measured is told, the warm-up is not.
func TestPhasesProgress(t *testing.T) {
	p := newPhased(1, 0)
	var told []experiment.Progress
	p.progress = func(so experiment.Progress) { told = append(told, so) }
	for i, state := range []timeline.State{timeline.ServerError, timeline.Success, timeline.WorkerLost, timeline.ServerError} {
		id := fmt.Sprint(i)
		p.begin(id, int64(10+i))
		p.end(id, int64(10+i), int64(20+i), state)
	}
	if len(told) != 3 {
		t.Fatalf("told %d times, want 3", len(told))
	}
	for i := range told {
		if told[i].Elapsed <= 0 {
			t.Errorf("elapsed %v", told[i].Elapsed)
		}
		told[i].Elapsed = 0
	}
	if d := cmp.Diff([]experiment.Progress{{Ended: 1}, {Ended: 2, Failed: 1, WorkerLost: 1}, {Ended: 3, Failed: 2, WorkerLost: 1}}, told); d != "" {
		t.Error(d)
	}
	if so := p.far(11 + second); so.Elapsed != time.Second || so.Ended != 3 {
		t.Errorf("%+v", so)
	}
	if so := newPhased(1, 0).far(second); so.Elapsed != 0 {
		t.Errorf("the measured phase has not begun: %+v", so)
	}
}

// TestPhasesCutOff: what was under way when the load was told to end is no failure of the
// server's and is in no figure; a record that comes late of a request that had ended is.
func TestPhasesCutOff(t *testing.T) {
	p := newPhased(1, 0)
	for i, id := range []string{"warm", "before", "cut", "later"} {
		p.begin(id, int64(10+i))
	}
	p.stop(20)
	p.stop(100) // the first one counts
	p.begin("behind", 21)
	p.end("before", 11, 20, timeline.Success)
	p.end("cut", 12, 22, timeline.ClientCancelled)
	p.end("later", 13, 24, timeline.Success)
	p.end("warm", 10, 23, timeline.ClientCancelled)
	p.end("behind", 21, 25, timeline.ClientCancelled)
	if d := cmp.Diff([]string{"before measured", "cut cooldown", "later cooldown", "warm warmup", "behind cooldown"}, p.tagged()); d != "" {
		t.Error(d)
	}
	want := []rundir.RunPhase{{Name: "warmup", StartNS: 10, EndNS: 11}, {Name: "measured", StartNS: 11, EndNS: 20}, {Name: "cooldown", StartNS: 12, EndNS: 25}}
	if d := cmp.Diff(want, p.spans()); d != "" {
		t.Error(d)
	}
	if so := p.far(30); so.Ended != 1 || so.Failed != 0 {
		t.Errorf("%+v", so)
	}
	if p.left() != 0 {
		t.Errorf("%d requests are kept", p.left())
	}
}

// TestPhasesCutOffInWarmup: what comes behind the end does not begin a measured phase.
func TestPhasesCutOffInWarmup(t *testing.T) {
	p := newPhased(1, 0)
	p.begin("warm", 10)
	p.stop(20)
	p.begin("behind", 21)
	p.end("warm", 10, 22, timeline.ClientCancelled)
	p.end("behind", 21, 23, timeline.ClientCancelled)
	want := []rundir.RunPhase{{Name: "warmup", StartNS: 10, EndNS: 22}, {Name: "cooldown", StartNS: 21, EndNS: 23}}
	if d := cmp.Diff(want, p.spans()); d != "" {
		t.Error(d)
	}
}

// TestPhasesOutOfOrder: requests that come at once are heard of in any order. Each phase is
// there, and begins with the first of its requests: verify holds records to that.
func TestPhasesOutOfOrder(t *testing.T) {
	p := newPhased(1, 0)
	p.begin("second", 11)
	p.begin("first", 10)
	p.end("first", 10, 20, timeline.Success)
	p.end("second", 11, 21, timeline.Success)
	if d := cmp.Diff([]string{"first measured", "second warmup"}, p.tagged()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]rundir.RunPhase{{Name: "warmup", StartNS: 11, EndNS: 11}, {Name: "measured", StartNS: 10, EndNS: 20}}, p.spans()); d != "" {
		t.Error(d)
	}
}

// TestPhasesAtOnce: with many requests at once, records and events from many goroutines,
// the warm-up has its number.
func TestPhasesAtOnce(t *testing.T) {
	const requests, warm = 400, 37
	p := newPhased(warm, 0)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range requests / 8 {
				id := fmt.Sprintf("%d-%d", w, i)
				p.begin(id, int64(1000+i*8+w))
				p.Session(&timeline.Session{})
				p.end(id, int64(1000+i*8+w), int64(5000+i), timeline.Success)
				p.far(6000)
			}
		})
	}
	all.Wait()
	n := map[string]int{}
	for _, r := range p.kept.records {
		n[r.RunPhase]++
	}
	if d := cmp.Diff(map[string]int{"warmup": warm, "measured": requests - warm}, n); d != "" {
		t.Error(d)
	}
	spans := p.spans()
	if len(spans) != 2 || spans[1].EndNS != 5000+requests/8-1 {
		t.Errorf("%+v", spans)
	}
	if p.left() != 0 || len(p.kept.lines) != requests || len(p.kept.events) != requests {
		t.Errorf("%d requests are kept, %d sessions and %d events came through", p.left(), len(p.kept.lines), len(p.kept.events))
	}
}
