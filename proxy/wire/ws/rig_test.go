package ws_test

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/proxy/wire/ws"
)

// log is a Handler that writes down what it is told, joining Payload pieces so
// that different cuts compare equal.
type log struct {
	out      []string
	body     []byte
	at, next int64
	wire     bool
}

func short(p []byte) string {
	if len(p) <= 32 {
		return fmt.Sprintf("%q", p)
	}
	sum := sha256.Sum256(p)
	return fmt.Sprintf("%d:%x", len(p), sum[:4])
}

func (l *log) add(format string, args ...any) {
	if l.body != nil {
		l.out = append(l.out, fmt.Sprintf("payload %s at %d %t", short(l.body), l.at, l.wire))
		l.body = nil
	}
	l.out = append(l.out, fmt.Sprintf(format, args...))
}

func (l *log) MessageStart(op ws.Opcode, off int64) { l.add("start %d %d", op, off) }

func (l *log) Payload(p []byte, off int64, wire bool) {
	if len(p) == 0 {
		l.add("empty piece")
		return
	}
	if l.body != nil && (wire != l.wire || off != l.next) {
		l.add("frame")
	}
	if l.body == nil {
		l.at, l.wire = off, wire
	}
	l.body = append(l.body, p...)
	l.next = off
	if wire {
		l.next += int64(len(p))
	}
}

func (l *log) Message(m ws.Message) {
	s := fmt.Sprintf("message %d", m.Op)
	if m.Data != nil {
		s += " " + short(m.Data)
	}
	s += fmt.Sprintf(" size=%d wire=%d %d..%d frames=%d", m.Size, m.Wire, m.Start, m.End, m.Frames)
	if m.Compressed {
		s += " z"
	}
	if m.Truncated {
		s += fmt.Sprintf(" truncated %x", m.Sum[:4])
	}
	if m.Err != nil {
		s += " " + m.Err.Error()
	}
	l.add("%s", s)
}

func (l *log) Control(op ws.Opcode, p []byte, start, end int64) {
	l.add("control %d %s %d..%d", op, short(p), start, end)
}

func (l *log) Lost(err error, off int64) { l.add("lost %v %d", err, off) }

// silent is a Handler that only counts.
type silent struct {
	messages, controls, lost int
	payload                  int64
	last                     ws.Message
}

func (c *silent) MessageStart(ws.Opcode, int64)           {}
func (c *silent) Payload(p []byte, _ int64, _ bool)       { c.payload += int64(len(p)) }
func (c *silent) Message(m ws.Message)                    { c.messages++; c.last = m }
func (c *silent) Control(ws.Opcode, []byte, int64, int64) { c.controls++ }
func (c *silent) Lost(error, int64)                       { c.lost++ }

// frame is a frame to encode; a zero head byte for FIN is set by the helpers.
type frame struct {
	head   byte // FIN, RSV and opcode as they lie
	body   []byte
	masked bool
	wide   int // bytes of the length, where it is not to be minimal
}

var key = [4]byte{0x37, 0xFA, 0x21, 0x3D} // RFC 6455 section 5.7

func (f frame) bytes() []byte {
	n, b := len(f.body), []byte{f.head, 0}
	switch {
	case f.wide == 8 || n > 65535:
		b[1] = 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	case f.wide == 2 || n > 125:
		b[1] = 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] = byte(n)
	}
	if !f.masked {
		return append(b, f.body...)
	}
	b[1] |= 0x80
	b = append(b, key[:]...)
	for i, c := range f.body {
		b = append(b, c^key[i&3])
	}
	return b
}

// Head bytes of a frame.
const (
	fin  = 0x80
	rsv1 = 0x40
	text = 1
	bin  = 2
	cls  = 8
	ping = 9
	pong = 10
)

func enc(head byte, body string) string { return string(frame{head: head, body: []byte(body)}.bytes()) }

func encMasked(head byte, body string) string {
	return string(frame{head: head, body: []byte(body), masked: true}.bytes())
}

// setup is how a Scanner is used.
type setup struct {
	client  bool
	limit   int
	deflate *ws.Deflate
	start   int64
}

// scan feeds in, cut by cut, and returns what was told.
func scan(in []byte, c setup, cut func(left int) int) []string {
	l := &log{}
	s := ws.Scanner{H: l, FromClient: c.client, Limit: c.limit}
	if c.deflate != nil {
		s.Compress(*c.deflate)
	}
	s.Start(c.start)
	for p := in; len(p) > 0; {
		n := min(len(p), max(1, cut(len(p))))
		s.Feed(append([]byte(nil), p[:n]...)) // a piece of its own: what lies behind it must not be read
		p = p[n:]
	}
	l.add("idle=%t mid=%t lost=%t off=%d", s.Idle(), s.MidFrame(), s.Lost(), s.Offset())
	s.Close()
	return l.out
}

func atOnce(left int) int { return left }
func single(int) int      { return 1 }

func random(seed uint64) func(int) int {
	r := rand.New(rand.NewPCG(seed, 1))
	return func(left int) int {
		if r.IntN(2) == 0 {
			return 1 + r.IntN(min(left, 12))
		}
		return 1 + r.IntN(left)
	}
}

// sameCuts checks that any cut of in tells the same, and returns what.
func sameCuts(t *testing.T, in string, c setup) []string {
	t.Helper()
	whole := scan([]byte(in), c, atOnce)
	cuts := map[string]func(int) int{"random": random(1), "random 2": random(2)}
	if len(in) < 20000 {
		cuts["single"] = single
	}
	for name, cut := range cuts {
		if got := scan([]byte(in), c, cut); strings.Join(got, "\n") != strings.Join(whole, "\n") {
			t.Fatalf("cut %s:\n%s\nat once:\n%s", name, strings.Join(got, "\n"), strings.Join(whole, "\n"))
		}
	}
	return whole
}

// packer compresses messages as a sender does (RFC 7692 section 7.2.1).
type packer struct {
	takeover bool
	bits     int
	hist     []byte
}

func (z *packer) pack(msg []byte) []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriterDict(&b, 6, z.hist)
	_, _ = w.Write(msg)
	_ = w.Flush()
	if z.takeover {
		z.hist = append(z.hist, msg...)
		z.hist = z.hist[max(0, len(z.hist)-1<<z.bits):]
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{0, 0, 0xFF, 0xFF})
}

// noise returns n bytes that do not compress.
func noise(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('!' + r.IntN(90))
	}
	return b
}
