package session

import (
	"cmp"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/ordered"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
)

// openai is the OpenAI-style /v1/realtime of vLLM-Omni after 0.30 and of
// OpenAI itself: 24 kHz in and out, a response only when it is asked for.
type openai struct {
	*session
	events      int
	vad         *vad
	text, audio bool // modalities
	pending     int  // bytes appended
	t           *turn
	parted      bool // the content part is open
	last        string
}

func newOpenAI(s *session) flow { return &openai{session: s, text: true, audio: true} }

// put sends an event, which has an id before its type.
func (o *openai) put(t *turn, e event, more ...any) {
	o.events++
	e.body = append(ordered.Obj{"event_id", numbered("evt_", o.events), "type", e.name}, more...)
	o.send(t, e)
}

func (o *openai) open() {
	o.name = "sess_" + o.Hex(24)
	o.put(nil, event{name: "session.created"}, "session", o.config())
	o.put(nil, event{name: "conversation.created"}, "conversation", ordered.Obj{"id", "conv_" + o.Hex(24), "object", "realtime.conversation"})
}

func (o *openai) config() ordered.Obj {
	format := ordered.Obj{"type", "audio/pcm", "rate", 24000}
	return ordered.Obj{
		"id", o.name, "object", "realtime.session", "type", "realtime", "output_modalities",
		[]string{"audio"},
		"audio",
		ordered.Obj{"input", ordered.Obj{"format", format}, "output", ordered.Obj{"format", format}},
	}
}

func (o *openai) reject(code, text string) {
	o.put(nil, event{name: "error"}, "error", ordered.Obj{"type", "invalid_request_error", "code", code, "message", text})
}

func (o *openai) receive(m message) {
	switch m.kind {
	case "session.update":
		o.update(m)
	case "input_audio_buffer.append":
		o.append(m)
	case "input_audio_buffer.commit":
		o.commit(nil)
	case "input_audio_buffer.clear":
		o.pending = 0
		o.put(nil, event{name: "input_audio_buffer.cleared"})
	case "conversation.item.create":
		o.added("item_"+o.Hex(24), "user")
	case "response.create":
		o.create(m)
	case "response.cancel":
		if o.t != nil {
			o.end("cancelled", "client_cancelled")
		}
	default:
		o.reject("unknown_event", "Unknown event type: "+m.kind)
	}
}

func (o *openai) update(m message) {
	if own := m.mock(); len(own) > 0 && !o.adopt(own) {
		return
	}
	in := m.sub("session").sub("audio").sub("input")
	if kind := in.sub("turn_detection").str("type"); kind != "" || m.sub("session").sub("turn_detection").str("type") != "" {
		silence := cmp.Or(get[int](in.sub("turn_detection"), "silence_duration_ms"), 200)
		o.vad = &vad{rate: 24000, silenceMS: silence}
	}
	if list := get[[]string](m.sub("session"), "output_modalities"); len(list) == 1 && list[0] == "text" {
		o.audio = false
	}
	o.put(nil, event{name: "session.updated"}, "session", o.config())
}

func (o *openai) append(m message) {
	pcm := m.audio()
	o.pending += len(pcm)
	if o.vad == nil {
		return
	}
	for _, sp := range o.vad.feed(pcm) {
		if sp.started {
			o.put(nil, event{name: "input_audio_buffer.speech_started"}, "audio_start_ms", sp.ms, "item_id", "item_vad")
			if o.t != nil {
				o.end("cancelled", "turn_detected")
			}
			continue
		}
		o.put(nil, event{name: "input_audio_buffer.speech_stopped"}, "audio_end_ms", sp.ms, "item_id", "item_vad")
		o.commit(nil)
		o.create(message{ns: m.ns})
	}
}

func (o *openai) commit(t *turn) {
	if o.pending == 0 {
		o.reject("input_audio_buffer_commit_empty", "The input audio buffer is empty.")
		return
	}
	o.pending = 0
	id := "item_" + o.Hex(24)
	o.put(t, event{name: "input_audio_buffer.committed"}, "item_id", id)
	o.added(id, "user")
}

// added announces an item of the user.
func (o *openai) added(id, role string) {
	item := ordered.Obj{"id", id, "object", "realtime.item", "type", "message", "status", "completed", "role", role, "content", ordered.List{}}
	o.put(nil, event{name: "conversation.item.added"}, "previous_item_id", cmp.Or(o.last, "root"), "item", item)
	o.put(nil, event{name: "conversation.item.done"}, "previous_item_id", cmp.Or(o.last, "root"), "item", item)
	o.last = id
}

func (o *openai) create(m message) {
	if o.t != nil {
		o.end("cancelled", "new_response")
	}
	t := o.begin(m.fields["mock"], m.ns, plan.Wish{Text: o.text, Audio: o.audio})
	if t == nil {
		return
	}
	o.t, o.parted = t, false
	t.id, t.item = "resp_"+o.Hex(24), "item_"+o.Hex(24)
	o.put(t, event{name: "response.created"}, "response", ordered.Obj{"id", t.id, "object", "realtime.response", "status", "in_progress", "output", ordered.List{}})
	o.run(t, o.item, func() { o.end("completed", "") })
}

func (o *openai) assistant(status string, content ordered.List) ordered.Obj {
	return ordered.Obj{"id", o.t.item, "object", "realtime.item", "type", "message", "status", status, "role", "assistant", "content", content}
}

// where are the fields that place a content event.
func where(t *turn, more ...any) []any {
	return append([]any{"response_id", t.id, "item_id", t.item, "output_index", 0, "content_index", 0}, more...)
}

func (o *openai) item(it plan.Item) {
	t := o.t
	if !o.parted {
		o.parted = true
		o.put(t, event{name: "response.output_item.added"}, "response_id", t.id, "output_index", 0, "item", o.assistant("in_progress", ordered.List{}))
		o.put(t, event{name: "response.content_part.added"}, where(t, "part", o.part(""))...)
	}
	switch {
	case it.Kind == plan.Text:
		o.put(t, event{kind: plan.Text, name: o.textName() + ".delta", text: it.Text}, where(t, "delta", it.Text)...)
	case isAudio(it):
		name := "response.output_audio.delta"
		if t.script.Names == "mixed" {
			name = o.audioName("mixed", ".delta")
		}
		o.put(t, event{kind: it.Kind, name: name, pcm: it.Audio.PCM}, where(t, "delta", payload(t, it, false))...)
	}
}

func (o *openai) textName() string {
	if o.audio {
		return "response.output_audio_transcript"
	}
	return "response.output_text"
}

func (o *openai) part(text string) ordered.Obj {
	if o.audio {
		return ordered.Obj{"type", "audio", "transcript", text}
	}
	return ordered.Obj{"type", "text", "text", text}
}

// end sends what ends a response, whatever its status.
func (o *openai) end(status, reason string) {
	t := o.t
	o.drop(t)
	if status == "completed" {
		o.output(t)
	}
	if t.dead() {
		return
	}
	text := t.text.String()
	if o.parted {
		if o.audio {
			o.put(t, event{name: "response.output_audio.done"}, where(t)...)
			o.put(t, event{name: "response.output_audio_transcript.done"}, where(t, "transcript", text)...)
		} else {
			o.put(t, event{name: "response.output_text.done"}, where(t, "text", text)...)
		}
		o.put(t, event{name: "response.content_part.done"}, where(t, "part", o.part(text))...)
		o.put(t, event{name: "response.output_item.done"}, "response_id", t.id, "output_index", 0, "item", o.assistant(status, ordered.List{o.part(text)}))
		o.put(t, event{name: "conversation.item.added"}, "item", o.assistant(status, ordered.List{o.part(text)}))
		o.put(t, event{name: "conversation.item.done"}, "item", o.assistant(status, ordered.List{o.part(text)}))
	}
	o.last = t.item
	response := ordered.Obj{"id", t.id, "object", "realtime.response", "status", status}
	if reason != "" {
		response = append(response, "status_details", ordered.Obj{"type", status, "reason", reason})
	}
	n := t.gen.Count(plan.Text)
	response = append(response, "usage", ordered.Obj{"total_tokens", n + 1, "input_tokens", 1, "output_tokens", n})
	o.put(t, event{kind: plan.End, name: "response.done"}, "response", response)
	o.t = nil
	switch status {
	case "cancelled":
		o.cancelled(t)
	case "failed":
		o.finish(t, plan.Failed)
	default:
		o.finish(t, plan.Complete)
	}
}

func (o *openai) fail(t *turn) {
	o.t = t
	o.put(t, event{name: "error"}, "error", ordered.Obj{"type", "server_error", "code", "processing_error", "message", errorText(t.script, "mock engine fault")})
	o.end("failed", "error")
}

func (o *openai) late(t *turn, pcm []byte, nameless bool) {
	o.events++
	body := ordered.Obj{"event_id", numbered("evt_", o.events), "type", "response.output_audio.delta"}
	if !nameless {
		body = append(body, where(t)...)
	}
	o.extraAudio(t, event{name: "response.output_audio.delta", body: append(body, "delta", ordered.Raw(plan.Encode(&t.f, pcm, -1))), pcm: pcm})
}
