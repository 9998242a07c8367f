package mock

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	stringOrKey = regexp.MustCompile(`"(?:[^"\\]|\\.)*"(:?)`)
	number      = regexp.MustCompile(`\d+`)
	ownField    = regexp.MustCompile(`(x-[a-z-]+: )[^\r]*`)
)

// skeleton keeps what a client parses by: key order, spacing, nulls, fields.
func skeleton(s string) string {
	s = dates.ReplaceAllString(s, "${1}D")
	s = stringOrKey.ReplaceAllStringFunc(s, func(m string) string {
		if strings.HasSuffix(m, ":") {
			return m
		}
		return "S"
	})
	return ownField.ReplaceAllString(number.ReplaceAllString(s, "N"), "$1*")
}

// recording splits a capture into the client's first request bytes and what
// the server sent until the client spoke again.
func recording(t *testing.T, path string) (client, server string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		e := decodeJSON[struct {
			Dir string
			B64 []byte
		}](t, line)
		switch {
		case i == 0:
		case e.Dir == "s":
			server += string(e.B64)
		case server != "":
			return client, server
		default:
			client += string(e.B64)
		}
	}
	return client, server
}

// bodies are the skeletons of the events or of the JSON of an answer, sorted.
func (res result) bodies() []string {
	var out []string
	for _, c := range res.chunks {
		if strings.HasPrefix(c, "data:") || strings.HasPrefix(c, "event:") {
			out = append(out, skeleton(c))
		}
	}
	if len(out) == 0 && json.Valid(res.body) {
		out = []string{skeleton(string(res.body))}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// The mock is asked what the real servers were asked, byte for byte, and must
// answer in the same form.
func TestAnswersLikeTheRecordedServers(t *testing.T) {
	const sglang = `{"dialect":"sglang-omni"}`
	const broken = `{"dialect":"sglang-omni","faults":["error=after:2"]}`
	tests := []struct{ capture, script string }{
		{"vllm-omni/chat-sse-text-audio", `{}`},
		{"vllm-omni/chat-sse-text-only", `{}`},
		{"vllm-omni/chat-json-audio", `{}`},
		{"vllm-omni/chat-rejected", `{}`},
		{"vllm-omni/chat-sse-error-mid", `{"faults":["error=after:2"]}`},
		{"vllm-omni/speech-file-wav", `{}`},
		{"vllm-omni/speech-raw-wav", `{}`},
		{"vllm-omni/speech-sse-pcm", `{}`},
		{"vllm-omni/speech-sse-error", `{"faults":["error=after:2"]}`},
		{"sglang-omni/chat-stream-text-audio", sglang},
		{"sglang-omni/chat-whole-audio", sglang},
		{"sglang-omni/chat-error-midstream", broken},
		{"sglang-omni/speech-pcm-stream", sglang},
		{"sglang-omni/speech-sse", sglang},
		{"sglang-omni/speech-wav", sglang},
		{"sglang-omni/speech-sse-error-midstream", broken},
		{"sglang-omni/transcription-stream", sglang},
	}
	for _, tt := range tests {
		t.Run(tt.capture, func(t *testing.T) {
			path := filepath.Join("..", "..", "..", "..", "testdata", "captures", tt.capture+".wire.jsonl")
			client, server := recording(t, path)
			sc, err := quick().Overlay([]byte(tt.script))
			if err != nil {
				t.Fatal(err)
			}
			// Six deltas around three of eight chunks, as it was recorded.
			sc.Chunks, sc.TextGapMS, sc.GapMS = 8, Floats{2, 2, 2, 2, 2}, Floats{2}
			_, addr := start(t, Config{Script: sc})
			c := dial(t, addr)
			if _, err := io.WriteString(c, client); err != nil {
				t.Fatal(err)
			}
			got := readAnswer(t, bufio.NewReader(c))
			want := readAnswer(t, bufio.NewReader(strings.NewReader(server)))
			if diff := cmp.Diff(skeleton(want.head), skeleton(got.head)); diff != "" {
				t.Errorf("head (-recorded +mock):\n%s", diff)
			}
			if diff := cmp.Diff(want.bodies(), got.bodies()); diff != "" {
				t.Errorf("events (-recorded +mock):\n%s", diff)
			}
			if want.whole != got.whole {
				t.Errorf("whole = %v, recorded %v", got.whole, want.whole)
			}
		})
	}
}
