package session

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// ask is a message, or an event of the server, that asks for output.
type ask struct {
	source  string
	at      Span
	server  bool // the server's own event: its end of the user's speech
	eventID string
	up      int64 // when it was written to the server
	also    []moment
	input   input
	modes   []string
	late    bool // the deadline passed with nothing begun
	weak    bool // a create behind it is what asks
	taken   bool // the server acknowledged it
	final   Span // the message that ended the input, where it is another one
	upFinal int64
}

type moment struct {
	name string
	mono int64
}

// sent notes that the client's bytes up to off were written to the server.
func (a *ask) sent(mono, off int64) {
	if a.up == 0 && !a.server && a.at.End <= off {
		a.up = mono
	}
	if a.upFinal == 0 && a.final.End != 0 && a.final.End <= off {
		a.upFinal = mono
	}
}

// turn is one turn under way.
type turn struct {
	b        *timeline.Builder
	key      string
	n        int
	began    int64
	ask      *ask
	among    []*ask // what may have asked for it, where that is not known yet
	format   string // of its binary messages
	textDone Span   // the end of its text, where that may be the end of all
	sound    bool   // sound came behind textDone
	err      *failure
	unnamed  bool // its key is not known yet
	// Of a response: the server ended its text, and its sound, by events of their own.
	textOver, soundOver bool
}

// failure is an error of the server that may concern a turn.
type failure struct {
	err dialect.Failure
	at  int64
	off int64
}

// wait queues an ask.
func (s *Session) wait(a *ask) {
	if len(s.asks) >= maxAsks {
		s.flag("asks_dropped")
		return
	}
	if s.earlyUp != 0 {
		a.sent(s.earlyUp, a.at.End)
	}
	s.asks = append(s.asks, a)
}

// take removes and returns the oldest ask that fits, nil for none.
func (s *Session) take(fits func(*ask) bool) *ask {
	for i, a := range s.asks {
		if fits == nil || fits(a) {
			s.asks = slices.Delete(s.asks, i, i+1)
			return a
		}
	}
	return nil
}

// begin begins a turn; a is what asked for it, nil for nothing.
func (s *Session) begin(a *ask, key, serverID string) *turn {
	modes := s.modes
	if a != nil && len(a.modes) > 0 {
		modes = a.modes
	}
	t := &turn{key: key, ask: a, format: s.format, n: s.number(), began: s.now}
	id := s.info.RequestID + "-t" + strconv.Itoa(t.n)
	rate, from, nominal := s.rate()
	server, variant := s.dialect()
	t.b = timeline.NewTurn(s.cfg, s.id, s.sink, timeline.Turn{
		Session: s.info.RequestID, N: t.n, Flow: s.flow, Dialect: server, Variant: variant,
		Method: s.info.Method, Path: s.info.Path, Model: s.model, Modalities: modes, Format: s.format,
		ServerID: serverID, RequestID: id, Source: s.info.Source, Traceparent: s.info.Traceparent, Rate: rate, RateFrom: from, Nominal: nominal,
	})
	t.b.Now(s.now)
	if s.ends.unread != "" {
		t.b.Analysis("lost", s.ends.unread)
		t.b.Unread(s.ends.unread)
	}
	if s.ends.deaf != "" {
		t.b.Analysis("lost", s.ends.deaf)
	}
	if s.partial != "" {
		t.b.PartlyAsked(s.partial)
		s.partial = ""
	}
	s.asked(t, a)
	s.tellEnds(t)
	s.open = append(s.open, t)
	return t
}

// number returns the number of the turn that begins: the next one, but for as many
// as are kept for turns ahead of it.
func (s *Session) number() int {
	s.begun++
	for len(s.kept) <= s.behind {
		s.kept = append(s.kept, s.next)
		s.next++
	}
	n := s.kept[s.behind]
	s.kept = slices.Delete(s.kept, s.behind, s.behind+1)
	return n
}

// asked ties a turn to what asked for it.
func (s *Session) asked(t *turn, a *ask) {
	if a == nil {
		return
	}
	t.ask = a
	off := a.at.End
	if a.server {
		off = 0
		t.b.InServer(a.at.End)
	}
	t.b.Asked(a.source, a.mono(), off)
	if !a.server {
		t.b.Message(a.at.size(), a.at.Last, a.at.End)
	}
	for _, m := range a.also {
		t.b.Also(m.name, m.mono)
	}
	if a.input.messages > 0 {
		s.heard(t, a.input)
	}
}

// inputEnd notes that the ask is also the last the client says for the turn.
func (t *turn) inputEnd(a *ask) {
	if a == nil || a.server {
		return
	}
	t.b.InputEnd(a.at.Last, a.at.End)
	if a.up != 0 {
		t.b.UpstreamSent(a.up, a.at.End)
	}
}

// rate returns the rate of bare samples that the form or the session declares.
func (s *Session) rate() (rate int, from string, nominal bool) {
	switch {
	case s.outRate > 0:
		return s.outRate, "session", false
	case s.form == dialect.Responses:
		return 24000, "dialect", false // the dialect resamples to it
	case s.form == dialect.Conversation:
		return 24000, "dialect", true // pcm16 is 24 kHz by name; a model of another rate goes out unchanged
	}
	return 0, "", false
}

// finish ends a turn that is over.
func (s *Session) finish(t *turn) {
	if i := slices.Index(s.open, t); i >= 0 {
		s.open = slices.Delete(s.open, i, i+1)
	}
	s.forget(t.key)
	if t.b.WaitsForWrite() && !s.done {
		s.waiting = append(s.waiting, t)
		return
	}
	s.record(t)
}

// record sends a turn's record out.
func (s *Session) record(t *turn) { s.count.states[t.b.Finish()]++ }

// forget remembers the key of a turn that is over, to know what comes late.
func (s *Session) forget(key string) {
	if key == "" {
		return
	}
	if s.over == nil {
		s.over = map[string]bool{}
	}
	if len(s.overs) >= maxOver {
		delete(s.over, s.overs[0])
		s.overs = s.overs[1:]
	}
	if !s.over[key] {
		s.over[key], s.overs = true, append(s.overs, key)
	}
}

// find returns the open turn with that key, nil for none.
func (s *Session) find(key []byte) *turn {
	for _, t := range s.open {
		if t.key == string(key) {
			return t
		}
	}
	return nil
}

// only returns the one open turn, nil where there is none or more than one.
func (s *Session) only() *turn {
	if len(s.open) == 1 {
		return s.open[0]
	}
	return nil
}

// output gives a message to a turn.
func (t *turn) output(m *dialect.Message, at Span) {
	t.b.Begin()
	t.b.Now(at.Last)
	t.b.Event(&m.Event, at.End)
	t.b.AddBytes(0, at.size())
	t.sound = t.sound || m.AudioTyped
}

// fail gives an error to a turn.
func (t *turn) fail(f *failure) {
	ev := dialect.Event{Tokens: -1, Err: &f.err}
	t.b.Now(f.at)
	t.b.Event(&ev, f.off)
}

// marker ends a turn at a message.
func (s *Session) marker(t *turn, at Span) {
	t.b.Begin()
	t.b.Now(at.Last)
	t.b.AddBytes(0, at.size())
	t.b.Marker(at.End)
	s.finish(t)
}

// unattributed counts sound that belongs to no turn.
func (s *Session) unattributed(samples int64) {
	s.count.looseChunks++
	s.count.looseSamples += samples
	s.flag("unattributed_audio")
}

// loose counts the sound of a message that no turn can be found for: mono samples
// of 16 bits, or companded ones, without a WAV header.
func (s *Session) loose(m *dialect.Message) {
	for i := range m.Parts {
		p := &m.Parts[i]
		n, size := int64(len(bytes.TrimRight(p.Base64, "=")))*3/4, int64(2)
		if bytes.HasPrefix(p.Base64, []byte("UklG")) {
			n = max(0, n-44)
		} else if strings.HasPrefix(p.Format, "g711") {
			size = 1
		}
		s.unattributed(n / size)
	}
	if len(m.Text) > 0 {
		s.flag("unattributed_text")
	}
}

// sessionError takes an error that concerns no turn.
func (s *Session) sessionError(m *dialect.Message, at Span) {
	s.count.errors++
	s.flag("errors")
	s.lastError = &failure{err: *m.Err, at: at.Last, off: at.End}
}
