package truth

import "golang.org/x/sys/unix"

// Mono reads CLOCK_MONOTONIC in ns: the clock of kernel probes and captures,
// which time.Time does not hand out.
func Mono() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}
