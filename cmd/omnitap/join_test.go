package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	fake "github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages"
	"github.com/omnitap/omnitap/exporter/nodes"
	"github.com/omnitap/omnitap/exporter/report"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// ahead is the relay's clock against the kernel's, in seconds: it lives in a time
// namespace of its own, as if on another machine.
const ahead = 5000

// elsewhere is a relay on another clock.
type elsewhere struct {
	*relayProcess
	admin string
}

func startElsewhere(t testing.TB, upstream, dir string) elsewhere {
	t.Helper()
	p := &relayProcess{ended: make(chan struct{})}
	p.cmd = exec.Command("unshare", "--time", "--monotonic", fmt.Sprint(ahead), "--fork", "--kill-child", os.Args[0], "serve", "--upstream", upstream,
		"--listen", "127.0.0.1:0", "--probes", "off", "--correlation", "inject", "--node", "relay", "--out", dir)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.read(out)
	t.Cleanup(func() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.ended
	})
	e := elsewhere{relayProcess: p}
	waitCase(t, "the relay to listen", func() bool {
		for line := range strings.Lines(p.output()) {
			if at, ok := strings.CutPrefix(strings.TrimSpace(line), "admin on "); ok {
				e.admin = at
			}
		}
		if m := listeningLine.FindStringSubmatch(p.output()); m != nil {
			p.addr = m[1]
		}
		return p.addr != "" && e.admin != "" || p.over()
	})
	if p.over() {
		t.Fatalf("the relay ended: %s", p.output())
	}
	return e
}

// end asks the relay itself to end: unshare does not pass signals on.
func (e *elsewhere) end(t testing.TB) {
	t.Helper()
	if err := syscall.Kill(-e.cmd.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	e.wait(t)
}

// startAgent starts an agent in a process of its own, and waits until it watches.
func startAgent(t testing.TB, dir string, args ...string) *relayProcess {
	t.Helper()
	p := &relayProcess{ended: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0], append([]string{"serve", "--role", "agent", "--out", dir}, args...)...)
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.read(out)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	waitCase(t, "the agent to watch", func() bool { return strings.Contains(p.output(), "agent on ") || p.over() })
	if p.over() {
		t.Fatalf("the agent ended: %s", p.output())
	}
	return p
}

// TestNodes: the stages run on one clock and the relay on another one. The joined run says
// of each request what its stages did, as they themselves account for it, in the relay's time.
func TestNodes(t *testing.T) {
	requireProbes(t)
	truth, dir := t.TempDir(), t.TempDir()
	server := startStagedServer(t, stagedConfig{Stages: fake.Config{Truth: truth}})
	relay := startElsewhere(t, server.base, filepath.Join(dir, "run"))
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte("stages: {budget: 0.9, names: {0: thinker, 1: talker, 2: code2wav}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := startAgent(t, filepath.Join(dir, "part"), "--node", "stages", "--clock", relay.admin, "--config", config)
	deaf := startAgent(t, filepath.Join(dir, "deaf"), "--node", "deaf", "--config", config)
	const asked = 3
	for i := range asked {
		askAt(t, "http://"+relay.addr+"/v1/chat/completions", fmt.Sprintf(stagedChat, 6), fmt.Sprintf("X-Request-Id: n-%d", i))
	}
	waitCase(t, "the records", func() bool {
		return strings.Count(readFile(t, filepath.Join(dir, "run", rundir.RequestsFile)), "\n") == asked
	})
	agent.stop(t)
	deaf.stop(t)
	relay.end(t)

	joined := filepath.Join(dir, "joined")
	mustRun(t, "join", "--out", joined, filepath.Join(dir, "run"), filepath.Join(dir, "part"))
	t.Cleanup(func() { _ = os.Chmod(joined, 0o700) })
	mustRun(t, "verify", joined)
	wantMode(t, joined, fs.ModeDir|0o500)
	recs := recordsIn(t, joined)
	if len(recs) != asked {
		t.Fatalf("%d records of %d", len(recs), asked)
	}
	for _, rec := range recs {
		wantStages(t, rec)
		wantWay(t, rec)
		if !slices.ContainsFunc(rec.Warnings, func(w string) bool { return strings.Contains(w, "times of node stages are sure within") }) {
			t.Errorf("%s: nothing says how sure its times are: %q", rec.RequestID, rec.Warnings)
		}
		for i := range rec.Stages {
			s := &rec.Stages[i]
			if s.Node != "stages" || s.PID != server.pids[i] {
				t.Errorf("%s: %s ran on %q as process %d, want %d", rec.RequestID, s.Stage, s.Node, s.PID, server.pids[i])
			}
		}
	}
	wantTruth(t, truth, recs, wantNode(t, joined))
	t.Run("report", func(t *testing.T) { wantReported(t, dir, joined) })
	t.Run("export", func(t *testing.T) { wantExported(t, dir) })
	t.Run("deaf", func(t *testing.T) { wantDeaf(t, dir) })
	t.Run("bad", func(t *testing.T) { wantRefused(t, dir) })
}

func recordsIn(t testing.TB, dir string) (list []*timeline.Record) {
	t.Helper()
	run, err := rundir.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range run.Records() {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// wantTruth compares the hand-overs with the stages' own account of them, which is on the
// kernel's clock, within what the joined run says of its clock. A hand-over begins while
// its sender writes, and ends while its receiver reads.
func wantTruth(t testing.TB, dir string, recs []*timeline.Record, sure int64) {
	t.Helper()
	compared := 0
	for _, name := range fake.Names {
		for line := range strings.Lines(readFile(t, filepath.Join(dir, "truth-"+name+".jsonl"))) {
			var l truthLine
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatal(err)
			}
			x := transferOf(recs, &l)
			if x == nil {
				continue
			}
			at := map[string]*int64{"write_start": &x.StartNS, "write_end": &x.StartNS, "read_start": x.EndNS, "read_end": x.EndNS}[l.Event]
			if at == nil {
				continue
			}
			compared++
			after := *at - (l.MonoNS + ahead*1e9)
			if strings.HasSuffix(l.Event, "_end") {
				after = -after
			}
			if after < -sure || after > 200e6 {
				t.Errorf("%d ns from %s: %+v, truth %s", after, l.Event, x, line)
			}
		}
	}
	if compared < 6*4 {
		t.Errorf("%d moments of hand-overs were compared", compared)
	}
}

// transferOf finds what a line of a stage's account is about, nil for nothing.
func transferOf(recs []*timeline.Record, l *truthLine) *timeline.Transfer {
	from, _, _ := cutLast(l.Key, "_")
	_, from, _ = cutLast(from, "_")
	for _, rec := range recs {
		for i := range rec.Transfers {
			x := &rec.Transfers[i]
			if "chatcmpl-"+rec.RequestID == l.RequestID && x.Chunk != nil && *x.Chunk == l.Chunk && x.From == stageName(from) {
				return x
			}
		}
	}
	return nil
}

// stageName is the name of a stage by its number in a segment's name, empty for none.
func stageName(number string) string {
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n >= len(fake.Names) {
		return ""
	}
	return fake.Names[n]
}

// wantNode: the events of stages name their machine, all others the relay's; the offset is
// in topology.json, within what it says of itself.
func wantNode(t testing.TB, dir string) (sure int64) {
	t.Helper()
	run, err := rundir.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]int{}
	for e, err := range run.Events() {
		if err != nil {
			t.Fatal(err)
		}
		of[string(e.Node)]++
		if e.Stage != "" && e.Stage != "api" && e.Node != "stages" {
			t.Errorf("%s of %s is of node %s", e.Event, e.Stage, e.Node)
		}
	}
	if len(of) != 2 || of["relay"] == 0 || of["stages"] == 0 {
		t.Errorf("events by node: %v", of)
	}
	var top partsTopology
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(dir, rundir.TopologyFile))), &top); err != nil {
		t.Fatal(err)
	}
	if len(top.Parts) != 1 || top.Parts[0].OffsetNS == nil || top.Parts[0].UncertaintyNS == nil {
		t.Fatalf("parts: %+v", top.Parts)
	}
	sure = *top.Parts[0].UncertaintyNS
	off := *top.Parts[0].OffsetNS - ahead*1e9
	t.Logf("the clock is off by %d ns, and said to be sure within %d", off, sure)
	if off > sure || -off > sure || sure > 20e6 {
		t.Errorf("the clock is off by %d ns, and said to be sure within %d", off, sure)
	}
	return sure
}

// wantReported: report joins for itself, and says the same of it.
func wantReported(t *testing.T, dir, joined string) {
	t.Helper()
	var two [2]report.Report
	for i, args := range [][]string{{joined}, {filepath.Join(dir, "run"), filepath.Join(dir, "part")}} {
		if err := json.Unmarshal([]byte(mustRun(t, append([]string{"report", "--json"}, args...)...)), &two[i]); err != nil {
			t.Fatal(err)
		}
	}
	a, _ := json.Marshal(two[0])
	b, _ := json.Marshal(two[1])
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	mustRun(t, "report", filepath.Join(dir, "run"), filepath.Join(dir, "part"))
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if code, _, errOut := runApp(t, "report", filepath.Join(dir, "run"), joined); code != exitUsage || !strings.Contains(errOut, "one run at a time") {
		t.Errorf("two runs: exit %d: %s", code, errOut)
	}
	asNobody(t, dir)
	if string(a) != string(b) || len(a) < 500 {
		t.Errorf("report says of the joined run\n%s\nand of the parts\n%s", a, b)
	}
}

// asNobody has somebody who is not root report on parts: what is made for it is removed.
func asNobody(t *testing.T, dir string) {
	t.Helper()
	const nobody = 65534
	open := t.TempDir() // t.TempDir's own folders are root's
	if err := errors.Join(os.CopyFS(filepath.Join(open, "x"), os.DirFS(dir)), os.Mkdir(filepath.Join(open, "tmp"), 0o777), os.Chmod(filepath.Join(open, "tmp"), 0o777)); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(open, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, nobody, nobody))
	})
	for at := open; err == nil && len(at) > 1; at = filepath.Dir(at) {
		if info, e := os.Stat(at); e == nil && info.Mode()&0o005 != 0o005 {
			mode := info.Mode()
			err = os.Chmod(at, mode|0o005)
			t.Cleanup(func() { _ = os.Chmod(at, mode) })
		}
	}
	program := filepath.Join(open, "omnitap")
	if err := errors.Join(err, copyFile(os.Args[0], program, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "report", filepath.Join(open, "x", "run"), filepath.Join(open, "x", "part"))
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Join(open, "tmp"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
	if left, err := os.ReadDir(filepath.Join(open, "tmp")); err != nil || len(left) > 0 {
		t.Errorf("nobody leaves %v, %v", left, err)
	}
}

func copyFile(from, to string, mode fs.FileMode) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, mode)
}

// wantExported: export joins for itself, too.
func wantExported(t *testing.T, dir string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "csv")
	mustRun(t, "export", "--format", "csv", "--out", out, filepath.Join(dir, "run"), filepath.Join(dir, "part"))
	if n := strings.Count(readFile(t, filepath.Join(out, "stages.csv")), "\n"); n != 1+3*3 {
		t.Errorf("%d lines of stages", n)
	}
	if code, _, errOut := runApp(t, "export", "--format", "csv", "--out", out+"2", filepath.Join(dir, "part")); code != exitUsage || !strings.Contains(errOut, "comes first") {
		t.Errorf("a part alone: exit %d: %s", code, errOut)
	}
}

// wantDeaf: an agent whose clock is not known is left out, by name, and nothing is guessed.
func wantDeaf(t *testing.T, dir string) {
	t.Helper()
	out := filepath.Join(dir, "deafened")
	code, _, errOut := runApp(t, "join", "--out", out, filepath.Join(dir, "run"), filepath.Join(dir, "deaf"))
	t.Cleanup(func() { _ = os.Chmod(out, 0o700) })
	if code != 0 || !strings.Contains(errOut, "the clock of node deaf is not known") {
		t.Errorf("exit %d: %s", code, errOut)
	}
	for _, rec := range recordsIn(t, out) {
		if rec.Stages != nil || rec.CriticalPath != nil || !strings.Contains(rec.Unmeasured["stages"], "clock of node deaf") || len(rec.Warnings) == 0 {
			t.Errorf("%s: stages %v (%s)", rec.RequestID, rec.Stages, rec.Unmeasured["stages"])
		}
	}
	mustRun(t, "verify", out)
}

// wantRefused: what cannot be joined is refused with the reason.
func wantRefused(t *testing.T, dir string) {
	t.Helper()
	at := func(name string) string { return filepath.Join(dir, name) }
	empty := t.TempDir()
	for _, tt := range []struct {
		want string
		args []string
	}{
		{"no part of an agent", []string{at("run"), empty}},
		{"requests.jsonl", []string{empty, at("part")}},
		{"there is a part of node stages already", []string{at("run"), at("part"), at("part")}},
		{"has stages of its own node", []string{at("joined"), at("part")}},
	} {
		code, _, errOut := runApp(t, append([]string{"join", "--out", filepath.Join(t.TempDir(), "out")}, tt.args...)...)
		if code == 0 || !strings.Contains(errOut, tt.want) {
			t.Errorf("%v: exit %d: %s", tt.args, code, errOut)
		}
	}
	torn := filepath.Join(t.TempDir(), "torn")
	if err := os.CopyFS(torn, os.DirFS(at("part"))); err != nil {
		t.Fatal(err)
	}
	raw := filepath.Join(torn, "raw.jsonl")
	if err := os.WriteFile(raw, []byte(readFile(t, raw)+"{\"mono_ns\":1,"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	code, _, errOut := runApp(t, "join", "--out", out, at("run"), torn)
	t.Cleanup(func() { _ = os.Chmod(out, 0o700) })
	if code != exitUnusable || !strings.Contains(errOut, "torn") || len(recordsIn(t, out)) != 3 {
		t.Errorf("a torn part: exit %d: %s", code, errOut)
	}
	if !nodes.IsPart(torn) {
		t.Error("a torn part is none any more")
	}
}

// TestAgentFlags: what does not go together is refused before anything is attached.
func TestAgentFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"--out":             {"--role", "agent"},
		"--probes off":      {"--role", "agent", "--out", "x", "--probes", "off"},
		"--clock must be":   {"--role", "agent", "--out", "x", "--clock", "relay:1"},
		"relay or agent":    {"--role", "both", "--upstream", "http://127.0.0.1:1"},
		"goes with --role":  {"--upstream", "http://127.0.0.1:1", "--clock", "http://127.0.0.1:2"},
		"--upstream is req": {"--role", "relay"},
	} {
		if code, _, errOut := runApp(t, append([]string{"serve"}, args...)...); code != exitUsage || !strings.Contains(errOut, want) {
			t.Errorf("%v: exit %d: %s", args, code, errOut)
		}
	}
}
