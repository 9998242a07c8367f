package tap_test

import (
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// captures is where the recorded traffic of the real servers lies.
const captures = "../../testdata/captures"

// records collects what a reading sends out.
type records struct {
	records []*timeline.Record
	events  []timeline.Event
}

func (r *records) Session(*timeline.Session) {}

func (r *records) Record(x *timeline.Record) { r.records = append(r.records, x) }
func (r *records) Event(e *timeline.Event)   { r.events = append(r.events, *e) }

func open(t testing.TB, path string) io.Reader {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if !strings.HasSuffix(path, ".gz") {
		return f
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// expected is one exchange as it stands beside a capture. A key that is absent
// is not checked; null must be null in the record, with a reason.
type expected map[string]json.RawMessage

func expectations(t testing.TB, path string) []expected {
	t.Helper()
	base, _, _ := strings.Cut(path, ".wire.jsonl")
	b, err := os.ReadFile(base + ".expect.json")
	if err != nil {
		t.Fatal(err)
	}
	var e struct{ Exchanges []expected }
	if err := json.Unmarshal(b, &e); err != nil {
		t.Fatal(err)
	}
	return e.Exchanges
}

// known are expectations that contradict contract.md or another capture, by
// capture and key, with the reason; they are checked to differ, so that a
// capture that is mended shows.
var known = map[string]string{
	// The answer is a plain 400 that does not stream; every other refusal's expectation says false.
	"vllm-omni-cpu/chat-bad-modality stream": "a refusal does not stream",
	// records.md section 1: a path without its query.
	"vllm-omni/duplex-cancelled path":         "with its query",
	"vllm-omni/duplex-model-native path":      "with its query",
	"vllm-omni/duplex-model-native-ulaw path": "with its query",
	"vllm-omni/duplex-two-responses path":     "with its query",
	// Bare PCM: no byte of the wire says 24000; the sibling set expects null with an assumed rate.
	"vllm-omni-cpu/chat-pcm audio.sample_rate":            "not on the wire",
	"vllm-omni-cpu/speech-raw-pcm audio.sample_rate":      "not on the wire",
	"vllm-omni-cpu/speech-file-pcm audio.sample_rate":     "not on the wire",
	"vllm-omni-cpu/speech-sse audio.sample_rate":          "not on the wire",
	"vllm-omni-cpu/speech-cancel audio.sample_rate":       "not on the wire",
	"vllm-omni-cpu/speech-concurrent-a audio.sample_rate": "not on the wire",
	"vllm-omni-cpu/speech-concurrent-b audio.sample_rate": "not on the wire",
	// The end behind the zero chunk; records.md section 1 has the last payload byte, as the other sets do.
	"vllm-omni-cpu/speech-raw-pcm offsets.t_term":      "framing counted in",
	"vllm-omni-cpu/speech-raw-wav offsets.t_term":      "framing counted in",
	"vllm-omni-cpu/speech-concurrent-a offsets.t_term": "framing counted in",
	"vllm-omni-cpu/speech-concurrent-b offsets.t_term": "framing counted in",
	// Compressed files: samples are counted by no reader that does not decode (case C30).
	"vllm-omni-cpu/speech-file-mp3 audio.sample_rate":  "codec",
	"vllm-omni-cpu/speech-file-mp3 audio.channels":     "codec",
	"vllm-omni-cpu/speech-file-mp3 audio.samples":      "codec",
	"vllm-omni-cpu/speech-file-flac audio.sample_rate": "codec",
	"vllm-omni-cpu/speech-file-flac audio.channels":    "codec",
	"vllm-omni-cpu/speech-file-flac audio.samples":     "codec",
}

func TestCapturesReplayToTheirRecords(t *testing.T) {
	files, err := filepath.Glob(captures + "/*/*.wire.jsonl*")
	if err != nil || len(files) < 100 {
		t.Fatalf("%d captures, %v", len(files), err)
	}
	checked := 0
	for _, path := range files {
		ex := expectations(t, path)
		name := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(path, captures+"/"), ".gz"), ".wire.jsonl")
		t.Run(name, func(t *testing.T) {
			checked++
			var got records
			cfg := tap.Config{}.WithDefaults()
			if _, err := tap.Replay(&cfg, open(t, path), timeline.Identity{OwnID: "r"}, &got); err != nil {
				t.Fatal(err)
			}
			slices.SortStableFunc(got.records, func(a, b *timeline.Record) int { return cmp.Compare(turnOf(a), turnOf(b)) })
			var kept []*timeline.Record
			for _, r := range got.records {
				if len(kept) < len(ex) {
					kept = append(kept, r)
				}
			}
			if len(kept) != len(ex) || turnOf(got.records[0]) >= 0 && len(got.records) != len(ex) {
				t.Fatalf("%d records, want %d", len(got.records), len(ex))
			}
			for i, e := range ex {
				check(t, fmt.Sprintf("%s exchange %d", name, i), name, e, kept[i])
			}
		})
	}
	if checked < 100 {
		t.Errorf("%d captures checked", checked)
	}
}

// turnOf returns a record's turn, -1 for an exchange.
func turnOf(r *timeline.Record) int {
	if r.Turn == nil {
		return -1
	}
	return *r.Turn
}

// check compares a record with what stands beside the capture.
func check(t *testing.T, at, name string, e expected, r *timeline.Record) {
	t.Helper()
	flat := flatten(t, r)
	compare := func(key, field string, raw json.RawMessage) {
		t.Helper()
		if raw == nil {
			return
		}
		want, got := string(raw), flat[field]
		if got == "" {
			got = "null"
		}
		why, odd := known[name+" "+field]
		switch {
		case odd && got == want:
			t.Errorf("%s: %s is now as expected; take it off the list (%s)", at, field, why)
		case odd:
		case got != want:
			t.Errorf("%s: %s = %s, want %s (%s)", at, field, got, want, key)
		case want == "null" && r.Unmeasured[field] == "":
			t.Errorf("%s: %s is null without a reason", at, field)
		}
	}
	for key, field := range map[string]string{
		"method": "method", "path": "path", "status": "status", "flow": "flow", "stream": "stream",
		"terminal_state": "terminal.state", "first_text_offset": "offsets.t_text",
		"first_audio_event_offset": "offsets.t_audio_event", "first_playable_offset": "offsets.t_audio",
		"first_audible_offset": "offsets.t_audible",
	} {
		compare(key, field, e[key])
	}
	for key, field := range map[string]string{
		"t_in_offset": "offsets.t_in", "input_end_offset": "offsets.t_body", "t_in_server_offset": "t_in_server_offset",
		"t_in_source": "t_in_source", "turn": "turn",
	} {
		compare(key, field, e[key])
	}
	end := e["end_marker_offset"]
	if string(end) == "null" && e["body_end_offset"] != nil && string(e["terminal_state"]) != `"transport-error"` && e["error_offset"] == nil {
		end = e["body_end_offset"] // a flow without a marker: the last payload byte (records.md section 1)
	}
	compare("end_marker_offset", "offsets.t_term", end)
	if raw := e["text"]; raw != nil {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(text))
		compare("text", "text_sha256", json.RawMessage(`"`+hex.EncodeToString(sum[:])+`"`))
		compare("text", "text_bytes", json.RawMessage(fmt.Sprint(len(text))))
	}
	compare("text_deltas", "text_units", e["text_deltas"])
	checkAudio(t, e["audio"], compare)
}

func checkAudio(t *testing.T, raw json.RawMessage, compare func(string, string, json.RawMessage)) {
	t.Helper()
	var a map[string]json.RawMessage
	if raw == nil || json.Unmarshal(raw, &a) != nil || a == nil {
		return
	}
	if string(a["samples"]) == "0" { // nothing came: there is no form to tell
		compare("audio", "audio", json.RawMessage("null"))
		return
	}
	for key, field := range map[string]string{
		"container": "audio.container", "encoding": "audio.encoding", "sample_rate": "audio.sample_rate", "channels": "audio.channels",
		"samples": "audio.samples", "chunks": "audio.chunks", "sha256_pcm": "audio.sha256", "assumed_sample_rate": "audio.assumed_sample_rate",
	} {
		compare(key, field, a[key])
	}
}

// flatten gives a line's values by their dotted names, as JSON.
func flatten(t testing.TB, line any) map[string]string {
	t.Helper()
	b, err := json.Marshal(line)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	var walk func(prefix string, raw json.RawMessage)
	walk = func(prefix string, raw json.RawMessage) {
		out[prefix] = string(raw)
		var m map[string]json.RawMessage
		if len(raw) > 0 && raw[0] == '{' && json.Unmarshal(raw, &m) == nil {
			for k, v := range m {
				walk(strings.TrimPrefix(prefix+"."+k, "."), v)
			}
		}
	}
	walk("", b)
	return out
}
