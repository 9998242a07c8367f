package tap_test

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/tap/capture"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// A script is a WebSocket session in lines, made into a capture and replayed:
//
//	[MS] [#LABEL] c|s WHAT
//
// MS is when it comes, in milliseconds from the request; without it, when the
// line before did. c is the client, s the server, and WHAT one of
//
//	TYPE [{…}]         a text message with that type and the other members
//	text …             a text message as it stands
//	bin SOUND          a binary message
//	ping P, pong P     close [CODE [REASON]]
//	frag N[/MS] …      the message behind it in N fragments, MS apart
//	z …                the message behind it compressed
//	frame HH …         a frame whose first byte is HH; frame! with the wrong masking
//	raw HEX            bytes
//	fin, rst           the end of that side
//
// "@SOUND" inside a text is that sound in base64: N samples of a tone that goes
// on over the session, zero:N of silence, bytes:N of noise, wavRATE:N a file
// (wavRATExC of C channels). A line 101 is the answer to the upgrade (else it
// comes at 0), answer STATUS BODY another one, // a remark.
type script struct {
	t     testing.TB
	c     sessionCase
	cut   int // bytes a read; 0: as the lines have them
	out   *capture.Writer
	ns    int64
	off   [2]int64
	tone  int
	marks map[string]mark
	z     [2]*squeezer
	keys  uint32
}

// mark is where a labelled line lies in its side's stream.
type mark struct{ first, last int64 }

// sessionCase is a script and what must come of it: lines of turn TOKENS… (one a
// record, in order), session TOKENS…. See expect.
type sessionCase struct {
	name, path, script, want string
	ext                      string // the answer's Sec-WebSocket-Extensions
	maxEvent                 int
	rates                    map[string]int
	deadline                 time.Duration
	uncut                    bool // more reads than are remembered
}

const (
	pathSpeech   = "/v1/audio/speech/stream"
	pathRealtime = "/v1/realtime"
	pathDuplex   = "/v1/duplex"
	pathVideo    = "/v1/video/chat/stream"
	pathVideoOut = "/v1/realtime/video"
)

// replayBase is the stamp of a capture's first event where its header has none.
const replayBase = 1

var scriptLine = regexp.MustCompile(`^(?:(\d+)\s+)?(?:#(\S+)\s+)?([cs]|101|answer)(?:\s+(.*))?$`)

// sessions keeps what a replay sends out.
type sessions struct {
	records
	lines []*timeline.Session
}

func (s *sessions) Session(x *timeline.Session) { s.lines = append(s.lines, x) }

// play makes the capture of a script and replays it with cfg.
func (c sessionCase) play(t testing.TB, cfg *tap.Config, cut int) (*sessions, map[string]mark) {
	t.Helper()
	var file bytes.Buffer
	w, err := capture.NewWriter(&file, capture.Header{})
	if err != nil {
		t.Fatal(err)
	}
	s := &script{t: t, c: c, cut: cut, out: w, marks: map[string]mark{}}
	s.z[0], s.z[1] = newSqueezer(c.ext, "client"), newSqueezer(c.ext, "server")
	s.send(0, fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n", c.path))
	answered := regexp.MustCompile(`(?m)^\s*(\d+\s+)?(101\s*$|answer\b)`).MatchString(c.script)
	if !answered {
		s.line("101")
	}
	for line := range strings.Lines(c.script) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			s.line(line)
		}
	}
	got := &sessions{}
	if _, err := tap.Replay(cfg, &file, timeline.Identity{OwnID: "r"}, got); err != nil {
		t.Fatal(err)
	}
	return got, s.marks
}

func (s *script) line(line string) {
	s.t.Helper()
	m := scriptLine.FindStringSubmatch(line)
	if m == nil {
		s.t.Fatalf("no script: %s", line)
	}
	if m[1] != "" {
		ms, _ := strconv.ParseInt(m[1], 10, 64)
		s.ns = max(s.ns, ms*1e6)
	}
	side := 1
	if m[3] == "c" {
		side = 0
	}
	before := s.off[side]
	switch m[3] {
	case "101":
		ext := ""
		if s.c.ext != "" {
			ext = "Sec-WebSocket-Extensions: " + s.c.ext + "\r\n"
		}
		s.send(1, []byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
			"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"+ext+"\r\n"))
	case "answer":
		status, body, _ := strings.Cut(m[4], " ")
		s.send(1, fmt.Appendf(nil, "HTTP/1.1 %s Some\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body))
	default:
		s.what(side, m[4])
	}
	if m[2] != "" {
		s.marks[m[2]] = mark{before + 1, s.off[side]}
	}
}

func (s *script) what(side int, what string) {
	s.t.Helper()
	word, rest, _ := strings.Cut(what, " ")
	switch word {
	case "ping", "pong":
		s.frame(side, map[string]byte{"ping": 0x89, "pong": 0x8a}[word], []byte(rest), false)
	case "close":
		s.frame(side, 0x88, closePayload(rest), false)
	case "frame", "frame!":
		first, payload, _ := strings.Cut(rest, " ")
		b, err := hex.DecodeString(first)
		if err != nil {
			s.t.Fatal(err)
		}
		s.frame(side, b[0], []byte(s.sounds(payload)), word == "frame!")
	case "raw":
		b, err := hex.DecodeString(strings.ReplaceAll(rest, " ", ""))
		if err != nil {
			s.t.Fatal(err)
		}
		s.send(side, b)
	case "fin", "rst":
		if err := s.out.End(s.ns, "cs"[side], word); err != nil {
			s.t.Fatal(err)
		}
	default:
		s.message(side, what)
	}
}

// closePayload is a close frame's: CODE REASON, or hex behind an x as it stands.
func closePayload(rest string) []byte {
	if h, ok := strings.CutPrefix(rest, "x"); ok {
		b, _ := hex.DecodeString(h)
		return b
	}
	if rest == "" {
		return nil
	}
	code, reason, _ := strings.Cut(rest, " ")
	n, _ := strconv.Atoi(code)
	return append(binary.BigEndian.AppendUint16(nil, uint16(n)), reason...)
}

// message sends a data message.
func (s *script) message(side int, what string) {
	s.t.Helper()
	parts, gap, op, squeezed := 1, 0, byte(1), false
	for {
		word, rest, _ := strings.Cut(what, " ")
		if word == "frag" {
			word, what, _ = strings.Cut(rest, " ")
			_, _ = fmt.Sscanf(word, "%d/%d", &parts, &gap)
			continue
		}
		if word == "z" {
			squeezed, what = true, rest
			continue
		}
		var payload []byte
		switch word {
		case "bin":
			op, payload = 2, s.sound(rest)
		case "text":
			payload = []byte(s.sounds(rest))
		default:
			payload = []byte(s.sounds(typed(word, rest)))
		}
		if squeezed {
			op, payload = op|0x40, s.z[side].squeeze(s.t, payload)
		}
		s.fragments(side, op, payload, parts, gap)
		return
	}
}

// typed puts a type in front of an object's other members.
func typed(name, members string) string {
	members = strings.TrimSpace(members)
	if members == "" || members == "{}" {
		return `{"type":"` + name + `"}`
	}
	return `{"type":"` + name + `",` + members[1:]
}

func (s *script) fragments(side int, op byte, payload []byte, parts, gap int) {
	size := len(payload)/parts + 1
	for i := range parts {
		p := payload[:min(size, len(payload))]
		payload = payload[len(p):]
		first := op
		if i > 0 {
			first = 0
			s.ns += int64(gap) * 1e6
		}
		if i == parts-1 {
			first |= 0x80
		}
		s.frame(side, first, p, false)
	}
}

// frame sends one frame, masked as its side must, or as it must not.
func (s *script) frame(side int, first byte, payload []byte, wrong bool) {
	masked := (side == 0) != wrong
	s.keys += 0x01234567
	s.send(side, wsFrame(first, payload, masked, s.keys))
}

// wsFrame makes a frame.
func wsFrame(first byte, payload []byte, masked bool, key uint32) []byte {
	var mask byte
	if masked {
		mask = 0x80
	}
	f := []byte{first}
	switch n := len(payload); {
	case n < 126:
		f = append(f, mask|byte(n))
	case n < 1<<16:
		f = binary.BigEndian.AppendUint16(append(f, mask|126), uint16(n))
	default:
		f = binary.BigEndian.AppendUint64(append(f, mask|127), uint64(n))
	}
	if !masked {
		return append(f, payload...)
	}
	k := binary.BigEndian.AppendUint32(nil, key)
	f = append(f, k...)
	for i, c := range payload {
		f = append(f, c^k[i&3])
	}
	return f
}

// send writes bytes of a side, cut as asked.
func (s *script) send(side int, p []byte) {
	s.off[side] += int64(len(p))
	n := s.cut
	if n == 0 {
		n = len(p)
	}
	for p := range slices.Chunk(p, max(n, 1)) {
		if err := s.out.Data(s.ns, "cs"[side], p); err != nil {
			s.t.Fatal(err)
		}
	}
}

var soundInText = regexp.MustCompile(`@((?:[a-z]+[0-9]*(?:x[0-9])?:)?[0-9]+)`)

func (s *script) sounds(text string) string {
	return soundInText.ReplaceAllStringFunc(text, func(m string) string {
		return base64.StdEncoding.EncodeToString(s.sound(m[1:]))
	})
}

// sound makes what SOUND names.
func (s *script) sound(name string) []byte {
	s.t.Helper()
	kind, count, ok := strings.Cut(name, ":")
	if !ok {
		kind, count = "tone", name
	}
	n, err := strconv.Atoi(count)
	if err != nil {
		s.t.Fatalf("no sound: %s", name)
	}
	switch {
	case kind == "zero":
		return make([]byte, 2*n)
	case kind == "bytes":
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i*7 + 1)
		}
		return b
	case strings.HasPrefix(kind, "wav"):
		rate, chans := 0, 1
		_, _ = fmt.Sscanf(kind, "wav%dx%d", &rate, &chans)
		return wavFile(rate, chans, s.samples(n, chans))
	}
	return s.samples(n, 1)
}

// samples goes on with the tone: 440 Hz at 24 kHz, in each channel.
func (s *script) samples(n, chans int) []byte {
	var b []byte
	for range n {
		v := int16(16384 * math.Sin(2*math.Pi*440*float64(s.tone)/24000))
		s.tone++
		for range chans {
			b = binary.LittleEndian.AppendUint16(b, uint16(v))
		}
	}
	return b
}

func wavFile(rate, chans int, pcm []byte) []byte {
	le := binary.LittleEndian
	h := le.AppendUint32([]byte("RIFF"), uint32(36+len(pcm)))
	h = le.AppendUint32(append(h, "WAVEfmt "...), 16)
	h = le.AppendUint16(le.AppendUint16(h, 1), uint16(chans))
	h = le.AppendUint32(le.AppendUint32(h, uint32(rate)), uint32(2*chans*rate))
	h = le.AppendUint16(le.AppendUint16(h, uint16(2*chans)), 16)
	return append(le.AppendUint32(append(h, "data"...), uint32(len(pcm))), pcm...)
}

// squeezer compresses the messages of one side (RFC 7692 section 7.2.1).
type squeezer struct {
	buf   bytes.Buffer
	w     *flate.Writer
	reset bool
}

func newSqueezer(ext, side string) *squeezer {
	z := &squeezer{reset: strings.Contains(ext, side+"_no_context_takeover")}
	z.w, _ = flate.NewWriter(&z.buf, 6)
	return z
}

func (z *squeezer) squeeze(t testing.TB, p []byte) []byte {
	t.Helper()
	z.buf.Reset()
	if z.reset {
		z.w.Reset(&z.buf)
	}
	if _, err := z.w.Write(p); err != nil {
		t.Fatal(err)
	}
	if err := z.w.Flush(); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(bytes.TrimSuffix(z.buf.Bytes(), []byte("\x00\x00\xff\xff")))
}
