package mock

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
)

// spoken is one message or close frame of a recorded session.
type spoken struct {
	server bool
	op     int
	data   []byte
}

// side is the byte stream of one direction on its way to frames.
type side struct {
	buf      []byte
	headless bool
	window   []byte // what deflate may refer to
}

// recordedSession reads the messages of a recording, and its request line.
func recordedSession(t *testing.T, path string) (target string, out []spoken) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	sides := map[string]*side{"c": {}, "s": {}}
	lines := bufio.NewReader(r)
	for i := 0; ; i++ {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return target, out
		}
		e := decodeJSON[struct {
			Dir string
			B64 []byte
		}](t, string(line))
		if i == 0 || e.B64 == nil {
			continue
		}
		d := sides[e.Dir]
		d.buf = append(d.buf, e.B64...)
		if !d.headless {
			head, rest, ok := bytes.Cut(d.buf, []byte("\r\n\r\n"))
			if !ok {
				continue
			}
			if e.Dir == "c" {
				target = strings.Fields(string(head))[1]
			}
			d.headless, d.buf = true, rest
		}
		for {
			op, data, ok := d.frame(t)
			if !ok {
				break
			}
			out = append(out, spoken{e.Dir == "s", op, data})
		}
	}
}

// frame takes one unfragmented frame off the front.
func (d *side) frame(t *testing.T) (op int, data []byte, ok bool) {
	t.Helper()
	b := d.buf
	if len(b) < 2 {
		return 0, nil, false
	}
	n, at := int(b[1]&127), 2
	switch {
	case n == 126 && len(b) >= 4:
		n, at = int(binary.BigEndian.Uint16(b[2:])), 4
	case n == 127 && len(b) >= 10:
		n, at = int(binary.BigEndian.Uint64(b[2:])), 10
	case n > 125:
		return 0, nil, false
	}
	var key [4]byte
	if b[1]&0x80 != 0 && len(b) >= at+4 {
		copy(key[:], b[at:])
		at += 4
	}
	if len(b) < at+n {
		return 0, nil, false
	}
	data = bytes.Clone(b[at : at+n])
	for i := range data {
		data[i] ^= key[i%4]
	}
	if b[0]&0x40 != 0 {
		z := flate.NewReaderDict(bytes.NewReader(append(data, "\x00\x00\xff\xff\x01\x00\x00\xff\xff"...)), d.window)
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		data = plain
		d.window = append(d.window, plain...)
		d.window = d.window[max(0, len(d.window)-1<<15):]
	}
	op = int(b[0] & 15)
	d.buf = b[at+n:]
	return op, data, true
}

// look is what is compared of a message: its type, keys and spacing.
func (s spoken) look() string {
	switch s.op {
	case websocket.BinaryMessage:
		return "binary"
	case websocket.CloseMessage:
		return fmt.Sprintf("close %x", s.data)
	}
	return s.kind() + " " + skeleton(string(s.data))
}

func (s spoken) kind() string {
	var v struct{ Type string }
	if s.op != websocket.TextMessage || json.Unmarshal(s.data, &v) != nil {
		return ""
	}
	return v.Type
}

// lane is the part of a session whose order does not depend on time.
func lane(look string) string {
	switch {
	case strings.HasPrefix(look, "input_audio_buffer."):
		return "input"
	case strings.HasPrefix(look, "conversation.item.input_audio_transcription."):
		return "heard"
	case strings.HasPrefix(look, "response.text.done"):
		return "text" // comes when the text's stage ends, among the audio
	case strings.HasPrefix(look, "sglang.input"):
		return "accepted"
	}
	return "answer"
}

func lanes(list []spoken) map[string][]string {
	out := map[string][]string{}
	for _, s := range list {
		look := s.look()
		out[lane(look)] = append(out[lane(look)], look)
	}
	return out
}

// steps are the output of each recorded turn as the steps of a script, and the
// index of the message that ends it.
func steps(t *testing.T, list []spoken, ends ...string) (turns [][]Step, last []int) {
	t.Helper()
	var turn []Step
	output := 0 // index of the last
	for i, s := range list {
		if !s.server {
			continue
		}
		kind := s.kind()
		var v struct{ Delta, Audio, Data string }
		if s.op == websocket.TextMessage {
			v = decodeJSON[struct{ Delta, Audio, Data string }](t, string(s.data))
		}
		before := len(turn)
		sound := v.Delta + v.Audio + v.Data
		switch {
		case s.op == websocket.BinaryMessage:
			turn = append(turn, Step{Samples: samplesOf(s.data)})
		case strings.HasSuffix(kind, "audio.delta"):
			b := unbase64(t, sound)
			if strings.Contains(string(s.data), "g711") {
				b = append(b, b...)
			}
			turn = append(turn, Step{Samples: samplesOf(b)})
		case strings.HasSuffix(kind, "transcript.delta") && v.Delta != "" && len(turn) > 0:
			// A native model's text goes with the audio before it.
			turn = slices.Insert(turn, len(turn)-1, Step{Text: &v.Delta})
		case kind == "transcription.delta", kind == "response.text.delta", kind == "response.output_text.delta":
			turn = append(turn, Step{Text: &v.Delta})
		}
		if len(turn) > before {
			output = i
		}
		isEnd := slices.Contains(ends, kind)
		if interrupted := kind == "response.start" && len(turn) > 0; isEnd || interrupted {
			if interrupted || strings.Contains(string(s.data), `cancelled"`) {
				turn = append(turn, Step{WaitMS: 1e6, Samples: 1})
			}
			if interrupted {
				i = output
			}
			turns, last = append(turns, turn), append(last, i)
			turn = nil
		}
	}
	return turns, last
}

func samplesOf(b []byte) int {
	if bytes.HasPrefix(b, []byte("RIFF")) {
		b = b[44:]
	}
	return len(b) / 2
}

// The mock is told what the real clients said, and must say what the real
// servers said: the same events in the same order, key for key.
func TestSessionsLikeTheRecordedServers(t *testing.T) {
	const sglang, heard = `"dialect":"sglang-omni"`, `"heard":["The"," quick"," relay"," saw"," naïve"," samples"," pass;"," 日本"]`
	tests := []struct{ capture, script, end, fault string }{
		{"vllm-omni/speech-ws-two-utterances", ``, "audio.done", ""},
		{"vllm-omni/speech-ws-rate-lie", `"rate":16000`, "audio.done", ""},
		{"vllm-omni/speech-ws-wav-deflate", `"deflate":true`, "audio.done", ""},
		{"vllm-omni/speech-ws-error", ``, "audio.done", "0"},
		{"vllm-omni-cpu/speech-ws-file", ``, "audio.done", ""},
		{"vllm-omni/realtime-two-turns", `"deflate":true`, "response.audio.done", ""},
		{"vllm-omni/realtime-error", ``, "response.audio.done", "0"},
		{"vllm-omni-gpu/realtime", ``, "response.audio.done", ""},
		{"vllm-omni/duplex-two-responses", ``, "response.done", ""},
		{"vllm-omni/duplex-cancelled", ``, "response.done", ""},
		{"vllm-omni/duplex-native", ``, "response.done", ""},
		{"vllm-omni/duplex-model-native", `"units":["listen","speak","speak"]`, "response.done", ""},
		{"vllm-omni/duplex-model-native-ulaw", `"units":["listen","speak"]`, "response.done", ""},
		{"vllm-omni/video-chat-two-queries", ``, "response.audio.done", ""},
		{"vllm-omni/video-chat-delta-engine", ``, "response.audio.done", ""},
		{"vllm-omni/video-chat-interrupted", ``, "response.audio.done", ""},
		{"sglang-omni/speech-ws-stream", sglang, "audio.done", ""},
		{"sglang-omni/speech-ws-whole-deflate", sglang + `,"deflate":true`, "audio.done", ""},
		{"sglang-omni/speech-ws-error", sglang, "audio.done", "0"},
		{"sglang-omni/realtime-two-turns", sglang + "," + heard, "response.done", ""},
		{"sglang-omni/realtime-barge-in", sglang + "," + heard, "response.done", ""},
		{"sglang-omni/realtime-error", sglang + "," + heard, "response.done", "0"},
		{"sglang-omni/realtime-transcription", sglang + "," + heard, "", ""},
		{"sglang-omni/duplex-two-responses", sglang + `,"realtime":"shared"`, "response.done", ""},
		{"sglang-omni/duplex-fatal-error", sglang + `,"realtime":"shared"`, "response.done", "0"},
	}
	for _, tt := range tests {
		t.Run(tt.capture, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join("..", "..", "..", "..", "testdata", "captures", tt.capture+".wire.jsonl")
			if _, err := os.Stat(path); err != nil {
				path += ".gz"
			}
			target, said := recordedSession(t, path)
			turns, last := steps(t, said, tt.end)
			own := "{" + tt.script + "}"
			sc, err := quick().Overlay([]byte(own))
			if err != nil {
				t.Fatal(err)
			}
			_, addr := start(t, Config{Script: sc})
			got := speakAgain(t, addr, target, said, func(i int) string {
				n := 0
				for n < len(last)-1 && i > last[n] {
					n++
				}
				if len(turns) == 0 {
					return ""
				}
				faults := ""
				if tt.fault == fmt.Sprint(n) {
					faults = `,"faults":["error=output"]`
				}
				b, err := json.Marshal(turns[n])
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprintf(`{"steps":%s%s}`, b, faults)
			})
			want := slices.DeleteFunc(slices.Clone(said), func(s spoken) bool { return !s.server })
			if diff := cmp.Diff(lanes(want), lanes(got)); diff != "" {
				t.Errorf("events (-recorded +mock):\n%s", diff)
			}
		})
	}
}

// speakAgain sends the client's messages of a recording, each when as much
// has come as had come then, and returns all that comes. A message may bring a
// script of its own.
func speakAgain(t *testing.T, addr, target string, said []spoken, script func(i int) string) []spoken {
	t.Helper()
	u, err := url.Parse("ws://" + addr + target)
	if err != nil {
		t.Fatal(err)
	}
	d := websocket.Dialer{EnableCompression: true}
	ws, resp, err := d.Dial(u.String(), http.Header{})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	t.Cleanup(func() { ws.Close() })
	if err := ws.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var got []spoken
	ws.SetCloseHandler(func(code int, _ string) error {
		got = append(got, spoken{true, websocket.CloseMessage, binary.BigEndian.AppendUint16(nil, uint16(code))})
		return nil
	})
	read := func() bool {
		op, data, err := ws.ReadMessage()
		if err != nil {
			t.Logf("read ended: %v", err)
			return false
		}
		got = append(got, spoken{true, op, data})
		return true
	}
	seen := 0
	for i, s := range said {
		if s.server {
			seen++
			continue
		}
		for len(got) < seen {
			if !read() {
				return got
			}
		}
		data := s.data
		if own := script(i); s.op == websocket.TextMessage && own != "" && !strings.HasPrefix(s.kind(), "session.") {
			data = append(bytes.TrimSuffix(data, []byte("}")), `,"mock":`+own+"}"...)
		}
		if s.op == websocket.CloseMessage {
			err = ws.WriteControl(s.op, data, time.Now().Add(time.Second))
		} else {
			err = ws.WriteMessage(s.op, data)
		}
		if err != nil {
			t.Logf("write ended: %v", err)
		}
	}
	for read() {
	}
	return got
}
