package tap

import (
	"errors"
	"net/http"
	"strings"

	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/timeline/session"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
	"github.com/omnitap/omnitap/proxy/wire/http1"
)

// Dir is a direction: whose bytes they are.
type Dir uint8

// Directions.
const (
	Client Dir = iota
	Server
)

// Identify makes the identity of a connection's exchange n, counted from 0.
type Identify func(n int) timeline.Identity

// Conn reads one connection. It is not safe for concurrent use.
type Conn struct {
	cfg      *Config
	identify Identify
	sink     timeline.Sink
	reader   *dialect.Reader

	req, resp http1.Parser
	now       int64 // stamp of the segment at hand
	first     int64 // stamp of its first byte
	base      int64 // offset of the byte before it
	closed    [2]timeline.End
	closedAt  [2]int64

	open      []*exchange // requests whose answers are not over, in order
	current   *exchange   // the request being read
	finishing []*exchange // answers that wait for their last write
	count     int
	opaque    *timeline.Builder // the connection is not HTTP
	stopped   string            // why answers are not read any more
	tunnel    *exchange
	socket    *tunnel // reads the tunnel, nil where it is no WebSocket
	ahead     []ahead // reads of the client that came before its upgrade was answered
	injected  []injected
	sent      int64 // request bytes written to the server
	read      [2]int64
	replay    bool
	info      bool // the answer at hand is informational
	startMono int64
	startOff  int64
	answerEnd int64 // offset of the last byte of the answer that ends
}

// NewConn returns a reader of one connection that sends what it finds to sink.
// replay says that writes will not be reported. reader may serve many
// connections, one at a time; nil makes one.
func NewConn(cfg *Config, identify Identify, sink timeline.Sink, reader *dialect.Reader, replay bool) *Conn {
	if reader == nil {
		reader = &dialect.Reader{}
	}
	c := &Conn{cfg: cfg, identify: identify, sink: sink, reader: reader, replay: replay}
	c.req = http1.Parser{H: (*requestSide)(c), MaxHead: cfg.MaxHead}
	c.resp = http1.Parser{H: (*answerSide)(c), MaxHead: cfg.MaxHead, Response: true}
	return c
}

// Bytes reads bytes that came from dir in one read: its last byte was received
// at mono, its first at first (0: as the last).
func (c *Conn) Bytes(dir Dir, p []byte, mono, first int64) {
	if first == 0 {
		first = mono
	}
	c.now, c.first = mono, first
	for _, x := range c.open {
		x.b.Now(mono)
	}
	if c.socket != nil {
		c.socket.ses.Now(mono)
	}
	c.read[dir] += int64(len(p))
	if dir == Client {
		c.base = c.req.Offset()
		c.req.Feed(p)
		c.noteAhead(len(p))
	} else {
		c.base = c.resp.Offset()
		c.resp.Feed(p)
	}
	if c.replay {
		c.finishDone()
	}
}

// ahead is a read of the client: the bytes behind begin up to end.
type ahead struct{ begin, end, mono, first, wrote int64 }

// maxAhead bounds the reads that are remembered; further ones count as one with
// the last.
const maxAhead = 4096

// noteAhead remembers when bytes came that only the answer to an upgrade tells
// the meaning of.
func (c *Conn) noteAhead(n int) {
	x := c.front()
	switch last := len(c.ahead) - 1; {
	case x == nil || !x.wantsUpgrade || c.tunnel != nil:
	case last >= 0 && c.ahead[last].mono == c.now && c.first == c.now:
		c.ahead[last].end = c.base + int64(n)
	case last+1 < maxAhead:
		c.ahead = append(c.ahead, ahead{c.base, c.base + int64(n), c.now, c.first, 0})
	default:
		c.ahead[last].end, c.ahead[last].mono = c.base+int64(n), c.now
	}
}

// Gap stands for n bytes of dir that were not kept.
func (c *Conn) Gap(dir Dir, n, mono int64) {
	c.now, c.first = mono, mono
	c.read[dir] += n
	if dir == Client && c.req.Idle() { // there was a request in it, for all we know
		c.begin(c.req.Offset() + 1)
	}
	if x := c.front(); dir == Server && x != nil && x.startDown == 0 {
		x.startDown = c.resp.Offset() + 1
	}
	for _, x := range c.open {
		x.b.Now(mono)
		x.gap(dir, n)
	}
	if c.socket != nil {
		c.socket.gap(dir, n)
	}
	if dir == Client {
		c.req.Skip(n)
	} else {
		c.resp.Skip(n)
		c.finishDone() // that they were written on is not told
	}
}

// Wrote notes that all bytes read from dir so far were written on at mono,
// after writes had blocked for waited nanoseconds.
func (c *Conn) Wrote(dir Dir, mono, waited int64) {
	if dir == Client {
		c.sent = c.read[Client]
		for _, x := range c.open {
			x.b.UpstreamSent(mono, c.sent)
		}
		if c.socket != nil {
			c.socket.ses.Sent(mono, c.sent)
			return
		}
		for i := range c.ahead {
			if h := &c.ahead[i]; h.wrote == 0 && h.end <= c.sent {
				h.wrote = mono
			}
		}
		return
	}
	for _, x := range c.finishing {
		x.b.Wrote(mono, waited)
	}
	switch {
	case c.socket != nil:
		c.socket.ses.Wrote(mono, waited)
	case len(c.open) > 0:
		c.open[0].b.Wrote(mono, waited)
	}
	c.finishDone()
}

// Blocked notes that a write of what came from dir failed after it had been
// blocked for waited nanoseconds.
func (c *Conn) Blocked(dir Dir, waited int64) {
	switch {
	case dir != Server:
	case c.socket != nil:
		c.socket.ses.Blocked(waited)
	case len(c.open) > 0:
		c.open[0].b.Blocked(waited)
	}
}

// injected is a request id that the relay put into a head.
type injected struct {
	id  string
	end int64 // of the head, in the client's stream
}

// Injected notes the request id that the relay put into the head that ends at
// byte end of the client's stream.
func (c *Conn) Injected(id string, end int64) { c.injected = append(c.injected, injected{id, end}) }

// End notes that a side ended.
func (c *Conn) End(dir Dir, e timeline.End, mono int64) {
	c.now, c.first = mono, mono
	c.closed[dir], c.closedAt[dir] = e, mono
	for _, x := range c.open {
		x.b.Now(mono)
	}
	if dir == Client {
		c.each(func(b *timeline.Builder) { b.ClientEnd(e, mono) })
		if c.socket != nil {
			c.socket.ses.ClientEnd(e, mono)
		}
		return
	}
	if e == timeline.FIN {
		c.resp.Close() // a body that runs to the close is whole now
	}
	c.each(func(b *timeline.Builder) { b.ServerEnd(e, mono) })
	if c.socket != nil {
		c.socket.ses.ServerEnd(e, mono)
		return // the client's close frame may still come
	}
	c.finishAll() // nothing that comes now can change what the server did
}

// each calls f for every exchange that is not over.
func (c *Conn) each(f func(*timeline.Builder)) {
	for _, x := range c.open {
		f(x.b)
	}
	if c.opaque != nil {
		f(c.opaque)
	}
}

// Refused notes that the relay could not reach the server and why, and whether
// that is a failure of our own.
func (c *Conn) Refused(reason, errno string, own bool, mono int64) {
	c.each(func(b *timeline.Builder) {
		if own {
			b.Harness(reason, errno)
		} else {
			b.Unreachable(reason, errno, mono)
		}
	})
}

// Shutdown notes that the relay ends the connection because it stops.
func (c *Conn) Shutdown(mono int64) {
	c.each(func(b *timeline.Builder) { b.Shutdown(mono) })
	if c.socket != nil {
		c.socket.ses.Shutdown(mono)
	}
}

// Close ends the reading: every exchange gets its record.
func (c *Conn) Close(mono int64) {
	c.now = mono
	c.finishAll()
	if c.opaque != nil {
		c.opaque.AddBytes(c.read[Client], c.read[Server])
		c.opaque.FinishOpaque(c.stopped)
		c.opaque = nil
	}
}

// fail sends out the records of a connection whose reading failed.
func (c *Conn) fail(mono int64) {
	defer func() { _ = recover() }() // what is broken may break again
	c.each(func(b *timeline.Builder) {
		b.Analysis("lost", "the reader failed")
		b.Unread("the reader failed")
	})
	if c.socket != nil {
		c.socket.ses.Quiet("the reader failed")
	}
	c.Close(mono)
}

// Idle reports whether no exchange and no turn is under way.
func (c *Conn) Idle() bool {
	if c.socket != nil {
		return !c.socket.ses.Busy()
	}
	return len(c.open) == 0 && len(c.finishing) == 0 && c.opaque == nil && c.tunnel == nil
}

// finishDone sends out records whose last chunk was written on.
func (c *Conn) finishDone() {
	kept := c.finishing[:0]
	for _, x := range c.finishing {
		if x.b.WaitsForWrite() || x.requestOpen() {
			kept = append(kept, x)
			continue
		}
		x.b.Finish()
	}
	c.finishing = kept
	if len(c.finishing) == 0 {
		c.finishing = nil
	}
}

func (c *Conn) finishAll() {
	for _, x := range c.finishing {
		x.b.Finish()
	}
	for _, x := range c.open {
		if x == c.tunnel && c.socket != nil {
			c.socketEnd(x)
		}
		x.cut(c)
		x.b.Finish()
	}
	c.finishing, c.open, c.current, c.tunnel, c.socket, c.ahead = nil, nil, nil, nil, nil, nil
}

// socketEnd ends a WebSocket. Its turns and its own line tell of it; a session of
// no known dialect is timed as a plain connection.
func (c *Conn) socketEnd(x *exchange) {
	t := c.socket
	c.socket = nil
	known := t.finish(c.now)
	refused, off := t.ses.Refusal()
	switch {
	case known && refused != nil:
		x.b.SocketRefused(refused, off)
		return
	case known:
		x.b.Discard()
		return
	}
	x.b.Analysis("lost", "opaque(websocket): "+session.NoDialect)
}

// front returns the exchange that the next answer belongs to.
func (c *Conn) front() *exchange {
	if len(c.open) == 0 {
		return nil
	}
	return c.open[0]
}

// begin starts an exchange at byte off of the client's stream.
func (c *Conn) begin(off int64) {
	id := c.identify(c.count)
	id.Replay = c.replay
	mono := c.now
	if off == c.base+1 {
		mono = c.first
	}
	x := &exchange{c: c, b: timeline.New(&c.cfg.Timeline, id, c.sink, mono, off), startUp: off}
	x.b.Now(c.now)
	if c.count > 0 {
		x.b.Reused()
	}
	if e := c.closed[Server]; e != timeline.Open { // it runs into the server's end (case C12)
		x.b.ServerEnd(e, c.closedAt[Server])
	}
	c.count++
	c.open = append(c.open, x)
	c.current = x
}

// giveUp makes the whole connection opaque.
func (c *Conn) giveUp(reason string) {
	c.stopped = reason
	c.req.Stop()
	c.resp.Stop()
	if x := c.current; x != nil && len(c.open) == 1 && !x.headed {
		c.opaque = x.b
		c.open, c.current = nil, nil
	}
}

// requestSide is the Conn as handler of the client's bytes.
type requestSide Conn

func (s *requestSide) MessageStart(off int64) { (*Conn)(s).begin(off) }

func (s *requestSide) Head(h *http1.Head, end int64) http1.Expect {
	c := (*Conn)(s)
	x := c.current
	if x == nil {
		return http1.ByHead
	}
	x.headed = true
	path, _, _ := strings.Cut(h.Target, "?")
	if i := strings.Index(path, "://"); i >= 0 { // absolute form
		if j := strings.IndexByte(path[i+3:], '/'); j >= 0 {
			path = path[i+3+j:]
		}
	}
	if len(c.injected) > 0 && c.injected[0].end == end {
		x.b.Injected(c.injected[0].id)
		if c.injected = c.injected[1:]; len(c.injected) == 0 {
			c.injected = nil
		}
	}
	x.contentType = h.Value("Content-Type")
	x.encoded = h.Value("Content-Encoding")
	x.reqOver = h.Length() > int64(c.cfg.MaxRequest) // gather nothing that will be too much
	x.method = h.Method
	x.b.Request(h.Method, path, x.contentType, h.Value("X-Request-Id"))
	x.b.Trace(h.Value("Traceparent"))
	x.keepHead(h)
	if h.Method == http.MethodConnect || h.Has("Connection", "upgrade") {
		x.upgrade = strings.ToLower(h.Value("Upgrade"))
		x.wantsUpgrade = true
		if x.upgrade == "websocket" {
			x.b.Socket()
		}
		return http1.Waiting
	}
	return http1.ByHead
}

func (s *requestSide) Body(p []byte, _ int64) {
	if x := s.current; x != nil { // nil: its record is out, the server is gone
		x.requestBody(p)
	}
}

func (s *requestSide) ChunkStart(int64) {}
func (s *requestSide) ChunkEnd(int64)   {}

func (s *requestSide) MessageEnd(off int64) {
	if x := s.current; x != nil {
		x.requestEnd(off)
		s.current = nil
	}
}

func (s *requestSide) Tunnel(p []byte, off int64) { (*Conn)(s).tunnelBytes(Client, p, off) }

func (c *Conn) tunnelBytes(dir Dir, p []byte, off int64) {
	if c.socket != nil {
		c.socket.feed(dir, p, off)
	}
}

func (s *requestSide) Lost(err error, _ int64) {
	c := (*Conn)(s)
	x := c.current
	switch {
	case x != nil && !x.headed && c.count == 1:
		if errors.Is(err, http1.ErrGap) {
			x.b.Unread("bytes were not analysed")
		}
		c.giveUp(err.Error())
	case x != nil:
		switch {
		case errors.Is(err, http1.ErrGap):
			x.b.Unread("bytes were not analysed")
		case errors.Is(err, http1.ErrAmbiguous):
			x.b.Flag("ambiguous_framing")
		default:
			x.b.Flag("request_malformed")
		}
		x.b.Analysis("lost", "request: "+err.Error())
		x.requestLost = true
	}
}
