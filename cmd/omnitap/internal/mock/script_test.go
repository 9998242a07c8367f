package mock

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
)

func TestNewRefuses(t *testing.T) {
	for _, cfg := range []Config{
		{Dialect: "klingon"},
		{Script: Script{Rate: -1}},
		{Script: Script{Tone: "violin"}},
		{Script: Script{Samples: script.Ints{-5}}},
		{Script: Script{Chunks: 100, Samples: script.Ints{script.MaxFrames}}},
		{Script: Script{Faults: []string{"nonsense"}}},
		{Script: Script{LineEnd: "vt"}},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("New(%+v) = nil error", cfg)
		}
	}
}

func TestScriptSources(t *testing.T) {
	s, addr := start(t, Config{Dialect: DialectSGLang, Script: quick()})
	tests := []struct{ name, header, body, want string }{
		{"server", ``, chatBody, DialectSGLang},
		{"header", `X-Mock-Script: {"dialect":"openai"}`, chatBody, DialectOpenAI},
		{"body", ``, strings.Replace(chatBody, "{", `{"mock":{"dialect":"vllm-omni"},`, 1), DialectVLLM},
	}
	for _, tt := range tests {
		headers := []string{}
		if tt.header != "" {
			headers = append(headers, tt.header)
		}
		talk(t, addr, post("/v1/chat/completions", tt.body, headers...))
		if got := last(t, s).Dialect; got != tt.want {
			t.Errorf("%s: dialect %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Field case C17: empty audio events of every kind, then a real one.
func TestSteps(t *testing.T) {
	sc := `{"steps":[{"role":true},{"text":""},{"empty":"empty"},{"empty":"null"},{"comment":" hold on"},{"empty":"header"},{"wait_ms":2,"samples":7},{"text":"Hi"},{"body":"data: \u2028verbatim\n\n"}]}`
	res, tr := chat(t, sc)
	var got []string
	for _, c := range res.chunks {
		_, v, ok := strings.Cut(c, `"content":`)
		if !ok {
			v = c
		}
		got = append(got, v[:min(10, len(v))])
	}
	want := []string{`""},"logpr`, `""},"logpr`, `""},"logpr`, `null},"log`, ": hold on\n", `"UklGRiQAA`, `"UklGRjIAA`, `"Hi"},"log`, "data: \u2028v", "data: [DON"}
	for i := range want {
		want[i] = want[i][:min(10, len(want[i]))]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if tr.Samples != 7 || tr.Text != "Hi" || len(tr.TextDeltas) != 2 {
		t.Errorf("truth = %+v", tr)
	}
	if tr.Stamps.FirstAudio.BeforeNS-tr.Stamps.RequestNS < 2e6 {
		t.Error("the wait before the first audio is missing")
	}
}

func TestRawScript(t *testing.T) {
	sc := `{"raw":[{"text":"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"},{"wait_ms":1,"base64":"AAEC","end":"fin"}]}`
	s, addr := start(t, Config{})
	c := dial(t, addr)
	if _, err := io.WriteString(c, post("/v1/audio/speech", `{}`, "X-Mock-Script: "+sc)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if want := "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n\x00\x01\x02"; err != nil || string(got) != want {
		t.Errorf("raw = %q, %v, want %q", got, err, want)
	}
	if tr := last(t, s); tr.End != truth.Cut || tr.BytesOut != int64(len(got)) {
		t.Errorf("truth = %+v", tr)
	}
}

func TestOrders(t *testing.T) {
	tests := []struct{ sc, want string }{
		{`{"order":"text-first"}`, "ttaa"},
		{`{"order":"audio-first"}`, "aatt"},
		{`{"order":"interleaved"}`, "tata"},
		{`{"gap_ms":2,"text_gap_ms":5,"audio_delay_ms":1}`, "taat"},
	}
	for _, tt := range tests {
		sc := quick()
		sc.Text, sc.Chunks = []string{"a", "b"}, 2
		_, addr := start(t, Config{Script: sc})
		res := talk(t, addr, post("/v1/chat/completions", chatBody, "X-Mock-Script: "+tt.sc))
		got := ""
		for _, e := range events(res.payload()) {
			switch {
			case strings.Contains(e.data, `"delta":{"content"`):
				got += "t"
			case strings.Contains(e.data, `"modality":"audio"`):
				got += "a"
			}
		}
		if got != tt.want {
			t.Errorf("%s: order %s, want %s", tt.sc, got, tt.want)
		}
	}
}

func TestControl(t *testing.T) {
	s, addr := start(t, Config{Script: quick()})
	talk(t, addr, post("/v1/chat/completions", chatBody))
	res := talk(t, addr, "GET /mock/requests HTTP/1.1\r\nHost: m\r\n\r\n")
	got := decodeJSON[[]Truth](t, res.payload())
	if diff := cmp.Diff(s.Requests(), got); diff != "" {
		t.Errorf("/mock/requests (-want +got):\n%s", diff)
	}
	if len(got) != 1 || got[0].End != plan.Complete || got[0].Samples != 12000 {
		t.Errorf("truth = %+v", got)
	}
	if res := talk(t, addr, post("/mock/reset", ``)); res.payload() != `{"reset":true}` || len(s.Requests()) != 0 {
		t.Errorf("reset: %s, %d requests left", res.payload(), len(s.Requests()))
	}
	res = talk(t, addr, "GET /v1/models HTTP/1.1\r\nHost: m\r\n\r\n")
	if m := decodeJSON[struct{ Data []struct{ ID string } }](t, res.payload()); m.Data[0].ID != "mock-omni" {
		t.Errorf("models = %s", res.payload())
	}
}

func TestFirstAudioStampCoversTheSegments(t *testing.T) {
	_, tr := speech(t, "pcm", "segments=50+pause:1ms")
	a := tr.Stamps.Audio
	if a[0].AfterNS-a[0].BeforeNS < 3e6 { // 206 bytes in five writes
		t.Errorf("first chunk took %d ns", a[0].AfterNS-a[0].BeforeNS)
	}
	for i := 1; i < len(a); i++ {
		if a[i].BeforeNS < a[i-1].BeforeNS || a[i].AfterNS <= a[i-1].AfterNS {
			t.Errorf("stamps out of order: %+v", a)
		}
	}
}
