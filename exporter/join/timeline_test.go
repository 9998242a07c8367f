package join

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// askFor is what a relay would know of a request of the stages: t_in and t_up before
// it was sent to them, t_audio 3 ms after the API process had the first audio.
func askFor(r *request) Ask {
	pairOutputs(r)
	o := r.lastStage().firstPayload()
	return Ask{
		ServerRequestID: r.external, Flow: "chat",
		Points: timeline.Points{
			TIn: new(r.added - 1_300_000), TUp: new(r.added - 1_000_000),
			TAudio: new(max(o.got, o.sent) + 3_000_000), TTerm: new(r.last + 5_000_000),
		},
	}
}

func sumOf(path []Gap) (sum int64) {
	for _, g := range path {
		sum += g.NS
	}
	return sum
}

// TestCriticalPathRecorded: the gaps of every recorded request sum to its TTFA, and
// have the names that the server's own order gives.
func TestCriticalPathRecorded(t *testing.T) {
	whole := "relay api_in submit thinker.queue thinker.prefill thinker.decode thinker->talker.write thinker->talker.in_flight " +
		"thinker->talker.read talker.compute talker->code2wav.write talker->code2wav.in_flight talker->code2wav.read code2wav.compute code2wav.return api_out"
	want := map[string]string{
		"vo-real":  whole,
		"vo-basic": strings.Replace(whole, "submit thinker.queue thinker.prefill", "submit..thinker.prefill", 1), // its scheduler is a stand-in
		"vo-real-speech": "relay api_in submit stage 0.queue stage 0.prefill stage 0.decode stage 0->stage 1.write stage 0->stage 1.in_flight " +
			"stage 0->stage 1.read stage 1.compute stage 1.return api_out",
	}
	n := 0
	for name := range recorded {
		if name == "mc-tcp" {
			continue // a pair of connectors without an API process
		}
		j := readSet(t, name).join(Config{})
		for r := range j.requests.all() {
			a := askFor(r)
			x := j.Request(a)
			if x.Request != r.engine || x.Match != ByID || x.Confidence != Certain {
				t.Errorf("%s: %q by %s (%v): %s", r.engine, x.Request, x.Match, x.Confidence, x.Why)
			}
			var names []string
			for _, g := range x.Path {
				if g.NS < 0 {
					t.Errorf("%s: gap %s is %d", r.engine, g.Name, g.NS)
				}
				names = append(names, g.Name)
			}
			if got, want := sumOf(x.Path), *a.Points.TAudio-*a.Points.TIn; got != want {
				t.Errorf("%s: the gaps sum to %d, TTFA is %d", r.engine, got, want)
			}
			if w := want[name]; w != "" && strings.Join(names, " ") != w {
				t.Errorf("%s %s:\n%s, want\n%s", name, r.engine, strings.Join(names, " "), w)
			}
			n++
		}
	}
	if n != 2+4+1+3+2 {
		t.Errorf("%d requests", n)
	}
}

// TestRealSpeech: what vo-real-speech expects of its requests.
func TestRealSpeech(t *testing.T) {
	s := readSet(t, "vo-real-speech")
	j := s.join(Config{})
	for _, w := range s.expected.Requests {
		r := j.requests.engine[w.Request]
		if r == nil {
			t.Fatalf("%s is not found", w.Request)
		}
		x := j.Request(askFor(r))
		if len(x.Stages) != 2 || x.Stages[0].Steps != w.OutputsStage0 || x.Stages[1].Steps != w.OutputsStage1 {
			t.Errorf("%s: %+v, want %d and %d outputs", w.Request, x.Stages, w.OutputsStage0, w.OutputsStage1)
		}
		near := func(what string, got, want int64) {
			if max(got-want, want-got) > within {
				t.Errorf("%s: %s is %.3f ms off", w.Request, what, float64(got-want)/1e6)
			}
		}
		near("add", x.AddedNS, w.AddNS)
		near("first output", x.Stages[1].FirstNS, w.FirstStage1NS)
	}
	if len(s.expected.Requests) != 3 {
		t.Errorf("%d requests", len(s.expected.Requests))
	}
}

// TestFaultsShow: a slow step, an id used again and a stale segment show as they are.
func TestFaultsShow(t *testing.T) {
	s := readSet(t, "vo-faults")
	j := s.join(Config{})
	again := j.requests.external["chatcmpl-omt-f3"]
	if len(again) != 2 || again[0].engine == again[1].engine {
		t.Fatalf("the repeated id makes %d requests", len(again))
	}
	for i, r := range again {
		// The engine's ids tell the two apart, the client's id and its time too.
		a := askFor(r)
		if x := j.Request(a); x.Request != r.engine || len(x.Transfers) != 4 {
			t.Errorf("use %d: %q with %d transfers, want %q with 4", i, x.Request, len(x.Transfers), r.engine)
		}
	}
	slow := j.Request(askFor(j.requests.external["chatcmpl-omt-f1"][0]))
	// The talker's step of chunk 2 takes 120 ms: the chunks behind it lie unread.
	longest := int64(0)
	for i := range slow.Transfers {
		longest = max(longest, slow.Transfers[i].InFlightNS())
	}
	if longest < 90_000_000 {
		t.Errorf("the slow step shows as %.1f ms in flight", float64(longest)/1e6)
	}
	unread := 0
	for _, g := range slow.Transfers {
		if g.Unread {
			unread++
			if g.Key != "chatcmpl-omt-f1_0_90" {
				t.Errorf("%s is unread", g.Key)
			}
		}
	}
	if unread != 1 {
		t.Errorf("%d unread", unread)
	}
}

// TestComputesInside: what the truth says that a stage computed lies between the start
// and finish of that stage, and the processor time of it is no more than there was.
func TestComputesInside(t *testing.T) {
	s := readSet(t, "vo-basic")
	j := s.join(Config{})
	n := 0
	for r := range j.requests.all() {
		x := j.Request(askFor(r))
		for i := range x.Stages {
			st := &x.Stages[i]
			for _, c := range s.expected.Computes {
				if c.Stage != st.Stage || c.Request != r.external {
					continue
				}
				n++
				if c.StartNS < st.StartNS-within || c.EndNS > st.FinishNS+within {
					t.Errorf("%s %s chunk %d: computed %d to %d, the stage was at it %d to %d", r.external, c.Stage, c.Chunk, c.StartNS, c.EndNS, st.StartNS, st.FinishNS)
				}
			}
			u := st.Usage
			if u == nil || u.RunNS <= 0 || u.RunNS > 2*st.ServiceNS() || u.BoundNS < 0 {
				t.Errorf("%s %s: usage %+v of %d ns on two processors", r.external, st.Stage, u, st.ServiceNS())
			}
		}
	}
	if n != len(s.expected.Computes) {
		t.Errorf("%d computes, want %d", n, len(s.expected.Computes))
	}
}

// TestPathWithGaps: whatever milestones are missing or wrong, the gaps are not
// negative, sum to the whole, and name what they stand for.
func TestPathWithGaps(t *testing.T) {
	s := newSynth(3)
	chain := []milestone{{"", 1000}}
	for i := range 20 {
		chain = append(chain, milestone{fmt.Sprintf("g%d", i), 1000 + int64(i+1)*500})
	}
	want := chain[20].at - chain[0].at
	for range 2000 {
		c := slices.Clone(chain)
		for i := 1; i < 20; i++ {
			switch s.rng.IntN(4) {
			case 0:
				c[i].at = 0
			case 1:
				c[i].at = s.rng.Int64N(30_000) - 5000
			}
		}
		var names []string
		got := gaps(c)
		for _, g := range got {
			if g.NS < 0 {
				t.Fatalf("negative gap in %+v", got)
			}
			first, last, merged := strings.Cut(g.Name, "..")
			names = append(names, first)
			if merged {
				names = append(names, last)
			}
		}
		if sumOf(got) != want {
			t.Fatalf("sum %d, want %d: %+v", sumOf(got), want, got)
		}
		if names[0] != "g0" || names[len(names)-1] != "g19" {
			t.Fatalf("names %q", names)
		}
	}
	one := gaps([]milestone{{"", 10}, {"a", 0}, {"b", 5}, {"c", 40}})
	if len(one) != 1 || one[0] != (Gap{"a..c", 30}) {
		t.Errorf("got %+v", one)
	}
}

// TestPathLosesHops: with events of whole families gone the path still sums up, and
// the gap where they were has the names on both sides.
func TestPathLosesHops(t *testing.T) {
	s := readSet(t, "vo-real")
	full := s.join(Config{})
	a := askFor(full.requests.oldest())
	for name, gone := range map[string]func(event.Event) bool{
		"no shared memory": func(e event.Event) bool { return strings.HasPrefix(e.Path, shmDir) },
		"no messages":      func(e event.Event) bool { return e.Probe == event.ZMQSend || e.Probe == event.ZMQRecv },
		"no talker":        func(e event.Event) bool { return e.PID == 32098 },
	} {
		cut := *s
		cut.events = slices.DeleteFunc(slices.Clone(s.events), gone)
		j := cut.join(Config{})
		x := j.Request(a)
		if x.Request == "" {
			t.Errorf("%s: %s", name, x.Why)
			continue
		}
		if len(x.Path) == 0 {
			if x.PathWhy == "" {
				t.Errorf("%s: no path and no reason", name)
			}
			continue
		}
		if got, want := sumOf(x.Path), *a.Points.TAudio-*a.Points.TIn; got != want {
			t.Errorf("%s: sum %d, want %d", name, got, want)
		}
		if !slices.ContainsFunc(x.Path, func(g Gap) bool { return strings.Contains(g.Name, "..") }) {
			t.Errorf("%s: no merged gap in %+v", name, x.Path)
		}
	}
}

// TestGapNamesDocumented: the table in doc.go names every gap, and no other.
func TestGapNamesDocumented(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			name := strings.TrimSpace(cells[1])
			for _, prefix := range []string{"STAGE", "FROM->TO"} {
				name = strings.TrimPrefix(name, prefix)
			}
			documented[name] = true
		}
	}
	delete(documented, "gap")
	for _, name := range []string{
		gapRelay, gapAPIIn, gapSubmit, gapQueue, gapPrefill, gapDecode, gapCompute, gapWrite, gapInFlight, gapRead, gapReturn, gapForward, gapAPIOut,
	} {
		if !documented[name] {
			t.Errorf("doc.go does not name %q", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("doc.go names %q, which is no gap", name)
	}
}

// TestApply: the record has what the stages did, its times agree, and every null of it
// a reason.
func TestApply(t *testing.T) {
	j := readSet(t, "vo-real").join(Config{})
	x := j.Request(askFor(j.requests.oldest()))
	r := &timeline.Record{Unmeasured: map[string]string{"stages": "no stage probes", "transfers": "no stage probes", "critical_path": "no stage probes", "cancel_quiesce_ms": "no stage probes", "audio": "no audio"}}
	x.Apply(r)
	if len(r.Stages) != 3 || len(r.Transfers) != 6 || len(r.CriticalPath) != 16 || r.CancelQuiesceMS != nil {
		t.Fatalf("%d stages, %d transfers, %d gaps", len(r.Stages), len(r.Transfers), len(r.CriticalPath))
	}
	if d := r.Unmeasured; len(d) != 2 || d["cancel_quiesce_ms"] != "the client did not cancel" || d["audio"] == "" {
		t.Errorf("unmeasured %v", d)
	}
	sum := 0.0
	for _, g := range r.CriticalPath {
		sum += g.MS
	}
	if math.Abs(sum-ms(sumOf(x.Path))) > 1e-6 {
		t.Errorf("the path sums to %v ms", sum)
	}
	for _, s := range r.Stages {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var v map[string]any
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		for name, value := range v {
			if (value == nil) != (s.Unmeasured[name] != "") {
				t.Errorf("%s %s is %v, its reason %q", s.Stage, name, value, s.Unmeasured[name])
			}
		}
	}
	talker := r.Stages[1]
	if talker.Stage != "talker" || *talker.Steps != 51 || *talker.WaitMS < 0 || *talker.ServiceMS < 7000 || talker.Batch.Max != 1 || *talker.StarvedMS < 300 {
		t.Errorf("talker: %+v", talker)
	}
	none := Joined{Why: "no request of the stages has its id", PathWhy: "x", QuiesceNS: -1, QuiesceWhy: "y"}
	none.Apply(r)
	if r.Stages != nil || r.Unmeasured["stages"] != none.Why || r.Unmeasured["critical_path"] != "x" || r.Unmeasured["cancel_quiesce_ms"] != "y" {
		t.Errorf("%v", r.Unmeasured)
	}
}

// TestEvents: the words of contract section 6, in order of time.
func TestEvents(t *testing.T) {
	j := readSet(t, "vo-real").join(Config{})
	x := j.Request(askFor(j.requests.oldest()))
	list := x.Events(timeline.Event{RunID: "run", RequestID: "r", Attempt: 1}, 5)
	count := map[string]int{}
	for i, e := range list {
		count[e.Event]++
		if e.RunID != "run" || e.RequestID != "r" || e.Stage == "" || e.Match != ByID {
			t.Errorf("event %+v", e)
		}
		if w, _ := e.WallNS.Get(); w != e.MonoNS+5 {
			t.Errorf("wall clock %d of %d", w, e.MonoNS)
		}
		if i > 0 && e.MonoNS < list[i-1].MonoNS {
			t.Errorf("event %d goes back in time", i)
		}
		if b, ok := e.Bytes.Get(); (e.Transport != "") != (ok && b > 0) {
			t.Errorf("event %+v", e)
		}
	}
	want := map[string]int{
		"enqueue": 3, "schedulable": 3, "batch_formed": 3, "compute_start": 3, "compute_end": 3,
		"transfer_start": 6, "transfer_end": 6, "received": 6, "release": 6,
		"submitted": 1, "first_output": 3, "last_output": 3, "payload_received": 3, "steps": 3, "receive_start": 6, "polls": 6,
	}
	if fmt.Sprint(count) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", count, want)
	}
}

// TestLossIsTold: events that were lost while a request was in flight make it partial;
// what may be incomplete is not closed.
func TestLossIsTold(t *testing.T) {
	s := readSet(t, "vo-real")
	full := s.join(Config{})
	r := full.requests.oldest()
	a := askFor(r)
	lossy := *s
	lossy.events = append(slices.Clone(s.events), event.Event{Probe: event.Loss, Path: "shm", Count: 17, EnterNS: r.added, MonoNS: r.added + 1})
	j := lossy.join(Config{})
	x := j.Request(a)
	if len(x.Partial) != 1 || !strings.Contains(x.Partial[0], "17 events of shm") || x.Confidence >= Certain {
		t.Errorf("partial %q, confidence %v", x.Partial, x.Confidence)
	}
	if j.Stats().Lost["shm"] != 17 {
		t.Errorf("stats %+v", j.Stats())
	}
	rec := &timeline.Record{Flags: []string{"a", "z"}}
	x.Apply(rec)
	if !slices.Equal(rec.Flags, []string{"a", flagPartial, "z"}) || len(rec.Warnings) != 1 {
		t.Errorf("flags %q, warnings %q", rec.Flags, rec.Warnings)
	}
	before := *s
	before.events = append([]event.Event{{Probe: event.Loss, Path: "shm", Count: 3, EnterNS: 1, MonoNS: 2}}, s.events...)
	if x := before.join(Config{}).Request(a); len(x.Partial) != 0 {
		t.Errorf("a loss before the request makes it partial: %q", x.Partial)
	}
}

// TestHalfSpans: a stage whose end was not seen has a start and no service (case C71).
func TestHalfSpans(t *testing.T) {
	s := readSet(t, "vo-real")
	full := s.join(Config{})
	r := full.requests.oldest()
	a := askFor(r)
	cut := *s
	middle := r.added + 2_000_000_000
	cut.events = slices.DeleteFunc(slices.Clone(s.events), func(e event.Event) bool { return e.MonoNS > middle })
	cut.events = append(cut.events, event.Event{Probe: event.Loss, Path: "zmq", Count: 1, EnterNS: middle, MonoNS: middle + 1})
	x := cut.join(Config{}).Request(a)
	for i := range x.Stages {
		st := &x.Stages[i]
		ended := st.Stage == "thinker" // it told its last token before
		if (st.FinishNS > 0) != ended || (st.ServiceNS() >= 0) != ended || st.StartNS == 0 {
			t.Errorf("%s: start %d, finish %d", st.Stage, st.StartNS, st.FinishNS)
		}
	}
	if len(x.Stages) != 3 || len(x.Partial) != 1 {
		t.Errorf("%d stages, partial %q", len(x.Stages), x.Partial)
	}
}

// TestCancelQuiesces: what stages do after the client left is counted from there.
func TestCancelQuiesces(t *testing.T) {
	j := readSet(t, "vo-real").join(Config{})
	r := j.requests.oldest()
	a := askFor(r)
	last := int64(0)
	for _, s := range r.stages {
		last = max(last, s.outputs[len(s.outputs)-1].sent)
	}
	a.CancelNS = last - 42_000_000
	if x := j.Request(a); x.QuiesceNS != 42_000_000 {
		t.Errorf("quiet after %d ns: %s", x.QuiesceNS, x.QuiesceWhy)
	}
	a.CancelNS = last + 1
	if x := j.Request(a); x.QuiesceNS != 0 {
		t.Errorf("quiet after %d ns, want 0", x.QuiesceNS)
	}
}

// TestFates: a stage that dies while a request is in flight is told to it, and to no
// other.
func TestFates(t *testing.T) {
	j := New(Config{})
	j.Processes(madeProcesses())
	for _, e := range []event.Event{
		{Probe: event.Signal, PID: 1, MonoNS: 50, Flags: 9, Args: [5]int64{talkerPID}},
		{Probe: event.Exit, PID: talkerPID, MonoNS: 60, Args: [5]int64{talkerPID, talkerPID}},
		{Probe: event.Exit, PID: thinkerPID, MonoNS: 61, Args: [5]int64{thinkerPID, 777}},     // a thread
		{Probe: event.Signal, PID: 1, MonoNS: 62, Flags: 17, Args: [5]int64{thinkerPID}},      // SIGCHLD
		{Probe: event.Signal, PID: 1, MonoNS: 62, Flags: 9, Ret: -1, Args: [5]int64{codePID}}, // not allowed
		{Probe: event.Exit, PID: 4242, MonoNS: 63, Args: [5]int64{4242, 4242}},                // no stage
		{Probe: event.OOMKill, PID: 1, MonoNS: 200, Args: [5]int64{codePID}},
	} {
		j.Add(&e)
	}
	j.Flush(Everything)
	in := func(from, to int64) []Fate {
		return j.Request(Ask{Points: timeline.Points{TUp: new(from), TTerm: new(to)}}).Fates
	}
	want := []Fate{{Stage: "talker", PID: talkerPID, AtNS: 50, Signal: 9}, {Stage: "talker", PID: talkerPID, AtNS: 60, Exited: true}}
	if got := in(10, 100); !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	if got := in(150, 300); !slices.Equal(got, []Fate{{Stage: "code2wav", PID: codePID, AtNS: 200, OOM: true}}) {
		t.Errorf("got %+v", got)
	}
	if got := in(70, 100); got != nil {
		t.Errorf("got %+v", got)
	}
}
