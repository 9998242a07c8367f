package session

import (
	"slices"
	"strings"

	"github.com/omnitap/omnitap/proxy/timeline"
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
	if q.current != nil { // it cuts off what runs
		q.current.b.Cancelled(at.First, "client")
	}
	if m.Bytes > 0 {
		q.s.said(m.Bytes, 0, at) // the message's own bytes are what asks
	}
	q.s.wait(&ask{source: string(m.Type), at: at, input: q.s.takeInput()})
}

// begin begins the turn of a response.start. With several queries waiting it may
// be the first one's, on its way when the next was sent, or the last one's, those
// before it cancelled unbegun: only what follows tells. See settle.
func (q *queries) begin() *turn {
	var a *ask
	if len(q.s.asks) == 1 {
		a = q.s.take(nil)
	}
	q.s.behind = max(0, len(q.s.asks)-1) // the others were sent before, whosever this is
	t := q.s.begin(a, "", "")
	q.s.behind = 0
	t.inputEnd(a)
	t.b.Begin()
	if a == nil {
		t.among, q.s.asks = q.s.asks, nil
	}
	q.current = t
	return t
}

// settle ties the current turn to its query where several had waited: at index i
// of them. Those before it were cancelled unbegun, those behind it wait again.
func (q *queries) settle(i int) {
	t := q.current
	if t == nil || len(t.among) == 0 {
		return
	}
	among := t.among
	t.among = nil
	q.s.asked(t, among[i])
	t.inputEnd(among[i])
	for _, a := range among[:i] {
		c := q.s.begin(a, "", "")
		c.inputEnd(a)
		c.b.Now(t.began)
		c.b.Interrupted("next_query")
		q.s.finish(c)
	}
	q.s.asks = append(among[i+1:], q.s.asks...)
}

// wantsSound reports whether sound is the last thing to come.
func (q *queries) wantsSound() bool {
	return len(q.s.modes) == 0 || slices.Contains(q.s.modes, "audio")
}

func (q *queries) server(m *dialect.Message, at Span) {
	switch m.Kind {
	case dialect.Started:
		q.settle(0) // another start comes: the one before was an earlier query's
		q.close(at, "next_query")
		q.begin()
	case dialect.Output, dialect.TextDone, dialect.AudioDone:
		q.output(m, at)
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

// output takes what a query that runs is answered; before its start and behind
// its end there is none: that is left over from another one.
func (q *queries) output(m *dialect.Message, at Span) {
	t := q.current
	switch {
	case t == nil:
		q.s.loose(m)
	case m.Kind == dialect.AudioDone:
		q.done(at)
	case m.Kind == dialect.TextDone:
		t.output(m, at)
		t.textDone, t.sound = at, false
		if t.err != nil || !q.wantsSound() {
			q.done(at)
		}
	default:
		t.output(m, at)
	}
}

func (q *queries) done(at Span) {
	if q.current != nil {
		q.settle(len(q.current.among) - 1) // it was not cancelled: the last query's
	}
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
	q.settle(len(t.among) - 1)
	q.current = nil
	t.b.Now(at.Last)
	switch {
	case t.err != nil: // it ended at its error
	case t.textDone.End != 0 && !t.sound && !slices.Contains(q.s.modes, "audio"):
		t.b.MarkerAt(t.textDone.Last, t.textDone.End)
	case why == "":
		return // the session is over, and this one was not
	case len(q.s.asks) > 0:
		t.b.Interrupted(why)
	default: // nobody asked for the next one: the server went on without an end
		t.b.Said(timeline.InvalidOutput, "missing_terminal", at.End)
	}
	q.s.finish(t)
}

// about says what an error of the video chat is about, by its words: the query
// that runs, one that does not start, or a message beside them.
func about(text string) (unstarted, message bool) {
	for _, w := range []string{"Preprocess failed", "Failed to build request", "No frames buffered", "Streaming video requires"} {
		unstarted = unstarted || strings.HasPrefix(text, w)
	}
	for _, w := range []string{"Unknown type", "Invalid JSON", "Messages must be", "Frame ", "Invalid image", "Audio buffer overflow"} {
		message = message || strings.HasPrefix(text, w)
	}
	return unstarted, message
}

func (q *queries) failed(m *dialect.Message, at Span) {
	unstarted, message := about(m.Err.Message)
	if message {
		q.s.sessionError(m, at)
		return
	}
	if unstarted && len(q.s.asks) > 0 { // it comes ahead of response.start
		q.close(at, "next_query")
		a := q.s.asks[len(q.s.asks)-1]
		q.s.take(func(o *ask) bool { return o == a })
		t := q.s.begin(a, "", "")
		t.inputEnd(a)
		t.fail(&failure{err: *m.Err, at: at.Last, off: at.End})
		q.s.finish(t)
		return
	}
	if q.current == nil && len(q.s.asks) == 0 {
		q.s.sessionError(m, at)
		return
	}
	t := q.current
	if t == nil {
		t = q.begin()
	}
	t.err = &failure{err: *m.Err, at: at.Last, off: at.End}
	t.fail(t.err)
	if t.textDone.End != 0 {
		q.settle(len(t.among) - 1)
		q.s.finish(t)
		q.current = nil
	}
}

func (q *queries) sounding(Span) *turn { return q.current }

func (q *queries) end() {
	if t := q.current; t != nil { // whose it was is not known: it stays without a query
		for _, a := range t.among[:max(0, len(t.among)-1)] {
			c := q.s.begin(a, "", "")
			c.inputEnd(a)
			c.b.Now(t.began)
			c.b.Interrupted("next_query")
		}
	}
	if t := q.current; t != nil && t.textDone.End != 0 && !t.sound && !slices.Contains(q.s.modes, "audio") {
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
		t := v.turn("")
		if m.Flag { // stopped, as the client asked
			t.b.Now(at.Last)
			t.b.Interrupted("session.stop")
		}
		v.s.marker(t, at)
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
