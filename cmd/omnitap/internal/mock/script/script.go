// Package script holds what steers the mock: the script of a request and the
// grammar of its faults. It is data and its checks; what a fault does to an
// answer is decided in package plan and what it does to a connection in
// package wire.
package script

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/tone"
)

// The dialects that the mock speaks.
const (
	DialectVLLM   = "vllm-omni"
	DialectSGLang = "sglang-omni"
	DialectOpenAI = "openai"
)

// Script says how one request is answered. Every field may be left out; a
// request's script overrides the server's field by field.
type Script struct {
	// Dialect is vllm-omni, sglang-omni or openai. Default: the server's.
	Dialect string `json:"dialect,omitempty"`
	// Variant picks another wire form: for sglang-omni speech over SSE g0 (a
	// WAV per event) or g1 (bare PCM), for vllm-omni 0.30 (one choice in a whole
	// chat answer, audio_metadata), for speech of any dialect raw, sse or whole,
	// whatever the request asks for. Default: as vLLM-Omni 0.26 and
	// SGLang-Omni 0.1.9.
	Variant string `json:"variant,omitempty"`
	// Models are the names that exist; others get the dialect's 404. Default:
	// every name exists.
	Models []string `json:"models,omitempty"`

	// Text holds the text deltas. Default: six that make a sentence.
	Text []string `json:"text,omitempty"`
	// Samples is the number of sample frames of each audio chunk, a number or
	// a list whose last entry goes for all chunks that follow. Default 2400.
	Samples Ints `json:"samples,omitempty"`
	// Chunks is the number of audio chunks. Default: the length of Samples, or
	// 5 where that is one number.
	Chunks int `json:"chunks,omitempty"`
	// Rate in Hz. Default 24000.
	Rate int `json:"rate,omitempty"`
	// Channels. Default 1.
	Channels int `json:"channels,omitempty"`
	// Format is wav, pcm or pcm16 and overrides what the request asks for.
	// Default: the request's, else the dialect's default.
	Format string `json:"format,omitempty"`
	// Tone is the signal: chirp, ramp (each sample is its index), sine,
	// speech-like, silence, dither or noise. Default chirp.
	Tone string `json:"tone,omitempty"`
	// LeadMS and TailMS are the milliseconds at the start and the end of the
	// signal that are silent; they do not make it longer. Default 0.
	LeadMS float64 `json:"lead_ms,omitempty"`
	TailMS float64 `json:"tail_ms,omitempty"`
	// LeadDB and TailDB put noise of that level in dBFS into the silence.
	// Default 0: true zeros.
	LeadDB float64 `json:"lead_db,omitempty"`
	TailDB float64 `json:"tail_db,omitempty"`
	// DC is an offset in sample values on the silence. Default 0.
	DC int `json:"dc,omitempty"`
	// ClickMS is where in the leading silence a 3 ms click is. Default: none.
	ClickMS float64 `json:"click_ms,omitempty"`

	// Order of text and audio: interleaved (by their times), text-first or
	// audio-first. Default interleaved.
	Order string `json:"order,omitempty"`
	// HeaderDelayMS holds the answer's head back, in ms after the request is
	// read. Default 0.
	HeaderDelayMS float64 `json:"header_delay_ms,omitempty"`
	// FirstDelayMS is the time to the first text (without text: to the first
	// audio), in ms after the head is due. Default 20.
	FirstDelayMS *float64 `json:"first_delay_ms,omitempty"`
	// AudioDelayMS is the time to the first audio in ms after the first text.
	// Default 20.
	AudioDelayMS *float64 `json:"audio_delay_ms,omitempty"`
	// GapMS is the time between audio chunks in ms, a number or a list whose
	// last entry goes for the rest. Default 20.
	GapMS Floats `json:"gap_ms,omitempty"`
	// TextGapMS is the same for text deltas. Default 5.
	TextGapMS Floats `json:"text_gap_ms,omitempty"`
	// JobMS is how long a video job runs, in ms. Default 0: done at once.
	JobMS float64 `json:"job_ms,omitempty"`

	// LineEnd of SSE lines: lf, crlf or cr. Default lf.
	LineEnd string `json:"line_end,omitempty"`
	// Comment is the text of SSE keep-alive comments. Default " ping".
	Comment string `json:"comment,omitempty"`
	// CommentEveryMS sends a comment whenever the stream has been silent for
	// that many ms. Default 0: never.
	CommentEveryMS float64 `json:"comment_every_ms,omitempty"`
	// Framing of a streamed body: chunked, length (Content-Length) or close.
	// Default chunked.
	Framing string `json:"framing,omitempty"`
	// FinishReason at the end of the answer. Default stop.
	FinishReason string `json:"finish_reason,omitempty"`
	// ErrorMessage and ErrorCode of the faults that send an error. Defaults: what
	// the dialect says for the code (mostly "mock engine fault"), and 500.
	ErrorMessage string `json:"error_message,omitempty"`
	ErrorCode    int    `json:"error_code,omitempty"`

	// Realtime picks what the WebSocket /v1/realtime speaks: in vllm-omni turn,
	// openai or duplex, in sglang-omni conversation, shared (native duplex) or
	// turn-based. Default: turn and conversation, unless the query asks for
	// duplex=1 or intent=transcription; the dialect openai knows openai only.
	Realtime string `json:"realtime,omitempty"`
	// Native makes a duplex session of vllm-omni a model-native one. Default:
	// as the client's minicpmo45_native_duplex says.
	Native bool `json:"native,omitempty"`
	// Names of audio events in vllm-omni: old (response.audio.*), new
	// (response.output_audio.*) or mixed (in turns). Default old, in variant
	// 0.30 new.
	Names string `json:"names,omitempty"`
	// Eager lets a realtime turn answer from its first commit on, not from the
	// final one.
	Eager bool `json:"eager,omitempty"`
	// Units is what a native duplex model does with each unit of input, over
	// and over: listen or speak. Default listen, speak in vllm-omni, where speak
	// is a whole answer; speak, listen, listen in sglang-omni, where an answer
	// takes a unit a chunk.
	Units []string `json:"units,omitempty"`
	// UnitMS is the length of an input unit in ms. Default 1000 in vllm-omni,
	// 200 in sglang-omni.
	UnitMS float64 `json:"unit_ms,omitempty"`
	// Heard are the transcription deltas of what the user said. Default: three.
	Heard []string `json:"heard,omitempty"`
	// Deflate accepts permessage-deflate on a WebSocket if the client offers
	// it, without context take-over.
	Deflate bool `json:"deflate,omitempty"`
	// DeflateMin is the size in bytes below which a message is not compressed.
	// Default 0.
	DeflateMin int `json:"deflate_min,omitempty"`

	// Steps replaces text, chunks, order and times by a list of events.
	Steps []Step `json:"steps,omitempty"`
	// Raw replaces the whole answer, status line included, by given bytes.
	Raw []RawWrite `json:"raw,omitempty"`
	// Faults are what goes wrong, in the words of Faults.
	Faults []string `json:"faults,omitempty"`
}

// Step is one event of a scripted stream. One of Text, Samples, Empty, Role,
// Comment, Body and Base64 is set.
type Step struct {
	// WaitMS is the time after the step before, in ms.
	WaitMS float64 `json:"wait_ms,omitempty"`
	// Text is a text delta; the empty string is one too.
	Text *string `json:"text,omitempty"`
	// Samples is an audio chunk of that many sample frames.
	Samples int `json:"samples,omitempty"`
	// Empty is an audio event without samples: null, empty or header.
	Empty string `json:"empty,omitempty"`
	// Role is a role-only delta.
	Role bool `json:"role,omitempty"`
	// Comment is an SSE comment.
	Comment string `json:"comment,omitempty"`
	// Body or Base64 are verbatim body bytes, as one HTTP chunk.
	Body   string `json:"body,omitempty"`
	Base64 []byte `json:"base64,omitempty"`
}

// RawWrite is one write of a raw answer.
type RawWrite struct {
	// WaitMS is the time after the write before, in ms.
	WaitMS float64 `json:"wait_ms,omitempty"`
	// Text or Base64 are the bytes.
	Text   string `json:"text,omitempty"`
	Base64 []byte `json:"base64,omitempty"`
	// End ends the connection after the bytes: fin, rst or hold (until the
	// client leaves). Default: the connection lives on.
	End string `json:"end,omitempty"`
}

// Ints is a list of numbers; in JSON also a single number.
type Ints []int

// Floats is a list of numbers; in JSON also a single number.
type Floats []float64

// UnmarshalJSON implements json.Unmarshaler.
func (l *Ints) UnmarshalJSON(b []byte) error { return oneOrMany(b, (*[]int)(l)) }

// UnmarshalJSON implements json.Unmarshaler.
func (l *Floats) UnmarshalJSON(b []byte) error { return oneOrMany(b, (*[]float64)(l)) }

func oneOrMany[T int | float64](b []byte, l *[]T) error {
	*l = nil // an overlaid list replaces the one below
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, l)
	}
	var one T
	if err := json.Unmarshal(b, &one); err != nil {
		return err
	}
	*l = []T{one}
	return nil
}

// nth returns entry i of a list whose last entry goes for all that follow.
func nth[T any](l []T, i int, fallback T) T {
	if len(l) == 0 {
		return fallback
	}
	return l[min(i, len(l)-1)]
}

// Millis converts the milliseconds of a script.
func Millis(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }

// The default times in ms.
const (
	firstDelayMS = 20
	audioDelayMS = 20
	gapMS        = 20
	textGapMS    = 5
)

// FirstDelay is the time to the first output.
func (s *Script) FirstDelay() time.Duration { return millisOr(s.FirstDelayMS, firstDelayMS) }

// AudioDelay is the time from the first text to the first audio.
func (s *Script) AudioDelay() time.Duration { return millisOr(s.AudioDelayMS, audioDelayMS) }

// Gap is the time between audio chunks i and i+1, from 0.
func (s *Script) Gap(i int) time.Duration { return Millis(nth(s.GapMS, i, gapMS)) }

// TextGap is the time between text deltas i and i+1, from 0.
func (s *Script) TextGap(i int) time.Duration { return Millis(nth(s.TextGapMS, i, textGapMS)) }

// Frames are the sample frames of each audio chunk.
func (s *Script) Frames() []int {
	out := make([]int, s.Chunks)
	for i := range out {
		out[i] = nth(s.Samples, i, 0)
	}
	return out
}

func millisOr(v *float64, fallback float64) time.Duration {
	if v == nil {
		return Millis(fallback)
	}
	return Millis(*v)
}

// Overlay returns a copy of s with the keys of a JSON object laid over it.
func (s Script) Overlay(object []byte) (Script, error) {
	base, err := json.Marshal(s)
	if err != nil {
		return Script{}, fmt.Errorf("copying the script: %w", err)
	}
	var out Script // decoded from a copy: no slice is shared with s
	if err := json.Unmarshal(base, &out); err != nil {
		return Script{}, fmt.Errorf("copying the script: %w", err)
	}
	if len(object) == 0 {
		return out, nil
	}
	d := json.NewDecoder(bytes.NewReader(object))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		return Script{}, fmt.Errorf("reading the script: %w", err)
	}
	return out, nil
}

// WithDefaults fills in what is not set.
func (s Script) WithDefaults(dialect string) Script {
	s.Dialect = cmp.Or(s.Dialect, dialect, DialectVLLM)
	if s.Text == nil {
		s.Text = []string{"Hel", "lo", " from", " the", " mock", " omni."}
	}
	if len(s.Samples) == 0 {
		s.Samples = Ints{2400}
	}
	if s.Chunks == 0 {
		s.Chunks = 5
		if len(s.Samples) > 1 {
			s.Chunks = len(s.Samples)
		}
	}
	s.Rate = cmp.Or(s.Rate, 24000)
	s.Channels = cmp.Or(s.Channels, 1)
	s.Tone = cmp.Or(s.Tone, tone.Kinds[0])
	s.Order = cmp.Or(s.Order, "interleaved")
	s.LineEnd = cmp.Or(s.LineEnd, "lf")
	s.Comment = cmp.Or(s.Comment, " ping")
	s.Framing = cmp.Or(s.Framing, "chunked")
	s.FinishReason = cmp.Or(s.FinishReason, "stop")
	s.ErrorCode = cmp.Or(s.ErrorCode, 500)
	return s.withSocketDefaults()
}

func (s Script) withSocketDefaults() Script {
	s.Names = cmp.Or(s.Names, map[string]string{"0.30": "new"}[s.Variant], "old")
	units, length := []string{"listen", "speak"}, 1000.0
	if s.Dialect == DialectSGLang {
		units, length = []string{"speak", "listen", "listen"}, 200
	}
	if len(s.Units) == 0 {
		s.Units = units
	}
	s.UnitMS = cmp.Or(s.UnitMS, length)
	if s.Heard == nil {
		s.Heard = []string{"Is", " this", " on?"}
	}
	return s
}

// MaxFrames is the limit of an answer in sample frames: half a GiB of mono.
const MaxFrames = 1 << 28

// Validate reports everything that is wrong with a script with defaults.
func (s Script) Validate() error {
	oneOf := func(name, v string, allowed ...string) error {
		if slices.Contains(allowed, v) {
			return nil
		}
		return fmt.Errorf("%s is %q, want one of %s", name, v, strings.Join(allowed, ", "))
	}
	positive := func(name string, v, limit int) error {
		if v > 0 && v <= limit {
			return nil
		}
		return fmt.Errorf("%s is %d, want 1 to %d", name, v, limit)
	}
	frames := 0
	for i := range min(s.Chunks, MaxFrames) {
		n := nth(s.Samples, i, 0)
		if n < 0 || n > MaxFrames || frames > MaxFrames {
			frames = -1
			break
		}
		frames += n
	}
	for _, st := range s.Steps {
		frames += max(st.Samples, 0)
	}
	var size error
	if frames < 0 || frames > MaxFrames {
		size = fmt.Errorf("samples are negative or more than %d in all", MaxFrames)
	}
	return errors.Join(
		oneOf("dialect", s.Dialect, DialectVLLM, DialectSGLang, DialectOpenAI),
		oneOf("variant", s.Variant, "", "g0", "g1", "0.30", "raw", "sse", "whole"),
		oneOf("order", s.Order, "interleaved", "text-first", "audio-first"),
		oneOf("realtime", s.Realtime, "", "turn", "openai", "duplex", "conversation", "shared", "turn-based"),
		oneOf("names", s.Names, "old", "new", "mixed"),
		positive("unit_ms", int(s.UnitMS), 1<<20), units(s.Units),
		oneOf("line_end", s.LineEnd, "lf", "crlf", "cr"),
		oneOf("framing", s.Framing, "chunked", "length", "close"),
		positive("chunks", s.Chunks, 1<<20), positive("rate", s.Rate, 1<<20), positive("channels", s.Channels, 16),
		tone.Check(s.Tone), size,
	)
}

func units(list []string) error {
	for _, u := range list {
		if u != "listen" && u != "speak" {
			return fmt.Errorf("unit is %q, want listen or speak", u)
		}
	}
	return nil
}
