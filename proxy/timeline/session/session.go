// Package session turns the messages of one WebSocket session into turns, each
// its own record, and a line for the session (contract.md section 1).
//
// What begins and ends a turn differs by form: one file holds one tracker.
// A Session is told of messages, in the order of the reads, by proxy/tap; it has
// no clock, knows no frame and no JSON, and measures nothing of a turn itself:
// that is a timeline.Builder a turn.
package session

import (
	"fmt"
	"slices"

	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// Span is where and when a message came: the stamps of its first and last byte,
// and their offsets in the stream of its side.
type Span struct {
	First, Last int64
	Start, End  int64
}

func (a Span) size() int64 { return a.End - a.Start + 1 }

// Info says what opened a session.
type Info struct {
	Method, Path string
	// RequestID names the session and its turns; Source says whose name it is.
	RequestID, Source string
	// Traceparent is the client's trace context, valid or empty.
	Traceparent string
	// Opened is the stamp of the request's first byte, Upgraded of the answer's.
	Opened, Upgraded int64
	// Compression is what was negotiated, empty for none.
	Compression string
	// Replay says that what only a live relay can measure is absent.
	Replay bool
}

// tracker follows the turns of one form.
type tracker interface {
	client(m *dialect.Message, at Span)
	server(m *dialect.Message, at Span)
	// sounding returns the turn that a binary message belongs to, nil for none.
	sounding(at Span) *turn
	// end makes turns of what was asked for and not begun.
	end()
}

// Session follows one session. Make it with New.
type Session struct {
	cfg  *timeline.Config
	id   timeline.Identity
	info Info
	sink timeline.Sink
	mem  *Memory

	form      dialect.Form
	opened    bool // the server described the session
	guessed   bool // the form is the path's, no message told it
	flow      string
	tracker   tracker
	early     []early // the client's messages ahead of the form
	earlyText int     // bytes of text in them
	earlyUp   int64   // when the one that is read again was written to the server
	begun     int     // turns
	next      int     // the next turn's number
	kept      []int   // numbers kept for turns ahead of others
	behind    int     // how many of them the turn that begins now stands behind
	open      []*turn
	waiting   []*turn // over, but their last chunk is not written yet
	asks      []*ask
	over      map[string]bool // keys of the last turns that are over
	overs     []string        // the same, in order

	input     input // since the last turn took its share
	inRate    int
	inFrom    string
	inBytes   int64
	inputs    int64 // messages with sound
	event     *timeline.Event
	model     string
	modes     []string
	format    string
	split     string // how finely a speech stream cuts its text
	outRate   int
	binary    *turn
	lastError *failure

	seq   *cursor
	count counts
	pings pings
	ends  ends
	done  bool
	now   int64

	analysis, reason string
	dropped          int64  // bytes ahead of analysis
	superseded       bool   // an end of speech that nothing answered was given up
	partial          string // why a message of the client is not known
	flags            []string
	warnings         []string
}

// maxEarly, maxAsks and maxOver bound what is kept of a session that never says
// what it is, or never answers.
const (
	maxEarly = 256
	maxAsks  = 1024
	maxOver  = 32
)

// New returns a Session. mem is what sessions of one server share; nil for none.
func New(cfg *timeline.Config, id timeline.Identity, info Info, sink timeline.Sink, mem *Memory) *Session {
	s := &Session{cfg: cfg, id: id, info: info, sink: sink, mem: mem, flow: timeline.FlowOfSocket(info.Path), analysis: "full"}
	s.id.Replay = info.Replay
	s.count.states = map[timeline.State]int{}
	s.count.lastAt = info.Upgraded
	s.now = info.Upgraded
	return s
}

// Known reports whether some message told what the session is, or its path does.
func (s *Session) Known() bool { return s.form != dialect.NoForm || s.flow != timeline.FlowOther }

// Refusal returns the server's error in a session that it never opened, and the
// byte that ended it; nil for none.
func (s *Session) Refusal() (f *dialect.Failure, off int64) {
	if s.begun > 0 || s.lastError == nil || s.opened {
		return nil, 0
	}
	return &s.lastError.err, s.lastError.off
}

// Busy reports whether a turn is under way or asked for.
func (s *Session) Busy() bool {
	if t, ok := s.tracker.(*sentences); ok && t.pending() {
		return true
	}
	return len(s.open) > 0 || len(s.waiting) > 0 || len(s.asks) > 0 || s.askedEarly()
}

// Now sets the stamp of the read whose bytes are looked at next.
func (s *Session) Now(mono int64) {
	s.now = mono
	s.lateAsks(mono)
	for _, t := range s.open {
		t.b.Now(mono)
	}
}

// Client takes a text message of the client.
func (s *Session) Client(m *dialect.Message, at Span) {
	s.count.message(&s.count.up, at.Last)
	if m.Bytes > 0 {
		s.inBytes += m.Bytes
	}
	if m.Kind == dialect.Resume {
		s.resume(m.Session)
	}
	if s.tracker == nil {
		s.keep(m, at)
		return
	}
	s.client(m, at)
}

func (s *Session) client(m *dialect.Message, at Span) {
	switch m.Kind {
	case dialect.Config:
		s.configured(m)
	case dialect.InputAudio:
		s.said(m.Bytes, at.size(), at)
	case dialect.Leave:
		s.leave(at.First)
	default:
	}
	s.tracker.client(m, at)
}

// configured learns what the client asks for.
func (s *Session) configured(m *dialect.Message) {
	if m.Model != "" {
		s.model = m.Model
	}
	if len(m.Modalities) > 0 {
		s.modes = m.Modalities
	}
	if m.Format != "" {
		s.format = m.Format
	}
	if m.Split != "" {
		s.split = m.Split
	}
}

// Server takes a text message of the server.
func (s *Session) Server(m *dialect.Message, at Span) {
	s.count.message(&s.count.down, at.Last)
	switch {
	case s.form == dialect.NoForm && m.Form != dialect.NoForm:
		s.become(m.Form)
	case s.form == dialect.NoForm && m.Err != nil && s.askedEarly():
		s.guessed = true // the error is the answer to what was asked
		s.become(formOfFlow(s.flow))
	case s.guessed && m.Form == s.form:
		s.guessed = false
	}
	if m.Kind == dialect.Opened {
		s.opened = true
		s.described(m)
	}
	if s.tracker == nil {
		s.unformed(m, at)
		return
	}
	if s.replayed(m) {
		return
	}
	if m.Kind == dialect.Over {
		s.overNow()
	}
	s.names(m)
	if m.Unknown {
		s.unknown(m, at)
		return
	}
	s.tracker.server(m, at)
}

// dialect names the server's dialect and its form, as records carry them.
func (s *Session) dialect() (server, variant string) {
	if s.guessed {
		return dialect.Unknown, ""
	}
	return s.form.Server(), s.form.String()
}

// described learns what the server says of the session.
func (s *Session) described(m *dialect.Message) {
	if m.Session != "" && s.count.serverID == "" {
		s.count.serverID = m.Session
		if s.form == dialect.Duplex {
			s.seq = s.mem.fresh(m.Session)
		}
	}
	if s.model == "" {
		s.model = m.Model
	}
	if m.Split != "" {
		s.split = m.Split
	}
	if m.Rate > 0 {
		s.outRate = m.Rate
	}
	if m.InputRate > 0 {
		s.inRate, s.inFrom = m.InputRate, "session"
	}
}

// names notes which generation of names the sound has, and a mixture (case C50).
func (s *Session) names(m *dialect.Message) {
	s.count.oldNames = s.count.oldNames || m.OldName
	s.count.newNames = s.count.newNames || m.NewName
	if s.count.oldNames && s.count.newNames {
		s.flag("mixed_event_names")
	}
}

// unknown counts a message of no known type: it may hold sound (case C50).
func (s *Session) unknown(m *dialect.Message, at Span) {
	s.count.unknown++
	s.flag("unknown_events")
	named := s.find(m.Key)
	for _, t := range s.open {
		if named == nil || t == named { // without a name it may be anybody's
			t.b.Event(&m.Event, at.End)
		}
	}
}

// Malformed takes a message that could not be read: reason is a word for it.
func (s *Session) Malformed(server bool, at Span, reason, why string) {
	if server {
		s.count.message(&s.count.down, at.Last)
	} else {
		s.count.message(&s.count.up, at.Last)
	}
	s.flag("malformed_message")
	why = fmt.Sprintf("message that ends at byte %d: %s", at.End, why)
	if t := s.only(); t != nil && server {
		t.b.Trouble(reason, why)
		if reason == "malformed_deflate" { // its end may have been in it, or be as unreadable
			t.b.BadFrames(reason, why)
		}
		return
	}
	s.warn(why)
}

// Truncated takes a message over the bound: it was counted and hashed.
func (s *Session) Truncated(server bool, at Span, what string) {
	s.Analysis("truncated", what)
	if server {
		s.count.message(&s.count.down, at.Last)
		for _, t := range s.open {
			t.b.Analysis("truncated", what)
		}
		return
	}
	s.count.message(&s.count.up, at.Last)
	s.partial = what // it may have asked for the next turn
}

// BinaryStart starts a binary message of the server.
func (s *Session) BinaryStart(at Span) {
	s.binary = nil
	if s.tracker == nil {
		return
	}
	if s.binary = s.tracker.sounding(at); s.binary != nil {
		s.binary.b.BinaryStart(s.binary.format)
	}
}

// Binary takes bytes of it.
func (s *Session) Binary(p []byte) {
	if s.binary != nil {
		s.binary.b.Binary(p)
	}
}

// BinaryEnd ends it; size is its payload.
func (s *Session) BinaryEnd(at Span, size int64) {
	s.count.message(&s.count.down, at.Last)
	if t := s.only(); t != nil && s.flow == timeline.FlowVideoOut {
		t.b.Begin()
		t.b.AddBytes(0, at.size())
	}
	if s.binary == nil {
		if size > 0 && s.flow != timeline.FlowVideoOut {
			s.unattributed(size / 2)
		}
		return
	}
	s.binary.b.Now(at.Last)
	s.binary.b.BinaryEnd(at.End)
	s.binary.b.AddBytes(0, at.size())
	s.binary = nil
}

// ClientBinary counts a binary message of the client.
func (s *Session) ClientBinary(at Span) { s.count.message(&s.count.up, at.Last) }

// Sent notes that the client's bytes up to off were written to the server.
func (s *Session) Sent(mono, off int64) {
	for _, a := range s.asks {
		a.sent(mono, off)
	}
	for i := range s.early {
		if e := &s.early[i]; e.at.End <= off && e.up == 0 {
			e.up = mono
		}
	}
	if t, ok := s.tracker.(*sentences); ok {
		t.sent(mono, off)
	}
	for _, t := range s.open {
		t.b.UpstreamSent(mono, off)
		for _, a := range t.among {
			a.sent(mono, off)
		}
	}
}

// Wrote notes that the server's bytes so far were accepted by the client's
// socket at mono, after the write had blocked for waited nanoseconds.
func (s *Session) Wrote(mono, waited int64) {
	for _, t := range s.open {
		t.b.Wrote(mono, waited)
		waited = 0 // it held up one stream: one turn answers for it
	}
	for _, t := range s.waiting {
		t.b.Wrote(mono, waited)
		waited = 0
		s.record(t)
	}
	clear(s.waiting)
	s.waiting = s.waiting[:0]
}

// Blocked notes that a write to the client failed after it had been blocked for
// waited nanoseconds.
func (s *Session) Blocked(waited int64) {
	if len(s.open) > 0 {
		s.open[0].b.Blocked(waited)
	}
}

func (s *Session) flag(name string) {
	if !slices.Contains(s.flags, name) {
		s.flags = append(s.flags, name)
	}
}

func (s *Session) warn(text string) {
	if len(s.warnings) < 32 {
		s.warnings = append(s.warnings, text)
	}
}

// Analysis notes that the reading is not full. The first reason stays.
func (s *Session) Analysis(level, reason string) {
	if s.analysis == "full" {
		s.analysis, s.reason = level, reason
	}
}

// Violation notes that a side broke the protocol: its messages cannot be read any
// more. A server that does has not answered the turns that are open.
func (s *Session) Violation(server bool, why string) {
	s.flag("protocol_violation")
	if !server {
		s.Analysis("lost", "client: "+why)
		s.ends.deaf = "client: " + why
		return
	}
	s.Analysis("lost", "server: "+why)
	for _, t := range s.open {
		t.b.Analysis("lost", "server: "+why)
		t.b.BadFrames("malformed_frames", why)
	}
	s.ends.broken = why
}

// Dropped notes that n bytes of the session were dropped ahead of analysis.
func (s *Session) Dropped(n int64) { s.dropped += n }

// Quiet notes that bytes of a side were not kept: what they held is not known.
func (s *Session) Quiet(reason string) {
	if s.dropped > 0 {
		reason += fmt.Sprintf(" (%d bytes were dropped ahead of analysis)", s.dropped)
	}
	s.Analysis("lost", reason)
	for _, t := range s.open {
		t.b.Analysis("lost", reason)
		t.b.Unread(reason)
	}
	s.ends.unread = reason
}
