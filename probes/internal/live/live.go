//go:build linux && amd64

// Package live helps tests of probes on a real kernel: it runs the test binary again as
// a process that is watched, and collects what the probes tell of it. A process does
// nothing until it is told to, so that probes are there before the first call.
package live

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/probes/kernel"
)

// actEnv names the act that the test binary is to play.
const actEnv = "PROBES_TEST_ACT"

// Act is what a process does when it is told to, once a line of its input; what it
// returns is the answer.
type Act func(args []string) (string, error)

// Main runs the tests, or one act.
func Main(m *testing.M, acts map[string]Act) {
	name := os.Getenv(actEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := play(acts[name]); err != nil {
		fmt.Fprintln(os.Stderr, name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func play(act Act) error {
	runtime.LockOSThread()
	fmt.Fprintln(os.Stdout, "ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		out, err := act(strings.Fields(in.Text()))
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, out)
	}
	return in.Err()
}

// Require skips a test where the kernel cannot be asked; where it must be
// (REQUIRE_KERNEL=1) and cannot, that is a failure. What is missing for root is found
// by the test itself, and always a failure.
func Require(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("REQUIRE_KERNEL") == "1" {
		t.Fatal("REQUIRE_KERNEL is set and this is not root")
	}
	t.Skip("probes need root")
}

// Process is a process that plays an act.
type Process struct {
	*os.Process
	t   testing.TB
	in  *os.File
	out *bufio.Reader
}

// Start starts a process that waits to be told. It ends with the test.
func Start(t testing.TB, act string, files ...*os.File) *Process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Run(t, []string{exe}, []string{actEnv + "=" + act}, files...)
}

// Run starts any program that answers "ready" and then a line for a line. Files are its
// descriptors from 3 on.
func Run(t testing.TB, args, env []string, files ...*os.File) *Process {
	t.Helper()
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.StartProcess(args[0], args, &os.ProcAttr{
		Env: append(os.Environ(), env...), Files: append([]*os.File{theirIn, theirOut, os.Stderr}, files...),
	})
	theirIn.Close()
	theirOut.Close()
	if err != nil {
		t.Fatal(err)
	}
	live := &Process{Process: p, t: t, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		in.Close()
		_ = p.Kill() // it may have ended
		_, _ = p.Wait()
		out.Close()
	})
	if s := live.answer(); s != "ready" {
		t.Fatalf("process %d says %q instead of ready", p.Pid, s)
	}
	return live
}

func (p *Process) answer() string {
	p.t.Helper()
	s, err := p.out.ReadString('\n')
	if err != nil && err != io.EOF {
		p.t.Fatal(err)
	}
	return strings.TrimSuffix(s, "\n")
}

// Tell has the process do something; Answer waits for what it says.
func (p *Process) Tell(args ...string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, strings.Join(args, " ")+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// Answer waits for the process's answer; it is empty where the process ended.
func (p *Process) Answer() string { p.t.Helper(); return p.answer() }

// Do is Tell and Answer.
func (p *Process) Do(args ...string) string {
	p.t.Helper()
	p.Tell(args...)
	return p.answer()
}

// End ends the process's input and waits for it.
func (p *Process) End() *os.ProcessState {
	p.t.Helper()
	p.in.Close()
	st, err := p.Wait()
	if err != nil {
		p.t.Fatal(err)
	}
	return st
}

// NewWatch makes a table that the test's end frees.
func NewWatch(t testing.TB) *kernel.Watch {
	t.Helper()
	Require(t)
	w, err := kernel.NewWatch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// Add watches a process.
func Add(t testing.TB, w *kernel.Watch, p *Process) {
	t.Helper()
	if err := w.Add(p.Pid, 1); err != nil {
		t.Fatal(err)
	}
}

// Family takes what a family's Load returned, and closes it with the test.
func Family(t testing.TB, f *kernel.Family, err error) *kernel.Family {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// Drain returns what lies in the family's ring. Everything that a process did before is
// in it, for a program's event is there when the call returns.
func Drain(t testing.TB, f *kernel.Family) []event.Event {
	t.Helper()
	var b kernel.Batch
	Until(t, "a ring that nobody writes to", func() bool { return f.Drain(&b) })
	return b.Events
}

// Until waits for something to be true.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("waited ten seconds for %s", what)
		}
	}
}

// Of returns the events of one process, and of the named probes where there are any.
func Of(events []event.Event, pid int, probes ...event.Probe) (out []event.Event) {
	for i := range events {
		e := events[i]
		if int(e.PID) == pid && (len(probes) == 0 || slices.Contains(probes, e.Probe)) {
			out = append(out, e)
		}
	}
	return out
}

// Counts returns the family's counters.
func Counts(t testing.TB, f *kernel.Family) kernel.Counts {
	t.Helper()
	c, err := f.Counts()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Compile builds a C source with gcc and returns the file.
func Compile(t testing.TB, name, source string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	out, src := filepath.Join(dir, name), filepath.Join(dir, "source.c")
	if err := os.WriteFile(src, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	Command(t, append([]string{"gcc", "-O1", "-o", out, src}, flags...)...)
	return out
}

// Command runs a program to its end, which must be a good one.
func Command(t testing.TB, args ...string) {
	t.Helper()
	for dir := range strings.SplitSeq(os.Getenv("PATH"), ":") {
		file := filepath.Join(dir, args[0])
		if _, err := os.Stat(file); err != nil {
			continue
		}
		p, err := os.StartProcess(file, args, &os.ProcAttr{Env: os.Environ(), Files: []*os.File{nil, os.Stderr, os.Stderr}})
		if err != nil {
			t.Fatal(err)
		}
		if st, err := p.Wait(); err != nil || !st.Success() {
			t.Fatalf("%v: %v %v", args, st, err)
		}
		return
	}
	t.Fatalf("%s is missing", args[0])
}

// RunTime sums up what the kernel measured of the family's programs, nanoseconds.
func RunTime(t testing.TB, f *kernel.Family) (ns float64) {
	t.Helper()
	for _, p := range f.Programs() {
		st, err := p.Stats()
		if err != nil {
			t.Fatal(err)
		}
		ns += float64(st.Runtime)
	}
	return ns
}
