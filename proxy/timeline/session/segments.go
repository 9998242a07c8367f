package session

import "github.com/omnitap/omnitap/proxy/wire/dialect"

// segments follows SGLang-Omni's transcription sessions: a segment of the user's
// speech is a turn, and each of its events holds the whole hypothesis so far.
type segments struct {
	s     *Session
	index int64 // of the last event
}

func (g *segments) client(m *dialect.Message, at Span) {
	if m.Kind == dialect.Ask {
		g.s.asks = nil // a commit ends the segment that is heard
		g.s.wait(&ask{source: srcCommit, at: at, input: g.s.takeInput()})
	}
}

func (g *segments) turn(m *dialect.Message) *turn {
	if t := g.s.find(m.Key); t != nil {
		return t
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
	case dialect.SpeechStart:
		g.turn(m).b.Also("speech_started", at.Last)
	case dialect.SpeechStop:
		t := g.turn(m)
		if t.ask == nil {
			g.s.asked(t, &ask{source: srcVAD, at: at, server: true, input: g.s.takeInput()})
		}
	case dialect.Committed:
		g.committed(m, at)
	case dialect.Segment:
		t := g.turn(m)
		t.b.Begin()
		t.b.Now(at.Last)
		t.b.Snapshot(m.Text, at.End)
		if m.Flag {
			g.s.marker(t, at)
		}
	case dialect.Failed:
		if t := g.s.only(); t != nil {
			t.err = &failure{err: *m.Err, at: at.Last, off: at.End}
			return
		}
		g.s.sessionError(m, at)
	default:
	}
}

// committed ties the client's commit to the segment that it ended.
func (g *segments) committed(m *dialect.Message, at Span) {
	t := g.turn(m)
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
		if t.err != nil {
			t.fail(t.err)
		}
	}
}
