package perfetto

import (
	"strconv"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// chunks are the events that are drawn as a slice from the chunk before to this one.
var chunks = map[string]string{"text_chunk": "text", "output_chunk": "audio"}

// alone are the events that are drawn where no record has their points: of a request that
// was under way when its run was cut off.
var alone = map[string]string{
	"ingress": "ingress", "request_body_end": "request read", "upstream_sent": "sent to the server",
	"response_headers": "response headers", "first_text": "first text", "first_audio_event": "first audio event",
	"first_audio": "first audio", "first_audible": "first audible", "terminal": "end", "close": "closed",
}

// Event draws a chunk, and the points of requests without a record. The records come first.
func (t *Trace) Event(e *timeline.Event) error {
	if e.Stage != "" {
		return nil // records have the stages
	}
	if kind, ok := chunks[e.Event]; ok {
		return t.chunkEvent(kind, e)
	}
	uuid := t.request(e.RequestID, e.Attempt)
	name, ok := alone[e.Event]
	if !ok || t.drawn[uuid] {
		return nil
	}
	// The exchange that opened a session has the session's id, and no record.
	if session := t.id("session", e.RequestID); t.described(session) {
		return t.e.mark(mark{kind: typeInstant, track: session, at: e.MonoNS, name: name})
	}
	uuid, err := t.requestTrack(ofEvent(e))
	if err != nil {
		return err
	}
	return t.e.mark(mark{kind: typeInstant, track: uuid, at: e.MonoNS, name: name})
}

// ofEvent names a request that has no record.
func ofEvent(e *timeline.Event) identity {
	return identity{id: e.RequestID, attempt: e.Attempt, flow: "unfinished", session: string(e.SessionID)}
}

func (t *Trace) chunkEvent(kind string, e *timeline.Event) error {
	request, err := t.requestTrack(ofEvent(e))
	if err != nil {
		return err
	}
	uuid := t.id("chunks", kind, e.RequestID, strconv.Itoa(e.Attempt))
	before, described := t.chunk[uuid]
	if !described {
		if err := t.e.describe(track{uuid: uuid, parent: request, name: kind + " chunks"}); err != nil {
			return err
		}
	}
	m := mark{track: uuid, at: e.MonoNS, name: kind, args: make([]arg, 0, 3)}
	for _, a := range []struct {
		name string
		n    timeline.Number
	}{{"chunk", e.ChunkID}, {"bytes", e.Bytes}, {"samples", e.Samples}} {
		if v, ok := a.n.Get(); ok {
			m.args = append(m.args, arg{a.name, v})
		}
	}
	if described {
		m.at = min(before, e.MonoNS)
	}
	t.chunk[uuid] = max(before, e.MonoNS) // slices of a track must not cut into each other
	return t.slice(m, e.MonoNS)
}
