package ipc

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/thread"
)

const (
	// batch is libzmq's in_batch_size and out_batch_size.
	batch = 8192
	// bulk is what is asked for once a read filled a batch: libzmq then reads a large
	// body in one go.
	bulk = 1 << 18
	// readAhead is how many reads may wait for the application.
	readAhead = 64
)

// conn is a connection whose reads and writes a thread of its own does.
type conn struct {
	local, remote net.Addr

	in   chan []byte // what was read; closed at the end
	rest []byte      // of the last one; the reader's
	quit chan struct{}
	gone chan struct{} // closed when the thread has ended

	mu     sync.Mutex
	fd     int // protects the fields below and the use of fd and wake
	wake   int
	part   []byte // an unfinished message
	out    []byte // whole messages, not yet sent
	greet  int    // bytes of the greeting still to come
	err    error
	closed bool
}

// newConn takes over fd, a connected socket.
func newConn(fd int, name string, local, remote net.Addr) (*conn, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("eventfd", err), unix.Close(fd))
	}
	c := &conn{
		local: local, remote: remote, fd: fd, wake: wake, greet: greeting,
		in: make(chan []byte, readAhead), quit: make(chan struct{}), gone: make(chan struct{}),
	}
	thread.Go(name, c.run)
	return c, nil
}

// run is the thread: it reads what comes and sends what is due until Close or until
// the peer is gone.
func (c *conn) run() {
	defer close(c.gone)
	defer c.shut()
	size, more := batch, true
	for more {
		readable, err := c.wait()
		if err != nil || c.quitting() {
			return
		}
		if readable {
			size, more = c.receive(size)
		}
		if err := c.send(); err != nil {
			return
		}
	}
}

func (c *conn) shut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = net.ErrClosed
	}
	c.closed = true
	_ = unix.Close(c.wake)
	_ = unix.Close(c.fd)
	close(c.in)
}

func (c *conn) quitting() bool {
	select {
	case <-c.quit:
		return true
	default:
		return false
	}
}

// wait blocks until there is something to read or to send.
func (c *conn) wait() (readable bool, err error) {
	c.mu.Lock()
	fds := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}, {Fd: int32(c.wake), Events: unix.POLLIN}}
	if len(c.out) > 0 {
		fds[0].Events |= unix.POLLOUT
	}
	c.mu.Unlock()
	if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
		return false, err
	}
	if fds[1].Revents != 0 {
		var b [8]byte
		_, _ = unix.Read(c.wake, b[:]) // it only wakes
	}
	return fds[0].Revents&^unix.POLLOUT != 0, nil
}

// receive does one read, and says how much to ask for next.
func (c *conn) receive(size int) (next int, more bool) {
	b := make([]byte, size)
	n, no := socketCall(unix.SYS_RECVFROM, c.fd, b)
	switch {
	case no == unix.EAGAIN || no == unix.EINTR:
		return size, true
	case no != 0 || n == 0:
		return size, false
	}
	select {
	case c.in <- b[:n]:
	case <-c.quit:
		return size, false
	}
	if n == size {
		return bulk, true
	}
	return batch, true
}

// send sends what is due: messages that fit together go out together, of a larger
// one first a batch and then the rest, as libzmq does.
func (c *conn) send() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for first := true; len(c.out) > 0; first = false {
		n := len(c.out)
		if first {
			n = min(n, batch)
		}
		sent, no := socketCall(unix.SYS_SENDTO, c.fd, c.out[:n])
		switch {
		case no == unix.EAGAIN:
			return nil
		case no == unix.EINTR:
			continue
		case no != 0:
			c.err = os.NewSyscallError("sendto", no)
			return c.err
		}
		c.out = c.out[sent:]
	}
	c.out = nil
	return nil
}

// socketCall is sendto or recvfrom without an address, as libzmq calls them.
func socketCall(nr uintptr, fd int, b []byte) (int, unix.Errno) {
	n, _, no := unix.Syscall6(nr, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
	return int(n), no
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		b, ok := <-c.in
		if !ok {
			return 0, io.EOF
		}
		c.rest = b
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write implements net.Conn. It only queues: the thread sends whole messages.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.err != nil {
		return 0, c.err
	}
	c.part = append(c.part, p...)
	n := 0
	n, c.greet = whole(c.part, c.greet)
	if n > 0 {
		c.out = append(c.out, c.part[:n]...)
		c.part = append([]byte(nil), c.part[n:]...)
		c.signal()
	}
	return len(p), nil
}

// signal wakes the thread; the caller holds mu and knows that wake is open.
func (c *conn) signal() {
	one := [8]byte{1}
	_, _ = unix.Write(c.wake, one[:]) // full means that it is awake
}

// Close implements net.Conn: what is queued is dropped, the thread has ended when it
// returns.
func (c *conn) Close() error {
	c.mu.Lock()
	if !c.quitting() {
		close(c.quit)
	}
	if !c.closed {
		c.signal()
	}
	c.mu.Unlock()
	<-c.gone
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn; there are none.
func (c *conn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn; there are none.
func (c *conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn; there are none.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

var _ net.Conn = (*conn)(nil)
