package gpu

import "golang.org/x/sys/unix"

// threadTime is what the calling thread has run, nanoseconds.
func threadTime() (int64, bool) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return ts.Nano(), err == nil
}
