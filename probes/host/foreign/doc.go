// Package foreign measures the time that other processes ran on the CPUs of a server
// (contract section 6, "Foreign CPU use"), in windows of a second.
//
//	s, err := foreign.New(foreign.Config{Groups: groups, Sink: write})
//	err = s.Run(ctx)
//	verdict, why := s.Summary().Judge(foreign.DefaultLimit)
//
// In a window of t seconds, with S the CPUs that any thread of the server may use:
//
//	foreign = |S|·t − idle(S) − interrupts(S) − stolen(S) − server − omnitap − load
//
// idle, interrupts and stolen come from /proc/stat. The time not idle is taken, and not
// the sum of user and system time: most kernels sample the latter at the timer's tick
// and miss what runs between two of them, but keep idle time exactly.
//
// A process's own time is its CPU clock (clock_gettime of a process's clock: all
// threads, those that ended too, in nanoseconds and without privileges), or utime +
// stime of /proc/PID/stat where that cannot be had. The kernel brings a running process's
// clock forward at its tick; on CPUs of nohz_full that is once a second, so that single
// windows of a second there are off by as much. Descendants of the processes that
// the caller names belong to their group, also when their parent ends first.
//
// Processes that come and go between two samples: what a process of a group reaped
// (cutime + cstime, less what had been counted of the child before) is its group's. A
// child that nobody of the group waits for takes what it ran since the last sample with
// it, and that counts as foreign, as does everything else that nobody was seen to run.
// So do threads of the kernel.
//
// It tells how far a value can be off: Window.ForeignLowCores and ForeignHighCores hold
// the rounding of the tables (USER_HZ, 10 ms), the time that a sample took, interrupts
// and stolen time that may be in the processes' own, and time of omnitap and the load
// that may have been spent on other CPUs. What could not be measured is null with a
// reason, and is never clean.
package foreign
