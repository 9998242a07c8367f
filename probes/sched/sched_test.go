//go:build linux && amd64

package sched_test

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/probes/internal/live"
	"github.com/omnitap/omnitap/probes/sched"
)

func TestMain(m *testing.M) {
	live.Main(m, map[string]live.Act{"work": work})
}

// now is the clock of the kernel's events.
func now(clock int32) int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(clock, &t)
	return t.Nano()
}

// work burns CPU time and sleeps, both in milliseconds, on the process's first thread,
// and tells its CPU time from when to when.
func work(args []string) (string, error) {
	var burn, sleep int64
	fmt.Sscan(args[0], &burn)
	fmt.Sscan(args[1], &sleep)
	from, cpu := now(unix.CLOCK_MONOTONIC), now(unix.CLOCK_THREAD_CPUTIME_ID)
	for now(unix.CLOCK_THREAD_CPUTIME_ID)-cpu < burn*1e6 {
	}
	for t := unix.NsecToTimespec(sleep * 1e6); unix.Nanosleep(&t, &t) == unix.EINTR; {
	}
	cpu = now(unix.CLOCK_THREAD_CPUTIME_ID) - cpu
	to := now(unix.CLOCK_MONOTONIC)
	return fmt.Sprint(unix.Gettid(), from, to, cpu), nil
}

// usage is struct usage of sched.bpf.c.
type usage struct{ Run, Runnable, Blocked, Told uint64 }

// TestTimes has a process run 200 ms and sleep 300 ms, and compares with the kernel's own
// accounting, but for 10 ms: what Go's other threads and two answers over a pipe take.
func TestTimes(t *testing.T) {
	w := live.NewWatch(t)
	f, err := sched.Load(w, 0)
	live.Family(t, f, err)
	p := live.Start(t, "work")
	live.Add(t, w, p)
	p.Do("1", "1") // every thread has been seen
	one := func() (u usage) {
		t.Helper()
		if err := f.Map("usages").Lookup(uint32(p.Pid), &u); err != nil {
			t.Fatal(err)
		}
		return u
	}
	before := one()
	from := now(unix.CLOCK_MONOTONIC)
	var tid, start, end, cpu int64
	fmt.Sscan(p.Do("200", "300"), &tid, &start, &end, &cpu)
	to := now(unix.CLOCK_MONOTONIC)
	p.Do("0", "0") // the last wait has ended
	after := one()

	run := int64(after.Run - before.Run)
	// At least what the kernel's own account says, which leaves out interrupts and what
	// a hypervisor steals, and no more than there was beside the sleep.
	if run < cpu-1e6 || run > to-from-300e6+60e6 { // the other threads run a little too
		t.Errorf("ran %d ns, %d by the kernel's own account, %d beside the sleep", run, cpu, to-from-300e6)
	}
	// Go's other threads sleep all the while: only running and runnable time are the
	// first thread's alone, and its blocked time is at least what it slept.
	if blocked := int64(after.Blocked - before.Blocked); blocked < 299e6 {
		t.Errorf("blocked %d ns of 300 ms slept", blocked)
	}
	rest := (end - start) - 300e6 - cpu
	if runnable := int64(after.Runnable - before.Runnable); runnable < rest-10e6 || runnable > to-from-300e6 {
		t.Errorf("runnable %d ns; neither running nor asleep %d", runnable, rest)
	}
	samples(t, live.Of(live.Drain(t, f), p.Pid, event.SchedSample))
}

// samples only grow, at most one a millisecond and CPU.
func samples(t *testing.T, events []event.Event) {
	t.Helper()
	if len(events) == 0 || len(events) > 2000 {
		t.Errorf("%d samples", len(events))
	}
	var last event.Event
	for _, e := range events {
		if e.Args[0] < last.Args[0] || e.Args[1] < last.Args[1] || e.Args[2] < last.Args[2] || e.Comm != "" {
			t.Errorf("after %v came %v (%q)", last.Args, e.Args, e.Comm)
		}
		last = e
	}
	if last.Args[0] < 200e6 {
		t.Errorf("the last sample says %d ns of running", last.Args[0])
	}
}

// TestWallTime follows a process of one thread (sh that burns and sleeps): its three
// times add up to the time that passed, within 5 ms.
func TestWallTime(t *testing.T) {
	w := live.NewWatch(t)
	f, err := sched.Load(w, 0)
	live.Family(t, f, err)
	p := live.Run(t, []string{"/bin/sh", "-c", `echo ready; while read n; do i=0; while [ $i -lt $n ]; do i=$((i+1)); done; echo done; done`}, nil)
	live.Add(t, w, p)
	p.Do("1")
	var a, b usage
	sum := func(u usage) int64 { return int64(u.Run + u.Runnable + u.Blocked) }
	read := func(u *usage) int64 {
		t.Helper()
		p.Do("1") // a wait ends and begins
		if err := f.Map("usages").Lookup(uint32(p.Pid), u); err != nil {
			t.Fatal(err)
		}
		return now(unix.CLOCK_MONOTONIC)
	}
	from := read(&a)
	p.Do("100000")
	slept := now(unix.CLOCK_MONOTONIC)
	live.Until(t, "100 ms", func() bool { return now(unix.CLOCK_MONOTONIC)-slept > 100e6 })
	to := read(&b)
	if wall, got := to-from, sum(b)-sum(a); got < wall-5e6 || got > wall+5e6 {
		t.Errorf("run, runnable and blocked make %d ns, %d passed: %+v %+v", got, wall, a, b)
	}
	if b.Run == a.Run || b.Blocked-a.Blocked < 90e6 {
		t.Errorf("%+v %+v", a, b)
	}
}

// TestForeign: what an unwatched process runs is foreign time, what a watched one runs
// is not.
func TestForeign(t *testing.T) {
	w := live.NewWatch(t)
	f, err := sched.Load(w, 0)
	live.Family(t, f, err)
	p := live.Start(t, "work")
	foreign := func() uint64 {
		t.Helper()
		ns, err := sched.Foreign(f)
		if err != nil {
			t.Fatal(err)
		}
		return ns
	}
	p.Do("1", "1") // both CPUs have switched
	before := foreign()
	p.Do("200", "1")
	if d := foreign() - before; d < 195e6 {
		t.Errorf("200 ms of a process that nobody watches: %d ns foreign", d)
	}
	// A watched process's time is not in it: it and the foreign time fit into what the
	// CPUs have.
	live.Add(t, w, p)
	p.Do("1", "1")
	busy, begin := foreign(), now(unix.CLOCK_MONOTONIC)
	p.Do("200", "1")
	all := uint64(now(unix.CLOCK_MONOTONIC)-begin) * uint64(runtime.NumCPU())
	if d := foreign() - busy; d > all-195e6+slack {
		t.Errorf("%d ns foreign beside 200 ms of a watched process, of %d in all", d, all)
	}
}

// slack is for a stretch of foreign time that began before it was first read and is
// counted at its end.
const slack = 50e6
