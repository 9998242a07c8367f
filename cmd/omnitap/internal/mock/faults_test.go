package mock

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
)

// chat runs one vLLM chat stream with faults; its chunks have 100, 50 and 30
// ramp samples.
func chat(t *testing.T, sc string, faults ...string) (result, Truth) {
	t.Helper()
	s := quick(faults...)
	s.Samples, s.Tone = script.Ints{100, 50, 30}, "ramp"
	srv, addr := start(t, Config{Script: s})
	res := talk(t, addr, post("/v1/chat/completions", chatBody, "X-Mock-Script: "+sc))
	return res, last(t, srv)
}

// speech does the same for a raw PCM or WAV speech stream.
func speech(t *testing.T, format string, faults ...string) (result, Truth) {
	t.Helper()
	s := quick(faults...)
	s.Samples, s.Tone = script.Ints{100, 50, 30}, "ramp"
	srv, addr := start(t, Config{Script: s})
	res := talk(t, addr, post("/v1/audio/speech", `{"input":"x","stream_format":"audio","response_format":"`+format+`"}`))
	return res, last(t, srv)
}

func TestSampleFaults(t *testing.T) {
	ramp := func(ranges ...int) []byte {
		var b []byte
		for i := 0; i < len(ranges); i += 2 {
			for v := ranges[i]; v < ranges[i+1]; v++ {
				b = append(b, byte(v), byte(v>>8))
			}
		}
		return b
	}
	tests := []struct {
		fault string
		want  []byte
	}{
		{"lost=10", ramp(0, 90, 100, 140, 150, 180)},
		{"lost-tail=10", ramp(0, 170)},
		{"repeat=5", ramp(0, 100, 95, 150, 145, 180)},
		{"cumulative", ramp(0, 100, 0, 150, 0, 180)},
		{"whole-repeat", ramp(0, 180, 0, 180)},
		{"odd-bytes", append(ramp(0, 180), 0x55)},
	}
	for _, tt := range tests {
		t.Run(tt.fault, func(t *testing.T) {
			res, tr := speech(t, "pcm", tt.fault)
			if got := res.payload(); got != string(tt.want) {
				t.Errorf("%d bytes, want %d", len(got), len(tt.want))
			}
			if tr.Samples != len(tt.want)/2 || tr.CleanSamples != 180 {
				t.Errorf("truth: %d samples of %d clean", tr.Samples, tr.CleanSamples)
			}
		})
	}
}

func TestContainerFaults(t *testing.T) {
	res, _ := speech(t, "wav", "header-per-chunk")
	for i, c := range res.chunks {
		if pcm, _ := unwav(t, []byte(c)); len(pcm) != 2*[]int{100, 50, 30}[i] {
			t.Errorf("chunk %d has %d bytes of samples", i, len(pcm))
		}
	}
	res, _ = speech(t, "wav", "split-header")
	if len(res.chunks) != 5 || len(res.chunks[0]) != 10 || len(res.chunks[1]) != 34 {
		t.Errorf("split header: %d chunks of %d and %d bytes first", len(res.chunks), len(res.chunks[0]), len(res.chunks[1]))
	}
	for _, size := range []struct{ arg, want string }{{"ffffffff", "\xff\xff\xff\xff"}, {"7fffffff", "\xff\xff\xff\x7f"}, {"0", "\x00\x00\x00\x00"}, {"2000000000", "\x00\x94\x35\x77"}} {
		res, _ := speech(t, "wav", "placeholder="+size.arg)
		if got := res.chunks[0][40:44]; got != size.want {
			t.Errorf("placeholder %s: size bytes % x, want % x", size.arg, got, size.want)
		}
	}
	res, tr := chat(t, `{"faults":["rate-change=2:22050"]}`)
	var rates []int
	for _, e := range events(res.payload()) {
		if strings.Contains(e.data, `"modality":"audio"`) {
			_, rate := unwav(t, unbase64(t, *decodeJSON[vllmChunk](t, e.data).Choices[0].Delta.Content))
			rates = append(rates, rate)
		}
	}
	if diff := cmp.Diff([]int{24000, 22050, 22050}, rates); diff != "" || tr.Rate != 24000 {
		t.Errorf("rates (-want +got):\n%s", diff)
	}
	res, _ = chat(t, `{"dialect":"sglang-omni"}`, "wrong-rate=48000")
	if !strings.Contains(res.payload(), "gLsAA") { // 48000 in a WAV header
		t.Error("wrong-rate is not declared")
	}
}

func TestEndMarkerFaults(t *testing.T) {
	tests := []struct {
		faults       []string
		done         int
		reason, tail string
	}{
		{nil, 1, `"stop"`, "[DONE]"},
		{[]string{"no-done"}, 0, `"stop"`, ""},
		{[]string{"no-finish"}, 1, "null", "[DONE]"},
		{[]string{"empty-finish"}, 1, `""`, "[DONE]"},
		{[]string{"double-done"}, 2, `"stop"`, "[DONE]"},
		{[]string{"after-done"}, 1, `"stop"`, ""},
	}
	for _, dialect := range []string{DialectVLLM, DialectSGLang, DialectOpenAI} {
		for _, tt := range tests {
			t.Run(dialect+strings.Join(tt.faults, "+"), func(t *testing.T) {
				res, tr := chat(t, `{"dialect":"`+dialect+`"}`, tt.faults...)
				all := events(res.payload())
				done, reasons := 0, ""
				for _, e := range all {
					if e.data == "[DONE]" {
						done++
						continue
					}
					if c := decodeJSON[vllmChunk](t, e.data); len(c.Choices) > 0 && c.Choices[0].Finish != nil {
						reasons += `"` + *c.Choices[0].Finish + `"`
					}
				}
				if reasons == "" {
					reasons = "null"
				}
				if tail := all[len(all)-1].data; done != tt.done || reasons != tt.reason || (tt.tail != "" && tail != tt.tail) || !res.whole {
					t.Errorf("%d done, reasons %s, last %.60q, whole %v", done, reasons, tail, res.whole)
				}
				if (tr.Stamps.EndMarker == nil) || tr.End != plan.Complete {
					t.Errorf("truth: marker %v, end %q", tr.Stamps.EndMarker, tr.End)
				}
			})
		}
	}
}

func TestErrorInside200(t *testing.T) {
	tests := []struct{ dialect, fault, want string }{
		{DialectVLLM, "error=after:1", "data: {\"error\": {\"message\": \"mock engine fault\", \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}\n\ndata: [DONE]\n\n"},
		{DialectVLLM, "error=after:1+form:event", "event: error\ndata: {\"error\": {\"message\": \"mock engine fault\", \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}\n\ndata: [DONE]\n\n"},
		{DialectVLLM, "error=after:1+form:string", "data: {\"error\":\"mock engine fault\"}\n\ndata: [DONE]\n\n"},
		{DialectSGLang, "error=head", "data: {\"error\": {\"message\": \"mock engine fault\", \"type\": \"server_error\", \"code\": 500}}\n\ndata: [DONE]\n\n"},
	}
	for _, tt := range tests {
		res, tr := chat(t, `{"dialect":"`+tt.dialect+`"}`, tt.fault)
		got := res.payload()
		if !strings.HasSuffix(got, tt.want) || strings.Contains(tt.fault, "head") != (got == tt.want) || !res.whole || tr.End != plan.Failed || !strings.Contains(res.head, " 200 ") {
			t.Errorf("%s %s: %q (%s)", tt.dialect, tt.fault, got[max(0, len(got)-300):], tr.End)
		}
	}
	res, tr := chat(t, ``, "error=head+form:json")
	if want := `{"error":{"message":"mock engine fault","type":"InternalServerError","param":null,"code":500}}`; res.payload() != want || !strings.Contains(res.head, " 200 OK") || tr.End != plan.Failed {
		t.Errorf("json form: %s", res.payload())
	}
	res, tr = speech(t, "pcm", "error=after:2")
	if res.whole || res.err != nil || len(res.payload()) != 300 || tr.End != truth.Cut || tr.Samples != 150 {
		t.Errorf("raw body: whole %v, %v, %d bytes, truth %s %d", res.whole, res.err, len(res.payload()), tr.End, tr.Samples)
	}
}

func TestCutsAndResets(t *testing.T) {
	tests := []struct {
		fault string
		end   plan.Ending
		bytes int // of payload
	}{
		{"cut=after:2", truth.Cut, 300},
		{"cut=byte:7", truth.Cut, 7},
		{"cut=byte:250", truth.Cut, 250},
		{"cut=end", truth.Cut, 360},
		{"cut=head", truth.Cut, 0},
		{"cut=start", truth.Cut, -1},
		{"reset=after:1", truth.Reset, 200},
		{"reset=start", truth.Reset, -1},
		{"bad-chunk-size=event:2", truth.Cut, 300},
		{"short-length=10", truth.Cut, 360},
	}
	for _, tt := range tests {
		t.Run(tt.fault, func(t *testing.T) {
			res, tr := speech(t, "pcm", tt.fault)
			if tt.bytes >= 0 && len(res.payload()) != tt.bytes && !strings.HasPrefix(tt.fault, "bad") {
				t.Errorf("%d bytes, want %d", len(res.payload()), tt.bytes)
			}
			if (res.head == "") != (tt.bytes < 0) || res.whole || tr.End != tt.end || tr.Samples != max(0, tt.bytes)/2 {
				t.Errorf("head %q, whole %v, truth %s, %d samples", res.head, res.whole, tr.End, tr.Samples)
			}
			if reset := errors.Is(res.err, syscall.ECONNRESET); reset != (tt.end == truth.Reset) {
				t.Errorf("error %v, want a reset: %v", res.err, tt.end == truth.Reset)
			}
		})
	}
	res, _ := speech(t, "pcm", "bad-chunk-size")
	if !strings.HasSuffix(string(res.body), "\r\nzz\r\n") {
		t.Errorf("body ends %q", string(res.body[max(0, len(res.body)-8):]))
	}
}

func TestEventFaults(t *testing.T) {
	res, tr := chat(t, ``, "empty-audio")
	var contents []string
	for _, e := range events(res.payload()) {
		if strings.Contains(e.data, `"modality":"audio"`) {
			_, after, _ := strings.Cut(e.data, `"content":`)
			contents = append(contents, after[:min(70, len(after))])
		}
	}
	if len(contents) != 6 || !strings.HasPrefix(contents[0], "null}") || !strings.HasPrefix(contents[1], `""}`) || !strings.HasPrefix(contents[2], `"UklGRiQAAABXQVZFZm10IBAAAAABAAEAwF0AAIC7AAACABAAZGF0YQAAAAA="`) {
		t.Errorf("audio events: %q", contents)
	}
	if tr.Samples != 180 || len(tr.SamplesPerChunk) != 3 || tr.Stamps.FirstAudioEvent.AfterNS > tr.Stamps.FirstAudio.BeforeNS {
		t.Errorf("truth: %d samples, %+v", tr.Samples, tr.Stamps)
	}
	res, _ = chat(t, ``, "huge=70000")
	if n := len(events(res.payload())[0].data); n < 70000 || n > 70100 {
		t.Errorf("huge event of %d bytes", n)
	}
	res, _ = chat(t, ``, "bad-base64=2")
	if strings.Count(res.payload(), "*") != 1 {
		t.Error("no * in the payloads")
	}
	// 4844 bytes a chunk: one = of padding in each of the five.
	for form, want := range map[string]int{"urlsafe": 5, "unpadded": 4, "newline": 5} {
		res, _ := chat(t, `{"samples":[2400]}`, "bad-base64=1+form:"+form)
		got := strings.Count(res.payload(), `="},"logprobs"`)
		if got != want || strings.Contains(res.payload(), "_B") != (form == "urlsafe") || strings.Contains(res.payload(), `\n`) != (form == "newline") {
			t.Errorf("form %s: %d padded payloads, want %d", form, got, want)
		}
	}
	res, _ = chat(t, ``, "bad-json=3")
	if d := events(res.payload())[2].data; strings.HasSuffix(d, "}") {
		t.Errorf("event 3 = %q", d)
	}
	res, _ = chat(t, `{"line_end":"crlf"}`, "bom", "no-space", "multi-line", "unterminated")
	p := res.payload()
	if !strings.HasPrefix(p, "\xef\xbb\xbfdata:{") || strings.Contains(p, "data: ") || !strings.HasSuffix(p, "data:[DONE]") || strings.Count(p, "\r\ndata:") < 9 || strings.Contains(strings.ReplaceAll(p, "\r\n", ""), "\n") {
		t.Errorf("stream = %.300q … %q", p, p[len(p)-40:])
	}
	res, _ = chat(t, ``, "content-type=audio/mpeg; x=1")
	if !strings.Contains(res.head, "content-type: audio/mpeg; x=1\r\n") {
		t.Errorf("head = %q", res.head)
	}
	res, tr = chat(t, ``, "no-audio", "role-only=off")
	if strings.Contains(res.payload(), `"modality":"audio"`) || strings.Contains(res.payload(), "assistant") || tr.Samples != 0 {
		t.Errorf("no-audio: %.200s", res.payload())
	}
	res, _ = chat(t, `{"dialect":"sglang-omni"}`, "role-only")
	if !strings.Contains(res.chunks[0], `"delta": {"role": "assistant"}, `) {
		t.Errorf("role-only: %s", res.chunks[0])
	}
}

func TestGzip(t *testing.T) {
	res, tr := chat(t, ``, "gzip")
	if !strings.Contains(res.head, "content-encoding: gzip\r\n") {
		t.Errorf("head = %q", res.head)
	}
	z, err := gzip.NewReader(strings.NewReader(res.payload()))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if pcm, _ := audioOf(t, string(plain)); len(pcm) != 360 || tr.Samples != 180 {
		t.Errorf("%d bytes of audio", len(pcm))
	}
	// Every event can be read as soon as its chunk is there.
	z, err = gzip.NewReader(strings.NewReader(res.chunks[0]))
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 6)
	if _, err := io.ReadFull(z, first); err != nil || string(first) != "data: " {
		t.Errorf("first event: %q, %v", first, err)
	}
}

func TestStallAndComments(t *testing.T) {
	sc := quick("stall=after:1")
	sc.CommentEveryMS = 1
	s, addr := start(t, Config{Script: sc})
	c := dial(t, addr)
	if _, err := io.WriteString(c, post("/v1/chat/completions", chatBody)); err != nil {
		t.Fatal(err)
	}
	var got []byte
	buf := make([]byte, 4096)
	for bytes.Count(got, []byte(": ping\n\n")) < 3 {
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, buf[:n]...)
	}
	if n := bytes.Count(got, []byte(`"modality":"audio"`)); n != 1 {
		t.Errorf("%d audio events before the stall, want 1", n)
	}
	_ = c.Close()
	tr := await(t, s, truth.ClientGone)
	if tr.Stamps.ClientClosedNS == 0 || tr.Samples != 2400 {
		t.Errorf("truth = %+v", tr)
	}
	res, tr := speech(t, "pcm", "stall=after:2+for:30ms")
	if d := tr.Stamps.Audio[2].BeforeNS - tr.Stamps.RequestNS; !res.whole || d < 30e6 {
		t.Errorf("pause of %d ns, whole %v", d, res.whole)
	}
}

// await waits until the last request has ended.
func await(t *testing.T, s *Server, end plan.Ending) Truth {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		if tr := last(t, s); tr.End != truth.Running {
			if tr.End != end {
				t.Errorf("end = %q, want %q", tr.End, end)
			}
			return tr
		}
	}
	t.Fatalf("still running, want %q", end)
	return Truth{}
}
