package proxy

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// descriptor is a TCP connection that a loop watches. It waits as Go's own
// connections do: for edges, after a call that said EAGAIN.
type descriptor struct {
	loop   *loop
	fd     int
	state  atomic.Int32 // who has the flow that reads from it
	flow   *flow
	follow func() // starts a goroutine that goes on with flow

	mu     sync.Mutex // held during system calls, so that nobody closes fd meanwhile
	closed bool

	reading, writing waiter
	deadline         atomic.Int64 // of Read, in Unix nanoseconds, 0 for none
}

// states of a descriptor's flow.
const (
	parked int32 = iota // nothing to do: the loop's next event takes it
	busy                // the loop's goroutine or another one has it, or it is over
	missed              // as busy, and something happened meanwhile
)

// errAgain says that there is nothing to read.
var errAgain = errors.New("nothing to read")

// claim takes the flow, or lets whoever has it know that something happened.
func (d *descriptor) claim() bool {
	for {
		switch s := d.state.Load(); {
		case s == parked && d.state.CompareAndSwap(parked, busy):
			return true
		case s == busy && d.state.CompareAndSwap(busy, missed), s == missed:
			return false
		}
	}
}

// giveBack gives the flow to the loop; false says that something happened since
// it was claimed, and whoever has it has to look once more.
func (d *descriptor) giveBack() bool {
	if d.state.CompareAndSwap(busy, parked) {
		return true
	}
	d.state.Store(busy)
	return false
}

// start lets the loop have the flow from here on.
func (d *descriptor) start() {
	if d.giveBack() {
		return
	}
	// bytes were there already: have the loop told again
	d.state.Store(parked)
	told, _ := d.try(func(fd uintptr) bool { return d.loop.control(unix.EPOLL_CTL_MOD, int(fd), watched) == nil })
	if !told && d.claim() {
		d.leave()
	}
}

// leave hands a claimed flow to a goroutine.
func (d *descriptor) leave() { d.follow() }

// event is called by the loop with what happened.
func (d *descriptor) event(mask uint32) {
	if mask&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 && d.writing.wake() {
		d.loop.readied = true
	}
	if mask&^unix.EPOLLOUT == 0 {
		return
	}
	if d.reading.wake() {
		d.loop.readied = true
	}
	if d.claim() {
		d.loop.step(d, mask&ending != 0)
	}
}

// try calls f, which makes system calls that do not wait, on the open descriptor.
func (d *descriptor) try(f func(fd uintptr) bool) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false, net.ErrClosed
	}
	return f(uintptr(d.fd)), nil
}

// Control is part of syscall.RawConn.
func (d *descriptor) Control(f func(fd uintptr)) error {
	_, err := d.try(func(fd uintptr) bool {
		f(fd)
		return true
	})
	return err
}

// Read is part of syscall.RawConn: it calls f at each edge until it is done or
// the deadline is over.
func (d *descriptor) Read(f func(fd uintptr) bool) error { return d.await(&d.reading, f, &d.deadline) }

// Write is part of syscall.RawConn.
func (d *descriptor) Write(f func(fd uintptr) bool) error { return d.await(&d.writing, f, nil) }

// waiter is where one goroutine waits for edges.
type waiter struct {
	on atomic.Bool
	c  chan struct{} // set ahead of on
}

// wake reports whether somebody waits.
func (w *waiter) wake() bool {
	if !w.on.Load() {
		return false
	}
	select {
	case w.c <- struct{}{}:
	default:
	}
	return true
}

// await calls f until it is done, at each edge; an edge ahead of a call is seen by it.
func (d *descriptor) await(w *waiter, f func(fd uintptr) bool, deadline *atomic.Int64) error {
	if w.c == nil {
		w.c = make(chan struct{}, 1)
	}
	w.on.Store(true)
	defer w.on.Store(false)
	limit := time.NewTimer(long)
	defer limit.Stop()
	for {
		left := long
		if deadline != nil && deadline.Load() != 0 {
			left = time.Until(time.Unix(0, deadline.Load()))
		}
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		if done, err := d.try(f); done || err != nil {
			return err
		}
		limit.Reset(left)
		select {
		case <-w.c:
		case <-limit.C:
		}
	}
}

// SetReadDeadline bounds Read, also one that waits.
func (d *descriptor) SetReadDeadline(t time.Time) error {
	d.deadline.Store(t.UnixNano())
	d.reading.wake()
	return nil
}

// CloseWrite sends FIN.
func (d *descriptor) CloseWrite() error {
	_, err := d.try(func(fd uintptr) bool {
		_ = unix.Shutdown(int(fd), unix.SHUT_WR) // a peer that is gone does not want it
		return true
	})
	return err
}

// SetLinger sets how long Close may take to send what is unsent; 0 sends RST.
func (d *descriptor) SetLinger(sec int) error {
	_, err := d.try(func(fd uintptr) bool {
		_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: int32(sec)})
		return true
	})
	return err
}

// Close closes the descriptor: whoever waits on it learns of it, and its flow ends.
func (d *descriptor) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return net.ErrClosed
	}
	d.closed = true
	d.loop.put(d.fd, nil)
	_ = d.loop.control(unix.EPOLL_CTL_DEL, d.fd, 0)
	_ = unix.Close(d.fd)
	d.mu.Unlock()
	d.reading.wake()
	d.writing.wake()
	if d.claim() {
		d.leave()
	}
	return nil
}

var _ syscall.RawConn = (*descriptor)(nil)
