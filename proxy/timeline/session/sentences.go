package session

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// sentences follows SGLang-Omni's speech stream: each sentence is a turn. What
// asked for it is the message that completed it: the one with its last sign, or
// the commit or end behind a text without one.
type sentences struct {
	s       *Session
	text    []byte // what was said and is not spoken yet
	pieces  []piece
	current *turn
	lastEnd int64
}

// piece is a message of text, or one that flushes what is there.
type piece struct {
	end   int // of the text that waits, behind this message
	flush bool
	ask   *ask
}

// maxText bounds the text that waits to be spoken: the server's own bound.
const maxText = 1 << 20

func (u *sentences) client(m *dialect.Message, at Span) {
	switch m.Kind {
	case dialect.InputText:
		if len(u.text)+len(m.Text) > maxText {
			u.s.flag("text_dropped")
			return
		}
		u.text = append(u.text, m.Text...)
		u.add(piece{len(u.text), false, &ask{source: "input.text", at: at}})
	case dialect.Ask:
		u.add(piece{len(u.text), true, &ask{source: string(m.Type), at: at}})
	default:
	}
}

func (u *sentences) add(p piece) {
	if u.s.earlyUp != 0 {
		p.ask.sent(u.s.earlyUp, p.ask.at.End)
	}
	if len(u.pieces) >= maxAsks {
		u.s.flag("asks_dropped")
		return
	}
	u.pieces = append(u.pieces, p)
}

// sent notes that the client's bytes up to off were written to the server.
func (u *sentences) sent(mono, off int64) {
	for _, p := range u.pieces {
		p.ask.sent(mono, off)
	}
}

// stops are the signs that end a sentence, as the server splits; clauses end at
// some more.
const (
	stops       = ".!?。！？"
	clauseStops = stops + ",;，；"
)

func (u *sentences) stops() string {
	if u.s.split == "clause" {
		return clauseStops
	}
	return stops
}

// asked finds what asked for a sentence, and drops what was spoken. Where the
// server speaks what was not said, nothing tells.
func (u *sentences) asked(sentence []byte) *ask {
	i := bytes.Index(u.text, sentence)
	if len(sentence) == 0 {
		return nil
	}
	if i < 0 { // it stands for the next one that was said
		if n := u.spoken(); n > 0 {
			u.drop(n)
		}
		return nil
	}
	end := i + len(sentence)
	last, _ := utf8.DecodeLastRune(sentence)
	stops := strings.ContainsRune(u.stops(), last)
	for _, p := range u.pieces {
		if p.end >= end && (p.flush || stops) {
			u.drop(end)
			return p.ask.again()
		}
	}
	return nil
}

// first returns the sentence that is spoken next, empty for none.
func (u *sentences) first() []byte { return bytes.TrimSpace(u.text[:u.spoken()]) }

// spoken returns the length of the text that is spoken next, 0 for none.
func (u *sentences) spoken() int {
	end := 0
	if i := bytes.IndexAny(u.text, u.stops()); i >= 0 {
		_, n := utf8.DecodeRune(u.text[i:])
		end = i + n
	}
	for _, p := range u.pieces {
		if p.flush && (end == 0 || p.end < end) {
			end = p.end
			break
		}
	}
	return end
}

// again returns a copy: one message may ask for several sentences.
func (a *ask) again() *ask {
	c := *a
	return &c
}

// drop forgets text up to end and the messages that lie before it.
func (u *sentences) drop(end int) {
	u.text = append(u.text[:0], u.text[end:]...)
	kept := u.pieces[:0]
	for _, p := range u.pieces {
		if p.end -= end; p.end > 0 {
			kept = append(kept, p)
		}
	}
	u.pieces = kept
}

func (u *sentences) begin(m *dialect.Message) *turn {
	a := u.asked(m.Text)
	t := u.s.begin(a, m.ID, m.ID)
	t.inputEnd(a)
	if u.lastEnd != 0 {
		t.b.Also("previous_done", u.lastEnd)
	}
	u.current = t
	return t
}

func (u *sentences) server(m *dialect.Message, at Span) {
	switch m.Kind {
	case dialect.Started:
		t := u.current
		if t == nil {
			t = u.begin(m)
		}
		t.b.Begin()
		t.b.Named(m.ID)
		t.format = m.Format
		t.b.Rate(m.Rate, "event", false)
	case dialect.Output:
		if t := u.sounding(at); t != nil {
			t.output(m, at)
		}
	case dialect.UnitDone:
		u.done(m, at)
	case dialect.Failed:
		if u.current == nil && u.pending() && m.Err.Type != "invalid_request_error" {
			u.begin(&dialect.Message{Event: dialect.Event{Text: u.first()}})
		}
		if u.current == nil {
			u.s.sessionError(m, at)
			return
		}
		u.current.err = &failure{err: *m.Err, at: at.Last, off: at.End}
	case dialect.TurnDone: // the session's end: nothing is left to be spoken
		u.text, u.pieces = nil, nil
	default:
	}
}

func (u *sentences) done(m *dialect.Message, at Span) {
	t := u.current
	if t == nil {
		t = u.begin(m)
	}
	t.unit(m, at)
	u.s.marker(t, at)
	u.current, u.lastEnd = nil, at.Last
}

func (u *sentences) sounding(Span) *turn { return u.current }

// pending reports whether something was asked for that is not spoken.
func (u *sentences) pending() bool {
	if len(bytes.TrimSpace(u.text)) == 0 {
		return false
	}
	for _, p := range u.pieces {
		if p.flush {
			return true
		}
	}
	return bytes.ContainsAny(u.text, u.stops())
}

func (u *sentences) end() {
	if u.current != nil {
		u.current.unfinished()
		return
	}
	if u.pending() {
		u.begin(&dialect.Message{Event: dialect.Event{Text: u.first()}})
	}
}
