package foreign

import (
	"math/rand/v2"
	"testing"

	"github.com/omnitap/omnitap/probes/host"
)

// world is a machine whose every nanosecond is known: processes that fork, run, end and
// are waited for or not, on CPUs that also idle. It knows what the kernel would show.
type world struct {
	rand    *rand.Rand
	now     int64
	idle    []int64
	procs   map[int]*life
	nextPID int
	truth   [groups]int64
	foreign int64
}

// life is one process; one of no group has group groups.
type life struct {
	ppid        int
	start       int64
	group       group
	own, reaped int64
}

func newWorld(seed uint64, cpus int) *world {
	w := &world{
		rand: rand.New(rand.NewPCG(seed, 7)), now: 1000 * second, idle: make([]int64, cpus), nextPID: 100,
		procs: map[int]*life{1: {group: groups, ppid: 0, reaped: 9 * second}},
	}
	for i := range w.idle {
		w.idle[i] = w.rand.Int64N(1000 * second)
	}
	for g := range groups {
		w.fork(1).group = g
		w.fork(1)
	}
	return w
}

func (w *world) fork(parent int) *life {
	w.nextPID++
	l := &life{ppid: parent, start: w.now, group: w.procs[parent].group}
	w.procs[w.nextPID] = l
	return l
}

func (w *world) pick() int {
	pids := make([]int, 0, len(w.procs))
	for pid := range w.procs {
		pids = append(pids, pid)
	}
	lo := pids[0]
	n := w.rand.IntN(w.nextPID-1) + 1
	for _, pid := range pids { // the nearest at or above n, so that the seed decides alone
		if (pid >= n && (lo < n || pid < lo)) || (lo < n && pid < lo) {
			lo = pid
		}
	}
	return lo
}

// slice lets 10 ms go by: on each CPU somebody runs, or nobody.
func (w *world) slice() {
	const long = int64(10e6)
	for i := range w.idle {
		run := w.rand.Int64N(long + 1)
		if w.rand.IntN(3) == 0 {
			run = 0
		}
		w.idle[i] += long - run
		l := w.procs[w.pick()]
		l.own += run
		if l.group == groups {
			w.foreign += run
		} else {
			w.truth[l.group] += run
		}
	}
	switch w.rand.IntN(12) {
	case 0:
		w.fork(w.pick())
	case 1:
		w.end(w.pick())
	}
	w.now += long
}

// end ends a process that has no children and is no group's first: its parent waits for it.
func (w *world) end(pid int) {
	for _, l := range w.procs {
		if l.ppid == pid {
			return
		}
	}
	l := w.procs[pid]
	if l.ppid <= 1 {
		return
	}
	w.procs[l.ppid].reaped += l.own + l.reaped
	delete(w.procs, pid)
}

// sample is what the kernel would show.
func (w *world) sample() *sample {
	s := &sample{mono: w.now, boot: w.now, cpus: map[int]cpuTimes{}, procs: map[int]process{}}
	total := int64(0)
	for i, ns := range w.idle {
		s.cpus[i] = cpuTimes{idle: uint64(ns / tickNS)}
		s.online = append(s.online, i)
		total += ns
	}
	s.all.idle = uint64(total / tickNS)
	for g := range groups {
		s.may[g] = s.online
	}
	for pid, l := range w.procs {
		if l.group != groups {
			s.procs[pid] = process{
				start: uint64(l.start / tickNS), ppid: l.ppid, group: l.group,
				own: l.own, reaped: l.reaped / tickNS * tickNS,
			}
		}
	}
	return s
}

// TestSimulated: in every window of many made machines the truth lies within what is
// told, and over a long run the rounding does not add up.
func TestSimulated(t *testing.T) {
	windows, outside := 0, 0
	for seed := range uint64(40) {
		w := newWorld(seed, 1+int(seed%7))
		last := w.sample()
		var told, true_ float64
		for range 20 {
			before := w.truth
			foreign := w.foreign
			for range 100 {
				w.slice()
			}
			next := w.sample()
			got := between(last, next, second)
			last = next
			windows++
			if got.ForeignCores == nil {
				t.Fatalf("seed %d: %v", seed, got.Unmeasured)
			}
			truth := float64(w.foreign-foreign) / float64(second)
			if truth < *got.ForeignLowCores || truth > *got.ForeignHighCores {
				outside++
			}
			server_ := float64(w.truth[server]-before[server]) / float64(second)
			if d := *got.ServerCores - server_; d > 0.2 || d < -0.2 {
				t.Errorf("seed %d: the server took %v cores, told %v", seed, server_, *got.ServerCores)
			}
			told += *got.ForeignCores
			true_ += truth
		}
		if d := told - true_; d > 0.25 || d < -0.25 {
			t.Errorf("seed %d: %v core seconds of others, told %v", seed, true_, told)
		}
	}
	if outside > windows/100 {
		t.Errorf("%d of %d windows have the truth outside of what they tell", outside, windows)
	}
}

// FuzzBetween: whatever two samples say, a window is measured within bounds or null
// with a reason.
func FuzzBetween(f *testing.F) {
	f.Add(uint64(1), second, int64(1), uint64(50), uint64(0), false)
	f.Add(uint64(3), int64(-1), int64(1<<60), uint64(1<<62), uint64(1<<62), true)
	f.Fuzz(func(t *testing.T, seed uint64, elapsed, own int64, idle, steal uint64, drop bool) {
		w := newWorld(seed, 1+int(seed%9))
		before := w.sample()
		for range seed % 50 {
			w.slice()
		}
		after := w.sample()
		after.mono = before.mono + elapsed
		after.all.idle = idle >> 2
		after.all.steal = steal >> 2
		for pid, p := range after.procs {
			p.own = own
			after.procs[pid] = p
			break
		}
		if drop {
			after.cpus = map[int]cpuTimes{}
			after.online = host.CPUs{0}
		}
		got := between(before, after, second)
		if (got.ForeignCores == nil) != (got.Unmeasured["foreign_cores"] != "") {
			t.Fatalf("%+v", got)
		}
		if v := got.ForeignCores; v != nil && !(*v >= 0 && *v <= float64(got.CPUs) && *got.ForeignLowCores <= *v && *v <= *got.ForeignHighCores) {
			t.Errorf("%v cores (%v to %v) of %d", *v, *got.ForeignLowCores, *got.ForeignHighCores, got.CPUs)
		}
	})
}
