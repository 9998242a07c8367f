package nodes

import "github.com/omnitap/omnitap/probes/event"

// MaxParts is how many parts can be told apart in one process table: process numbers
// have 22 bits on Linux (PID_MAX_LIMIT), and 31 are there.
const MaxParts = 1 << 8

const pidBits = 22

// PID is the number of a part's process in the table of all parts. Part 0 keeps its own.
func PID(part, pid int) int {
	if pid <= 0 {
		return pid
	}
	return part<<pidBits | pid
}

// Own takes such a number apart.
func Own(pid int) (part, own int) {
	if pid <= 0 {
		return 0, pid
	}
	return pid >> pidBits, pid & (1<<pidBits - 1)
}

// Shift tells an event of a part in the peer's time and the table of all parts. What a
// machine numbers for itself (processes, sockets' addresses) is made its own. Times inside
// of messages stay as they are: the joiner knows whose they are (event.Process.ClockNS).
func Shift(e *event.Event, part int, offset int64) {
	e.MonoNS += offset
	if e.EnterNS > 0 {
		e.EnterNS += offset
	}
	if part == 0 {
		return
	}
	pid := func(n int64) int64 { return int64(PID(part, int(n))) }
	e.PID, e.TID = int32(pid(int64(e.PID))), int32(pid(int64(e.TID)))
	for _, i := range numbered(e.Probe) {
		e.Args[i] = pid(e.Args[i])
	}
}

// numbered is which arguments of a probe are numbers of processes or threads.
func numbered(p event.Probe) []int {
	switch p {
	case event.Fork:
		return []int{0, 1, 2}
	case event.Exit, event.SchedWakeup, event.Signal:
		return []int{0, 1}
	case event.SchedSwitch:
		return []int{1, 2, 3, 4}
	case event.OOMKill:
		return []int{0}
	default:
		return nil
	}
}
