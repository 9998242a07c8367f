package timeline

import (
	"strings"

	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// Flow names (records.md section 1).
const (
	FlowChat          = "chat"
	FlowCompletion    = "completion"
	FlowSpeech        = "speech"
	FlowSpeechBatch   = "speech_batch"
	FlowTranscription = "transcription"
	FlowTranslation   = "translation"
	FlowImage         = "image"
	FlowVideo         = "video"
	FlowOther         = "other"
	FlowOpaque        = "opaque"

	FlowSpeechWS  = "speech_ws"
	FlowRealtime  = "realtime"
	FlowDuplex    = "duplex"
	FlowVideoChat = "video_chat"
	FlowVideoOut  = "video_out"
)

// flowOf names the flow of a request by its method and path: what the answer
// will be is told by the answer, but a refused request has a flow too.
func flowOf(method, path string) string {
	path = strings.TrimSuffix(path, "/")
	if method == "POST" {
		for _, f := range []struct{ suffix, flow string }{
			{"/chat/completions", FlowChat},
			{"/chat/completions/batch", FlowChat},
			{"/audio/speech/batch", FlowSpeechBatch},
			{"/audio/speech", FlowSpeech},
			{"/audio/generate", FlowSpeech},
			{"/audio/transcriptions", FlowTranscription},
			{"/audio/translations", FlowTranslation},
			{"/images/generations", FlowImage},
			{"/images/edits", FlowImage},
			{"/completions", FlowCompletion},
		} {
			if strings.HasSuffix(path, f.suffix) {
				return f.flow
			}
		}
	}
	if strings.Contains(path, "/v1/videos") {
		return FlowVideo
	}
	return FlowOther
}

// flowOfFamily names the flow where a path told nothing and the bytes do.
func flowOfFamily(f dialect.Family) string {
	switch f {
	case dialect.Chat, dialect.ChatWhole:
		return FlowChat
	case dialect.Completion:
		return FlowCompletion
	case dialect.SpeechEvents, dialect.SpeechChunks:
		return FlowSpeech
	case dialect.SpeechBatch:
		return FlowSpeechBatch
	case dialect.Transcription:
		return FlowTranscription
	case dialect.Images, dialect.ImageEvents:
		return FlowImage
	default:
		return FlowOther
	}
}

// owes says what a successful answer of a flow must hold.
type owes struct {
	text, audio bool
	// either: text or sound will do
	either bool
}

// owed tells what an answer owes by its flow and the modalities asked for.
// Where none were asked for, a chat server chooses: either will do.
func owed(flow string, modalities []string) owes {
	switch flow {
	case FlowSpeech, FlowSpeechBatch, FlowSpeechWS:
		return owes{audio: true}
	case FlowCompletion:
		return owes{text: true}
	case FlowChat, FlowRealtime, FlowDuplex, FlowVideoChat:
		o := owes{either: true}
		for _, m := range modalities {
			o.audio = o.audio || m == "audio"
		}
		return o
	}
	return owes{}
}

// Flows lists the flows of records, sorted.
func Flows() []string {
	return []string{
		FlowChat, FlowCompletion, FlowDuplex, FlowImage, FlowOpaque, FlowOther, FlowRealtime, FlowSpeech, FlowSpeechBatch, FlowSpeechWS,
		FlowTranscription, FlowTranslation, FlowVideo, FlowVideoChat, FlowVideoOut,
	}
}

// FlowOfSocket names the flow of a request that asks for a WebSocket by its
// path, FlowOther where it tells none; what the session is its messages tell.
func FlowOfSocket(path string) string {
	path = strings.TrimSuffix(path, "/")
	for _, f := range []struct{ suffix, flow string }{
		{"/audio/speech/stream", FlowSpeechWS},
		{"/realtime/video", FlowVideoOut},
		{"/video/chat/stream", FlowVideoChat},
		{"/realtime", FlowRealtime},
		{"/duplex", FlowDuplex},
	} {
		if strings.HasSuffix(path, f.suffix) {
			return f.flow
		}
	}
	return FlowOther
}
