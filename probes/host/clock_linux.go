package host

import "golang.org/x/sys/unix"

// SystemClocks are the clocks of the kernel.
func SystemClocks() Clocks {
	return Clocks{
		Wall: func() int64 { return clockNS(unix.CLOCK_REALTIME) },
		Mono: func() int64 { return clockNS(unix.CLOCK_MONOTONIC) },
		Boot: func() int64 { return clockNS(unix.CLOCK_BOOTTIME) },
	}
}

// clockNS reads one of the three clocks that every kernel has: it cannot fail.
func clockNS(id int32) int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(id, &ts)
	return ts.Nano()
}
