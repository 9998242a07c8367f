package session

import (
	"slices"

	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// early is a message of the client that came before the form was known.
type early struct {
	m    dialect.Message
	at   Span
	up   int64 // when it was written to the server
	late bool  // the deadline passed with nothing begun
}

// keep holds a message until the form is known: what it points into does not last.
func (s *Session) keep(m *dialect.Message, at Span) {
	if s.full(m, at) {
		return
	}
	s.earlyText += len(m.Text)
	c := *m
	c.Type = []byte(string(m.Type))
	c.Text = []byte(string(m.Text))
	c.Key = []byte(string(m.Key))
	c.Parts = nil
	s.early = append(s.early, early{m: c, at: at})
}

// full reports whether there is no room for a message ahead of the form: half of
// it is for those that ask.
func (s *Session) full(m *dialect.Message, at Span) bool {
	n := len(s.early)
	asks := m.Kind == dialect.Ask || m.Kind == dialect.InputEnd
	if s.earlyText+len(m.Text) <= maxText && (n < maxEarly/2 || asks && n < maxEarly) {
		return false
	}
	s.flag("early_messages_dropped")
	switch {
	case asks:
		s.partial = "messages ahead of the first answer were dropped"
	case n > 0 && s.early[n-1].m.Kind == m.Kind && m.Kind == dialect.InputAudio: // sound is sound
		last := &s.early[n-1]
		last.m.Bytes += max(0, m.Bytes)
		last.at.Last, last.at.End = at.Last, at.End
	}
	return true
}

// unformed takes what comes before the form is known.
func (s *Session) unformed(m *dialect.Message, at Span) {
	if m.Unknown {
		s.count.unknown++
	}
	if m.Err != nil {
		s.sessionError(m, at)
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

// askedEarly reports whether the client asked for something ahead of the form.
func (s *Session) askedEarly() bool {
	return slices.ContainsFunc(s.early, func(e early) bool { return e.m.Kind == dialect.Ask })
}

// formOfFlow guesses the form of a session in which the server said nothing, by
// its path: what was asked for still gets its record.
func formOfFlow(flow string) dialect.Form {
	switch flow {
	case timeline.FlowSpeechWS:
		return dialect.SpeechVLLM
	case timeline.FlowVideoChat:
		return dialect.VideoChat
	case timeline.FlowVideoOut:
		return dialect.VideoOut
	case timeline.FlowDuplex:
		return dialect.Duplex
	}
	return dialect.Responses
}
