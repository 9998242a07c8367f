package tap

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/omnitap/omnitap/proxy/timeline/session"
	"github.com/omnitap/omnitap/proxy/wire/http1"
	"github.com/omnitap/omnitap/proxy/wire/ws"
)

// tunnel reads a WebSocket connection from its upgrade on.
type tunnel struct {
	c   *Conn
	ses *session.Session
	dir [2]flow
	off bool // frames are not read: an extension that is not known

	up, down int64 // the first byte of the request and of the answer that opened it
}

// flow is one direction of a tunnel, as handler of its frames.
type flow struct {
	t     *tunnel
	dir   Dir
	scan  ws.Scanner
	first int64 // stamp of the first byte of the message at hand
	begun bool  // the scanner knows its offset
}

// newTunnel returns a reader of the WebSocket that x asked for, or why its
// messages cannot be read.
func newTunnel(c *Conn, x *exchange, h *http1.Head) (t *tunnel, err error) {
	var all []string
	for _, f := range h.Fields {
		if strings.EqualFold(f.Name, "Sec-WebSocket-Extensions") {
			all = append(all, f.Value)
		}
	}
	accepted := strings.Join(all, ", ")
	up, down, err := ws.Negotiated(accepted)
	t = &tunnel{c: c, up: x.startUp, down: x.startDown}
	opened, upgraded := x.b.Opened()
	info := session.Info{
		Method: x.method, Path: x.b.Path(), RequestID: x.b.RequestID(), Source: x.b.IDSource(), Traceparent: x.b.Traceparent(),
		Opened: opened, Upgraded: upgraded, Replay: c.replay, Compression: short(accepted),
	}
	t.ses = session.New(&c.cfg.Timeline, c.identify(c.count-1), info, c.sink, c.cfg.sessions)
	for d := range t.dir {
		f := &t.dir[d]
		f.t, f.dir = t, Dir(d)
		f.scan = ws.Scanner{H: f, FromClient: Dir(d) == Client, Limit: c.cfg.MaxEvent}
	}
	if up != nil {
		t.dir[Client].scan.Compress(*up)
	}
	if down != nil {
		t.dir[Server].scan.Compress(*down)
	}
	if err != nil {
		t.off = true
		t.ses.Analysis("unsupported_encoding", err.Error())
	}
	return t, err
}

// feed reads bytes of a direction, the first of which is byte off.
func (t *tunnel) feed(dir Dir, p []byte, off int64) {
	f := &t.dir[dir]
	if t.off {
		return
	}
	if !f.begun {
		f.begun = true
		f.scan.Start(off - 1)
	}
	f.scan.Feed(p)
}

// gap passes over n bytes that were not kept.
func (t *tunnel) gap(dir Dir, n int64) {
	f := &t.dir[dir]
	f.begun = true
	t.ses.Dropped(n)
	f.scan.Skip(n)
}

// finish ends the reading and reports whether the session's own records tell
// all there is to tell.
func (t *tunnel) finish(mono int64) bool {
	for d := range t.dir {
		if t.dir[d].scan.MidFrame() {
			t.ses.MidFrame()
		}
		t.dir[d].scan.Close()
	}
	t.ses.Bytes(t.c.read[Client]-t.up+1, t.c.read[Server]-t.down+1)
	known := t.ses.Known() && !t.off
	t.ses.Finish(mono)
	return known
}

// stamp returns when byte off of the direction was received: the read at hand
// brought it, but for what a client sent ahead of the server's 101.
func (f *flow) stamp(off int64, first bool) int64 {
	c := f.t.c
	if n := len(c.ahead); f.dir == Client && n > 0 && off <= c.ahead[n-1].end {
		i := sort.Search(n, func(i int) bool { return off <= c.ahead[i].end })
		if h := c.ahead[i]; first && off == h.begin+1 {
			return h.first
		}
		return c.ahead[i].mono
	}
	if first && off == c.base+1 {
		return c.first
	}
	return c.now
}

// MessageStart is part of ws.Handler.
func (f *flow) MessageStart(op ws.Opcode, off int64) {
	f.first = f.stamp(off, true)
	if op == ws.Binary && f.dir == Server {
		f.t.ses.BinaryStart(session.Span{First: f.first, Last: f.first, Start: off, End: off})
	}
}

// Payload is part of ws.Handler.
func (f *flow) Payload(p []byte, _ int64, _ bool) {
	if f.dir == Server {
		f.t.ses.Binary(p)
	}
}

// Message is part of ws.Handler.
func (f *flow) Message(m ws.Message) {
	s, server := f.t.ses, f.dir == Server
	at := session.Span{First: f.first, Last: f.stamp(m.End, false), Start: m.Start, End: m.End}
	s.Fragments(server, m.Frames)
	switch {
	case m.Err != nil && m.Data == nil:
		s.Malformed(server, at, "malformed_deflate", m.Err.Error())
	case m.Truncated:
		s.Truncated(server, at, fmt.Sprintf("message of %d bytes, over %d (sha256 %x)", m.Size, f.t.c.cfg.MaxEvent, m.Sum))
	case m.Op == ws.Binary && server:
		s.BinaryEnd(at, m.Size)
	case m.Op == ws.Binary:
		s.ClientBinary(at)
	default:
		f.text(m, at)
	}
}

func (f *flow) text(m ws.Message, at session.Span) {
	r, s, server := f.t.c.reader, f.t.ses, f.dir == Server
	read := r.Client
	if server {
		r.Brief = false
		read = r.Server
	}
	msg, err := read(m.Data)
	switch {
	case err != nil:
		s.Malformed(server, at, "malformed_json", err.Error())
	case server:
		s.Server(msg, at)
	default:
		s.Client(msg, at)
	}
	if m.Err != nil {
		s.Malformed(server, at, "malformed_text", m.Err.Error())
	}
}

// Control is part of ws.Handler.
func (f *flow) Control(op ws.Opcode, payload []byte, _, end int64) {
	s, server := f.t.ses, f.dir == Server
	mono := f.stamp(end, false)
	switch op {
	case ws.Ping:
		s.Ping(server, payload, mono)
	case ws.Pong:
		s.Pong(server, payload, mono)
	case ws.Close:
		code, reason, ok := ws.CloseCode(payload)
		s.CloseFrame(server, code, reason, ok, mono)
	default:
	}
}

// Lost is part of ws.Handler.
func (f *flow) Lost(err error, off int64) {
	side := [...]string{"client", "server"}[f.dir]
	why := fmt.Sprintf("%v at byte %d", err, off)
	if errors.Is(err, ws.ErrGap) {
		f.t.ses.Quiet(side + ": " + why)
		return
	}
	f.t.ses.Violation(f.dir == Server, why)
}
