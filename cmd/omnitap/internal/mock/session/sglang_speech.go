package session

import (
	"cmp"
	"strings"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/ordered"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
)

// sglangSpeech is SGLang-Omni's /v1/audio/speech/stream: each sentence is an
// answer, made one after the other, and a turn here.
type sglangSpeech struct {
	*session
	configured    bool
	format, split string
	stream        bool
	text          string
	queue         []unit
	segment       int // sentences of the segment
	segments      int
	index         int
	mock          []byte

	t       *turn
	current unit
	started bool // audio.start was sent
	total   int
	whole   []byte
}

// unit is a sentence or, without text, the end of a segment or of the input.
type unit struct {
	text        string
	ns          int64
	commit, end bool
	mock        []byte
}

func newSGLangSpeech(s *session) flow {
	s.style = ordered.Spaced
	return &sglangSpeech{session: s}
}

func (p *sglangSpeech) open() { p.name = "speech_ws_" + p.Hex(32) }

func (p *sglangSpeech) reject(_, text string) {
	p.send(nil, event{name: "error", body: obj("error", "message", text, "error_type", "invalid_request_error")})
	if !p.configured {
		p.quitNormally()
	}
}

func (p *sglangSpeech) receive(m message) {
	if own := m.fields["mock"]; len(own) > 0 && m.kind != "session.config" {
		p.mock = own
	}
	switch {
	case m.kind == "session.config" && !p.configured:
		p.config(m)
	case !p.configured:
		p.reject("", "session.config must be the first message")
	case m.kind == "input.text":
		p.text += m.str("text")
		done, rest := sentences(p.text, marks(p.split))
		p.text = rest
		p.add(m.ns, done...)
	case m.kind == "input.commit", m.kind == "input.done":
		if last := strings.TrimSpace(p.text); last != "" {
			p.add(m.ns, last)
		}
		p.text = ""
		p.queue = append(p.queue, unit{ns: m.ns, commit: m.kind == "input.commit", end: m.kind == "input.done"})
		p.next()
	default:
		p.reject("", "unsupported message type")
	}
}

func (p *sglangSpeech) add(ns int64, texts ...string) {
	for _, text := range texts {
		p.queue = append(p.queue, unit{text: text, ns: ns, mock: p.mock})
	}
	p.next()
}

func (p *sglangSpeech) config(m message) {
	c := m
	if m.has("session") {
		c = m.sub("session")
	}
	if own := m.mock(); len(own) > 0 && !p.adopt(own) {
		return
	}
	p.stream, p.split = c.flag("stream_audio"), cmp.Or(c.str("split_granularity"), "sentence")
	p.format = strings.TrimSuffix(cmp.Or(p.Script.Format, c.str("response_format"), "pcm"), "16")
	switch {
	case p.stream && p.format != "pcm":
		p.reject("", "stream_audio=true requires response_format='pcm'")
		return
	case p.format != "pcm" && p.format != "wav":
		p.reject("", "response_format "+p.format+" is not made by this mock, only wav and pcm")
		return
	}
	p.configured = true
	p.send(nil, event{name: "session.configured", body: obj("session.configured", "session_id", p.name, "response_format", p.format,
		"stream_audio", p.stream, "split_granularity", p.split)})
}

// next takes what is queued while no sentence is being made.
func (p *sglangSpeech) next() {
	for p.t == nil && len(p.queue) > 0 && p.err == nil {
		u := p.queue[0]
		p.queue = p.queue[1:]
		switch {
		case u.commit:
			p.send(nil, event{name: "input.committed", body: obj("input.committed", "session_id", p.name, "segment_index", p.segments,
				"segment_sentences", p.segment, "total_sentences", p.index)})
			p.segments++
			p.segment = 0
		case u.end:
			if !p.f.NoDone {
				p.send(nil, event{name: "session.done", body: obj("session.done", "session_id", p.name, "total_sentences", p.index)})
			}
			p.quitNormally()
		default:
			p.speak(u)
		}
	}
}

func (p *sglangSpeech) speak(u unit) {
	t := p.begin(u.mock, u.ns, plan.Wish{Audio: true})
	if t == nil {
		return
	}
	t.id = numbered(p.name+"-", p.index)
	p.t, p.current, p.started, p.total, p.whole = t, u, false, 0, nil
	p.run(t, p.item, p.done)
}

// start is sent only when the first chunk is ready.
func (p *sglangSpeech) start() {
	if p.started {
		return
	}
	p.started = true
	c := plan.Shape(p.t.script, p.t.f, 1)
	p.send(p.t, event{name: "audio.start", body: obj("audio.start", "id", p.t.id, "sentence_index", p.index, "sentence_text", p.current.text,
		"format", p.format, "sample_rate", c.Rate)})
}

func (p *sglangSpeech) item(it plan.Item) {
	t := p.t
	switch {
	case !isAudio(it):
	case !p.stream:
		p.whole = append(p.whole, it.Audio.PCM...)
	default:
		p.start()
		data := it.Audio.PCM
		if t.f.HeaderEach || it.Text == "header" {
			data = plan.File(&t.f, it.Audio)
		}
		p.total += len(data)
		p.send(t, event{kind: it.Kind, data: data, pcm: it.Audio.PCM})
	}
}

func (p *sglangSpeech) done() {
	t := p.t
	if !p.stream {
		c := plan.Shape(t.script, t.f, 1)
		c.PCM = p.whole
		data := c.PCM
		if p.format == "wav" {
			data = plan.File(&t.f, c)
		}
		p.total = len(data)
		p.start()
		p.send(t, event{kind: plan.Audio, data: data, pcm: c.PCM})
	}
	p.output(t)
	if !t.dead() {
		p.end(plan.Complete)
	}
}

func (p *sglangSpeech) end(how plan.Ending) {
	t := p.t
	p.send(t, event{kind: plan.End, name: "audio.done", body: obj("audio.done", "id", t.id, "sentence_index", p.index, "total_bytes", p.total, "error", how == plan.Failed)})
	p.t = nil
	p.index++
	p.segment++
	p.finish(t, how)
	p.next()
}

// fail says zero bytes although some were sent, as the real server does.
func (p *sglangSpeech) fail(t *turn) {
	p.t = t
	p.send(t, event{name: "error", body: obj("error", "message", errorText(t.script, "mock engine fault"), "error_type", "server_error")})
	p.total = 0
	p.end(plan.Failed)
}

func (p *sglangSpeech) late(t *turn, pcm []byte, _ bool) { p.extraAudio(t, event{data: pcm, pcm: pcm}) }
