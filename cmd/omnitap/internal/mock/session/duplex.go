package session

import (
	"cmp"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/ordered"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/tone"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
)

// duplex is vLLM-Omni's duplex session in the Realtime projection. A session
// answers through the chat path (a response to each commit or create, whole
// WAVs) or its model is duplex itself (package file duplex_native.go).
type duplex struct {
	*session
	created  bool
	native   bool
	token    string // of resumption, native only
	model    string
	modes    []string
	format   string
	law      *tone.Law
	override ordered.Obj // what the client's session object adds

	seq, epoch int
	appended   int // input bytes since the last commit
	unitBytes  int
	units      int
	heard      bool // speech_started was sent
	vad        *vad
	overlapMS  int // speech during a response

	t        *turn
	parts    [2]bool // audio and text part are open
	lastUser string
	lastItem string
	answer   nativeAnswer
}

func newDuplex(s *session) flow {
	return &duplex{session: s, vad: &vad{rate: 16000, silenceMS: 500}}
}

func (d *duplex) open() {}

// put numbers an event and sends it.
func (d *duplex) put(t *turn, e event) {
	d.seq++
	e.body = append(e.body, "event_id", "event_"+d.Hex(32), "server_event_seq", d.seq)
	if d.token != "" {
		d.Store.add(d.token, storedEvent{d.seq, ordered.Compact.Render(e.body), len(e.pcm) / 2})
	}
	d.send(t, e)
}

func (d *duplex) reject(code, text string) {
	if !d.created { // errors of the handshake are flat
		d.send(nil, event{name: "error", body: obj("error", "error", text, "code", code)})
		d.quit()
		return
	}
	d.put(nil, event{name: "error", body: obj("error", "error", ordered.Obj{"type", "invalid_request_error", "code", code, "message", text})})
}

func (d *duplex) receive(m message) {
	switch {
	case m.kind == "session.resume" && !d.created:
		d.resumeSession(m)
	case m.kind == "session.update":
		d.update(m)
	case !d.created:
		d.reject("invalid_event", "session.update must come first")
	case m.kind == "input_audio_buffer.append":
		d.append(m)
	case m.kind == "conversation.item.create":
		d.itemCreate(m)
	case m.kind == "input_audio_buffer.commit":
		d.commit(m)
	case m.kind == "response.create":
		d.respond(m)
	case m.kind == "response.cancel":
		d.interrupt("barge_in")
	case m.kind == "playback.ack":
		d.put(nil, event{name: "playback.acknowledged", body: obj("playback.acknowledged", "session_id", d.name, "epoch", d.epoch)})
	case m.kind == "session.close":
		d.closeSession("")
	default:
		d.reject("unknown_event", "Unknown event type: "+m.kind)
	}
}

// closeSession says good-bye and drops the connection without a close frame.
func (d *duplex) closeSession(reason string) {
	inner := obj("session.closed", "session_id", d.name)
	if reason != "" {
		inner = append(inner, "reason", reason)
	}
	d.put(nil, event{name: "session.closed", body: obj("session.closed", "event", inner)})
	d.quit()
}

func (d *duplex) update(m message) {
	if own := m.mock(); len(own) > 0 && !d.adopt(own) {
		return
	}
	c := m.sub("session")
	d.model = cmp.Or(c.str("model"), d.model, "mock-omni")
	if d.modes = get[[]string](c, "modalities"); d.modes == nil {
		d.modes = []string{"text", "audio"}
	}
	d.setFormat(c)
	d.override = nil
	for _, key := range []string{"output_audio_format", "ref_audio"} {
		if d.native && c.has(key) {
			d.override = append(d.override, key, c.value(key))
		}
	}
	if !d.created {
		d.create(c)
	}
	d.put(nil, event{name: "session.updated", body: obj("session.updated", "session", d.object())})
}

func (d *duplex) setFormat(c message) {
	d.native = d.native || d.Script.Native || c.sub("extra_body").flag("minicpmo45_native_duplex") || d.Request.URL.Query().Get("minicpmo45_native_duplex") == "1"
	d.format = cmp.Or(d.Script.Format, c.str("output_audio_format"), d.format, "pcm16")
	d.law = nil
	switch {
	case !d.native: // the chat path says pcm16 whatever it sends
	case d.format == "g711_ulaw":
		d.law = &tone.MuLaw
	case d.format == "g711_alaw":
		d.law = &tone.ALaw
	}
	if d.law != nil && d.Base.Rate == 0 {
		d.Base.Rate = 8000
		d.Script.Rate = 8000
	}
}

func (d *duplex) create(message) {
	d.created = true
	d.name = "duplex-" + d.Hex(32)
	body := obj("session.created", "session", d.object())
	if d.native {
		d.token = d.Hex(43)
		body = append(body, "incarnation", 0, "attachment_generation", 1, "resume_token", d.token)
		d.Store.open(d.token, d.name)
	}
	d.send(nil, event{name: "session.created", body: append(body, "event_id", "event_"+d.Hex(32))})
}

var silentPlayback = ordered.Obj{"generated_ms", 0, "sent_ms", 0, "played_ms", 0, "committed_ms", 0}

// state is the session object of both vocabularies.
func (d *duplex) state(format, policy string) ordered.Obj {
	capabilities := chatPathCapabilities
	if d.native {
		capabilities = nativeCapabilities
	}
	return ordered.Obj{
		"id", d.name, "state", "open", "turn_state", "idle", "epoch", 0, "turn_id", 0,
		"active_request_id", nil, "active_response_id", nil, "active_response_turn_id", nil,
		"model", d.model, "modalities", d.modes, "instructions", nil, "voice", nil, "response_format", format,
		"temperature", nil, "max_tokens", nil, "speed", nil, "idle_timeout_s", 300.0,
		"overlap_policy", "listen_only", "overlap_short_ack_ms", 700, "overlap_barge_in_ms", bargeInMS, "overlap_silence_rms", 0.003,
		"playback_commit_policy", policy, "playback", silentPlayback, "capabilities", ordered.Raw(capabilities),
	}
}

func (d *duplex) object() ordered.Obj {
	kind := "audio/pcm"
	if d.law != nil {
		kind = "audio/" + d.format
	}
	return d.state("pcm", "ack_only").With(d.override...).With(
		"object", "realtime.session", "type", "realtime", "input_audio_format", "pcm16").With(d.outputFormat()...).With(
		"output_modalities", d.modes, "audio", ordered.Obj{
			"input",
			ordered.Obj{"format", ordered.Obj{"type", "audio/pcm", "rate", 16000}, "sample_rate_hz", 16000},
			"output",
			ordered.Obj{"format", ordered.Obj{"type", kind}},
		}, "turn_detection", nil, "input_audio_transcription", nil, "tracing", nil)
}

func (d *duplex) outputFormat() ordered.Obj { return ordered.Obj{"output_audio_format", d.format} }

const bargeInMS = 1200

// append takes input audio: units for a native model, else only speech that
// interrupts.
func (d *duplex) append(m message) {
	pcm := m.audio()
	d.appended += len(pcm)
	for _, sp := range d.vad.feed(pcm) {
		switch {
		case sp.started && !d.heard:
			d.heard = true
			d.put(nil, event{name: "input_audio_buffer.speech_started", body: obj("input_audio_buffer.speech_started", "audio_start_ms", sp.ms, "item_id", "item_"+d.Hex(32))})
		case !sp.started && !d.native:
			d.heard = false
			d.put(nil, event{name: "input_audio_buffer.speech_stopped", body: obj("input_audio_buffer.speech_stopped", "audio_end_ms", sp.ms, "item_id", "item_"+d.Hex(32))})
		}
	}
	if d.native {
		d.nativeInput(m, len(pcm))
		return
	}
	if d.t == nil || level(pcm) <= loud {
		d.overlapMS = 0
		return
	}
	if d.overlapMS += millis(len(pcm)/2, 16000); d.overlapMS >= bargeInMS {
		d.put(nil, event{name: "overlap.decision", body: obj("overlap.decision", "session_id", d.name, "epoch", d.epoch, "decision", "barge_in", "overlap_ms", d.overlapMS)})
		d.interrupt("barge_in")
	}
}

// itemCreate adds an item of the user.
func (d *duplex) itemCreate(m message) {
	d.announce("item_"+d.Hex(32), m.value("item"))
}

func (d *duplex) announce(id string, item any) {
	o, _ := item.(ordered.Obj)
	o = o.With("id", id, "object", "realtime.item", "status", "completed")
	previous := orNil(d.lastItem)
	for _, kind := range []string{"conversation.item.added", "conversation.item.created"} {
		d.put(nil, event{name: kind, body: obj(kind, "previous_item_id", previous, "item", o)})
	}
	d.lastUser = ordered.Compact.Render(o)
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// commit ends the user's audio, which is heard as the script says, and starts
// a response.
func (d *duplex) commit(m message) {
	if d.appended == 0 {
		d.reject("input_audio_buffer_commit_empty", "The input audio buffer is empty.")
		return
	}
	d.appended = 0
	id := "item_" + d.Hex(32)
	heard := strings.Join(d.Script.Heard, "")
	content := ordered.List{ordered.Obj{"type", "input_audio", "transcript", heard}}
	d.announce(id, ordered.Obj{"type", "message", "role", "user", "content", content})
	d.put(nil, event{name: "input_audio_buffer.committed", body: obj("input_audio_buffer.committed", "previous_item_id", orNil(d.lastItem), "item_id", id)})
	const done = "conversation.item.input_audio_transcription.completed"
	d.put(nil, event{name: done, body: obj(done, "item_id", id, "content_index", 0, "transcript", heard)})
	if !d.native {
		d.respond(m)
	}
}

// respond starts a response on the chat path. One that has not said anything
// yet is superseded without an end, as in the real server.
func (d *duplex) respond(m message) {
	if d.native {
		return // the model decides
	}
	if t := d.t; t != nil {
		if t.sounded || t.text.Len() > 0 {
			d.interrupt("new_response")
		} else {
			d.drop(t)
			d.t = nil
			d.finish(t, truth.Cancelled)
		}
	}
	if d.lastUser != "" {
		v, _ := ordered.Parse([]byte(d.lastUser))
		o, _ := v.(ordered.Obj)
		previous := orNil(d.lastItem)
		d.lastItem = "item_" + d.Hex(32)
		d.put(nil, event{name: "conversation.item.done", body: obj("conversation.item.done", "previous_item_id", previous, "item", o.With("id", d.lastItem))})
		d.lastUser = ""
	}
	t := d.begin(m.fields["mock"], m.ns, plan.Wish{Text: slices.Contains(d.modes, "text"), Audio: slices.Contains(d.modes, "audio")})
	if t == nil {
		return
	}
	d.start(t, ordered.Obj{"request_id", numbered("chatcmpl-duplex-"+d.name+"-", d.epoch) + "-0"})
	d.run(t, d.item, func() { d.end("completed", nil, d.doneMetadata()) })
}

// start announces a response.
func (d *duplex) start(t *turn, more ordered.Obj) {
	d.t, d.parts = t, [2]bool{true}
	t.id = numbered("resp-"+d.name+"-", d.epoch) + "-" + d.Hex(8)
	t.item = "item_" + t.id
	inner := append(obj("response.created", "session_id", d.name, "response_id", t.id, "epoch", d.epoch, "modalities", d.modes), more...)
	d.put(t, event{name: "response.created", body: obj("response.created", "response_id", t.id, "response", ordered.Obj{
		"id", t.id, "object", "realtime.response", "status", "in_progress", "status_details", nil, "output",
		ordered.List{},
		"modalities", d.modes, "metadata",
		ordered.Obj{"duplex_event", inner},
	})})
	for _, kind := range []string{"conversation.item.added", "conversation.item.created"} {
		d.put(t, event{name: kind, body: obj(kind, "previous_item_id", orNil(d.lastItem), "item", d.assistant("in_progress", ordered.List{}))})
	}
	d.put(t, event{name: "response.output_item.added", body: obj("response.output_item.added", "response_id", t.id, "output_index", 0, "item", d.assistant("in_progress", ordered.List{}))})
	d.part("added", 0, "")
}

func (d *duplex) assistant(status string, content ordered.List) ordered.Obj {
	return ordered.Obj{"id", d.t.item, "object", "realtime.item", "type", "message", "role", "assistant", "status", status, "content", content}
}

// at places a content event: index 0 is audio, 1 is text.
func at(kind string, t *turn, index int, more ...any) ordered.Obj {
	return append(obj(kind, "response_id", t.id, "item_id", t.item, "output_index", 0, "content_index", index), more...)
}

func (d *duplex) part(what string, index int, text string) {
	kind := "response.content_part." + what
	part := ordered.Obj{"type", "audio", "transcript", text}
	if index == 1 {
		part = ordered.Obj{"type", "text", "text", text}
	}
	d.put(d.t, event{name: kind, body: at(kind, d.t, index, "part", part)})
}

func (d *duplex) item(it plan.Item) {
	t := d.t
	switch {
	case it.Kind == plan.Text:
		if !d.parts[1] {
			d.parts[1] = true
			d.part("added", 1, "")
		}
		d.put(t, event{kind: plan.Text, name: "response.output_text.delta", text: it.Text, body: at("response.output_text.delta", t, 1, "delta", it.Text)})
	case isAudio(it):
		name := d.audioName(t.script.Names, ".delta")
		d.put(t, event{kind: it.Kind, name: name, pcm: it.Audio.PCM, body: at(name, t, 0,
			"delta", payload(t, it, true), "format", "pcm16", "metadata", ordered.Obj{"session_id", d.name, "epoch", d.epoch})})
		if !t.dead() {
			d.transcriptDelta("")
		}
	}
}

// transcriptDelta is the partner of each audio delta, mostly empty.
func (d *duplex) transcriptDelta(text string) {
	t := d.t
	name := sibling(t.script.Names, "_transcript.delta")
	e := event{name: name, body: at(name, t, 0, "delta", text)}
	if text != "" {
		e.kind, e.text = plan.Text, text
	}
	d.put(t, e)
}

// sibling is the name of an audio event that is never mixed.
func sibling(names, tail string) string {
	if names == "new" {
		return "response.output_audio" + tail
	}
	return "response.audio" + tail
}

func (d *duplex) doneMetadata() ordered.Obj {
	return obj("response.done", "session_id", d.name, "response_id", d.t.id, "epoch", d.epoch, "committed", true, "playback", silentPlayback)
}

// end sends what ends a response on the chat path.
func (d *duplex) end(status string, details any, metadata ordered.Obj) {
	t := d.t
	d.drop(t)
	if status == "completed" {
		d.output(t)
	}
	if t.dead() {
		return
	}
	text := t.text.String()
	content := ordered.List{ordered.Obj{"type", "output_audio", "transcript", ""}}
	name := sibling(t.script.Names, ".done")
	d.put(t, event{name: name, body: at(name, t, 0)})
	d.part("done", 0, "")
	if d.parts[1] {
		d.put(t, event{name: "response.output_text.done", body: at("response.output_text.done", t, 1, "text", text)})
		d.part("done", 1, text)
		content = append(content, ordered.Obj{"type", "output_text", "text", text})
	}
	d.conclude(status, details, metadata, content)
}

// conclude sends what ends every response.
func (d *duplex) conclude(status string, details any, metadata ordered.Obj, content ordered.List) {
	t := d.t
	item := d.assistant(status, content)
	d.put(t, event{name: "response.output_item.done", body: obj("response.output_item.done", "response_id", t.id, "output_index", 0, "item", item)})
	d.put(t, event{name: "conversation.item.done", body: obj("conversation.item.done", "previous_item_id", orNil(d.lastItem), "item", item)})
	d.put(t, event{kind: plan.End, name: "response.done", body: obj("response.done", "response_id", t.id, "response", ordered.Obj{
		"id", t.id, "object", "realtime.response", "status", status, "status_details", details, "output", ordered.List{item}, "metadata", metadata,
	})})
	d.put(nil, event{name: "rate_limits.updated", body: obj("rate_limits.updated", "rate_limits", ordered.List{})})
	d.lastItem, d.t = t.item, nil
	switch status {
	case "cancelled":
		d.cancelled(t)
	case "failed":
		d.finish(t, plan.Failed)
	default:
		d.finish(t, plan.Complete)
	}
}

// interrupt cancels the response under way.
func (d *duplex) interrupt(reason string) {
	t := d.t
	if t == nil {
		return
	}
	d.drop(t)
	d.overlapMS = 0
	inner := obj("audio.cancelled", "session_id", d.name, "response_id", t.id, "reason", reason,
		"cancelled_epoch", d.epoch, "epoch", d.epoch+1, "committed_ms", 0, "playback", silentPlayback)
	d.epoch++
	d.put(t, event{name: "conversation.item.truncated", body: obj("conversation.item.truncated", "item_id", t.item, "content_index", 0, "audio_end_ms", 0, "event", inner)})
	d.end("cancelled", ordered.Obj{"type", "cancelled", "reason", reason}, inner)
}

func (d *duplex) fail(t *turn) {
	d.t = t
	d.put(t, event{name: "error", body: obj("error", "error", ordered.Obj{"type", "server_error", "code", "internal_error", "message", errorText(t.script, "mock engine fault")})})
	d.end("failed", ordered.Obj{"type", "failed", "reason", "error"}, d.doneMetadata())
}

func (d *duplex) late(t *turn, pcm []byte, nameless bool) {
	d.seq++
	name := sibling(t.script.Names, ".delta")
	body := obj(name)
	if !nameless {
		body = at(name, t, 0)
	}
	d.extraAudio(t, event{name: name, pcm: pcm, body: append(body, "delta", ordered.Raw(plan.Encode(&t.f, pcm, -1)), "format", "pcm16", "sample_rate_hz", t.script.Rate,
		"metadata", ordered.Obj{"session_id", d.name, "epoch", d.epoch}, "event_id", "event_"+d.Hex(32), "server_event_seq", d.seq)})
}

// resumeSession replays what came behind the last event that the client has.
// The answer to it was never recorded; the replayed events are byte for byte.
func (d *duplex) resumeSession(m message) {
	token := m.str("resume_token")
	old, ok := d.Store.take(token, get[int](m, "last_server_event_seq"))
	if !ok {
		d.reject("session_not_found", "No session for this resume token")
		return
	}
	d.created, d.native, d.name, d.token, d.seq = true, true, old.name, token, old.seq
	d.model, d.format, d.modes = "mock-omni", "pcm16", []string{"text", "audio"}
	d.send(nil, event{name: "session.resumed", body: obj("session.resumed", "session", d.object(), "resume_token", token, "event_id", "event_"+d.Hex(32))})
	extra := 0
	for _, e := range old.events {
		d.send(nil, event{name: "replay", body: nil, raw: e.body})
		extra += e.samples
	}
	d.Record.Update(func(t *truth.Truth) { t.ExtraSamples += extra })
}
