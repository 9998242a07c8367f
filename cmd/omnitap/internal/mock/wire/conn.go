package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
)

// Conn is one client connection. A goroutine of its own reads it, so that a
// client that leaves is noticed while an answer is being written:
//
//	client ──▶ fill ──▶ inbox ──▶ parser ──▶ Play ──▶ client
//	                └──▶ gone
type Conn struct {
	nc     net.Conn
	ctx    context.Context // of the Serve that the connection belongs to
	in     *inbox
	closed bool // nothing more may be written
}

// Run reads a connection while serve runs, and closes it when serve returns
// or ctx ends.
func Run(ctx context.Context, nc net.Conn, serve func(*Conn)) {
	c := &Conn{nc: nc, ctx: ctx, in: newInbox()}
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()
	var filling sync.WaitGroup
	filling.Go(c.fill)
	defer filling.Wait()
	defer func() { _ = nc.Close() }()
	defer c.in.discard()
	serve(c)
}

// Read implements io.Reader: what the client sent.
func (c *Conn) Read(p []byte) (int, error) { return c.in.Read(p) }

// WriteString implements io.StringWriter, for answers outside of a plan.
func (c *Conn) WriteString(s string) (int, error) { return io.WriteString(c.nc, s) }

// Closed reports that the mock has ended the connection.
func (c *Conn) Closed() bool { return c.closed }

// Context is that of the Serve that the connection belongs to.
func (c *Conn) Context() context.Context { return c.ctx }

// SetSendBuffer sets SO_SNDBUF where there is one.
func (c *Conn) SetSendBuffer(n int) {
	if t, ok := c.nc.(*net.TCPConn); ok {
		_ = t.SetWriteBuffer(n) // a hint
	}
}

// ErrIdle is what Read gives when Expire ran.
var ErrIdle = errors.New("idle connection")

// Expire makes Read fail with ErrIdle.
func (c *Conn) Expire() { c.in.fail(ErrIdle) }

// fill moves what the client sends into the inbox.
func (c *Conn) fill() {
	buf := make([]byte, 64<<10)
	for {
		c.in.awaitRelease()
		n, err := c.nc.Read(buf)
		if n > 0 {
			c.in.put(buf[:n])
		}
		if err != nil {
			c.in.fail(err)
			return
		}
	}
}

// Finish ends the connection with a FIN. The client's own end is awaited a
// moment, since closing over unread bytes would send a RST instead.
func (c *Conn) Finish() {
	c.closed = true
	if t, ok := c.nc.(interface{ CloseWrite() error }); ok {
		_ = t.CloseWrite()
		c.in.discard()
		timer := time.NewTimer(2 * time.Second)
		defer timer.Stop()
		select {
		case <-c.in.gone:
		case <-timer.C:
		case <-c.ctx.Done():
		}
	}
	_ = c.nc.Close()
}

// Reset ends the connection with a RST, once what was written before is out:
// a RST drops what still waits in the send buffer.
func (c *Conn) Reset() {
	c.closed = true
	if t, ok := c.nc.(*net.TCPConn); ok {
		c.drain(t)
		_ = t.SetLinger(0)
	}
	_ = c.nc.Close()
}

const drainTime = 2 * time.Second

// drain waits until the peer has acknowledged everything, or for drainTime.
func (c *Conn) drain(t *net.TCPConn) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(drainTime); unsent(t) > 0 && time.Now().Before(end); {
		select {
		case <-tick.C:
		case <-c.in.gone:
			return
		case <-c.ctx.Done():
			return
		}
	}
}

// abandonWrites makes writes fail as soon as the client is gone, also one that
// is blocked, until the returned function is called.
func (c *Conn) abandonWrites() (stop func() bool) {
	return context.AfterFunc(c.in.left, func() { _ = c.nc.SetWriteDeadline(time.Unix(1, 0)) })
}

const inboxLimit = 1 << 20 // bytes a client may send ahead

// inbox is the buffer between the reading goroutine and the parser.
type inbox struct {
	left  context.Context // ends when the client has sent FIN or RST
	leave context.CancelFunc
	gone  <-chan struct{} // left.Done()

	mu      sync.Mutex // protects all below
	changed *sync.Cond
	buf     bytes.Buffer
	err     error
	endedNS int64
	drop    bool
	held    bool // nothing is to be read
}

func newInbox() *inbox {
	in := &inbox{}
	in.left, in.leave = context.WithCancel(context.Background())
	in.gone = in.left.Done()
	in.changed = sync.NewCond(&in.mu)
	return in
}

// setHeld stops the reading of the connection, or lets it go on.
func (in *inbox) setHeld(on bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.held = on
	in.changed.Broadcast()
}

// awaitRelease waits while reading is stopped.
func (in *inbox) awaitRelease() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.held && !in.drop {
		in.changed.Wait()
	}
}

// put adds bytes, waiting for room.
func (in *inbox) put(b []byte) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.buf.Len() >= inboxLimit && !in.drop {
		in.changed.Wait()
	}
	if !in.drop {
		in.buf.Write(b)
	}
	in.changed.Broadcast()
}

// fail ends the inbox; the first error stays. Only an end by the client, not
// ErrIdle, closes gone.
func (in *inbox) fail(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err == nil {
		in.err = err
	}
	if !errors.Is(err, ErrIdle) && in.endedNS == 0 {
		in.endedNS = truth.Mono()
		in.leave()
	}
	in.changed.Broadcast()
}

// discard drops what is there and what still comes.
func (in *inbox) discard() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.drop = true
	in.buf.Reset()
	in.changed.Broadcast()
}

// end is when and how the client ended; a zero time means not yet.
func (in *inbox) end() (int64, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.endedNS, in.err
}

// Read implements io.Reader.
func (in *inbox) Read(p []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.buf.Len() == 0 && in.err == nil && !in.drop {
		in.changed.Wait()
	}
	if in.buf.Len() > 0 {
		n, _ := in.buf.Read(p)
		in.changed.Broadcast()
		return n, nil
	}
	if in.err != nil {
		return 0, in.err
	}
	return 0, io.EOF
}
