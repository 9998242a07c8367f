package join

import (
	"slices"

	"github.com/omnitap/omnitap/probes/event"
)

// cpus is what is known of the threads of processes.
type cpus struct {
	threads table[int32, *thread]
}

func newCPUs() cpus { return cpus{newTable[int32, *thread](1 << 16)} }

type state uint8

const (
	unseen state = iota
	running
	runnable
	blocked
)

type thread struct {
	p     *process
	state state
	since int64
}

// curve is the sum of a process's run, runnable and blocked time as it was at some
// moments.
type curve struct {
	limit  int
	step   int64 // the least distance of two points
	points []cpuPoint

	run, runnable, blocked int64 // of intervals that have ended
	// running and waiting are how many threads run and wait for a processor now;
	// their sums of since make the time of those that have not ended.
	running, waiting           int64
	runningSince, waitingSince int64
	// sums says that the points are from samples, not from single switches.
	sums bool
}

type cpuPoint struct{ at, run, runnable, blocked int64 }

// The distance of points: at first 1 ms, doubled each time they become too many.
const (
	firstStep = 1_000_000
	lastStep  = 16_000_000
)

func (c *curve) add(p cpuPoint) {
	n := len(c.points)
	if n > 0 && p.at < c.points[n-1].at {
		return
	}
	if c.step == 0 {
		c.step = firstStep
	}
	if n >= 2 && p.at-c.points[n-2].at < c.step {
		c.points[n-1] = p
		return
	}
	if n >= c.limit && n > 3 {
		c.thin()
	}
	c.points = append(c.points, p)
}

// thin makes room: every other point goes, or, where they lie far apart already, the
// oldest quarter.
func (c *curve) thin() {
	if c.step >= lastStep {
		c.points = slices.Delete(c.points, 0, len(c.points)/4)
		return
	}
	c.step *= 2
	kept := c.points[:0]
	for i, p := range c.points {
		if i%2 == 0 {
			kept = append(kept, p)
		}
	}
	c.points = kept
}

// mark notes the sums at a moment.
func (c *curve) mark(at int64) {
	c.add(cpuPoint{
		at:       at,
		run:      c.run + c.running*at - c.runningSince,
		runnable: c.runnable + c.waiting*at - c.waitingSince,
		blocked:  c.blocked,
	})
}

// Usage is processor time of a stage's threads over a stretch of time.
type Usage struct {
	// RunNS, RunnableNS and BlockedNS are from the first to the last sample inside the
	// stretch. Blocked is the waits that ended in it.
	RunNS, RunnableNS, BlockedNS int64
	// BoundNS is by how much RunNS may be too low: what the nearest samples outside
	// show. -1 says that there is none on one side.
	BoundNS int64
}

// between is the usage in a stretch of time, nil where fewer than two samples lie in it.
func (c *curve) between(from, to int64) *Usage {
	lo, _ := slices.BinarySearchFunc(c.points, from, byAt)
	hi, _ := slices.BinarySearchFunc(c.points, to+1, byAt)
	if hi-lo < 2 {
		return nil
	}
	a, b := c.points[lo], c.points[hi-1]
	u := &Usage{RunNS: b.run - a.run, RunnableNS: b.runnable - a.runnable, BlockedNS: b.blocked - a.blocked, BoundNS: -1}
	if u.RunNS < 0 || u.RunnableNS < 0 || u.BlockedNS < 0 {
		return nil // the counting began anew
	}
	before, after := a, b
	if a.at > from {
		if lo == 0 {
			return u
		}
		before = c.points[lo-1]
	}
	if b.at < to {
		if hi == len(c.points) {
			return u
		}
		after = c.points[hi]
	}
	u.BoundNS = max(after.run-before.run-u.RunNS, 0)
	return u
}

// around are the samples that between looks at: the first and the last inside the
// stretch, and the nearest outside.
func (c *curve) around(from, to int64) []cpuPoint {
	lo, _ := slices.BinarySearchFunc(c.points, from, byAt)
	hi, _ := slices.BinarySearchFunc(c.points, to+1, byAt)
	if hi-lo < 2 {
		return nil
	}
	return slices.Concat(c.points[max(lo-1, 0):lo+1], c.points[hi-1:min(hi+1, len(c.points))])
}

func byAt(p cpuPoint, at int64) int {
	switch {
	case p.at < at:
		return -1
	case p.at > at:
		return 1
	}
	return 0
}

// sched takes a switch, a wake-up, or a sample of sums.
func (j *Joiner) sched(e *event.Event) {
	switch e.Probe {
	case event.SchedSample:
		if p := j.procs[e.PID]; p != nil {
			p.curve.sums = true
			p.curve.add(cpuPoint{e.MonoNS, e.Args[0], e.Args[1], e.Args[2]})
		}
	case event.SchedWakeup:
		if t, ok := j.cpus.threads.get(int32(e.Args[1])); ok && t.state == running {
			return // woken on its way to sleep: it never slept
		}
		j.turn(int32(e.Args[0]), int32(e.Args[1]), e.MonoNS, runnable)
	default:
		// prev_state 0 is runnable; the bits above the first byte say that it was
		// preempted.
		next := blocked
		if e.Flags&0xff == 0 {
			next = runnable
		}
		j.turn(int32(e.Args[1]), int32(e.Args[2]), e.MonoNS, next)
		j.turn(int32(e.Args[3]), int32(e.Args[4]), e.MonoNS, running)
	}
}

// turn is a change of what a thread does. The time before is counted only where its
// beginning was seen.
func (j *Joiner) turn(tgid, tid int32, at int64, to state) {
	p := j.procs[tgid]
	if p == nil || tid == 0 || p.curve.sums {
		return
	}
	t, ok := j.cpus.threads.get(tid)
	if !ok || t.p != p {
		if ok {
			t.p.curve.leave(t, at)
		}
		t = &thread{p: p}
		if old, dropped := j.cpus.threads.put(tid, t); dropped {
			old.p.curve.leave(old, at)
		}
	}
	if to == t.state {
		return
	}
	p.curve.leave(t, at)
	t.state, t.since = to, at
	switch to {
	case running:
		p.curve.running++
		p.curve.runningSince += at
	case runnable:
		p.curve.waiting++
		p.curve.waitingSince += at
	default:
		// The time that it is blocked counts when it ends.
	}
	p.curve.mark(at)
}

// leave ends what a thread did.
func (c *curve) leave(t *thread, at int64) {
	took := at - t.since
	switch t.state {
	case running:
		c.run += took
		c.running--
		c.runningSince -= t.since
	case runnable:
		c.runnable += took
		c.waiting--
		c.waitingSince -= t.since
	case blocked:
		c.blocked += took
	case unseen:
	}
	t.state = unseen
}
