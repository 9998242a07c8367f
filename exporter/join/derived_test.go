package join

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/verify"
	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// busy adds to a recorded set what its probes did not watch: samples of the scheduler
// and calls of the driver, of every process and all the time.
func (s *set) busy() *set {
	out := &set{name: s.name, processes: s.processes, events: slices.Clone(s.events)}
	first, last := s.events[0].MonoNS, s.events[0].MonoNS
	for i := range s.events {
		first, last = min(first, s.events[i].MonoNS), max(last, s.events[i].MonoNS)
	}
	for _, p := range s.processes {
		pid := int32(p.PID)
		for i, at := int64(0), first; at < last; i, at = i+1, at+25_000_000 {
			run := i*3_000_000 + i%5*100_000
			out.events = append(out.events,
				event.Event{Probe: event.SchedSample, PID: pid, MonoNS: at, Args: [5]int64{run, i * 70_000, i * i * 1000}},
				event.Event{Probe: event.CUDACall, PID: pid, TID: pid, EnterNS: at + 1000, MonoNS: at + 2000, Path: "cuGraphLaunch"},
				event.Event{Probe: event.CUDACall, PID: pid, TID: pid, EnterNS: at + 3000, MonoNS: at + 9000, Path: "cuMemcpyHtoDAsync_v2", Size: 100_000 + i},
				event.Event{Probe: event.CUDACount, PID: pid, TID: pid, EnterNS: at + 1000, MonoNS: at + 6_000_000, Path: "cuLaunchKernel", Count: 40 + i},
				event.Event{Probe: event.CUDACall, PID: pid, TID: pid, EnterNS: at + 10_000, MonoNS: at + 1_500_000 + i, Path: "cuStreamSynchronize"},
			)
		}
	}
	slices.SortStableFunc(out.events, func(a, b event.Event) int { return cmp.Compare(a.MonoNS, b.MonoNS) })
	return out
}

// recordOf is a record of a request as far as the join needs it, and its own events. The
// client of one that it cancelled leaves in the middle.
func recordOf(r *request, cancelled bool) (*timeline.Record, []timeline.Event) {
	pairOutputs(r)
	in := cmp.Or(r.added, r.first) - 1_300_000
	p := timeline.Points{TIn: &in, TBody: new(in + 100_000), TUp: new(in + 300_000), TAudio: new(r.last + 1_000_000), TTerm: new(r.last + 5_000_000)}
	if s := r.lastStage(); s != nil {
		o := s.firstPayload()
		p.TAudio = new(max(o.got, o.sent) + 3_000_000)
	}
	rec := &timeline.Record{
		Schema: timeline.Schema, RunID: "run", Node: "n", RequestID: "own-" + r.external, RequestIDSource: "own", ServerRequestID: &r.external, Attempt: 1,
		Flow: timeline.FlowChat, Dialect: "unknown", Stamp: "read", Analysis: "full", Points: p, TTFAMS: new(float64(*p.TAudio-in) / 1e6),
		Terminal: timeline.Terminal{State: timeline.Success, By: "server", Evidence: map[string]any{}},
		Quality:  timeline.Quality{Verdict: "not_measured", Failed: []string{}, NotMeasured: []string{}},
		Flags:    []string{}, Warnings: []string{}, Unmeasured: map[string]string{},
	}
	if cancelled {
		rec.Terminal.State = timeline.ClientCancelled
		rec.Points.TTerm = new((in + r.last) / 2)
		rec.Points.TClose = rec.Points.TTerm
	}
	var list []timeline.Event
	for _, e := range []struct {
		word string
		at   *int64
	}{{"ingress", p.TIn}, {"request_body_end", p.TBody}, {"upstream_sent", p.TUp}, {"first_audio", p.TAudio}, {"close", rec.Points.TClose}} {
		if e.at != nil {
			list = append(list, timeline.Event{RunID: "run", RequestID: rec.RequestID, Attempt: 1, Event: e.word, MonoNS: *e.at})
		}
	}
	return rec, list
}

// derived writes a run of all requests of a set.
func derived(t *testing.T, s *set) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	w, err := rundir.Create(dir, rundir.Meta{RunID: "run", Node: "n", Upstream: "http://127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	j := s.join(Config{})
	n := 0
	for r := range j.requests.all() {
		rec, list := recordOf(r, n%2 == 1)
		x := j.Request(AskOf(rec))
		if x.Request == "" || rec.Points.TUp == nil {
			continue
		}
		n++
		x.Apply(rec)
		list = append(list, x.Events(timeline.Event{RunID: "run", RequestID: rec.RequestID, Attempt: 1, Node: "n"}, 0)...)
		list = append(list, timeline.Event{
			RunID: "run", RequestID: rec.RequestID, Attempt: 1, Event: "terminal", MonoNS: *rec.Points.TTerm, Status: timeline.Text(rec.Terminal.State), Bytes: timeline.N(0),
		})
		for i := range list {
			w.Event(&list[i])
		}
		w.Record(rec)
	}
	if err := w.Close(); err != nil || n == 0 {
		t.Fatalf("%d requests, %v", n, err)
	}
	return dir
}

// ofStages are the findings about what the join writes; the rest of these records is
// not what a relay would have written.
func ofStages(t *testing.T, dir string) (found []string, res *verify.Result) {
	t.Helper()
	res, err := verify.Verify(dir, verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range res.Findings {
		f := &res.Findings[i]
		text := f.String()
		if strings.Contains(text, "stages[]") || strings.Contains(text, "ransfer") || strings.Contains(text, "critical_path") ||
			strings.Contains(text, "cancel_quiesce_ms") || strings.Contains(text, "of the stage") || f.Kind == verify.KindSchema || f.Kind == verify.KindOrder && strings.Contains(text, "a second") {
			found = append(found, text)
		}
	}
	return found, res
}

// TestDerivable: everything that the join writes into records of the recorded sets is
// derived again from its events alone, and is the same.
func TestDerivable(t *testing.T) {
	compared := map[string]int64{}
	for name := range recorded {
		dir := derived(t, readSet(t, name).busy())
		found, res := ofStages(t, dir)
		if found != nil {
			t.Errorf("%s: %d findings: %s", name, len(found), strings.Join(found[:min(8, len(found))], "\n"))
		}
		for _, m := range res.NotDerivable {
			if strings.HasPrefix(m.Field, "stages") || strings.HasPrefix(m.Field, "transfers") || strings.HasPrefix(m.Field, "critical_path") {
				t.Errorf("%s: %s is not derivable: %s", name, m.Field, m.Why)
			}
		}
		for field, n := range res.Compared {
			compared[field] += n
		}
	}
	for _, field := range []string{
		"transfers[].wait_ms", "transfers[].read_ms", "transfers[].in_flight_ms", "transfers[].misses", "transfers[].empty_polls", "stages[].starved_ms",
		"stages[].steps", "stages[].batch.mean", "stages[].cpu_ms", "stages[].runq_ms", "stages[].blocked_ms", "stages[].cpu_bound_ms", "stages[].gpu",
		"cancel_quiesce_ms", "critical_path[].ms",
	} {
		if compared[field] < 3 {
			t.Errorf("%s was compared %d times", field, compared[field])
		}
	}
}

// TestEventsAreNeeded: whichever word is taken out of the events, or number in them
// changed, verification finds it.
func TestEventsAreNeeded(t *testing.T) {
	dir := derived(t, readSet(t, "vo-real").busy())
	path := filepath.Join(dir, rundir.EventsFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	check := func(what string, change func(line string) string, holds ...string) {
		t.Helper()
		out, changed := "", false
		for _, l := range lines {
			if !changed && !slices.ContainsFunc(holds, func(h string) bool { return !strings.Contains(l, h) }) {
				was := l
				l = change(l)
				changed = l != was
			}
			out += l
		}
		if !changed {
			t.Errorf("%s: no line was changed", what)
			return
		}
		if err := os.WriteFile(path, []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
		if found, _ := ofStages(t, dir); found == nil {
			t.Errorf("%s is not found", what)
		}
	}
	gone := func(string) string { return "" }
	more := func(key string) func(string) string {
		return func(l string) string { return strings.Replace(l, `"`+key+`":`, `"`+key+`":9`, 1) }
	}
	for _, word := range []string{
		timeline.EventSubmitted, timeline.EventFirstOutput, timeline.EventSteps, timeline.EventUsage, timeline.EventReceiveStart, timeline.EventPolls,
		"enqueue", "transfer_start", "transfer_end", "received",
	} {
		check(word+" taken out", gone, `"event":"`+word+`"`)
	}
	check("payload_received taken out", gone, `"event":"payload_received"`, `"stage":"code2wav"`)
	for word, keys := range map[string][]string{
		timeline.EventSteps: {"count", "batch"}, timeline.EventPolls: {"count", "empty_polls", "mono_ns"}, timeline.EventReceiveStart: {"mono_ns", "transfer"},
		timeline.EventUsage: {"mono_ns"},
	} {
		for _, key := range keys {
			check(word+"'s "+key, more(key), `"event":"`+word+`"`, `"`+key+`":`)
		}
	}
	for _, kind := range []string{"graph_launches", "launches", "syncs", "steps", "at_least", "to_device"} {
		check("gpu_calls "+kind, gone, `"event":"gpu_calls"`, `"status":"`+kind+`"`)
	}
	for _, key := range []string{"count", "bytes"} {
		check("gpu_calls' "+key, more(key), `"event":"gpu_calls"`, `"status":"to_device"`)
	}
	check("gpu_calls' wait_ns", more("wait_ns"), `"event":"gpu_calls"`, `"status":"syncs"`)
}

// TestUsageEvents: of a stage's samples those go out that its times rest on, however low
// their counts are.
func TestUsageEvents(t *testing.T) {
	c := curve{limit: 100}
	for i := range int64(9) {
		c.points = append(c.points, cpuPoint{at: 10 + 10*i, run: 5*i - 3, runnable: i, blocked: 2 * i})
	}
	for _, x := range []struct {
		from, to int64
		want     []int64
	}{{25, 55, []int64{20, 30, 50, 60}}, {20, 60, []int64{10, 20, 60, 70}}, {5, 95, []int64{10, 90}}, {31, 45, nil}} {
		var at []int64
		for _, p := range c.around(x.from, x.to) {
			at = append(at, p.at)
		}
		if !slices.Equal(at, x.want) {
			t.Errorf("%d to %d: samples at %v, want %v", x.from, x.to, at, x.want)
		}
		if (c.between(x.from, x.to) == nil) != (at == nil) {
			t.Errorf("%d to %d: times without samples, or samples without times", x.from, x.to)
		}
	}
	b := eventsOf{}
	b.usage(&Stage{Usage: c.between(5, 95), samples: c.around(5, 95)}, timeline.Event{})
	got := map[int64]string{}
	for _, e := range b.list {
		got[e.MonoNS] = fmt.Sprint(e.CPUNS, e.RunqNS, e.BlockedNS)
	}
	if want := map[int64]string{10: fmt.Sprint(timeline.N(0), timeline.N(0), timeline.N(0)), 90: fmt.Sprint(timeline.N(40), timeline.N(8), timeline.N(16))}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
