package foreign

import (
	"fmt"
	"math"

	"github.com/omnitap/omnitap/probes/host"
)

// between says what ran between two samples. It is pure.
func between(before, after *sample, window int64) Window {
	w := Window{
		StartMonoNS: before.mono, EndMonoNS: after.mono, WindowNS: window, SampleNS: after.took,
		Processes: len(after.procs),
	}
	elapsed := after.mono - before.mono
	missing := after.missing
	if missing == "" {
		missing = before.missing
	}
	online := before.online.Intersect(after.online)
	set := before.may[server].Union(after.may[server]).Intersect(online)
	w.CPUSet, w.CPUs = set.String(), len(set)
	if after.absent > 0 {
		w.Notes = append(w.Notes, fmt.Sprintf("%d of the server's named processes are not there: what they run counts as foreign", after.absent))
	}
	switch {
	case elapsed <= 0:
		w.fail("the clock did not go on between two samples")
	case missing != "":
		w.fail(missing)
	case len(set) == 0:
		w.fail("no process of the server was there, so that its CPUs are not known")
	default:
		used := use(before, after, &w)
		c, err := ran(before, after, set)
		if err != nil {
			w.fail(err.Error())
			return w
		}
		w.fill(sums{elapsed: elapsed, set: set, cpu: c, used: used}, before, after)
	}
	return w
}

// usage is what the groups took in a window, nanoseconds.
type usage struct {
	ns [groups]int64
	// rounded is how many of the values that were summed count ticks and have moved.
	rounded int
}

// use sums up what each group took. See the package comment for processes that come
// and go.
func use(before, after *sample, w *Window) (u usage) {
	owed := map[int]int64{} // what a process was given by children that were counted before
	for pid, p := range before.procs {
		if q, ok := after.procs[pid]; ok && q.start == p.start {
			continue
		}
		w.Ended++
		if heir := heirOf(before, after, p); heir != 0 {
			owed[heir] += p.own + p.reaped
		}
	}
	for pid, q := range after.procs {
		p, known := before.procs[pid]
		if !known || p.start != q.start {
			p = process{}
			if !isNew(q, before) { // found late: what it did before is not this window's
				p = q
			}
		}
		own, reaped := q.own-p.own, q.reaped-p.reaped
		u.ns[q.group] += max(0, own) + max(0, reaped-owed[pid])
		if q.coarse && own > 0 {
			u.rounded += 2
		}
		if reaped > 0 {
			u.rounded += 2
		}
	}
	return u
}

// isNew says whether a process started since a sample.
func isNew(p process, since *sample) bool {
	return int64(p.start)+1 >= since.boot/tickNS
}

// heirOf is the process that waited for one that ended, if one of a group did: its
// parent, or the parent's where that ended too.
func heirOf(before, after *sample, p process) int {
	for range 64 {
		parent, ok := before.procs[p.ppid]
		if !ok {
			return 0
		}
		if q, ok := after.procs[p.ppid]; ok && q.start == parent.start {
			return p.ppid
		}
		p = parent
	}
	return 0
}

// cpuUse is what /proc/stat says of some CPUs, nanoseconds.
type cpuUse struct {
	idle, irq, steal int64
	// moved is how many of the numbers that were summed have changed: each is rounded.
	moved int
}

// ran sums up the CPUs of a set. Where it is all of them the kernel's own sum is taken,
// since that is rounded once.
func ran(before, after *sample, set host.CPUs) (c cpuUse, err error) {
	if len(set) == len(before.online) && len(set) == len(after.online) {
		if c.add(before.all, after.all) {
			return c, nil
		}
		return c, fmt.Errorf("the times of /proc/stat went backwards")
	}
	for _, n := range set {
		if !c.add(before.cpus[n], after.cpus[n]) {
			return c, fmt.Errorf("the times of CPU %d in /proc/stat went backwards", n)
		}
	}
	return c, nil
}

// add adds one line. Idle time and that which waits for a disk are one: the kernel moves
// what is going on from one to the other.
func (c *cpuUse) add(p, q cpuTimes) bool {
	idle := int64(q.idle+q.iowait) - int64(p.idle+p.iowait)
	irq := int64(q.irq+q.softirq) - int64(p.irq+p.softirq)
	steal := int64(q.steal) - int64(p.steal)
	if idle < -1 || irq < 0 || steal < 0 {
		return false
	}
	c.idle += max(0, idle) * tickNS
	c.irq += irq * tickNS
	c.steal += steal * tickNS
	for _, moved := range []bool{p.idle != q.idle, p.iowait != q.iowait, p.irq != q.irq, p.softirq != q.softirq, p.steal != q.steal} {
		if moved {
			c.moved++
		}
	}
	return true
}

// sums are what a window is made from.
type sums struct {
	elapsed int64
	set     host.CPUs
	cpu     cpuUse
	used    usage
}

// fill writes the values of a window.
func (w *Window) fill(s sums, before, after *sample) {
	cores := func(ns float64) *float64 { ns /= float64(s.elapsed); return &ns }
	capacity := float64(s.elapsed) * float64(len(s.set))
	busy := capacity - float64(s.cpu.idle)
	own := float64(s.used.ns[server] + s.used.ns[omnitap] + s.used.ns[load])
	// A difference of two numbers that are cut to whole ticks is off by a triangular
	// error with a variance of a sixth of a tick squared. A CPU's running process has
	// its own clock brought forward at the kernel's tick only, at worst as long.
	parts := s.cpu.moved + s.used.rounded + len(s.set)
	unsure := 3 * float64(tickNS) * math.Sqrt(float64(parts)/6)
	unsure += own / float64(s.elapsed) * float64(before.took+after.took)

	w.BusyCores = cores(min(max(busy, 0), capacity))
	w.IRQCores, w.StealCores = cores(float64(s.cpu.irq)), cores(float64(s.cpu.steal))
	w.ServerCores = cores(float64(s.used.ns[server]))
	w.OmnitapCores = cores(float64(s.used.ns[omnitap]))
	w.LoadCores = cores(float64(s.used.ns[load]))
	if busy < -unsure {
		w.failForeign(fmt.Sprintf("the CPUs %s were idle for %.2f s of %.2f s: /proc/stat is not this machine's",
			w.CPUSet, float64(s.cpu.idle)/1e9, capacity/1e9))
		return
	}
	inside := s.inside(before, after, w)
	others := float64(s.cpu.irq + s.cpu.steal)
	best := busy - others - inside.best
	low := busy - others - inside.most - unsure
	high := busy - inside.least + unsure
	if high < 0 {
		w.failForeign(fmt.Sprintf("the processes took %.2f cores and the CPUs %s were busy for %.2f: some ran elsewhere",
			inside.least/float64(s.elapsed), w.CPUSet, busy/float64(s.elapsed)))
		return
	}
	clamp := func(ns float64) *float64 { return cores(min(max(ns, 0), capacity)) }
	w.ForeignCores, w.ForeignLowCores, w.ForeignHighCores = clamp(best), clamp(low), clamp(high)
}

// share is how much of the groups' time was spent on the set, nanoseconds.
type share struct{ least, best, most float64 }

// inside splits the groups' time: the kernel does not say on which CPUs a process ran,
// only where it may.
func (s *sums) inside(before, after *sample, w *Window) (out share) {
	for g := range groups {
		ns := float64(s.used.ns[g])
		may := before.may[g].Union(after.may[g])
		both := may.Intersect(s.set)
		switch {
		case ns == 0 || len(both) == 0 && len(may) > 0:
			continue
		case len(may) > 0 && len(both) == len(may.Intersect(before.online.Union(after.online))):
			out.least += ns
			out.best += ns
		default:
			out.best += ns * float64(len(both)) / float64(max(1, len(may)))
			w.Notes = append(w.Notes, fmt.Sprintf("%s may run on the CPUs [%s]: its time is shared out by their number", groupNames[g], may))
		}
		out.most += ns
	}
	return out
}
