package main

import (
	"bufio"
	"bytes"
	"encoding/json"
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

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/drive"
	fake "github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages"
	"github.com/omnitap/omnitap/exporter/report"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/rundir/schema"
	"github.com/omnitap/omnitap/exporter/verify"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// demoLimit is how long a demo may take at most.
const demoLimit = 40 * time.Second

// TestDemoStages: with its probes attached the demo shows stages, hand-overs and the
// way to the first audio, and leaves nothing but its run directory.
func TestDemoStages(t *testing.T) {
	requireProbes(t)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	dir := filepath.Join(t.TempDir(), "run")
	began := time.Now()
	code, out, errOut := runApp(t, "demo", "--json", "--requests", "2", "--probes", "require", "--out", dir)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	t.Logf("%v", time.Since(began))
	if d := time.Since(began); d > demoLimit {
		t.Errorf("it took %v", d)
	}
	var r report.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	const chats, speeches = 2, 4 // that get to the stages
	wantDemoTables(t, &r, chats, speeches)
	staged := 0
	for _, line := range wantLinesOf(t, schema.Requests, readFile(t, filepath.Join(dir, rundir.RequestsFile))) {
		var rec timeline.Record
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatal(err)
		}
		if rec.Stages == nil {
			continue
		}
		staged++
		wantWay(t, &rec)
		wantStages(t, &rec)
		for i := range rec.Transfers {
			if left, _ := filepath.Glob("/dev/shm/*" + engineOf(*rec.Transfers[i].Path) + "*"); len(left) > 0 {
				t.Errorf("left in /dev/shm: %v", left)
			}
		}
	}
	if staged != chats+speeches {
		t.Errorf("%d records have stages, want %d", staged, chats+speeches)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary folder: %v, %v", left, err)
	}
	if got := mustRun(t, "report", "--json", dir); got != out {
		t.Error("report gives other tables than the demo")
	}
	wantDerivable(t, dir)
}

// wantDerivable wants a run in which everything but the hashes of payloads is derived
// again from the events, and is the same.
func wantDerivable(t testing.TB, dir string) {
	t.Helper()
	res, err := verify.Verify(dir, verify.Options{AllowUnsealed: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range res.Findings {
		if f := &res.Findings[i]; f.Level == verify.Error {
			t.Errorf("verify: %s", f)
		}
	}
	for _, m := range res.NotDerivable {
		if !strings.HasSuffix(m.Field, "sha256") {
			t.Errorf("%s is not derivable: %s", m.Field, m.Why)
		}
	}
}

// wantDemoTables checks what the report tells of the stages.
func wantDemoTables(t testing.TB, r *report.Report, chats, speeches int) {
	t.Helper()
	n := map[string]int{}
	for _, s := range r.Stages {
		n[s.Flow+" "+s.Stage] = s.N
	}
	for _, name := range fake.Names {
		if n["chat "+name] != chats || n["speech "+name] != speeches {
			t.Errorf("%s: %d chats, %d speeches, want %d, %d", name, n["chat "+name], n["speech "+name], chats, speeches)
		}
	}
	edges := map[string]int{}
	for _, e := range r.Edges {
		edges[e.From+"->"+e.To+" "+e.Transport] = e.N
	}
	if len(edges) != 2 || edges["thinker->talker shm"] < chats+speeches || edges["talker->code2wav shm"] < chats+speeches {
		t.Errorf("edges %v", edges)
	}
	for _, p := range r.Paths {
		sum := 0.0
		for _, g := range p.Gaps {
			sum += g.MeanMS
		}
		if p.N > 0 && (sum < p.TTFA-1e-3 || sum > p.TTFA+1e-3) {
			t.Errorf("%s: the mean gaps sum to %v, the mean TTFA is %v", p.Flow, sum, p.TTFA)
		}
		if want := map[string]int{"chat": chats, "speech": speeches}[p.Flow]; p.N != want {
			t.Errorf("%s: %d have a way, want %d (%v)", p.Flow, p.N, want, p.Why)
		}
	}
	if r.Partial != 0 {
		t.Errorf("%d records are partial", r.Partial)
	}
}

// descendants are the processes below one.
func descendants(t testing.TB, pid int) (out []int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		b, _ := os.ReadFile(name) // a thread may be gone
		for f := range strings.FieldsSeq(string(b)) {
			var child int
			_, _ = fmt.Sscan(f, &child)
			out = append(append(out, child), descendants(t, child)...)
		}
	}
	return out
}

// TestDemoInterrupted: a demo that is interrupted, or killed, takes all its processes
// with it.
func TestDemoInterrupted(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"interrupt": syscall.SIGINT, "kill": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "demo", "--probes", "off", "--out", filepath.Join(t.TempDir(), "run"))
			cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
			said, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			in := bufio.NewScanner(said)
			for in.Scan() && !strings.HasPrefix(in.Text(), "[ 1/") {
			}
			family := descendants(t, cmd.Process.Pid)
			if len(family) != 5 { // the server, three stages, the tracker
				t.Errorf("processes %v", family)
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, said)
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || signal == syscall.SIGINT && exit.ExitCode() != exitUnusable {
				t.Errorf("it ended by %v", err)
			}
			for _, pid := range family {
				waitCase(t, fmt.Sprintf("process %d to end", pid), func() bool { return ended(pid) })
			}
		})
	}
}

// ended says whether a process is no more, or dead and waited for by nobody.
func ended(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

// TestDemoUnprivileged: without rights the demo shows all but the stages, and says in
// one line what grants the probes; if they are required it says so by its exit.
func TestDemoUnprivileged(t *testing.T) {
	dir := t.TempDir()
	program, err := os.ReadFile(os.Args[0])
	if err == nil { // others may enter
		err = errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o777), os.WriteFile(filepath.Join(dir, "omnitap"), program, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	do := func(args ...string) (code int, out, errOut string) {
		cmd := exec.Command(filepath.Join(dir, "omnitap"), args...)
		cmd.Env, cmd.Dir = append(os.Environ(), "TMPDIR="+dir), dir
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		var o, e bytes.Buffer
		cmd.Stdout, cmd.Stderr = &o, &e
		var exit *exec.ExitError
		if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), o.String(), e.String()
	}
	code, out, errOut := do("demo", "--requests", "1", "--out", filepath.Join(dir, "run"))
	said := slices.DeleteFunc(strings.Split(strings.TrimSpace(errOut), "\n"), func(l string) bool { return strings.HasPrefix(l, "[") })
	if code != 0 || len(said) != 1 || !strings.HasPrefix(said[0], "no stage probes: ") || !strings.Contains(said[0], "CAP_BPF") {
		t.Errorf("exit %d, it says %q", code, said)
	}
	if strings.Contains(out, "thinker") || !strings.Contains(out, "TTFA") || !strings.Contains(out, "chat") {
		t.Errorf("tables:\n%s", out)
	}
	if n := len(wantLinesOf(t, schema.Requests, readFile(t, filepath.Join(dir, "run", rundir.RequestsFile)))); n < len(demoRequests())+len(drive.Sessions()) {
		t.Errorf("%d records", n)
	}
	if code, _, errOut := do("demo", "--probes", "require", "--out", filepath.Join(dir, "none")); code != exitEnvironment || !strings.Contains(errOut, "--probes require: ") || !strings.Contains(errOut, "CAP_BPF") {
		t.Errorf("exit %d: %s", code, errOut)
	}
}
