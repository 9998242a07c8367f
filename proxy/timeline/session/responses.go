package session

import (
	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// responses follows the dialects with response ids: OpenAI-style realtime, the
// two duplex forms, SGLang-Omni's conversation. response.created begins a turn,
// response.done ends it. What asked for it differs: see ask.
type responses struct {
	s *Session
}

// Sources of t_in.
const (
	srcCreate  = "response.create"
	srcCommit  = "commit"
	srcVAD     = "server_vad"
	srcCreated = "response_created"
)

func (r *responses) client(m *dialect.Message, at Span) {
	switch m.Kind {
	case dialect.Ask:
		a := &ask{source: srcCommit, at: at, eventID: m.EventID, modes: m.Modalities}
		if string(m.Type) == srcCreate {
			a.source = srcCreate
		}
		a.weak = r.s.form == dialect.Duplex && string(m.Type) == "input_audio_buffer.commit"
		a.input = r.s.takeInput()
		r.s.wait(a)
	case dialect.Cancel:
		for _, t := range r.s.open {
			if len(m.Key) == 0 || t.key == string(m.Key) {
				t.b.Cancelled(at.First, "client")
			}
		}
	default:
	}
}

func (r *responses) server(m *dialect.Message, at Span) {
	switch m.Kind {
	case dialect.SpeechStart:
		r.speechStarted(at)
	case dialect.SpeechStop:
		r.s.superseded = false
		r.s.wait(&ask{source: srcVAD, at: at, server: true, input: r.s.takeInput()})
	case dialect.Committed:
		r.committed(m, at)
	case dialect.Started:
		if t := r.s.find(m.Key); t == nil {
			t = r.begin(m, at)
			t.b.Begin()
			t.b.AddBytes(0, at.size())
		}
	case dialect.Output, dialect.TextDone, dialect.AudioDone:
		r.output(m, at)
	case dialect.TurnDone:
		r.done(m, at)
	case dialect.Failed:
		r.failed(m, at)
	case dialect.Listening:
		r.listening(m, at)
	default:
		if t := r.s.find(m.Key); t != nil { // items and parts are of the answer too
			t.b.AddBytes(0, at.size())
		}
	}
}

// committed notes that the server took what was said; it may say that no answer
// comes of it.
func (r *responses) committed(m *dialect.Message, at Span) {
	n := len(r.s.asks)
	if n == 0 {
		return
	}
	a := r.s.asks[n-1]
	for _, o := range r.s.asks { // the first that was not acknowledged
		if o.source != srcCreate && !o.taken {
			a = o
			break
		}
	}
	a.taken = true
	a.also = append(a.also, moment{"committed", at.Last})
	if m.Flag && a.source != srcCreate {
		r.s.take(func(o *ask) bool { return o == a })
	}
}

// givesUp reports whether an end of speech that was not answered is not answered
// any more once the user speaks again. SGLang-Omni keeps what it has committed,
// and its shared sessions all, in a queue.
func (r *responses) givesUp(a *ask) bool {
	switch {
	case a.source != srcVAD || r.s.form == dialect.Shared:
		return false
	case r.s.form == dialect.Conversation:
		return !a.taken
	}
	return true
}

// speechStarted notes that the user speaks: with a turn under way it barges in,
// and what was said before and not answered is taken up with what follows.
func (r *responses) speechStarted(at Span) {
	for r.s.take(r.givesUp) != nil {
		r.s.flag("speech_unanswered")
		r.s.superseded = true
	}
	for _, t := range r.s.open {
		t.b.Cancelled(at.Last, "speech")
	}
}

// ask picks what asked for a response that begins. In the duplex form every
// commit and every create starts one; elsewhere response.create does, or else
// the end of the user's speech as the server hears it, or else the commit.
func (r *responses) ask() *ask {
	s := r.s
	if s.form == dialect.Duplex {
		a := s.take(nil)
		if a == nil || len(s.asks) == 0 {
			return a
		}
		// a commit of the projected form asks by what follows it
		if next := s.asks[0]; a.weak && next.source == srcCreate {
			next.also = append(next.also, moment{srcCommit, a.at.First})
			if next.input.messages == 0 {
				next.input = a.input
			}
			return s.take(nil)
		}
		// the end of speech and the commit of what was heard ask for one answer
		if next := s.asks[0]; a.source == srcVAD && next.source == srcCommit || a.source == srcCommit && next.source == srcVAD {
			a.also = append(a.also, moment{next.source, next.at.First})
			s.take(nil)
		}
		return a
	}
	for _, source := range []string{srcCreate, srcVAD, srcCommit} {
		for i, a := range s.asks {
			if a.source != source {
				continue
			}
			rest := s.asks[:0:0]
			for j, o := range s.asks {
				switch {
				case j == i:
				case j < i: // it led to this one
					a.also = append(a.also, moment{o.source, o.at.First})
					if a.input.messages == 0 {
						a.input = o.input
					}
				default:
					rest = append(rest, o)
				}
			}
			s.asks = rest
			return a
		}
	}
	return nil
}

// begin begins the turn of a response.
func (r *responses) begin(m *dialect.Message, at Span) *turn {
	a := r.ask()
	heard := r.s.ends.deaf == "" && r.s.partial == "" && !r.s.superseded // all that may have asked
	if a == nil && heard && r.s.flow == timeline.FlowRealtime && m.Kind == dialect.Started {
		a = &ask{source: srcCreated, at: at, server: true} // nothing earlier tells of it
	}
	t := r.s.begin(a, string(m.Key), string(m.Key))
	t.b.Also(srcCreated, at.Last)
	t.inputEnd(a)
	if a == nil {
		r.s.heard(t, r.s.takeInput())
	}
	return t
}

// turn returns the turn that a message belongs to. One without an id belongs to
// the one turn that is open; with several it is nobody's (case C51).
func (r *responses) turn(m *dialect.Message, at Span) *turn {
	if len(m.Key) == 0 {
		return r.s.only()
	}
	if t := r.s.find(m.Key); t != nil {
		return t
	}
	if r.s.over[string(m.Key)] {
		return nil
	}
	return r.begin(m, at)
}

func (r *responses) output(m *dialect.Message, at Span) {
	t := r.turn(m, at)
	if t == nil {
		if len(m.Key) > 0 && m.Kind == dialect.Output {
			r.s.flag("output_after_done")
		}
		r.s.loose(m)
		return
	}
	t.textOver = t.textOver || m.Kind == dialect.TextDone
	t.soundOver = t.soundOver || m.Kind == dialect.AudioDone
	t.output(m, at)
}

func (r *responses) done(m *dialect.Message, at Span) {
	t := r.turn(m, at)
	if t == nil {
		return
	}
	t.b.Now(at.Last)
	switch m.Status {
	case "cancelled", "canceled":
		t.b.Interrupted(m.Reason)
	case "failed":
		switch {
		case t.err != nil:
			t.fail(t.err)
		case m.Err != nil:
			t.fail(&failure{err: *m.Err, at: at.Last, off: at.End})
		default:
			t.b.Said(timeline.ServerError, word(m.Reason, "response_failed"), at.End)
		}
	case "incomplete":
		t.b.Flag("incomplete")
	case "completed":
		if t.sound && t.textOver && !t.soundOver { // cut short, if its text was not (case C25)
			t.b.Trouble("missing_terminal", "the server ended the text of the response and not its sound")
		}
	}
	if m.Reason == "empty_turn" {
		t.b.OwesNothing()
	}
	ev := m.Event
	ev.Err = nil
	t.b.Event(&ev, at.End)
	r.s.marker(t, at)
}

func word(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// failed takes an error. Whether a turn fails by it its response.done says; an
// ask that it answers never gets a turn of its own.
func (r *responses) failed(m *dialect.Message, at Span) {
	f := &failure{err: *m.Err, at: at.Last, off: at.End}
	if a := r.refused(m); a != nil {
		t := r.s.begin(a, "", "")
		t.inputEnd(a)
		t.fail(f)
		r.s.finish(t)
		return
	}
	if len(r.s.open) == 0 {
		r.s.sessionError(m, at)
		return
	}
	if m.Flag {
		r.s.count.errors++
		return
	}
	for _, t := range r.s.open {
		t.err = f
	}
}

// creates reports whether an ask is one that an error may refuse.
func (r *responses) creates(a *ask) bool {
	return a.source == srcCreate || a.source == srcCommit && r.s.form == dialect.Duplex
}

// refused returns the ask that an error answers: the one it names, or the only
// one there is where the error says that a request was wrong.
func (r *responses) refused(m *dialect.Message) *ask {
	if m.EventID != "" {
		return r.s.take(func(a *ask) bool { return a.eventID == m.EventID && r.creates(a) })
	}
	if m.Err.Type != "invalid_request_error" && m.Err.Word == "" {
		return nil
	}
	creates := 0
	for _, a := range r.s.asks {
		if r.creates(a) {
			creates++
		}
	}
	if creates != 1 {
		return nil
	}
	return r.s.take(r.creates)
}

// listening takes the model's choice to be silent: it is what a response comes to,
// or answers an ask, if there is one.
func (r *responses) listening(m *dialect.Message, at Span) {
	if t := r.s.only(); t != nil && (len(m.Key) == 0 || t.key == string(m.Key)) {
		t.b.OwesNothing()
		t.b.Flag("listen")
		return
	}
	a := r.s.take(func(a *ask) bool { return !a.server && !m.Flag && (m.Reason != "silence_or_noise" || a.taken) })
	if a == nil {
		r.s.count.listens++
		return
	}
	t := r.s.begin(a, "", "")
	t.inputEnd(a)
	t.b.OwesNothing()
	t.b.Flag("listen")
	r.s.marker(t, at)
}

func (r *responses) sounding(Span) *turn { return r.s.only() }

// end makes turns of asks that nothing answered. A commit alone asks for nothing
// but in the duplex form.
func (r *responses) end() {
	for a := r.s.take(nil); a != nil; a = r.s.take(nil) {
		if a.source == srcCommit && r.s.form == dialect.Responses {
			continue
		}
		r.s.begin(a, "", "").inputEnd(a)
	}
	for _, t := range r.s.open {
		t.unfinished()
	}
}
