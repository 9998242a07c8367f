package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock"
	fake "github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages"
	"github.com/omnitap/omnitap/probes"
	"github.com/omnitap/omnitap/proxy/tap/capture"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// The field cases of stages go through the real relay with its probes, in front of a
// fake server in a process of its own, with stage processes of its own.

// stagedEnv makes the test binary that server; it holds a stagedConfig.
const stagedEnv = "OMNITAP_CASE_STAGED"

// stagedConfig is what such a server is made with.
type stagedConfig struct {
	Stages    fake.Config
	Unnoticed bool
	Listen    string
}

// stagesChild makes the test binary a stage, a server with stages, or omnitap mock, if
// it was started as one; then it does not return.
func stagesChild() {
	fake.Main()
	if text := os.Getenv(stagedEnv); text != "" {
		if err := serveStaged(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	// A race detector sleeps a second at the end of each process.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")); err != nil {
		panic(err)
	}
}

// serveStaged serves until standard input ends.
func serveStaged(text string) error {
	var c stagedConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	if err := os.Unsetenv(stagedEnv); err != nil {
		return err
	}
	engine, err := fake.Start(context.Background(), c.Stages)
	if err != nil {
		return err
	}
	s, err := mock.New(mock.Config{Seed: 1, Stages: engine, Unnoticed: c.Unnoticed})
	if err != nil {
		return errors.Join(err, engine.Close())
	}
	ln, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return errors.Join(err, engine.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	_, _ = fmt.Println(ln.Addr(), engine.PIDs()) //nolint:forbidigo // the test reads it
	return errors.Join(s.Serve(ctx, ln), engine.Close())
}

// stagedServer is such a server under way.
type stagedServer struct {
	cmd  *exec.Cmd
	in   io.Closer
	base string
	pids [3]int
}

func startStagedServer(t testing.TB, c stagedConfig) *stagedServer {
	t.Helper()
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	s := &stagedServer{cmd: exec.Command(os.Args[0])}
	s.cmd.Env = append(os.Environ(), stagedEnv+"="+string(text))
	s.cmd.Stderr = os.Stderr
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		_, err = fmt.Sscanf(line, "%s [%d %d %d]", &s.base, &s.pids[0], &s.pids[1], &s.pids[2])
	}
	if err != nil {
		t.Fatalf("the server with stages says %q: %v", line, err)
	}
	s.base = "http://" + s.base
	return s
}

// stop ends the server; it may be called again.
func (s *stagedServer) stop() {
	_ = s.in.Close()
	_ = s.cmd.Wait()
}

// stagedRig is the relay with its probes in front of a server with stages.
type stagedRig struct {
	t     testing.TB
	fake  *stagedServer
	truth string
	sink  *caseSink
	s     *service
	addr  string
	once  sync.Once
	end   func()
}

// startStagedRig attaches the probes; without the rights to it skips the test, unless
// they are required.
func startStagedRig(t testing.TB, c stagedConfig, change func(*serveFlags)) *stagedRig {
	t.Helper()
	requireProbes(t)
	required := os.Getenv("REQUIRE_KERNEL") == "1"
	r := &stagedRig{t: t, sink: &caseSink{}, truth: t.TempDir()}
	c.Stages.Truth = r.truth
	r.fake = startStagedServer(t, c)
	f := &serveFlags{fileConfig: fileConfig{
		Upstream: r.fake.base, Listen: "127.0.0.1:0", Admin: "off", Log: "off", Correlation: "auto", Probes: "require", Drain: 5 * time.Second,
		Stages: probes.Config{Names: stageNames(), Budget: 1},
	}}
	if change != nil {
		change(f)
	}
	var complaints bytes.Buffer
	s, err := (&app{io.Discard, &complaints}).build(t.Context(), f, r.sink)
	if errors.Is(err, os.ErrPermission) && !required {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.s, r.addr = s, s.listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx) }()
	r.end = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v\n%s", err, complaints.String())
		}
	}
	t.Cleanup(func() { r.stop() })
	return r
}

// stop ends the relay and returns all records.
func (r *stagedRig) stop() []*timeline.Record {
	r.once.Do(r.end)
	r.sink.mu.Lock()
	defer r.sink.mu.Unlock()
	return slices.Clone(r.sink.records)
}

// records waits until there are n records.
func (r *stagedRig) records(n int) (out []*timeline.Record) {
	r.t.Helper()
	waitCase(r.t, fmt.Sprintf("%d records", n), func() bool {
		r.sink.mu.Lock()
		defer r.sink.mu.Unlock()
		out = slices.Clone(r.sink.records)
		return len(out) >= n
	})
	return out
}

// ask sends a request over a connection of its own and reads the whole answer.
func (r *stagedRig) ask(path, body string, fields ...string) (status int, answer []byte) {
	r.t.Helper()
	return askAt(r.t, "http://"+r.addr+path, body, fields...)
}

func askAt(t testing.TB, url, body string, fields ...string) (status int, answer []byte) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		req.Header.Set(name, value)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Errorf("asking: %v", err)
		return 0, nil
	}
	defer resp.Body.Close()
	if answer, err = io.ReadAll(resp.Body); err != nil {
		t.Errorf("reading an answer: %v", err)
	}
	return resp.StatusCode, answer
}

const (
	stagedChat   = `{"model":"m","stream":true,"modalities":["text","audio"],"messages":[{"role":"user","content":"hi"}],"max_tokens":%d}`
	stagedText   = `{"model":"m","stream":true,"modalities":["text"],"messages":[{"role":"user","content":"hi"}]}`
	stagedRaw    = `{"model":"m","input":"one two three %d","stream_format":"audio","response_format":"pcm"}`
	stagedEvents = `{"model":"m","input":"four five six %d","stream_format":"sse","response_format":"pcm"}`
)

// truthLine is a line of the stages' own account.
type truthLine struct {
	MonoNS      int64  `json:"mono_ns"`
	PID         int    `json:"pid"`
	Stage       string `json:"stage"`
	RequestID   string `json:"request_id"`
	Chunk       int64  `json:"chunk"`
	Event       string `json:"event"`
	Bytes       int64  `json:"bytes"`
	Key         string `json:"key"`
	InternalID  string `json:"internal_id"`
	ToStage     string `json:"to_stage"`
	FromStage   string `json:"from_stage"`
	Misses      int64  `json:"misses"`
	FirstPollNS int64  `json:"first_poll_ns"`
}

// account reads what all processes of the server say.
func (r *stagedRig) account() (out []truthLine) {
	r.t.Helper()
	names, err := filepath.Glob(filepath.Join(r.truth, "truth-*.jsonl"))
	if err != nil || len(names) == 0 {
		r.t.Fatalf("%d files, %v", len(names), err)
	}
	for _, name := range names {
		for line := range strings.Lines(readFile(r.t, name)) {
			var l truthLine
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				r.t.Fatalf("%s: %v", line, err)
			}
			out = append(out, l)
		}
	}
	slices.SortStableFunc(out, func(a, b truthLine) int { return int(a.MonoNS - b.MonoNS) })
	return out
}

// handOver is one transfer by the stages' own account.
type handOver struct {
	key, request, engine, from, to     string
	chunk, bytes, misses               int64
	written, wrote, got, readEnd, poll int64
}

var nextStage = map[string]string{"thinker": "talker", "talker": "code2wav"}

// handOvers are the transfers of the chunks, by the segment's name.
func (r *stagedRig) handOvers() map[string]*handOver {
	r.t.Helper()
	engines := map[string]string{}
	out := map[string]*handOver{}
	at := func(l *truthLine) *handOver {
		if out[l.Key] == nil {
			out[l.Key] = &handOver{key: l.Key, request: l.RequestID, chunk: l.Chunk, bytes: l.Bytes}
		}
		return out[l.Key]
	}
	for _, l := range r.account() {
		switch l.Event {
		case "submit":
			engines[l.RequestID] = l.InternalID
		case "write_start":
			h := at(&l)
			h.written, h.from, h.to = l.MonoNS, l.Stage, nextStage[l.Stage]
		case "write_end":
			at(&l).wrote = l.MonoNS
		case "get_start":
			h := at(&l)
			h.got, h.misses, h.poll = l.MonoNS, l.Misses, l.FirstPollNS
		case "read_end":
			at(&l).readEnd = l.MonoNS
		}
	}
	for _, h := range out {
		h.engine = engines[h.request]
	}
	return out
}

// engineOf is the engine's id in a transfer's name.
func engineOf(key string) string {
	id, _, _ := cutLast(key, "_")
	id, _, _ = cutLast(id, "_")
	return id
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// wantWay checks that the gaps of a record sum to its TTFA.
func wantWay(t testing.TB, rec *timeline.Record) {
	t.Helper()
	if rec.TTFAMS == nil || len(rec.CriticalPath) == 0 {
		t.Errorf("%s: ttfa %v, way %v (%s)", rec.RequestID, rec.TTFAMS, rec.CriticalPath, rec.Unmeasured["critical_path"])
		return
	}
	sum := 0.0
	for _, g := range rec.CriticalPath {
		sum += g.MS
		if g.MS < 0 {
			t.Errorf("%s: the gap %s is %v ms", rec.RequestID, g.Gap, g.MS)
		}
	}
	if math.Abs(sum-*rec.TTFAMS) > 1e-3 {
		t.Errorf("%s: the gaps sum to %v ms, TTFA is %v", rec.RequestID, sum, *rec.TTFAMS)
	}
}

// median of lengths of time.
func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func distance(a, b int64) time.Duration { return time.Duration(max(a-b, b-a)) }

// TestStages: with several requests of all kinds at once every hand-over of every
// request is told once, with its bytes, chunk and times; the capture replayed tells the
// same; requests whose id is on no wire get the work that is theirs.
func TestStages(t *testing.T) {
	film := t.TempDir()
	r := startStagedRig(t, stagedConfig{Stages: fake.Config{Seed: 7}}, func(f *serveFlags) { f.Capture = film })
	r.ask("/v1/chat/completions", fmt.Sprintf(stagedChat, 12), "X-Request-Id: first")
	speeches := []string{"/v1/audio/speech", "/v1/audio/speech", "/v1/audio/speech"}
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			r.ask("/v1/chat/completions", fmt.Sprintf(stagedChat, 8+4*i), fmt.Sprintf("X-Request-Id: chat-%d", i))
		})
		all.Go(func() { r.ask("/v1/chat/completions", fmt.Sprintf(stagedChat, 6+i)) }) // an id of ours
	}
	all.Wait()
	for i, path := range speeches { // at once, and told apart by time alone
		all.Go(func() { r.ask(path, fmt.Sprintf([]string{stagedRaw, stagedEvents}[i%2], i)) })
	}
	r.ask("/v1/chat/completions", stagedText, "X-Request-Id: text")
	all.Wait()
	r.ask("/v1/audio/speech", fmt.Sprintf(stagedRaw, 9))
	const requests = 1 + 6 + 3 + 1 + 1
	r.records(requests)
	if lost := r.s.stages.set.Status().Lost; lost != 0 {
		t.Errorf("%d events were lost", lost)
	}
	recs := r.stop()
	truth := r.handOvers()
	if len(recs) != requests || len(truth) < 5*requests {
		t.Fatalf("%d records, %d transfers", len(recs), len(truth))
	}
	seen := map[string]bool{}
	byTime := 0
	var errs []time.Duration
	for _, rec := range recs {
		checkNulls(t, rec)
		wantTerminal(t, rec, timeline.Success, "done")
		if rec.RequestID == "text" {
			wantUnread(t, rec, truth, seen)
			continue
		}
		if rec.Stages == nil {
			if rec.Flow != "speech" { // several speeches at once may be left open, never wrong
				t.Errorf("%s has no stages: %s", rec.RequestID, rec.Unmeasured["stages"])
			}
			continue
		}
		wantWay(t, rec)
		wantStages(t, rec)
		engine := ""
		for i := range rec.Transfers {
			errs = append(errs, wantHandOver(t, rec, &rec.Transfers[i], truth, seen)...)
			if engine = engineOf(*rec.Transfers[i].Path); rec.Flow == "chat" && !strings.HasPrefix(engine, "chatcmpl-"+rec.RequestID+"-") {
				t.Errorf("%s has a transfer of %s", rec.RequestID, engine)
			}
		}
		if rec.Flow == "speech" {
			byTime++
			wantOwner(t, r, rec, engine)
		}
	}
	for key, h := range truth {
		if !seen[key] && strings.HasPrefix(key, "chatcmpl-") {
			t.Errorf("the transfer %+v is in no record", h)
		}
	}
	if byTime == 0 {
		t.Error("no speech was matched by time")
	}
	// The stages write their account beside the calls themselves: where they were not on
	// a CPU in between, it is the account that is off.
	m := median(errs)
	t.Logf("%d transfers, %d speeches by time, times off by %v, p90 %v, at worst %v", len(seen), byTime, m, errs[len(errs)*9/10], slices.Max(errs))
	if m > 500*time.Microsecond || errs[len(errs)*9/10] > 5*time.Millisecond {
		t.Errorf("times are off by %v, p90 %v", m, errs[len(errs)*9/10])
	}
	wantReplay(t, filepath.Join(film, "stages"), recs)
}

// wantUnread checks a chat without sound: the thinker's chunk lies unread.
func wantUnread(t testing.TB, rec *timeline.Record, truth map[string]*handOver, seen map[string]bool) {
	t.Helper()
	if len(rec.Stages) != 1 || rec.Stages[0].Stage != "thinker" || len(rec.Transfers) != 1 || !rec.Transfers[0].Unread {
		t.Errorf("a text has stages %+v, transfers %+v", rec.Stages, rec.Transfers)
		return
	}
	wantHandOver(t, rec, &rec.Transfers[0], truth, seen)
}

// wantStages checks the order of what the stages of a record did.
func wantStages(t testing.TB, rec *timeline.Record) {
	t.Helper()
	if len(rec.Stages) != 3 {
		t.Errorf("%s has %d stages", rec.RequestID, len(rec.Stages))
		return
	}
	for i := range rec.Stages {
		s := &rec.Stages[i]
		if s.Stage != fake.Names[i] || s.ReadyNS == nil || s.StartNS == nil || s.FinishNS == nil || s.WaitMS == nil || s.ServiceMS == nil {
			t.Errorf("%s: stage %d is %+v", rec.RequestID, i, s)
			continue
		}
		if *s.ReadyNS > *s.StartNS || *s.StartNS > *s.FinishNS || *s.ReadyNS < *rec.Points.TIn || *s.FinishNS > *rec.Points.TTerm {
			t.Errorf("%s, %s: ready %d, start %d, finish %d, not in order within %d to %d", rec.RequestID, s.Stage, *s.ReadyNS, *s.StartNS, *s.FinishNS, *rec.Points.TIn, *rec.Points.TTerm)
		}
		if wait, service := float64(*s.StartNS-*s.ReadyNS)/1e6, float64(*s.FinishNS-*s.StartNS)/1e6; math.Abs(wait-*s.WaitMS) > 1e-3 || math.Abs(service-*s.ServiceMS) > 1e-3 {
			t.Errorf("%s, %s: W_s %v, S_s %v, want %v, %v", rec.RequestID, s.Stage, *s.WaitMS, *s.ServiceMS, wait, service)
		}
		if i > 0 && *s.ReadyNS < *rec.Stages[i-1].StartNS {
			t.Errorf("%s: %s is ready ahead of the start of the stage before", rec.RequestID, s.Stage)
		}
	}
}

// wantHandOver compares a transfer with the stages' account; it returns how far its
// times are off.
func wantHandOver(t testing.TB, rec *timeline.Record, x *timeline.Transfer, truth map[string]*handOver, seen map[string]bool) []time.Duration {
	t.Helper()
	if x.Path == nil || truth[*x.Path] == nil {
		t.Errorf("%s: the stages made no transfer %+v", rec.RequestID, x)
		return nil
	}
	h := truth[*x.Path]
	if seen[h.key] {
		t.Errorf("%s is told twice", h.key)
	}
	seen[h.key] = true
	if x.Transport != "shm" || x.From != h.from || x.To != h.to || x.Bytes == nil || *x.Bytes != h.bytes || x.Chunk == nil || *x.Chunk != h.chunk || x.Unread != (h.readEnd == 0) {
		t.Errorf("%s: transfer %+v, want %+v", rec.RequestID, x, h)
		return nil
	}
	off := []time.Duration{distance(x.StartNS, h.written)}
	if x.EndNS == nil {
		return off
	}
	off = append(off, distance(*x.EndNS, h.readEnd))
	// For the stage a poll that finds a file still empty is a miss too.
	if x.Misses == nil || x.EmptyPolls == nil {
		t.Errorf("%s: misses are not known: %+v", h.key, x)
	} else if n := *x.Misses + *x.EmptyPolls; n != h.misses {
		t.Errorf("%s: %d polls missed and %d met an empty file, the stage counts %d", h.key, *x.Misses, *x.EmptyPolls, h.misses)
	}
	return off
}

// wantOwner checks that the work that a record was given by time alone is its own: the
// samples and the time at which they came fit no other.
func wantOwner(t testing.TB, r *stagedRig, rec *timeline.Record, engine string) {
	t.Helper()
	id, _, _ := cutLast(engine, "-")
	req, err := http.Get(r.fake.base + "/mock/requests")
	if err != nil {
		t.Fatal(err)
	}
	defer req.Body.Close()
	var served []mock.Truth
	if err := json.NewDecoder(req.Body).Decode(&served); err != nil {
		t.Fatal(err)
	}
	for i := range served {
		if s := &served[i]; s.ID == id {
			if d := *rec.Points.TAudio - s.Stamps.FirstAudio.BeforeNS; d < -int64(clockSlack) || d > int64(slack)+s.Stamps.FirstAudio.AfterNS-s.Stamps.FirstAudio.BeforeNS {
				t.Errorf("%s: its first audio lies %v behind that of %s", rec.RequestID, time.Duration(d), id)
			}
			if rec.Audio.SHA256 == nil || *rec.Audio.SHA256 != s.SHA256 {
				t.Errorf("%s has other samples than %s", rec.RequestID, id)
			}
			return
		}
	}
	t.Errorf("%s was given the work of %q, which the server does not know", rec.RequestID, engine)
}

// wantReplay checks that a capture of stage events gives the transfers of the records.
func wantReplay(t testing.TB, dir string, recs []*timeline.Record) {
	t.Helper()
	lines := map[string]transferLine{}
	for line := range strings.Lines(mustRun(t, "replay", "--stages", dir)) {
		var l transferLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Key != nil {
			lines[*l.Key] = l
		}
	}
	value := func(p *int64) int64 {
		if p == nil {
			return -1
		}
		return *p
	}
	for _, rec := range recs {
		for i := range rec.Transfers {
			x := &rec.Transfers[i]
			l, ok := lines[*x.Path]
			end := l.RxEndNS
			if x.Unread {
				end = nil
			}
			if !ok || *l.From != x.From || *l.To != x.To || value(l.Chunk) != value(x.Chunk) || value(l.Bytes) != value(x.Bytes) || value(l.TxStartNS) != x.StartNS || value(end) != value(x.EndNS) || l.Unread != x.Unread {
				t.Errorf("replayed %+v, live %+v", l, x)
			}
		}
	}
}

// TestStagesQueues: with the first generation transfers show by the messages in the
// queues of each stage.
func TestStagesQueues(t *testing.T) {
	r := startStagedRig(t, stagedConfig{Stages: fake.Config{Mode: fake.Queues, ShmThreshold: -1}}, nil)
	for i := range 3 {
		r.ask("/v1/chat/completions", fmt.Sprintf(stagedChat, 6), fmt.Sprintf("X-Request-Id: q-%d", i))
	}
	recs := r.records(3)
	for _, f := range r.s.stages.set.Status().Families {
		if f.Name == "pipe" && (f.State != probes.Attached || f.Lost > 0) {
			t.Errorf("the pipe family is %s, lost %d: %s", f.State, f.Lost, f.Reason)
		}
	}
	account := r.account()
	var off []time.Duration
	for _, rec := range recs {
		checkNulls(t, rec)
		if len(rec.Stages) != 3 || len(rec.Transfers) != 6 {
			t.Errorf("%s: %d stages, %d transfers (%s)", rec.RequestID, len(rec.Stages), len(rec.Transfers), rec.Unmeasured["transfers"])
		}
		for i := range rec.Transfers {
			off = append(off, wantItem(t, rec, &rec.Transfers[i], account)...)
		}
		wantWay(t, rec)
		for _, gap := range []string{
			"relay", "api_in", "submit", "thinker.compute", "thinker->api.in_flight", "api.forward", "thinker->talker.in_flight",
			"talker.compute", "talker->api.in_flight", "talker->code2wav.in_flight", "code2wav.compute", "code2wav->api.in_flight", "api_out",
		} {
			// What was not seen, or lies within the write's return, is told with its neighbour.
			if !slices.ContainsFunc(rec.CriticalPath, func(s timeline.PathStep) bool { return slices.Contains(strings.Split(s.Gap, ".."), gap) }) {
				t.Errorf("%s: no %s on the way %v", rec.RequestID, gap, rec.CriticalPath)
			}
		}
	}
	// The account is of the items, ahead of their way into the pipe and behind it.
	if m := median(off); m > 2*time.Millisecond {
		t.Errorf("times are off by %v", m)
	}
}

// wantItem compares a queue's item with the account of the API process, which all of
// them pass; it returns how far the time is off there.
func wantItem(t testing.TB, rec *timeline.Record, x *timeline.Transfer, account []truthLine) []time.Duration {
	t.Helper()
	if x.Unread || x.EndNS == nil || *x.EndNS < x.StartNS || x.Match != "id" || x.From == x.To {
		t.Errorf("%s: transfer %+v", rec.RequestID, x)
		return nil
	}
	for i := range account {
		l := &account[i]
		switch {
		case l.RequestID != "chatcmpl-"+rec.RequestID:
		case l.Event == "add_sent" && l.ToStage == x.To:
			return []time.Duration{distance(x.StartNS, l.MonoNS)}
		case l.Event == "output_received" && l.FromStage == x.From && x.To == "api":
			return []time.Duration{distance(*x.EndNS, l.MonoNS)}
		}
	}
	t.Errorf("%s: nobody made %+v", rec.RequestID, x)
	return nil
}

// TestC69ProbesLeaveTheBytes: the same requests to servers of the same seed give the
// same bytes on both sides of the relay with probes and without, a traceparent is
// passed on as it is and none is put in.
func TestC69ProbesLeaveTheBytes(t *testing.T) {
	const own = "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	play := func(mode string) (captured map[string]string, answers []string) {
		dir := t.TempDir()
		r := startStagedRig(t, stagedConfig{Stages: fake.Config{Seed: 3}}, func(f *serveFlags) { f.Probes, f.Capture = mode, dir })
		for i := range 6 {
			fields := []string{fmt.Sprintf("X-Request-Id: same-%d", i)}
			if i%2 == 0 {
				fields = append(fields, own)
			}
			_, b := r.ask("/v1/chat/completions", fmt.Sprintf(stagedChat, 5), fields...)
			answers = append(answers, string(b))
		}
		r.stop()
		return captures(t, dir), answers
	}
	off, plain := play("off")
	on, probed := play("require")
	for i := range plain {
		if a, b := sansDates(plain[i]), sansDates(probed[i]); a != b {
			t.Errorf("answer %d differs at %d:\n%.300s\n%.300s", i, differAt(a, b), a, b)
		}
	}
	if len(off) != 6 || len(on) != 6 {
		t.Fatalf("%d and %d captures", len(off), len(on))
	}
	for id, a := range off {
		if b := on[id]; a != b {
			t.Errorf("%s: the bytes differ at %d of %d and %d:\n%.300s\n%.300s", id, differAt(a, b), len(a), len(b), a, b)
		}
		if n := strings.Count(strings.ToLower(a), "traceparent"); n != strings.Count(a, own) {
			t.Errorf("%s: %d traceparents", id, n)
		}
	}
}

// captures reads the bytes of all captured connections, by the request's id, what the
// client sent ahead of what the server did.
func captures(t testing.TB, dir string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.wire.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		r, _, err := capture.NewReader(f)
		sides := map[byte]string{}
		for err == nil {
			var e capture.Event
			e, err = r.Read()
			sides[e.Dir] += string(e.Data)
		}
		_ = f.Close()
		if !errors.Is(err, io.EOF) {
			t.Fatalf("%s: %v", name, err)
		}
		_, id, _ := strings.Cut(sides['c'], "X-Request-Id: ")
		id, _, _ = strings.Cut(id, "\r\n")
		out[id] = sansDates(sides['c'] + sides['s'])
	}
	return out
}

var dates = regexp.MustCompile(`"created":\d+|date: [^\r]*|Host: [^\r]*`)

// sansDates takes out what is of a time or a port, and the order in which text and sound
// came by, which no server promises.
func sansDates(s string) string {
	events := strings.Split(dates.ReplaceAllString(s, ""), "\n\n")
	slices.Sort(events)
	return strings.Join(events, "\n\n")
}
