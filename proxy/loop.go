package proxy

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// loop moves the bytes of many plain connections on one goroutine: it waits for
// all of them at once, and reads and writes on what has arrived without a
// goroutine a direction having to be woken for it. Against those it takes about a
// fifth of the CPU time off an event.
//
// It never waits for a connection. A write that would block, a transfer in bulk
// and every end are followed by a goroutine (flow.run), which gives the flow back
// when nothing is left to read.
type loop struct {
	epfd, bell int // bell is an eventfd: rung to stop
	events     [64]unix.EpollEvent
	quiet      int  // waits in a row that gave nothing
	readied    bool // a goroutine was started or woken since the last wait
	rx         receiver
	tx         writer
	send       func(uintptr) bool
	buf        *buffer

	mu    sync.Mutex    // protects what follows
	conns []*descriptor // by file descriptor
}

// watched is what of a connection makes an event: edges, as Go's poller has them.
const watched = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLPRI | unix.EPOLLET&0xffffffff

// ending is what of an event says that a short read may not be the last: an end
// that came with the bytes, or urgent data that cut the read, gives no edge of its own.
const ending = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR | unix.EPOLLPRI

func newLoop(clk *clock) (*loop, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(epfd)
		return nil, os.NewSyscallError("eventfd", err)
	}
	l := &loop{epfd: epfd, bell: bell, buf: &buffer{}}
	l.tx.clock = clk
	l.send = l.tx.send
	if err := l.control(unix.EPOLL_CTL_ADD, bell, unix.EPOLLIN); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *loop) close() {
	_ = unix.Close(l.epfd)
	_ = unix.Close(l.bell)
}

func (l *loop) control(op, fd int, events uint32) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(l.epfd, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}))
}

// stop ends run.
func (l *loop) stop() { _, _ = unix.Write(l.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// run moves bytes until stop, and closes the loop.
func (l *loop) run() {
	defer l.close()
	defer func() { l.buf.release() }() // the one at the end
	for {
		for i := range l.wait() {
			e := &l.events[i]
			if int(e.Fd) == l.bell {
				return
			}
			if d := l.at(int(e.Fd)); d != nil {
				d.event(e.Events)
			}
		}
		if l.readied {
			// the goroutine stands in the queue of the processor that the next wait keeps
			l.readied = false
			runtime.Gosched()
		}
	}
}

const (
	// waitMS is how long a wait that Go's scheduler does not know of may take.
	waitMS = 10
	// quietWaits is after how many waits in vain the scheduler is told.
	quietWaits = 2
)

// wait returns how many events there are.
//
// While there is traffic it waits in a raw system call, which keeps the
// scheduler's processor: telling the scheduler would wake its monitor, and
// getting a processor back would cost more than the event. Server.Run adds a
// processor for each loop, so that nobody lacks this one. What has to stop the
// goroutine (a collection, say) interrupts the call by its preemption signal, and
// without such signals waits for waitMS at the longest.
func (l *loop) wait() int {
	var n uintptr
	var e syscall.Errno
	at, size := uintptr(unsafe.Pointer(&l.events[0])), uintptr(len(l.events))
	if l.quiet < quietWaits {
		n, _, e = syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epfd), at, size, waitMS, 0, 0)
	} else {
		n, _, e = syscall.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epfd), at, size, ^uintptr(0), 0, 0)
	}
	if e != 0 || n == 0 {
		l.quiet++
		return 0
	}
	l.quiet = 0
	return int(n)
}

func (l *loop) at(fd int) *descriptor {
	l.mu.Lock()
	defer l.mu.Unlock()
	if fd >= len(l.conns) {
		return nil
	}
	return l.conns[fd]
}

// adopt takes a copy of a connection's descriptor and watches it. The connection
// stays open, and is to be closed when the copy is used.
func (l *loop) adopt(c *net.TCPConn) (*descriptor, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, e := -1, error(nil)
	err = raw.Control(func(from uintptr) { fd, e = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 3) })
	if err != nil {
		return nil, err
	}
	if e != nil {
		return nil, os.NewSyscallError("fcntl", e)
	}
	d := &descriptor{fd: fd, loop: l}
	d.state.Store(busy)
	l.put(fd, d)
	if err := l.control(unix.EPOLL_CTL_ADD, fd, watched); err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("watching a connection: %w", err)
	}
	return d, nil
}

func (l *loop) put(fd int, d *descriptor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for fd >= len(l.conns) {
		l.conns = append(l.conns, nil)
	}
	l.conns[fd] = d
}

// burst is how many reads in a row make a transfer in bulk, which would keep
// others waiting.
const burst = 4

// step moves what has arrived at d, whose flow is the loop's. more says that a
// short read need not be the last.
func (l *loop) step(d *descriptor, more bool) {
	f := d.flow
	for range burst {
		n, room, err := l.receive(d)
		if n > 0 && !l.forward(f, n) {
			break
		}
		if errors.Is(err, errAgain) || err == nil && n < room && !more {
			if d.giveBack() {
				return
			}
			more = true // it was closed, most likely
			continue
		}
		if err != nil {
			f.err = err
			break
		}
	}
	l.readied = true
	d.leave()
}

// receive reads once into the loop's buffer, which had that much room.
func (l *loop) receive(d *descriptor) (n, room int, err error) {
	r := &l.rx
	b := l.buf.room()
	r.b, r.first, r.short, r.peek = b, 0, false, d.flow.peeks()
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return 0, 0, net.ErrClosed
	}
	ok := r.recv(uintptr(d.fd))
	d.mu.Unlock()
	if !ok {
		return 0, len(b), errAgain
	}
	n, err = r.result()
	return n, len(b), err
}

// forward hands n bytes over and writes them on. False says that not all were
// taken, and flow.run has to go on.
func (l *loop) forward(f *flow, n int) bool {
	p := l.buf.block.B[l.buf.used : l.buf.used+n : l.buf.used+n]
	mono, first := f.stamp(&l.rx)
	out, kept := f.handOver(l.buf, p, mono, first)
	w := &l.tx
	w.b, w.errno, w.since = out, 0, 0
	done, err := f.dst.fd.try(l.send)
	switch {
	case err != nil:
	case !done:
		// the flow takes the buffer with it
		f.rest = rest{b: w.b, since: w.since, n: n, kept: kept}
		f.buf, l.buf = l.buf, &buffer{}
		return false
	case w.errno != 0:
		err = os.NewSyscallError("send", w.errno)
	}
	if err != nil {
		if kept { // the tap has yet to look at it
			l.buf.advance(n)
		}
		f.err = writeError{err}
		return false
	}
	f.written(l.buf, n, kept, 0)
	return true
}

var processors sync.Mutex // guards changes of GOMAXPROCS

// addProcessors lets Go run n more goroutines at a time, fewer for a negative n.
// From then on Go does not follow changes of a control group's limit by itself.
func addProcessors(n int) {
	processors.Lock()
	defer processors.Unlock()
	runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)+n))
}
