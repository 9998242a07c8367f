//go:build linux && amd64

package kernel

import (
	"fmt"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// pointCalls is how often the calibrated system call is made.
const pointCalls = 20000

// CalibratePoint measures what a system call's tracepoint costs beside its program, in
// nanoseconds: a call that hardly anybody makes is made over and over by this thread,
// with and without an empty program on its way in.
func CalibratePoint() (ns float64, err error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "calibrate", Type: ebpf.TracePoint, License: "Dual MIT/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return 0, fmt.Errorf("calibrating: %w", cause(err))
	}
	defer func() { _ = prog.Close() }()
	err = withTracefs(func() error {
		// Another call of the same kind is probed first, so that both measurements are
		// of a machine whose system calls take the slow way.
		other, err := link.Tracepoint("syscalls", "sys_enter_getsid", prog, nil)
		if err != nil {
			return fmt.Errorf("calibrating: %w", cause(err))
		}
		defer func() { _ = other.Close() }()
		bare := pointTime()
		l, err := link.Tracepoint("syscalls", "sys_enter_getpgid", prog, nil)
		if err != nil {
			return fmt.Errorf("calibrating: %w", cause(err))
		}
		defer func() { _ = l.Close() }()
		ns = max(float64(pointTime()-bare)/pointCalls, 0)
		return nil
	})
	return ns, err
}

// pointTime is the least CPU time that the calls took of some rounds.
func pointTime() time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	least := time.Duration(0)
	for range 5 {
		from := threadTime()
		for range pointCalls {
			_, _ = unix.Getpgid(0)
		}
		if d := threadTime() - from; least == 0 || d < least {
			least = d
		}
	}
	return least
}

func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // cannot fail with this clock
	return time.Duration(t.Nano())
}
