// Package session speaks the WebSocket flows of the mock: one file a flow. It
// decides what goes out and when; package wire owns the connection.
//
// One goroutine runs a session: it takes the client's messages, the steps of
// the answers under way when they are due, and is the only one that writes. A
// flow therefore needs no locks and must not block, except in pause:
//
//	client ──▶ Socket.Messages ──▶ flow.receive ─┐
//	            play: steps with waits ──────────┴▶ send ──▶ faults ──▶ Socket
//
// A session has turns. A turn is what one request is to HTTP: it has a script
// and faults of its own, a generation and an entry in the truth.
package session

import (
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/ordered"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/wire"
)

// Config is what a session is made from.
type Config struct {
	Conn    *wire.Conn
	Request *http.Request
	// In is what follows the request on the connection.
	In io.Reader
	// Base is the script that messages lay theirs over, Dialect what it falls
	// back to. Script is Base with defaults.
	Base, Script script.Script
	Dialect      string
	// Log gets a record for each turn, made from Entry; Record is that of the
	// connection.
	Log    *truth.Log
	Entry  truth.Truth
	Record *truth.Record
	Rand   *rand.Rand
	Seed   uint64
	// Hex returns n random hex digits.
	Hex func(n int) string
	// Steps gives the permits for the fault gate.
	Steps <-chan struct{}
	// Store keeps the sessions that can be resumed.
	Store *Store
}

// flow is one of the protocols.
type flow interface {
	// open runs behind the handshake.
	open()
	// receive takes a JSON message of the client.
	receive(m message)
	// reject answers a message that is no good.
	reject(code, text string)
	// fail ends a turn as the server fails, error event included.
	fail(t *turn)
	// late sends an audio event of a turn that is over; nameless means without
	// the response's id.
	late(t *turn, pcm []byte, nameless bool)
}

var (
	errStopped = errors.New("stopped by a fault")
	errDone    = errors.New("session done")
	errLeft    = errors.New("client left")
)

type session struct {
	Config
	f     script.Set // of Script
	flow  flow
	style ordered.Style
	sock  *wire.Socket
	name  string // of the session on the wire, else of the connection
	path  string // name of the flow

	err    error       // why the session ends
	how    plan.Ending // of turns that it leaves behind
	mute   bool        // FIN is out
	deaf   bool
	await  bool // the client's close frame is due
	lastly bool // the client has half-closed: what is under way is finished
	tracks []*track
	turns  []*turn // not yet settled
	count  int     // of turns
	audioN int     // audio events so far, for mixed names
	recent []sent  // events of the last turn
	closed string  // payload of the close frame that was sent
}

// sent is an event that went out, for the fault replay.
type sent struct {
	frames  []byte
	samples int
}

// Run upgrades the connection and serves it. False means that the handshake
// was no good and that nothing was written.
func Run(cfg Config, kind string) bool {
	s := &session{Config: cfg, path: kind, style: ordered.Compact, name: numbered("connection-", cfg.Entry.Connection)}
	s.flow = flows[kind](s)
	var err error
	if s.f, err = script.Compile(cfg.Script.Faults); err != nil {
		return false // it was checked before
	}
	if !s.beforeHead() {
		s.settle()
		return true
	}
	s.sock, err = wire.Upgrade(cfg.Conn, wire.Handshake{
		Request: cfg.Request, In: cfg.In, Faults: &s.f, Rand: cfg.Rand, Deflate: cfg.Script.Deflate,
		Fields: plan.Fields("date", time.Now().UTC().Format(http.TimeFormat), "server", "uvicorn"),
		Done:   func(st truth.Stamp) { cfg.Record.Update(func(t *truth.Truth) { truth.Once(&t.Stamps.Head, st) }) },
	})
	if err != nil {
		return false
	}
	defer s.sock.Close()
	s.check(s.sock.Flush())
	s.loop()
	s.settle()
	if s.await {
		s.awaitClose()
	}
	if errors.Is(s.err, errDone) || s.how == truth.Cut || s.how == truth.Closed {
		s.sock.Finish()
	}
	return true
}

// beforeHead is for the faults at the point start.
func (s *session) beforeHead() bool {
	switch start := script.AtStart; {
	case s.f.Reset.Unit == start:
		s.how = truth.Reset
		s.Conn.Reset()
	case s.f.Cut.Unit == start:
		s.how = truth.Cut
		s.Conn.Finish()
	case s.f.Stall.Unit == start:
		if s.Conn.Sleep(s.f.StallFor) != nil {
			s.how = truth.ClientGone
			return false
		}
		return true
	default:
		return true
	}
	return false
}

func (s *session) loop() {
	s.flow.open()
	var pings <-chan time.Time
	if s.f.PingEvery > 0 {
		tick := time.NewTicker(s.f.PingEvery)
		defer tick.Stop()
		pings = tick.C
	}
	for s.err == nil {
		next := s.next()
		if next == nil {
			s.check(s.sock.Flush())
			if s.lastly {
				s.quit()
				return
			}
		}
		timer := time.NewTimer(s.until(next))
		messages := s.sock.Messages
		if s.deaf {
			messages = nil
		}
		select {
		case m := <-messages:
			s.take(m)
		case <-timer.C:
			if next != nil {
				s.step(next)
			}
		case <-pings:
			s.control(wire.OpPing, []byte("mock"))
		case <-s.sock.Context().Done():
			s.err, s.how = errStopped, truth.Shutdown
		}
		timer.Stop()
	}
}

// take handles what the client sent.
func (s *session) take(m wire.Received) {
	switch m.Op {
	case wire.OpText, wire.OpBinary:
		s.flow.receive(parseMessage(m))
	case wire.OpPing:
		if !s.f.NoPong {
			s.control(wire.OpPong, m.Data)
		}
	case wire.OpClose:
		if s.f.NoCloseReply {
			return
		}
		s.Record.Closing()
		s.control(wire.OpClose, m.Data)
		s.closed = wire.CloseText(m.Data)
		s.err, s.how = errDone, truth.ClientGone
	case wire.Reply:
		s.check(s.sock.Add(m.Data, nil))
		s.check(s.sock.Flush())
	case wire.Left:
		if s.f.HalfClose && websocket.IsCloseError(m.Err, websocket.CloseAbnormalClosure) && len(s.tracks) > 0 {
			s.lastly = true
			return
		}
		if s.err == nil {
			s.err, s.how = errLeft, truth.ClientGone
		}
	}
}

// control writes a control frame at once, behind what is held back.
func (s *session) control(op byte, payload []byte) {
	if s.mute || s.err != nil {
		return
	}
	s.check(s.sock.Add(wire.Frame(op, wire.FIN, payload), nil))
	s.check(s.sock.Flush())
}

// check notes a write that failed.
func (s *session) check(err error) {
	if err == nil || s.err != nil {
		return
	}
	s.err, s.how = err, truth.ClientGone
	if s.sock.IsShutdown(err) {
		s.how = truth.Shutdown
	}
}

// pause waits inside of a turn. Nothing else happens meanwhile.
func (s *session) pause(d time.Duration) {
	s.check(s.sock.Flush())
	if s.err == nil {
		s.check(s.sock.Sleep(d))
	}
}

// quit ends the session with a FIN and no close frame, as the real servers do
// when a handler returns; quitNormally sends one first.
func (s *session) quit() {
	s.Record.Closing()
	s.check(s.sock.Flush())
	if s.err == nil {
		s.err, s.how = errDone, plan.Complete
	}
}

func (s *session) quitNormally() {
	s.Record.Closing()
	payload := wire.ClosePayload(websocket.CloseNormalClosure, "")
	s.closed = wire.CloseText(payload)
	s.control(wire.OpClose, payload)
	s.await = true
	s.quit()
}

const closeTime = 2 * time.Second // that the client's close frame is awaited

// awaitClose drops what the client sends until its close frame comes.
func (s *session) awaitClose() {
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	for {
		select {
		case m := <-s.sock.Messages:
			if m.Op == wire.OpClose || m.Op == wire.Left {
				return
			}
		case <-timer.C:
			return
		case <-s.sock.Context().Done():
			return
		}
	}
}

// settle books the end of the session and of the turns it leaves behind.
func (s *session) settle() {
	if s.how == "" {
		s.how = plan.Complete
	}
	for _, t := range s.turns {
		how := s.how
		if how == plan.Complete {
			how = truth.Cut
		}
		t.over = true
		t.settle(how)
	}
	s.turns = nil
	s.Record.Closing()
	s.Record.Settle(func(t *truth.Truth) {
		t.End, t.Status, t.Form, t.Session, t.Close = s.how, http.StatusSwitchingProtocols, "session", s.name, s.closed
		if s.sock == nil {
			t.Status = 0
			return
		}
		t.BytesOut = s.sock.Sent()
		if s.how == truth.ClientGone {
			if t.Stamps.ClientClosedNS = s.sock.ClientEnd(); t.Stamps.ClientClosedNS == 0 {
				t.Stamps.ClientClosedNS = truth.Mono()
			}
		}
	})
}
