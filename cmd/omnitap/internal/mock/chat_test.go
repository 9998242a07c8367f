package mock

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
)

var (
	dates   = regexp.MustCompile(`(?i)(date: )[^\r]*`)
	created = regexp.MustCompile(`"created": ?\d+`)
	long    = regexp.MustCompile(`[A-Za-z0-9+/]{60,}={0,2}`)
)

// normal blanks dates and long base64.
func normal(s string) string {
	return long.ReplaceAllString(created.ReplaceAllString(dates.ReplaceAllString(s, "${1}D"), `"created":C`), "B64")
}

// The wanted bytes are recordings of vLLM-Omni 0.26.0 and SGLang-Omni 0.1.9
// with other texts and ids.
func TestChatStreamIsTheServers(t *testing.T) {
	const vllm = `{"id":"chatcmpl-r1","object":"chat.completion.chunk","created":C,"model":"m","choices":[`
	const sglang = `{"id": "chatcmpl-r1", "object": "chat.completion.chunk", "created":C, "model": "m", "choices": [{"index": 0, "delta": {`
	tests := []struct {
		dialect, head string
		want          []string
	}{
		{
			DialectVLLM, "HTTP/1.1 200 OK\r\ndate: D\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\nvary: Origin\r\ntransfer-encoding: chunked\r\n\r\n",
			[]string{
				vllm + `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null,"modality":"text"}`,
				vllm + `{"index":0,"delta":{"content":"Hel"},"logprobs":null,"finish_reason":null,"token_ids":null}],"metrics":{},"modality":"text"}`,
				vllm + `{"index":0,"delta":{"role":"assistant","content":"B64"},"logprobs":null,"finish_reason":null,"stop_reason":null,"token_ids":null}],"usage":{"prompt_tokens":18,"total_tokens":18,"completion_tokens":0},"metrics":{},"modality":"audio"}`,
				vllm + `{"index":0,"delta":{"content":"lo ü"},"logprobs":null,"finish_reason":null,"stop_reason":null,"token_ids":null}],"metrics":null,"modality":"text"}`,
				vllm + `{"index":0,"delta":{"role":"assistant","content":"B64"},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}],"usage":{"prompt_tokens":18,"total_tokens":18,"completion_tokens":0},"metrics":null,"modality":"audio"}`,
				vllm + `],"usage":{"prompt_tokens":18,"total_tokens":20,"completion_tokens":2}}`,
				`[DONE]`,
			},
		},
		{
			DialectSGLang, "HTTP/1.1 200 OK\r\ndate: D\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\nvary: Origin\r\nTransfer-Encoding: chunked\r\n\r\n",
			[]string{
				sglang + `"role": "assistant", "content": "Hel"}, "finish_reason": null}]}`,
				sglang + `"audio": {"id": "audio-r1", "data": "B64"}}, "finish_reason": null}]}`,
				sglang + `"content": "lo \u00fc"}, "finish_reason": null}]}`,
				sglang + `"audio": {"id": "audio-r1", "data": "B64"}}, "finish_reason": null}]}`,
				sglang + `}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 18, "completion_tokens": 2, "total_tokens": 20}}`,
				`[DONE]`,
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.dialect, func(t *testing.T) {
			sc := quick()
			sc.Text, sc.Samples, sc.Dialect = []string{"Hel", "lo ü"}, script.Ints{100, 200}, tt.dialect
			_, addr := start(t, Config{Script: sc})
			body := `{"model":"m","stream":true,"request_id":"r1","stream_options":{"include_usage":true},"modalities":["text","audio"],"messages":[{"role":"user","content":"Say something long."}]}`
			res := talk(t, addr, post("/v1/chat/completions", body))
			if diff := cmp.Diff(tt.head, normal(res.head)); diff != "" {
				t.Errorf("head (-want +got):\n%s", diff)
			}
			var got []string
			for _, c := range res.chunks { // an event is one HTTP chunk
				got = append(got, strings.TrimSuffix(strings.TrimPrefix(normal(c), "data: "), "\n\n"))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if !res.whole || res.err != nil {
				t.Errorf("whole = %v, error %v", res.whole, res.err)
			}
		})
	}
}

// audioOf joins the samples of a chat stream, whatever the dialect.
func audioOf(t *testing.T, payload string) (pcm []byte, text string) {
	t.Helper()
	for _, e := range events(payload) {
		if e.data == "[DONE]" {
			continue
		}
		c := decodeJSON[vllmChunk](t, e.data)
		if len(c.Choices) == 0 {
			continue
		}
		d := c.Choices[0].Delta
		var audio struct{ Data, Transcript string }
		if len(d.Audio) > 0 {
			audio = decodeJSON[struct{ Data, Transcript string }](t, string(d.Audio))
		}
		text += audio.Transcript
		if d.Content != nil {
			if c.Modality == "audio" {
				audio.Data = *d.Content
			} else {
				text += *d.Content
			}
		}
		b := unbase64(t, audio.Data)
		if strings.HasPrefix(string(b), "RIFF") {
			b, _ = unwav(t, b)
		}
		pcm = append(pcm, b...)
	}
	return pcm, text
}

func TestChatTruth(t *testing.T) {
	for _, dialect := range []string{DialectVLLM, DialectSGLang, DialectOpenAI} {
		for _, tone := range []string{"chirp", "noise", "ramp"} {
			t.Run(dialect+"/"+tone, func(t *testing.T) {
				sc := quick()
				sc.Dialect, sc.Tone, sc.Samples = dialect, tone, script.Ints{301, 2401, 99}
				s, addr := start(t, Config{Seed: 3, Script: sc})
				res := talk(t, addr, post("/v1/chat/completions", chatBody))
				pcm, text := audioOf(t, res.payload())
				sum := sha256.Sum256(pcm)
				got := last(t, s)
				if got.SHA256 != hex.EncodeToString(sum[:]) || got.Samples != len(pcm)/2 || got.Samples != 2801 || got.CleanSamples != 2801 {
					t.Errorf("truth has %d samples, sha256 %s; the wire %d, %x", got.Samples, got.SHA256, len(pcm)/2, sum)
				}
				if got.Text != text || text != "Hello from the mock omni." {
					t.Errorf("text = %q, on the wire %q", got.Text, text)
				}
				if diff := cmp.Diff([]int{301, 2401, 99}, got.SamplesPerChunk); diff != "" {
					t.Errorf("samples per chunk (-want +got):\n%s", diff)
				}
				st := got.Stamps
				if got.End != plan.Complete || len(st.Audio) != 3 || st.FirstText == nil || st.EndMarker == nil || st.FirstText.BeforeNS < st.Head.AfterNS || st.EndMarker.AfterNS < st.Audio[2].AfterNS || st.RequestNS > st.Head.BeforeNS {
					t.Errorf("end %q, stamps %+v", got.End, st)
				}
				wantID := decodeJSON[vllmChunk](t, events(res.payload())[0].data).ID
				if got.ID != wantID {
					t.Errorf("id = %q, want %q", got.ID, wantID)
				}
			})
		}
	}
}

func TestChatWhole(t *testing.T) {
	type choice struct {
		Index   int
		Message struct {
			Content *string
			Audio   *struct{ ID, Data, Transcript string }
		}
		Finish string `json:"finish_reason"`
	}
	tests := []struct {
		name, sc string
		choices  int
	}{
		{"vllm", `{}`, 2},
		{"vllm 0.30", `{"variant":"0.30"}`, 1},
		{"sglang", `{"dialect":"sglang-omni"}`, 1},
		{"openai", `{"dialect":"openai"}`, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, addr := start(t, Config{Script: quick()})
			res := talk(t, addr, post("/v1/chat/completions", strings.Replace(chatBody, `"stream":true`, `"mock":`+tt.sc, 1)))
			got := decodeJSON[struct{ Choices []choice }](t, res.payload()).Choices
			if len(got) != tt.choices {
				t.Fatalf("%d choices, want %d", len(got), tt.choices)
			}
			final := got[len(got)-1]
			if final.Message.Audio == nil || final.Finish != "stop" {
				t.Fatalf("last choice = %+v", final)
			}
			pcm := unbase64(t, final.Message.Audio.Data)
			if tt.name != "openai" {
				pcm, _ = unwav(t, pcm)
			}
			if tr := last(t, s); tr.Samples != 12000 || len(pcm) != 24000 || tr.End != plan.Complete || tr.Form != "json" {
				t.Errorf("truth %d samples (%s), wire %d bytes", tr.Samples, tr.End, len(pcm))
			}
		})
	}
}

func TestChatRefusals(t *testing.T) {
	const chat = "/v1/chat/completions"
	tests := []struct{ name, path, sc, body, status, want string }{
		{"modality", chat, ``, `{"modalities":["smell"]}`, "400 Bad Request", `{"error":{"message":"Unsupported output modalities smell for this model. Supported modalities: audio, text","type":"BadRequestError","param":null,"code":400}}`},
		{"model", chat, `{"models":["m"]}`, `{"model":"other"}`, "404 Not Found", `{"error":{"message":"The model ` + "`other`" + ` does not exist.","type":"NotFoundError","param":"model","code":404}}`},
		{"json", chat, ``, `{not json`, "400 Bad Request", `{"error":{"message":"1 validation error:\n  {'type': 'json_invalid', 'loc': ('body', 1), 'msg': 'JSON decode error', 'input': {}, 'ctx': {'error': 'Expecting property name enclosed in double quotes'}}","type":"Bad Request","param":"body.1","code":400}}`},
		{"queue", chat, `{"dialect":"sglang-omni","faults":["status=503"]}`, `{}`, "503 Service Unavailable", `{"detail":"The request queue is full."}`},
		{"speech queue", "/v1/audio/speech", `{"dialect":"sglang-omni","faults":["status=503"]}`, `{}`, "503 Service Unavailable", `{"error":{"message":"The request queue is full.","type":"server_error","param":null,"code":null}}`},
		{"out of memory", chat, `{"error_message":"CUDA out of memory","faults":["status=500"]}`, `{}`, "500 Internal Server Error", `{"error":{"message":"CUDA out of memory","type":"InternalServerError","param":null,"code":500}}`},
		{"script", chat, `{"tone":"violin"}`, `{}`, "400 Bad Request", ``},
		{"script key", chat, `{"tones":"sine"}`, `{}`, "400 Bad Request", ``},
		{"path", "/v1/nothing", ``, `{}`, "404 Not Found", `{"detail":"Not Found"}`},
	}
	_, addr := start(t, Config{Script: quick()})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := talk(t, addr, post(tt.path, tt.body, "X-Mock-Script: "+tt.sc))
			if !strings.HasPrefix(res.head, "HTTP/1.1 "+tt.status+"\r\n") {
				t.Errorf("head = %q, want status %s", res.head, tt.status)
			}
			if tt.want != "" && res.payload() != tt.want {
				t.Errorf("body = %s, want %s", res.payload(), tt.want)
			}
			if !json.Valid(res.body) {
				t.Errorf("body is no JSON: %q", res.body)
			}
		})
	}
}

func TestSameSeedSameBytes(t *testing.T) {
	run := func(seed uint64) string {
		sc := quick()
		sc.Tone = "noise"
		_, addr := start(t, Config{Seed: seed, Script: sc})
		out := ""
		for _, path := range []string{"/v1/chat/completions", "/v1/audio/speech", "/v1/images/generations", "/v1/chat/completions"} {
			res := talk(t, addr, post(path, strings.Replace(chatBody, "{", `{"input":"x",`, 1)))
			out += created.ReplaceAllString(dates.ReplaceAllString(res.head+string(res.body), "${1}D"), "C")
		}
		return out
	}
	if a, b := run(0), run(0); a != b {
		t.Error("two runs with seed 0 differ")
	}
	if run(0) == run(1) {
		t.Error("seeds 0 and 1 give the same")
	}
}
