package wire

import (
	"bytes"
	"compress/flate"
	"io"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/proxy/wire/ws"
)

// heard keeps what a reader of frames says.
type heard struct {
	messages []string
	pings    int
	closed   string
	lost     error
}

func (h *heard) MessageStart(ws.Opcode, int64) {}
func (h *heard) Payload([]byte, int64, bool)   {}
func (h *heard) Lost(err error, _ int64)       { h.lost = err }
func (h *heard) Message(m ws.Message)          { h.messages = append(h.messages, string(m.Data)) }
func (h *heard) Control(op ws.Opcode, p []byte, _, _ int64) {
	switch op {
	case ws.Ping:
		h.pings++
	case ws.Close:
		h.closed = CloseText(p)
	default:
	}
}

func read(p []byte) *heard {
	h := &heard{}
	s := ws.Scanner{H: h, Limit: 1 << 20}
	s.Feed(p)
	return h
}

// TestMessage: a message is the same in one frame and in many, whatever its length,
// with pings between them.
func TestMessage(t *testing.T) {
	for _, size := range []int{0, 1, 125, 126, 65535, 65536, 70000} {
		for _, n := range []int{1, 2, 7} {
			text := strings.Repeat("a", size)
			h := read(Message(OpText, []byte(text), false, n, []byte("p")))
			if len(h.messages) != 1 || h.messages[0] != text || h.pings != n-1 || h.lost != nil {
				t.Errorf("%d bytes in %d frames: %d messages, %d pings, %v", size, n, len(h.messages), h.pings, h.lost)
			}
		}
	}
}

// TestDeflate: what is compressed is what was said.
func TestDeflate(t *testing.T) {
	text := strings.Repeat("hello ", 100)
	p := append(deflate([]byte(text)), 0, 0, 0xff, 0xff, 1, 0, 0, 0xff, 0xff)
	got, err := io.ReadAll(flate.NewReader(bytes.NewReader(p)))
	if err != nil || string(got) != text {
		t.Errorf("%q, %v", got, err)
	}
}

// TestBadFrames: each is refused by the product's reader but two: text that is no
// UTF-8, which the message tells and no frame, and a length in too long a form, which
// a reader that only looks on may take.
func TestBadFrames(t *testing.T) {
	for name, p := range BadFrames {
		if h := read(p); (h.lost == nil) != (name == "utf8" || name == "long-length") {
			t.Errorf("%s: %v", name, h.lost)
		}
	}
}

func TestClose(t *testing.T) {
	if h := read(Frame(OpClose, FIN, ClosePayload(4001, "why"))); h.closed != "4001" {
		t.Errorf("closed by %q", h.closed)
	}
	for n, want := range []string{"0 bytes", "1 bytes"} {
		if got := CloseText(make([]byte, n)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
