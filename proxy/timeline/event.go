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
	// ChunkID counts audio chunks, text chunks, deltas of reasoning, audio events
	// without sound, and a session's messages with sound each from 0.
	ChunkID Number `json:"chunk_id"`
	// Event is a word of contract section 2 or 6, deadline, audio_stall, or one of the
	// words below.
	Event  string `json:"event"`
	MonoNS int64  `json:"mono_ns"`
	WallNS Number `json:"wall_ns"`
	Node   Text   `json:"node"`
	Device Text   `json:"device"`
	// Bytes is the chunk's payload; of the terminal event all bytes to the client, of a
	// turn's request_message those of the message on the wire.
	Bytes Number `json:"bytes"`
	// Batch is how many requests were in a step of a stage.
	Batch Number `json:"batch"`
	// Status is the terminal state, of a client_write what was written (audio or
	// text), of a deadline and an audio_stall the phase, server of an ingress that is
	// the server's own event, of an ingress_alternative its name. Of a stage's event it
	// says where the moment is the next best: message, announced, heard, begun.
	Status Text `json:"status"`
	// Offset is the byte of the stream that completed the point.
	Offset Number `json:"offset,omitzero"`
	// Samples is the sample frames of a chunk, of first_audio those that had come by
	// then, of heard_first and heard_last the frame's number in the stream, from 1.
	Samples  Number `json:"samples,omitzero"`
	Rate     Number `json:"sample_rate,omitzero"`
	Channels Number `json:"channels,omitzero"`
	// Transport, Peer and Match are a stage event's: the way and the other stage of a
	// transfer, and how it was tied to the request.
	Transport Text `json:"transport,omitzero"`
	Peer      Text `json:"peer,omitzero"`
	Match     Text `json:"match,omitzero"`
	// Chars is the characters (Unicode code points) of a delta of reasoning.
	Chars Number `json:"chars,omitzero"`
	// WireBytes is the bytes of a client's message on the wire, Bytes its sound alone.
	WireBytes Number `json:"wire_bytes,omitzero"`
	// Count is how many of the same the event tells of.
	Count Number `json:"count,omitzero"`
	// WaitNS is how long the write was blocked, in nanoseconds; of gpu_calls how long all
	// syncs waited, or the mean of a step.
	WaitNS Number `json:"wait_ns,omitzero"`
	// Transfer numbers the hand-overs of a request from 0, as the record lists them.
	Transfer   Number `json:"transfer,omitzero"`
	EmptyPolls Number `json:"empty_polls,omitzero"`
	// CPUNS, RunqNS and BlockedNS are sums of a stage's threads since some moment: only
	// differences count.
	CPUNS     Number `json:"cpu_ns,omitzero"`
	RunqNS    Number `json:"runq_ns,omitzero"`
	BlockedNS Number `json:"blocked_ns,omitzero"`
}

// EventForm is the version of what events tell: from 2 on all measurements of a record
// but hashes can be derived from them.
const EventForm = 2

// Words of events that the contract does not have. What comes of them stands in
// exporter/verify.
const (
	// EventHeardFirst and EventHeardLast tell the first and the last sample frame that
	// is heard, when its chunk came.
	EventHeardFirst = "heard_first"
	EventHeardLast  = "heard_last"
	// EventFirstSound and EventLastSound tell when the first and the last sound was read,
	// where that is not when the first and the last chunk was complete.
	EventFirstSound = "first_sound"
	EventLastSound  = "last_sound"
	// EventTextReset takes back the text of all chunks so far: ChunkID is how many.
	EventTextReset = "text_reset"
	// EventReasoning is a delta of text that is reasoning.
	EventReasoning = "reasoning_chunk"
	// EventEmptyAudio is an audio event that held no sound.
	EventEmptyAudio = "empty_audio"
	// EventClientWait tells how long writes to the client were blocked that completed no
	// chunk, since the last that did; else the first client_write of the write does.
	EventClientWait = "client_wait"
	// EventAlternative is another moment that could be taken for a turn's ingress.
	EventAlternative = "ingress_alternative"
	// EventMessage is a message of the client that asked for a turn.
	EventMessage = "request_message"
	// EventInput is a message of the client with sound: an event of the session, whose id
	// is its request_id. EventInputTaken gives Count of them, from ChunkID on, to a turn;
	// its moment is the first byte of the first.
	EventInput      = "input_chunk"
	EventInputTaken = "input_taken"
)

// Words of events of the stages that the contract does not have.
const (
	// EventSubmitted is the API process's message to the first stage.
	EventSubmitted = "submitted"
	// EventFirstOutput, EventFirstPayload and EventLastOutput are a stage's first
	// output, its first with more than text, and its last, where those are others;
	// EventPayloadReceived is when the API process had the first with more than text.
	EventFirstOutput     = "first_output"
	EventFirstPayload    = "first_payload"
	EventLastOutput      = "last_output"
	EventPayloadReceived = "payload_received"
	// EventSteps is Count steps of a stage in a row with Batch requests in each, at the
	// last of them.
	EventSteps = "steps"
	// EventUsage is a sample of a stage's processor time.
	EventUsage = "cpu_usage"
	// EventGPUCalls is Count calls of the driver of the kind Status, with their Bytes and
	// WaitNS, within a stage's time.
	EventGPUCalls = "gpu_calls"
	// EventAnnounced and EventHeard are a message about a transfer as it was sent and as
	// its receiver had it, EventReceiveStart is when the receiver began to take it.
	EventAnnounced    = "announced"
	EventHeard        = "heard"
	EventReceiveStart = "receive_start"
	// EventPolls is the receiver's polls for a transfer: Count that found nothing,
	// EmptyPolls that found it empty, at the first in vain (status waited).
	EventPolls = "polls"
)

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
