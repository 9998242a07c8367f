package proxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/omnitap/omnitap/proxy/tap"
)

// session is one client connection with its upstream connection.
type session struct {
	s        *Server
	n        uint64
	client   *socket
	upstream *socket
	h        *tap.Handle
	kernel   atomic.Bool
	wall     int64 // wall-clock offset of its records; its worker alone uses it
	// broken says that the upstream refused bytes: what it had answered before is
	// delivered, then the client is reset.
	broken atomic.Bool
	moving atomic.Int32       // directions that are not done
	cancel context.CancelFunc // ends the dialling
	ending atomic.Bool        // the relay ends it: ends seen from here on are our own
	// upgraded says that the first answer was a 101; lingering that upwards waits
	// behind the client's FIN, downOver that downwards is done.
	upgraded, lingering, downOver atomic.Bool
	killed                        atomic.Bool
	once                          sync.Once
}

// relay starts moving bytes both ways; the direction that ends last closes the
// session. A loop does it where it can: where TLS is spoken, a goroutine a
// direction does, each on a stack of its own that nothing deep was called on: an
// idle connection is then mostly its stacks.
func (x *session) relay() {
	up, down := x.flows()
	x.moving.Store(2)
	follow := func() { x.s.wg.Go(func() { x.upwards(up) }) }
	back := func() { x.s.wg.Go(func() { x.downwards(down) }) }
	switch ok, err := x.loop(); {
	case err != nil:
		x.s.log.Warn("a connection gets goroutines of its own", "reason", err.Error())
		fallthrough
	case !ok:
		follow()
		back()
		return
	}
	c, u := x.client.fd, x.upstream.fd
	c.flow, c.follow, u.flow, u.follow = up, follow, down, back
	c.start()
	u.start()
}

// loop lets a loop have both sides, and reports whether it has.
func (x *session) loop() (bool, error) {
	if x.client.tls || x.upstream.tls || len(x.s.loops) == 0 {
		return false, nil
	}
	l := x.s.loops[x.n%uint64(len(x.s.loops))]
	client, err := l.adopt(x.client.Conn.(*net.TCPConn))
	if err != nil {
		return false, err
	}
	upstream, err := l.adopt(x.upstream.Conn.(*net.TCPConn))
	if err != nil {
		_ = client.Close()
		return false, err
	}
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if x.ending.Load() { // quit closes what it finds
		_, _ = client.Close(), upstream.Close()
		return false, nil
	}
	x.client.become(client)
	x.upstream.become(upstream)
	return true, nil
}

// ended notes that a direction is done.
func (x *session) ended() {
	if x.moving.Add(-1) == 0 {
		x.close()
	}
}

func (x *session) flows() (up, down *flow) {
	freshUp, freshDown := &atomic.Bool{}, &atomic.Bool{}
	freshUp.Store(true)
	up = &flow{dir: tap.Client, src: x.client, dst: x.upstream, h: x.h, kernel: &x.kernel, fresh: freshUp, otherFresh: freshDown, each: &x.upgraded}
	down = &flow{dir: tap.Server, src: x.upstream, dst: x.client, h: x.h, kernel: &x.kernel, fresh: freshDown, otherFresh: freshUp, upgraded: x.upgrade}
	if x.s.injecting() && x.h != nil {
		up.inject = newInjector(x.s.ids)
	}
	return up, down
}

// upwards moves the client's bytes and passes its end on.
func (x *session) upwards(f *flow) {
	err := f.run()
	if errors.Is(err, errParked) {
		return
	}
	defer x.ended()
	now := x.s.clock.now()
	var w writeError
	switch {
	case x.ending.Load():
	case err == nil && !x.client.wasReset():
		x.h.End(tap.Client, fin, now)
		x.upstream.closeWrite()
		x.h.Propagated(x.s.clock.now())
		x.linger()
	case errors.As(err, &w):
		// the server refuses more: what it answered is still on its way down
		x.broken.Store(true)
	default:
		x.s.aborted.Store(now)
		x.h.End(tap.Client, rst, now)
		x.upstream.abort()
		x.h.Propagated(x.s.clock.now())
	}
}

// downwards moves the server's bytes and passes its end on.
func (x *session) downwards(f *flow) {
	err := f.run()
	if errors.Is(err, errParked) {
		return
	}
	defer x.ended()
	defer x.downEnded()
	x.downOver.Store(true) // a reset from here on answers our own end
	now := x.s.clock.now()
	var w writeError
	switch {
	case x.ending.Load():
	case errors.As(err, &w):
		x.s.aborted.Store(now)
		x.h.End(tap.Client, rst, now)
		x.upstream.abort()
		x.h.Propagated(x.s.clock.now())
		x.client.abort()
	case errors.Is(err, net.ErrClosed): // the client's reset was passed on already
	case err == nil && !x.broken.Load() && !x.upstream.wasReset():
		x.h.End(tap.Server, fin, now)
		x.client.closeWrite()
	default:
		x.h.End(tap.Server, rst, now)
		x.settle()
		x.client.abort()
		x.upstream.abort()
	}
}

// settleLimit bounds how long the end of an answer may lie unacknowledged ahead
// of a reset, without progress.
const settleLimit = 10 * time.Second

// settle waits until the client has what the server sent ahead of its reset: a
// reset takes away what is still unsent.
func (x *session) settle() {
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	last, until := x.client.unsent(), time.Now().Add(settleLimit)
	for last > 0 {
		<-tick.C
		n := x.client.unsent()
		if n < last {
			until = time.Now().Add(settleLimit)
		}
		if last = n; time.Now().After(until) {
			return
		}
	}
}

// close ends what is left; the record is due.
func (x *session) close() {
	x.once.Do(func() {
		_ = x.client.Close()
		if x.upstream != nil {
			_ = x.upstream.Close()
		}
		x.h.Closed(x.s.clock.now())
		x.s.forget(x)
	})
}

// quit ends an idle session at shutdown: FIN to both sides.
func (x *session) quit() {
	x.ending.Store(true)
	x.cancel()
	up := x.peer()
	x.client.closeWrite()
	if up != nil {
		up.closeWrite()
		_ = up.Close()
	}
	_ = x.client.Close()
}

// peer returns the upstream's socket, nil while it is dialled.
func (x *session) peer() *socket {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	return x.upstream
}

// kill ends a session whose time is up. A write that is blocked holds TLS's lock:
// it is given up first.
func (x *session) kill() {
	if x.killed.Swap(true) {
		return
	}
	x.ending.Store(true)
	x.h.Shutdown(x.s.clock.now())
	for _, s := range []*socket{x.client, x.peer()} {
		if s != nil && s.tls {
			_ = s.SetWriteDeadline(past)
		}
	}
	x.quit()
}

// expire cuts a session because the deadline of an exchange has passed: a reset to
// both sides, so that nobody takes it for a good end.
func (x *session) expire() {
	if x.killed.Swap(true) {
		return
	}
	x.ending.Store(true)
	x.h.Aborted(x.s.clock.now())
	x.cancel()
	for _, s := range []*socket{x.client, x.peer()} {
		if s == nil {
			continue
		}
		if s.tls { // a write that is blocked holds TLS's lock
			_ = s.SetWriteDeadline(past)
		}
		s.abort()
	}
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// dial reaches the upstream.
func (s *Server) dial(ctx context.Context) (*socket, error) {
	c, err := s.dialer.DialContext(ctx, "tcp", s.target.addr)
	if err != nil {
		return nil, err
	}
	sock, err := newSocket(c.(*net.TCPConn), s.clock)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	if s.target.tls {
		if err := sock.startTLS(ctx, s.upstreamTLS(), true); err != nil {
			_ = c.Close()
			return nil, err
		}
	}
	return sock, nil
}
