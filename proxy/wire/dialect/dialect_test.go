package dialect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// told gives an event in a line, with only what is set.
func told(e Event) string {
	var b strings.Builder
	add := func(format string, there bool, args ...any) {
		if there {
			fmt.Fprintf(&b, format+" ", args...)
		}
	}
	add("family=%d", e.Family != Other, e.Family)
	add("dialect=%s", e.Dialect != "", e.Dialect)
	add("id=%s", e.ID != "", e.ID)
	add("text=%q", len(e.Text) > 0, e.Text)
	add("reasoning=%q", len(e.Reasoning) > 0, e.Reasoning)
	add("tool", e.Tool)
	add("audio", e.AudioTyped)
	for _, p := range e.Parts {
		add("part(%s %s %d %d %d)", true, p.Base64, p.Format, p.Rate, p.Channels, p.Frames)
	}
	add("finish=%q", e.HasFinish, e.Finish)
	add("final", e.Final)
	add("done", e.Done)
	add("tokens=%d", e.Tokens >= 0, e.Tokens)
	add("unknown", e.Unknown)
	add("audiolike", e.AudioLike)
	if e.Err != nil {
		add("error(%s|%s|%d)", true, e.Err.Message, e.Err.Type, e.Err.Code)
	}
	return strings.TrimSpace(b.String())
}

func TestSSE(t *testing.T) {
	long := strings.Repeat("QUJD", 80)
	for _, v := range []struct{ name, typ, data, want string }{
		{"done", "", "[DONE]", "done"},
		{"vllm role only", "", `{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"modality":"text"}`, "family=1 dialect=vllm-omni id=chatcmpl-1"},
		{"vllm text", "", `{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hey"},"token_ids":null}],"metrics":{},"modality":"text"}`, `family=1 dialect=vllm-omni id=c text="Hey"`},
		{"vllm audio, modality last", "", `{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"UklG"},"finish_reason":"stop"}],"usage":{"completion_tokens":0},"modality":"audio"}`, `family=1 dialect=vllm-omni id=c audio part(UklG  0 0 -1) finish="stop"`},
		{"vllm audio empty", "", `{"object":"chat.completion.chunk","choices":[{"delta":{"content":""}}],"modality":"audio"}`, "family=1 dialect=vllm-omni audio"},
		{"vllm audio metadata", "", `{"object":"chat.completion.chunk","choices":[{"delta":{"content":"UklG"},"audio_metadata":{"format":"pcm","sample_rate_hz":16000,"frame_count":7,"channels":1}}],"modality":"audio"}`, "family=1 dialect=vllm-omni audio part(UklG pcm 16000 1 7)"},
		{"n > 1 repeats the sound", "", `{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"AAAA"}},{"index":1,"delta":{"content":"AAAA"}}],"modality":"audio"}`, "family=1 dialect=vllm-omni audio part(AAAA  0 0 -1)"},
		{"reasoning apart", "", `{"object":"chat.completion.chunk","choices":[{"delta":{"reasoning_content":"hm","content":null}}]}`, `family=1 reasoning="hm"`},
		{"tools apart", "", `{"object":"chat.completion.chunk","choices":[{"delta":{"tool_calls":[{"index":0}]}}]}`, "family=1 tool"},
		{"sglang text", "", `{"id": "chatcmpl-p", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "A\u00e4"}, "finish_reason": null}]}`, `family=1 dialect=sglang-omni id=chatcmpl-p text="Aä"`},
		{"sglang audio", "", `{"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"audio": {"id": "audio-p", "data": "UklG"}}, "finish_reason": null}]}`, "family=1 dialect=sglang-omni id=c audio part(UklG  0 0 -1)"},
		{"audio null", "", `{"object":"chat.completion.chunk","choices":[{"delta":{"audio":null}}]}`, "family=1 audio"},
		{"openai audio with transcript", "", `{"object":"chat.completion.chunk","choices":[{"delta":{"audio":{"transcript":"Hi"}}}],"system_fingerprint":"f"}`, `family=1 dialect=openai text="Hi"`},
		{"usage alone", "", `{"object":"chat.completion.chunk","choices":[],"usage":{"completion_tokens":5}}`, "family=1 tokens=5"},
		{"finish empty", "", `{"object":"chat.completion.chunk","choices":[{"delta":{},"finish_reason":""}]}`, `family=1 finish=""`},
		{"error object", "", `{"error": {"message": "boom", "type": "InternalServerError", "param": null, "code": 500}}`, "error(boom|InternalServerError|500)"},
		{"error string", "", `{"error":"boom","code":"503"}`, "error(boom||503)"},
		{"event: error", "error", `{"message":"boom"}`, "error(boom||0)"},
		{"the word error in text", "", `{"object":"chat.completion.chunk","choices":[{"delta":{"content":"error"}}]}`, `family=1 text="error"`},
		{"error null is none", "", `{"object":"chat.completion.chunk","error":null,"choices":[{"delta":{"content":"x"}}]}`, `family=1 text="x"`},
		{"vllm speech", "speech.audio.delta", `{"type":"speech.audio.delta","audio":"AAAB","response_format":"pcm"}`, "family=3 dialect=vllm-omni audio part(AAAB pcm 0 0 -1)"},
		{"sglang speech", "", `{"type": "speech.audio.delta", "audio": "AAAB"}`, "family=3 dialect=sglang-omni audio part(AAAB  0 0 -1)"},
		{"speech under delta", "", `{"type":"speech.audio.delta","delta":"AAAB"}`, "family=3 dialect=sglang-omni audio part(AAAB  0 0 -1)"},
		{"speech done", "", `{"type": "speech.audio.done", "usage": {"output_tokens": 9}, "finish_reason": "stop"}`, `family=3 dialect=sglang-omni finish="stop" done tokens=9`},
		{"speech error", "speech.audio.error", `{"type":"speech.audio.error","error":{"message":"m","type":"server_error","code":500}}`, "family=3 error(m|server_error|500)"},
		{"type error", "", `{"type":"error","error":{"message":"m"}}`, "error(m||0)"},
		{"old sglang speech", "", `{"id":"s","object":"audio.speech.chunk","index":0,"audio":{"data":"AAAB","format":"wav","sample_rate":24000},"finish_reason":null}`, "family=4 dialect=sglang-omni id=s audio part(AAAB wav 24000 0 -1)"},
		{"old sglang speech, last", "", `{"id":"s","object":"audio.speech.chunk","audio":null,"finish_reason":"stop","usage":{}}`, `family=4 dialect=sglang-omni id=s finish="stop"`},
		{"transcript", "", `{"type":"transcript.text.delta","delta":"oh "}`, `family=6 text="oh "`},
		{"transcript done", "", `{"type":"transcript.text.done","text":"Oh."}`, `family=6 text="Oh." final`},
		{"completion", "", `{"id":"cmpl","object":"text_completion","choices":[{"text":"x","finish_reason":null}]}`, `family=8 id=cmpl text="x"`},
		{"image edit", "", `{"object":"image.edit.chunk","type":"ar_delta"}`, "family=10"},
		{"unknown", "", `{"type":"other.thing","x":1}`, "unknown"},
		{"unknown with sound in it", "", `{"type":"other.audio","blob":"` + long + `"}`, "unknown audiolike"},
	} {
		t.Run(v.name, func(t *testing.T) {
			var r Reader
			ev, err := r.SSE([]byte(v.typ), []byte(v.data), Other)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(v.want, told(ev)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	var r Reader
	if _, err := r.SSE(nil, []byte(`{"a":`), Chat); err == nil {
		t.Error("half an event was taken")
	}
}

func TestWhole(t *testing.T) {
	for _, v := range []struct{ name, body, want string }{
		{"vllm, two choices of one index", `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hey","audio":null},"finish_reason":"stop","stop_reason":null},{"index":0,"message":{"role":"assistant","audio":{"id":"audio-1","data":"UklG","transcript":""}},"finish_reason":"stop"}],"usage":{"completion_tokens":3}}`, `family=2 dialect=vllm-omni id=c text="Hey" audio part(UklG  0 0 -1) finish="stop" tokens=3`},
		{"sglang, one choice", `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Ah","audio":{"id":"audio-7","data":"UklG","transcript":"Ah"}},"finish_reason":"stop"}],"usage":null}`, `family=2 dialect=sglang-omni id=c text="Ah" audio part(UklG  0 0 -1) finish="stop"`},
		{"batch", `{"id":"speech-batch-1","results":[{"index":0,"status":"success","audio_data":"UklG","media_type":"audio/wav"},{"index":1,"status":"error","error":"x"}],"total":2,"succeeded":1,"failed":1}`, "family=5 dialect=vllm-omni id=speech-batch-1 audio part(UklG audio/wav 0 0 -1)"},
		{"images", `{"created":1,"data":[{"b64_json":"AAAA"}]}`, "family=9"},
		{"video job", `{"id":"v","object":"video","status":"queued"}`, "family=11 id=v"},
		{"transcription", `{"text":"Oh."}`, `family=7 text="Oh."`},
		{"error in a 200", `{"error":{"message":"m","code":400}}`, "error(m||400)"},
		{"models", `{"object":"list","data":[]}`, "unknown"},
	} {
		var r Reader
		ev, err := r.Whole([]byte(v.body))
		if err != nil {
			t.Fatal(v.name, err)
		}
		if d := cmp.Diff(v.want, told(ev)); d != "" {
			t.Errorf("%s (-want +got):\n%s", v.name, d)
		}
	}
}

func TestRefusal(t *testing.T) {
	for body, want := range map[string]*Failure{
		`{"error":{"message":"m","type":"t","param":null,"code":404}}`: {Message: "m", Type: "t", Code: 404},
		`{"error":"Unauthorized"}`:                                     {Message: "Unauthorized"},
		`{"detail":"The request queue is full."}`:                      {Message: "The request queue is full."},
		`{"detail":[{"loc":["body"]}]}`:                                {Message: `[{"loc":["body"]}]`},
		`<html>`:                                                       nil,
		`{"x":1}`:                                                      nil,
	} {
		var r Reader
		if d := cmp.Diff(want, r.Refusal([]byte(body))); d != "" {
			t.Errorf("%s: %s", body, d)
		}
	}
}

func TestReadRequest(t *testing.T) {
	var r Reader
	got := r.ReadRequest("application/json", []byte(`{"model":"m","stream":true,"modalities":["text","audio"],"audio":{"format":"pcm"},"request_id":"q"}`))
	want := Request{Model: "m", Modalities: []string{"text", "audio"}, Stream: true, Format: "pcm", ID: "q", Read: true}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := r.ReadRequest("application/json", []byte(`{"stream_format":"sse","response_format":"wav"}`)); !got.Stream || got.Format != "wav" {
		t.Errorf("%+v", got)
	}
	form := "--b\r\nContent-Disposition: form-data; name=\"stream\"\r\n\r\ntrue\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nasr\r\n--b--\r\n"
	if d := cmp.Diff(Request{Model: "asr", Stream: true, Read: true}, r.ReadRequest("multipart/form-data; boundary=b", []byte(form))); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"", "{", "[]", `"x"`} {
		if got := r.ReadRequest("application/json", []byte(bad)); got.Read {
			t.Errorf("%q was read", bad)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add("", `{"object":"chat.completion.chunk","choices":[{"delta":{"content":"x"}}],"modality":"audio"}`)
	f.Add("error", `{"error":{"message":1,"code":"x"}}`)
	f.Add("", `{"results":[{"audio_data":1}],"failed":"x","succeeded":0}`)
	f.Fuzz(func(t *testing.T, typ, data string) {
		var r Reader
		ev, err := r.SSE([]byte(typ), []byte(data), Other)
		if err == nil {
			before := told(ev)
			ev2, _ := r.SSE([]byte(typ), []byte(data), Other)
			if after := told(ev2); after != before {
				t.Errorf("a reader that was used reads %q as %s, then %s", data, before, after)
			}
		}
		_, _ = r.Whole([]byte(data))
		_ = r.Refusal([]byte(data))
		_ = r.ReadRequest("multipart/form-data; boundary=b", []byte(data))
		_ = r.ReadRequest("application/json", []byte(data))
	})
}
