package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
)

// The kinds of a Received beside the opcodes.
const (
	// Left means that the client is gone or broke the protocol; Err says why.
	Left = 0x10
	// Reply is bytes that the reading side wants to be written.
	Reply = 0x11
)

// Received is what the client sent: a message, a control frame or its end.
type Received struct {
	Op   byte // one of the opcodes, Left or Reply
	Data []byte
	// NS is CLOCK_MONOTONIC when the message was read to its last byte.
	NS  int64
	Err error
}

// Socket is a connection that has become a WebSocket. One goroutine reads it;
// everything is written by the one that calls Add, Flush and the ends:
//
//	client ──▶ fill ──▶ inbox ──▶ gorilla ──▶ Messages ──▶ session ──▶ client
type Socket struct {
	// Messages are what the client sent, in order; Left is the last.
	Messages <-chan Received
	// Deflates is set when permessage-deflate was negotiated.
	Deflates bool

	c       *Conn
	sink    sink
	done    chan struct{}
	reading sync.WaitGroup
	stop    func() bool
}

// Handshake is what Upgrade needs.
type Handshake struct {
	Request *http.Request
	// In is what follows the request.
	In     io.Reader
	Faults *script.Set
	Rand   *rand.Rand
	// Deflate accepts permessage-deflate if the client offers it.
	Deflate bool
	// Fields stand at the end of the answer's head.
	Fields []plan.Field
	// Done books the head.
	Done func(truth.Stamp)
}

const maxMessage = 32 << 20 // bytes of a client's message

// Upgrade answers a WebSocket handshake. An error means that nothing was
// written and the request is bad.
func Upgrade(c *Conn, h Handshake) (*Socket, error) {
	messages := make(chan Received)
	s := &Socket{Messages: messages, c: c, done: make(chan struct{})}
	s.sink = sink{c: c, f: h.Faults, rng: h.Rand, pause: s.Sleep}
	up := websocket.Upgrader{
		EnableCompression: h.Deflate,
		CheckOrigin:       func(*http.Request) bool { return true },
	}
	out := &hijacked{Conn: c.nc, in: h.In}
	ws, err := up.Upgrade(out, h.Request, nil)
	if err != nil {
		return nil, fmt.Errorf("answering the handshake: %w", err)
	}
	s.Deflates = strings.Contains(string(out.head), "permessage-deflate")
	s.sink.raw(withFields(out.head, h.Fields), h.Done)
	s.stop = func() bool { return true }
	if !h.Faults.HalfClose {
		s.stop = c.abandonWrites()
	}
	out.reply = func(b []byte) { s.push(messages, Received{Op: Reply, Data: b}) }
	s.reading.Go(func() { s.read(ws, messages) })
	return s, nil
}

func withFields(head []byte, fields []plan.Field) []byte {
	out := bytes.TrimSuffix(head, []byte("\r\n"))
	for _, f := range fields {
		out = append(out, f.Name+": "+f.Value+"\r\n"...)
	}
	return append(out, "\r\n"...)
}

// hijacked is the connection as gorilla sees it: it writes the head of the
// handshake's answer only; later writes are handed to the one writer.
type hijacked struct {
	net.Conn
	in     io.Reader
	head   []byte
	reply  func([]byte)
	fields http.Header
}

// Header implements http.ResponseWriter.
func (h *hijacked) Header() http.Header {
	if h.fields == nil {
		h.fields = http.Header{}
	}
	return h.fields
}

// WriteHeader implements http.ResponseWriter: refusals are written by others.
func (h *hijacked) WriteHeader(int) {}

// Hijack implements http.Hijacker.
func (h *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h, bufio.NewReadWriter(bufio.NewReaderSize(strings.NewReader(""), 16), bufio.NewWriterSize(io.Discard, 16)), nil
}

// Read implements net.Conn.
func (h *hijacked) Read(p []byte) (int, error) { return h.in.Read(p) }

// Write implements net.Conn.
func (h *hijacked) Write(p []byte) (int, error) {
	b := bytes.Clone(p)
	if h.reply != nil {
		h.reply(b)
	} else {
		h.head = append(h.head, b...)
	}
	return len(p), nil
}

// Close implements net.Conn; the session closes.
func (h *hijacked) Close() error { return nil }

// SetDeadline, SetReadDeadline and SetWriteDeadline implement net.Conn.
func (h *hijacked) SetDeadline(time.Time) error      { return nil }
func (h *hijacked) SetReadDeadline(time.Time) error  { return nil }
func (h *hijacked) SetWriteDeadline(time.Time) error { return nil }

// read moves the client's messages to the session until the client ends.
func (s *Socket) read(ws *websocket.Conn, to chan<- Received) {
	ws.SetReadLimit(maxMessage)
	ws.SetPingHandler(func(data string) error {
		s.push(to, Received{Op: OpPing, Data: []byte(data)})
		return nil
	})
	ws.SetCloseHandler(func(code int, text string) error {
		var payload []byte
		if code != websocket.CloseNoStatusReceived {
			payload = ClosePayload(code, text)
		}
		s.push(to, Received{Op: OpClose, Data: payload})
		return nil
	})
	for {
		kind, data, err := ws.ReadMessage()
		if err != nil {
			s.push(to, Received{Op: Left, Err: err})
			return
		}
		s.push(to, Received{Op: byte(kind), Data: data})
	}
}

func (s *Socket) push(to chan<- Received, r Received) {
	r.NS = truth.Mono()
	select {
	case to <- r:
	case <-s.done:
	}
}

// Add takes bytes and writes what is due; done books them when they are out.
func (s *Socket) Add(b []byte, done func(truth.Stamp)) error {
	return s.sink.add(&plan.Piece{Data: b, Raw: plan.NotRaw}, done)
}

// Flush writes what is held back.
func (s *Socket) Flush() error { return s.sink.flush() }

// Encode renders a text or binary message with the faults that cut it up. A
// message shorter than least is not compressed.
func (s *Socket) Encode(op byte, payload []byte, least int) []byte {
	deflated := s.Deflates && len(payload) >= least
	if deflated {
		payload = deflate(payload)
	}
	return Message(op, payload, deflated, s.sink.f.Fragments, s.sink.f.FragmentPing)
}

// Sent is the number of bytes written so far, the head included.
func (s *Socket) Sent() int64 { return s.sink.off }

// Context ends when the server stops.
func (s *Socket) Context() context.Context { return s.c.ctx }

// Gone is closed when the client has sent FIN or RST.
func (s *Socket) Gone() <-chan struct{} { return s.c.in.gone }

// Sleep waits; it ends early when the client leaves or the server stops.
func (s *Socket) Sleep(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	gone := s.c.in.gone
	if s.sink.f != nil && s.sink.f.HalfClose {
		gone = nil
	}
	select {
	case <-timer.C:
		return nil
	case <-gone:
		return errGone
	case <-s.c.ctx.Done():
		return errShutdown
	}
}

// Hold stops the reading of the client's bytes, and goes on with it.
func (s *Socket) Hold(on bool) { s.c.in.setHeld(on) }

// CloseWrite sends a FIN and nothing more; the client's bytes are still read.
func (s *Socket) CloseWrite() {
	s.c.closed = true
	if t, ok := s.c.nc.(interface{ CloseWrite() error }); ok {
		_ = t.CloseWrite()
	}
}

// Finish ends the connection with a FIN, Reset with a RST.
func (s *Socket) Finish() { s.c.Finish() }

// Reset ends the connection with a RST.
func (s *Socket) Reset() { s.c.Reset() }

// ClientEnd is when the client's FIN or RST was seen, 0 if it was not.
func (s *Socket) ClientEnd() int64 {
	at, _ := s.c.in.end()
	return at
}

// Close ends the reading and waits for it.
func (s *Socket) Close() {
	s.stop()
	close(s.done)
	s.c.in.discard()
	s.reading.Wait()
}

// IsShutdown reports that an error comes from the end of the server.
func (s *Socket) IsShutdown(err error) bool {
	return errors.Is(err, errShutdown) || s.c.ctx.Err() != nil
}

var _ http.Hijacker = (*hijacked)(nil)

// Sleep waits before a handshake is answered, as Socket.Sleep does.
func (c *Conn) Sleep(d time.Duration) error { return (&Socket{c: c}).Sleep(d) }
