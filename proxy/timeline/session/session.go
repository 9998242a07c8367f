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

	form    dialect.Form
	flow    string
	tracker tracker
	early   []early // the client's messages ahead of the form
	earlyUp int64   // when the one that is read again was written to the server
	begun   int
	open    []*turn
	waiting []*turn // over, but their last chunk is not written yet
	asks    []*ask
	over    map[string]bool // keys of turns that are over, bounded

	input     input // since the last turn took its share
	inRate    int
	inFrom    string
	inBytes   int64
	model     string
	modes     []string
	format    string
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
	flags            []string
	warnings         []string
}

// maxEarly, maxAsks and maxOver bound what is kept of a session that never says
// what it is, or never answers.
const (
	maxEarly = 256
	maxAsks  = 1024
	maxOver  = 256
)

// early is a message of the client that came before the form was known.
type early struct {
	m  dialect.Message
	at Span
	up int64 // when it was written to the server
}

// New returns a Session. mem is what sessions of one server share; nil for none.
func New(cfg *timeline.Config, id timeline.Identity, info Info, sink timeline.Sink, mem *Memory) *Session {
	s := &Session{cfg: cfg, id: id, info: info, sink: sink, mem: mem, flow: timeline.FlowOfSocket(info.Path), analysis: "full"}
	s.id.Replay = info.Replay
	s.count.states = map[timeline.State]int{}
	s.count.lastAt = info.Upgraded
	s.now = info.Upgraded
	return s
}

// Known reports whether some message told what the session is, or the path does
// and the client spoke.
func (s *Session) Known() bool {
	return s.form != dialect.NoForm || s.flow != timeline.FlowOther && len(s.early) > 0
}

// Busy reports whether a turn is under way or asked for.
func (s *Session) Busy() bool { return len(s.open) > 0 || len(s.waiting) > 0 || len(s.asks) > 0 }

// Now sets the stamp of the read whose bytes are looked at next.
func (s *Session) Now(mono int64) {
	s.now = mono
	for _, t := range s.open {
		t.b.Now(mono)
	}
}

// Client takes a text message of the client.
func (s *Session) Client(m *dialect.Message, at Span) {
	s.count.message(&s.count.up, at.Last)
	if m.Kind == dialect.InputAudio && m.Bytes > 0 {
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
		s.input.add(m.Bytes, at)
	default:
	}
	s.tracker.client(m, at)
}

// keep holds a message until the form is known: what it points into does not last.
func (s *Session) keep(m *dialect.Message, at Span) {
	if len(s.early) >= maxEarly {
		s.flag("early_messages_dropped")
		return
	}
	c := *m
	c.Type = []byte(string(m.Type))
	c.Text = []byte(string(m.Text))
	c.Key = []byte(string(m.Key))
	c.Parts = nil
	s.early = append(s.early, early{c, at, 0})
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
}

// Server takes a text message of the server.
func (s *Session) Server(m *dialect.Message, at Span) {
	s.count.message(&s.count.down, at.Last)
	if s.form == dialect.NoForm && m.Form != dialect.NoForm {
		s.become(m.Form)
	}
	if m.Kind == dialect.Opened {
		s.described(m)
	}
	if s.tracker == nil {
		s.unformed(m)
		return
	}
	if s.replayed(m) {
		return
	}
	s.names(m)
	if m.Unknown {
		s.unknown(m, at)
		return
	}
	s.tracker.server(m, at)
}

// unformed takes what comes before the form is known.
func (s *Session) unformed(m *dialect.Message) {
	if m.Unknown {
		s.count.unknown++
	}
	if m.Err != nil {
		s.lastError = &failure{err: *m.Err, at: s.now}
		s.count.errors++
	}
}

// become settles the form, and reads again what the client said before.
func (s *Session) become(f dialect.Form) {
	s.form = f
	s.tracker = newTracker(s, f)
	s.flow = flowOfForm(f, s.flow)
	if s.inRate == 0 {
		s.inRate, s.inFrom = inputRate(f), "dialect"
	}
	for i := range s.early {
		s.earlyUp = s.early[i].up
		s.client(&s.early[i].m, s.early[i].at)
	}
	s.early, s.earlyUp = nil, 0
}

func newTracker(s *Session, f dialect.Form) tracker {
	switch f {
	case dialect.SpeechVLLM:
		return &utterances{s: s}
	case dialect.SpeechSGLang:
		return &sentences{s: s}
	case dialect.TurnRealtime:
		return &generations{s: s}
	case dialect.VideoChat:
		return &queries{s: s}
	case dialect.VideoOut:
		return &videos{s: s}
	case dialect.Segments:
		return &segments{s: s}
	default:
		return &responses{s: s}
	}
}

func flowOfForm(f dialect.Form, byPath string) string {
	switch f {
	case dialect.SpeechVLLM, dialect.SpeechSGLang:
		return timeline.FlowSpeechWS
	case dialect.TurnRealtime, dialect.Conversation:
		return timeline.FlowRealtime
	case dialect.Responses:
		if byPath == timeline.FlowDuplex {
			return byPath
		}
		return timeline.FlowRealtime
	case dialect.Duplex, dialect.Shared:
		return timeline.FlowDuplex
	case dialect.Segments:
		return timeline.FlowTranscription
	case dialect.VideoChat:
		return timeline.FlowVideoChat
	case dialect.VideoOut:
		return timeline.FlowVideoOut
	default:
		return byPath
	}
}

// inputRate is the rate of the client's sound where no description says it, in
// Hz: the wire notes of each form.
func inputRate(f dialect.Form) int {
	if f == dialect.Responses {
		return 24000
	}
	return 16000
}

// described learns what the server says of the session.
func (s *Session) described(m *dialect.Message) {
	if m.Session != "" && s.count.serverID == "" {
		s.count.serverID = m.Session
		s.seq = s.mem.fresh(m.Session)
	}
	if s.model == "" {
		s.model = m.Model
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
	if t := s.only(); t != nil {
		t.b.Event(&m.Event, at.End)
	}
}

// Malformed takes a text message that could not be read.
func (s *Session) Malformed(server bool, at Span, why string) {
	if server {
		s.count.message(&s.count.down, at.Last)
	} else {
		s.count.message(&s.count.up, at.Last)
	}
	s.flag("malformed_message")
	if t := s.only(); t != nil && server {
		t.b.Trouble("malformed_json", fmt.Sprintf("message that ends at byte %d: %s", at.End, why))
		return
	}
	s.warn(fmt.Sprintf("message that ends at byte %d: %s", at.End, why))
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
	if s.binary == nil {
		if s.tracker != nil && size > 0 && s.form != dialect.VideoOut {
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
	s.waiting = s.waiting[:0]
}

func (s *Session) flag(name string) {
	for _, f := range s.flags {
		if f == name {
			return
		}
	}
	s.flags = append(s.flags, name)
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
		t.b.BadFrames(why)
	}
	s.ends.broken = why
}

// Quiet notes that bytes of a side were not kept: what they held is not known.
func (s *Session) Quiet(reason string) {
	s.Analysis("lost", reason)
	for _, t := range s.open {
		t.b.Analysis("lost", reason)
		t.b.Unread(reason)
	}
	s.ends.unread = reason
}
