package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/drive"
	"github.com/omnitap/omnitap/exporter/report"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/rundir/schema"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// The commands, as scripts rely on them: what they print and how they exit.

// commandLimit bounds what a command, or a process of it, may take to end.
const commandLimit = 60 * time.Second

// runApp runs a command in this process.
func runApp(t testing.TB, args ...string) (code int, out, errOut string) {
	t.Helper()
	type result struct {
		code        int
		out, errOut string
	}
	done := make(chan result, 1)
	go func() {
		var out, errOut bytes.Buffer
		code := run(args, &out, &errOut)
		done <- result{code, out.String(), errOut.String()}
	}()
	limit := time.NewTimer(commandLimit)
	defer limit.Stop()
	select {
	case r := <-done:
		return r.code, r.out, r.errOut
	case <-limit.C:
		t.Fatalf("omnitap %q does not end", args)
		return 0, "", ""
	}
}

// mustRun runs a command that has to exit with 0 and returns its output.
func mustRun(t testing.TB, args ...string) string {
	t.Helper()
	code, out, errOut := runApp(t, args...)
	if code != 0 {
		t.Fatalf("omnitap %q = %d, want 0\n%s", args, code, errOut)
	}
	return out
}

// allCaptures returns the recorded connections.
func allCaptures(t testing.TB) []string {
	t.Helper()
	all, err := filepath.Glob("../../testdata/captures/*/*.wire.jsonl*")
	if err != nil || len(all) == 0 {
		t.Fatalf("%d captures, %v", len(all), err)
	}
	return all
}

// webSocket tells the recorded WebSocket connections by their names.
var webSocket = regexp.MustCompile(`/(realtime|duplex-|speech-ws-|video-chat-)`)

// httpCaptures returns the recorded connections that stay HTTP.
func httpCaptures(t testing.TB) []string {
	t.Helper()
	return slices.DeleteFunc(allCaptures(t), webSocket.MatchString)
}

// aCapture is a capture that is not compressed.
const aCapture = "../../testdata/captures/vllm-omni/chat-sse-text-audio.wire.jsonl"

// writeFile writes a file into a folder of the test.
func writeFile(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// wantMode checks the mode of a file or folder.
func wantMode(t testing.TB, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Error(err)
	} else if info.Mode() != want {
		t.Errorf("the mode of %s is %v, want %v", filepath.Base(path), info.Mode(), want)
	}
}

// wantLines splits JSON lines and checks that each is whole and fits the schema.
func wantLines(t testing.TB, text string) []string {
	t.Helper()
	return wantLinesOf(t, schema.Requests, text)
}

func wantLinesOf(t testing.TB, of []byte, text string) []string {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(of))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("line.schema.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("line.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		t.Error("the last line is not whole")
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, l := range lines {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(l))
		if err == nil {
			err = s.Validate(v)
		}
		if err != nil {
			t.Errorf("line %d: %v", i+1, err)
		}
	}
	return lines
}

// TestReplaySessions: each WebSocket capture gives the line of its session, and a
// record for each of its turns, in the order of the turns.
func TestReplaySessions(t *testing.T) {
	t.Parallel()
	captures := slices.DeleteFunc(allCaptures(t), func(name string) bool { return !webSocket.MatchString(name) })
	dir := filepath.Join(t.TempDir(), "run")
	records := wantLines(t, mustRun(t, append([]string{"replay", "--out", dir}, captures...)...))
	lines := wantLinesOf(t, schema.Sessions, readFile(t, filepath.Join(dir, rundir.SessionsFile)))
	if len(lines) != len(captures) || len(captures) == 0 {
		t.Fatalf("%d sessions of %d captures", len(lines), len(captures))
	}
	next := map[uint64]int{} // by connection: two servers' captures share names
	for _, l := range records {
		var r timeline.Record
		if err := json.Unmarshal([]byte(l), &r); err != nil || r.SessionID == nil || r.Turn == nil {
			t.Fatalf("no turn: %v, %s", err, l)
		}
		if *r.Turn != next[r.ConnectionID] {
			t.Errorf("%s: turn %d comes as number %d", *r.SessionID, *r.Turn, next[r.ConnectionID])
		}
		next[r.ConnectionID]++
	}
	for _, l := range lines {
		var s timeline.Session
		if err := json.Unmarshal([]byte(l), &s); err != nil {
			t.Fatal(err)
		}
		ended := 0
		for _, n := range s.States {
			ended += n
		}
		if s.Turns == 0 || s.Turns != next[s.ConnectionID] || ended != s.Turns || s.Analysis != "full" {
			t.Errorf("session %s: %d turns, %d records, states %v, analysis %s", s.SessionID, s.Turns, next[s.ConnectionID], s.States, s.Analysis)
		}
	}
	if table := mustRun(t, "report", dir); !strings.Contains(table, "closed by client") {
		t.Errorf("the report tells nothing of sessions:\n%s", table)
	}
}

// TestReplayTwice: the same captures give the same lines, each a record.
func TestReplayTwice(t *testing.T) {
	t.Parallel()
	args := append([]string{"replay"}, allCaptures(t)...)
	first, second := mustRun(t, args...), mustRun(t, args...)
	if first != second {
		t.Errorf("the second run differs at byte %d", differAt(first, second))
	}
	if n := len(wantLines(t, first)); n < len(args)-1 {
		t.Errorf("%d lines of %d captures", n, len(args)-1)
	}
}

// TestReplayIntoADirectory: the tables are those that report makes of --out.
func TestReplayIntoADirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	captures := httpCaptures(t)
	lines := wantLines(t, mustRun(t, append([]string{"replay"}, captures...)...))
	table := mustRun(t, append([]string{"replay", "--format", "table", "--out", dir}, captures...)...)
	if got := mustRun(t, "report", dir); got != table || !strings.Contains(table, "chat") {
		t.Errorf("report gives other tables (-replay +report):\n%s", cmp.Diff(table, got))
	}
	var r report.Report
	if err := json.Unmarshal([]byte(mustRun(t, "report", "--json", dir)), &r); err != nil {
		t.Errorf("report --json: %v", err)
	}
	if r.Total.Attempts != len(lines) || r.Unreadable != 0 {
		t.Errorf("report --json counts %d attempts, %d lines unreadable, want %d, 0", r.Total.Attempts, r.Unreadable, len(lines))
	}
	if d := cmp.Diff(lines, wantLines(t, readFile(t, filepath.Join(dir, rundir.RequestsFile)))); d != "" {
		t.Errorf("other lines than without --out (-want +got):\n%s", d)
	}
	wantMode(t, dir, fs.ModeDir|0o700)
	if code, _, errOut := runApp(t, "replay", "--out", dir, aCapture); code != exitUsage {
		t.Errorf("a directory with a run: exit %d, %q, want %d", code, errOut, exitUsage)
	}
}

// TestReplayGzip: a compressed capture is the same capture.
func TestReplayGzip(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, readFile(t, aCapture)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(aCapture) + ".gz"
	want := mustRun(t, "replay", aCapture)
	if got := mustRun(t, "replay", writeFile(t, name, b.String())); got != want {
		t.Errorf("other lines (-plain +gzip):\n%s", cmp.Diff(want, got))
	}
	for what, text := range map[string]string{"plain text": readFile(t, aCapture), "nothing": ""} {
		if code, out, errOut := runApp(t, "replay", writeFile(t, name, text)); code != exitUsage || out != "" {
			t.Errorf("%s named .gz: exit %d, %q, want %d", what, code, errOut, exitUsage)
		}
	}
	code, out, errOut := runApp(t, "replay", writeFile(t, name, b.String()[:b.Len()/2]))
	if code != exitUnusable || !strings.Contains(errOut, " is damaged") || len(wantLines(t, out)) != 1 {
		t.Errorf("half a file: exit %d, %q, %d bytes of output, want %d, the line, and a record", code, errOut, len(out), exitUnusable)
	}
}

// TestReplayDamage: what comes ahead of a damaged line is used, and the line named.
func TestReplayDamage(t *testing.T) {
	t.Parallel()
	text, name := readFile(t, aCapture), filepath.Base(aCapture)
	lines := strings.SplitAfter(text, "\n")
	n := strings.Count(text, "\n")
	want := mustRun(t, "replay", aCapture)
	code, out, errOut := runApp(t, "replay", writeFile(t, name, text+`{"t_ns":99,"di`))
	if code != exitUnusable || out != want || !strings.Contains(errOut, fmt.Sprintf("line %d is damaged", n+1)) || !strings.Contains(errOut, name) {
		t.Errorf("a cut line behind the capture: exit %d, %q, want %d and line %d\n%s", code, errOut, exitUnusable, n+1, cmp.Diff(want, out))
	}
	for cut := 3; cut < n; cut += 5 { // within the answer
		damaged := strings.Join(lines[:cut], "") + lines[cut][:len(lines[cut])/2]
		code, out, errOut := runApp(t, "replay", writeFile(t, name, damaged), aCapture)
		if code != exitUnusable || !strings.Contains(errOut, fmt.Sprintf("line %d is damaged", cut+1)) || len(wantLines(t, out)) != 2 {
			t.Errorf("cut in line %d: exit %d, %q, want %d, the line, and two records", cut+1, code, errOut, exitUnusable)
		}
	}
}

// TestUsage: exit codes of what cannot be done as asked.
func TestUsage(t *testing.T) {
	t.Parallel()
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	dir, file := t.TempDir(), writeFile(t, "x.wire.jsonl", "{}\n")
	serve := func(args ...string) []string {
		return append([]string{"serve", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--duration", "1ms"}, args...)
	}
	for _, c := range []struct {
		name string
		want int
		says string
		args []string
	}{
		{"no capture", exitUsage, "no capture", []string{"replay", file}},
		{"no file", exitUsage, "no such file", []string{"replay", filepath.Join(dir, "none")}},
		{"one of two is none", exitUsage, "no such file", []string{"replay", aCapture, filepath.Join(dir, "none")}},
		{"a folder", exitUsage, "no capture", []string{"replay", dir}},
		{"no argument", exitUsage, "", []string{"replay"}},
		{"unknown format", exitUsage, "--format", []string{"replay", "--format", "xml", aCapture}},
		{"no run", exitUsage, "requests.jsonl", []string{"report", dir}},
		{"no command", exitUsage, "unknown command", []string{"sevre"}},
		{"unknown flag", exitUsage, "--lisen", serve("--lisen", ":0")},
		{"an argument", exitUsage, "", serve("http://127.0.0.1:1")},
		{"no upstream", exitUsage, "--upstream", []string{"serve"}},
		{"upstream with a path", exitUsage, "path", serve("--upstream", "http://127.0.0.1:1/v1")},
		{"unknown probes", exitUsage, "--probes", serve("--probes", "maybe")},
		{"probes required", exitEnvironment, "--probes require", []string{"serve", "--upstream", "http://192.0.2.1:9", "--listen", "127.0.0.1:0", "--probes", "require"}},
		{"probes of demo", exitUsage, "--probes must be", []string{"demo", "--probes", "always"}},
		{"stages of mock", exitUsage, "--stages must be", []string{"mock", "--listen", "127.0.0.1:0", "--stages", "vo-3"}},
		{"no request", exitUsage, "--requests", []string{"demo", "--requests", "0"}},
		{"unknown correlation", exitUsage, "correlation", serve("--correlation", "yes")},
		{"unknown log", exitUsage, "--log", serve("--log", "loud")},
		{"no configuration", exitUsage, "no such file", serve("--config", filepath.Join(dir, "none"))},
		{"port taken", exitEnvironment, "address already in use", serve("--listen", held.Addr().String())},
		{"admin port taken", exitEnvironment, "address already in use", serve("--admin", held.Addr().String())},
		{"no folder", exitEnvironment, "not a directory", serve("--out", filepath.Join(file, "run"))},
		{"no capture folder", exitEnvironment, "not a directory", serve("--capture", filepath.Join(file, "caps"))},
		{"certificate alone", exitUsage, "--tls-key", serve("--tls-cert", file)},
		{"no certificate", exitUsage, "", serve("--tls-cert", file, "--tls-key", file)},
		{"no authority", exitUsage, "PEM", serve("--upstream-ca", file)},
		{"unknown fault", exitUsage, "fault", []string{"mock", "--faults", "no-such"}},
		{"mock's port taken", exitEnvironment, "address already in use", []string{"mock", "--listen", held.Addr().String()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errOut := runApp(t, c.args...)
			if code != c.want || !strings.Contains(errOut, c.says) || out != "" {
				t.Errorf("exit %d, says %q, prints %q, want %d, something of %q, nothing", code, errOut, out, c.want, c.says)
			}
		})
	}
	if code, _, errOut := runApp(t, serve()...); code != 0 {
		t.Errorf("and without a fault: exit %d, %q", code, errOut)
	}
}

// TestPortTakenLeavesNoRun: what did not start can be started again.
func TestPortTakenLeavesNoRun(t *testing.T) {
	t.Parallel()
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"serve", "--upstream", "http://127.0.0.1:1", "--listen", held.Addr().String(), "--duration", "1ms", "--out", filepath.Join(t.TempDir(), "run")}
	if code, _, errOut := runApp(t, args...); code != exitEnvironment {
		t.Errorf("port taken: exit %d, %q, want %d", code, errOut, exitEnvironment)
	}
	_ = held.Close()
	if code, _, errOut := runApp(t, args...); code != 0 {
		t.Errorf("the same again with the port free: exit %d, %q, want 0", code, errOut)
	}
}

// TestCheck: what check says of servers, and of none.
func TestCheck(t *testing.T) {
	t.Parallel()
	for dialect, kind := range map[string]string{mock.DialectVLLM: "vLLM or vLLM-Omni", mock.DialectSGLang: "SGLang-Omni", mock.DialectOpenAI: "unknown"} {
		_, base := caseMock(t, mock.Config{Dialect: dialect})
		if out := mustRun(t, "check", "--upstream", base); !strings.Contains(out, "✓ upstream") || !strings.Contains(out, kind) {
			t.Errorf("%s: check prints %q, want the upstream as %s", dialect, out, kind)
		}
		list := map[string]finding{}
		for _, f := range findings(t, mustRun(t, "check", "--json", "--upstream", base)) {
			list[f.Name] = f
		}
		if f := list["upstream"]; !f.OK || !f.Required || !list["health"].OK || !list["receive stamps"].OK || list["server kind"].Found != kind {
			t.Errorf("%s: check --json = %+v, want upstream, health and receive stamps ok, and %s", dialect, list, kind)
		}
	}
	mustRun(t, "check")
	for what, base := range map[string]string{"unreachable": "http://" + freeAddr(t), "no URL": "nonsense"} {
		code, out, errOut := runApp(t, "check", "--upstream", base)
		if code != exitUnusable || !strings.Contains(out, "✗ upstream") || errOut == "" {
			t.Errorf("%s: exit %d, %q, %q, want %d and the upstream crossed", what, code, out, errOut, exitUnusable)
		}
		if code, out, _ := runApp(t, "check", "--json", "--upstream", base); code != exitUnusable || len(findings(t, out)) == 0 {
			t.Errorf("%s: exit %d with --json, want %d", what, code, exitUnusable)
		}
	}
}

func findings(t testing.TB, text string) (list []finding) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Errorf("check --json prints %q: %v", text, err)
	}
	return list
}

// freeAddr returns an address that nobody listens on.
func freeAddr(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// TestDemo: one request of each flow leaves a run directory with a line each.
func TestDemo(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	out := mustRun(t, "demo", "--json", "--requests", "1", "--out", dir)
	var r report.Report
	dec := json.NewDecoder(strings.NewReader(out))
	if err := dec.Decode(&r); err != nil {
		t.Fatalf("demo --json prints %q: %v", out, err)
	}
	n := len(demoRequests())
	for _, s := range drive.Sessions() {
		n += s.Turns
	}
	const bad = 4 // two requests that fail on purpose, two turns that are cut off
	if r.Total.Attempts != n || r.Total.Success != n-bad {
		t.Errorf("%d attempts, %d successes, want %d, %d", r.Total.Attempts, r.Total.Success, n, n-bad)
	}
	if lines := wantLinesOf(t, schema.Sessions, readFile(t, filepath.Join(dir, rundir.SessionsFile))); len(lines) != len(drive.Sessions()) {
		t.Errorf("%d lines in sessions.jsonl, want %d", len(lines), len(drive.Sessions()))
	}
	if lines := wantLines(t, readFile(t, filepath.Join(dir, rundir.RequestsFile))); len(lines) != n {
		t.Errorf("%d lines in requests.jsonl, want %d", len(lines), n)
	}
	if lines := wantLinesOf(t, schema.Quality, readFile(t, filepath.Join(dir, rundir.QualityFile))); len(lines) < 10 {
		t.Errorf("%d lines in quality.jsonl", len(lines))
	}
	wantMode(t, dir, fs.ModeDir|0o700)
	for _, name := range []string{rundir.RequestsFile, rundir.EventsFile, rundir.SessionsFile, rundir.QualityFile, rundir.MetadataFile} {
		wantMode(t, filepath.Join(dir, name), 0o600)
	}
	if got := mustRun(t, "report", "--json", dir); !strings.HasPrefix(out, got) {
		t.Errorf("report gives other tables (-demo +report):\n%s", cmp.Diff(out, got))
	}
	if !json.Valid([]byte(out)) {
		t.Errorf("demo --json prints more than JSON: %q behind it", out[dec.InputOffset():])
	}
}

// relayProcess is omnitap serve in a process of its own.
type relayProcess struct {
	cmd   *exec.Cmd
	addr  string
	ended chan struct{} // closed when the process has been waited for

	mu  sync.Mutex // protects log
	log strings.Builder
}

// buildOmnitap builds the program under test.
func buildOmnitap(t testing.TB) (bin string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	bin = filepath.Join(t.TempDir(), "omnitap")
	args := []string{"build", "-o", bin}
	if raceEnabled() {
		args = append(args, "-race")
	}
	if out, err := exec.CommandContext(ctx, "go", append(args, ".")...).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

var listeningLine = regexp.MustCompile(`(?m)^listening on (\S+), upstream (\S+)$`)

// startServe starts the program's serve and waits until it listens. It is killed
// at the end of the test if it still runs.
func startServe(t testing.TB, bin, upstream string, args ...string) *relayProcess {
	t.Helper()
	p := &relayProcess{ended: make(chan struct{})}
	if !slices.Contains(args, "--probes") {
		args = append(args, "--probes", "off") // most tests have no stages, and attaching takes a second
	}
	p.cmd = exec.Command(bin, append([]string{"serve", "--upstream", upstream, "--listen", "127.0.0.1:0"}, args...)...)
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout = p.cmd.Stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.read(out)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	waitCase(t, "serve to listen", func() bool {
		m := listeningLine.FindStringSubmatch(p.output())
		if m != nil {
			p.addr = m[1]
		}
		return m != nil || p.over()
	})
	if p.addr == "" {
		t.Fatalf("serve ended: %s", p.output())
	}
	return p
}

// read keeps what the process prints, then waits for its end.
func (p *relayProcess) read(r io.Reader) {
	defer close(p.ended)
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		p.mu.Lock()
		p.log.WriteString(line)
		p.mu.Unlock()
		if err != nil {
			break
		}
	}
	_ = p.cmd.Wait() // its state says how it ended
}

// output returns what the process has printed so far.
func (p *relayProcess) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// over reports whether the process has ended.
func (p *relayProcess) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *relayProcess) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// wait waits for the end of the process and returns its exit code, -1 for a
// signal.
func (p *relayProcess) wait(t testing.TB) int {
	t.Helper()
	limit := time.NewTimer(20 * time.Second) // less than the drain limit
	defer limit.Stop()
	select {
	case <-p.ended:
	case <-limit.C:
		p.signal(t, syscall.SIGQUIT) // for its stacks
		<-p.ended
		t.Fatalf("serve does not end; it printed:\n%s", p.output())
	}
	return p.cmd.ProcessState.ExitCode()
}

// stop ends the process in order.
func (p *relayProcess) stop(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(t); code != 0 {
		t.Errorf("serve = %d, want 0: %s", code, p.output())
	}
}

// drains waits until a shutdown has begun: idle, a connection that was opened ahead
// of others, is closed then. No connection is taken any more.
func (p *relayProcess) drains(t testing.TB, idle net.Conn) {
	t.Helper()
	_ = idle.SetDeadline(time.Now().Add(20 * time.Second))
	if n, err := idle.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the idle connection: %d bytes, %v, want its end", n, err)
	}
	waitCase(t, "the listener to close", func() bool { // its socket outlives the last Accept by a moment
		c, err := net.Dial("tcp", p.addr)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
}

// program is the built omnitap; its methods are the tests of serve.
type program struct{ bin string }

// TestServe runs the built program.
func TestServe(t *testing.T) {
	t.Parallel()
	p := program{buildOmnitap(t)}
	t.Run("starts", p.starts)
	t.Run("drains", p.drains)
	t.Run("closes what is idle", p.closesIdle)
	t.Run("ends amid new connections", p.endsAmidConnections)
	t.Run("second signal", p.secondSignal)
	t.Run("killed", p.killed)
	t.Run("keeps runs", p.keepsRuns)
	t.Run("capture", p.captures)
	t.Run("tells no secrets", p.tellsNoSecrets)
	t.Run("twins", p.twins)
	t.Run("twin at shutdown", p.twinAtShutdown)
	t.Run("no twin", p.noTwin)
	t.Run("saves audio", p.savesAudio)
	t.Run("TLS", p.speaksTLS)
	t.Run("certificate replaced", p.followsItsCertificate)
	t.Run("upstream not trusted", p.distrusts)
	t.Run("upstream not reached", p.missesTheServer)
}

func (o program) starts(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{})
	dir := filepath.Join(t.TempDir(), "run")
	p := startServe(t, o.bin, base, "--out", dir)
	if want := fmt.Sprintf("listening on %s, upstream %s\n", p.addr, base); !strings.HasPrefix(p.output(), want) {
		t.Errorf("serve prints %q, want %q first", p.output(), want)
	}
	adminLine := regexp.MustCompile(`(?m)^admin on (http://127\.0\.0\.1:\d+)$`)
	waitCase(t, "the admin line", func() bool { return adminLine.MatchString(p.output()) })
	admin := adminLine.FindStringSubmatch(p.output())[1]
	c := caseDial(t, p.addr)
	if !askOnce(c, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n") {
		t.Error("no answer through the relay")
	}
	var health struct {
		Status string `json:"status"`
		Open   int    `json:"open_connections"`
		Busy   int    `json:"in_flight"`

		Oldest *float64 `json:"oldest_in_flight_ms"`
		Lag    *float64 `json:"read_lag_ms"`
	}
	getJSON(t, admin+"/healthz", &health)
	if health.Status != "ok" || health.Open != 1 || health.Lag == nil || *health.Lag <= 0 || *health.Lag > 5000 {
		t.Errorf("/healthz = %+v, want ok, 1 connection, and a lag", health)
	}
	waitCase(t, "an idle relay", func() bool {
		getJSON(t, admin+"/healthz", &health)
		return health.Busy == 0 && health.Oldest == nil && health.Lag == nil // nothing is not 0
	})
	caseSend(t, c, "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n") // the rest does not come
	waitCase(t, "a request in flight", func() bool {
		getJSON(t, admin+"/healthz", &health)
		return health.Busy == 1 && health.Oldest != nil && *health.Oldest > 0
	})
	leave(c, true)
	p.stop(t)
	if !strings.HasSuffix(p.output(), dir+"\n") {
		t.Errorf("serve prints %q, want the run directory last", p.output())
	}
	if got := mustRun(t, "report", dir); !strings.Contains(got, "other") {
		t.Errorf("report prints %q, want the request", got)
	}
}

func getJSON(t testing.TB, url string, v any) {
	t.Helper()
	client := &http.Client{Timeout: commandLimit, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("GET %s = %s, want 200", url, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		t.Errorf("GET %s: %v", url, err)
	}
}

// heldStream is an upstream that answers with one event, and with the rest and
// FIN when told to go on.
func heldStream(t testing.TB) (base, whole string, goOn func()) {
	t.Helper()
	first := answerHead("text/event-stream") + httpChunk(chatText("Hello"))
	rest := httpChunk(chatText(" world")) + httpChunk(chatFinish) + httpChunk(chatDone) + zeroChunk
	more := make(chan struct{})
	goOn = sync.OnceFunc(func() { close(more) })
	base = caseUpstream(t, func(c *net.TCPConn, _ int) {
		if _, err := readCaseRequest(c); err != nil {
			return
		}
		caseSend(t, c, first)
		<-more
		_, _ = io.WriteString(c, rest)
	})
	t.Cleanup(goOn) // ahead of the upstream's end, which waits for its connections
	return base, first + rest, goOn
}

// openHeld opens a stream through the relay and takes its first event.
func openHeld(t testing.TB, addr string) (c *net.TCPConn, got string) {
	t.Helper()
	c = caseDial(t, addr)
	_ = c.SetDeadline(time.Now().Add(commandLimit))
	caseSend(t, c, chatRequest(caseChatBody))
	buf := make([]byte, 4096)
	for !strings.Contains(got, "Hello") {
		n, err := c.Read(buf)
		if err != nil {
			t.Fatalf("reading behind %q: %v", got, err)
		}
		got += string(buf[:n])
	}
	return c, got
}

// drains: SIGTERM with an open stream, which ends whole.
func (o program) drains(t *testing.T) {
	t.Parallel()
	base, whole, goOn := heldStream(t)
	dir := filepath.Join(t.TempDir(), "run")
	p := startServe(t, o.bin, base, "--out", dir)
	idle := caseDial(t, p.addr)
	c, got := openHeld(t, p.addr)
	p.signal(t, syscall.SIGTERM)
	p.drains(t, idle)
	if p.over() {
		t.Fatalf("serve ended with a stream open: %s", p.output())
	}
	goOn()
	rest, err := io.ReadAll(c)
	if got += string(rest); got != whole || err != nil {
		t.Errorf("the client got %d bytes and %v, want all %d and FIN", len(got), err, len(whole))
	}
	if code := p.wait(t); code != 0 {
		t.Errorf("serve = %d, want 0: %s", code, p.output())
	}
	recs := runRecords(t, dir)
	wantRecords(t, recs, 1)
	wantTerminal(t, recs[0], timeline.Success, "done")
	wantText(t, recs[0], "Hello", " world")
}

// runRecords reads the records of a closed run.
func runRecords(t testing.TB, dir string) (recs []*timeline.Record) {
	t.Helper()
	run, err := rundir.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !run.Closed {
		t.Error("the run is not closed")
	}
	for r, err := range run.Records() {
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, r)
	}
	byConnection(recs)
	return recs
}

// closesIdle: at SIGTERM connections without an exchange are closed at once,
// whether there was one before or not.
func (o program) closesIdle(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{})
	p := startServe(t, o.bin, base)
	used, unused := caseDial(t, p.addr), caseDial(t, p.addr)
	for _, c := range []*net.TCPConn{used, unused} {
		_ = c.SetDeadline(time.Now().Add(15 * time.Second)) // the drain limit is 30 s
	}
	for range 2 {
		if !askOnce(used, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n") {
			t.Error("no answer through the relay")
		}
	}
	p.signal(t, syscall.SIGTERM)
	for name, c := range map[string]*net.TCPConn{"kept": used, "unused": unused} {
		if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("the %s connection: %d bytes, %v, want FIN", name, n, err)
		}
	}
	if code := p.wait(t); code != 0 {
		t.Errorf("serve = %d, want 0: %s", code, p.output())
	}
}

// endsAmidConnections: clients that connect and leave while serve shuts down do not
// hold it up.
func (o program) endsAmidConnections(t *testing.T) {
	t.Parallel()
	base, _, _ := heldStream(t)
	p := startServe(t, o.bin, base)
	var clients sync.WaitGroup
	begun := make(chan struct{}, 4)
	for range 4 {
		clients.Go(func() {
			for n := 0; ; n++ {
				c, err := net.Dial("tcp", p.addr)
				if err != nil {
					return
				}
				_ = c.Close()
				if n == 10 {
					begun <- struct{}{}
				}
			}
		})
	}
	for range 4 {
		<-begun
	}
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(t); code != 0 {
		t.Errorf("serve = %d, want 0: %s", code, p.output())
	}
	clients.Wait()
}

// secondSignal: a second SIGTERM does not wait for the stream.
func (o program) secondSignal(t *testing.T) {
	t.Parallel()
	base, _, _ := heldStream(t)
	p := startServe(t, o.bin, base, "--drain", "5m")
	idle := caseDial(t, p.addr)
	c, _ := openHeld(t, p.addr)
	p.signal(t, syscall.SIGTERM)
	p.drains(t, idle)
	if p.over() {
		t.Fatalf("serve ended at the first signal: %s", p.output())
	}
	waitCase(t, "the end of the process", func() bool { // the first signal may still be on its way
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		return p.over()
	})
	if code := p.wait(t); code == 0 {
		t.Error("serve = 0, want a sign that it was ended")
	}
	if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the stream is still open")
	}
}

// killed: kill -9 takes at most the last 100 ms.
func (o program) killed(t *testing.T) {
	t.Parallel()
	base := caseUpstream(t, func(c *net.TCPConn, _ int) {
		for {
			if _, err := readCaseRequest(c); err != nil {
				return
			}
			if _, err := io.WriteString(c, lengthAnswer("application/json", `{"ok":true}`)); err != nil {
				return
			}
		}
	})
	dir := filepath.Join(t.TempDir(), "run")
	p := startServe(t, o.bin, base, "--out", dir)
	var mu sync.Mutex // protects finished
	finished := map[string]time.Time{}
	var clients sync.WaitGroup
	for i := range 4 {
		c := caseDial(t, p.addr)
		clients.Go(func() {
			pace := time.NewTicker(5 * time.Millisecond)
			defer pace.Stop()
			for n := 0; ; n++ {
				id := fmt.Sprintf("r%d-%d", i, n)
				if !askOnce(c, post("/v1/x", "{}", "X-Request-Id: "+id)) {
					return
				}
				mu.Lock()
				finished[id] = time.Now()
				mu.Unlock()
				<-pace.C
			}
		})
	}
	busy := lateness(500 * time.Millisecond)
	at := time.Now()
	p.signal(t, syscall.SIGKILL)
	p.wait(t)
	clients.Wait()

	seen := map[string]bool{}
	text := readFile(t, filepath.Join(dir, rundir.RequestsFile))
	text = text[:strings.LastIndexByte(text, '\n')+1] // the kill may have cut a write short: every line but that one is whole
	for _, line := range wantLines(t, text) {
		var r timeline.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		seen[r.RequestID] = true
	}
	// on the way to the file lie the loop, two timers and two goroutines, and each waits
	// for its turns on a machine that is busy: there the bound says little
	allowed := 100*time.Millisecond + 20*busy
	old, lost := 0, []string{}
	for id, end := range finished {
		if age := at.Sub(end); age > allowed {
			old++
			if !seen[id] {
				lost = append(lost, fmt.Sprintf("%s of %v before", id, age))
			}
		}
	}
	if old < 10 || len(lost) > 0 {
		t.Errorf("%d requests older than %v (the machine is late by %v), lost: %q, want many and none", old, allowed, busy, lost)
	}
	code, _, errOut := runApp(t, "report", dir)
	if code != 0 || !strings.Contains(errOut, "not closed") {
		t.Errorf("report = %d, says %q, want 0 and that the run was not closed", code, errOut)
	}
}

// lateness returns, after d, how late a thread that wants to run every millisecond
// was at most.
func lateness(d time.Duration) (most time.Duration) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for begin, last := time.Now(), time.Now(); time.Since(begin) < d; {
		<-tick.C
		now := time.Now()
		most, last = max(most, now.Sub(last)-time.Millisecond), now
	}
	return most
}

// keepsRuns: a second run never goes into the first one's directory.
func (o program) keepsRuns(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	p := startServe(t, o.bin, "http://127.0.0.1:1", "--out", dir)
	args := []string{"serve", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--duration", "1ms", "--out", dir}
	if code, _, errOut := runApp(t, args...); code != exitUsage || !strings.Contains(errOut, "unfinished") {
		t.Errorf("beside a running one: exit %d, %q, want %d", code, errOut, exitUsage)
	}
	p.stop(t)
	if code, _, errOut := runApp(t, args...); code != exitUsage || !strings.Contains(errOut, "closed") {
		t.Errorf("behind a closed one: exit %d, %q, want %d", code, errOut, exitUsage)
	}
}

// captures: replaying what serve captured gives what serve recorded.
func (o program) captures(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{Seed: 3})
	dir, caps := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "caps")
	p := startServe(t, o.bin, base, "--out", dir, "--capture", caps)
	if err := (&app{io.Discard, io.Discard}).drive(t.Context(), "http://"+p.addr, &demoFlags{requests: 1, json: true}); err != nil {
		t.Error(err)
	}
	for _, request := range capturedRequests() {
		talkToEnd(t, p.addr, request)
	}
	leaveEarly(t, p.addr, false)
	leaveEarly(t, p.addr, true)
	p.stop(t)

	files, err := filepath.Glob(filepath.Join(caps, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d captures, %v", len(files), err)
	}
	wantMode(t, caps, fs.ModeDir|0o700)
	for _, f := range files {
		wantMode(t, f, 0o600)
	}
	live := wantLines(t, readFile(t, filepath.Join(dir, rundir.RequestsFile)))
	_, out, _ := runApp(t, append([]string{"replay"}, files...)...) // exits with 1: there is a tunnel
	compareReplay(t, live, wantLines(t, out))
}

// capturedRequests are connections beyond those of the demo, each all that a client
// sends.
func capturedRequests() []string {
	script := func(s string) string { return "X-Mock-Script: " + s }
	var out []string
	for _, s := range []string{
		`{"faults":["gzip"]}`, `{"faults":["reset=after:2"]}`, `{"faults":["burst"]}`, `{"faults":["status=429+retry-after:1"]}`,
		`{"faults":["empty-audio"]}`, `{"faults":["segments=1-700"]}`, `{"faults":["no-done"]}`, `{"faults":["lost=100"]}`, `{"faults":["interim=103/103"]}`,
		`{"faults":["bad-chunk-size"]}`, `{"faults":["error=start+form:json"]}`, `{"faults":["odd-bytes"]}`, `{"framing":"close"}`, `{"framing":"length"}`,
		`{"lead_ms":150,"comment_every_ms":5}`, `{"channels":2,"rate":44100,"faults":["cumulative"]}`,
	} {
		out = append(out, post("/v1/chat/completions", caseAudioChat, script(s), "Connection: close"))
	}
	twice := post("/v1/chat/completions", caseChatBody)
	return append(out, twice+post("/v1/audio/speech", caseSpeechBody, "Connection: close"), // pipelined
		post("/v1/audio/speech", caseWAVBody, script(`{"variant":"raw"}`), "X-Request-Id: mine", "Connection: close"),
		"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"+httpChunk(caseChatBody)+zeroChunk,
		"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}",
		post("/v1/chat/completions", `{"stream":true,"messages":[{"role":"user","content":"`+strings.Repeat("long ", 100_000)+`"}]}`, "Connection: close"),
		"nonsense\r\n\r\n",
	)
}

// talkToEnd sends a request and takes all that comes until the server ends.
func talkToEnd(t testing.TB, addr, request string) {
	t.Helper()
	c := caseDial(t, addr)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(commandLimit))
	caseSend(t, c, request)
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("no end behind %.200q", request)
	}
}

// leaveEarly opens a stream and leaves it behind its first bytes.
func leaveEarly(t testing.TB, addr string, reset bool) {
	t.Helper()
	c := caseDial(t, addr)
	caseSend(t, c, chatRequest(caseAudioChat))
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	leave(c, reset)
}

// notInCaptures are the fields that a capture cannot give again: names of the run,
// and what is known of writes and of other connections.
var notInCaptures = []string{
	"run_id", "node", "session_id", "own_delay_us", "client_wait_ms", "points.t_up", "offsets.t_up", "terminal.evidence.after_client_abort_ms",
	"terminal.evidence.cancel_propagated_ms",
}

// compareReplay compares lines as JSON, but for what captures do not hold.
func compareReplay(t testing.TB, live, replayed []string) {
	t.Helper()
	want, got := flatRecords(t, live), flatRecords(t, replayed)
	if len(want) != len(got) {
		t.Errorf("%d records live, %d replayed", len(want), len(got))
	}
	for i := range min(len(want), len(got)) {
		if d := cmp.Diff(want[i], got[i]); d != "" {
			t.Errorf("record %d of connection %s (%s, %s) differs (-live +replay):\n%s", i, want[i]["connection_id"], want[i]["path"], want[i]["terminal.reason"], d)
		}
	}
}

// flatRecords decodes lines into dotted names and values, without what captures do
// not hold, in the order of connections and requests.
func flatRecords(t testing.TB, lines []string) []map[string]string {
	t.Helper()
	out := make([]map[string]string, 0, len(lines))
	for _, l := range lines {
		d := json.NewDecoder(strings.NewReader(l))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		r := map[string]string{}
		flatten(r, "", v)
		if r["request_id_source"] == `"own"` {
			delete(r, "request_id")
		}
		maps.DeleteFunc(r, func(name, _ string) bool {
			name = strings.TrimPrefix(name, "unmeasured.")
			return slices.ContainsFunc(notInCaptures, func(left string) bool { return name == left || strings.HasPrefix(name, left+".") })
		})
		out = append(out, r)
	}
	order := func(r map[string]string) string { return fmt.Sprintf("%6s %20s", r["connection_id"], r["points.t_in"]) }
	slices.SortStableFunc(out, func(a, b map[string]string) int { return strings.Compare(order(a), order(b)) })
	return out
}

// flatten puts decoded JSON into dotted names and values.
func flatten(into map[string]string, name string, v any) {
	if m, ok := v.(map[string]any); ok {
		for key, value := range m {
			flatten(into, strings.TrimPrefix(name+"."+key, "."), value)
		}
		return
	}
	b, _ := json.Marshal(v) // it was JSON
	into[name] = string(b)
}

// secrets marks what must not be told, by where it is sent.
type secrets map[string]string

// mark makes a secret for a place.
func (s secrets) mark(where string) string {
	m := fmt.Sprintf("zq%02dsecretzq", len(s))
	s[m] = where
	return m
}

// secretTraffic makes requests full of secrets, and the answer to each.
func secretTraffic(s secrets) (requests, answers []string) {
	add := func(request, answer string) { requests, answers = append(requests, request), append(answers, answer) }
	fields := []string{"Authorization: Bearer " + s.mark("Authorization"), "Cookie: session=" + s.mark("Cookie"), "X-Api-Key: " + s.mark("X-Api-Key"), "User-Agent: a"}
	prompt := func(where string) string {
		return `{"model":"m","stream":true,"messages":[{"role":"user","content":"` + s.mark(where) + `"}]}`
	}
	events := func(list ...string) string {
		return answerHead("text/event-stream", "Set-Cookie: id="+s.mark("Set-Cookie")) + httpChunk(strings.Join(list, "")) + zeroChunk
	}
	chat := "/v1/chat/completions"
	add(post(chat, prompt("prompt"), fields...), events(chatText(s.mark("text")), chatFinish, chatDone))
	add(post(chat+"?api_key="+s.mark("query"), prompt("prompt behind a query")), events(chatText("x"), chatFinish, chatDone))
	add(post(chat, prompt("refused prompt")), statusAnswer(400, "Bad Request", errorText("cannot read "+s.mark("message of a 400"), 400)))
	add(post(chat, prompt("failing prompt")), statusAnswer(500, s.mark("reason phrase"), "no JSON: "+s.mark("body of a 500")))
	add(post(chat, prompt("prompt of a failing stream")), events(chatText("x"), sseData(errorText("failed at "+s.mark("message in a stream"), 500))))
	add(post(chat, prompt("prompt of a broken stream")), events(sseData(`{"choices":[{"delta":{"content":"`+s.mark("event that is no JSON")), chatDone))
	add(post(chat, prompt("prompt of a bad sound")), events(chatAudio("x"), sseData(`{"choices":[{"delta":{"audio":{"data":"*`+s.mark("bad base64")+`"}}}]}`), chatDone))
	add(post(chat, prompt("prompt of an unknown event")), events("event: "+s.mark("event name")+"\n"+sseData(`{"`+s.mark("unknown key")+`":1}`), ": "+s.mark("comment")+"\n\n", chatDone))
	add(post(chat, prompt("prompt of reasoning")), events(chatDelta(`{"reasoning_content":"`+s.mark("reasoning")+`"}`), chatText("x"), chatFinish, chatDone))
	add(post(chat, `{"messages": "`+s.mark("malformed request")), lengthAnswer("application/json", `{"choices":[{"message":{"content":"`+s.mark("whole text")+`"},"finish_reason":"stop"}]}`))
	add(post("/v1/audio/speech", `{"input":"`+s.mark("speech input")+`","voice":"`+s.mark("voice")+`"}`), lengthAnswer("audio/"+s.mark("media type"), "RIFF"+s.mark("sound")))
	add(post("/v1/audio/speech/batch", `{"items":[{"input":"`+s.mark("batch input")+`"}]}`), lengthAnswer("application/json", `{"results":[{"status":"error","error":"`+s.mark("batch error")+`"}]}`))
	form := "--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\n" + s.mark("form prompt") + "\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + s.mark("file name") + "\"\r\n\r\nRIFF\r\n--b--\r\n"
	add(fmt.Sprintf("POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n%s", len(form), form),
		lengthAnswer("application/json", `{"text":"`+s.mark("transcript")+`"}`))
	add(post("/v1/images/generations", `{"prompt":"`+s.mark("image prompt")+`"}`), lengthAnswer("application/json", `{"data":[{"b64_json":"`+s.mark("image")+`"}]}`))
	add(post("/other", s.mark("other body")), lengthAnswer("text/plain", s.mark("other answer")))
	add(post(chat, prompt("prompt of no answer")), s.mark("answer that is no HTTP")+"\r\n\r\n")
	add(s.mark("request that is no HTTP")+"\r\n\r\n", s.mark("tunnel")+"\r\n\r\n")
	return requests, answers
}

// tellsNoSecrets: nothing of prompts, answers, keys and cookies is written.
func (o program) tellsNoSecrets(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"json", "text"} {
		t.Run(mode, func(t *testing.T) {
			s := secrets{}
			requests, answers := secretTraffic(s)
			up := caseUpstream(t, func(c *net.TCPConn, n int) {
				if _, err := readCaseRequest(c); err == nil {
					caseSend(t, c, answers[n])
				}
			})
			dir := filepath.Join(t.TempDir(), "run")
			withKey := strings.Replace(up, "http://", "http://user:"+s.mark("upstream's password")+"@", 1)
			p := startServe(t, o.bin, withKey, "--out", dir, "--log", mode)
			for _, r := range requests {
				talkToEnd(t, p.addr, r)
			}
			p.stop(t)
			if n := len(runRecords(t, dir)); n != len(requests) {
				t.Errorf("%d records, want %d", n, len(requests))
			}
			told := map[string]string{"log": p.output()}
			for _, name := range []string{rundir.RequestsFile, rundir.EventsFile, rundir.MetadataFile} {
				told[name] = readFile(t, filepath.Join(dir, name))
			}
			if strings.Count(told["log"], "\n") < len(requests) {
				t.Errorf("the log is %q, want a line each", told["log"])
			}
			for _, where := range slices.Sorted(maps.Keys(told)) {
				for m, what := range s {
					if at := strings.Index(told[where], m); at >= 0 {
						t.Errorf("%s tells the %s: …%s…", where, what, told[where][max(0, at-80):at+len(m)])
					}
				}
			}
		})
	}
}

// selfSigned makes a key pair for 127.0.0.1, in PEM.
func selfSigned(t testing.TB, serial int64) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

// placePair puts a key pair into its files, each by a rename.
func placePair(t testing.TB, certFile, keyFile, cert, key string) {
	t.Helper()
	for name, text := range map[string]string{certFile: cert, keyFile: key} {
		if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
}

// trusting returns a client's configuration that trusts these certificates alone.
func trusting(t testing.TB, pems ...string) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	for _, p := range pems {
		if !pool.AppendCertsFromPEM([]byte(p)) {
			t.Fatal("no certificate")
		}
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, NextProtos: []string{"h2", "http/1.1"}}
}

func tlsDial(t testing.TB, addr string, cfg *tls.Config) *tls.Conn {
	t.Helper()
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: commandLimit}, "tcp", addr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(commandLimit))
	return c
}

// secureServer is net/http over TLS, HTTP/2 offered, with its certificate's file.
func secureServer(t testing.TB) (base, caFile string) {
	t.Helper()
	s := httptest.NewUnstartedServer(goMux())
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // handshakes that a test wants to fail
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return s.URL, writeFile(t, "ca.pem", ca)
}

// speaksTLS: TLS on either side and on both; curl and Go's client.
func (o program) speaksTLS(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t, 1)
	certFile, keyFile := writeFile(t, "cert.pem", cert), writeFile(t, "key.pem", key)
	upstream, caFile := secureServer(t)
	plain := startGoServer(t)
	direct := withoutPort(curl(t, "-i", "--cacert", caFile, "-H", "Content-Type: application/json", "-d", caseAudioChat, upstream+"/v1/chat/completions"))
	for _, c := range []struct {
		name, upstream string
		args           []string
		scheme         string
	}{
		{"to clients", plain, []string{"--tls-cert", certFile, "--tls-key", keyFile}, "https"},
		{"to the server", upstream, []string{"--upstream-ca", caFile}, "http"},
		{"both", upstream, []string{"--tls-cert", certFile, "--tls-key", keyFile, "--upstream-ca", caFile}, "https"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			p := startServe(t, o.bin, c.upstream, append(c.args, "--out", dir)...)
			base := c.scheme + "://" + p.addr
			got := curl(t, "-i", "--cacert", certFile, "-H", "Content-Type: application/json", "-d", caseAudioChat, base+"/v1/chat/completions")
			if d := cmp.Diff(direct, withoutPort(got)); d != "" {
				t.Errorf("curl sees a difference (-direct +relayed):\n%s", d)
			}
			if c.scheme == "https" {
				if got := tlsDial(t, p.addr, trusting(t, cert)).ConnectionState().NegotiatedProtocol; got != "http/1.1" {
					t.Errorf("ALPN gives %q, want http/1.1", got)
				}
			}
			var echo struct{ Proto, Host string }
			if err := json.Unmarshal([]byte(curl(t, "--cacert", certFile, base+"/echo")), &echo); err != nil || echo.Proto != "HTTP/1.1" || echo.Host != p.addr {
				t.Errorf("the server sees %+v, %v, want HTTP/1.1 and the client's Host", echo, err)
			}
			p.stop(t)
			recs := runRecords(t, dir)
			recs = slices.DeleteFunc(recs, func(r *timeline.Record) bool { return r.BytesUp == 0 }) // the look at ALPN
			wantRecords(t, recs, 2)
			checkGoChat(t, recs[0])
			for _, r := range recs {
				if r.Stamp != "kernel" {
					t.Errorf("stamp = %s, want kernel", r.Stamp)
				}
			}
		})
	}
}

// followsItsCertificate: the next connection gets the new certificate, and one
// that is there keeps working; a pair that does not fit changes nothing.
func (o program) followsItsCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	oldCert, oldKey := selfSigned(t, 1)
	newCert, newKey := selfSigned(t, 2)
	placePair(t, certFile, keyFile, oldCert, oldKey)
	p := startServe(t, o.bin, startGoServer(t), "--tls-cert", certFile, "--tls-key", keyFile)
	cfg := trusting(t, oldCert, newCert)
	const ask = "GET /file HTTP/1.1\r\nHost: x\r\n\r\n"
	wantSerial := func(when string, want int64) *tls.Conn {
		t.Helper()
		c := tlsDial(t, p.addr, cfg)
		if got := c.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != want {
			t.Errorf("%s: certificate %d, want %d", when, got, want)
		}
		if !askOnce(c, ask) {
			t.Errorf("%s: no answer", when)
		}
		return c
	}
	first := wantSerial("at first", 1)
	placePair(t, certFile, keyFile, newCert, oldKey)
	wantSerial("half replaced", 1)
	placePair(t, certFile, keyFile, newCert, newKey)
	wantSerial("replaced", 2)
	if !askOnce(first, ask) {
		t.Error("the first connection does not work any more")
	}
	if err := os.Remove(certFile); err != nil {
		t.Fatal(err)
	}
	wantSerial("removed", 2)
	p.stop(t)
}

// distrusts: an upstream whose certificate nobody vouches for is not
// spoken to.
func (o program) distrusts(t *testing.T) {
	t.Parallel()
	upstream, _ := secureServer(t)
	dir := filepath.Join(t.TempDir(), "run")
	p := startServe(t, o.bin, upstream, "--out", dir)
	if got := curl(t, "-w", " %{http_code}", "http://"+p.addr+"/file"); !strings.HasSuffix(got, " 502") || strings.Contains(got, "0123456789") {
		t.Errorf("curl got %q, want a 502", got)
	}
	p.stop(t)
	recs := runRecords(t, dir)
	wantRecords(t, recs, 1)
	if recs[0].Terminal.State != timeline.TransportError {
		t.Errorf("terminal = %+v, want a transport error", recs[0].Terminal)
	}
}

// missesTheServer: an upstream that is not there.
func (o program) missesTheServer(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	p := startServe(t, o.bin, "http://"+freeAddr(t), "--out", dir)
	if got := curl(t, "-w", " %{http_code}", "-d", caseChatBody, "http://"+p.addr+"/v1/chat/completions"); !strings.HasSuffix(got, " 502") {
		t.Errorf("curl got %q, want a 502", got)
	}
	p.stop(t)
	recs := runRecords(t, dir)
	wantRecords(t, recs, 1)
	if recs[0].Terminal.State != timeline.TransportError || recs[0].Flow != timeline.FlowChat {
		t.Errorf("flow %s, terminal = %+v, want a chat's transport error", recs[0].Flow, recs[0].Terminal)
	}
}
