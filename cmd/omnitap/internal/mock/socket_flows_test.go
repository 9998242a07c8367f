package mock

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
)

// turnsOf are the turns of a server's sessions.
func turnsOf(s *Server) []Truth {
	return slices.DeleteFunc(s.Requests(), func(r Truth) bool { return r.Form != "turn" })
}

// quickTurns is a script of two texts and two chunks without waits.
const quickTurns = `"steps":[{"text":"He"},{"samples":50},{"text":"llo"},{"samples":40}]`

// What the recorded servers never showed: the events of each flow in order,
// and the totals.
func TestSessionFlows(t *testing.T) {
	tests := []struct {
		name, path, script string
		say                []string
		last               string // event that ends the session's talk
		want               []string
		end, text          string // of the last turn
		samples            int
	}{
		{
			"openai", "/v1/realtime", `{"dialect":"openai",` + quickTurns + `}`,
			[]string{appendAudio(100, true), `{"type":"input_audio_buffer.commit"}`, create},
			"response.done",
			[]string{
				"session.created", "conversation.created", "input_audio_buffer.committed", "conversation.item.added", "conversation.item.done",
				"response.created", "response.output_item.added", "response.content_part.added",
				"response.output_audio_transcript.delta", "response.output_audio.delta", "response.output_audio_transcript.delta", "response.output_audio.delta",
				"response.output_audio.done", "response.output_audio_transcript.done", "response.content_part.done", "response.output_item.done",
				"conversation.item.added", "conversation.item.done", "response.done",
			},
			"complete", "Hello", 90,
		},
		{
			"openai text", "/v1/realtime", `{"dialect":"vllm-omni","realtime":"openai","text":["a"]}`,
			[]string{`{"type":"session.update","session":{"output_modalities":["text"]}}`, create},
			"response.done",
			[]string{
				"session.created", "conversation.created", "session.updated", "response.created", "response.output_item.added", "response.content_part.added",
				"response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done",
				"conversation.item.added", "conversation.item.done", "response.done",
			},
			"complete", "a", 0,
		},
		{
			"openai, superseded", "/v1/realtime", `{"dialect":"openai","steps":[{"text":"a"},{"wait_ms":60000,"text":"b"}]}`,
			[]string{create, `{"type":"response.create","mock":{"steps":[]}}`},
			"response.done",
			[]string{"session.created", "conversation.created", "response.created"},
			"", "", 0,
		},
		{
			"video out", "/v1/realtime/video", `{"chunks":2,"samples":4}`,
			[]string{`{"type":"session.start","prompt":"p","format":"m4s","fps":8}`},
			"session.done",
			[]string{"video.start", "video.chunk_metadata", "binary", "video.chunk_metadata", "binary", "video.chunk_metadata", "binary", "session.done"},
			"complete", "", 0,
		},
		{
			"word timestamps", speechPath, `{"chunks":2,"samples":[30,20]}`,
			[]string{`{"type":"session.config","response_format":"pcm","stream_audio":true,"word_timestamps":true}`, inputText, inputDone},
			"session.done",
			[]string{"audio.start", "audio.chunk", "audio.chunk", "audio.chunk", "audio.done", "session.done"},
			"complete", "", 50,
		},
		{
			"several sentences", speechPath, `{"variant":"0.30","chunks":1,"samples":9}`,
			[]string{`{"type":"session.config","response_format":"pcm","stream_audio":true,"split_granularity":"sentence"}`, `{"type":"input.text","text":"One. Two. Th"}`, `{"type":"input.text","text":"ree"}`, inputDone},
			"session.done",
			[]string{"audio.start", "binary", "audio.done", "audio.start", "binary", "audio.done", "audio.start", "binary", "audio.done", "session.done"},
			"complete", "", 27,
		},
		{
			"nothing to say", speechPath, `{}`, []string{configPCM, inputDone}, "session.done", []string{"session.done"}, "complete", "", 0,
		},
		{
			"no config", speechPath, `{}`, []string{inputText}, "error", []string{"error"}, "", "", 0,
		},
		{
			"turn-based", "/v1/realtime", `{"dialect":"sglang-omni","realtime":"turn-based",` + quickTurns + `}`,
			[]string{`{"type":"session.update","event_id":"a","session":{}}`, `{"type":"input_audio_buffer.commit","event_id":"b"}`},
			"response.done",
			[]string{
				"session.created", "session.updated", "response.created", "response.output_text.delta", "response.output_audio.delta",
				"response.output_text.delta", "response.output_audio.delta", "response.output_text.done", "response.output_audio.done", "response.done",
			},
			"complete", "Hello", 90,
		},
		{
			"shared, no event id", "/v1/realtime", `{"dialect":"sglang-omni","realtime":"shared"}`,
			[]string{`{"type":"session.update"}`},
			"error",
			[]string{"session.created", "error"},
			"", "", 0,
		},
		{
			"duplex, audio committed", duplexPath, `{` + quickTurns + `}`,
			[]string{update, appendAudio(100, true), `{"type":"input_audio_buffer.commit"}`},
			"response.output_item.added",
			[]string{
				"session.created", "session.updated", "input_audio_buffer.speech_started", "conversation.item.added", "conversation.item.created",
				"input_audio_buffer.committed", "conversation.item.input_audio_transcription.completed", "conversation.item.done",
				"response.created", "conversation.item.added", "conversation.item.created", "response.output_item.added",
			},
			"", "", 0,
		},
		{
			"duplex, barge-in", duplexPath, `{"steps":[{"text":"a"},{"samples":5},{"wait_ms":60000,"samples":1}]}`,
			[]string{update, item, create, appendAudio(1300, true)},
			"response.done", nil, "cancelled", "", 0,
		},
		{
			"turns without a model", "/v1/realtime", `{}`,
			[]string{`{"type":"input_audio_buffer.commit","final":true}`},
			"error",
			[]string{"session.created", "error"},
			"", "", 0,
		},
		{
			"turns from the first commit on", "/v1/realtime", `{"eager":true,` + quickTurns + `}`,
			[]string{`{"type":"session.update","model":"m"}`, `{"type":"input_audio_buffer.commit","final":false}`},
			"response.audio.done",
			[]string{"session.created", "transcription.delta", "response.audio.delta", "transcription.delta", "response.audio.delta", "transcription.done", "response.audio.done"},
			"complete", "Hello", 90,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, addr := start(t, Config{Script: quick()})
			p := call(t, addr, tt.path, tt.script)
			p.say(tt.say...)
			p.until(tt.last)
			if n := min(len(tt.want), len(p.log)); tt.want != nil && cmp.Diff(tt.want, p.log[:n]) != "" {
				t.Errorf("events (-want +got):\n%s", cmp.Diff(tt.want, p.log))
			}
			if tt.end == "" {
				return
			}
			turns := turnsOf(s)
			if len(turns) != 1 {
				t.Fatalf("%d turns", len(turns))
			}
			tr := turns[0]
			if string(tr.End) != tt.end || tt.end == "complete" && (tr.Samples != tt.samples || tr.Text != tt.text) {
				t.Errorf("truth: %q, %d samples, %q; want %q, %d, %q", tr.End, tr.Samples, tr.Text, tt.end, tt.samples, tt.text)
			}
			if tr.Stamps.RequestNS == 0 || tr.Stamps.EndMarker == nil {
				t.Errorf("stamps %+v", tr.Stamps)
			}
		})
	}
}

// G.711 halves the bytes; the truth counts what a decoder makes of them.
func TestSessionCompanded(t *testing.T) {
	s, addr := start(t, Config{Script: quick()})
	for _, format := range []string{"g711_ulaw", "g711_alaw"} {
		p := call(t, addr, duplexPath, `{"native":true,"units":["speak"],"unit_ms":100,"chunks":2,"samples":[80,60]}`)
		p.say(`{"type":"session.update","session":{"output_audio_format":"`+format+`"}}`, appendAudio(100, true))
		event := p.until("response.audio.delta")
		if !strings.Contains(event, `"format":"`+format+`","sample_rate_hz":8000`) {
			t.Errorf("event %.400s", event)
		}
		p.until("response.done")
		turns := turnsOf(s)
		if tr := turns[len(turns)-1]; tr.Samples != 140 || len(p.pcm) != 140 || tr.Rate != 8000 {
			t.Errorf("%d samples at %d Hz, %d bytes", tr.Samples, tr.Rate, len(p.pcm))
		}
	}
}

// The events of the fault gate wait for their permits.
func TestSessionGate(t *testing.T) {
	s, addr := start(t, Config{Script: quick("gate")})
	p := call(t, addr, speechPath, `{"chunks":2,"samples":5}`)
	p.say(configPCM, inputText, inputDone)
	p.until("binary")
	if got := turnsOf(s)[0].SamplesPerChunk; len(got) > 1 {
		t.Errorf("chunks %v before the step", got)
	}
	talk(t, addr, post("/mock/step", `{}`))
	p.until("session.done")
	p.say(closeIt)
	if p.until(""); !websocket.IsCloseError(p.err, 1000) {
		t.Errorf("the session ends with %v", p.err)
	}
}
