package dialect

import "github.com/omnitap/omnitap/proxy/wire/jsonscan"

// Form is a family of WebSocket sessions: what its messages mean for turns.
type Form uint8

// The forms.
const (
	NoForm       Form = iota
	SpeechVLLM        // /v1/audio/speech/stream of vLLM-Omni: a turn is an utterance
	SpeechSGLang      // the same path of SGLang-Omni: a turn is a sentence
	TurnRealtime      // vLLM-Omni's turn-based /v1/realtime: no response ids
	Responses         // OpenAI-style realtime: response.created … response.done
	Duplex            // vLLM-Omni's full duplex, projected or native
	Conversation      // SGLang-Omni's conversation session (server VAD)
	Shared            // SGLang-Omni's shared session (native duplex or turn based)
	Segments          // SGLang-Omni's transcription session
	VideoChat         // /v1/video/chat/stream
	VideoOut          // /v1/realtime/video
)

var formNames = [...]string{
	"", "speech_stream", "speech_stream", "realtime_turn", "realtime_responses", "duplex", "conversation", "shared", "transcription_segments", "video_chat", "video_out",
}

// String returns the form's name as records carry it in dialect_variant.
func (f Form) String() string { return formNames[f] }

// Server returns the dialect that a form belongs to.
func (f Form) Server() string {
	switch f {
	case SpeechSGLang, Conversation, Shared, Segments:
		return SGLangOmni
	case SpeechVLLM, TurnRealtime, Duplex, VideoChat, VideoOut:
		return VLLMOmni
	case Responses:
		return OpenAI
	default:
		return Unknown
	}
}

// Kind is what a message does to its session and turns.
type Kind uint8

// Kinds of messages.
const (
	Passing     Kind = iota // acknowledgements, items, pings of JSON: nothing to time
	Opened                  // server: the session's description
	Started                 // server: a turn, or a unit of one, begins
	Output                  // server: text or sound
	TextDone                // server: the text is over
	AudioDone               // server: the sound is over
	UnitDone                // server: one sentence is over
	TurnDone                // server: the turn is over
	Failed                  // server: an error
	SpeechStart             // server: the user begins to speak
	SpeechStop              // server: the user has spoken
	Committed               // server: input is taken
	Listening               // server: the model chose to be silent
	Over                    // server: the session is over
	Cleared                 // server: input was dropped
	Segment                 // server: a whole hypothesis of a segment
	Config                  // client: configures the session
	InputText               // client: text to be spoken or answered
	InputAudio              // client: sound
	Ask                     // client: asks for output
	InputEnd                // client: ends the input
	Cancel                  // client: cancels a running turn
	Resume                  // client: takes an old session up again
	Leave                   // client: ends the session
)

// Message is what one text message of a WebSocket session means. Slices point
// into the bytes that were read.
type Message struct {
	Event
	// Kind is what the message does, Type how it calls itself.
	Kind Kind
	Type []byte
	// Form is what this message alone tells of the session, NoForm for nothing.
	Form Form
	// Key names the turn that the message belongs to: a response id, an utterance
	// or segment number; empty where it names none. Unit is its sentence number.
	Key  []byte
	Unit int64
	// Session is the session's id; Resumed one that is taken up again.
	Session string
	// EventID is the client's name of the message.
	EventID string
	// Status and Reason are how a turn ended, as the server says.
	Status, Reason string
	// Bytes is a declared total of sound, in bytes, -1 for none; of a client's
	// message the decoded size of its sound.
	Bytes int64
	// Total is a declared number of units, -1 for none.
	Total int64
	// Rate is a sample rate that a session description declares for output, and
	// InputRate for input, in Hz, 0 for none.
	Rate, InputRate int
	// Format is the sound format that is named, empty for none.
	Format string
	// Modalities are what a configuration asks for.
	Modalities []string
	// Seq is the server's running number of the event, -1 for none.
	Seq int64
	// Flag is the message's yes or no: final of a commit, error of a unit's end,
	// is_final of a segment, stopped of a session's end; of an error that the
	// session goes on; of a committed event that no answer comes of it; of a
	// listening one that it answers nothing.
	Flag bool
	// Split is how finely a speech stream cuts its text, empty for nothing said.
	Split string
	// NewName and OldName say which generation of event names the audio event has.
	NewName, OldName bool
}

// Client reads a text message of the client. An error is one of jsonscan's.
// The message is the reader's own, until its next one.
func (r *Reader) Client(data []byte) (*Message, error) {
	m := r.fresh()
	if err := r.doc.Parse(data); err != nil {
		return m, err
	}
	root := r.doc.Root()
	m.Type = plain(root.Get("type"))
	r.client(m, root)
	return m, nil
}

// fresh returns the reader's message, empty.
func (r *Reader) fresh() *Message {
	r.msg = Message{Unit: -1, Bytes: -1, Total: -1, Seq: -1}
	r.msg.Tokens = -1
	return &r.msg
}

func (r *Reader) client(m *Message, root jsonscan.Value) {
	switch string(m.Type) {
	case "session.config", "session.update", "session.create":
		m.Kind = Config
		configured(m, root)
	case "input.text", "input.text.append":
		m.Kind, m.Text = InputText, r.text(root.Get("text"))
	case "conversation.item.create":
		m.Kind = InputText
	case "input_audio_buffer.append":
		m.Kind, m.Bytes = InputAudio, decodedLen(root.Get("audio"))
	case "audio.chunk":
		m.Kind, m.Bytes = InputAudio, decodedLen(root.Get("data"))
	case "input_audio_buffer.commit":
		m.Kind = Ask
		f := root.Get("final")
		m.Flag = f.True()
		if m.Flag {
			m.Kind = InputEnd
		}
	case "input.done", "input.commit", "response.create", "video.query", "session.start":
		m.Kind = Ask
		m.Bytes = decodedLen(root.Get("audio_data"))
		m.Modalities = modalities(root.Get("response"))
		m.Model = root.Get("model").Str()
	case "sglang.input_audio.end", "transcription.done":
		m.Kind = InputEnd
	case "response.cancel":
		m.Kind, m.Key = Cancel, plain(root.Get("response_id"))
	case "session.resume":
		m.Kind = Resume
		m.Session = root.Get("session_id").Str()
	case "session.close", "video.done", "session.stop":
		m.Kind = Leave
	default: // the rest times nothing
	}
	if id := root.Get("event_id"); id.There() {
		m.EventID = id.Str()
	}
}

// configured reads what a client asks the session to be.
func configured(m *Message, root jsonscan.Value) {
	s := root.Get("session")
	if s.Kind() != jsonscan.Object {
		s = root
	}
	m.Model = s.Get("model").Str()
	m.Modalities = modalities(s)
	m.Format = s.Get("response_format").Str()
	m.Split = s.Get("split_granularity").Str()
}

// modalities reads what is asked for, by either of its names.
func modalities(v jsonscan.Value) []string {
	var out []string
	for _, name := range []string{"output_modalities", "modalities"} {
		for x := range v.Get(name).All() {
			out = append(out, x.Str())
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

// decodedLen returns the size of what a base64 string holds, -1 for no string.
func decodedLen(v jsonscan.Value) int64 {
	if v.Kind() != jsonscan.String {
		return -1
	}
	raw := v.Raw()
	if !v.Plain() {
		raw, _ = v.Text(nil)
	}
	n := len(raw)
	for n > 0 && raw[n-1] == '=' {
		n--
	}
	return int64(n) * 3 / 4
}
