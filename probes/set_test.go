//go:build linux && amd64

package probes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/probes/find"
	"github.com/omnitap/omnitap/probes/internal/live"
	"github.com/omnitap/omnitap/probes/kernel"
	"github.com/omnitap/omnitap/probes/proc"
	"github.com/omnitap/omnitap/probes/sched"
	"github.com/omnitap/omnitap/probes/shm"
)

func TestMain(m *testing.M) {
	if confined() {
		return
	}
	live.Main(m, map[string]live.Act{"unlink": unlinks, "deep": deep, "calls": callsOf, "open": openHere})
}

// unlinks unlinks segments that are not there, as many as it is told.
func unlinks(args []string) (string, error) {
	var n int
	fmt.Sscan(args[0], &n)
	for range n {
		if err := unix.Unlink("/dev/shm/omt-not-there"); err != unix.ENOENT {
			return "", fmt.Errorf("unlink: %w", err)
		}
	}
	return "done", nil
}

// deep grows and shrinks stacks in ever new goroutines, with system calls at the bottom,
// until it is told to end.
func deep([]string) (string, error) {
	var down func(n int) int
	down = func(n int) int {
		var room [128]byte
		room[n%128] = byte(n)
		if n == 0 {
			_ = unix.Unlink("/dev/shm/omt-not-there")
			runtime.Gosched()
			return 0
		}
		return down(n-1) + 1 + int(room[(n+1)%128])
	}
	stop := make(chan bool)
	var wg sync.WaitGroup
	wg.Go(func() { // one at a time: the kernel needs a CPU as well
		for {
			select {
			case <-stop:
				return
			default:
			}
			done := make(chan int)
			go func() { done <- down(2000) }()
			if got := <-done; got != 2000 {
				panic(got)
			}
		}
	})
	fmt.Fprintln(os.Stdout, "running")
	var line string
	_, _ = fmt.Scanln(&line)
	close(stop)
	wg.Wait()
	return "done", nil
}

// fakeSource tells the processes that a test gives it.
type fakeSource struct {
	found find.Result
	scans chan find.Result
}

func newSource(procs ...*live.Process) *fakeSource {
	return &fakeSource{found: result(procs...), scans: make(chan find.Result)}
}

func result(procs ...*live.Process) (r find.Result) {
	for i, p := range procs {
		r.Processes = append(r.Processes, event.Process{PID: p.Pid, Stage: fmt.Sprint("stage ", i), Server: "vllm-omni", Role: "api", StartTicks: uint64(p.Pid)})
	}
	return r
}

func (s *fakeSource) Scan() (find.Result, error) { return s.found, nil }

func (s *fakeSource) Run(ctx context.Context, _ time.Duration, use func(find.Result)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-s.scans:
			use(r)
		}
	}
}

func (s *fakeSource) Exec(int)      {}
func (s *fakeSource) Fork(int, int) {}
func (s *fakeSource) Exit(int)      {}

// recorder is a Sink that keeps what it gets.
type recorder struct {
	mu     sync.Mutex
	events []event.Event
	procs  event.Processes
	upTo   int64
	late   []event.Event
}

func (r *recorder) Events(batch []event.Event, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range batch {
		if e.MonoNS < r.upTo && e.Probe != event.Loss && e.Probe != event.CUDACount {
			r.late = append(r.late, e)
		}
	}
	r.events = append(r.events, batch...)
	r.upTo = now
}

func (r *recorder) Processes(p event.Processes) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.procs = p
}

func (r *recorder) count(pid int, probe event.Probe) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(live.Of(r.events, pid, probe))
}

func open(t *testing.T, c Config, src Source, sink Sink) *Set {
	t.Helper()
	live.Require(t)
	s, err := Open(t.Context(), c, src, sink, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// links counts the BPF descriptors of this process.
func links(t *testing.T) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(to, "bpf") {
			n++
		}
	}
	return n
}

// TestRun: events of what is found arrive in order of time, those of a process that came
// later too; the status says what is attached; and when it ends nothing is left, no
// goroutine, no descriptor, no probe.
func TestRun(t *testing.T) {
	live.Require(t)
	goroutines, before := runtime.NumGoroutine(), links(t)
	a, b := live.Start(t, "unlink"), live.Start(t, "unlink")
	src, sink := newSource(a), &recorder{}
	s := open(t, Config{}, src, sink)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	a.Do("1000")
	b.Do("10")
	live.Until(t, "1000 events", func() bool { return sink.count(a.Pid, event.Unlink) == 1000 })
	src.scans <- result(a, b)
	live.Until(t, "the other process", func() bool { sink.mu.Lock(); defer sink.mu.Unlock(); return len(sink.procs.Processes) == 2 })
	live.Until(t, "the other process's calls", func() bool { b.Do("1"); return sink.count(b.Pid, event.Unlink) > 0 })
	st := s.Status()
	for _, f := range st.Families {
		want := map[string]State{"shm": Attached, "proc": Attached, "sched": Attached}[f.Name]
		if want == "" {
			want = Unused
		}
		if f.State != want || (want == Attached) != (len(f.Points) > 0) {
			t.Errorf("%s is %s (%s) at %v", f.Name, f.State, f.Reason, f.Points)
		}
	}
	if !strings.Contains(st.Words(), "attached: shm, proc, sched") || st.Lost != 0 {
		t.Errorf("status: %s", st.Words())
	}
	if links(t) == before {
		t.Error("no BPF descriptor is open")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := len(sink.late); n > 0 {
		t.Errorf("%d events came behind their time: %+v", n, sink.late[0])
	}
	if !slices.IsSortedFunc(live.Of(sink.events, a.Pid, event.Unlink), func(x, y event.Event) int { return int(x.MonoNS - y.MonoNS) }) {
		t.Error("events are not in order of time")
	}
	live.Until(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines })
	if n := links(t); n != before {
		t.Errorf("%d BPF descriptors are left of %d", n, before)
	}
	if d := s.Status().Detached; !d.Verified() || d.Links < 10 {
		t.Errorf("detached: %+v", d)
	}
}

// TestNobodyThere: while there is no stage, tracepoints are away but for those that tell
// of new processes.
func TestNobodyThere(t *testing.T) {
	s := open(t, Config{}, newSource(), &recorder{})
	defer s.Close()
	for _, f := range s.Status().Families {
		if (f.State == Attached) != (f.Name == "proc") {
			t.Errorf("%s is %s", f.Name, f.State)
		}
	}
	p := live.Start(t, "unlink")
	r := result(p)
	s.take(&r)
	if f := s.family("shm").status(); f.State != Attached {
		t.Errorf("shm is %s: %s", f.State, f.Reason)
	}
}

// TestHeartbeat: a quiet family is not dead; one whose link is closed behind our back is,
// at the next look or the one after it, whichever of its links it was.
func TestHeartbeat(t *testing.T) {
	p := live.Start(t, "unlink")
	s := open(t, Config{}, newSource(p), &recorder{})
	look := func() { // in between there is a switch, as there is in a second
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 1}, nil)
		s.maintain()
	}
	for range 4 {
		look()
		for _, f := range s.families {
			if f.dead != "" {
				t.Fatalf("%s is taken for dead: %s", f.name, f.dead)
			}
		}
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	dead := map[string]bool{}
	all, _ := os.ReadDir("/proc/self/fd")
	for _, e := range all {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || !strings.HasPrefix(to, "anon_inode:bpf_link") && !strings.HasPrefix(to, "anon_inode:bpf-link") {
			continue
		}
		var fd int
		fmt.Sscan(e.Name(), &fd)
		if err := unix.Dup3(int(null.Fd()), fd, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		look()
		look()
		now := 0
		for _, f := range s.Status().Families {
			if f.State == Dead {
				dead[f.Name] = true
				now++
				if !strings.Contains(f.Reason, "not attached any more") && !strings.Contains(f.Reason, "not seen any more") {
					t.Errorf("%s: %s", f.Name, f.Reason)
				}
			}
		}
		if now == 0 {
			t.Errorf("a link was closed, and no family is dead")
		}
	}
	if len(dead) != 3 {
		t.Errorf("dead: %v", dead)
	}
	_ = s.Close() // its descriptors are others
}

// TestBeats: the calls of omnitap's own that prove a family alive are seen by it.
func TestBeats(t *testing.T) {
	p := live.Start(t, "unlink")
	s := open(t, Config{Socket: Family{Use: On}}, newSource(p), &recorder{})
	defer s.Close()
	for _, f := range s.families {
		if f.kernel == nil || !f.beats() || f.library != nil {
			continue
		}
		before := live.Counts(t, f.kernel).Beats
		live.Until(t, f.name+" to see a beat", func() bool {
			beat()
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 1}, nil)
			return live.Counts(t, f.kernel).Beats > before
		})
		if c := live.Counts(t, f.kernel); f.name != "sched" && c.Sent > 0 {
			t.Errorf("%s tells omnitap's own calls: %+v", f.name, c)
		}
	}
}

// TestBudget: with a budget that nothing keeps to, families are taken away one after
// the other in their order, the status says so, and proc stays.
func TestBudget(t *testing.T) {
	p := live.Start(t, "unlink")
	s := open(t, Config{Budget: 1e-9}, newSource(p), &recorder{})
	defer s.Close()
	s.budget.ways = calibrate(t.Context(), slog.New(slog.DiscardHandler))
	var order []string
	live.Until(t, "two trims", func() bool {
		p.Do("500")
		s.maintain()
		for _, f := range s.Status().Families {
			if f.State == Trimmed && !slices.Contains(order, f.Name) {
				order = append(order, f.Name)
				if !strings.Contains(f.Reason, "over the budget") || f.CostNS == nil || *f.CostNS <= 0 || len(f.Points) > 0 {
					t.Errorf("%+v", f)
				}
			}
		}
		return len(order) == 2
	})
	st := s.Status()
	if len(st.Trims) != 2 || !strings.Contains(st.Trims[0], order[0]) || !strings.Contains(st.Words(), "trimmed") {
		t.Errorf("trims: %q", st.Trims)
	}
	if s.family("shm").kernel != nil || s.family("sched").kernel != nil || s.family("proc").kernel == nil {
		t.Error("what was taken away is attached, or proc is not")
	}
	r := result(p)
	if s.take(&r); s.family("shm").kernel != nil {
		t.Error("it came back with the next scan")
	}
}

// TestLossIsTold: what a small ring has no room for is told with its family and time.
func TestLossIsTold(t *testing.T) {
	p := live.Start(t, "unlink")
	sink := &recorder{}
	s := open(t, Config{SHM: Family{RingKiB: 4}}, newSource(p), sink)
	defer s.Close()
	from := monotonic()
	s.poll()
	p.Do("5000")
	s.poll()
	var lost int64
	for _, e := range sink.events {
		if e.Probe == event.Loss {
			lost += e.Count
			if e.Path != "shm" || e.EnterNS < from || e.MonoNS <= e.EnterNS || e.MonoNS > monotonic() {
				t.Errorf("%+v", e)
			}
		}
	}
	if got := sink.count(p.Pid, event.Unlink); lost == 0 || int64(got)+lost != 5000 {
		t.Errorf("%d events and %d lost of 5000", got, lost)
	}
	if s.report(); s.Status().Lost != uint64(lost) {
		t.Errorf("the status says %d of %d", s.Status().Lost, lost)
	}
}

const standIn = `int cuGraphLaunch(void *a, void *b) { return 0; }
int zmq_msg_send(void *a, void *b, int c) { return 0; }
int zmq_msg_recv(void *a, void *b, int c) { return 0; }
`

const loader = `
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
	int (*f)(void *, void *) = 0;
	for (int i = 1; i < argc; i++) { void *l = dlopen(argv[i], RTLD_NOW); if (l) f = dlsym(l, "cuGraphLaunch"); }
	puts("ready"); fflush(stdout);
	char line[64];
	while (fgets(line, sizeof line, stdin)) { if (f) f(0, 0); puts("called"); fflush(stdout); }
}`

const waiter = `
#include <stdio.h>
int main(void) { char line[64]; puts("ready"); fflush(stdout); fgets(line, sizeof line, stdin); return 0; }`

// TestOneInodeOnce: a library that is mapped under two names is attached to once, so
// that a call counts once.
func TestOneInodeOnce(t *testing.T) {
	live.Require(t)
	lib := live.Compile(t, "libcuda.so.1", standIn, "-shared", "-fPIC")
	other := filepath.Join(t.TempDir(), "libcuda.so.550")
	if err := os.Link(lib, other); err != nil {
		t.Fatal(err)
	}
	exe := live.Compile(t, "loader", loader, "-ldl")
	a, b := live.Run(t, []string{exe, lib}, nil), live.Run(t, []string{exe, other}, nil)
	sink := &recorder{}
	s := open(t, Config{}, newSource(a, b), sink)
	defer s.Close()
	a.Do("")
	b.Do("")
	s.poll()
	for _, p := range []*live.Process{a, b} {
		if n := sink.count(p.Pid, event.CUDACall); n != 1 {
			t.Errorf("a call counts %d times", n)
		}
	}
	f := s.family("cuda")
	if len(f.libs) != 1 || f.status().State != Attached {
		t.Errorf("%d files; %+v", len(f.libs), f.status())
	}
	s.beat.check(s.families, &s.maps)
	if f.dead != "" {
		t.Error(f.dead)
	}
	put := s.footprint()
	if d := put.check(); d.Verified() || d.Traps < 2 || d.Links < 1 || len(d.Left) != d.Traps+d.Links {
		t.Errorf("attached, and %+v", d)
	}
	if err := f.kernel.Close(); err != nil { // its traps are gone, and we do not know
		t.Fatal(err)
	}
	if why := trapless(f, &s.maps); !strings.Contains(why, "no trap at cuGraphLaunch") {
		t.Errorf("traps that are gone: %q", why)
	}
	for id, what := range put.links {
		if !strings.HasPrefix(what, "cuda:") {
			delete(put.links, id) // the other families are attached
		}
	}
	if d := put.check(); !d.Verified() || d.Traps < 2 || d.Links < 1 {
		t.Errorf("detached, and %+v", d)
	}
	f.kernel = nil
}

// TestC67NeverAProgram: a process whose own program looks like a library is not probed
// there.
func TestC67NeverAProgram(t *testing.T) {
	live.Require(t)
	for _, name := range []string{"libcuda.so.1", "libzmq.so.5"} {
		for _, flags := range [][]string{{"-pie", "-rdynamic"}, {"-static-pie"}, {"-no-pie", "-rdynamic"}} {
			exe := live.Compile(t, name, standIn+waiter, append(flags, "-w")...)
			p := live.Run(t, []string{exe}, nil)
			s := open(t, Config{}, newSource(p), &recorder{})
			f := s.family(strings.TrimPrefix(name, "lib")[:strings.IndexByte(name, '.')-3])
			st := f.status()
			if st.State != Failed || !strings.Contains(st.Reason, "not a library to be probed") || len(f.kernel.Attached()) > 0 {
				t.Errorf("%s %v: %+v", name, flags, st)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestC67GoProgram attaches to and detaches from a Go program of deep recursion and
// moving stacks, under load, a hundred times. It lives on and ends well.
func TestC67GoProgram(t *testing.T) {
	w := live.NewWatch(t)
	p := live.Start(t, "deep")
	live.Add(t, w, p)
	p.Tell("go")
	if got := p.Answer(); got != "running" {
		t.Fatal(got)
	}
	for i := range 20 { // five at once: the kernel makes each wait for all CPUs
		loads := []func(*kernel.Watch, int) (*kernel.Family, error){sched.Load}
		if i%4 == 0 {
			loads = append(loads, proc.Load)
		}
		if i%10 == 0 { // tracepoints take tenths of a second to be taken away
			loads = append(loads, shm.Load)
		}
		var rounds sync.WaitGroup
		errs := make([]error, 5)
		for n := range errs {
			rounds.Go(func() { errs[n] = attachAndDetach(w, loads) })
		}
		rounds.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	if got := p.Do("end"); got != "done" {
		t.Errorf("it says %q", got)
	}
	if st := p.End(); !st.Success() {
		t.Errorf("it ended with %v", st)
	}
}

func attachAndDetach(w *kernel.Watch, loads []func(*kernel.Watch, int) (*kernel.Family, error)) error {
	for _, load := range loads {
		f, err := load(w, 0)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openHere opens a set as it can be here, and says what became of it.
func openHere([]string) (string, error) {
	log := new(bytes.Buffer)
	s, err := Open(context.Background(), Config{}, &fakeSource{found: find.Result{Processes: []event.Process{{PID: os.Getppid(), Stage: "x", StartTicks: 1}}}}, &recorder{}, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		return "error: " + strings.ReplaceAll(err.Error(), "\n", " | "), nil
	}
	words := s.Status().Words()
	return words, errors.Join(s.Close())
}

// TestCostIsMeasured: within seconds of a busy stage's start the cost of a hit is known,
// and what it makes of a core.
func TestCostIsMeasured(t *testing.T) {
	p := live.Start(t, "unlink")
	s := open(t, Config{Budget: 1}, newSource(p), &recorder{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	from := time.Now()
	known := map[string]float64{}
	for time.Since(from) < 30*time.Second && len(known) < 2 {
		p.Do("2000")
		for _, f := range s.Status().Families {
			if f.CostNS != nil && f.Cores != nil {
				known[f.Name] = *f.CostNS
			}
		}
	}
	t.Log(time.Since(from), known)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if ns := known["shm"]; ns < 100 || ns > 20000 || known["sched"] < 50 || known["sched"] > 20000 {
		t.Errorf("after %v: %v", time.Since(from), known)
	}
}
