package session

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/ordered"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
)

// The names of the flows, as the truth has them.
const (
	Speech        = "speech"
	Turns         = "realtime"
	OpenAI        = "realtime-openai"
	Duplex        = "duplex"
	DuplexPlain   = "duplex-native"
	VideoChat     = "video-chat"
	VideoOut      = "video-out"
	SGLangSpeech  = "speech-sglang"
	Conversation  = "realtime-sglang"
	Shared        = "duplex-sglang"
	Transcription = "realtime-transcription"
)

var flows map[string]func(*session) flow

func init() { // the table refers to functions that refer to it
	flows = map[string]func(*session) flow{
		Speech:        newSpeech,
		Turns:         newTurns,
		OpenAI:        newOpenAI,
		Duplex:        newDuplex,
		DuplexPlain:   newPlainDuplex,
		VideoChat:     newVideoChat,
		VideoOut:      newVideoOut,
		SGLangSpeech:  newSGLangSpeech,
		Conversation:  newConversation,
		Shared:        newShared,
		Transcription: newTranscription,
	}
}

// Kind is the flow that a path speaks, empty if none.
func Kind(path string, query url.Values, s script.Script) string {
	sglang := s.Dialect == script.DialectSGLang
	switch {
	case path == "/v1/audio/speech/stream" && sglang:
		return SGLangSpeech
	case path == "/v1/audio/speech/stream":
		return Speech
	case path == "/v1/realtime" && sglang:
		return sglangRealtime(query, s.Realtime)
	case path == "/v1/realtime":
		return vllmRealtime(query, s)
	case sglang:
		return ""
	case path == "/v1/duplex" && s.Variant == "0.30":
		return Duplex
	}
	return map[string]string{"/v1/duplex": DuplexPlain, "/v1/video/chat/stream": VideoChat, "/v1/realtime/video": VideoOut}[path]
}

func sglangRealtime(query url.Values, choice string) string {
	switch {
	case query.Get("intent") == "transcription":
		return Transcription
	case choice == "shared", choice == "turn-based":
		return Shared
	}
	return Conversation
}

func vllmRealtime(query url.Values, s script.Script) string {
	asked := slices.Contains([]string{"1", "true", "on"}, query.Get("duplex"))
	switch {
	case s.Dialect == script.DialectOpenAI, s.Realtime == "openai":
		return OpenAI
	case s.Realtime == "duplex", asked && s.Realtime == "":
		return Duplex
	}
	return Turns
}

// run plays a turn's generation: item for each of its items, then end.
func (s *session) run(t *turn, item func(plan.Item), end func()) {
	steps := make([]step, 0, len(t.gen.Items)+1)
	for _, it := range t.gen.Items {
		steps = append(steps, step{it.Wait, func() { item(it) }})
	}
	s.play(t, append(steps, step{0, end})...)
}

// audioName is the type of an audio event by the script's names; tail is what
// follows response.audio or response.output_audio.
func (s *session) audioName(names, tail string) string {
	s.audioN++
	if names == "new" || names == "mixed" && s.audioN%2 == 0 {
		return "response.output_audio" + tail
	}
	return "response.audio" + tail
}

// payload is the base64 of an audio item as JSON.
func payload(t *turn, it plan.Item, wav bool) ordered.Raw {
	return ordered.Raw(plan.Payload(&t.f, it, wav))
}

// obj makes an event's body of a type.
func obj(kind string, more ...any) ordered.Obj { return append(ordered.Obj{"type", kind}, more...) }

// errorText is what an error says when the script does not.
func errorText(s script.Script, fallback string) string {
	if s.ErrorMessage != "" {
		return s.ErrorMessage
	}
	return fallback
}

// is reports whether the item is audio, with samples or without.
func isAudio(it plan.Item) bool { return it.Kind == plan.Audio || it.Kind == plan.Empty }

// sentences splits a text behind its end marks; the last part may be open.
func sentences(text, marks string) (done []string, rest string) {
	from := 0
	for i, r := range text {
		if strings.ContainsRune(marks, r) {
			to := i + len(string(r))
			if part := strings.TrimSpace(text[from:to]); part != "" {
				done = append(done, part)
			}
			from = to
		}
	}
	return done, text[from:]
}

// The characters that end a unit of speech.
const (
	sentenceEnds = ".!?。！？"
	clauseEnds   = sentenceEnds + ",，;；"
)

func marks(granularity string) string {
	if granularity == "clause" {
		return clauseEnds
	}
	return sentenceEnds
}

func millis(frames, rate int) int { return frames * 1000 / max(rate, 1) }

func numbered(prefix string, n int) string { return fmt.Sprint(prefix, n) }
