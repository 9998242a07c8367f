package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/drive"
	"github.com/omnitap/omnitap/exporter/calibration"
	"github.com/omnitap/omnitap/exporter/report"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/rundir/schema"
	"github.com/omnitap/omnitap/probes"
	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/probes/find"
	"github.com/omnitap/omnitap/probes/host"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// `omnitap run`, as scripts rely on it: what it asks, sends, keeps, seals and says.

// measuring is a run under way in this process.
type measuring struct {
	t         testing.TB
	dir       string
	interrupt context.CancelFunc // as a first signal does
	ended     chan struct{}
	code      int
	out       bytes.Buffer // read after ended

	mu     sync.Mutex // protects errOut
	errOut strings.Builder
}

// Write takes what goes to standard error.
func (r *measuring) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.errOut.Write(p)
}

// said is what it has written to standard error so far.
func (r *measuring) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.errOut.String()
}

// fastScript makes answers of a few milliseconds.
func fastScript() mock.Script {
	return mock.Script{Text: []string{"Hello"}, Chunks: 2, FirstDelayMS: new(2.0), AudioDelayMS: new(1.0), GapMS: mock.Floats{1}}
}

// alone is a run among no processes.
func alone(clocks host.Clocks) *surroundings {
	return &surroundings{clock: host.NewClock(clocks), why: "the test has none"}
}

// startRun starts a run whose directory is a new one of the test.
func startRun(t testing.TB, f *runFlags, args ...string) *measuring {
	t.Helper()
	r := &measuring{t: t, dir: filepath.Join(t.TempDir(), "run"), ended: make(chan struct{})}
	t.Cleanup(func() { _ = os.Chmod(r.dir, 0o700) }) // or nobody but root can take it away
	ctx, cancel := context.WithCancel(context.Background())
	r.interrupt = cancel
	a := &app{&r.out, &shared{w: r}}
	if f.around == nil { // the test's machine has other servers' processes
		f.around = func(context.Context, probes.Config, string) *surroundings { return alone(host.Clocks{}) }
	}
	cmd := f.command(a)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(append([]string{"--out", r.dir}, args...))
	go func() {
		defer close(r.ended)
		err := cmd.ExecuteContext(ctx)
		if err == nil {
			return
		}
		_, _ = fmt.Fprintln(a.errOut, "omnitap:", err)
		r.code = exitUsage
		if e, ok := errors.AsType[*exitError](err); ok {
			r.code = e.code
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-r.ended
	})
	return r
}

// wait waits for the end and wants an exit code, and that something was said.
func (r *measuring) wait(code int, says ...string) *measuring {
	r.t.Helper()
	limit := time.NewTimer(commandLimit)
	defer limit.Stop()
	select {
	case <-r.ended:
	case <-limit.C:
		r.t.Fatalf("the run does not end; it says %s", r.said())
	}
	if r.code != code {
		r.t.Errorf("exit %d, want %d: %s", r.code, code, r.said())
	}
	for _, s := range says {
		if !strings.Contains(r.said(), s) {
			r.t.Errorf("it says %q, nothing of %q", r.said(), s)
		}
	}
	return r
}

// info is what metadata.json says of the run.
func (r *measuring) info() *rundir.RunInfo {
	r.t.Helper()
	run, err := rundir.Read(r.dir)
	if err == nil {
		err = run.MetadataErr
	}
	if err != nil {
		r.t.Fatal(err)
	}
	if run.Metadata.Run == nil {
		r.t.Fatal("metadata.json says nothing of the run")
	}
	return run.Metadata.Run
}

// sealed wants a state, and a seal.
func (r *measuring) sealed(state, reason string) *rundir.RunInfo {
	r.t.Helper()
	info := r.info()
	if info.State != state || info.Reason != reason {
		r.t.Errorf("the run is %s (%s), want %s (%s)", info.State, info.Reason, state, reason)
	}
	wantSealed(r.t, r.dir)
	return info
}

// wantSealed wants a seal that sha256sum and verify agree to.
func wantSealed(t testing.TB, dir string) {
	t.Helper()
	sums := exec.Command("sha256sum", "--strict", "-c", rundir.SumsFile)
	sums.Dir = dir
	if out, err := sums.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v: %s", err, out)
	}
	code, out, errOut := runApp(t, "verify", dir)
	complaints := strings.Count(out, "\nerror: ")
	if readFile(t, filepath.Join(dir, rundir.RequestsFile)) == "" && strings.Contains(out, "error: requests.jsonl: no requests: there is nothing to verify") {
		complaints--
	}
	if complaints != 0 || !strings.Contains(out, "\n  sealed: ") {
		t.Errorf("verify: exit %d: %s%s", code, out, errOut)
	}
}

// phasesOf counts the records of each phase, and those of them that succeeded.
func phasesOf(t testing.TB, dir string) (all, success map[string]int) {
	t.Helper()
	all, success = map[string]int{}, map[string]int{}
	for _, rec := range runRecords(t, dir) {
		all[rec.RunPhase]++
		if rec.Terminal.State == timeline.Success {
			success[rec.RunPhase]++
		}
	}
	return all, success
}

// asking writes an experiment of the least that one must say, and more.
func asking(t testing.TB, more string) string {
	t.Helper()
	return writeFile(t, "experiment.yaml", "question: is it fast?\nprimary: jct_p50\n"+more)
}

// chatLoad is the workload of most experiments.
const chatLoad = "workload: {reference: the built-in chat, concurrency: 4}\n"

// heldLoad is a load generator that tells where the relay is and then waits, while the test
// makes the load.
type heldLoad struct {
	t           testing.TB
	where, done *os.File
	args        []string
}

// holdLoad makes one. script is run ahead of the wait.
func holdLoad(t testing.TB, script string) *heldLoad {
	t.Helper()
	h := &heldLoad{t: t}
	dir := t.TempDir()
	pipe := func(name string) *os.File {
		path := filepath.Join(dir, name)
		err := unix.Mkfifo(path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0) // so that nobody waits for the other end
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	h.where, h.done = pipe("where"), pipe("done")
	h.args = []string{"--", "sh", "-c", script + `echo "$OMNITAP_URL $$ $!" >"$0"; read code <"$1"; exit "$code"`, h.where.Name(), h.done.Name()}
	return h
}

// base waits for the address of the relay, with the process and its child, 0 for none.
func (h *heldLoad) base() (base string, pid, child int) {
	h.t.Helper()
	if err := h.where.SetReadDeadline(time.Now().Add(commandLimit)); err != nil {
		h.t.Fatal(err)
	}
	line := make([]byte, 200)
	n, err := h.where.Read(line)
	if err != nil {
		h.t.Fatalf("waiting for the load: %v", err)
	}
	if _, err := fmt.Sscan(string(line[:n]), &base, &pid); err != nil {
		h.t.Fatalf("the load says %q: %v", line[:n], err)
	}
	_, _ = fmt.Sscan(string(line[:n]), &base, &pid, &child)
	return base, pid, child
}

// end has it end.
func (h *heldLoad) end(code int) {
	h.t.Helper()
	if _, err := fmt.Fprintln(h.done, code); err != nil {
		h.t.Fatal(err)
	}
}

// ask asks for a small chat.
func ask(t testing.TB, base string, fields ...string) {
	t.Helper()
	askAt(t, base+"/v1/chat/completions", `{"model":"m","stream":true,"modalities":["text","audio"],"messages":[{"role":"user","content":"hi"}]}`, fields...)
}

// TestRunWhole: a run from its experiment to its seal, by the built-in requests.
func TestRunWhole(t *testing.T) {
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	text := "# für den Abend\r\nquestion: is it fast?\nprimary: ttfa_p95\nallowed_failure_rate: 0\nslo: {ttfa_ms: 60000}\n" +
		"workload: {reference: the built-in chat, concurrency: 4}\nwarmup: {requests: 5}\nmeasured: {requests: 11} # no line feed"
	f := &runFlags{}
	r := startRun(t, f, "--upstream", base, "--probes", "off", "--experiment", writeFile(t, "x.yaml", text)).wait(0)
	info := r.sealed("complete", "")
	if got := readFile(t, filepath.Join(r.dir, rundir.ExperimentFile)); got != text {
		t.Errorf("experiment.yaml is %q, want it as it was given", got)
	}
	want := &rundir.Experiment{SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(text))), Question: "is it fast?", Primary: "ttfa_p95"}
	if d := cmp.Diff(want, info.Experiment); d != "" || info.Exploratory {
		t.Errorf("exploratory %v: %s", info.Exploratory, d)
	}
	all, success := phasesOf(t, r.dir)
	if d := cmp.Diff(map[string]int{phaseWarmup: 5, phaseMeasured: 11}, all) + cmp.Diff(all, success); d != "" {
		t.Error(d)
	}
	wantSpans(t, r.dir, info.Phases, phaseWarmup, phaseMeasured)
	if info.Child != nil || info.Calibration != nil || info.NoCalibration == "" || info.Contamination != "not_measured" || info.ContaminationWhy == "" {
		t.Errorf("child %v, calibration %v (%s), %s (%s)", info.Child, info.Calibration, info.NoCalibration, info.Contamination, info.ContaminationWhy)
	}
	var clock struct{ Checks int }
	var book struct {
		WallNS int64 `json:"wall_ns"`
	}
	if err := errors.Join(json.Unmarshal(info.Clock, &clock), json.Unmarshal(info.Ledger, &book)); err != nil || clock.Checks < 2 || book.WallNS == 0 {
		t.Errorf("clock %s, ledger %s: %v", info.Clock, info.Ledger, err)
	}
	wantMode(t, r.dir, fs.ModeDir|0o500)
	names, err := filepath.Glob(filepath.Join(r.dir, "*"))
	wantBeside(t, r.dir, info)
	if err != nil || len(names) != 10 { // no logs, no calibration
		t.Errorf("%q, %v", names, err)
	}
	for _, name := range names {
		wantMode(t, name, 0o400)
	}
	out := r.out.String()
	tables, last, _ := strings.Cut(out, r.dir+"\n")
	if last != "" || !strings.HasPrefix(tables, "question: is it fast? (ttfa_p95)\n") || !strings.Contains(tables, "goodput: 11 of 11 requests within the SLO") || !strings.Contains(tables, "state: complete\n") {
		t.Errorf("it prints %q", out)
	}
	if got := mustRun(t, "report", r.dir); got != tables {
		t.Errorf("report prints something else (-run +report):\n%s", cmp.Diff(tables, got))
	}
	var n report.Report
	if err := json.Unmarshal([]byte(mustRun(t, "report", "--json", r.dir)), &n); err != nil || n.Total.Attempts != 11 {
		t.Errorf("report counts %d attempts (%v), want 11", n.Total.Attempts, err)
	}
	for _, c := range n.Checks {
		if c.Passed+c.Failed+c.NotMeasured != 11 {
			t.Errorf("check %s: %+v, want 11 of them", c.Name, c)
		}
	}
	for name, of := range map[string][]byte{rundir.RequestsFile: schema.Requests, rundir.QualityFile: schema.Quality} {
		if lines := wantLinesOf(t, of, readFile(t, filepath.Join(r.dir, name))); len(lines) != 16 {
			t.Errorf("%d lines in %s", len(lines), name)
		}
	}
	if leaked := goroutinesOf("main.(*measurement)", "main.(*surroundings)", "main.(*phases)", "foreign.(*Sampler)"); leaked != "" {
		t.Errorf("still running:\n%s", leaked)
	}
}

// wantSpans wants phases that are there, not empty, and not ahead of their records.
func wantSpans(t testing.TB, dir string, spans []rundir.RunPhase, names ...string) {
	t.Helper()
	at := map[string]rundir.RunPhase{}
	var got []string
	for _, s := range spans {
		got, at[s.Name] = append(got, s.Name), s
		if s.StartNS <= 0 || s.EndNS < s.StartNS {
			t.Errorf("phase %+v", s)
		}
	}
	if d := cmp.Diff(names, got); d != "" {
		t.Error(d)
	}
	for _, rec := range runRecords(t, dir) {
		if s := at[rec.RunPhase]; *rec.Points.TIn < s.StartNS || rec.RunPhase != phaseWarmup && *rec.Points.TTerm > s.EndNS {
			t.Errorf("%s of %+v began at %d and ended at %d", rec.RequestID, s, *rec.Points.TIn, *rec.Points.TTerm)
		}
	}
}

// TestRunJSON: standard output is JSON alone.
func TestRunJSON(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	r := startRun(t, &runFlags{}, "--upstream", base, "--probes", "off", "--block", "3", "--json").wait(0)
	var n report.Report
	if err := json.Unmarshal(r.out.Bytes(), &n); err != nil || n.Total.Attempts != 3 {
		t.Errorf("%d attempts, %v: %s", n.Total.Attempts, err, r.out.String())
	}
	if !strings.HasSuffix(r.said(), r.dir+"\n") {
		t.Errorf("it says %q, want the directory last", r.said())
	}
	if info := r.sealed("complete", ""); !info.Exploratory || info.Experiment != nil {
		t.Errorf("exploratory %v, experiment %v", info.Exploratory, info.Experiment)
	}
	if _, err := os.Stat(filepath.Join(r.dir, rundir.ExperimentFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an exploratory run has an experiment: %v", err)
	}
	if got := mustRun(t, "report", r.dir); !strings.HasPrefix(got, "exploratory: ") {
		t.Errorf("report prints %q", got)
	}
}

// TestRunCommand: the user's command finds the relay and makes the load; what it says is
// kept, and its secrets are not.
func TestRunCommand(t *testing.T) {
	t.Setenv("OPENAI_BASE_URL", "http://192.0.2.1:9/v1") // the user's own, which the relay's replaces
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	const key = "sk-0123456789abcdef0123456789"
	script := `set -e
chat='{"model":"m","stream":true,"modalities":["text","audio"],"messages":[{"role":"user","content":"the prompt"}]}'
for i in 1 2 3; do curl -q -sf --noproxy '*' --max-time 30 -o /dev/null "$OPENAI_BASE_URL/chat/completions" -H "Authorization: Bearer $2" -H 'Content-Type: application/json' -d "$chat"; done
curl -q -sf --noproxy '*' --max-time 30 -o /dev/null "$OMNITAP_URL/v1/audio/speech" -H 'Content-Type: application/json' -d '{"input":"the prompt"}'
echo "$OPENAI_BASE_URL $OMNITAP_URL"
echo 'a complaint' >&2`
	r := startRun(t, &runFlags{}, "--upstream", base, "--probes", "off", "--", "sh", "-c", script, "--api-key", "between us", key).wait(0, "a complaint")
	info := r.sealed("complete", "")
	out, errOut := readFile(t, filepath.Join(r.dir, rundir.StdoutFile)), readFile(t, filepath.Join(r.dir, rundir.StderrFile))
	openai, own, _ := strings.Cut(strings.TrimSuffix(out, "\n"), " ")
	if !strings.HasPrefix(own, "http://127.0.0.1:") || openai != own+"/v1" || own == base {
		t.Errorf("the command prints %q", out)
	}
	if errOut != "a complaint\n" || strings.Contains(r.out.String(), "complaint") || strings.Contains(r.out.String(), own) || !strings.Contains(r.said(), own) {
		t.Errorf("kept %q; it prints %q and says %q", errOut, r.out.String(), r.said())
	}
	if c := info.Child; c == nil || c.ExitCode == nil || *c.ExitCode != 0 || c.Signal != "" || c.Lost != "" || !slices.Equal(c.Args[3:], []string{"--api-key", rundir.Redacted, rundir.Redacted}) {
		t.Errorf("child %+v", c)
	}
	all, success := phasesOf(t, r.dir)
	if d := cmp.Diff(map[string]int{phaseMeasured: 4}, all) + cmp.Diff(all, success); d != "" {
		t.Error(d)
	}
	for _, name := range []string{rundir.MetadataFile, rundir.RequestsFile, rundir.EventsFile, rundir.StderrFile, rundir.TopologyFile} {
		text := readFile(t, filepath.Join(r.dir, name))
		if strings.Contains(text, key) || strings.Contains(text, "between us") || name != rundir.MetadataFile && strings.Contains(text, "the prompt") {
			t.Errorf("%s tells the key, or the prompt", name)
		}
	}
}

// TestRunOpenAIClient: the openai client finds the relay by itself.
func TestRunOpenAIClient(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	script := `import openai
for _ in range(2):
    for event in openai.OpenAI(api_key="none").chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True):
        pass
print("done")`
	r := startRun(t, &runFlags{}, "--upstream", base, "--probes", "off", "--", "env", "NO_PROXY=*", "PYTHONDONTWRITEBYTECODE=1", clientPython(t), "-c", script).wait(0)
	r.sealed("complete", "")
	if got := readFile(t, filepath.Join(r.dir, rundir.StdoutFile)); got != "done\n" {
		t.Errorf("the client prints %q", got)
	}
	if all, success := phasesOf(t, r.dir); all[phaseMeasured] != 2 || success[phaseMeasured] != 2 {
		t.Errorf("%v", all)
	}
}

// TestRunStops: a stop condition ends the command. What was measured can be used, unless
// too much of it failed.
func TestRunStops(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	bad := `X-Mock-Script: {"faults":["status=500"]}`
	lost := `X-Mock-Script: {"faults":["error"],"error_message":"Dead stage process(es) detected: talker (pid=1, exit=-9)"}`
	for _, c := range []struct {
		name, asks string
		requests   []string // the script of each
		reason     string   // a prefix
		code       int
		says       string
	}{
		{"requests", "warmup: {requests: 1}\nstop: {requests: 2}\n", []string{"", "", ""}, "2 requests were measured", 0, ""},
		{"the first failure", "stop: {failure_rate: 0, after: 1}\n", []string{"", bad}, "1 of 2 failed, more than 0 %", exitUnusable, "not usable: 1 of 2 failed, more than 0 %"},
		{"not too many failures", "allowed_failure_rate: 0.5\nstop: {failure_rate: 0.4, after: 2}\n", []string{bad, ""}, "1 of 2 failed, more than 40 %", 0, ""},
		{"duration", "stop: {duration: 1ms}\n", []string{""}, "it had lasted for ", 0, ""},
		{"a stage's end", "allowed_failure_rate: 1\nstop: {worker_lost: true}\n", []string{"", lost}, "a stage's process was lost", 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := holdLoad(t, "")
			r := startRun(t, &runFlags{}, append([]string{"--upstream", base, "--probes", "off", "--experiment", asking(t, chatLoad+c.asks)}, h.args...)...)
			relay, pid, _ := h.base()
			for _, field := range c.requests {
				if field == "" {
					field = "X: y"
				}
				ask(t, relay, field)
			}
			r.wait(c.code, c.says)
			info := r.info()
			if info.State != "stopped" || !strings.HasPrefix(info.Reason, c.reason) {
				t.Errorf("the run is %s (%s), want stopped (%s)", info.State, info.Reason, c.reason)
			}
			wantSealed(t, r.dir)
			if ch := info.Child; ch == nil || ch.Signal != "terminated" || ch.ExitCode != nil || !ended(pid) {
				t.Errorf("child %+v", ch)
			}
			if n := len(runRecords(t, r.dir)); n != len(c.requests) {
				t.Errorf("%d records, want %d", n, len(c.requests))
			}
		})
	}
}

// TestRunStopsAmidRequests: what a stop condition cuts off is no failure of the server's, and
// in no figure.
func TestRunStopsAmidRequests(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	h := holdLoad(t, "")
	experiment := asking(t, chatLoad+"warmup: {requests: 1}\nstop: {requests: 2}\n")
	r := startRun(t, &runFlags{}, append([]string{"--upstream", base, "--probes", "off", "--experiment", experiment}, h.args...)...)
	relay, pid, _ := h.base()
	ask(t, relay)
	c := caseDial(t, strings.TrimPrefix(relay, "http://"))
	caseSend(t, c, post("/v1/chat/completions", fmt.Sprintf(stagedChat, 6), `X-Mock-Script: {"faults":["stall"]}`))
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	ask(t, relay)
	ask(t, relay)
	wantEnded(t, pid)
	leave(c, true) // as the load's own connections do
	r.wait(0)
	info := r.sealed("stopped", "2 requests were measured")
	all, success := phasesOf(t, r.dir)
	if d := cmp.Diff(map[string]int{phaseWarmup: 1, phaseMeasured: 2, phaseCooldown: 1}, all) + cmp.Diff(map[string]int{phaseWarmup: 1, phaseMeasured: 2}, success); d != "" {
		t.Error(d)
	}
	wantSpans(t, r.dir, info.Phases, phaseWarmup, phaseMeasured, phaseCooldown)
	if strings.Contains(r.out.String(), "client-cancelled") {
		t.Errorf("it prints %s", r.out.String())
	}
	var n report.Report
	if err := json.Unmarshal([]byte(mustRun(t, "report", "--json", r.dir)), &n); err != nil || n.Total.Attempts != 2 || len(n.Checks) == 0 || n.Checks[0].Passed+n.Checks[0].Failed+n.Checks[0].NotMeasured != 2 {
		t.Errorf("report counts %+v, %+v (%v)", n.Total, n.Checks, err)
	}
}

// TestRunLasts: phases that are bounded by time, for the built-in requests.
func TestRunLasts(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	for name, c := range map[string]struct {
		asks  string
		warm  bool
		least int // measured requests
		load  string
	}{
		"warm-up":               {"warmup: {duration: 100ms}\nmeasured: {requests: 6}\n", true, 6, chatLoad},
		"measured":              {"warmup: {requests: 2}\nmeasured: {duration: 300ms}\ncalibration: {requests: 1}\n", true, 2, chatLoad},
		"both":                  {"warmup: {duration: 50ms}\nmeasured: {duration: 100ms}\ncalibration: {requests: 1}\n", true, 2, chatLoad},
		"a number and a time":   {"measured: {requests: 3, duration: 1h}\n", false, 3, chatLoad},
		"measured, open loop":   {"measured: {duration: 200ms}\n", false, 1, "workload: {reference: chat, rate: 200}\n"},
		"measured, given times": {"warmup: {requests: 1}\n", true, 3, "workload: {reference: chat, times: [0s, 1ms, 2ms, 3ms]}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRun(t, &runFlags{}, "--upstream", base, "--probes", "off", "--experiment", asking(t, c.load+c.asks)).wait(0)
			r.sealed("complete", "")
			all, success := phasesOf(t, r.dir)
			if n := all[phaseMeasured]; n < c.least || success[phaseMeasured] != n || c.warm != (all[phaseWarmup] > 0) {
				t.Errorf("phases %v, successes %v: %s", all, success, r.said())
			}
			if open := !strings.Contains(c.load, "concurrency"); open != strings.Contains(r.said(), "generator lag: p50 ") {
				t.Errorf("it says %q", r.said())
			}
		})
	}
}

// TestRunUnusable: what makes a run's figures not to be used is said, and the directory is
// sealed all the same.
func TestRunUnusable(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	_, failing := caseMock(t, mock.Config{Script: mock.Script{Faults: []string{"status=500"}}})
	for _, c := range []struct {
		name, upstream, asks string
		cmd                  []string
		records              int
		says                 string
	}{
		{"no request", base, "", []string{"--", "true"}, 0, "not usable: no request was measured"},
		{"warm-up alone", base, "warmup: {requests: 9}\n", []string{"--block", "0"}, 0, ""},
		{"all within the warm-up", base, "warmup: {requests: 9}\n", []string{"--", "sh", "-c", `curl -q -sf --noproxy '*' "$OMNITAP_URL/health"`}, 1, "not usable: no request was measured"},
		{"deadline", base, "deadline: 1us\nmeasured: {requests: 3}\n", nil, 3, "not usable: no request succeeded"},
		{"failures", failing, "allowed_failure_rate: 0.5\nmeasured: {requests: 4}\n", nil, 4, "not usable: no request succeeded"},
		{"no server", "http://127.0.0.1:1", "measured: {requests: 2}\n", nil, 2, "not usable: no request succeeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--upstream", c.upstream, "--probes", "off", "--experiment", asking(t, chatLoad+c.asks)}, c.cmd...)
			if c.says == "" {
				startRun(t, &runFlags{}, args...).wait(exitUsage, "--block")
				return
			}
			r := startRun(t, &runFlags{}, args...).wait(exitUnusable, c.says)
			r.sealed("complete", "")
			recs := runRecords(t, r.dir)
			wantRecords(t, recs, c.records)
			for _, rec := range recs {
				if c.name == "deadline" {
					wantTerminal(t, rec, timeline.DeadlineExceeded, "deadline")
				}
			}
			if !strings.HasSuffix(r.out.String(), r.dir+"\n") {
				t.Errorf("it prints %q, want the directory last", r.out.String())
			}
		})
	}
}

// TestRunRefuses: what cannot be measured as asked makes no directory.
func TestRunRefuses(t *testing.T) {
	t.Parallel()
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close() })
	up := []string{"--upstream", "http://127.0.0.1:1", "--probes", "off"}
	with := func(args ...string) []string { return append(slices.Clone(up), args...) }
	for _, c := range []struct {
		name string
		code int
		says string
		args []string
	}{
		{"no upstream", exitUsage, "--upstream is required", nil},
		{"unknown key", exitUsage, "line 4: unknown key warmpu", with("--experiment", asking(t, chatLoad+"warmpu: {requests: 3}\n"))},
		{"no question", exitUsage, "question is missing", with("--experiment", writeFile(t, "x.yaml", "primary: ttfa_p50\n"+chatLoad))},
		{"no experiment", exitUsage, "no such file", with("--experiment", filepath.Join(t.TempDir(), "none"))},
		{"an empty experiment", exitUsage, "empty", with("--experiment", writeFile(t, "x.yaml", ""))},
		{"no captures", exitUsage, "no such file", with("--requests-from", filepath.Join(t.TempDir(), "none"))},
		{"unknown calibrate", exitUsage, "--calibrate must be auto or off", with("--calibrate", "maybe")},
		{"unknown probes", exitUsage, "--probes must be auto, off or require", with("--probes", "maybe")},
		{"unknown on-over", exitUsage, "--on-over must be", with("--on-over", "maybe")},
		{"demo and upstream", exitUsage, "--demo starts its own server", with("--demo")},
		{"port taken", exitEnvironment, "address already in use", with("--listen", held.Addr().String())},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := startRun(t, &runFlags{}, c.args...).wait(c.code, c.says)
			if _, err := os.Stat(r.dir); !errors.Is(err, fs.ErrNotExist) || r.out.Len() > 0 {
				t.Errorf("it prints %q, and the directory: %v", r.out.String(), err)
			}
		})
	}
}

// TestRunKeepsRuns: a run never goes into the directory of another, and says what is there.
func TestRunKeepsRuns(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	h := holdLoad(t, "")
	r := startRun(t, &runFlags{}, append([]string{"--upstream", base, "--probes", "off"}, h.args...)...)
	relay, _, _ := h.base()
	into := func(dir string) []string {
		return []string{"run", "--upstream", base, "--probes", "off", "--block", "1", "--out", dir}
	}
	notes := filepath.Dir(writeFile(t, "notes.txt", "mine"))
	if code, _, errOut := runApp(t, into(notes)...); code != exitUsage || !strings.Contains(errOut, notes+" is not empty: it holds notes.txt") {
		t.Errorf("into a folder with something else: exit %d, %q", code, errOut)
	}
	again := into(r.dir)
	if code, out, errOut := runApp(t, again...); code != exitUsage || !strings.Contains(errOut, r.dir+" (unfinished: still running, or it crashed)") || out != "" {
		t.Errorf("beside a running one: exit %d, %q, %q", code, out, errOut)
	}
	ask(t, relay)
	h.end(0)
	r.wait(0)
	if code, out, errOut := runApp(t, again...); code != exitUsage || !strings.Contains(errOut, r.dir+" (sealed)") || out != "" {
		t.Errorf("behind a sealed one: exit %d, %q, %q", code, out, errOut)
	}
	r.sealed("complete", "")
}

// TestRunExperimentChanged: the experiment in the directory is the one from before the first
// request, or nothing that it says holds.
func TestRunExperimentChanged(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	const line = "experiment.yaml was changed after the run began"
	changed := func(r *measuring) {
		t.Helper()
		if code, _, errOut := runApp(t, "verify", r.dir); code != exitUnusable || !strings.Contains(errOut, line) {
			t.Errorf("verify: exit %d, %q", code, errOut)
		}
		if got := mustRun(t, "report", r.dir); !strings.Contains(got, line) || strings.Contains(got, "goodput") {
			t.Errorf("report prints %q", got)
		}
	}
	experiment := asking(t, "workload: {reference: chat}\nslo: {jct_ms: 10}\n")
	h := holdLoad(t, "")
	r := startRun(t, &runFlags{}, append([]string{"--upstream", base, "--probes", "off", "--experiment", experiment}, h.args...)...)
	relay, _, _ := h.base()
	ask(t, relay)
	// The user's own file is not the run's any more.
	if err := os.WriteFile(experiment, []byte("question: another\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(r.dir, rundir.ExperimentFile), "jct_ms: 10", "jct_ms: 10000")
	h.end(0)
	r.wait(exitUnusable, line)
	changed(r)

	r = startRun(t, &runFlags{}, "--upstream", base, "--probes", "off", "--block", "1", "--experiment", asking(t, chatLoad)).wait(0)
	r.sealed("complete", "")
	edit(t, filepath.Join(r.dir, rundir.ExperimentFile), "is it fast?", "is it slow?")
	changed(r)
}

// edit changes a text in a file.
func edit(t testing.TB, name, before, after string) {
	t.Helper()
	text := readFile(t, name)
	if !strings.Contains(text, before) {
		t.Fatalf("%s holds no %q", name, before)
	}
	_ = os.Chmod(name, 0o600)
	if err := os.WriteFile(name, []byte(strings.Replace(text, before, after, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRunSessions: turns of WebSocket sessions have a phase like requests do.
func TestRunSessions(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{})
	h := holdLoad(t, "")
	experiment := asking(t, "workload: {reference: sessions}\nwarmup: {requests: 2}\nallowed_failure_rate: 1\n")
	r := startRun(t, &runFlags{}, append([]string{"--upstream", base, "--probes", "off", "--experiment", experiment}, h.args...)...)
	relay, _, _ := h.base()
	ask(t, relay)
	var all sync.WaitGroup
	for _, s := range drive.Sessions() {
		all.Go(func() {
			if err := s.Run(t.Context(), relay); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
		})
	}
	all.Wait()
	h.end(0)
	r.wait(0)
	r.sealed("complete", "")
	phases, _ := phasesOf(t, r.dir)
	turns := 0
	for _, s := range drive.Sessions() {
		turns += s.Turns
	}
	if phases[phaseWarmup] < 2 || phases[phaseMeasured] == 0 || phases[phaseWarmup]+phases[phaseMeasured] != turns+1 {
		t.Errorf("%v of %d turns and a request", phases, turns)
	}
}

// TestRunCalibrates: with stages the probes' cost is measured first and is in the directory;
// the server's processes are in the ledger, and foreign CPU use is known.
func TestRunCalibrates(t *testing.T) {
	requireProbes(t)
	experiment := asking(t, chatLoad+"warmup: {requests: 2}\nmeasured: {requests: 6}\nforeign_cores_limit: 1000\ncalibration: {blocks: 8, requests: 4, on_over: report, budget: 0.9}\n")
	r := startRun(t, &runFlags{around: newSurroundings}, "--demo", "--probes", "require", "--experiment", experiment).wait(0, "calibration: 8 blocks: ")
	info := r.sealed("complete", "")
	f := calibrationOf(t, readFile(t, filepath.Join(r.dir, rundir.CalibrationFile)))
	if info.Calibration == nil || info.Calibration.Verdict != string(f.Result.Verdict) || info.Calibration.Budget != 0.9 || info.NoCalibration != "" || len(f.Attempts) != 1 {
		t.Fatalf("%+v, %q; %+v", info.Calibration, info.NoCalibration, f.Result)
	}
	wantBlocks(t, &f.Attempts[0], 4)
	recs := runRecords(t, r.dir)
	wantRecords(t, recs, 8)
	for _, rec := range recs {
		if rec.RunID != f.RunID || rec.Stages == nil || f.Attempts[0].Blocks[7].EndNS > *rec.Points.TIn {
			t.Errorf("%s of %s (the calibration is of %s), stages: %v", rec.RequestID, rec.RunID, f.RunID, rec.Unmeasured["stages"])
		}
	}
	var book struct {
		Processes []struct{ Stage string }
	}
	if err := json.Unmarshal(info.Ledger, &book); err != nil || len(book.Processes) < 4 {
		t.Errorf("%d processes in the ledger: %v", len(book.Processes), err)
	}
	if info.Contamination != "clean" || !strings.Contains(r.out.String(), "foreign CPU: clean (other processes took ") {
		t.Errorf("contamination %s (%s)", info.Contamination, info.ContaminationWhy)
	}
}

// TestRunUnprobed: where the probes cannot be had the run goes on without and says so;
// where they must be it ends ahead of its load, sealed.
func TestRunUnprobed(t *testing.T) {
	t.Parallel()
	const elsewhere = "192.0.2.1 is another machine"
	r := startRun(t, &runFlags{}, "--upstream", "http://192.0.2.1:9", "--", "true").wait(exitUnusable, elsewhere, "no request was measured")
	if info := r.sealed("complete", ""); info.NoCalibration == "" {
		t.Error("it does not say why nothing was calibrated")
	}
	var watched topology
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(r.dir, rundir.TopologyFile))), &watched); err != nil || watched.Stages != nil || !strings.Contains(watched.Unprobed, elsewhere) {
		t.Errorf("topology.json: %+v, %v", watched, err)
	}
	r = startRun(t, &runFlags{}, "--upstream", "http://192.0.2.1:9", "--probes", "require", "--", "true").wait(exitEnvironment, "--probes require: ", elsewhere)
	info := r.info()
	if info.State != "failed" || !strings.HasPrefix(info.Reason, "it ended before the load began: --probes require: ") || !strings.Contains(info.Reason, elsewhere) || info.Child != nil {
		t.Errorf("the run is %s (%s), its child %+v", info.State, info.Reason, info.Child)
	}
	wantSealed(t, r.dir)
	wantRecords(t, runRecords(t, r.dir), 0)
}

// foundSource finds the processes of a test.
type foundSource struct {
	probes.Source
	result find.Result
}

func (s *foundSource) Scan() (find.Result, error) { return s.result, nil }

// TestRunAmongOthers: where it is not known whose the processes are that were found, the
// account says so.
func TestRunAmongOthers(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	self := []event.Process{{PID: os.Getpid(), Role: "api"}}
	const taken = "port 1 is process 2, no server that was found: every stage process found is taken"
	for name, c := range map[string]struct {
		found find.Result
		why   string // how the reason ends
	}{
		"ours":   {find.Result{Processes: self, Root: os.Getpid(), Why: "process 1 listens on port 1"}, "of 1000"},
		"unsure": {find.Result{Processes: self, Why: taken}, "of 1000; but " + taken},
	} {
		f := &runFlags{around: func(context.Context, probes.Config, string) *surroundings {
			s := alone(host.Clocks{})
			s.finder = &foundSource{result: c.found}
			return s
		}}
		experiment := asking(t, chatLoad+"measured: {requests: 60}\nforeign_cores_limit: 1000\n")
		r := startRun(t, f, "--upstream", base, "--probes", "off", "--experiment", experiment).wait(0)
		info := r.sealed("complete", "")
		if info.ServerFound != c.found.Why || info.Contamination != "clean" || !strings.HasSuffix(info.ContaminationWhy, c.why) {
			t.Errorf("%s: %q, %s (%s)", name, info.ServerFound, info.Contamination, info.ContaminationWhy)
		}
	}
}

// idler is a process that is no descendant of ours and takes all of a CPU until the test's
// end.
func idler(t testing.TB) {
	t.Helper()
	out, err := exec.Command("sh", "-c", "while :; do :; done >/dev/null 2>&1 & echo $!").Output() // its parent is gone
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(out), &pid); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	t.Cleanup(func() { kill(t, pid) })
}

// TestRunStopsContaminated: foreign CPU use over the limit ends a run that asks for that, and
// marks it, sealed.
func TestRunStopsContaminated(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	f := &runFlags{around: func(context.Context, probes.Config, string) *surroundings {
		s := alone(host.Clocks{})
		s.finder = &foundSource{result: find.Result{Processes: []event.Process{{PID: os.Getpid(), Role: "api"}}, Root: os.Getpid()}}
		return s
	}}
	h := holdLoad(t, "")
	experiment := asking(t, chatLoad+"allowed_failure_rate: 1\nforeign_cores_limit: 0.05\nstop: {contaminated: true}\n")
	r := startRun(t, f, append([]string{"--upstream", base, "--probes", "off", "--experiment", experiment}, h.args...)...)
	relay, pid, _ := h.base()
	ask(t, relay)
	idler(t)
	r.wait(exitUnusable, "not usable: contaminated (")
	wantEnded(t, pid)
	info := r.info()
	if info.State != "stopped" || !strings.HasPrefix(info.Reason, "other processes used ") || !strings.HasSuffix(info.Reason, " cores, more than 0.05") || info.Contamination != "contaminated" {
		t.Errorf("the run is %s (%s), %s (%s)", info.State, info.Reason, info.Contamination, info.ContaminationWhy)
	}
	wantSealed(t, r.dir)
	wantRecords(t, runRecords(t, r.dir), 1)
}

// costly is a calibration whose probes cost a tenth.
func costly(budget float64) calibration.File {
	cfg := calibration.Config{Budget: budget}
	var blocks []calibration.Block
	for i := range 2 * calibration.DefaultMinPairs {
		b := calibration.Block{Index: i, Attached: calibration.Attached(i), StartNS: int64(i) * 1e9, EndNS: int64(i)*1e9 + 5e8, Attempts: 100, Success: 100}
		ms := 100 + 0.01*float64(i)
		if b.Attached {
			ms, b.Probes = 1.1*ms, []string{"shm"}
		} else {
			b.Detached = calibration.Verified
		}
		for range b.Attempts {
			b.TTFT, b.TTFA, b.JCT = append(b.TTFT, ms), append(b.TTFA, ms), append(b.JCT, ms)
		}
		blocks = append(blocks, b)
	}
	r := calibration.Judge(blocks, cfg)
	return calibration.File{Schema: 1, Config: cfg.WithDefaults(), Source: "a test", OnOver: "stop", Result: r, Attempts: []calibration.Attempt{{Blocks: blocks, Result: r}}}
}

// TestRunOverBudget: probes over budget end a run ahead of its load, unless it is to go on;
// its directory is sealed, can be read, and is of no use in a comparison.
func TestRunOverBudget(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	cost := func(context.Context) (calibration.File, string, error) { return costly(0.02), "", nil }
	for _, onOver := range []string{"stop", "report"} {
		experiment := asking(t, chatLoad+"measured: {requests: 3}\ncalibration: {budget: 0.02, on_over: "+onOver+"}\n")
		r := startRun(t, &runFlags{cost: cost}, "--upstream", base, "--experiment", experiment)
		if onOver == "report" {
			r.wait(0)
			wantRecords(t, runRecords(t, r.dir), 3)
			if info := r.sealed("complete", ""); info.Calibration == nil || info.Calibration.Verdict != "over budget" {
				t.Errorf("%+v", info.Calibration)
			}
			continue
		}
		const why = "the probes cost more than 2 %: see calibration.json"
		r.wait(exitUnusable, "omnitap: "+why)
		info := r.sealed("failed", "it ended before the load began: "+why)
		if info.Energy != nil || info.NoEnergy == "" {
			t.Errorf("energy %+v (%s)", info.Energy, info.NoEnergy)
		}
		if info.Calibration == nil || info.Calibration.Verdict != "over budget" || info.Calibration.Budget != 0.02 || info.Child != nil {
			t.Errorf("calibration %+v, child %+v", info.Calibration, info.Child)
		}
		if f := calibrationOf(t, readFile(t, filepath.Join(r.dir, rundir.CalibrationFile))); f.Result.Verdict != calibration.Over || len(f.Attempts[0].Blocks) != 8 || f.RunID == "" {
			t.Errorf("calibration.json: %+v", f.Result)
		}
		wantRecords(t, runRecords(t, r.dir), 0)
		if got := mustRun(t, "report", r.dir); !strings.Contains(got, "state: failed (it ended before the load began: "+why+")") || !strings.Contains(got, "probes: over budget (2 %)") {
			t.Errorf("report prints %q", got)
		}
		if code, _, errOut := runApp(t, "compare", r.dir, "--", r.dir); code != exitUnusable || !strings.Contains(errOut, "holds no record that was measured") {
			t.Errorf("compare: exit %d: %s", code, errOut)
		}
	}
}

// TestRunTLS: with a certificate the command finds the relay by https; the built-in requests
// need none.
func TestRunTLS(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	cert, key := selfSigned(t, 1)
	placePair(t, certFile, keyFile, cert, key)
	config := writeFile(t, "c.yaml", fmt.Sprintf("tls_cert: %s\ntls_key: %s\n", certFile, keyFile))
	common := []string{"--upstream", base, "--probes", "off", "--config", config}
	script := `echo "$OPENAI_BASE_URL $OMNITAP_URL"; exec curl -q -sf --noproxy '*' --max-time 30 --cacert "$0" -o /dev/null "$OPENAI_BASE_URL/chat/completions" -H 'Content-Type: application/json' -d '{"model":"m","messages":[]}'`
	r := startRun(t, &runFlags{}, append(slices.Clone(common), "--", "sh", "-c", script, certFile)...).wait(0)
	r.sealed("complete", "")
	openai, own, _ := strings.Cut(strings.TrimSuffix(readFile(t, filepath.Join(r.dir, rundir.StdoutFile)), "\n"), " ")
	if !strings.HasPrefix(own, "https://127.0.0.1:") || openai != own+"/v1" {
		t.Errorf("the command finds %q and %q", openai, own)
	}
	wantRecords(t, runRecords(t, r.dir), 1)
	r = startRun(t, &runFlags{}, append(slices.Clone(common), "--block", "3")...).wait(0)
	r.sealed("complete", "")
	if all, success := phasesOf(t, r.dir); all[phaseMeasured] != 3 || success[phaseMeasured] != 3 {
		t.Errorf("%v, successes %v", all, success)
	}
}

// TestRunClockStep: a step of the wall clock is in the account, and changes no figure.
func TestRunClockStep(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	clocks, wall := host.SystemClocks(), host.SystemClocks().Wall
	var moved atomic.Int64
	clocks.Wall = func() int64 { return wall() + moved.Load() }
	h := holdLoad(t, "")
	f := &runFlags{around: func(context.Context, probes.Config, string) *surroundings { return alone(clocks) }}
	r := startRun(t, f, append([]string{"--upstream", base, "--probes", "off"}, h.args...)...)
	relay, _, _ := h.base()
	ask(t, relay)
	moved.Store(-int64(time.Hour))
	ask(t, relay)
	h.end(0)
	r.wait(0)
	info := r.sealed("complete", "")
	var clock host.ClockReport
	if err := json.Unmarshal(info.Clock, &clock); err != nil || clock.StepCount != 1 || len(clock.Steps) != 1 {
		t.Fatalf("%s: %v", info.Clock, err)
	}
	if d := clock.Steps[0].StepNS + int64(time.Hour); d < -clock.Steps[0].UncertaintyNS || d > clock.Steps[0].UncertaintyNS {
		t.Errorf("a step of %v", time.Duration(clock.Steps[0].StepNS))
	}
	if !strings.Contains(r.out.String(), "clock: the wall clock was set while it ran, once by -1h0m0s: times of day are not comparable\n") {
		t.Errorf("it prints %q", r.out.String())
	}
}

// goroutinesOf are the stacks that any of these names is in, once others have had their turn.
func goroutinesOf(names ...string) string {
	var left string
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		left = ""
		for stack := range strings.SplitSeq(string(buf), "\n\n") {
			if slices.ContainsFunc(names, func(n string) bool { return strings.Contains(stack, n) }) {
				left += stack + "\n\n"
			}
		}
		if left == "" {
			break
		}
	}
	return left
}
