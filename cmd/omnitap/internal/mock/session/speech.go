package session

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/ordered"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
)

// speaker is vLLM-Omni's /v1/audio/speech/stream. While a unit is made the
// client's messages wait, as in the real server.
type speaker struct {
	*session
	configured    bool
	format, split string
	stream, words bool
	text          string
	utterance     int
	waiting       []message

	t       *turn
	unit    int
	units   []string
	total   int    // bytes of the unit
	whole   []byte // samples of the unit, if it goes out as one file
	chunk   int
	mock    []byte
	frames  int // of the unit
	askedAt int64
	busy    bool
	ended   bool // input.done came for the utterance
}

const nominalRate = 24000 // what audio.start says whatever the model does

func newSpeech(s *session) flow { return &speaker{session: s} }

func (p *speaker) open() {}

func (p *speaker) reject(_, text string) {
	p.send(nil, event{name: "error", body: obj("error", "message", text)})
	if !p.configured {
		p.quit()
	}
}

func (p *speaker) receive(m message) {
	if p.busy {
		p.waiting = append(p.waiting, m)
		return
	}
	if own := m.fields["mock"]; len(own) > 0 && m.kind != "session.config" {
		p.mock = own
	}
	switch {
	case m.kind == "session.config":
		p.config(m)
	case !p.configured:
		p.reject("", "Expected session.config as the first message")
	case m.kind == "input.text":
		p.text += m.str("text")
		p.askedAt = m.ns
		if p.split != "" {
			p.advance(false)
		}
	case m.kind == "input.done":
		p.askedAt, p.ended = m.ns, true
		p.advance(true)
	case m.kind == "session.close":
		p.quitNormally()
	default:
		p.reject("", "Unknown message type: "+m.kind)
	}
}

func (p *speaker) config(m message) {
	format, stream := cmp.Or(p.Script.Format, m.str("response_format"), "wav"), m.flag("stream_audio")
	format = strings.TrimSuffix(format, "16")
	switch {
	case stream && format != "pcm":
		p.reject("", "stream_audio requires response_format 'pcm'")
		return
	case format != "pcm" && format != "wav":
		p.reject("", "response_format "+format+" is not made by this mock, only wav and pcm")
		return
	}
	if own := m.mock(); len(own) > 0 && !p.adopt(own) {
		return
	}
	p.configured, p.format, p.stream, p.words = true, format, stream, m.flag("word_timestamps")
	if p.split = m.str("split_granularity"); p.split == "none" {
		p.split = ""
	}
}

// advance starts the units that are there; the last part of the text counts
// when the input is done.
func (p *speaker) advance(done bool) {
	units := []string{strings.TrimSpace(p.text)}
	rest := ""
	if p.split != "" {
		units, rest = sentences(p.text, marks(p.split))
		if last := strings.TrimSpace(rest); done && last != "" {
			units, rest = append(units, last), ""
		}
	}
	if !done && len(units) == 0 {
		return
	}
	p.text, p.units = rest, units
	if len(units) == 1 && units[0] == "" {
		p.units = nil
	}
	if p.t == nil {
		if p.t = p.begin(p.mock, p.askedAt, plan.Wish{Audio: true}); p.t == nil {
			return
		}
		p.mock = nil
	}
	p.next()
}

// next makes the next unit or ends what there is.
func (p *speaker) next() {
	if len(p.units) == 0 {
		if p.ended {
			p.done(plan.Complete)
			return
		}
		p.busy = false
		p.resume()
		return
	}
	p.busy, p.total, p.whole, p.chunk, p.frames = true, 0, nil, 0, 0
	start := obj("audio.start", "utterance_index", p.utterance, "sentence_index", p.unit, "sentence_text", p.units[0], "format", p.format)
	if p.stream {
		rate := nominalRate
		if p.t.f.WrongRate > 0 {
			rate = p.t.f.WrongRate
		}
		start = append(start, "sample_rate", rate)
	}
	if p.words {
		start = append(start, "word_timestamps", true)
	}
	p.units = p.units[1:]
	t := p.t
	if p.unit > 0 {
		t.gen = plan.Generate(t.script, t.f, plan.Wish{Audio: true}, t.seed+uint64(p.unit))
		t.rec.Update(func(tr *truth.Truth) { tr.CleanSamples += t.gen.Clean })
	}
	p.send(t, event{name: "audio.start", body: start})
	p.run(t, p.item, p.unitDone)
}

func (p *speaker) item(it plan.Item) {
	t := p.t
	switch {
	case !isAudio(it):
	case !p.stream:
		p.whole = append(p.whole, it.Audio.PCM...)
	case p.words:
		p.chunkEvent(it, nil)
	default:
		p.binary(t, it)
	}
}

// binary sends samples as a binary message; an empty item is an empty one.
func (p *speaker) binary(t *turn, it plan.Item) {
	data := it.Audio.PCM
	if t.f.HeaderEach || it.Text == "header" {
		data = plan.File(&t.f, it.Audio)
	}
	p.total += len(data)
	p.send(t, event{kind: it.Kind, data: data, pcm: it.Audio.PCM})
}

// chunkEvent is the form of audio with word timestamps; the last is empty and
// brings the words.
func (p *speaker) chunkEvent(it plan.Item, words any) {
	c := it.Audio
	from := p.frames
	p.frames += len(c.PCM) / 2 / max(1, p.t.script.Channels)
	p.total += len(c.PCM)
	p.send(p.t, event{kind: it.Kind, name: "audio.chunk", pcm: c.PCM, body: obj(
		"audio.chunk", "utterance_index", p.utterance, "sentence_index", p.unit, "chunk_id", p.chunk,
		"chunk_start_ms", millis(from, c.Rate), "chunk_end_ms", millis(p.frames, c.Rate), "sample_rate", c.Rate,
		"audio_b64", payload(p.t, it, false), "timestamps", words,
	)})
	p.chunk++
}

func (p *speaker) unitDone() {
	t := p.t
	shape := plan.Shape(t.script, t.f, 1)
	if p.words {
		end := millis(p.frames, shape.Rate)
		p.chunkEvent(plan.Item{Kind: plan.Empty, Audio: shape}, ordered.List{ordered.Obj{"word", "word", "start_ms", 0, "end_ms", end}})
	} else if !p.stream {
		shape.PCM = p.whole
		data := shape.PCM
		if p.format == "wav" {
			data = plan.File(&t.f, shape)
		}
		p.total = len(data)
		p.send(t, event{kind: plan.Audio, data: data, pcm: shape.PCM})
	}
	if len(p.units) == 0 {
		p.output(t)
	}
	if t.dead() {
		return
	}
	p.audioDone(false)
	p.next()
}

func (p *speaker) audioDone(failed bool) {
	p.send(p.t, event{name: "audio.done", body: obj("audio.done", "utterance_index", p.utterance, "sentence_index", p.unit, "total_bytes", p.total, "error", failed)})
	p.unit++
}

// done ends the utterance, not the connection.
func (p *speaker) done(how plan.Ending) {
	t := p.t
	p.send(t, event{kind: plan.End, name: "session.done", body: obj("session.done", "utterance_index", p.utterance, "total_sentences", p.unit)})
	p.finish(t, how)
	p.t, p.busy, p.ended, p.unit, p.units = nil, false, false, 0, nil
	p.utterance++
	p.resume()
}

// resume takes the messages that waited.
func (p *speaker) resume() {
	for len(p.waiting) > 0 && !p.busy && p.err == nil {
		m := p.waiting[0]
		p.waiting = p.waiting[1:]
		p.receive(m)
	}
}

func (p *speaker) fail(t *turn) {
	p.t = t
	body := obj("error", "message", fmt.Sprintf("Generation failed for utterance %d, sentence %d: %s", p.utterance, p.unit, errorText(t.script, "mock engine fault")))
	if t.script.Variant == "0.30" && t.sounded {
		body = append(body, "partial_audio", true, "action", "discard")
	}
	p.send(t, event{name: "error", body: body})
	p.audioDone(true)
	p.done(plan.Failed)
}

func (p *speaker) late(t *turn, pcm []byte, _ bool) {
	p.extraAudio(t, event{data: pcm, pcm: pcm})
}
