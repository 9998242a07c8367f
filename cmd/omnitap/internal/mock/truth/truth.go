// Package truth books what the mock really wrote: the ground truth that a
// proxy's or a client's numbers are compared with.
package truth

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
)

// The ways in which an exchange ends; a plan's own endings come as they are.
const (
	Cut        plan.Ending = "cut"            // FIN where more was due
	Reset      plan.Ending = "reset"          // RST by the mock
	ClientGone plan.Ending = "client-gone"    // the client left first
	Shutdown   plan.Ending = "shutdown"       // Serve ended
	Running    plan.Ending = "running"        // not yet ended
	Rejected   plan.Ending = "upload-refused" // 413 and RST in mid-upload
	Cancelled  plan.Ending = "cancelled"      // a turn that was cancelled or interrupted
	Closed     plan.Ending = "closed"         // a close frame where more was due
)

// Stamp is CLOCK_MONOTONIC in ns right before the write call that carried the
// first byte of a thing and right after the one that carried its last.
type Stamp struct {
	BeforeNS int64 `json:"before_ns"`
	AfterNS  int64 `json:"after_ns"`
}

// Stamps are the times of one answer. What did not happen is null.
type Stamps struct {
	// RequestNS is when the request, or the message that asks for a turn, was
	// read to its last byte.
	RequestNS int64 `json:"request_ns"`
	// Head is the status line and the fields.
	Head *Stamp `json:"head"`
	// FirstText is the first non-empty text event.
	FirstText *Stamp `json:"first_text"`
	// FirstAudioEvent is the first audio event, with samples or without.
	FirstAudioEvent *Stamp `json:"first_audio_event"`
	// FirstAudio is the first audio chunk with samples.
	FirstAudio *Stamp `json:"first_audio"`
	// Audio has one entry for each of SamplesPerChunk.
	Audio []Stamp `json:"audio"`
	// EndMarker is [DONE], speech.audio.done or, where the form has no
	// marker, the end of the body.
	EndMarker *Stamp `json:"end_marker"`
	// ClientClosedNS is when the mock saw the client's FIN or RST, 0 if never.
	ClientClosedNS int64 `json:"client_closed_ns"`
}

// Truth is what the mock did with one request: only what was written counts.
type Truth struct {
	// Seq counts requests from 1; ID is the request's name on the wire.
	Seq int    `json:"seq"`
	ID  string `json:"id"`
	// Connection counts connections from 1, Index requests on it from 0.
	Connection int `json:"connection"`
	Index      int `json:"index"`
	// Method and Path as received, without query.
	Method string `json:"method"`
	Path   string `json:"path"`
	// Session is the name of a WebSocket session and Turn counts its turns from
	// 0. A session has one entry with the form session, for the connection, and
	// one with the form turn for each turn.
	Session string `json:"session,omitempty"`
	Turn    int    `json:"turn,omitempty"`
	// Flow is chat, speech, …; Form is sse, raw, whole, json, session or turn.
	Flow    string `json:"flow"`
	Form    string `json:"form"`
	Dialect string `json:"dialect"`
	Status  int    `json:"status"`
	// Script is the script in force, defaults filled in.
	Script script.Script `json:"script"`

	Text       string   `json:"text"`
	TextDeltas []string `json:"text_deltas"`
	// SamplesPerChunk counts sample frames, Samples is their sum.
	SamplesPerChunk []int `json:"samples_per_chunk"`
	Samples         int   `json:"samples"`
	// ExtraSamples were sent once more or after the turn's end: they are in no
	// other number here.
	ExtraSamples int `json:"extra_samples,omitempty"`
	// Events are the types of a turn's events in their order; binary is a
	// binary message.
	Events []string `json:"events,omitempty"`
	// Close is the payload of the close frame that was sent: a code, or its
	// length in bytes. Empty if none was.
	Close string `json:"close,omitempty"`
	// CleanSamples is the length of the signal before any fault.
	CleanSamples int `json:"clean_samples"`
	Rate         int `json:"rate"`
	Channels     int `json:"channels"`
	// SHA256 is of the s16le bytes as sent, without containers; of G.711 the
	// bytes expanded.
	SHA256 string `json:"sha256"`

	Stamps Stamps `json:"stamps"`
	// End is one of the endings, BytesOut what went out, head included.
	End      plan.Ending `json:"end"`
	BytesOut int64       `json:"bytes_out"`
}

// Record is a Truth under construction.
type Record struct {
	closing atomic.Bool   // the last write is under way
	settled chan struct{} // closed when t is final

	mu    sync.Mutex // protects all below
	t     Truth
	sum   hash.Hash
	bytes int // of samples
}

func newRecord(t Truth) *Record {
	t.End = Running
	return &Record{t: t, sum: sha256.New(), settled: make(chan struct{})}
}

// Seq is the number of the request.
func (r *Record) Seq() int { return r.t.Seq } // never changes

// Update changes the truth.
func (r *Record) Update(f func(*Truth)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.t)
}

// Closing tells readers that the record is about to be settled.
func (r *Record) Closing() { r.closing.Store(true) }

// Settle makes the last change to the truth.
func (r *Record) Settle(f func(*Truth)) {
	r.Update(f)
	close(r.settled)
}

// Wrote books one piece of the body that went out whole.
func (r *Record) Wrote(p *plan.Piece, s Stamp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &r.t
	switch p.Kind {
	case plan.End:
		Once(&t.Stamps.EndMarker, s)
	case plan.Audio, plan.Empty:
		Once(&t.Stamps.FirstAudioEvent, s)
	default:
	}
	for _, text := range p.Texts {
		t.TextDeltas = append(t.TextDeltas, text)
		t.Text += text
		if text != "" {
			Once(&t.Stamps.FirstText, s)
		}
	}
	r.sum.Write(p.PCM)
	r.bytes += len(p.PCM)
	if n := r.bytes/(2*max(t.Channels, 1)) - t.Samples; n > 0 {
		t.SamplesPerChunk = append(t.SamplesPerChunk, n)
		t.Samples += n
		t.Stamps.Audio = append(t.Stamps.Audio, s)
		Once(&t.Stamps.FirstAudio, s)
	}
}

// Once sets a stamp that is not set yet.
func Once(p **Stamp, s Stamp) {
	if *p == nil {
		*p = &s
	}
}

func (r *Record) snapshot() Truth {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.t
	t.SHA256 = hex.EncodeToString(r.sum.Sum(nil))
	t.Text = strings.Clone(t.Text)
	t.TextDeltas = slices.Clone(t.TextDeltas)
	t.SamplesPerChunk = slices.Clone(t.SamplesPerChunk)
	t.Stamps.Audio = slices.Clone(t.Stamps.Audio)
	t.Events = slices.Clone(t.Events)
	return t
}

// Asked sets when the message that asks for a turn was read.
func (r *Record) Asked(ns int64) { r.Update(func(t *Truth) { t.Stamps.RequestNS = ns }) }
