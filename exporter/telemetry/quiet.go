package telemetry

import (
	"runtime"
	"sync"
)

// quiet runs functions one at a time on a thread of its own, of low priority: to encode a
// batch takes milliseconds of CPU, which the relay's loops must not wait for.
type quiet struct {
	jobs chan func()
	over chan struct{}
	once sync.Once
}

func newQuiet() *quiet {
	q := &quiet{jobs: make(chan func()), over: make(chan struct{})}
	go q.work()
	return q
}

// work never unlocks its thread, which so ends with it.
func (q *quiet) work() {
	runtime.LockOSThread()
	yield()
	for {
		select {
		case f := <-q.jobs:
			f()
		case <-q.over:
			return
		}
	}
}

// run runs f and waits for it; after end it runs where it is called.
func (q *quiet) run(f func()) {
	done := make(chan struct{})
	select {
	case q.jobs <- func() { defer close(done); f() }:
		<-done
	case <-q.over:
		f()
	}
}

// end ends the thread, once what it runs has returned.
func (q *quiet) end() { q.once.Do(func() { close(q.over) }) }
