package session

import (
	"slices"

	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// segments follows SGLang-Omni's transcription sessions: a segment of the user's
// speech is a turn, and each of its events holds the whole hypothesis so far.
type segments struct {
	s     *Session
	index int64 // of the last event
}

func (g *segments) client(m *dialect.Message, at Span) {
	source := srcCommit
	switch {
	case m.Kind == dialect.InputEnd:
		source = string(m.Type)
	case m.Kind != dialect.Ask:
		return
	}
	g.s.wait(&ask{source: source, at: at, input: g.s.takeInput()})
}

// turn returns the turn of a segment, begun where it is new; nil where it is over.
func (g *segments) turn(m *dialect.Message) *turn {
	if t := g.s.find(m.Key); t != nil {
		return t
	}
	if g.s.over[string(m.Key)] {
		return nil
	}
	return g.s.begin(nil, string(m.Key), "")
}

func (g *segments) server(m *dialect.Message, at Span) {
	if m.Seq > 0 {
		if g.index > 0 && m.Seq != g.index+1 {
			g.s.flag("events_missing")
		}
		g.index = m.Seq
	}
	switch m.Kind {
	case dialect.SpeechStart, dialect.SpeechStop, dialect.Committed, dialect.Segment:
		t := g.s.only()
		if len(m.Key) > 0 {
			t = g.turn(m)
		}
		if t != nil {
			g.event(t, m, at)
		}
	case dialect.Cleared:
		g.cleared(at)
	case dialect.Failed:
		g.failed(m, at)
	default:
	}
}

// cleared drops the segments that were not committed, as the client asked.
func (g *segments) cleared(at Span) {
	for _, t := range slices.Clone(g.s.open) {
		if t.ask == nil {
			t.b.Now(at.Last)
			t.b.Interrupted("cleared")
			g.s.finish(t)
		}
	}
}

// failed takes an error: segments are worked on in the order of their commits.
func (g *segments) failed(m *dialect.Message, at Span) {
	t := g.s.only()
	for _, o := range g.s.open {
		if o.ask != nil {
			t = o
			break
		}
	}
	if t == nil {
		g.s.sessionError(m, at)
		return
	}
	t.err = &failure{err: *m.Err, at: at.Last, off: at.End}
}

// event takes what is told of a segment.
func (g *segments) event(t *turn, m *dialect.Message, at Span) {
	switch m.Kind {
	case dialect.SpeechStart:
		t.b.Also("speech_started", at.Last)
	case dialect.SpeechStop:
		if t.ask == nil {
			g.s.asked(t, &ask{source: srcVAD, at: at, server: true, input: g.s.takeInput()})
		}
	case dialect.Committed:
		g.committed(t, at)
	default:
		t.b.Begin()
		t.b.Now(at.Last)
		t.b.Snapshot(m.Text, at.End)
		if m.Flag {
			g.s.marker(t, at)
		}
	}
}

// committed ties the client's commit to the segment that it ended.
func (g *segments) committed(t *turn, at Span) {
	t.b.Also("committed", at.Last)
	if t.ask != nil {
		return
	}
	if a := g.s.take(nil); a != nil {
		g.s.asked(t, a)
		t.inputEnd(a)
	}
}

func (g *segments) sounding(Span) *turn { return nil }

func (g *segments) end() {
	g.s.asks = nil
	for _, t := range g.s.open {
		t.unfinished()
	}
}
