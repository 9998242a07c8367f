package dialect

import (
	"strings"

	"github.com/omnitap/omnitap/proxy/wire/jsonscan"
)

// fields are the members of a server's message that are looked at.
type fields struct {
	root                                         jsonscan.Value
	id, responseID, response, session, sessionID jsonscan.Value
	delta, audio, data, audioB64, text           jsonscan.Value
	format, rateHz, rate, failed                 jsonscan.Value
	unit, utterance, segment, seq                jsonscan.Value
}

// pick goes over the members once.
func pick(root jsonscan.Value) (kind jsonscan.Value, f fields) {
	f.root = root
	for m := range root.All() {
		switch string(m.Key()) {
		case "type":
			kind = m
		case "id":
			f.id = m
		case "response_id":
			f.responseID = m
		case "response":
			f.response = m
		case "session":
			f.session = m
		case "session_id":
			f.sessionID = m
		case "delta":
			f.delta = m
		case "audio":
			f.audio = m
		case "data":
			f.data = m
		case "audio_b64":
			f.audioB64 = m
		case "text":
			f.text = m
		case "format":
			f.format = m
		case "sample_rate_hz":
			f.rateHz = m
		case "sample_rate":
			f.rate = m
		case "error":
			f.failed = m
		case "sentence_index":
			f.unit = m
		case "utterance_index":
			f.utterance = m
		case "segment_id":
			f.segment = m
		case "server_event_seq", "event_index":
			f.seq = m
		}
	}
	return kind, f
}

// Server reads a text message of the server. An error is one of jsonscan's.
func (r *Reader) Server(data []byte) (Message, error) {
	m := Message{Unit: -1, Bytes: -1, Total: -1, Seq: -1}
	m.Tokens = -1
	if err := r.doc.Parse(data); err != nil {
		return m, err
	}
	r.parts = r.parts[:0]
	kind, f := pick(r.doc.Root())
	m.Type = plain(kind)
	if n, ok := f.seq.Int(); ok {
		m.Seq = n
	}
	if n, ok := f.unit.Int(); ok {
		m.Unit = n
	}
	m.Key = key(f)
	t := string(m.Type)
	switch {
	case strings.HasPrefix(t, "response."):
		r.response(&m, t[len("response."):], f)
	case strings.HasPrefix(t, "session."):
		r.sessionEvent(&m, t[len("session."):], f)
	case strings.HasPrefix(t, "audio."):
		r.speechUnit(&m, t[len("audio."):], f)
	case strings.HasPrefix(t, "input_audio_buffer."):
		buffered(&m, t[len("input_audio_buffer."):])
	case strings.HasPrefix(t, "transcription."):
		r.transcription(&m, t[len("transcription."):], f)
	case t == "error":
		m.Kind, m.Err = Failed, failure(f.root)
		m.EventID = f.failed.Get("event_id").Str()
	default:
		r.passing(&m, t, f)
	}
	m.Parts = r.parts
	return m, nil
}

// key returns what names the turn: an id, or the digits of an index.
func key(f fields) []byte {
	for _, v := range []jsonscan.Value{f.responseID, f.response.Get("id"), f.segment, f.utterance} {
		if v.There() {
			return v.Raw()
		}
	}
	return nil
}

// response reads response.*: the names of three dialects and two generations.
func (r *Reader) response(m *Message, t string, f fields) {
	switch t {
	case "audio.delta", "output_audio.delta":
		m.Kind = Output
		m.OldName, m.NewName = t == "audio.delta", t != "audio.delta"
		r.sound(m, f)
	case "text.delta", "output_text.delta", "audio_transcript.delta", "output_audio_transcript.delta":
		m.Kind, m.Text = Output, r.text(f.delta)
	case "reasoning.delta", "reasoning_text.delta", "reasoning_summary_text.delta":
		m.Kind, m.Reasoning = Output, r.text(f.delta)
	case "function_call_arguments.delta", "function_call_arguments.done":
		m.Kind, m.Tool = Output, true
	case "text.done", "output_text.done", "audio_transcript.done", "output_audio_transcript.done":
		m.Kind = TextDone
	case "audio.done", "output_audio.done":
		m.Kind = AudioDone
		m.Flag = f.root.Get("has_audio").True()
	case "created":
		m.Kind, m.Form = Started, Responses
		if f.sessionID.There() && f.root.Get("epoch").There() {
			m.Form = Duplex
		}
		m.ID = string(m.Key)
	case "start":
		m.Kind, m.Form = Started, VideoChat
	case "done", "cancelled", "failed", "incomplete":
		m.Kind = TurnDone
		ended(m, t, f)
	case "listen":
		m.Kind, m.Form = Listening, Duplex
	case "speak", "output_item.added", "output_item.done", "content_part.added", "content_part.done":
	default:
		r.unknown(m, f.root)
	}
}

// sound reads a delta of sound: the payload's name differs by dialect.
func (r *Reader) sound(m *Message, f fields) {
	v := f.delta
	for _, other := range []jsonscan.Value{f.audio, f.data} {
		if v.Kind() == jsonscan.Missing {
			v = other
		}
	}
	rate := number(f.rateHz)
	if rate == 0 {
		rate = number(f.rate)
	}
	r.part(&m.Event, v, Part{Format: f.format.Str(), Rate: rate})
}

// ended reads how a response ended, nested or flat.
func ended(m *Message, t string, f fields) {
	src := f.response
	if src.Kind() != jsonscan.Object {
		src = f.root
	}
	m.Status = src.Get("status").Str()
	if m.Status == "" && t != "done" {
		m.Status = t
	}
	d := src.Get("status_details")
	m.Reason = d.Get("reason").Str()
	if m.Reason == "" {
		m.Reason = src.Get("reason").Str()
	}
	if d.Get("error").There() {
		m.Err = failure(d)
	}
	if n, ok := src.Get("usage").Get("output_tokens").Int(); ok {
		m.Tokens = n
	}
}

// sessionEvent reads session.*.
func (r *Reader) sessionEvent(m *Message, t string, f fields) {
	switch t {
	case "created", "updated", "configured":
		m.Kind = Opened
		m.Form = formOf(t, f)
		r.description(m, f)
	case "done":
		m.Kind = TurnDone
		if n, ok := f.root.Get("total_sentences").Int(); ok {
			m.Total = n
		}
		m.Flag = f.sessionID.There()
	case "closed", "expired", "replaced", "resync_required":
		m.Kind, m.Reason = Over, f.root.Get("reason").Str()
		if m.Reason == "" && t != "closed" {
			m.Reason = t
		}
	default:
	}
}

// formOf tells the form by how the session is described.
func formOf(t string, f fields) Form {
	s := f.session
	has := func(name string) bool { return s.Get(name).Kind() != jsonscan.Missing }
	switch {
	case t == "configured":
		return SpeechSGLang
	case s.Kind() != jsonscan.Object && t == "created":
		return TurnRealtime
	case has("sglang"):
		return Shared
	case s.Get("intent").Str() == "transcription":
		return Segments
	case has("turn_state"), has("epoch"):
		return Duplex
	case s.Get("capabilities").Get("turn_detection").There():
		return Conversation
	case s.Kind() == jsonscan.Object && t == "created":
		return Responses
	}
	return NoForm
}

// description reads ids, model and rates of a session.
func (r *Reader) description(m *Message, f fields) {
	s := f.session
	for _, v := range []jsonscan.Value{s.Get("id"), f.sessionID, f.id} {
		if m.Session == "" {
			m.Session = v.Str()
		}
	}
	m.Model = s.Get("model").Str()
	granted, a := s.Get("sglang").Get("granted"), s.Get("audio")
	for _, v := range []jsonscan.Value{granted.Get("output_audio_format").Get("rate"), a.Get("output").Get("format").Get("rate"), a.Get("output").Get("sample_rate_hz")} {
		if n := number(v); n > 0 && m.Rate == 0 {
			m.Rate = n
		}
	}
	for _, v := range []jsonscan.Value{granted.Get("input_audio_format").Get("rate"), a.Get("input").Get("format").Get("rate"), a.Get("input").Get("sample_rate_hz")} {
		if n := number(v); n > 0 && m.InputRate == 0 {
			m.InputRate = n
		}
	}
	for _, name := range []string{"output_modalities", "modalities"} {
		if len(m.Modalities) > 0 {
			break
		}
		for x := range s.Get(name).All() {
			m.Modalities = append(m.Modalities, x.Str())
		}
	}
	m.Format = s.Get("output_audio_format").Str()
	if m.Format == "" {
		m.Format = f.root.Get("response_format").Str()
	}
}

// speechUnit reads audio.*: one sentence of a speech stream.
func (r *Reader) speechUnit(m *Message, t string, f fields) {
	m.Form = SpeechVLLM
	if !f.utterance.There() {
		m.Form = SpeechSGLang
	}
	m.Format = f.format.Str()
	switch t {
	case "start":
		m.Kind, m.ID, m.Rate = Started, f.id.Str(), number(f.rate)
		m.Text = r.text(f.root.Get("sentence_text"))
	case "chunk":
		m.Kind = Output
		r.part(&m.Event, f.audioB64, Part{Format: "pcm", Rate: number(f.rate)})
	case "done":
		m.Kind = UnitDone
		m.Flag = f.failed.True()
		if n, ok := f.root.Get("total_bytes").Int(); ok {
			m.Bytes = n
		}
	default:
		m.Form = NoForm
		r.unknown(m, f.root)
	}
}

// buffered reads input_audio_buffer.*.
func buffered(m *Message, t string) {
	switch t {
	case "speech_started":
		m.Kind = SpeechStart
	case "speech_stopped":
		m.Kind = SpeechStop
	case "committed":
		m.Kind = Committed
	default: // cleared and the like
	}
}

// transcription reads transcription.*: the model's answer in vLLM-Omni's turn
// dialect, the user's words in SGLang-Omni's transcription sessions.
func (r *Reader) transcription(m *Message, t string, f fields) {
	switch t {
	case "delta":
		m.Kind, m.Form, m.Text = Output, TurnRealtime, r.text(f.delta)
	case "done":
		m.Kind, m.Form = TextDone, TurnRealtime
		if n, ok := f.root.Get("usage").Get("completion_tokens").Int(); ok {
			m.Tokens = n
		}
	case "segment":
		m.Kind, m.Form, m.Text = Segment, Segments, r.text(f.text)
		m.Flag = f.root.Get("is_final").True()
	case "completed":
		m.Kind = Over
	default:
		r.unknown(m, f.root)
	}
}

// passing reads what is left: much of it only acknowledges.
func (r *Reader) passing(m *Message, t string, f fields) {
	switch t {
	case "video.start":
		m.Kind, m.Form, m.ID = Started, VideoOut, f.root.Get("request_id").Str()
	case "video.frames.consumed":
		m.Form, m.ID = VideoChat, f.root.Get("request_id").Str()
	case "video.frame.ack":
		m.Form = VideoChat
	case "input.committed":
		m.Kind = Committed
	case "video.chunk_metadata", "rate_limits.updated", "pong", "overlap.decision", "playback.acknowledged":
	default:
		for _, prefix := range []string{"conversation.", "sglang.", "input.", "output_audio_buffer.", "playback.", "video.", "duplex."} {
			if strings.HasPrefix(t, prefix) {
				return
			}
		}
		r.unknown(m, f.root)
	}
}

func (r *Reader) unknown(m *Message, root jsonscan.Value) {
	m.Unknown, m.AudioLike = true, audioLike(root)
}
