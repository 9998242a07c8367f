package dialect

import (
	"strings"

	"github.com/omnitap/omnitap/proxy/wire/jsonscan"
)

// chat reads a chat.completion.chunk of any of the three dialects:
// vLLM-Omni puts sound into delta.content and says so in `modality` behind it,
// SGLang-Omni and OpenAI put it into delta.audio.data.
func (r *Reader) chat(ev *Event, root jsonscan.Value) {
	ev.Family = Chat
	var modality, choices jsonscan.Value
	for m := range root.All() {
		switch string(m.Key()) {
		case "modality":
			modality = m
		case "choices":
			choices = m
		case "usage":
			if n, ok := m.Get("completion_tokens").Int(); ok {
				ev.Tokens = n
			}
		case "id":
			if !r.Brief {
				ev.ID = m.Str()
			}
		case "model":
			if !r.Brief {
				ev.Model = m.Str()
			}
		}
	}
	ev.Choices = choices.Len()
	for c := range choices.All() {
		if f := c.Get("finish_reason"); f.Kind() == jsonscan.String {
			ev.HasFinish = true
			if ev.Finish == "" {
				ev.Finish = f.Str()
			}
		}
	}
	// with n > 1 the sound of one output is repeated in every choice: the first counts
	c := choices.Index(0)
	delta := c.Get("delta")
	if string(plain(modality)) == "audio" {
		r.modalAudio(ev, c, delta)
	} else {
		r.chatDelta(ev, delta)
	}
	if !r.Brief {
		ev.Dialect = chatDialect(root, c, delta, r.doc.Spaced())
	}
}

// modalAudio reads vLLM-Omni's sound in delta.content.
func (r *Reader) modalAudio(ev *Event, choice, delta jsonscan.Value) {
	p := Part{}
	if meta := choice.Get("audio_metadata"); meta.There() {
		p = Part{
			Format: meta.Get("format").Str(), Rate: number(meta.Get("sample_rate_hz")),
			Channels: number(meta.Get("channels")), Frames: int64(number(meta.Get("frame_count"))),
		}
	}
	ev.Tokens = -1 // the usage of a sound event counts no output tokens
	r.part(ev, delta.Get("content"), p)
	if d := delta.Get("audio"); d.There() && len(r.parts) == 0 {
		r.part(ev, d.Get("data"), Part{})
	}
}

// chatDelta reads text and OpenAI-style sound of a delta.
func (r *Reader) chatDelta(ev *Event, delta jsonscan.Value) {
	var sound jsonscan.Value
	for m := range delta.All() {
		switch string(m.Key()) {
		case "content":
			ev.Text = r.text(m)
		case "reasoning", "reasoning_content":
			if b := r.text(m); len(b) > 0 {
				ev.Reasoning = b
			}
		case "refusal":
			ev.Refusal = r.text(m)
		case "tool_calls":
			ev.Tool = ev.Tool || m.Len() > 0
		case "function_call":
			ev.Tool = ev.Tool || m.There()
		case "audio":
			sound = m
		}
	}
	switch sound.Kind() {
	case jsonscan.Object:
		if len(ev.Text) == 0 {
			ev.Text = r.text(sound.Get("transcript"))
		}
		if sound.Get("data").Kind() != jsonscan.Missing {
			r.part(ev, sound.Get("data"), Part{Format: sound.Get("format").Str(), Rate: number(sound.Get("sample_rate"))})
		}
	case jsonscan.Null:
		ev.AudioTyped = true // an audio event with nothing in it (case C17)
	default:
	}
}

// chatDialect tells the server by the shape of its chunks.
func chatDialect(root, choice, delta jsonscan.Value, spaced bool) string {
	has := func(v jsonscan.Value, name string) bool { return v.Get(name).Kind() != jsonscan.Missing }
	switch {
	case has(root, "modality"), has(root, "metrics"), has(root, "prompt_token_ids"), has(choice, "token_ids"), has(choice, "stop_reason"):
		return VLLMOmni
	case spaced && choice.Kind() == jsonscan.Object && !has(choice, "logprobs"),
		strings.HasPrefix(delta.Get("audio").Get("id").Str(), "audio-"):
		return SGLangOmni
	case has(root, "system_fingerprint"), has(root, "service_tier"), has(delta.Get("audio"), "transcript"), has(delta, "refusal"):
		return OpenAI
	}
	return ""
}

// chatWhole reads a chat.completion: text and sound may stand in choices of
// their own with one index (vLLM-Omni before 0.30) or in one.
func (r *Reader) chatWhole(ev *Event, root jsonscan.Value) {
	ev.Family = ChatWhole
	ev.ID, ev.Model = root.Get("id").Str(), root.Get("model").Str()
	if n, ok := root.Get("usage").Get("completion_tokens").Int(); ok {
		ev.Tokens = n
	}
	choices := root.Get("choices")
	ev.Choices = choices.Len()
	for c := range choices.All() {
		if f := c.Get("finish_reason"); f.Kind() == jsonscan.String {
			ev.Finish, ev.HasFinish = f.Str(), true
		}
		m := c.Get("message")
		if b := r.text(m.Get("content")); len(b) > 0 && len(ev.Text) == 0 {
			ev.Text = b
		}
		for _, name := range []string{"reasoning", "reasoning_content"} {
			if b := r.text(m.Get(name)); len(b) > 0 {
				ev.Reasoning = b
			}
		}
		ev.Tool = ev.Tool || m.Get("tool_calls").Len() > 0
		if a := m.Get("audio"); a.There() && len(r.parts) == 0 {
			meta := c.Get("audio_metadata")
			r.part(ev, a.Get("data"), Part{
				Format: meta.Get("format").Str(), Rate: number(meta.Get("sample_rate_hz")),
				Channels: number(meta.Get("channels")), Frames: int64(number(meta.Get("frame_count"))),
			})
			if len(ev.Text) == 0 {
				ev.Text = r.text(a.Get("transcript"))
			}
		}
	}
	ev.Dialect = wholeDialect(root, choices)
}

func wholeDialect(root, choices jsonscan.Value) string {
	has := func(v jsonscan.Value, name string) bool { return v.Get(name).Kind() != jsonscan.Missing }
	c := choices.Index(0)
	switch {
	case has(c, "stop_reason"), has(c, "token_ids"), has(root, "metrics"), has(root, "prompt_token_ids"), has(root, "kv_transfer_params"):
		return VLLMOmni
	case !has(c, "logprobs") && strings.HasPrefix(c.Get("message").Get("audio").Get("id").Str(), "audio-"):
		return SGLangOmni
	case has(root, "system_fingerprint"), has(root, "service_tier"):
		return OpenAI
	}
	return ""
}

// completion reads the older text completions.
func (r *Reader) completion(ev *Event, root jsonscan.Value) {
	ev.Family = Completion
	ev.ID, ev.Model = root.Get("id").Str(), root.Get("model").Str()
	c := root.Get("choices").Index(0)
	ev.Choices = root.Get("choices").Len()
	ev.Text = r.text(c.Get("text"))
	if f := c.Get("finish_reason"); f.Kind() == jsonscan.String {
		ev.Finish, ev.HasFinish = f.Str(), true
	}
	if n, ok := root.Get("usage").Get("completion_tokens").Int(); ok {
		ev.Tokens = n
	}
}

func number(v jsonscan.Value) int {
	n, _ := v.Int()
	return int(n)
}
