// Package monitor keeps Go's runtime from sleeping through a stop of the world. It does
// nothing else.
package monitor

import (
	"sync"
	"time"
)

// every bounds the sleep of the runtime's monitor.
const every = 50 * time.Millisecond

// Keep bounds for how long the runtime's monitor thread (sysmon) sleeps, until the
// returned function is called. Every process of ours calls it.
//
// From Go 1.26 on a thread that enters a system call at the moment in which the world is
// to be stopped can be overlooked: it looks for the stop ahead of being marked as in a
// call (reentersyscall and stopTheWorldWithSema in runtime/proc.go). The collector then
// waits until the call returns, or until the monitor takes the processor away from it; and
// the monitor sleeps up to a minute while the world is to stop. A connection that waits
// for its next message so held up a stage, and all behind it, for just that minute. The
// monitor sleeps no longer than to the next timer, that of a channel only where somebody
// waits for it: so this timer is one with a function.
func Keep() (stop func()) {
	m := &monitor{}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.timer = time.AfterFunc(every, m.again)
	return m.stop
}

type monitor struct {
	mu    sync.Mutex // protects the timer
	timer *time.Timer
	over  bool
}

func (m *monitor) again() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.over {
		m.timer.Reset(every)
	}
}

func (m *monitor) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
	m.timer.Stop()
}
