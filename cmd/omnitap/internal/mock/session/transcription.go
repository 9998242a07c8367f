package session

import (
	"cmp"
	"strings"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/ordered"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
)

// transcription is SGLang-Omni's /v1/realtime?intent=transcription: text only.
// Each segment of speech is a turn; its text is the whole hypothesis.
type transcription struct {
	*session
	vad     *vad
	index   int // of events
	segment int
	from    int // ms where the segment starts
	inBytes int // appended
	decoded int // intervals that were decoded
	t       *turn
	texts   []string
}

const decodeEveryMS = 600

func newTranscription(s *session) flow {
	s.style = ordered.Spaced
	return &transcription{session: s, vad: &vad{rate: 16000, silenceMS: 500}}
}

// put sends an event; its id and its number are the last fields.
func (r *transcription) put(t *turn, e event, more ...any) {
	r.index++
	e.body = append(obj(e.name, more...), "event_id", "evt_"+r.Hex(32), "event_index", r.index)
	r.send(t, e)
}

func (r *transcription) open() {
	r.name = "sess_" + r.Hex(32)
	r.put(nil, event{name: "session.created"}, "session", r.config(nil))
}

func (r *transcription) config(language any) ordered.Obj {
	return ordered.Obj{
		"id", r.name, "object", "realtime.session", "model", cmp.Or(r.Request.URL.Query().Get("model"), "mock-omni"), "intent", "transcription",
		"input_audio_format", "pcm16", "language", language, "decode_interval_ms", decodeEveryMS, "turn_detection",
		ordered.Obj{"type", "server_vad"},
	}
}

func (r *transcription) reject(code, text string) {
	r.put(nil, event{name: "error"}, "error", ordered.Obj{"type", "invalid_request_error", "code", code, "message", text})
}

func (r *transcription) receive(m message) {
	switch m.kind {
	case "session.update":
		if own := m.mock(); len(own) == 0 || r.adopt(own) {
			s := m.sub("session")
			r.vad.silenceMS = cmp.Or(get[int](s.sub("turn_detection"), "silence_duration_ms"), r.vad.silenceMS)
			r.put(nil, event{name: "session.updated"}, "session", r.config(s.value("language")))
		}
	case "input_audio_buffer.append":
		r.append(m)
	case "input_audio_buffer.commit":
		r.stopped(m, r.vad.atMS)
	case "input_audio_buffer.clear":
		r.put(nil, event{name: "input_audio_buffer.cleared"})
	case "transcription.done":
		r.put(nil, event{name: "transcription.completed"}, "text", strings.Join(r.texts, " "))
	default:
		r.reject("unknown_event", "Unsupported event type: "+m.kind)
	}
}

func (r *transcription) append(m message) {
	pcm := m.audio()
	r.inBytes += len(pcm)
	for _, sp := range r.vad.feed(pcm) {
		if !sp.started {
			r.stopped(m, sp.ms)
			continue
		}
		if r.t = r.begin(m.fields["mock"], m.ns, plan.Wish{Text: true}); r.t == nil {
			return
		}
		r.t.gen.Items = nil // what is heard is the text
		r.from = sp.ms
		r.t.id = numbered("", r.segment)
		r.put(r.t, event{name: "input_audio_buffer.speech_started"}, "audio_start_ms", sp.ms, "segment_id", r.segment)
	}
	for ; (r.decoded+1)*decodeEveryMS*32 <= r.inBytes; r.decoded++ {
		if to := (r.decoded + 1) * decodeEveryMS; r.t != nil && to > r.from {
			r.hypothesis(to, false)
		}
	}
}

// hypothesis tells the words of the audio up to a time: one for each 300 ms.
func (r *transcription) hypothesis(to int, final bool) {
	heard := r.t.script.Heard
	text := strings.TrimSpace(strings.Join(heard[:min(len(heard), (to-r.from)/300)], ""))
	kind := plan.Text
	if final {
		kind = plan.End
		r.texts = append(r.texts, text)
	}
	r.put(r.t, event{kind: kind, name: "transcription.segment", text: text},
		"segment_id", r.segment, "audio_start_ms", r.from, "audio_end_ms", to, "text", text, "is_final", final)
}

func (r *transcription) stopped(m message, to int) {
	if r.t == nil {
		return
	}
	t := r.t
	t.rec.Asked(m.ns)
	r.put(t, event{name: "input_audio_buffer.speech_stopped"}, "audio_end_ms", to, "segment_id", r.segment)
	r.put(t, event{name: "input_audio_buffer.committed"}, "segment_id", r.segment)
	r.output(t)
	if t.dead() {
		return
	}
	r.hypothesis(to, true)
	r.close(plan.Complete)
}

func (r *transcription) close(how plan.Ending) {
	t := r.t
	r.t = nil
	r.segment++
	r.finish(t, how)
}

func (r *transcription) fail(t *turn) {
	r.t = t
	r.put(t, event{name: "error"}, "error", ordered.Obj{"type", "server_error", "code", "transcription_failed", "message", errorText(t.script, "mock engine fault")})
	r.close(plan.Failed)
}

func (r *transcription) late(*turn, []byte, bool) {}
