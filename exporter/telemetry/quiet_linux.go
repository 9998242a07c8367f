package telemetry

import "golang.org/x/sys/unix"

// lowered is the nice value of the thread that exports, unless it is higher already.
const lowered = 10

// yield lowers the priority of the calling thread. Where that is not allowed it stays.
func yield() {
	tid := unix.Gettid()
	if raw, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err == nil && 20-raw < lowered { // setpriority(2): the call gives 20 less it
		_ = unix.Setpriority(unix.PRIO_PROCESS, tid, lowered)
	}
}
