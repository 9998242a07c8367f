package telemetry

import (
	"strconv"

	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// sessionAttributes writes a session for its span. A session has no status: how each of
// its turns ended is theirs, and servers drop connections in every way.
func sessionAttributes(s *set, x *timeline.Session) {
	s.text(keyFlow, x.Flow)
	s.text(keyDialect, x.Dialect)
	s.textOf(keyVariant, x.DialectVariant)
	s.text(keySession, x.SessionID)
	s.textOf(semconv.GenAIConversationIDKey, x.ServerSessionID)
	s.textOf(semconv.GenAIRequestModelKey, x.Model)
	s.textOf(semconv.URLPathKey, bare(x.Path))
	*s = append(*s, keyConnection.Int64(int64(x.ConnectionID)), keyTurns.Int(x.Turns))
	s.float(keyInput, x.InputAudioS)
	s.text(keyClosedBy, x.Close.By)
	s.integer(keyCode, x.Close.Code)
	s.text(keyTransportBy, x.Close.Transport)
	var states []string
	for _, state := range timeline.States() {
		if n := x.States[state]; n > 0 {
			states = append(states, string(state)+"="+strconv.Itoa(n))
		}
	}
	if len(states) > 0 {
		*s = append(*s, keyStates.StringSlice(states))
	}
	if len(x.Flags) > 0 {
		*s = append(*s, keyFlags.StringSlice(x.Flags))
	}
}
