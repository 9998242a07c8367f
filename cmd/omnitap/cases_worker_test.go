package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	fake "github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages"
	"github.com/omnitap/omnitap/exporter/join"
	"github.com/omnitap/omnitap/exporter/report"
	"github.com/omnitap/omnitap/probes"
	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// What the kernel says of stage processes that end, are slow to stop, or come anew.

// kill ends a process with SIGKILL.
func kill(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// streamed is a streaming answer under way.
type streamed struct {
	t testing.TB
	c *net.TCPConn
	r *bufio.Reader
}

// slowly makes streams that last for long and leave CPU to others.
var slowly = [3]time.Duration{15 * time.Millisecond, 15 * time.Millisecond, 15 * time.Millisecond}

// submitted waits until the stages have a request.
func (r *stagedRig) submitted(id string) {
	r.t.Helper()
	waitCase(r.t, id+" at the stages", func() bool {
		return strings.Contains(readFile(r.t, filepath.Join(r.truth, "truth-api.jsonl")), `"request_id":"chatcmpl-`+id+`","chunk":null,"event":"add_sent"`)
	})
}

// stream asks for a long chat and reads as many events with sound.
func (r *stagedRig) stream(words, sounds int, fields ...string) *streamed {
	r.t.Helper()
	s := &streamed{t: r.t, c: caseDial(r.t, r.addr)}
	_ = s.c.SetDeadline(time.Now().Add(20 * time.Second))
	s.r = bufio.NewReader(s.c)
	body := fmt.Sprintf(stagedChat, words)
	head := ""
	for _, f := range fields {
		head += f + "\r\n"
	}
	caseSend(r.t, s.c, fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", head, len(body), body))
	s.sounds(sounds)
	return s
}

// sounds reads up to the n-th event with sound from here.
func (s *streamed) sounds(n int) {
	s.t.Helper()
	for n > 0 {
		line, err := s.r.ReadString('\n')
		if err != nil {
			s.t.Fatalf("reading a stream: %v", err)
		}
		if strings.Contains(line, `"modality":"audio"`) {
			n--
		}
	}
}

// rest reads what is left.
func (s *streamed) rest() string {
	b, _ := io.ReadAll(s.r)
	return string(b)
}

// byID is the record of a request.
func byID(t testing.TB, recs []*timeline.Record, id string) *timeline.Record {
	t.Helper()
	for _, r := range recs {
		if r.RequestID == id {
			return r
		}
	}
	t.Fatalf("no record of %s", id)
	return nil
}

// TestC56StagesStop: a client leaves amid a stream, and while nothing was sent yet: the
// server is told at once, and how long its stages went on is measured. A slow step
// makes it longer.
func TestC56StagesStop(t *testing.T) {
	const slow = 250 * time.Millisecond
	r := startStagedRig(t, stagedConfig{Stages: fake.Config{Batch: 1, Steps: slowly, Faults: []fake.Fault{
		{Kind: fake.FaultSlow, Stage: 1, Request: "chatcmpl-slow", Chunk: 60, Extra: slow},
	}}}, nil)
	left := map[string]int64{}
	leave := func(id string, s *streamed) {
		left[id] = monoNow()
		_ = s.c.SetLinger(0)
		_ = s.c.Close()
	}
	leave("stream", r.stream(400, 3, "X-Request-Id: stream"))
	r.records(1)
	first := r.stream(400, 2, "X-Request-Id: ahead")
	queued := r.stream(400, 0, "X-Request-Id: queued")
	r.submitted("queued")
	leave("queued", queued)
	leave("ahead", first)
	r.records(3)
	late := r.stream(400, 3, "X-Request-Id: slow")
	waitCase(t, "the slow step", func() bool {
		return strings.Contains(readFile(t, filepath.Join(r.truth, "truth-talker.jsonl")), `"request_id":"chatcmpl-slow","chunk":60,"event":"compute_start"`)
	})
	leave("slow", late)
	r.records(4)
	recs := r.stop()
	account := r.account()
	for id, at := range left {
		rec := byID(t, recs, id)
		checkNulls(t, rec)
		if rec.Terminal.State != timeline.ClientCancelled {
			t.Errorf("%s: terminal %+v", id, rec.Terminal)
			continue
		}
		told, last := int64(0), int64(0)
		for i := range account {
			l := &account[i]
			if l.RequestID != "chatcmpl-"+id {
				continue
			}
			switch l.Event {
			case "cancel":
				told = l.MonoNS
			case "output", "write_end", "read_end":
				last = l.MonoNS
			}
		}
		if d := time.Duration(told - at); told == 0 || d > 100*time.Millisecond {
			t.Errorf("%s: the server was told %v after the client left", id, d)
		}
		if rec.CancelQuiesceMS == nil {
			if last != 0 {
				t.Errorf("%s: no cancel_quiesce_ms (%s)", id, rec.Unmeasured["cancel_quiesce_ms"])
			}
			continue
		}
		got, want := *rec.CancelQuiesceMS, max(0, float64(last-join.AskOf(rec).CancelNS)/1e6)
		t.Logf("%s: told after %v, quiet after %.2f ms, by the stages' account %.2f ms", id, time.Duration(told-at), got, want)
		if diff := got - want; diff > 20 || diff < -20 || id != "queued" && got <= 0 {
			t.Errorf("%s: the stages went on for %.2f ms, by their own account for %.2f", id, got, want)
		}
	}
}

// TestC58StageKilled: a stage process is killed amid a stream: what the server says
// stands, and the kernel's evidence is beside it: which stage, which signal. An error
// without a kill stays what it is.
func TestC58StageKilled(t *testing.T) {
	r := startStagedRig(t, stagedConfig{Stages: fake.Config{Steps: slowly}}, nil)
	askAt(t, "http://"+r.addr+"/v1/chat/completions", fmt.Sprintf(stagedChat, 5), "X-Request-Id: generic", `X-Mock-Script: {"faults":["status=500"]}`)
	s := r.stream(400, 2, "X-Request-Id: killed")
	kill(t, r.fake.pids[1])
	if rest := s.rest(); !strings.Contains(rest, fmt.Sprintf("Dead stage process(es) detected: talker (pid=%d, exit=-9)", r.fake.pids[1])) {
		t.Errorf("the answer ends by %.300q", rest[max(0, len(rest)-300):])
	}
	if status, b := askAt(t, "http://"+r.addr+"/v1/chat/completions", stagedText, "X-Request-Id: later"); status != http.StatusInternalServerError || !strings.Contains(string(b), "Dead stage process(es)") {
		t.Errorf("a request to a dead server: %d, %s", status, b)
	}
	r.records(3)
	recs := r.stop()
	generic, killed, later := byID(t, recs, "generic"), byID(t, recs, "killed"), byID(t, recs, "later")
	wantTerminal(t, generic, timeline.ServerError, "http_500")
	wantTerminal(t, killed, timeline.WorkerLost, "engine_dead")
	wantTerminal(t, later, timeline.WorkerLost, "engine_dead")
	if generic.Terminal.Evidence["worker"] != nil || later.Terminal.Evidence["worker"] != nil {
		t.Errorf("a worker where none ended: %v, %v", generic.Terminal.Evidence, later.Terminal.Evidence)
	}
	wantWorker(t, killed, "talker", r.fake.pids[1], 9)
	wantNoOOM(t, killed)
	if killed.Stages == nil || killed.Transfers == nil {
		t.Errorf("the killed request has stages %v, transfers %v", killed.Unmeasured["stages"], killed.Unmeasured["transfers"])
	}
}

// wantWorker checks the kernel's evidence of a process that ended.
func wantWorker(t testing.TB, rec *timeline.Record, stage string, pid, signal int) {
	t.Helper()
	w, _ := rec.Terminal.Evidence["worker"].(map[string]any)
	if fmt.Sprint(w["stage"], w["pid"], w["signal"]) != fmt.Sprint(stage, pid, signal) {
		t.Errorf("%s: evidence %v, want %s, process %d, signal %d", rec.RequestID, rec.Terminal.Evidence, stage, pid, signal)
	}
}

// memoryGroup makes a memory cgroup with a limit that a process can be moved into.
func memoryGroup(t testing.TB, limit int) (add func(pid int)) {
	t.Helper()
	root, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(root); err != nil {
		root, file = "/sys/fs/cgroup", "memory.max"
	}
	dir := filepath.Join(root, fmt.Sprintf("omnitap-test-%d", os.Getpid()))
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		t.Cleanup(func() { waitCase(t, "the group to be empty", func() bool { return os.Remove(dir) == nil }) })
		err = os.WriteFile(filepath.Join(dir, file), []byte(fmt.Sprint(limit)), 0o644)
	}
	if err != nil {
		if os.Getenv("REQUIRE_KERNEL") == "1" {
			t.Fatal(err)
		}
		t.Skipf("no memory cgroup can be made: %v", err)
	}
	return func(pid int) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(fmt.Sprint(pid)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestC58StageOutOfMemory: the kernel kills a stage for want of memory: an oom, with
// evidence that is not on the wire.
func TestC58StageOutOfMemory(t *testing.T) {
	r := startStagedRig(t, stagedConfig{Stages: fake.Config{HiddenBytes: 1 << 19, Steps: slowly}}, nil)
	add := memoryGroup(t, 256<<10)
	s := r.stream(400, 1, "X-Request-Id: poor")
	add(r.fake.pids[0])
	if rest := s.rest(); !strings.Contains(rest, fmt.Sprintf("thinker (pid=%d, exit=-9)", r.fake.pids[0])) {
		t.Errorf("the answer ends by %.300q", rest[max(0, len(rest)-300):])
	}
	rec := r.records(1)[0]
	wantTerminal(t, rec, timeline.OOM, "oom_kill")
	wantWorker(t, rec, "thinker", r.fake.pids[0], 9)
	w, _ := rec.Terminal.Evidence["worker"].(map[string]any)
	if rec.Terminal.Evidence["evidence"] != "oob" || w["oom_kill"] != true || rec.Terminal.Evidence["seen_as"] != "worker-lost (engine_dead)" {
		t.Errorf("evidence %v", rec.Terminal.Evidence)
	}
}

// TestC60StagesKilled: the server does not notice that a stage was killed and is silent,
// in its streams and to new requests: to the client a deadline, to the kernel a lost
// worker; the streams are one incident. When the front dies as well its connections end.
func TestC60StagesKilled(t *testing.T) {
	const streams = 4
	r := startStagedRig(t, stagedConfig{Unnoticed: true, Stages: fake.Config{Steps: slowly}}, func(f *serveFlags) {
		f.Deadline, f.DeadlineAction = 4*time.Second, "abort"
		if err := f.deadlines(); err != nil {
			t.Fatal(err)
		}
	})
	var hung []*streamed
	for i := range streams {
		hung = append(hung, r.stream(400, 1, fmt.Sprintf("X-Request-Id: hung-%d", i)))
	}
	kill(t, r.fake.pids[1])
	health, err := http.Get("http://" + r.addr + "/mock/requests")
	if err != nil {
		t.Fatal(err)
	}
	_ = health.Body.Close()
	for _, s := range hung {
		s.rest()
	}
	hung = []*streamed{r.stream(5, 0, "X-Request-Id: new")}
	hung[0].rest()
	recs := r.records(streams + 2)
	var failed []*timeline.Record
	for i := range streams {
		rec := byID(t, recs, fmt.Sprintf("hung-%d", i))
		wantTerminal(t, rec, timeline.WorkerLost, "stage_killed")
		wantWorker(t, rec, "talker", r.fake.pids[1], 9)
		if !strings.HasPrefix(fmt.Sprint(rec.Terminal.Evidence["seen_as"]), "deadline-exceeded") {
			t.Errorf("evidence %v", rec.Terminal.Evidence)
		}
		failed = append(failed, rec)
	}
	wantIncident(t, failed, streams, "worker-lost/stage_killed")
	// Nothing ended while this one was in flight: the wire's own verdict stands.
	wantTerminal(t, byID(t, recs, "new"), timeline.DeadlineExceeded, "deadline")
	var table strings.Builder
	if err := report.Tables(all(recs)).Render(&table); err != nil || !strings.Contains(table.String(), "worker-lost/stage_killed 4") {
		t.Errorf("the report has no note: %v\n%s", err, table.String())
	}
}

// TestC60ServerKilled: the API process itself is killed: its stages end with it, and
// its connections.
func TestC60ServerKilled(t *testing.T) {
	const streams = 3
	r := startStagedRig(t, stagedConfig{Stages: fake.Config{Steps: slowly}}, nil)
	var cut []*streamed
	for i := range streams {
		cut = append(cut, r.stream(400, 1, fmt.Sprintf("X-Request-Id: cut-%d", i)))
	}
	kill(t, r.fake.cmd.Process.Pid)
	for _, s := range cut {
		s.rest()
	}
	recs := r.records(streams)
	for _, rec := range recs {
		checkNulls(t, rec)
		if rec.Terminal.State != timeline.TransportError || rec.Terminal.Evidence["worker"] != nil {
			t.Errorf("%s: %s (%s), evidence %v", rec.RequestID, rec.Terminal.State, rec.Terminal.Reason, rec.Terminal.Evidence)
		}
	}
	wantIncident(t, recs, streams, fmt.Sprintf("%s/%s", recs[0].Terminal.State, recs[0].Terminal.Reason))
}

// TestStagesComeAnew: the server is started anew in mid-run: its new stages are found,
// requests have stages again, and those that are gone are no longer watched.
func TestStagesComeAnew(t *testing.T) {
	r := startStagedRig(t, stagedConfig{}, func(f *serveFlags) { f.Stages.Scan = 200 * time.Millisecond })
	r.ask("/v1/chat/completions", fmt.Sprintf(stagedChat, 4), "X-Request-Id: before")
	r.records(1)
	old := r.fake.pids
	r.fake.stop()
	r.fake = startStagedServer(t, stagedConfig{Stages: fake.Config{Truth: r.truth}, Listen: strings.TrimPrefix(r.fake.base, "http://")})
	watched := func() map[int]bool {
		pids := map[int]bool{}
		for _, p := range r.s.stages.set.Status().Processes {
			pids[p.PID] = true
		}
		return pids
	}
	waitCase(t, "the new stages", func() bool {
		w := watched()
		return w[r.fake.pids[0]] && w[r.fake.pids[1]] && w[r.fake.pids[2]]
	})
	for _, pid := range old {
		if watched()[pid] {
			t.Errorf("process %d is gone and still watched", pid)
		}
	}
	r.ask("/v1/chat/completions", fmt.Sprintf(stagedChat, 4), "X-Request-Id: after")
	recs := r.records(2)
	for i, id := range []string{"before", "after"} {
		rec := byID(t, recs, id)
		wantWay(t, rec)
		wantStages(t, rec)
		if pid := [2]int{old[0], r.fake.pids[0]}[i]; len(rec.Stages) > 0 && rec.Stages[0].PID != pid {
			t.Errorf("%s: the thinker is process %d, want %d", id, rec.Stages[0].PID, pid)
		}
	}
}

// TestDeadReaderHoldsNoRecord: where nothing comes from the probes any more, records go
// on without stages, and say why.
func TestDeadReaderHoldsNoRecord(t *testing.T) {
	sink := &caseSink{}
	s := newStages(sink)
	stop := make(chan struct{})
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		s.watch(stop)
	}()
	at := monoNow()
	s.Event(&timeline.Event{RequestID: "x", Event: "terminal", MonoNS: at})
	s.Record(&timeline.Record{RequestID: "x", Flow: "chat", Points: timeline.Points{TIn: &at, TUp: &at, TTerm: &at}})
	waitCase(t, "the record", func() bool {
		sink.mu.Lock()
		defer sink.mu.Unlock()
		return len(sink.records) == 1 && len(sink.events) == 1
	})
	close(stop)
	<-watching
	if rec := sink.records[0]; rec.Stages != nil || rec.Unmeasured["stages"] != unheardOf || rec.Unmeasured["critical_path"] != unheardOf {
		t.Errorf("stages %v, unmeasured %v", rec.Stages, rec.Unmeasured)
	}
	if d := time.Duration(monoNow() - at); d < settle {
		t.Errorf("it was held for %v", d)
	}
}

// TestNoStagesHoldNoRecord: where no stage process was ever found a record goes on at
// once, and says so; from the first one on it waits for what the stages did.
func TestNoStagesHoldNoRecord(t *testing.T) {
	sink := &caseSink{}
	s := newStages(sink)
	s.set = &probes.Set{} // attached, with nothing to watch
	ask := func(id string) {
		at := monoNow()
		s.Event(&timeline.Event{RequestID: id, Event: "terminal", MonoNS: at})
		s.Record(&timeline.Record{RequestID: id, Flow: "chat", Points: timeline.Points{TIn: &at, TUp: &at, TTerm: &at}})
	}
	ask("before")
	if len(sink.records) != 1 || len(sink.events) != 1 {
		t.Fatalf("%d records, %d events", len(sink.records), len(sink.events))
	}
	for _, name := range []string{"stages", "transfers", "critical_path", "cancel_quiesce_ms"} {
		if got := sink.records[0].Unmeasured[name]; got != notFound {
			t.Errorf("%s is null because %q", name, got)
		}
	}
	s.Processes(event.Processes{Processes: []event.Process{{PID: 1, Server: "vllm-omni", Stage: "thinker", Role: "stage"}}})
	s.Processes(event.Processes{}) // it may have died of the request: that is told
	ask("after")
	if len(sink.records) != 1 {
		t.Error("the second record did not wait")
	}
}

// health of the server as the relay tells it names the probes.
func TestHealthTellsStages(t *testing.T) {
	r := startStagedRig(t, stagedConfig{}, nil)
	b, err := json.Marshal(r.s.health())
	if err != nil {
		t.Fatal(err)
	}
	var h struct {
		Stages probes.Status `json:"stages"`
	}
	if err := json.Unmarshal(b, &h); err != nil || len(h.Stages.Processes) != 4 {
		t.Errorf("%v: %s", err, b)
	}
}
