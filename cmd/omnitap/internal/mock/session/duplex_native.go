package session

import (
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/ordered"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
)

// nativeAnswer is what a model-native answer has said so far.
type nativeAnswer struct {
	turn   int // of the model
	frames int
	texts  []string
	left   int // audio items to come
	marks  ordered.List
	last   ordered.Obj // the metadata of the last chunk
}

// nativeInput counts input into units; with each the model listens or speaks.
func (d *duplex) nativeInput(m message, n int) {
	d.unitBytes += n
	size := int(d.Script.UnitMS) * 16000 / 1000 * 2
	for ; d.unitBytes >= size; d.unitBytes -= size {
		unit := d.Script.Units[d.units%len(d.Script.Units)]
		d.units++
		if unit == "listen" || d.t != nil {
			d.listen()
			continue
		}
		d.speak(m)
	}
}

// runtime describes the model's side.
func (d *duplex) runtime(more ...any) ordered.Obj {
	return append(ordered.Obj{
		"runtime_impl", "scheduler_data_plane", "owned_runtime", false, "model_turn_id", d.answer.turn,
		"uses_model_runner_scheduler", true, "runner_kv_backed", true,
	}, more...)
}

func (d *duplex) listen() {
	d.put(nil, event{name: "response.listen", body: obj("response.listen", "session_id", d.name, "epoch", d.epoch, "response", ordered.Obj{
		"object", "realtime.response", "status", "listening", "metadata", obj("response.listen",
			"session_id", d.name, "epoch", d.epoch, "reason", "model_listen", "model_listen", true, "vllm_omni", d.runtime()),
	})})
}

// speak starts a response that nobody asked for.
func (d *duplex) speak(m message) {
	t := d.begin(m.fields["mock"], m.ns, plan.Wish{Text: true, Audio: true})
	if t == nil {
		return
	}
	d.answer = nativeAnswer{turn: d.answer.turn, left: t.gen.Count(plan.Audio)}
	d.start(t, nil)
	d.put(t, event{name: "response.speak", body: at("response.speak", t, 0, "metadata", ordered.Obj{"session_id", d.name, "epoch", d.epoch, "model_speak", true})})
	d.run(t, d.nativeItem, d.nativeDone)
}

// nativeItem pairs each audio delta with the text that has come since the one
// before; text behind the last one goes with it.
func (d *duplex) nativeItem(it plan.Item) {
	a := &d.answer
	if it.Kind == plan.Text {
		a.texts = append(a.texts, it.Text)
		return
	}
	if !isAudio(it) || d.t == nil {
		return
	}
	t, text := d.t, ""
	if it.Kind == plan.Audio {
		a.left--
	}
	if len(a.texts) > 0 {
		text, a.texts = a.texts[0], a.texts[1:]
	}
	if a.left == 0 {
		for _, rest := range a.texts {
			text += rest
		}
		a.texts = nil
	}
	c := it.Audio
	n := len(c.PCM) / 2 / max(1, t.script.Channels)
	a.frames += n
	total := millis(a.frames, t.script.Rate)
	playback := ordered.Obj{"generated_ms", total, "sent_ms", total, "played_ms", 0, "committed_ms", 0}
	mark := ordered.Obj{"text_chars", len([]rune(text)), "audio_end_ms", millis(n, t.script.Rate)}
	a.marks = append(a.marks, mark)
	runtime := d.runtime("stage_metrics", ordered.Obj{})
	delta, pcm := d.nativePayload(t, it)
	name := d.audioName(t.script.Names, ".delta")
	a.last = obj("response.output_audio.delta", "session_id", d.name, "response_id", t.id, "epoch", d.epoch, "text", text,
		"audio", payload(t, it, false), "format", "pcm", "end_of_turn", a.left == 0, "model_speak", true,
		"audio_duration_ms", total, "audio_text_marks", ordered.List{mark}, "playback", playback, "sample_rate_hz", c.Rate, "vllm_omni", runtime)
	d.put(t, event{kind: it.Kind, name: name, pcm: pcm, body: at(name, t, 0,
		"delta", delta, "format", d.format, "sample_rate_hz", c.Rate, "metadata", ordered.Obj{
			"session_id", d.name, "epoch", d.epoch, "model_speak", true, "end_of_turn", a.left == 0, "playback", playback,
			"vllm_omni", runtime, "audio_duration_ms", total, "audio_text_marks",
			ordered.List{mark},
		})})
	if !t.dead() {
		d.transcriptDelta(text)
	}
}

// nativePayload encodes an item in the session's format and says which samples
// a client finds in it.
func (d *duplex) nativePayload(t *turn, it plan.Item) (ordered.Raw, []byte) {
	if d.law == nil || it.Kind != plan.Audio {
		return payload(t, it, d.format == "wav"), it.Audio.PCM
	}
	codes, expanded := d.law.Encode(it.Audio.PCM)
	return ordered.Raw(plan.Encode(&t.f, codes, it.Audio.N)), expanded
}

func (d *duplex) nativeDone() {
	t := d.t
	d.output(t)
	if t.dead() {
		return
	}
	a, text := &d.answer, t.text.String()
	for _, kind := range []string{".done", "_transcript.done"} {
		name := sibling(t.script.Names, kind)
		body := at(name, t, 0)
		if kind != ".done" {
			body = append(body, "transcript", text)
		}
		d.put(t, event{name: name, body: body})
	}
	d.part("done", 0, text)
	content := ordered.List{ordered.Obj{"type", "output_audio", "transcript", text, "audio_duration_ms", millis(a.frames, t.script.Rate), "audio_text_marks", a.marks}}
	d.conclude("completed", ordered.Obj{"type", "completed", "reason", t.script.FinishReason}, a.last, content)
	a.turn++
}
