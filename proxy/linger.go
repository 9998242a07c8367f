package proxy

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/proxy/tap"
)

// lingerLimit is how long the server of an upgraded connection may be silent
// after its client's FIN: a WebSocket has no half-close to wait for (RFC 6455
// section 7.1.1), and a client that closed for good looks the same until bytes
// are sent to it.
const lingerLimit = 10 * time.Second

// long is when a wait without a limit looks again.
const long = time.Hour

// linger watches a client whose FIN was passed on, until the server's side is
// over. A client that closed for good answers a keep-alive probe by a reset, once
// its kernel has forgotten it: nobody else would notice, and a silent server
// would be held for ever (case C47). One that still waits for its answer waits
// as long as it likes, unless the connection was upgraded.
func (x *session) linger() {
	x.lingering.Store(true)
	defer x.lingering.Store(false)
	had := x.upstream.received()
	for !x.downOver.Load() {
		limit, upgraded := long, x.upgraded.Load()
		if upgraded {
			limit = x.s.cfg.linger
		}
		err := x.client.waitGone(time.Now().Add(limit), func() bool { return x.downOver.Load() || x.upgraded.Load() != upgraded })
		select {
		case x.s.cfg.lingered <- struct{}{}:
		default:
		}
		switch now := x.upstream.received(); {
		case x.ending.Load(), x.downOver.Load():
			return
		case x.upgraded.Load() != upgraded:
			had = now
			continue
		case err == nil: // reset
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return
		case !upgraded || now != had || x.heldBack():
			had = now
			continue
		}
		now := x.s.clock.now()
		x.s.aborted.Store(now)
		x.h.End(tap.Client, rst, now)
		x.upstream.abort()
		return
	}
}

// heldBack reports whether the server is not silent but held back: by a client
// that does not read.
func (x *session) heldBack() bool { return x.client.unsent() > 0 || x.upstream.unread() > 0 }

// upgrade notes that the connection is a WebSocket from here on.
func (x *session) upgrade() {
	x.upgraded.Store(true)
	if x.lingering.Load() {
		_ = x.client.tcp.SetReadDeadline(past) // the wait has a limit now
	}
}

// downEnded lets linger know that there is nothing more to wait for.
func (x *session) downEnded() {
	if x.lingering.Load() {
		_ = x.client.tcp.SetReadDeadline(past)
	}
}

// waitGone waits, until a deadline, for the reset of a peer that sent FIN, or for
// over, which may have become true ahead of the deadline's setting.
func (s *socket) waitGone(deadline time.Time, over func() bool) error {
	if err := s.tcp.SetReadDeadline(deadline); err != nil {
		return err
	}
	return s.raw.Read(func(fd uintptr) bool {
		if over() {
			return true
		}
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		return err == nil && info.State == tcpClose
	})
}

// received returns how many bytes the peer has sent so far.
func (s *socket) received() uint64 {
	var n uint64
	_ = s.raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Bytes_received
		}
	})
	return n
}
