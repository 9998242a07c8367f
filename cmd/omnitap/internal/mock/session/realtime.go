package session

import (
	"slices"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/ordered"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
)

// turns is vLLM-Omni's turn-based /v1/realtime. Its audio events have spaces,
// the others have not.
type turns struct {
	*session
	validated bool
	t         *turn
	running   bool // the turn has begun to answer
}

func newTurns(s *session) flow { return &turns{session: s} }

func (r *turns) open() {
	r.name = "sess-" + r.Hex(16)
	r.send(nil, event{name: "session.created", body: obj("session.created", "id", r.name, "created", int(time.Now().Unix()))})
}

func (r *turns) reject(code, text string) { r.send(nil, r.errorEvent(code, text)) }

func (r *turns) errorEvent(code, text string) event {
	return event{name: "error", body: obj("error", "error", text, "code", code)}
}

func (r *turns) receive(m message) {
	switch m.kind {
	case "session.update":
		r.update(m)
	case "input_audio_buffer.append":
		if len(m.audio()) == 0 {
			r.reject("invalid_audio", "Invalid audio data")
		}
	case "input_audio_buffer.commit":
		r.commit(m)
	case "":
		r.reject("invalid_json", "Invalid JSON")
	default:
		r.reject("unknown_event", "Unknown event type: "+m.kind)
	}
}

func (r *turns) update(m message) {
	model := m.str("model")
	switch own := m.mock(); {
	case model == "":
		r.reject("invalid_event", "session.update requires a model")
	case len(r.Script.Models) > 0 && !slices.Contains(r.Script.Models, model):
		r.reject("model_not_found", "The model `"+model+"` does not exist.")
	case len(own) > 0 && !r.adopt(own):
	default:
		r.validated = true
	}
}

// commit opens a turn when it is not final and lets it answer when it is.
func (r *turns) commit(m message) {
	if !r.validated {
		r.reject("model_not_validated", "Model not validated. Send session.update first.")
		return
	}
	final := m.flag("final")
	if r.t != nil && r.running || r.t != nil && !final {
		return // the real server takes no notice
	}
	if r.t == nil {
		if r.t = r.begin(m.fields["mock"], m.ns, plan.Wish{Text: true, Audio: true}); r.t == nil {
			return
		}
	}
	if !final && !r.t.script.Eager {
		return
	}
	if !r.t.script.Eager {
		r.t.rec.Asked(m.ns)
	}
	r.running = true
	r.run(r.t, r.item, r.done)
}

func (r *turns) item(it plan.Item) {
	switch {
	case it.Kind == plan.Text:
		r.send(r.t, event{kind: plan.Text, name: "transcription.delta", text: it.Text, body: obj("transcription.delta", "delta", it.Text)})
	case isAudio(it):
		r.send(r.t, r.audio(r.t, it))
	}
}

func (r *turns) audio(t *turn, it plan.Item) event {
	name := r.audioName(t.script.Names, ".delta")
	return event{
		kind: it.Kind, name: name, pcm: it.Audio.PCM, style: &ordered.Spaced,
		body: obj(name, "audio", payload(t, it, false), "format", "pcm16", "sample_rate_hz", it.Audio.Rate),
	}
}

func (r *turns) done() {
	t, n := r.t, r.t.gen.Count(plan.Text)
	r.output(t)
	if t.dead() {
		return
	}
	r.send(t, event{name: "transcription.done", body: obj("transcription.done", "text", t.text.String(), "usage", ordered.Obj{
		"prompt_tokens", 1, "total_tokens", n + 1, "completion_tokens", n, "prompt_tokens_details", nil,
	})})
	r.audioDone(plan.Complete)
}

func (r *turns) audioDone(how plan.Ending) {
	t := r.t
	name := r.audioName(t.script.Names, ".done")
	r.send(t, event{kind: plan.End, name: name, style: &ordered.Spaced, body: obj(name, "has_audio", t.sounded)})
	r.finish(t, how)
	r.t, r.running = nil, false
}

func (r *turns) fail(t *turn) {
	r.t = t
	r.send(t, r.errorEvent("processing_error", errorText(t.script, "mock engine fault")))
	r.audioDone(plan.Failed)
}

func (r *turns) late(t *turn, pcm []byte, _ bool) {
	shape := plan.Shape(t.script, t.f, 1)
	shape.PCM, shape.N = pcm, -1
	r.extraAudio(t, r.audio(t, plan.Item{Kind: plan.Audio, Audio: shape}))
}
