package mock

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages"
)

// TestMain fails when goroutines outlive the tests.
func TestMain(m *testing.M) {
	stages.Main()
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > 2 && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); code == 0 && n > 2 {
		buf := make([]byte, 1<<16)
		fmt.Fprintf(os.Stderr, "%d goroutines are left:\n%s\n", n, buf[:runtime.Stack(buf, true)])
		code = 1
	}
	os.Exit(code)
}

// start serves a mock for one test and returns its address.
func start(t *testing.T, cfg Config) (*Server, string) {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve() = %v", err)
		}
	})
	return s, l.Addr().String()
}

// quick is a script without waits.
func quick(faults ...string) Script {
	zero := 0.0
	return Script{FirstDelayMS: &zero, AudioDelayMS: &zero, GapMS: script.Floats{0}, TextGapMS: script.Floats{0}, Faults: faults}
}

func post(path, body string, headers ...string) string {
	h := strings.Join(headers, "\r\n")
	if h != "" {
		h += "\r\n"
	}
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: m\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", path, h, len(body), body)
}

// result is one answer as it lay on the wire.
type result struct {
	head   string
	body   []byte   // after the head, framing included
	chunks []string // of a chunked body
	whole  bool     // the zero chunk, or all of Content-Length, came
	err    error    // of the read that ended the connection, nil at FIN
}

// talk sends bytes on a connection of its own and reads one answer.
func talk(t *testing.T, addr, out string) result {
	t.Helper()
	c := dial(t, addr)
	if _, err := io.WriteString(c, out); err != nil {
		t.Fatal(err)
	}
	return readAnswer(t, bufio.NewReader(c))
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// readAnswer reads one answer, however broken.
func readAnswer(t *testing.T, r *bufio.Reader) result {
	t.Helper()
	var res result
	for !strings.HasSuffix(res.head, "\r\n\r\n") {
		line, err := r.ReadString('\n')
		res.head += line
		if err != nil {
			if !errors.Is(err, io.EOF) {
				res.err = err
			}
			return res
		}
	}
	lower := strings.ToLower(res.head)
	switch {
	case strings.Contains(lower, "transfer-encoding: chunked"):
		res.readChunks(r)
	case strings.Contains(lower, "content-length: "):
		_, after, _ := strings.Cut(lower, "content-length: ")
		var n int
		if _, err := fmt.Sscanf(after, "%d", &n); err != nil {
			t.Fatal(err)
		}
		res.body = make([]byte, n)
		got, err := io.ReadFull(r, res.body)
		res.body, res.whole = res.body[:got], got == n
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			res.err = err
		}
	case strings.Contains(lower, "connection: close"):
		res.body, res.err = io.ReadAll(r)
	}
	return res
}

func (res *result) readChunks(r *bufio.Reader) {
	for {
		line, err := r.ReadString('\n')
		res.body = append(res.body, line...)
		var n int
		if err == nil {
			_, err = fmt.Sscanf(line, "%x\r\n", &n)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				res.err = err
			}
			return
		}
		data := make([]byte, n+2)
		got, err := io.ReadFull(r, data)
		res.body = append(res.body, data[:got]...)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				res.err = err
			}
			return
		}
		if n == 0 {
			res.whole = true
			return
		}
		res.chunks = append(res.chunks, string(data[:n]))
	}
}

// payload is the body without framing.
func (res result) payload() string {
	if res.chunks != nil {
		return strings.Join(res.chunks, "")
	}
	return string(res.body)
}

// sseEvent is one event of a stream.
type sseEvent struct{ name, data string }

// events parses an SSE payload with LF line ends.
func events(payload string) []sseEvent {
	var out []sseEvent
	for block := range strings.SplitSeq(payload, "\n\n") {
		var e sseEvent
		for line := range strings.SplitSeq(block, "\n") {
			if v, ok := strings.CutPrefix(line, "data: "); ok {
				e.data += v
			}
			if v, ok := strings.CutPrefix(line, "event: "); ok {
				e.name = v
			}
		}
		if e != (sseEvent{}) {
			out = append(out, e)
		}
	}
	return out
}

// vllmChunk is what the tests read of a chat event.
type vllmChunk struct {
	ID      string `json:"id"`
	Choices []struct {
		Delta struct {
			Role    string          `json:"role"`
			Content *string         `json:"content"`
			Audio   json.RawMessage `json:"audio"`
		} `json:"delta"`
		Finish *string `json:"finish_reason"`
	} `json:"choices"`
	Modality string          `json:"modality"`
	Usage    json.RawMessage `json:"usage"`
}

func decodeJSON[T any](t *testing.T, s string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatalf("decoding %.200q: %v", s, err)
	}
	return v
}

// unwav strips a 44-byte header and checks its sizes.
func unwav(t *testing.T, b []byte) (pcm []byte, rate int) {
	t.Helper()
	if len(b) < 44 || string(b[:4]) != "RIFF" || string(b[36:40]) != "data" {
		t.Fatalf("no wav: %.60q", b)
	}
	if n := int(binary.LittleEndian.Uint32(b[40:])); n != len(b)-44 {
		t.Errorf("data size = %d, want %d", n, len(b)-44)
	}
	return b[44:], int(binary.LittleEndian.Uint32(b[24:]))
}

func unbase64(t *testing.T, s string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		t.Fatalf("decoding base64 %.40q: %v", s, err)
	}
	return b
}

func last(t *testing.T, s *Server) Truth {
	t.Helper()
	all := s.Requests()
	if len(all) == 0 {
		t.Fatal("no request was recorded")
	}
	return all[len(all)-1]
}

const chatBody = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}],"modalities":["text","audio"]}`
