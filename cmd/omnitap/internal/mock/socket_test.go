package mock

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/wire"
)

// peer is a client of one session.
type peer struct {
	t   *testing.T
	ws  *websocket.Conn
	pcm []byte   // of all audio that came, containers off
	log []string // types of events that came
	err error
}

// call opens a session with a script of its own laid over quick.
func call(t *testing.T, addr, path, script string) *peer {
	t.Helper()
	d := websocket.Dialer{EnableCompression: true}
	ws, resp, err := d.Dial("ws://"+addr+path, http.Header{"X-Mock-Script": {script}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	t.Cleanup(func() { ws.Close() })
	if err := ws.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &peer{t: t, ws: ws}
}

func (p *peer) say(messages ...string) {
	p.t.Helper()
	for _, m := range messages {
		if err := p.ws.WriteMessage(websocket.TextMessage, []byte(m)); err != nil {
			p.t.Errorf("saying %.60s: %v", m, err)
		}
	}
}

// until reads up to an event of a type, or to the end if it is empty.
func (p *peer) until(kind string) string {
	p.t.Helper()
	for {
		op, data, err := p.ws.ReadMessage()
		if err != nil {
			if p.err = err; kind != "" {
				p.t.Fatalf("waiting for %s after %v: %v", kind, p.log, err)
			}
			return ""
		}
		name := "binary"
		if op == websocket.TextMessage {
			var v struct{ Type, Delta, Audio, Data, AudioB64 string }
			if json.Unmarshal(data, &v) != nil {
				v.Type = "no JSON"
			}
			name = v.Type
			if b := v.Delta + v.Audio + v.Data; strings.HasSuffix(name, "audio.delta") {
				p.pcm = append(p.pcm, bare(unbase64(p.t, b))...)
			}
		} else {
			p.pcm = append(p.pcm, bare(data)...)
		}
		p.log = append(p.log, name)
		if name == kind {
			return string(data)
		}
	}
}

func bare(b []byte) []byte {
	if bytes.HasPrefix(b, []byte("RIFF")) {
		return b[44:]
	}
	return b
}

// agrees checks that the last turn's truth is what the client heard.
func (p *peer) agrees(s *Server) Truth {
	p.t.Helper()
	var tr Truth
	for _, r := range s.Requests() {
		if r.Form == "turn" {
			tr = r
		}
	}
	sum := sha256.Sum256(p.pcm)
	if tr.Samples != len(p.pcm)/2 || tr.SHA256 != hex.EncodeToString(sum[:]) {
		p.t.Errorf("truth has %d samples, the client %d (or others)", tr.Samples, len(p.pcm)/2)
	}
	if n := len(tr.SamplesPerChunk); n != len(tr.Stamps.Audio) || tr.Samples > 0 && tr.Stamps.FirstAudio == nil {
		p.t.Errorf("%d chunks with %d stamps", n, len(tr.Stamps.Audio))
	}
	return tr
}

const (
	speechPath = "/v1/audio/speech/stream"
	configPCM  = `{"type":"session.config","response_format":"pcm","stream_audio":true}`
	inputText  = `{"type":"input.text","text":"Hello."}`
	inputDone  = `{"type":"input.done"}`
	closeIt    = `{"type":"session.close"}`
)

// speakOnce plays one utterance with faults up to the end of the session.
func speakOnce(t *testing.T, faults ...string) (*Server, *peer) {
	t.Helper()
	s, addr := start(t, Config{Script: quick(faults...)})
	p := call(t, addr, speechPath, `{"chunks":3,"samples":[100,80,60],"tone":"ramp"}`)
	p.say(configPCM, inputText, inputDone, closeIt)
	p.until("")
	return s, p
}

var utterance = []string{"audio.start", "binary", "binary", "binary", "audio.done", "session.done"}

func TestSpeechSession(t *testing.T) {
	s, p := speakOnce(t)
	if diff := cmp.Diff(utterance, p.log); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if !websocket.IsCloseError(p.err, 1000) {
		t.Errorf("the session ends with %v", p.err)
	}
	tr := p.agrees(s)
	if tr.Samples != 240 || tr.CleanSamples != 240 || tr.End != "complete" || tr.Stamps.EndMarker == nil {
		t.Errorf("truth = %+v", tr)
	}
	if diff := cmp.Diff(utterance, tr.Events); diff != "" {
		t.Errorf("events of the truth (-want +got):\n%s", diff)
	}
	if c := s.Requests()[0]; c.Form != "session" || c.End != "complete" || c.Close != "1000" || c.Session != tr.Session || c.Status != 101 {
		t.Errorf("connection = %+v", c)
	}
}

// What faults leave of the events, and of the end.
func TestSessionFaultsInEvents(t *testing.T) {
	tests := []struct {
		fault string
		want  []string
		end   string // of the turn
	}{
		{"no-done", utterance[:5], "complete"},
		{"double-done", append(slices.Clone(utterance), "session.done"), "complete"},
		{"after-done", append(slices.Clone(utterance), "binary"), "complete"},
		{"skip=audio.done", slices.Delete(slices.Clone(utterance), 4, 5), "complete"},
		{"skip=audio.*/session.done", utterance[1:4], "complete"},
		{"late-done=5ms", utterance, "complete"},
		{"no-audio", []string{"audio.start", "audio.done", "session.done"}, "complete"},
		{"empty-audio=empty", slices.Insert(slices.Clone(utterance), 1, "binary"), "complete"},
		{"header-per-chunk", utterance, "complete"},
		{"lost=10", utterance, "complete"},
		{"repeat=10", utterance, "complete"},
		{"unknown=1", slices.Insert(slices.Clone(utterance), 1, "mock.unknown.delta"), "complete"},
		{"bad-json=1", append([]string{"no JSON"}, utterance[1:]...), "complete"},
		{"error=after:2", []string{"audio.start", "binary", "binary", "error", "audio.done", "session.done"}, "error"},
		{"error=event:1", []string{"audio.start", "error", "audio.done", "session.done"}, "error"},
		{"error=head", []string{"error", "audio.done", "session.done"}, "error"},
		{"error=output", []string{"audio.start", "binary", "binary", "binary", "error", "audio.done", "session.done"}, "error"},
		{"cut=after:2", utterance[:3], "cut"},
		{"cut=output", utterance[:4], "cut"},
		{"cut=end", utterance, "complete"},
		{"reset=after:1", utterance[:2], "reset"},
		{"close=1011+at:after:1+reason:gone", utterance[:2], "closed"},
		{"server-half-close=after:1", utterance[:2], "cut"},
		{"burst", utterance, "complete"},
		{"segments=1/2/3", utterance, "complete"},
		{"merge=4", utterance, "complete"},
		{"fragments=3+ping:x", utterance, "complete"},
	}
	for _, tt := range tests {
		t.Run(tt.fault, func(t *testing.T) {
			t.Parallel()
			s, p := speakOnce(t, tt.fault)
			if diff := cmp.Diff(tt.want, p.log); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			extra := 0
			if tt.fault == "after-done" {
				extra = 10
				p.pcm = p.pcm[:len(p.pcm)-20]
			}
			tr := p.agrees(s)
			if string(tr.End) != tt.end || tr.ExtraSamples != extra {
				t.Errorf("end %q, %d extra samples", tr.End, tr.ExtraSamples)
			}
		})
	}
}

// rawSession speaks one utterance over a bare connection and returns all the
// bytes that come behind the head, and how they ended.
func rawSession(t *testing.T, addr string) ([]byte, error) {
	t.Helper()
	c := dial(t, addr)
	out := "GET " + speechPath + " HTTP/1.1\r\nHost: m\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
	for _, m := range []string{configPCM, inputText, inputDone, closeIt} {
		out += masked(m)
	}
	if _, err := io.WriteString(c, out); err != nil {
		t.Fatal(err)
	}
	var b []byte
	var err error
	for buf := make([]byte, 4096); err == nil; {
		var n int
		n, err = c.Read(buf)
		if b = append(b, buf[:n]...); bytes.HasSuffix(b, []byte("\x88\x02\x03\xe8")) {
			_, _ = io.WriteString(c, "\x88\x82\x00\x00\x00\x00\x03\xe8")
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	_, body, ok := bytes.Cut(b, []byte("\r\n\r\n"))
	if !ok {
		t.Fatalf("no head: %q", b)
	}
	return body, err
}

// masked is a text frame of a client; a mask of zeros is one too.
func masked(text string) string {
	return string([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}) + text
}

func TestSessionFaultsInFrames(t *testing.T) {
	tests := []struct {
		fault     string
		has, ends string // bytes
		err       error
	}{
		{"close=999+at:after:1", "", "\x88\x02\x03\xe7", nil},
		{"close=1005", "session.done", "\x88\x02\x03\xed", nil},
		{"close=65535+reason:why", "", "\x88\x05\xff\xffwhy", nil},
		{"close=empty", "", "\x88\x00", nil},
		{"close=byte", "", "\x88\x01\x03", nil},
		{"cut=byte:7", "", "\x81y{\"typ", nil},
		{"reset=byte:7", "", "\x81y{\"typ", syscall.ECONNRESET},
		{"fragments=2+ping:hey", "\x89\x03hey\x80", "\x88\x02\x03\xe8", nil},
		{"fragments=200", "\x00\x00", "\x88\x02\x03\xe8", nil},
		{"server-half-close", "", "", nil},
		{"reset=start", "", "", syscall.ECONNRESET},
	}
	for _, form := range []string{"masked", "rsv1", "rsv2", "opcode", "big-ping", "split-ping", "continuation", "utf8", "long-length"} {
		tests = append(tests, struct {
			fault, has, ends string
			err              error
		}{"bad-frame=" + form, string(wire.BadFrames[form]), "\x88\x02\x03\xe8", nil})
	}
	for _, tt := range tests {
		t.Run(tt.fault, func(t *testing.T) {
			t.Parallel()
			_, addr := start(t, Config{Script: quick(tt.fault)})
			if tt.fault == "reset=start" {
				if b, err := io.ReadAll(handshake(t, addr)); len(b) > 0 || !errors.Is(err, tt.err) {
					t.Errorf("read %q, %v", b, err)
				}
				return
			}
			b, err := rawSession(t, addr)
			if !bytes.Contains(b, []byte(tt.has)) || !bytes.HasSuffix(b, []byte(tt.ends)) || !errors.Is(err, tt.err) {
				t.Errorf("bytes end with %.40q, %v", b[max(0, len(b)-40):], err)
			}
		})
	}
}

func handshake(t *testing.T, addr string) net.Conn {
	t.Helper()
	c := dial(t, addr)
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: m\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", speechPath); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSessionPings(t *testing.T) {
	_, addr := start(t, Config{})
	p := call(t, addr, speechPath, `{"first_delay_ms":40,"chunks":1,"faults":["ping-every=1ms","no-pong"]}`)
	pings, pongs := 0, 0
	p.ws.SetPingHandler(func(data string) error {
		if pings++; data != "mock" {
			t.Errorf("ping %q", data)
		}
		return nil
	})
	p.ws.SetPongHandler(func(string) error { pongs++; return nil })
	if err := p.ws.WriteControl(websocket.PingMessage, []byte("me"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	p.say(configPCM, inputText, inputDone)
	p.until("session.done")
	if pings == 0 || pongs > 0 {
		t.Errorf("%d pings, %d pongs", pings, pongs)
	}
	q := call(t, addr, speechPath, `{}`)
	q.ws.SetPongHandler(func(string) error { pongs++; return nil })
	if err := q.ws.WriteControl(websocket.PingMessage, []byte("me"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	q.say(configPCM, inputText, inputDone)
	q.until("session.done")
	if pongs != 1 {
		t.Errorf("%d pongs, want 1", pongs)
	}
}

// A deaf server answers what it was told before, and the rest later or never.
func TestDeafSession(t *testing.T) {
	_, addr := start(t, Config{})
	for _, fault := range []string{"deaf=for:30ms", "deaf=after:1"} {
		p := call(t, addr, speechPath, `{"faults":["`+fault+`"],"chunks":2}`)
		p.say(configPCM, inputText, inputDone)
		p.until("session.done")
		p.say(closeIt)
		if fault == "deaf=after:1" {
			if err := p.ws.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
		}
		p.until("")
		if closed := websocket.IsCloseError(p.err, 1000); closed != strings.Contains(fault, "for") {
			t.Errorf("%s: the session ends with %v", fault, p.err)
		}
	}
}

func TestSessionNoCloseReply(t *testing.T) {
	_, addr := start(t, Config{Script: quick("no-close-reply")})
	p := call(t, addr, speechPath, `{}`)
	p.say(configPCM)
	if err := p.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""), time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := p.ws.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if p.until(""); websocket.IsCloseError(p.err, 1000) {
		t.Error("the close frame was answered")
	}
}

const (
	duplexPath = "/v1/realtime?duplex=1"
	update     = `{"type":"session.update","session":{"model":"m","modalities":["text","audio"]}}`
	item       = `{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[]}}`
	create     = `{"type":"response.create"}`
)

// Audio after a cancel has the old response's id, or none, and is in no count.
func TestLateAudio(t *testing.T) {
	for id, want := range map[string]bool{"same": true, "none": false} {
		s, addr := start(t, Config{Script: quick("late-audio=3+gap:1ms+id:" + id)})
		p := call(t, addr, duplexPath, `{"steps":[{"text":"a"},{"samples":50},{"wait_ms":60000,"samples":1}]}`)
		p.say(update, item, create)
		p.until("response.audio.delta")
		p.say(`{"type":"response.cancel"}`)
		p.until("response.done")
		tr := p.agrees(s)
		if tr.End != "cancelled" || tr.Samples != 50 || tr.Text != "a" {
			t.Errorf("truth = %+v", tr)
		}
		for range 3 {
			if got := strings.Contains(p.until("response.audio.delta"), `"response_id":"`+tr.ID); got != want {
				t.Errorf("id %s: named %v", id, got)
			}
		}
		p.say(`{"type":"session.close"}`)
		p.until("")
		if got := s.Requests()[1].ExtraSamples; got != 30 {
			t.Errorf("%d extra samples, want 30", got)
		}
	}
}

// A duplex session that comes back is told again what it has missed; the fault
// replay does the same within a session.
func TestReplay(t *testing.T) {
	s, addr := start(t, Config{Script: quick()})
	p := call(t, addr, duplexPath, `{"native":true,"units":["speak"],"unit_ms":100}`)
	p.say(update)
	created := decodeJSON[struct {
		Token string `json:"resume_token"`
	}](t, p.until("session.created"))
	p.say(appendAudio(100, true))
	done := p.until("response.done")
	p.ws.Close()
	q := call(t, addr, duplexPath, `{}`)
	q.say(`{"type":"session.resume","resume_token":"` + created.Token + `","last_server_event_seq":2}`)
	if again := q.until("response.done"); again != done {
		t.Errorf("replayed %.200s\nwas %.200s", again, done)
	}
	if !bytes.Equal(p.pcm, q.pcm) || len(p.pcm) == 0 {
		t.Errorf("%d bytes of audio again, %d before", len(q.pcm), len(p.pcm))
	}
	q.say(closeIt)
	q.until("")
	for _, r := range s.Requests() {
		if r.Index == 0 && r.Form == "session" && r.Seq > 1 && r.ExtraSamples != len(p.pcm)/2 && len(q.pcm) > 0 {
			t.Errorf("%d extra samples, want %d", r.ExtraSamples, len(p.pcm)/2)
		}
	}

	_, addr = start(t, Config{Script: quick("replay=2")})
	p = call(t, addr, speechPath, `{"chunks":1,"samples":7}`)
	p.say(configPCM, inputText, inputDone)
	p.until("session.done")
	p.say(inputText, inputDone)
	p.until("session.done")
	p.until("session.done")
	want := []string{"audio.start", "binary", "audio.done", "session.done", "audio.done", "session.done", "audio.start", "binary", "audio.done", "session.done"}
	if diff := cmp.Diff(want, p.log); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// appendAudio is a message with ms of loud or silent input.
func appendAudio(ms int, isLoud bool) string {
	b := make([]byte, ms*32)
	if isLoud {
		for i := range b {
			b[i] = 16 + byte(i%2)
		}
	}
	return `{"type":"input_audio_buffer.append","audio":"` + encode(b) + `"}`
}

func TestNames(t *testing.T) {
	_, addr := start(t, Config{Script: quick()})
	for names, want := range map[string][]string{
		"old":   {"response.audio.delta", "response.audio.delta", "response.audio.done"},
		"new":   {"response.output_audio.delta", "response.output_audio.delta", "response.output_audio.done"},
		"mixed": {"response.audio.delta", "response.output_audio.delta", "response.audio.done"},
	} {
		p := call(t, addr, "/v1/realtime", `{"chunks":2,"names":"`+names+`"}`)
		p.say(`{"type":"session.update","model":"m"}`, `{"type":"input_audio_buffer.commit","final":true}`)
		p.until(want[2])
		p.log = slices.DeleteFunc(p.log, func(s string) bool { return !strings.Contains(s, "audio") })
		if diff := cmp.Diff(want, p.log); diff != "" {
			t.Errorf("%s (-want +got):\n%s", names, diff)
		}
	}
}

// Scripts come in the header, in the query, in the first message and with the
// message that asks for a turn.
func TestSessionScripts(t *testing.T) {
	s, addr := start(t, Config{Script: quick()})
	p := call(t, addr, speechPath+"?mock=%7B%22chunks%22:1,%22samples%22:11%7D", "")
	p.say(configPCM, inputText, inputDone)
	p.until("session.done")
	p.say(`{"type":"session.config","response_format":"pcm","stream_audio":true,"mock":{"samples":12}}`, inputText, inputDone)
	p.until("session.done")
	p.say(`{"type":"input.text","text":"x","mock":{"samples":13}}`, inputDone)
	p.until("session.done")
	p.say(`{"type":"session.config","response_format":"pcm","stream_audio":true,"mock":{"nonsense":1}}`)
	p.until("error")
	p.say(closeIt)
	p.until("")
	var got []int
	for _, r := range s.Requests() {
		if r.Form == "turn" {
			got = append(got, r.Samples)
		}
	}
	if diff := cmp.Diff([]int{11, 12, 13}, got); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
}

func TestSessionRefused(t *testing.T) {
	for path, want := range map[string]int{speechPath: http.StatusServiceUnavailable, "/v1/nothing": http.StatusForbidden} {
		faults := []string{"status=503"}
		if want == http.StatusForbidden {
			faults = nil
		}
		_, addr := start(t, Config{Script: quick(faults...)})
		_, resp, err := websocket.DefaultDialer.Dial("ws://"+addr+path, nil)
		if err == nil || resp == nil {
			t.Fatalf("%s: answer %v, %v", path, resp, err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: status %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// A client that leaves is noticed in the middle of an answer.
func TestSessionClientGone(t *testing.T) {
	s, addr := start(t, Config{})
	p := call(t, addr, speechPath, `{"chunks":1000,"gap_ms":5}`)
	p.say(configPCM, inputText, inputDone)
	p.until("binary")
	p.ws.Close()
	deadline := time.Now().Add(10 * time.Second)
	for last(t, s).End == "running" && time.Now().Before(deadline) {
		runtime.Gosched() // to the other side of the socket
	}
	for _, r := range s.Requests() {
		if r.End != "client-gone" {
			t.Errorf("%s ends %q", r.Form, r.End)
		}
	}
}

// A client that half-closes is answered if a fault says so, else it is gone.
func TestSessionHalfClose(t *testing.T) {
	for _, faults := range [][]string{nil, {"half-close"}} {
		_, addr := start(t, Config{Script: Script{Faults: faults, Chunks: 2}})
		c := handshake(t, addr)
		if _, err := io.WriteString(c, masked(configPCM)+masked(inputText)+masked(inputDone)); err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(c)
		if done := bytes.Contains(b, []byte("session.done")); err != nil || done != (faults != nil) {
			t.Errorf("%v: session.done %v, %v", faults, done, err)
		}
	}
}

func TestSessionWrongRate(t *testing.T) {
	_, addr := start(t, Config{Script: quick("wrong-rate=8000")})
	p := call(t, addr, speechPath, `{"chunks":1}`)
	p.say(configPCM, inputText, inputDone)
	if got := p.until("audio.start"); !strings.Contains(got, `"sample_rate":8000`) {
		t.Errorf("start %s", got)
	}
}
