package session

import (
	"slices"

	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// queries follows vLLM-Omni's video chat: video.query asks, response.start
// begins. A new query cancels the one that runs, which gets no end of its own:
// the next response.start is all that tells. Nothing carries an id.
type queries struct {
	s       *Session
	current *turn
}

func (q *queries) client(m *dialect.Message, at Span) {
	if m.Kind != dialect.Ask {
		return
	}
	if m.Bytes > 0 {
		q.s.input.add(m.Bytes, at)
	}
	q.s.wait(&ask{source: string(m.Type), at: at, input: q.s.takeInput()})
}

// latest takes the last query; those before it were cancelled unbegun.
func (q *queries) latest() *ask {
	for len(q.s.asks) > 1 {
		a := q.s.take(nil)
		t := q.s.begin(a, "", "")
		t.inputEnd(a)
		t.b.Interrupted("next_query")
		q.s.finish(t)
	}
	return q.s.take(nil)
}

func (q *queries) begin() *turn {
	a := q.latest()
	q.current = q.s.begin(a, "", "")
	q.current.inputEnd(a)
	q.current.b.Begin()
	return q.current
}

func (q *queries) turn() *turn {
	if q.current == nil {
		q.begin()
	}
	return q.current
}

// wantsSound reports whether sound is the last thing to come.
func (q *queries) wantsSound() bool {
	return len(q.s.modes) == 0 || slices.Contains(q.s.modes, "audio")
}

func (q *queries) server(m *dialect.Message, at Span) {
	switch m.Kind {
	case dialect.Started:
		q.close(at, "next_query")
		q.begin()
	case dialect.Output:
		q.turn().output(m, at)
	case dialect.TextDone:
		t := q.turn()
		t.output(m, at)
		t.textDone, t.sound = at, false
		if t.err != nil || !q.wantsSound() {
			q.done(at)
		}
	case dialect.AudioDone:
		q.turn()
		q.done(at)
	case dialect.Failed:
		q.failed(m, at)
	case dialect.TurnDone:
		q.close(at, "")
	default:
		if q.current != nil && m.ID != "" {
			q.current.b.Named(m.ID)
		}
	}
}

func (q *queries) done(at Span) {
	q.s.marker(q.current, at)
	q.current = nil
}

// close ends the turn that runs where no event of its own does: its text may
// have been all there was to come.
func (q *queries) close(at Span, why string) {
	t := q.current
	if t == nil {
		return
	}
	q.current = nil
	t.b.Now(at.Last)
	switch {
	case t.textDone.End != 0 && !t.sound:
		t.b.MarkerAt(t.textDone.Last, t.textDone.End)
	case why != "":
		t.b.Interrupted(why)
	default:
		return // the session is over, and this one was not
	}
	q.s.finish(t)
}

func (q *queries) failed(m *dialect.Message, at Span) {
	if q.current == nil && len(q.s.asks) == 0 {
		q.s.sessionError(m, at)
		return
	}
	t := q.turn()
	t.err = &failure{err: *m.Err, at: at.Last, off: at.End}
	t.fail(t.err)
	if t.textDone.End != 0 {
		q.s.finish(t)
		q.current = nil
	}
}

func (q *queries) sounding(Span) *turn { return q.current }

func (q *queries) end() {
	if t := q.current; t != nil && t.textDone.End != 0 && !t.sound {
		t.b.MarkerAt(t.textDone.Last, t.textDone.End)
	}
	for a := q.s.take(nil); a != nil; a = q.s.take(nil) {
		q.s.begin(a, "", "").inputEnd(a)
	}
}

// videos follows vLLM-Omni's generated video: session.start asks, session.done
// ends; what comes is counted in bytes, not looked into.
type videos struct {
	s *Session
}

func (v *videos) client(m *dialect.Message, at Span) {
	if m.Kind == dialect.Ask && string(m.Type) == "session.start" {
		if m.Model != "" {
			v.s.model = m.Model
		}
		v.s.wait(&ask{source: string(m.Type), at: at})
	}
}

func (v *videos) turn(id string) *turn {
	if t := v.s.only(); t != nil {
		return t
	}
	a := v.s.take(nil)
	t := v.s.begin(a, "", id)
	t.inputEnd(a)
	return t
}

func (v *videos) server(m *dialect.Message, at Span) {
	switch m.Kind {
	case dialect.Started:
		v.turn(m.ID).b.Begin()
	case dialect.TurnDone:
		v.s.marker(v.turn(""), at)
	case dialect.Failed:
		if v.s.only() == nil && len(v.s.asks) == 0 {
			v.s.sessionError(m, at)
			return
		}
		t := v.turn("")
		t.output(m, at)
		v.s.finish(t)
	default:
	}
}

func (v *videos) sounding(Span) *turn { return nil }

func (v *videos) end() {
	if len(v.s.asks) > 0 {
		v.turn("")
	}
}
