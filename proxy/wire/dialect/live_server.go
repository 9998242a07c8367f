package dialect

import (
	"bytes"

	"github.com/omnitap/omnitap/proxy/wire/jsonscan"
)

// fields are the members of a server's message that are looked at.
type fields struct {
	root                                         jsonscan.Value
	id, responseID, response, session, sessionID jsonscan.Value
	delta, audio, data, audioB64, text           jsonscan.Value
	format, rateHz, rate, failed                 jsonscan.Value
	unit, utterance, segment, seq, index         jsonscan.Value
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
		case "server_event_seq":
			f.seq = m
		case "event_index":
			f.index = m
		}
	}
	return kind, f
}

// Server reads a text message of the server. An error is one of jsonscan's. The
// message is the reader's own, until its next one.
func (r *Reader) Server(data []byte) (*Message, error) {
	m := r.fresh()
	if err := r.doc.Parse(data); err != nil {
		return m, err
	}
	r.parts = r.parts[:0]
	kind, f := pick(r.doc.Root())
	m.Type = plain(kind)
	for _, v := range []jsonscan.Value{f.index, f.seq} {
		if n, ok := v.Int(); ok {
			m.Seq = n
		}
	}
	if n, ok := f.unit.Int(); ok {
		m.Unit = n
	}
	m.Key = key(f)
	family, t, _ := bytes.Cut(m.Type, dot)
	switch string(family) {
	case "response":
		r.response(m, t, f)
	case "session":
		r.sessionEvent(m, t, f)
	case "audio":
		r.speechUnit(m, t, f)
	case "input_audio_buffer":
		buffered(m, t, f)
	case "transcription":
		r.transcription(m, t, f)
	case "error":
		m.Kind, m.Err = Failed, failure(f.root)
		fatal := f.root.Get("sglang").Get("fatal")
		m.Flag = fatal.Kind() == jsonscan.Bool && !fatal.True() // it says that the session goes on
		m.EventID = f.failed.Get("event_id").Str()
		if f.root.Get("error_type").There() {
			m.Form = SpeechSGLang // its errors are flat, and say their type beside them
		}
	default:
		r.passing(m, family, f)
	}
	if f.seq.There() && (m.Form == NoForm || m.Form == Responses) {
		m.Form = Duplex // only it numbers its events
	}
	m.Parts = r.parts
	return m, nil
}

// maxKey bounds what names a turn: longer ones are none of these servers'.
const maxKey = 256

// key returns what names the turn: an id, or the digits of an index.
func key(f fields) []byte {
	for _, v := range [...]jsonscan.Value{f.responseID, f.response.Get("id"), f.segment, f.utterance} {
		raw := v.Raw()
		switch k := v.Kind(); {
		case k != jsonscan.String && k != jsonscan.Number || len(raw) == 0 || len(raw) > maxKey:
			continue
		case k == jsonscan.String && !v.Plain():
			raw, _ = v.Text(nil)
		}
		return raw
	}
	return nil
}

var dot = []byte{'.'}

// formats are the names of sound formats: they are not made anew for each event.
var formats = []string{"pcm16", "pcm", "pcm_s16le", "wav", "g711_ulaw", "g711_alaw", "mp3", "flac", "opus", "aac", "s16le"}

// format returns the name of a sound format, empty for none.
func format(v jsonscan.Value) string {
	raw := v.Raw()
	if v.Plain() {
		for _, name := range formats {
			if string(raw) == name {
				return name
			}
		}
	}
	return v.Str()
}

// response reads response.*: the names of three dialects and two generations.
func (r *Reader) response(m *Message, t []byte, f fields) {
	switch string(t) {
	case "audio.delta", "output_audio.delta":
		m.Kind = Output
		m.OldName = string(t) == "audio.delta"
		m.NewName = !m.OldName
		r.sound(m, f)
	case "text.delta", "output_text.delta", "audio_transcript.delta", "output_audio_transcript.delta":
		m.Kind, m.Text = Output, r.text(f.delta)
	case "reasoning.delta", "reasoning_text.delta", "reasoning_summary_text.delta":
		m.Kind, m.Reasoning = Output, r.text(f.delta)
	case "function_call_arguments.delta", "function_call_arguments.done":
		m.Kind, m.Tool = Output, true
	case "text.done", "output_text.done", "audio_transcript.done", "output_audio_transcript.done":
		m.Kind, m.Final = TextDone, true // its text counts where no delta came
		if m.Text = r.text(f.text); m.Text == nil {
			m.Text = r.text(f.root.Get("transcript"))
		}
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
	case "done":
		ended(m, "", f)
	case "cancelled":
		ended(m, "cancelled", f)
	case "failed":
		ended(m, "failed", f)
	case "incomplete":
		ended(m, "incomplete", f)
	case "listen":
		m.Kind, m.Form = Listening, Duplex
		meta := f.response.Get("metadata")
		listens := meta.Get("model_listen")
		m.Reason = meta.Get("reason").Str()
		m.Flag = meta.Get("buffering").True() || listens.Kind() == jsonscan.Bool && !listens.True()
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
	r.part(&m.Event, v, Part{Format: format(f.format), Rate: rate})
	m.Text = r.text(f.text)
}

// ended reads how a response ended, nested or flat; status is what its name says.
func ended(m *Message, status string, f fields) {
	m.Kind = TurnDone
	src := f.response
	if src.Kind() != jsonscan.Object {
		src = f.root
	}
	m.Status = src.Get("status").Str()
	if m.Status == "" {
		m.Status = status
	}
	d := src.Get("status_details")
	m.Reason = d.Get("reason").Str()
	if m.Reason == "" {
		m.Reason = src.Get("reason").Str()
	}
	if d.Get("error").There() {
		m.Err = failure(d)
	}
	usage := src.Get("usage")
	for _, name := range []string{"completion_tokens", "output_tokens"} {
		if n, ok := usage.Get(name).Int(); ok {
			m.Tokens = n
		}
	}
}

// sessionEvent reads session.*.
func (r *Reader) sessionEvent(m *Message, t []byte, f fields) {
	switch string(t) {
	case "created", "updated", "configured":
		m.Kind = Opened
		m.Form = formOf(string(t), f)
		r.description(m, f)
	case "done":
		m.Kind = TurnDone
		if n, ok := f.root.Get("total_sentences").Int(); ok {
			m.Total = n
		}
		m.Flag = f.root.Get("stopped").True()
		switch {
		case f.utterance.There():
			m.Form = SpeechVLLM
		case f.sessionID.There() && m.Total >= 0:
			m.Form = SpeechSGLang
		case m.Total >= 0:
			m.Form = SpeechVLLM
		}
	case "closed", "expired", "replaced", "resync_required":
		m.Kind, m.Reason = Over, f.root.Get("reason").Str()
		if m.Reason == "" && string(t) != "closed" {
			m.Reason = string(t)
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
	m.Split = f.root.Get("split_granularity").Str()
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
	m.Modalities = modalities(s)
	m.Format = s.Get("output_audio_format").Str()
	if m.Format == "" {
		m.Format = f.root.Get("response_format").Str()
	}
}

// speechUnit reads audio.*: one sentence of a speech stream.
func (r *Reader) speechUnit(m *Message, t []byte, f fields) {
	m.Form = SpeechVLLM
	if f.id.There() && !f.utterance.There() {
		m.Form = SpeechSGLang
	}
	m.Format = format(f.format)
	switch string(t) {
	case "cancelled": // the native duplex form's own
		m.Kind, m.Form, m.Status, m.Reason = TurnDone, Duplex, "cancelled", f.root.Get("reason").Str()
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
func buffered(m *Message, t []byte, f fields) {
	switch string(t) {
	case "speech_started":
		m.Kind = SpeechStart
	case "speech_stopped":
		m.Kind = SpeechStop
	case "committed":
		m.Kind = Committed
		e := f.root.Get("event")
		m.Flag = e.Get("no_response").True() || e.Get("empty").True() || e.Get("overlap_ack").True()
	case "cleared":
		m.Kind = Cleared
	default:
	}
}

// transcription reads transcription.*: the model's answer in vLLM-Omni's turn
// dialect, the user's words in SGLang-Omni's transcription sessions.
func (r *Reader) transcription(m *Message, t []byte, f fields) {
	switch string(t) {
	case "delta":
		m.Kind, m.Form, m.Text = Output, TurnRealtime, r.text(f.delta)
	case "done":
		m.Kind, m.Form, m.Final, m.Text = TextDone, TurnRealtime, true, r.text(f.text)
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
func (r *Reader) passing(m *Message, family []byte, f fields) {
	switch string(m.Type) {
	case "video.start":
		m.Kind, m.Form, m.ID = Started, VideoOut, f.root.Get("request_id").Str()
	case "video.frames.consumed":
		m.Form, m.ID = VideoChat, f.root.Get("request_id").Str()
	case "video.frame.ack":
		m.Form = VideoChat
	case "input.committed":
		m.Kind, m.Flag = Committed, f.root.Get("empty").True()
	case "pong":
	default:
		switch string(family) {
		case "conversation", "sglang", "input", "output_audio_buffer", "playback", "video", "duplex", "rate_limits", "overlap":
		default:
			r.unknown(m, f.root)
		}
	}
}

func (r *Reader) unknown(m *Message, root jsonscan.Value) {
	m.Unknown, m.AudioLike = true, audioLike(root)
}
