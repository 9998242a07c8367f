package timeline

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Event is one line of events.jsonl: a point on a timeline (contract section 8).
// What does not apply to an event is null; keys that only some events have are
// left out of the others.
type Event struct {
	// Flow is the record's, for whoever cannot wait for it; it is not written.
	Flow      string `json:"-"`
	RunID     Text   `json:"run_id"`
	RequestID string `json:"request_id"`
	SessionID Text   `json:"session_id"`
	Stage     Text   `json:"stage"`
	Attempt   int    `json:"attempt"`
	// ChunkID counts audio and text chunks each from 0.
	ChunkID Number `json:"chunk_id"`
	// Event is a word of contract section 2 or 6, deadline, or audio_stall.
	Event  string `json:"event"`
	MonoNS int64  `json:"mono_ns"`
	WallNS Number `json:"wall_ns"`
	Node   Text   `json:"node"`
	Device Text   `json:"device"`
	// Bytes is the chunk's payload; of the terminal event all bytes to the client.
	Bytes Number `json:"bytes"`
	Batch Number `json:"batch"`
	// Status is the terminal state, of a client_write what was written (audio or
	// text), of a deadline and an audio_stall the phase.
	Status Text `json:"status"`
	// Offset is the byte of the stream that completed the point.
	Offset   Number `json:"offset,omitzero"`
	Samples  Number `json:"samples,omitzero"`
	Rate     Number `json:"sample_rate,omitzero"`
	Channels Number `json:"channels,omitzero"`
	// Transport, Peer and Match are a stage event's: the way and the other stage of a
	// transfer, and how it was tied to the request.
	Transport Text `json:"transport,omitzero"`
	Peer      Text `json:"peer,omitzero"`
	Match     Text `json:"match,omitzero"`
}

// Number is an integer that may be missing; the zero Number is.
type Number struct {
	v  int64
	ok bool
}

// N returns a Number that is there.
func N(v int64) Number { return Number{v, true} }

// Positive returns v as a Number, missing unless it is above 0.
func Positive(v int64) Number { return Number{v, v > 0} }

// Get returns the value and whether it is there.
func (n Number) Get() (int64, bool) { return n.v, n.ok }

// MarshalJSON writes the integer or null.
func (n Number) MarshalJSON() ([]byte, error) {
	if !n.ok {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, n.v, 10), nil
}

// UnmarshalJSON reads an integer or null.
func (n *Number) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*n = Number{}
		return nil
	}
	n.ok = true
	return json.Unmarshal(b, &n.v)
}

// Text is a string that may be missing; the empty Text is.
type Text string

// MarshalJSON writes the string or null.
func (t Text) MarshalJSON() ([]byte, error) {
	if t == "" {
		return []byte("null"), nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // whoever writes HTML escapes it there
	err := enc.Encode(string(t))
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}

// UnmarshalJSON reads a string or null.
func (t *Text) UnmarshalJSON(b []byte) error {
	var s *string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	*t = ""
	if s != nil {
		*t = Text(*s)
	}
	return nil
}
