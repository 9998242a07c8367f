package load

import "github.com/omnitap/omnitap/exporter/stats"

// Sent is one request as its client saw it. Times are CLOCK_MONOTONIC nanoseconds, 0 for
// one that was not reached.
type Sent struct {
	// Index counts the plan's requests from 0.
	Index int `json:"index"`
	// Name is that of the set's request, RequestID the X-Request-Id that was sent.
	Name      string `json:"name"`
	RequestID string `json:"request_id"`
	// PlannedNS is when it was due, 0 in a closed loop.
	PlannedNS int64 `json:"planned_ns,omitzero"`
	// SentNS is when it was given out, ahead of looking for a connection; 0 for one that
	// was not sent.
	SentNS int64 `json:"sent_ns,omitzero"`
	// FirstByteNS is the first byte of the answer's body. (Servers send the head before
	// they begin to generate.)
	FirstByteNS int64 `json:"first_byte_ns,omitzero"`
	// DoneNS is the end of the answer, or of the attempt.
	DoneNS int64 `json:"done_ns,omitzero"`
	// Status is the answer's, 0 for none, Bytes the length of its body as it was read.
	Status int   `json:"status,omitzero"`
	Bytes  int64 `json:"bytes"`
	// Err says why there is no whole answer. A status that is an error has none: it is
	// an answer.
	Err string `json:"err,omitzero"`
}

// Result is what became of a plan. Sent is in the plan's order, without the requests
// whose turn did not come; the caller owns it.
type Result struct {
	Sent []Sent `json:"sent"`
	// StartNS and EndNS are CLOCK_MONOTONIC: before the first was sent, and when the last
	// had ended.
	StartNS int64 `json:"start_ns"`
	EndNS   int64 `json:"end_ns"`
}

// Lag is how late the generator sent, milliseconds: its own fault, never the server's. Its
// N is 0 in a closed loop.
func (r Result) Lag() stats.Summary {
	var late []float64
	for i := range r.Sent {
		if s := &r.Sent[i]; s.PlannedNS != 0 && s.SentNS != 0 {
			late = append(late, float64(s.SentNS-s.PlannedNS)/1e6)
		}
	}
	return stats.Summarize(late)
}
