package dialect

import (
	"github.com/omnitap/omnitap/proxy/wire/jsonscan"
)

func isSpeechEvent(kind string) bool {
	return kind == "speech.audio.delta" || kind == "speech.audio.done"
}

// speechEvent reads speech.audio.*: vLLM-Omni names the event in its own line
// and states response_format, SGLang-Omni does neither. The payload is in
// `audio`; some senders use `delta`.
func (r *Reader) speechEvent(ev *Event, root jsonscan.Value, kind string, typ []byte) {
	ev.Family = SpeechEvents
	ev.Dialect = SGLangOmni
	if len(typ) > 0 || root.Get("response_format").There() {
		ev.Dialect = VLLMOmni
	}
	if kind == "speech.audio.done" {
		ev.Done = true
		if n, ok := root.Get("usage").Get("output_tokens").Int(); ok {
			ev.Tokens = n
		}
		if f := root.Get("finish_reason"); f.Kind() == jsonscan.String {
			ev.Finish, ev.HasFinish = f.Str(), true
		}
		return
	}
	v := root.Get("audio")
	if v.Kind() == jsonscan.Missing {
		v = root.Get("delta")
	}
	r.part(ev, v, Part{
		Format: root.Get("response_format").Str(), Rate: number(root.Get("sample_rate")), Channels: number(root.Get("channels")),
	})
}

// speechChunk reads audio.speech.chunk, SGLang-Omni's form before its releases:
// an encoded file or bare PCM an event, the last one with audio null.
func (r *Reader) speechChunk(ev *Event, root jsonscan.Value) {
	ev.Family, ev.Dialect = SpeechChunks, SGLangOmni
	ev.ID = root.Get("id").Str()
	a := root.Get("audio")
	if f := root.Get("finish_reason"); f.Kind() == jsonscan.String {
		ev.Finish, ev.HasFinish = f.Str(), true
		if !a.There() {
			return
		}
	}
	r.part(ev, a.Get("data"), Part{
		Format: a.Get("format").Str(), Rate: number(a.Get("sample_rate")), Channels: number(a.Get("channels")),
	})
}

// speechBatch reads the answer of a batch: a file an item, some may have failed.
func (r *Reader) speechBatch(ev *Event, root jsonscan.Value) {
	ev.Family = SpeechBatch
	ev.ID = root.Get("id").Str()
	ev.Failed = number(root.Get("failed"))
	ev.Dialect = VLLMOmni
	for item := range root.Get("results").All() {
		if item.Get("format").There() || item.Get("finish_reason").There() {
			ev.Dialect = SGLangOmni
		}
		if v := item.Get("audio_data"); v.There() {
			r.part(ev, v, Part{Format: item.Get("media_type").Str()})
		}
	}
}

func isTranscript(kind string) bool {
	return kind == "transcript.text.delta" || kind == "transcript.text.done"
}

// transcript reads transcript.text.*; the text of the done event may differ
// from the deltas and counts only where there were none.
func (r *Reader) transcript(ev *Event, root jsonscan.Value, kind string) {
	ev.Family = Transcription
	if kind == "transcript.text.done" {
		ev.Final = true
		ev.Text = r.text(root.Get("text"))
		return
	}
	ev.Text = r.text(root.Get("delta"))
}
