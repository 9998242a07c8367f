package join

import "github.com/omnitap/omnitap/probes/event"

// Fate is what became of a stage's process.
type Fate struct {
	Stage string
	PID   int32
	AtNS  int64
	// Signal is the number of the signal that it was sent, 0 for none seen; OOM says
	// that the kernel chose it for want of memory; Exited that it was seen to end.
	Signal int
	OOM    bool
	Exited bool
}

// loss is a stretch of time in which a family of probes lost events.
type loss struct {
	family   string
	from, to int64
	n        int64
}

// fate takes the end of a process, or what led to it.
func (j *Joiner) fate(e *event.Event) {
	pid := int32(e.Args[0])
	if pid == 0 {
		pid = e.PID
	}
	p := j.procs[pid]
	if p == nil {
		return
	}
	f := Fate{Stage: p.stage, PID: pid, AtNS: e.MonoNS}
	switch e.Probe {
	case event.Exit:
		if tid := int32(e.Args[1]); tid != 0 && tid != pid {
			return // a thread of it
		}
		f.Exited = true
	case event.OOMKill:
		f.OOM = true
	default:
		f.Signal = int(e.Flags)
		if e.Ret < 0 || !deadly(f.Signal) {
			return
		}
	}
	j.fates.add(f)
}

// deadly says whether a signal ends a process that does not catch it, and is sent
// for that.
func deadly(signal int) bool {
	switch signal {
	case 3, 4, 6, 7, 8, 9, 11, 15, 31: // QUIT ILL ABRT BUS FPE KILL SEGV TERM SYS
		return true
	}
	return false
}

// family takes a probe's proof of life, or the count of what it lost since.
func (j *Joiner) family(e *event.Event) {
	name := e.Path
	last := j.beats[name]
	if len(j.beats) < 64 || last > 0 {
		j.beats[name] = e.MonoNS
	}
	if e.Probe != event.Loss || e.Count <= 0 {
		return
	}
	if j.stats.Lost == nil {
		j.stats.Lost = make(map[string]int64)
	}
	if _, ok := j.stats.Lost[name]; !ok && len(j.stats.Lost) >= 64 {
		name = ""
	}
	j.stats.Lost[name] += e.Count
	if e.EnterNS > 0 {
		last = e.EnterNS
	}
	if last == 0 || last > e.MonoNS {
		last = e.MonoNS - lossReach
	}
	j.losses.add(loss{name, last, e.MonoNS, e.Count})
	// A message that lost a frame must not be completed by another's.
	j.parts.clear()
}

// lossReach is how far back a loss is taken to reach that nothing tells the beginning
// of, in nanoseconds.
const lossReach = 1_000_000_000
