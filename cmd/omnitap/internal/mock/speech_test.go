package mock

import (
	"bufio"
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
)

func TestSpeechRaw(t *testing.T) {
	const wavHeader = "RIFF\xff\xff\xff\xffWAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00D\xac\x00\x00\x88X\x01\x00\x02\x00\x10\x00data\xff\xff\xff\xff"
	tests := []struct {
		name, sc, body, head string
		sizes                []int
		first                string
	}{
		{
			"vllm wav", `{"rate":44100}`, `{"input":"x","stream_format":"audio"}`,
			"HTTP/1.1 200 OK\r\ndate: D\r\nserver: uvicorn\r\ncontent-type: audio/wav\r\nvary: Origin\r\ntransfer-encoding: chunked\r\n\r\n",
			[]int{44, 200, 666, 10},
			wavHeader,
		},
		{
			"vllm pcm", `{}`, `{"input":"x","stream_format":"audio","response_format":"pcm"}`,
			"HTTP/1.1 200 OK\r\ndate: D\r\nserver: uvicorn\r\ncontent-type: audio/pcm\r\nvary: Origin\r\ntransfer-encoding: chunked\r\n\r\n",
			[]int{200, 666, 10},
			"",
		},
		{
			"sglang pcm", `{"dialect":"sglang-omni"}`, `{"input":"x","stream":true,"response_format":"pcm"}`,
			"HTTP/1.1 200 OK\r\ndate: D\r\nserver: uvicorn\r\nx-request-id: ID\r\nx-sample-rate: 24000\r\nx-channels: 1\r\nx-bit-depth: 16\r\nx-sglang-omni-speech-id: ID\r\ncontent-type: audio/pcm\r\nvary: Origin\r\nTransfer-Encoding: chunked\r\n\r\n",
			[]int{200, 666, 10},
			"",
		},
		{
			"with a length", `{"framing":"length"}`, `{"input":"x","stream_format":"audio","response_format":"pcm"}`,
			"HTTP/1.1 200 OK\r\ndate: D\r\nserver: uvicorn\r\ncontent-length: 876\r\ncontent-type: audio/pcm\r\nvary: Origin\r\n\r\n",
			nil, "",
		},
		{
			"until the end", `{"framing":"close"}`, `{"input":"x","stream_format":"audio","response_format":"pcm"}`,
			"HTTP/1.1 200 OK\r\ndate: D\r\nserver: uvicorn\r\ncontent-type: audio/pcm\r\nvary: Origin\r\nconnection: close\r\n\r\n",
			nil, "",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sc := quick()
			sc.Samples = script.Ints{100, 333, 5}
			s, addr := start(t, Config{Script: sc})
			res := talk(t, addr, post("/v1/audio/speech", tt.body, "X-Mock-Script: "+tt.sc))
			tr := last(t, s)
			if diff := cmp.Diff(tt.head, strings.ReplaceAll(normal(res.head), tr.ID, "ID")); diff != "" {
				t.Errorf("head (-want +got):\n%s", diff)
			}
			var sizes []int
			for _, c := range res.chunks {
				sizes = append(sizes, len(c))
			}
			if diff := cmp.Diff(tt.sizes, sizes); diff != "" {
				t.Errorf("chunk sizes (-want +got):\n%s", diff)
			}
			if tt.first != "" && res.chunks[0] != tt.first {
				t.Errorf("first chunk = %q, want %q", res.chunks[0], tt.first)
			}
			if n := len(res.payload()) - len(tt.first); n != 876 || tr.Samples != 438 || tr.End != plan.Complete || tr.Stamps.EndMarker == nil {
				t.Errorf("%d bytes on the wire, truth %d samples, end %q, marker %v", n, tr.Samples, tr.End, tr.Stamps.EndMarker)
			}
		})
	}
}

func TestSpeechEvents(t *testing.T) {
	names := func(res result) []string {
		var out []string
		for _, e := range events(res.payload()) {
			if e.data == "[DONE]" {
				out = append(out, e.data)
				continue
			}
			m := decodeJSON[struct{ Type, Object string }](t, e.data)
			out = append(out, strings.TrimSpace(e.name+" "+m.Type+m.Object))
		}
		return out
	}
	const delta, done, old = "speech.audio.delta", "speech.audio.done", "audio.speech.chunk"
	tests := []struct {
		name, sc, body string
		want           []string
	}{
		{"vllm", `{}`, `"stream":true,"response_format":"pcm"`, []string{delta + " " + delta, delta + " " + delta, done + " " + done}},
		{"vllm wav", `{}`, `"stream_format":"sse"`, []string{delta + " " + delta, delta + " " + delta, delta + " " + delta, done + " " + done}},
		{"vllm error", `{"faults":["error=after:1"]}`, `"stream":true,"response_format":"pcm"`, []string{delta + " " + delta, "speech.audio.error speech.audio.error"}},
		{"sglang", `{"dialect":"sglang-omni"}`, `"stream_format":"sse","response_format":"pcm"`, []string{delta, delta, done}},
		{"sglang error", `{"dialect":"sglang-omni","faults":["error=after:1"]}`, `"stream_format":"sse","response_format":"pcm"`, []string{delta, "error"}},
		{"sglang g0", `{"dialect":"sglang-omni","variant":"g0"}`, `"stream_format":"sse"`, []string{old, old, old, "[DONE]"}},
		{"sglang g1", `{"dialect":"sglang-omni","variant":"g1"}`, `"stream_format":"sse","response_format":"pcm"`, []string{old, old, old, "[DONE]"}},
		{"openai", `{"dialect":"openai"}`, `"stream_format":"sse","response_format":"pcm"`, []string{delta, delta, done}},
		{"late", `{"faults":["after-done","double-done"]}`, `"stream":true,"response_format":"pcm"`, []string{delta + " " + delta, delta + " " + delta, done + " " + done, done + " " + done, delta + " " + delta}},
		{"no end", `{"faults":["no-done"]}`, `"stream":true,"response_format":"pcm"`, []string{delta + " " + delta, delta + " " + delta}},
	}
	sc := quick()
	sc.Samples = script.Ints{100, 50}
	_, addr := start(t, Config{Script: sc})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := talk(t, addr, post("/v1/audio/speech", `{"input":"x",`+tt.body+`}`, "X-Mock-Script: "+tt.sc))
			if diff := cmp.Diff(tt.want, names(res)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if !res.whole {
				t.Error("the body did not end cleanly")
			}
		})
	}
}

func TestSpeechWholeAndOutcome(t *testing.T) {
	sc := quick()
	sc.Dialect = DialectSGLang
	s, addr := start(t, Config{Script: sc})
	res := talk(t, addr, post("/v1/audio/speech", `{"input":"x"}`))
	pcm, rate := unwav(t, res.body)
	if len(pcm) != 24000 || rate != 24000 || !strings.Contains(res.head, "content-disposition: attachment; filename=\"speech.wav\"\r\nx-request-id: speech-") {
		t.Errorf("%d bytes at %d Hz, head %q", len(pcm), rate, res.head)
	}
	talk(t, addr, post("/v1/audio/speech", `{"input":"x","stream":true,"response_format":"pcm"}`))
	id := last(t, s).ID
	res = talk(t, addr, "GET /v1/audio/speech/"+id+" HTTP/1.1\r\nHost: m\r\n\r\n")
	want := `{"request_id":"` + id + `","finish_reason":"stop","usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12,"engine_time_s":0.125}}`
	if res.payload() != want {
		t.Errorf("outcome = %s, want %s", res.payload(), want)
	}
	res = talk(t, addr, "GET /v1/audio/speech/none HTTP/1.1\r\nHost: m\r\n\r\n")
	if !strings.HasPrefix(res.head, "HTTP/1.1 404 ") {
		t.Errorf("unknown id: %q", res.head)
	}
}

func TestSpeechBatch(t *testing.T) {
	s, addr := start(t, Config{Script: quick()})
	res := talk(t, addr, post("/v1/audio/speech/batch", `{"items":[{"input":"a"},{"input":"b","response_format":"mp3"},{"input":"c","response_format":"pcm"}]}`))
	got := decodeJSON[struct {
		Results []struct {
			Status string
			Audio  string `json:"audio_data"`
		}
		Total, Succeeded, Failed int
	}](t, res.payload())
	if got.Total != 3 || got.Succeeded != 2 || got.Failed != 1 || got.Results[1].Status != "error" {
		t.Fatalf("batch = %+v", got)
	}
	pcm, _ := unwav(t, unbase64(t, got.Results[0].Audio))
	if n := len(pcm) + len(unbase64(t, got.Results[2].Audio)); n != 48000 || last(t, s).Samples != 24000 {
		t.Errorf("%d bytes of audio, truth %d samples", n, last(t, s).Samples)
	}
}

// form is an upload of a small file.
func form(t *testing.T, fields map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for k, v := range fields {
		if err := w.WriteField(k, v); err != nil {
			t.Fatal(err)
		}
	}
	f, err := w.CreateFormFile("file", "a.wav")
	if err == nil {
		_, err = f.Write(make([]byte, 64044))
	}
	if err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return strings.Replace(post("/v1/audio/transcriptions", b.String()), "application/json", w.FormDataContentType(), 1)
}

func TestTranscription(t *testing.T) {
	sc := quick()
	sc.Dialect, sc.Text = DialectSGLang, []string{"oh", " naïve"}
	s, addr := start(t, Config{Script: sc})
	res := talk(t, addr, form(t, map[string]string{"model": "m", "stream": "true"}))
	want := []string{
		"data: {\"type\":\"transcript.text.delta\",\"delta\":\"oh\"}\n\n",
		"data: {\"type\":\"transcript.text.delta\",\"delta\":\" naïve\"}\n\n",
		"data: {\"type\":\"transcript.text.done\",\"text\":\"oh naïve\",\"usage\":{\"type\":\"duration\",\"seconds\":2}}\n\n",
		"data: [DONE]\n\n",
	}
	if diff := cmp.Diff(want, res.chunks); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
	if !strings.Contains(res.head, "cache-control: no-cache\r\nx-request-id: transcription-") || last(t, s).Text != "oh naïve" {
		t.Errorf("head = %q, truth %q", res.head, last(t, s).Text)
	}
	res = talk(t, addr, form(t, map[string]string{"model": "m"}))
	if want := `{"text":"oh naïve","usage":{"type":"duration","seconds":2}}`; res.payload() != want {
		t.Errorf("whole = %s, want %s", res.payload(), want)
	}
}

func TestMedia(t *testing.T) {
	s, addr := start(t, Config{Script: quick()})
	res := talk(t, addr, post("/v1/images/generations", `{"prompt":"x"}`))
	img := decodeJSON[struct {
		Data []struct {
			B64 string `json:"b64_json"`
		}
	}](t, res.payload())
	if !strings.HasPrefix(string(unbase64(t, img.Data[0].B64)), "\x89PNG") {
		t.Errorf("image = %s", res.payload())
	}
	type job struct{ ID, Status string }
	get := func(path string) result { return talk(t, addr, "GET "+path+" HTTP/1.1\r\nHost: m\r\n\r\n") }
	j := decodeJSON[job](t, talk(t, addr, post("/v1/videos", `{"prompt":"x"}`, `X-Mock-Script: {"job_ms":3600000}`)).payload())
	if j.Status != "queued" || j.ID != last(t, s).ID {
		t.Errorf("job = %+v", j)
	}
	if got := decodeJSON[job](t, get("/v1/videos/"+j.ID).payload()); got.Status != "in_progress" {
		t.Errorf("poll = %+v", got)
	}
	if res := get("/v1/videos/" + j.ID + "/content"); !strings.HasPrefix(res.head, "HTTP/1.1 404") {
		t.Errorf("content of a running job: %q", res.head)
	}
	j = decodeJSON[job](t, talk(t, addr, post("/v1/videos", `{}`)).payload())
	if got := decodeJSON[job](t, get("/v1/videos/"+j.ID).payload()); got.Status != "completed" {
		t.Errorf("poll = %+v", got)
	}
	if res := get("/v1/videos/" + j.ID + "/content"); !strings.Contains(string(res.body), "ftypisom") {
		t.Errorf("content: %q", res.head)
	}
	j = decodeJSON[job](t, talk(t, addr, post("/v1/videos", `{"mock":{"faults":["error"]}}`)).payload())
	if res := get("/v1/videos/" + j.ID); !strings.HasPrefix(res.head, "HTTP/1.1 500") {
		t.Errorf("poll of a failed job: %q", res.head)
	}
	if res := talk(t, addr, post("/v1/videos/sync", `{}`)); !strings.Contains(res.head, "content-type: video/mp4") || !res.whole {
		t.Errorf("sync: %q", res.head)
	}
}

// The standard client must be content with what is not broken on purpose.
func TestStandardClient(t *testing.T) {
	_, addr := start(t, Config{Script: quick()})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for range 3 {
		resp, err := client.Post("http://"+addr+"/v1/chat/completions", "application/json", strings.NewReader(chatBody))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil || !strings.HasSuffix(string(b), "data: [DONE]\n\n") {
			t.Fatalf("body ends %.40q, error %v", string(b[max(0, len(b)-40):]), err)
		}
		_ = resp.Body.Close()
	}
	for _, path := range []string{"/health", "/v1/models", "/mock/requests"} {
		resp, err := client.Get("http://" + addr + path)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v %v", path, resp, err)
		}
		if _, err := io.Copy(io.Discard, bufio.NewReader(resp.Body)); err != nil {
			t.Error(err)
		}
		_ = resp.Body.Close()
	}
}

func TestForcedForms(t *testing.T) {
	tests := []struct{ variant, body, kind string }{
		{"raw", `{"input":"x","stream":true,"response_format":"pcm"}`, "audio/pcm"}, // vLLM-Omni before 0.24
		{"sse", `{"input":"x","response_format":"pcm"}`, "text/event-stream"},
		{"whole", `{"input":"x","stream_format":"sse","response_format":"pcm"}`, "audio/pcm"},
	}
	_, addr := start(t, Config{Script: quick()})
	for _, tt := range tests {
		res := talk(t, addr, post("/v1/audio/speech", tt.body, `X-Mock-Script: {"variant":"`+tt.variant+`"}`))
		if !strings.Contains(res.head, "content-type: "+tt.kind) || strings.Contains(res.head, "content-length") != (tt.variant == "whole") || !res.whole {
			t.Errorf("%s: head %q", tt.variant, res.head)
		}
	}
}

// Field case C16: the header, then one byte, then the rest.
func TestVerbatimSteps(t *testing.T) {
	_, addr := start(t, Config{Script: quick()})
	res := talk(t, addr, post("/v1/audio/speech", `{"input":"x","stream_format":"audio","mock":{"steps":[{"empty":"header"},{"wait_ms":1,"base64":"AQ=="},{"base64":"AAIA"}]}}`))
	if len(res.chunks) != 3 || len(res.chunks[0]) != 44 || res.chunks[1] != "\x01" || res.chunks[2] != "\x00\x02\x00" {
		t.Errorf("chunks %q", res.chunks)
	}
}

// A head that waits for the first output must not wait for a stall behind it.
func TestStallBehindALateHead(t *testing.T) {
	sc := quick("stall=head+for:1ms")
	sc.Dialect = DialectSGLang
	_, addr := start(t, Config{Script: sc})
	res := talk(t, addr, post("/v1/audio/speech", `{"input":"x","stream":true,"response_format":"pcm"}`))
	if !res.whole || len(res.payload()) != 24000 {
		t.Errorf("%d bytes, head %q", len(res.payload()), res.head)
	}
}
