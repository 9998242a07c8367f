package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// What becomes of a run's directory when something dies amid it, or the disk is full.

// startRunProcess starts a run in a process of its own.
func startRunProcess(t testing.TB, args ...string) (p *relayProcess, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	return startProcess(t, append([]string{"run", "--out", dir}, args...)...), dir
}

// startProcess starts omnitap in a process of its own.
func startProcess(t testing.TB, args ...string) *relayProcess {
	t.Helper()
	p := &relayProcess{ended: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0], args...)
	p.cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
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
	return p
}

// wantEnded waits for the end of processes.
func wantEnded(t testing.TB, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		waitCase(t, fmt.Sprintf("process %d to end", pid), func() bool { return ended(pid) })
	}
}

// wantState wants a run's state in metadata.json.
func wantState(t testing.TB, dir, state, reason string) *rundir.RunInfo {
	t.Helper()
	return (&measuring{t: t, dir: dir}).sealed(state, reason)
}

// TestRunInterrupted: a signal ends the load, with what it has started, and seals what there
// is. What it cut off is no failure.
func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			base, _, _ := heldStream(t)
			h := holdLoad(t, "sleep 1000 & ")
			p, dir := startRunProcess(t, append([]string{"--upstream", base, "--probes", "off"}, h.args...)...)
			relay, pid, child := h.base()
			c, _ := openHeld(t, strings.TrimPrefix(relay, "http://"))
			p.signal(t, signal)
			wantEnded(t, pid, child)
			leave(c, true) // the load's connections end with it
			if code := p.wait(t); code != exitUnusable || !strings.Contains(p.output(), "not usable: the run is interrupted (a signal)") {
				t.Errorf("exit %d: %s", code, p.output())
			}
			info := wantState(t, dir, "interrupted", "a signal")
			if c := info.Child; c == nil || c.Signal != "terminated" || c.ExitCode != nil {
				t.Errorf("child %+v", c)
			}
			if all, success := phasesOf(t, dir); all[phaseCooldown] != 1 || len(all) != 1 || len(success) != 0 {
				t.Errorf("phases %v, successes %v", all, success)
			}
		})
	}
}

// TestRunInterruptedEarly: a signal amid the calibration is one, too.
func TestRunInterruptedEarly(t *testing.T) {
	requireProbes(t)
	t.Parallel()
	p, dir := startRunProcess(t, "--demo", "--probes", "require", "--block", "2", "--", "sh", "-c", "echo the load runs")
	waitCase(t, "the directory", func() bool {
		_, err := os.Stat(filepath.Join(dir, rundir.MetadataFile))
		return err == nil || p.over()
	})
	family := descendants(t, p.cmd.Process.Pid)
	p.signal(t, syscall.SIGINT)
	if code := p.wait(t); code != exitUnusable || !strings.Contains(p.output(), "the run is interrupted") || strings.Contains(p.output(), "the load runs") {
		t.Errorf("exit %d: %s", code, p.output())
	}
	if info := wantState(t, dir, "interrupted", "a signal, before the load began"); info.Child != nil || info.Calibration != nil {
		t.Errorf("child %v, calibration %v", info.Child, info.Calibration)
	}
	if len(family) < 5 {
		t.Errorf("the demo has the processes %v", family)
	}
	wantEnded(t, family...)
}

// TestRunSecondSignal: a load that does not end holds nobody up who asks twice.
func TestRunSecondSignal(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	h := holdLoad(t, "trap '' TERM; ")
	p, dir := startRunProcess(t, append([]string{"--upstream", base, "--probes", "off"}, h.args...)...)
	relay, pid, _ := h.base()
	ask(t, relay)
	wantWritten(t, dir, 1)
	waitCase(t, "the end of omnitap", func() bool { // the first signal may still be on its way
		_ = p.cmd.Process.Signal(syscall.SIGINT)
		return p.over()
	})
	if code := p.wait(t); code != -1 {
		t.Errorf("exit %d, want the signal: %s", code, p.output())
	}
	if ended(pid) {
		t.Error("the load has ended: nothing was shown")
	}
	h.end(0)
	wantEnded(t, pid)
	wantUnfinished(t, dir, base)
}

// TestCommandLeavesNothing: what a command has started ends with it, and is killed where it
// does not heed the word: on an interrupt, and behind the command's own end.
func TestCommandLeavesNothing(t *testing.T) {
	t.Parallel()
	const stubborn = `(trap '' TERM; echo ready >"$0"; exec sleep 1000 >/dev/null 2>&1) & read x <"$0"; echo $!; `
	for name, script := range map[string]string{"ended": "exit 0", "failed": "exit 7", "interrupted": "exec sleep 1000", "stubborn itself": "trap '' TERM; sleep 1000; sleep 1000"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fifo := filepath.Join(t.TempDir(), "fifo")
			if err := unix.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			r, w := io.Pipe()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := childOf(ctx, []string{"sh", "-c", stubborn + script, fifo}, "http://127.0.0.1:1", w, io.Discard)
			c.patience(300 * time.Millisecond)
			done := make(chan error, 1)
			go func() { done <- c.run(func(int) {}) }()
			var pid int
			if _, err := fmt.Fscan(r, &pid); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(script, "exit") {
				cancel()
			}
			err := <-done
			if want := script == "exit 0"; want != (err == nil) {
				t.Errorf("the command: %v", err)
			}
			wantEnded(t, pid)
		})
	}
}

// wantWritten waits for so many records on the disk.
func wantWritten(t testing.TB, dir string, n int) {
	t.Helper()
	waitCase(t, fmt.Sprintf("%d records on the disk", n), func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, rundir.RequestsFile))
		return strings.Count(string(text), "\n") >= n
	})
}

// wantUnfinished wants what a crash leaves: whole lines, that every command says so, and
// that nobody writes there again.
func wantUnfinished(t testing.TB, dir, base string) {
	t.Helper()
	for _, name := range []string{rundir.RequestsFile, rundir.EventsFile} {
		text := readFile(t, filepath.Join(dir, name))
		text = text[:strings.LastIndexByte(text, '\n')+1] // the kill may have cut a write short: every line but that one is whole
		if name == rundir.RequestsFile {
			wantLines(t, text)
		}
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "{") || !strings.HasSuffix(line, "}\n") {
				t.Errorf("%s holds %q", name, line)
			}
		}
	}
	info := (&measuring{t: t, dir: dir}).info()
	if info.State != "running" {
		t.Errorf("the run is %s", info.State)
	}
	if _, err := os.Stat(filepath.Join(dir, rundir.SumsFile)); err == nil {
		t.Error("it is sealed")
	}
	const line = "unsealed: the run was not closed: it is still being written, or its process died"
	if code, out, errOut := runApp(t, "verify", dir); code != exitUnusable || !strings.Contains(out, line) {
		t.Errorf("verify: exit %d: %s%s", code, out, errOut)
	}
	if code, out, errOut := runApp(t, "report", dir); code != 0 || !strings.Contains(errOut, "the run was not closed: it may be running, or a crash ended it") || !strings.Contains(out, "state: running") {
		t.Errorf("report: exit %d: %s%s", code, out, errOut)
	}
	code, _, errOut := runApp(t, "run", "--upstream", base, "--probes", "off", "--block", "1", "--out", dir)
	if code != exitUsage || !strings.Contains(errOut, dir+" (unfinished: still running, or it crashed)") {
		t.Errorf("another run into it: exit %d: %s", code, errOut)
	}
}

// TestRunKilled: kill -9 leaves a directory that can be read, and no load.
func TestRunKilled(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	h := holdLoad(t, "")
	experiment := asking(t, chatLoad)
	p, dir := startRunProcess(t, append([]string{"--upstream", base, "--probes", "off", "--experiment", experiment}, h.args...)...)
	relay, pid, _ := h.base()
	for range 5 {
		ask(t, relay)
	}
	wantWritten(t, dir, 3)
	p.signal(t, syscall.SIGKILL)
	if code := p.wait(t); code != -1 {
		t.Errorf("exit %d, want the signal", code)
	}
	wantEnded(t, pid)
	wantUnfinished(t, dir, base)
	if got := readFile(t, filepath.Join(dir, rundir.ExperimentFile)); got != readFile(t, experiment) {
		t.Errorf("experiment.yaml is %q", got)
	}
}

// TestRunLoadFails: a load that fails, dies or cannot be started fails the run, which is
// sealed.
func TestRunLoadFails(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	one := `curl -q -sf --noproxy '*' -o /dev/null "$OMNITAP_URL/v1/chat/completions" -H 'Content-Type: application/json' -d '{"model":"m","messages":[]}'; `
	none := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		name    string
		cmd     []string
		records int
		reason  string
		check   func(c *rundir.Child) bool
	}{
		{"exit", []string{"sh", "-c", one + "exit 7"}, 1, "sh: exit status 7", func(c *rundir.Child) bool { return c.ExitCode != nil && *c.ExitCode == 7 && c.Signal == "" }},
		{"killed", []string{"sh", "-c", one + "kill -9 $$"}, 1, "sh: signal: killed", func(c *rundir.Child) bool { return c.ExitCode == nil && c.Signal == "killed" }},
		{"not found", []string{none}, 0, fmt.Sprintf("%s: fork/exec %s: no such file or directory", none, none), func(c *rundir.Child) bool { return c.ExitCode == nil && c.Signal == "" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := startRun(t, &runFlags{}, append([]string{"--upstream", base, "--probes", "off", "--"}, c.cmd...)...).wait(exitUnusable, "omnitap: "+c.reason)
			info := r.sealed("failed", c.reason)
			if info.Child == nil || !slices.Equal(info.Child.Args, c.cmd) || !c.check(info.Child) {
				t.Errorf("child %+v", info.Child)
			}
			wantRecords(t, runRecords(t, r.dir), c.records)
			if !strings.HasSuffix(r.out.String(), r.dir+"\n") || !strings.Contains(r.out.String(), "state: failed ("+c.reason+")") {
				t.Errorf("it prints %q", r.out.String())
			}
		})
	}
}

// TestRunForeignFile: what the load writes into the run directory is no part of the run.
func TestRunForeignFile(t *testing.T) {
	t.Parallel()
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	h := holdLoad(t, "")
	r := startRun(t, &runFlags{}, append([]string{"--upstream", base, "--probes", "off"}, h.args...)...)
	relay, _, _ := h.base()
	ask(t, relay)
	if err := os.WriteFile(filepath.Join(r.dir, "results.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.end(0)
	r.wait(exitUnusable, "the directory holds what is no part of a run: results.json (a file)")
	if code, out, _ := runApp(t, "verify", r.dir); code != exitUnusable || !strings.Contains(out, "results.json") || !strings.Contains(out, "unsealed: the run was closed and never sealed") {
		t.Errorf("verify: exit %d: %s", code, out)
	}
}

// stageOf is the process of a stage of the demo below a process.
func stageOf(t testing.TB, below, number int) int {
	t.Helper()
	for _, pid := range descendants(t, below) {
		title, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // one may be gone
		if strings.HasPrefix(string(title), fmt.Sprintf("VLLM::StageEngineCoreProc_stage%d_", number)) {
			return pid
		}
	}
	t.Fatalf("no stage %d below %d", number, below)
	return 0
}

// TestRunStageKilled: a stage that is killed is in the records, with the kernel's evidence,
// and the run stops where it was asked to.
func TestRunStageKilled(t *testing.T) {
	requireProbes(t)
	t.Parallel()
	h := holdLoad(t, "")
	experiment := asking(t, "workload: {reference: chats}\nstop: {worker_lost: true}\nforeign_cores_limit: 1000\n")
	p, dir := startRunProcess(t, append([]string{"--demo", "--probes", "require", "--calibrate", "off", "--experiment", experiment}, h.args...)...)
	relay, pid, _ := h.base()
	ask(t, relay, "X-Request-Id: whole")
	c := caseDial(t, strings.TrimPrefix(relay, "http://"))
	caseSend(t, c, post("/v1/chat/completions", fmt.Sprintf(stagedChat, 400), "X-Request-Id: killed", "Connection: close"))
	s := &streamed{t: t, c: c, r: bufio.NewReader(c)}
	s.sounds(1)
	kill(t, stageOf(t, p.cmd.Process.Pid, 1))
	rest, err := io.ReadAll(s.r)
	if !strings.Contains(string(rest), "Dead stage process(es)") {
		t.Errorf("the stream ends by %q, %v", rest[max(0, len(rest)-300):], err)
	}
	if code := p.wait(t); code != exitUnusable || !strings.Contains(p.output(), "state: stopped (a stage's process was lost)") || !strings.Contains(p.output(), "worker-lost") || !strings.Contains(p.output(), "not usable: 1 of 2 failed, more than 0 %") {
		t.Errorf("exit %d: %s", code, p.output())
	}
	wantEnded(t, pid)
	wantState(t, dir, "stopped", "a stage's process was lost")
	recs := runRecords(t, dir)
	wantRecords(t, recs, 2)
	wantTerminal(t, byID(t, recs, "whole"), timeline.Success, "done")
	killed := byID(t, recs, "killed")
	wantTerminal(t, killed, timeline.WorkerLost, "engine_dead")
	if killed.Terminal.Evidence["worker"] == nil {
		t.Errorf("no evidence of the kernel's: %v", killed.Terminal.Evidence)
	}
}

// TestRunFullDisk: on a full disk traffic and load flow on, and the directory says what it
// lacks.
func TestRunFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("mounting a tmpfs needs root; package rundir tests the same on a made disk")
	}
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	disk := t.TempDir()
	err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=1m,mode=0700")
	if errors.Is(err, unix.EPERM) && os.Getenv("REQUIRE_KERNEL") != "1" {
		t.Skip("root without CAP_SYS_ADMIN cannot mount a tmpfs")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	const words = 100000
	h := holdLoad(t, fmt.Sprintf(`echo ahead; echo "$OMNITAP_URL" >"$2"; read x <"$3"; head -c %d /dev/zero | tr '\0' 'w' || exit 8; `, words))
	full := holdLoad(t, "") // its two pipes are the first pause
	h.args = append(h.args, full.where.Name(), full.done.Name())
	dir := filepath.Join(disk, "run")
	r := startRun(t, &runFlags{}, append([]string{"--upstream", base, "--probes", "off", "--out", dir}, h.args...)...)
	r.dir = dir
	relay := strings.TrimSpace(firstLine(t, full.where))
	ask(t, relay, "X-Request-Id: ahead")
	wantWritten(t, dir, 1)
	fillDisk(t, disk)
	for i := range 3 {
		ask(t, relay, fmt.Sprintf("X-Request-Id: full-%d", i))
	}
	full.end(0)
	h.base() // the load has said its words
	ask(t, relay, "X-Request-Id: behind")
	h.end(0)
	r.wait(exitUnusable, "no space left on device", "requests.jsonl lacks 4 lines", "stdout.log lacks the last ")
	run, err := rundir.Read(dir)
	if err != nil || run.MetadataErr != nil || !run.Closed {
		t.Fatalf("%v, %v: closed %v", err, run.MetadataErr, run.Closed)
	}
	info, files := run.Metadata.Run, run.Metadata.Files
	if info.State != "complete" || info.Child == nil || *info.Child.ExitCode != 0 || !strings.Contains(info.Child.Lost, "stdout.log lacks the last ") {
		t.Errorf("the run is %s (%s), its child %+v", info.State, info.Reason, info.Child)
	}
	if files.Requests.Lines != 1 || files.Requests.LostLines != 4 || files.Events.LostLines == 0 {
		t.Errorf("%+v", files)
	}
	if text := readFile(t, filepath.Join(dir, rundir.StdoutFile)); !strings.HasPrefix(text, "ahead\n") || len(text) > words {
		t.Errorf("stdout.log has %d bytes", len(text))
	}
	wantLines(t, readFile(t, filepath.Join(dir, rundir.RequestsFile)))
	if code, out, errOut := runApp(t, "verify", dir); code != exitUnusable || !strings.Contains(out, "lost") {
		t.Errorf("verify: exit %d: %s%s", code, out, errOut)
	}
}

// firstLine reads a line of a pipe.
func firstLine(t testing.TB, f *os.File) string {
	t.Helper()
	line, err := bufio.NewReader(f).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// fillDisk takes all room that is left.
func fillDisk(t testing.TB, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for page := make([]byte, 4096); err == nil; _, err = f.Write(page) {
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk ended with %v", err)
	}
}
