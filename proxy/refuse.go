package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/wire/http1"
)

// refuseLimit bounds how long a client may take to send its request and to take
// the refusal.
const refuseLimit = 10 * time.Second

// refuse answers the request of a client whose upstream cannot be reached with a
// 502 that names the reason; a client that speaks no HTTP is reset.
func (x *session) refuse(cause error) {
	reason, errno, own := why(cause)
	x.s.log.Warn("upstream cannot be reached", "upstream", x.s.target.text, "reason", reason, "errno", errno)
	_ = x.client.SetDeadline(time.Now().Add(refuseLimit))
	ok := x.readHead()
	now := x.s.clock.now()
	x.h.Refused(reason, errno, own, now)
	if !ok {
		x.client.abort()
		return
	}
	_, err := x.client.Write(x.s.badGateway(reason))
	if err == nil {
		x.client.closeWrite()
		x.discard() // closing ahead of what is still coming would reset the answer away
	}
}

// badGateway is the only answer that omnitap writes itself.
func (s *Server) badGateway(reason string) []byte {
	body, err := json.Marshal(map[string]any{"error": map[string]any{
		"message": "omnitap: upstream " + s.target.text + " cannot be reached: " + reason,
		"type":    "upstream_unreachable", "param": nil, "code": 502,
	}})
	if err != nil {
		body = nil
	}
	return append(fmt.Appendf(nil, "HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", len(body)), body...)
}

// headWatch notes the first complete request head.
type headWatch struct{ seen, lost bool }

func (w *headWatch) MessageStart(int64) {}
func (w *headWatch) Head(*http1.Head, int64) http1.Expect {
	w.seen = true
	return http1.ByHead
}
func (w *headWatch) Body([]byte, int64)   {}
func (w *headWatch) ChunkStart(int64)     {}
func (w *headWatch) ChunkEnd(int64)       {}
func (w *headWatch) MessageEnd(int64)     {}
func (w *headWatch) Tunnel([]byte, int64) {}
func (w *headWatch) Lost(error, int64)    { w.lost = true }

// readHead reads until a request head is whole and reports whether one came.
func (x *session) readHead() bool {
	w := &headWatch{}
	p := http1.Parser{H: w}
	f := &flow{dir: tap.Client, src: x.client, h: x.h, kernel: &x.kernel, fresh: &atomic.Bool{}}
	f.fresh.Store(true)
	f.init()
	defer f.release()
	for !w.seen && !w.lost {
		b, mono, first, err := f.read()
		if len(b) > 0 {
			f.h.Data(tap.Client, f.buf.block, b, mono, first)
			p.Feed(b)
			f.release()
		}
		if err != nil {
			return w.seen
		}
	}
	return w.seen
}

// discard reads what the client still sends, for its own sake, within limits.
func (x *session) discard() {
	var b [4096]byte
	for n := 0; n < 64<<20; {
		m, err := x.client.Read(b[:])
		if err != nil {
			return
		}
		n += m
	}
}

// why names the reason that an upstream could not be reached, the system's name
// for it, and whether the fault is our own.
func why(err error) (reason, errno string, own bool) {
	var e syscall.Errno
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return "name_not_resolved", dns.Err, true
	case errors.As(err, &e):
		errno = errnoName(e)
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connect_refused", errno, false
	case errors.Is(err, syscall.ECONNRESET):
		return "connect_reset", errno, false
	case errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "connect_timeout", errno, false
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "unreachable", errno, false
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "out_of_descriptors", errno, true
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EADDRINUSE):
		return "out_of_ports", errno, true
	}
	own = errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM)
	return "connect_failed", errno, own
}
