package usage

import "golang.org/x/sys/unix"

// cpuTime reads the clock of a process: the CPU time of all its threads, those that
// ended too, in nanoseconds (clock_getcpuclockid(3); CPUCLOCK_SCHED is 2).
func cpuTime(pid int) (int64, error) {
	const sched = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^uint32(pid)<<3|sched), &ts); err != nil {
		return 0, err
	}
	return ts.Nano(), nil
}

// threadTime is what the calling thread has run, nanoseconds.
func threadTime() (int64, bool) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return ts.Nano(), err == nil
}
