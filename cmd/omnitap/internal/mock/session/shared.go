package session

import (
	"cmp"
	"slices"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/ordered"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
)

// shared is SGLang-Omni's shared session on /v1/realtime: native duplex, where
// each unit of input yields a chunk, or turn-based over voice detection.
type shared struct {
	*session
	granted   bool
	native    bool
	model     string
	modes     []string
	seq       int // of the next append
	inBytes   int
	unitBytes int
	units     int
	chunkSeq  int
	responses int
	vad       *vad

	t     *turn
	rest  []plan.Item // of the answer, native only
	stamp ordered.Obj // the sglang field of the unit under way
	dying bool        // the next unit fails
}

func newShared(s *session) flow {
	s.style = ordered.Spaced
	return &shared{session: s, native: s.Script.Realtime != "turn-based", vad: &vad{rate: 16000, silenceMS: 500}}
}

// put sends an event; output of a native session names the unit that it
// answers, behind the event's id.
func (d *shared) put(t *turn, e event, more ...any) {
	e.body = append(obj(e.name, more...), "event_id", "evt_"+d.Hex(32))
	if t != nil && d.native && d.stamp != nil {
		e.body = append(e.body, "sglang", d.stamp.With("chunk_seq", d.chunkSeq))
		d.chunkSeq++
	}
	d.send(t, e)
}

func (d *shared) open() {
	d.name = "sess_" + d.Hex(32)
	d.model = "mock-omni"
	d.put(nil, event{name: "session.created"}, "session", ordered.Obj{
		"id", d.name, "object", "realtime.session", "type", "realtime", "model", d.model, "sglang", ordered.Obj{"granted", nil},
	})
}

func (d *shared) reject(code, text string) { d.rejectFor(nil, code, text) }

func (d *shared) rejectFor(id any, code, text string) {
	d.put(nil, event{name: "error"}, "sglang", ordered.Obj{"fatal", false}, "error",
		ordered.Obj{"type", "invalid_request_error", "code", code, "message", text, "event_id", id, "param", nil})
}

func (d *shared) receive(m message) {
	id := m.str("event_id")
	switch {
	case id == "":
		d.reject("invalid_event", "event_id is required")
	case m.kind == "session.update":
		d.update(m)
	case !d.granted:
		d.rejectFor(id, "session_not_open", "session.update must come first")
	case m.kind == "input_audio_buffer.append":
		d.append(m)
	case m.kind == "input_audio_buffer.clear":
		d.put(nil, event{name: "input_audio_buffer.cleared"}, "client_event_id", id)
	case m.kind == "input_audio_buffer.commit" && !d.native:
		d.respond(m)
	case m.kind == "response.cancel" && !d.native:
		d.interrupt()
	case m.kind == "sglang.input_audio.end":
		d.inputEnd(m)
	case m.kind == "session.close":
		d.put(nil, event{name: "session.closed"}, "reason", "client_closed", "client_event_id", id)
		d.quitNormally()
	default:
		d.rejectFor(id, "unsupported_event", "Unsupported event: "+m.kind)
	}
}

func (d *shared) update(m message) {
	if own := m.mock(); len(own) > 0 && !d.adopt(own) {
		return
	}
	c := m.sub("session")
	d.model = cmp.Or(c.str("model"), d.model)
	if d.modes = get[[]string](c, "output_modalities"); d.modes == nil {
		d.modes = []string{"text", "audio"}
	}
	d.granted = true
	in, out := ordered.Obj{"type", "audio/pcm", "rate", 16000}, ordered.Obj{"type", "audio/pcm", "rate", plan.Shape(d.Script, d.f, 1).Rate}
	s := ordered.Obj{"type", "realtime", "model", d.model}
	if c.has("instructions") {
		s = append(s, "instructions", c.value("instructions"))
	}
	d.put(nil, event{name: "session.updated"}, "client_event_id", m.str("event_id"), "session", append(s,
		"output_modalities", d.modes, "audio", ordered.Obj{"input", ordered.Obj{"format", in}, "output", ordered.Obj{"format", out}},
		"sglang", ordered.Obj{"granted", d.grant(in, out)}, "id", d.name, "object", "realtime.session"))
}

// grant is what the server allows.
func (d *shared) grant(in, out ordered.Obj) ordered.Obj {
	interaction, control := "native", ordered.List{nil}
	unit := any(int(d.Script.UnitMS))
	if !d.native {
		interaction, control, unit = "turn_based", ordered.List{"server_vad"}, nil
	}
	return ordered.Obj{
		"interaction", interaction, "native_full_duplex", d.native, "proactive_output", false, "turn_control", control, "client_commit", !d.native,
		"input_modalities",
		[]string{"audio"},
		"output_modalities", d.modes, "input_audio_format", in, "output_audio_format", out,
		"native_unit_ms", unit, "first_unit_ms", unit, "microturn_ms", nil, "tail_policy", "flush",
		"supports_server_interrupt", !d.native, "supports_truncate", !d.native, "supports_resume", false, "partial_style", "append_only",
		"pressure_policy", "reject", "strict_order", true, "sampling_parameters",
		ordered.List{},
		"supports_reference_audio", false,
		"limits",
		ordered.Obj{"max_input_bytes", 1920000, "max_output_bytes", 33554432, "max_history_chars", 65536, "cleanup_timeout_s", 30, "session_update_timeout_s", 60},
		"rejections",
		ordered.List{},
	}
}

func (d *shared) inputMS() float64 { return float64(d.inBytes) / 32 }

func (d *shared) append(m message) {
	id := m.str("event_id")
	seq := get[int](m.sub("sglang"), "seq")
	pcm := m.audio()
	if seq != d.seq || len(pcm) == 0 {
		d.rejectFor(id, "invalid_event", "seq is not contiguous or the audio is empty")
		return
	}
	d.seq++
	d.inBytes += len(pcm)
	d.put(nil, event{name: "sglang.input_audio.accepted"}, "seq", seq, "accepted_end_ms", d.inputMS(), "client_event_id", id)
	if !d.native {
		d.listen(m, pcm)
		return
	}
	d.unitBytes += len(pcm)
	size := int(d.Script.UnitMS) * 32
	for ; d.unitBytes >= size && d.err == nil; d.unitBytes -= size {
		d.unit(m)
	}
}

// unit answers one unit of input: it starts a response, goes on with one, or
// only listens.
func (d *shared) unit(m message) {
	ms := d.Script.UnitMS
	name := numbered("unit_", d.units)
	media := ordered.Obj{"t_start_ms", float64(d.units) * ms, "duration_ms", ms}
	d.stamp = ordered.Obj{"unit_id", name, "chunk_seq", 0, "media_time", media}
	d.units++
	if d.t != nil && d.dying {
		d.fatal(d.t)
		return
	}
	if d.t == nil && d.turnsNow() {
		if d.begun(m) {
			d.rest = slices.Clone(d.t.gen.Items)
		}
	}
	if d.t != nil {
		d.chunk()
	}
	if d.err == nil {
		d.unitDone(name, media)
	}
}

// turnsNow reports whether the model would speak; units that an answer took
// are not counted in the pattern.
func (d *shared) turnsNow() bool {
	list := d.Script.Units
	speak := list[d.responses%len(list)] == "speak"
	d.responses++
	return speak
}

func (d *shared) unitDone(name string, media ordered.Obj) {
	body := obj("sglang.unit.done", "unit_id", name, "event_id", "evt_"+d.Hex(32), "sglang",
		ordered.Obj{"unit_id", name, "chunk_seq", 0, "media_time", media})
	d.send(nil, event{name: "sglang.unit.done", body: body})
}

func (d *shared) begun(m message) bool {
	t := d.begin(m.fields["mock"], m.ns, plan.Wish{Text: true, Audio: slices.Contains(d.modes, "audio")})
	if t == nil {
		return false
	}
	d.t, d.dying = t, false
	n := d.count - 1
	t.id, t.item = numbered("resp_", n), numbered("item_", n)
	d.put(t, event{name: "response.created"}, "response", ordered.Obj{"id", t.id, "object", "realtime.response", "status", "in_progress", "output", ordered.List{}})
	return true
}

// chunk sends the items up to the next audio; the answer ends with the last.
func (d *shared) chunk() {
	t := d.t
	for i, it := range d.rest {
		if it.Wait > 0 && it.Kind == plan.Audio && !t.f.Burst {
			it.Wait = 0 // units set the pace
		}
		d.item(it)
		if t.dead() || d.err != nil {
			return
		}
		if it.Kind == plan.Audio {
			d.rest = d.rest[i+1:]
			break
		}
	}
	if t.dead() || d.dying {
		return
	}
	if !slices.ContainsFunc(d.rest, func(it plan.Item) bool { return it.Kind == plan.Audio }) {
		for _, it := range d.rest {
			d.item(it)
		}
		d.rest = nil
		d.done()
	}
}

func (d *shared) item(it plan.Item) {
	t := d.t
	switch {
	case it.Kind == plan.Text:
		d.put(t, event{kind: plan.Text, name: d.textName() + ".delta", text: it.Text}, content(t, 0, "delta", it.Text)...)
	case isAudio(it):
		name := "response.output_audio.delta"
		if t.script.Names == "mixed" {
			name = d.audioName("mixed", ".delta")
		}
		d.put(t, event{kind: it.Kind, name: name, pcm: it.Audio.PCM}, content(t, 0, "delta", payload(t, it, false))...)
	}
}

func (d *shared) textName() string {
	if len(d.modes) == 1 && d.modes[0] == "audio" {
		return "response.output_audio_transcript"
	}
	return "response.output_text"
}

func (d *shared) done() {
	t := d.t
	d.output(t)
	if !t.dead() {
		d.end("completed", t.script.FinishReason)
	}
}

func (d *shared) end(status, reason string) {
	t := d.t
	text := t.text.String()
	key := "text"
	parts := ordered.List{ordered.Obj{"type", "output_text", "text", text}}
	if d.textName() != "response.output_text" {
		key, parts = "transcript", nil
	}
	d.put(t, event{name: d.textName() + ".done"}, content(t, 0, key, text)...)
	if t.hasAudio {
		d.put(t, event{name: "response.output_audio.done"}, content(t, 0)...)
		parts = append(parts, ordered.Obj{"type", "output_audio", "transcript", text})
	}
	d.put(t, event{kind: plan.End, name: "response.done"}, "response", ordered.Obj{
		"id", t.id, "object", "realtime.response", "status", status, "status_details",
		ordered.Obj{"reason", reason},
		"output",
		ordered.List{ordered.Obj{"id", t.item, "object", "realtime.item", "type", "message", "role", "assistant", "content", parts}},
		"usage", nil,
	})
	d.t, d.rest = nil, nil
	switch status {
	case "cancelled":
		d.cancelled(t)
	case "failed":
		d.finish(t, plan.Failed)
	default:
		d.finish(t, plan.Complete)
	}
}

// listen is the turn-based side: voice detection decides.
func (d *shared) listen(m message, pcm []byte) {
	for _, sp := range d.vad.feed(pcm) {
		if sp.started {
			d.put(nil, event{name: "input_audio_buffer.speech_started"}, "audio_start_ms", sp.ms, "item_id", numbered("item_in_", d.count))
			d.interrupt()
			continue
		}
		d.put(nil, event{name: "input_audio_buffer.speech_stopped"}, "audio_end_ms", sp.ms, "item_id", numbered("item_in_", d.count))
		d.respond(m)
	}
}

func (d *shared) respond(m message) {
	d.interrupt()
	if d.begun(m) {
		d.run(d.t, d.item, d.done)
	}
}

func (d *shared) interrupt() {
	if d.t != nil {
		d.drop(d.t)
		d.end("cancelled", "interrupted")
	}
}

// inputEnd flushes what is left of the last unit.
func (d *shared) inputEnd(m message) {
	id := m.str("event_id")
	d.put(nil, event{name: "sglang.input_audio.ended"}, "accepted_end_ms", d.inputMS(), "tail_policy", "flush", "client_event_id", id)
	if d.native {
		rest := float64(d.unitBytes) / 32
		name := numbered("unit_", d.units)
		media := ordered.Obj{"t_start_ms", d.inputMS() - rest, "duration_ms", rest}
		d.units++
		d.unitDone(name, media)
	}
	d.put(nil, event{name: "sglang.input_audio.drained"}, "accepted_end_ms", d.inputMS(), "consumed_ms", d.inputMS(), "discarded_ms", 0.0, "padding_ms", 0.0, "client_event_id", id)
}

// fail lets the next unit of a native session fail.
func (d *shared) fail(t *turn) {
	if d.dying = true; !d.native {
		d.fatal(t)
	}
}

// fatal ends the session: the error comes first, then the ends of the answer.
func (d *shared) fatal(t *turn) {
	d.dying = false
	d.t = t
	d.stamp = nil
	d.put(t, event{name: "error"}, "sglang", ordered.Obj{"fatal", true}, "error",
		ordered.Obj{"type", "server_error", "code", "internal", "message", errorText(t.script, "mock engine fault"), "event_id", nil, "param", nil})
	d.end("failed", "internal")
	d.put(nil, event{name: "session.closed"}, "reason", "internal", "client_event_id", nil)
	d.quitNormally()
}

func (d *shared) late(t *turn, pcm []byte, nameless bool) {
	var place []any
	if !nameless {
		place = content(t, 0)
	}
	const name = "response.output_audio.delta"
	d.extraAudio(t, event{name: name, pcm: pcm, body: append(obj(name, place...), "delta", ordered.Raw(plan.Encode(&t.f, pcm, -1)), "event_id", "evt_"+d.Hex(32))})
}
