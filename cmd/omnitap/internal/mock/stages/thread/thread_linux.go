// Package thread runs work on threads of their own that bear a name, as the
// servers' libraries have them: an observer sees threads, not goroutines.
package thread

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Go runs f on a new thread named name (its first 15 bytes count). The thread ends
// with f.
func Go(name string, f func()) { go run(name, f, func() {}) }

func run(name string, f, placed func()) {
	runtime.LockOSThread() // never unlocked: the thread dies with the goroutine
	if unix.Gettid() == unix.Getpid() {
		elsewhere(name, f)
		return
	}
	placed()
	if name != "" {
		SetName(name)
	}
	f()
}

// elsewhere is called on the process's first thread, which would outlive the work and
// keep its name: it stays occupied until another one has the work.
func elsewhere(name string, f func()) {
	defer runtime.UnlockOSThread()
	has := make(chan struct{})
	go run(name, f, func() { close(has) })
	<-has
}

// SetName names the calling thread; the caller holds it by LockOSThread. A name that
// the kernel refuses changes nothing that is worth an error.
func SetName(name string) {
	var b [16]byte
	copy(b[:15], name)
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0)
}

// MonoNS is CLOCK_MONOTONIC in nanoseconds, the clock of the kernel's probes.
func MonoNS() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return t.Nano()
}

// Sleep blocks the calling thread in the kernel until ns of CLOCK_MONOTONIC.
func Sleep(until int64) {
	for {
		left := until - MonoNS()
		if left <= 0 {
			return
		}
		t := unix.NsecToTimespec(left)
		_ = unix.Nanosleep(&t, nil) // a signal wakes it early: then it sleeps again
	}
}
