package session

import (
	"cmp"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/ordered"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
)

// conversation is SGLang-Omni's /v1/realtime: turns come from the server's
// voice detection; answers and transcriptions run one after the other.
type conversation struct {
	*session
	vad    *vad
	config ordered.Obj
	input  string // item that is being spoken
	jobs   []func()
	busy   bool

	t                  *turn
	texted, audioEnded bool // text.done, audio.done were sent
	textLeft           int
}

func newConversation(s *session) flow {
	s.style = ordered.Spaced
	return &conversation{session: s, vad: &vad{rate: 16000, silenceMS: 500}}
}

// put sends an event, whose id is its last field.
func (c *conversation) put(t *turn, e event, more ...any) {
	e.body = append(obj(e.name, more...), "event_id", "evt_"+c.Hex(32))
	c.send(t, e)
}

func (c *conversation) open() {
	c.name = "sess_" + c.Hex(32)
	c.config = ordered.Obj{
		"id", c.name, "object", "realtime.session", "model", cmp.Or(c.Request.URL.Query().Get("model"), "mock-omni"),
		"capabilities",
		ordered.Obj{"turn_detection", []string{"server_vad"}},
		"modalities",
		[]string{"text"},
		"instructions", "You are a helpful realtime voice assistant. Respond conversationally.",
		"input_audio_format", "pcm16", "output_audio_format", "pcm16", "temperature", 0.8, "max_response_output_tokens", "inf",
	}
	c.put(nil, event{name: "session.created"}, "session", c.config)
}

func (c *conversation) reject(code, text string) {
	c.put(nil, event{name: "error"}, "error", ordered.Obj{"type", "invalid_request_error", "code", code, "message", text})
}

func (c *conversation) receive(m message) {
	switch m.kind {
	case "session.update":
		c.update(m)
	case "input_audio_buffer.append":
		c.append(m)
	case "input_audio_buffer.clear":
		c.put(nil, event{name: "input_audio_buffer.cleared"})
	case "response.cancel":
		c.cancel("client_cancelled")
	case "conversation.item.truncate":
		c.put(nil, event{name: "conversation.item.truncated"}, "item_id", m.str("item_id"), "content_index", 0, "audio_end_ms", get[int](m, "audio_end_ms"))
	default:
		c.quitNormally() // without a word, as the real server
	}
}

// update lays the client's fields over the session; turn detection stands
// before the temperature.
func (c *conversation) update(m message) {
	if own := m.mock(); len(own) > 0 && !c.adopt(own) {
		return
	}
	s := m.sub("session")
	for _, key := range []string{"modalities", "instructions", "temperature", "max_response_output_tokens"} {
		if s.has(key) {
			c.config = c.config.With(key, s.value(key))
		}
	}
	if s.has("turn_detection") {
		c.vad.silenceMS = cmp.Or(get[int](s.sub("turn_detection"), "silence_duration_ms"), c.vad.silenceMS)
		i := slices.Index(c.config, any("temperature"))
		if c.config.Get("turn_detection") == nil {
			c.config = slices.Insert(slices.Clone(c.config), i, any("turn_detection"), s.value("turn_detection"))
		}
	}
	c.put(nil, event{name: "session.updated"}, "session", c.config)
}

func (c *conversation) audible() bool {
	return strings.Contains(c.style.Render(c.config.Get("modalities")), `"audio"`)
}

func (c *conversation) append(m message) {
	for _, sp := range c.vad.feed(m.audio()) {
		if sp.started {
			c.input = "item_" + c.Hex(32)
			c.put(nil, event{name: "input_audio_buffer.speech_started"}, "audio_start_ms", sp.ms, "item_id", c.input)
			if c.audible() {
				c.cancel("turn_detected")
			}
			continue
		}
		id := c.input
		c.put(nil, event{name: "input_audio_buffer.speech_stopped"}, "audio_end_ms", sp.ms, "item_id", id)
		c.put(nil, event{name: "input_audio_buffer.committed"}, "item_id", id)
		c.jobs = append(c.jobs, func() { c.respond(m) }, func() { c.transcribe(id) })
	}
	c.next()
}

// next runs the next job if none runs.
func (c *conversation) next() {
	if !c.busy && len(c.jobs) > 0 {
		job := c.jobs[0]
		c.jobs = c.jobs[1:]
		c.busy = true
		job()
	}
}

func (c *conversation) free() {
	c.busy = false
	c.next()
}

// transcribe tells what the user said, after the answer to it.
func (c *conversation) transcribe(item string) {
	const base = "conversation.item.input_audio_transcription."
	var steps []step
	for i, delta := range c.Script.Heard {
		steps = append(steps, step{c.Script.TextGap(i), func() {
			c.put(nil, event{name: base + "delta"}, "item_id", item, "content_index", 0, "delta", delta)
		}})
	}
	c.play(nil, append(steps, step{0, func() {
		c.put(nil, event{name: base + "completed"}, "item_id", item, "content_index", 0, "transcript", strings.Join(c.Script.Heard, ""))
		c.free()
	}})...)
}

func (c *conversation) respond(m message) {
	t := c.begin(m.fields["mock"], m.ns, plan.Wish{Text: true, Audio: c.audible()})
	if t == nil {
		c.free()
		return
	}
	c.t, c.texted, c.audioEnded = t, false, false
	c.textLeft = t.gen.Count(plan.Text)
	t.id, t.item = "resp_"+c.Hex(32), "item_"+c.Hex(32)
	c.put(t, event{name: "response.created"}, "response", ordered.Obj{"id", t.id, "object", "realtime.response", "status", "in_progress", "output", ordered.List{}})
	c.run(t, c.item, c.done)
}

// content places a content event: index 0 is text, 1 is audio.
func content(t *turn, index int, more ...any) []any {
	return append([]any{"response_id", t.id, "item_id", t.item, "output_index", 0, "content_index", index}, more...)
}

func (c *conversation) item(it plan.Item) {
	t := c.t
	switch {
	case it.Kind == plan.Text:
		c.put(t, event{kind: plan.Text, name: "response.text.delta", text: it.Text}, content(t, 0, "delta", it.Text)...)
		if c.textLeft--; c.textLeft == 0 && !t.dead() {
			c.textDone()
		}
	case isAudio(it):
		name := c.audioName(t.script.Names, ".delta")
		c.put(t, event{kind: it.Kind, name: name, pcm: it.Audio.PCM}, content(t, 1, "delta", payload(t, it, false))...)
	}
}

func (c *conversation) textDone() {
	if !c.texted {
		c.texted = true
		c.put(c.t, event{name: "response.text.done"}, content(c.t, 0, "text", c.t.text.String())...)
	}
}

func (c *conversation) audioDone() {
	if !c.audioEnded && c.t.sounded {
		c.audioEnded = true
		name := c.audioName(c.t.script.Names, ".done")
		c.put(c.t, event{name: name}, content(c.t, 1)...)
	}
}

func (c *conversation) done() {
	t := c.t
	c.output(t)
	if !t.dead() {
		c.end("completed", t.script.FinishReason)
	}
}

func (c *conversation) cancel(reason string) {
	if c.t != nil {
		c.drop(c.t)
		c.end("cancelled", reason)
	}
}

func (c *conversation) end(status, reason string) {
	t := c.t
	c.textDone()
	c.audioDone()
	c.responseDone(status, reason)
	c.t = nil
	switch status {
	case "cancelled":
		c.cancelled(t)
	case "failed":
		c.finish(t, plan.Failed)
	default:
		c.finish(t, plan.Complete)
	}
	c.free()
}

func (c *conversation) responseDone(status, reason string) {
	t, text := c.t, c.t.text.String()
	parts := ordered.List{ordered.Obj{"type", "text", "text", text}}
	if t.hasAudio {
		parts = append(parts, ordered.Obj{"type", "audio", "transcript", text})
	}
	n := t.gen.Count(plan.Text)
	var usage any = ordered.Obj{"prompt_tokens", 7, "completion_tokens", n, "total_tokens", n + 7, "engine_time_s", nil}
	if status == "failed" {
		usage = nil
	}
	c.put(t, event{kind: plan.End, name: "response.done"}, "response", ordered.Obj{
		"id", t.id, "object", "realtime.response", "status", status, "status_details",
		ordered.Obj{"reason", reason},
		"output",
		ordered.List{ordered.Obj{"id", t.item, "object", "realtime.item", "type", "message", "role", "assistant", "content", parts}},
		"usage", usage,
	})
}

// fail sends the error behind the ends of text and audio.
func (c *conversation) fail(t *turn) {
	c.t = t
	c.textDone()
	c.audioDone()
	c.put(t, event{name: "error"}, "error", ordered.Obj{
		"type", "server_error", "code", "response_generation_failed",
		"message", errorText(t.script, "Realtime response generation failed."),
	})
	c.end("failed", "error")
}

func (c *conversation) late(t *turn, pcm []byte, nameless bool) {
	name := sibling(t.script.Names, ".delta")
	var place []any
	if !nameless {
		place = content(t, 1)
	}
	body := append(obj(name, place...), "delta", ordered.Raw(plan.Encode(&t.f, pcm, -1)), "event_id", "evt_"+c.Hex(32))
	c.extraAudio(t, event{name: name, pcm: pcm, body: body})
}
