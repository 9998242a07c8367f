package mock

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages"
)

// startStaged serves a mock with stage processes.
func startStaged(t *testing.T, cfg stages.Config) (*Server, *stages.Engine, string) {
	t.Helper()
	engine, err := stages.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	s, addr := start(t, Config{Seed: 5, Stages: engine})
	return s, engine, addr
}

// soundOf is the sound of a stream of chat or speech events, and its text.
func soundOf(t *testing.T, payload string) (pcm []byte, text string) {
	t.Helper()
	for _, e := range events(payload) {
		if e.data == "[DONE]" || !strings.HasPrefix(e.data, "{") {
			continue
		}
		v := decodeJSON[struct {
			Modality string
			Audio    string
			Choices  []struct{ Delta struct{ Content string } }
		}](t, e.data)
		switch {
		case v.Audio != "":
			pcm = append(pcm, unbase64(t, v.Audio)...)
		case v.Modality == "audio":
			b, rate := unwav(t, unbase64(t, v.Choices[0].Delta.Content))
			if rate != stages.Rate {
				t.Errorf("rate %d", rate)
			}
			pcm = append(pcm, b...)
		case v.Modality == "text":
			text += v.Choices[0].Delta.Content
		}
	}
	return pcm, text
}

// TestStagedAnswers: what the stages make is what goes out, and what the truth tells;
// the engine's id is the one on the wire and a tail.
func TestStagedAnswers(t *testing.T) {
	for name, mode := range map[string]stages.Mode{"vo-2": stages.ZMQ, "vo-1": stages.Queues} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, _, addr := startStaged(t, stages.Config{Mode: mode, Truth: dir})
			chat := talk(t, addr, post("/v1/chat/completions", `{"stream":true,"max_tokens":7,"stream_options":{"include_usage":true}}`, "X-Request-Id: abc"))
			pcm, text := soundOf(t, chat.payload())
			wantTruth(t, last(t, s), "chatcmpl-abc", pcm, text)
			if text != "Hello from the mock omni. Hel" || len(pcm) != 2*(35*1920-555) || !strings.HasSuffix(chat.payload(), "[DONE]\n\n") || !strings.Contains(chat.payload(), `"completion_tokens":7`) {
				t.Errorf("text %q, %d bytes of sound, then %.200q", text, len(pcm), chat.payload()[max(0, len(chat.payload())-200):])
			}
			if n := strings.Count(chat.payload(), `"finish_reason":"stop"`); n != 1 {
				t.Errorf("%d events end the answer", n)
			}
			only := talk(t, addr, post("/v1/chat/completions", `{"stream":true,"modalities":["text"],"request_id":"own"}`))
			if pcm, text = soundOf(t, only.payload()); len(pcm) != 0 || text == "" {
				t.Errorf("a text has %d bytes of sound, text %q", len(pcm), text)
			}
			wantTruth(t, last(t, s), "chatcmpl-own", pcm, text)
			raw := talk(t, addr, post("/v1/audio/speech", `{"input":"one two","stream_format":"audio","response_format":"pcm"}`))
			wantTruth(t, last(t, s), last(t, s).ID, []byte(raw.payload()), "")
			sse := talk(t, addr, post("/v1/audio/speech", `{"input":"one two","stream_format":"sse","response_format":"pcm"}`))
			pcm, _ = soundOf(t, sse.payload())
			wantTruth(t, last(t, s), last(t, s).ID, pcm, "")
			whole := talk(t, addr, post("/v1/chat/completions", `{"stream":false}`))
			scripted := talk(t, addr, post("/v1/chat/completions", `{"stream":true,"mock":{"text":["x"]}}`))
			if !whole.whole || !scripted.whole {
				t.Error("answers without stages are not whole")
			}
			wantSubmitted(t, filepath.Join(dir, "truth-api.jsonl"), s.Requests())
		})
	}
}

func wantTruth(t *testing.T, got Truth, id string, pcm []byte, text string) {
	t.Helper()
	sum := sha256.Sum256(pcm)
	if got.ID != id || got.Samples != len(pcm)/2 || got.CleanSamples != got.Samples || got.SHA256 != hex.EncodeToString(sum[:]) || got.Text != text || got.End != "complete" {
		t.Errorf("the truth is %s, %d of %d samples, text %q, %s; want %s, %d, %q", got.ID, got.Samples, got.CleanSamples, got.Text, got.End, id, len(pcm)/2, text)
	}
	if len(pcm) > 0 && (got.Stamps.FirstAudio == nil || got.Stamps.EndMarker == nil || got.Stamps.FirstAudio.AfterNS > got.Stamps.EndMarker.BeforeNS) {
		t.Errorf("stamps %+v", got.Stamps)
	}
}

// wantSubmitted checks which requests got to the stages, and by which ids.
func wantSubmitted(t *testing.T, name string, all []Truth) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for line := range strings.Lines(string(b)) {
		var e struct {
			Event      string `json:"event"`
			RequestID  string `json:"request_id"`
			InternalID string `json:"internal_id"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Event != "submit" {
			continue
		}
		ids = append(ids, e.RequestID)
		if tail, ok := strings.CutPrefix(e.InternalID, e.RequestID+"-"); !ok || len(tail) != 8 || strings.Trim(tail, "0123456789abcdef") != "" {
			t.Errorf("engine id %q of %q", e.InternalID, e.RequestID)
		}
		if id, ok := strings.CutPrefix(e.RequestID, "speech-"); ok && (len(id) != 16 || strings.Trim(id, "0123456789abcdef") != "") {
			t.Errorf("speech id %q", e.RequestID)
		}
	}
	if want := fmt.Sprint([]string{all[0].ID, all[1].ID, all[2].ID, all[3].ID}); fmt.Sprint(ids) != want {
		t.Errorf("the stages had %v, want %v", ids, want)
	}
}

// TestStagedServerDies: a stage that ends is an error event amid a stream, a status
// where nothing was sent, and a sick server.
func TestStagedServerDies(t *testing.T) {
	s, engine, addr := startStaged(t, stages.Config{})
	resp, err := http.Post("http://"+addr+"/v1/chat/completions", "application/json", strings.NewReader(`{"stream":true,"max_tokens":2000}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	pid := engine.PIDs()[1]
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(resp.Body)
	message := fmt.Sprintf("Dead stage process(es) detected: talker (pid=%d, exit=-9)", pid)
	want := fmt.Sprintf("data: {\"error\": {\"message\": \"%s\", \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}\n\ndata: [DONE]\n\n", message)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.HasSuffix(string(rest), want) {
		t.Errorf("status %d, %v, it ends by %.300q", resp.StatusCode, err, rest[max(0, len(rest)-300):])
	}
	if got := last(t, s); got.End != "error" {
		t.Errorf("the truth says %s", got.End)
	}
	for _, c := range [][2]string{{"/v1/chat/completions", `{"stream":true}`}, {"/v1/audio/speech", `{"input":"x","stream":true}`}} {
		if got := talk(t, addr, post(c[0], c[1])); !strings.HasPrefix(got.head, "HTTP/1.1 500 ") || !strings.Contains(string(got.body), message) {
			t.Errorf("%s: %q %q", c[0], got.head, got.body)
		}
	}
	if got := talk(t, addr, "GET /health HTTP/1.1\r\nHost: m\r\n\r\n"); !strings.HasPrefix(got.head, "HTTP/1.1 503 ") {
		t.Errorf("health: %q", got.head)
	}
}

// TestStagedClientLeaves: the stages are told, and the truth as well.
func TestStagedClientLeaves(t *testing.T) {
	dir := t.TempDir()
	s, _, addr := startStaged(t, stages.Config{Truth: dir})
	c := dial(t, addr)
	if _, err := io.WriteString(c, post("/v1/chat/completions", `{"stream":true,"max_tokens":2000}`, "X-Request-Id: gone")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 2000)); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); ; <-tick.C {
		b, err := os.ReadFile(filepath.Join(dir, "truth-api.jsonl"))
		if err != nil || time.Now().After(end) {
			t.Fatalf("the stages were not told: %v", err)
		}
		if strings.Contains(string(b), `"request_id":"chatcmpl-gone","chunk":null,"event":"cancel"`) {
			break
		}
	}
	if got := last(t, s); got.End != "client-gone" || got.Stamps.ClientClosedNS == 0 {
		t.Errorf("the truth says %s, %d", got.End, got.Stamps.ClientClosedNS)
	}
}

// TestStagedBadRequests: an id that cannot be part of a file's name is refused, and so
// is a server whose every request has a script.
func TestStagedBadRequests(t *testing.T) {
	_, engine, addr := startStaged(t, stages.Config{})
	for _, id := range []string{"a/b", strings.Repeat("x", 201)} {
		if got := talk(t, addr, post("/v1/chat/completions", `{"stream":true}`, "X-Request-Id: "+id)); !strings.HasPrefix(got.head, "HTTP/1.1 400 ") {
			t.Errorf("id %.20q: %q", id, got.head)
		}
	}
	if _, err := New(Config{Stages: engine, Script: Script{Text: []string{"x"}}}); err == nil {
		t.Error("a script for all and stages go together")
	}
}
