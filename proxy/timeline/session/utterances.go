package session

import (
	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// utterances follows vLLM-Omni's speech stream: input.done asks for an
// utterance, session.done ends it. With split_granularity its first sentence may
// begin before input.done: then its first input.text asked for it.
type utterances struct {
	s       *Session
	text    *ask // the first input.text of the utterance that is being said
	current *turn
}

func (u *utterances) client(m *dialect.Message, at Span) {
	switch m.Kind {
	case dialect.InputText:
		if u.text == nil && u.early() == nil {
			u.text = &ask{source: "input.text", at: at}
		}
	case dialect.Ask:
		a := &ask{source: "input.done", at: at}
		if u.text == nil { // its text began the turn already
			if t := u.early(); t != nil {
				t.b.Also("input.done", at.First)
				t.b.InputEnd(at.Last, at.End)
				t.ask.source = ""
				return
			}
		} else {
			a.also = append(a.also, moment{"input.text", u.text.at.First})
		}
		u.text = nil
		u.s.wait(a)
	default:
	}
}

// early returns the turn that began by its text and whose input goes on.
func (u *utterances) early() *turn {
	for _, t := range u.s.open {
		if t.ask != nil && t.ask.source == "input.text" {
			return t
		}
	}
	return nil
}

// turn returns the turn of an utterance, begun where it is new.
func (u *utterances) turn(key []byte) *turn {
	if t := u.s.find(key); t != nil {
		return t
	}
	if t := u.current; t != nil && t.unnamed { // an error told of it before its start
		t.key, t.unnamed = string(key), false
		return t
	}
	a := u.s.take(nil)
	if a == nil && u.text != nil {
		a, u.text = u.text, nil
	}
	t := u.s.begin(a, string(key), "")
	if a != nil && a.source == "input.done" {
		t.inputEnd(a)
	}
	return t
}

func (u *utterances) server(m *dialect.Message, at Span) {
	switch m.Kind {
	case dialect.Started:
		t := u.turn(m.Key)
		u.current = t
		t.b.Begin()
		t.format = m.Format
		t.b.Rate(m.Rate, "event", true)
	case dialect.Output:
		u.turn(m.Key).output(m, at)
	case dialect.UnitDone:
		u.turn(m.Key).unit(m, at)
	case dialect.Failed:
		u.failed(m, at)
	case dialect.TurnDone:
		t := u.turn(m.Key)
		if m.Total == 0 {
			t.b.OwesNothing()
			t.b.Flag("empty_input")
		}
		if t.err != nil {
			t.unfinished()
		}
		u.s.marker(t, at)
		u.current = nil
	default:
	}
}

// declared takes the total of a sentence's end.
func declared(t *turn, m *dialect.Message) {
	if m.Flag || m.Bytes < 0 {
		t.b.Undeclared()
		return
	}
	t.b.Declared(m.Bytes)
}

// failed takes an error. Whether the utterance fails by it the end of its sentence
// says.
func (u *utterances) failed(m *dialect.Message, at Span) {
	t := u.current
	if t == nil {
		t = u.s.only()
	}
	if t == nil && len(u.s.asks) > 0 {
		t = u.s.begin(u.s.take(nil), "", "")
		t.inputEnd(t.ask)
		u.current, t.unnamed = t, true
	}
	if t == nil {
		u.s.sessionError(m, at)
		return
	}
	t.err = &failure{err: *m.Err, at: at.Last, off: at.End}
}

// unit ends a sentence: error says that it failed.
func (t *turn) unit(m *dialect.Message, at Span) {
	declared(t, m)
	switch {
	case !m.Flag: // the error was about something else
	case t.err != nil:
		t.fail(t.err)
	default:
		t.b.Now(at.Last)
		t.b.Said(timeline.ServerError, "unit_failed", at.End)
	}
	t.err = nil
}

// unfinished gives a turn that did not come to its end the error that was the
// last thing told of it; one about a message is none of it.
func (t *turn) unfinished() {
	if t.err != nil && (t.err.err.Type != "invalid_request_error" || t.err.err.Internal()) {
		t.fail(t.err)
	}
}

func (u *utterances) sounding(Span) *turn {
	if u.current == nil {
		u.current = u.s.only()
	}
	return u.current
}

func (u *utterances) end() {
	for _, t := range u.s.open {
		t.unfinished()
	}
	for a := u.s.take(nil); a != nil; a = u.s.take(nil) {
		u.s.begin(a, "", "").inputEnd(a)
	}
}
