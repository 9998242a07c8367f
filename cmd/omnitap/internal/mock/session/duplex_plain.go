package session

import (
	"cmp"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/ordered"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
)

// plain is /v1/duplex of vLLM-Omni 0.26: the same sessions without the
// Realtime projection.
type plain struct {
	d       duplex // the state that both share
	text    string
	history int
	asked   int
	format  string
}

func newPlainDuplex(s *session) flow {
	return &plain{d: duplex{session: s, vad: &vad{rate: 16000, silenceMS: 500}}}
}

func (p *plain) open() {}

func (p *plain) put(t *turn, e event) {
	p.d.seq++
	e.body = append(e.body, "server_event_seq", p.d.seq)
	p.d.send(t, e)
}

func (p *plain) reject(code, text string) {
	p.d.send(nil, event{name: "error", body: obj("error", "error", text, "code", code)})
	if !p.d.created {
		p.d.quit()
	}
}

func (p *plain) receive(m message) {
	switch {
	case m.kind == "session.create":
		p.create(m)
	case !p.d.created:
		p.reject("invalid_event", "session.create must come first")
	case m.kind == "input.text.append":
		p.text += m.str("text")
	case m.kind == "input.audio.append", m.kind == "input_audio_buffer.append":
		p.text += " "
	case m.kind == "input.commit":
		p.commit(m)
	case m.kind == "response.cancel":
		p.cancel()
	case m.kind == "session.close":
		p.put(nil, event{name: "session.closed", body: obj("session.closed", "session_id", p.d.name)})
		p.d.quit()
	default:
		p.reject("unknown_event", "Unknown event type: "+m.kind)
	}
}

func (p *plain) create(m message) {
	d := &p.d
	if own := m.mock(); len(own) > 0 && !d.adopt(own) {
		return
	}
	c := m.sub("session")
	d.model = cmp.Or(c.str("model"), "mock-omni")
	if d.modes = get[[]string](c, "modalities"); d.modes == nil {
		d.modes = []string{"text", "audio"}
	}
	p.format = cmp.Or(d.Script.Format, c.str("response_format"), "wav")
	d.created, d.name = true, "duplex-"+d.Hex(32)
	d.send(nil, event{name: "session.created", body: obj("session.created", "session", d.state(p.format, "commit_all_on_done"), "runtime_control", ordered.Obj{"session_id", d.name, "ok", true})})
}

// commit takes the input and starts a response by itself.
func (p *plain) commit(m message) {
	d := &p.d
	p.history++
	p.put(nil, event{name: "input.committed", body: obj("input.committed", "session_id", d.name, "turn_id", 0, "epoch", d.epoch,
		"history_len", p.history, "message", ordered.Obj{"role", "user", "content", p.text})})
	p.text = ""
	p.history++
	if d.t != nil {
		p.cancel()
	}
	t := d.begin(m.fields["mock"], m.ns, plan.Wish{Text: true, Audio: true})
	if t == nil {
		return
	}
	p.asked++
	d.t, t.id = t, numbered("resp-"+d.name+"-", d.epoch)+"-"+d.Hex(8)
	p.put(t, event{name: "response.created", body: p.at("response.created", t, "modalities", d.modes,
		"request_id", numbered(numbered("chatcmpl-duplex-"+d.name+"-", d.epoch)+"-", p.asked))})
	d.run(t, p.item, func() { p.end(plan.Complete) })
}

func (p *plain) at(kind string, t *turn, more ...any) ordered.Obj {
	return append(obj(kind, "session_id", p.d.name, "response_id", t.id, "epoch", p.d.epoch), more...)
}

func (p *plain) item(it plan.Item) {
	t := p.d.t
	switch {
	case it.Kind == plan.Text:
		p.put(t, event{kind: plan.Text, name: "response.text.delta", text: it.Text, body: p.at("response.text.delta", t, "delta", it.Text)})
	case isAudio(it):
		body := p.at("response.output_audio.delta", t, "audio", payload(t, it, p.format == "wav"), "format", p.format)
		if p.format != "wav" {
			body = append(body, "sample_rate_hz", it.Audio.Rate)
		}
		p.put(t, event{kind: it.Kind, name: "response.output_audio.delta", pcm: it.Audio.PCM, body: body})
	}
}

func (p *plain) end(how plan.Ending) {
	t := p.d.t
	if how == plan.Complete {
		p.d.output(t)
	}
	if t.dead() {
		return
	}
	p.put(t, event{kind: plan.End, name: "response.done", body: p.at("response.done", t, "committed", how == plan.Complete, "playback", silentPlayback)})
	p.d.t = nil
	p.d.finish(t, how)
}

func (p *plain) cancel() {
	d := &p.d
	t := d.t
	if t == nil {
		return
	}
	d.drop(t)
	d.epoch++
	p.put(t, event{kind: plan.End, name: "audio.cancelled", body: obj("audio.cancelled", "session_id", d.name, "response_id", t.id, "reason", "barge_in",
		"cancelled_epoch", d.epoch-1, "epoch", d.epoch, "committed_ms", 0, "playback", silentPlayback)})
	d.t = nil
	d.cancelled(t)
}

func (p *plain) fail(t *turn) {
	p.d.t = t
	p.put(t, event{name: "error", body: obj("error", "error", errorText(t.script, "mock engine fault"), "code", "internal_error")})
	p.end(plan.Failed)
}

func (p *plain) late(t *turn, pcm []byte, nameless bool) {
	body := p.at("response.output_audio.delta", t)
	if nameless {
		body = obj("response.output_audio.delta", "session_id", p.d.name)
	}
	p.d.seq++
	p.d.extraAudio(t, event{name: "response.output_audio.delta", pcm: pcm, body: append(body,
		"audio", ordered.Raw(plan.Encode(&t.f, pcm, -1)), "format", "pcm", "sample_rate_hz", t.script.Rate, "server_event_seq", p.d.seq)})
}
