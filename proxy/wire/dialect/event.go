// Package dialect reads what an event or a whole answer of an omni server
// means: text, sound, end, error. The form is told from the bytes at hand (the
// event's type and keys), never from a version, a path or the request.
//
// One file holds one family of events. A decoder looks at one parsed JSON value
// and fills an Event; it keeps nothing, decodes no base64, and knows neither
// clocks nor connections.
package dialect

import (
	"strings"

	"github.com/omnitap/omnitap/proxy/wire/jsonscan"
)

// Names of dialects, as records carry them.
const (
	VLLMOmni   = "vllm-omni"
	SGLangOmni = "sglang-omni"
	OpenAI     = "openai"
	Unknown    = "unknown"
)

// Family is a family of events: what ends it, and what it owes.
type Family uint8

// The families.
const (
	Other         Family = iota
	Chat                 // chat.completion.chunk: ends with [DONE]
	ChatWhole            // chat.completion in one JSON
	SpeechEvents         // speech.audio.*: ends with a done event
	SpeechChunks         // audio.speech.chunk, before SGLang-Omni 0.1: [DONE]
	SpeechBatch          // results of /audio/speech/batch
	Transcription        // transcript.text.*: [DONE] behind the done event
	TranscriptionWhole
	Completion // text_completion: [DONE]
	Images
	ImageEvents // image.edit.chunk: [DONE]
	VideoJob
)

// Part is one piece of sound in an event.
type Part struct {
	// Base64 is the payload as it stands in the JSON string.
	Base64 []byte
	// Escaped says that the string holds escapes and must be unescaped first.
	Escaped bool
	// Format, Rate and Channels are what the event says of it; zero is nothing.
	Format         string
	Rate, Channels int
	// Frames is a declared count of sample frames, -1 for none.
	Frames int64
}

// Failure is an error that the server put into words.
type Failure struct {
	Message, Type string
	// Code is a status code, 0 where there is none.
	Code int
	// Word is a code that is no number.
	Word string
}

// Internal reports whether the failure's code says that it is the server's own,
// whatever its type says.
func (f *Failure) Internal() bool {
	w := strings.ToLower(f.Word)
	return strings.Contains(w, "internal") || w == "response_error" || w == "server_error"
}

// Event is what one event or whole answer means. Slices point into the bytes
// that were read.
type Event struct {
	Family  Family
	Dialect string // empty where the event does not tell
	ID      string
	Model   string

	// Text is the text delta; Reasoning and Tool are kept apart from it.
	Text, Reasoning []byte
	Tool            bool
	Refusal         []byte

	// AudioTyped says that the event is one of sound, even an empty one.
	AudioTyped bool
	Parts      []Part

	// Finish is the reason for the end of generation, empty for none.
	Finish string
	// HasFinish says that a key for it was there with a string.
	HasFinish bool
	// Done says that this is the flow's end marker.
	Done bool
	// Final says that the event declares the generation's end: a done event
	// whose end marker may still follow.
	Final bool
	Err   *Failure
	// Tokens is the declared number of output tokens, -1 for none.
	Tokens int64
	// Choices is the number of choices in a chat event.
	Choices int
	// Failed counts items of a batch that failed.
	Failed int
	// Unknown says that no family was recognised.
	Unknown bool
	// AudioLike says that an unknown event holds a large base64-like string.
	AudioLike bool
}

// Reader reads events. It is used again and again by one stream.
type Reader struct {
	doc   jsonscan.Doc
	parts []Part
	msg   Message
	// Brief says that ids and names are known already: they are not read again.
	Brief bool
}

// isDone is the marker that ends OpenAI's streams; it is no JSON.
const isDone = "[DONE]"

// SSE reads the data of a server-sent event with its event field. An error is
// one of jsonscan's.
func (r *Reader) SSE(typ, data []byte, family Family) (Event, error) {
	if string(data) == isDone {
		return Event{Family: family, Done: true, Tokens: -1}, nil
	}
	if err := r.doc.Parse(data); err != nil {
		return Event{}, err
	}
	ev := Event{Tokens: -1}
	r.parts = r.parts[:0]
	root := r.doc.Root()
	var kind, object, failed jsonscan.Value // one pass over the members
	for m := range root.All() {
		switch string(m.Key()) {
		case "type":
			kind = m
		case "object":
			object = m
		case "error":
			failed = m
		}
	}
	t := plain(kind)
	switch {
	case failed.There() || string(typ) == "error" || string(t) == "error" || string(t) == "speech.audio.error":
		ev.Err = failure(root)
		ev.Family = familyOfError(string(t), family)
	case isSpeechEvent(string(t)):
		r.speechEvent(&ev, root, string(t), typ)
	case isTranscript(string(t)):
		r.transcript(&ev, root, string(t))
	default:
		r.object(&ev, root, plain(object))
	}
	ev.Parts = r.parts
	return ev, nil
}

// plain returns the text of a string without escapes, as kinds are.
func plain(v jsonscan.Value) []byte {
	if !v.Plain() {
		return nil
	}
	return v.Raw()
}

// object reads an event or answer by its object field.
func (r *Reader) object(ev *Event, root jsonscan.Value, kind []byte) {
	switch {
	case string(kind) == "chat.completion.chunk" || len(kind) == 0 && root.Get("choices").Index(0).Get("delta").There():
		r.chat(ev, root)
	case string(kind) == "audio.speech.chunk":
		r.speechChunk(ev, root)
	case string(kind) == "text_completion":
		r.completion(ev, root)
	case string(kind) == "image.edit.chunk":
		ev.Family = ImageEvents
	default:
		ev.Unknown = true
		ev.AudioLike = audioLike(root)
	}
}

func familyOfError(kind string, family Family) Family {
	if family == Other && kind == "speech.audio.error" {
		return SpeechEvents
	}
	return family
}

// audioLike reports whether some member, or one of an object within, is a long
// string of base64's alphabet.
func audioLike(root jsonscan.Value) bool { return audioWithin(root, 3) }

func audioWithin(v jsonscan.Value, depth int) bool {
	for m := range v.All() {
		switch raw := m.Raw(); {
		case m.Kind() == jsonscan.Object || m.Kind() == jsonscan.Array:
			if depth > 0 && audioWithin(m, depth-1) {
				return true
			}
		case m.Plain() && len(raw) >= 256 && base64Begins(raw[:64]):
			return true
		}
	}
	return false
}

func base64Begins(raw []byte) bool {
	for _, c := range raw {
		if c != '+' && c != '/' && c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// part adds a piece of sound if v is a string; an empty one is counted by its
// event alone.
func (r *Reader) part(ev *Event, v jsonscan.Value, p Part) {
	ev.AudioTyped = true
	if v.Kind() != jsonscan.String || len(v.Raw()) == 0 {
		return
	}
	p.Base64, p.Escaped = v.Raw(), !v.Plain()
	if p.Escaped {
		p.Base64, _ = v.Text(nil)
		p.Escaped = false
	}
	if p.Frames == 0 {
		p.Frames = -1
	}
	r.parts = append(r.parts, p)
}

// text unescapes a string into the reader's scratch: valid until the next event.
func (r *Reader) text(v jsonscan.Value) []byte {
	b, ok := v.Text(nil)
	if !ok {
		return nil
	}
	return b
}
