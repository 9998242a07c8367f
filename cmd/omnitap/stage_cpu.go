package main

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/probes/event"
)

// cpuOf is the time that each stage's processes have run, nanoseconds by stage, as the
// kernel's own clocks of the processes say: with all their threads, the ended ones too.
// It is read the same way whether probes are attached or not.
func cpuOf(procs []event.Process) (map[string]int64, error) {
	out := map[string]int64{}
	for i := range procs {
		p := &procs[i]
		var t unix.Timespec
		if err := unix.ClockGettime(cpuClock(p.PID), &t); err != nil {
			return nil, fmt.Errorf("reading the CPU time of process %d (%s): %w", p.PID, p.Stage, err)
		}
		out[p.Stage] += t.Nano()
	}
	return out, nil
}

// cpuClock is the number of a process's CPU clock (MAKE_PROCESS_CPUCLOCK with
// CPUCLOCK_SCHED in the kernel's include/linux/posix-timers.h).
func cpuClock(pid int) int32 { return int32(^pid)<<3 | 2 }

// since is what ran between two readings, milliseconds by stage.
func since(was, now map[string]int64) map[string]float64 {
	out := map[string]float64{}
	for stage, ns := range now {
		if before, ok := was[stage]; ok {
			out[stage] = float64(ns-before) / 1e6
		}
	}
	return out
}
