package ws_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/proxy/wire/ws"
)

var a126 = strings.Repeat("a", 126)

var vectors = []struct {
	name  string
	setup setup
	in    string
	want  []string
}{
	{"the frames of RFC 6455 section 5.7", setup{}, "\x81\x05Hello" + "\x01\x03Hel\x80\x02lo" + "\x89\x05Hello", []string{
		"start 1 1", `message 1 "Hello" size=5 wire=7 1..7 frames=1`,
		"start 1 8", `message 1 "Hello" size=5 wire=9 8..16 frames=2`,
		`control 9 "Hello" 17..23`, "idle=true mid=false lost=false off=23",
	}},
	{"the masked frames of RFC 6455 section 5.7", setup{client: true}, "\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58" + "\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", []string{
		"start 1 1", `message 1 "Hello" size=5 wire=11 1..11 frames=1`, `control 10 "Hello" 12..22`, "idle=true mid=false lost=false off=22",
	}},
	{"behind a head", setup{start: 100}, enc(fin|text, "x"), []string{
		"start 1 101", `message 1 "x" size=1 wire=3 101..103 frames=1`, "idle=true mid=false lost=false off=103",
	}},
	{"empty messages", setup{}, enc(fin|text, "") + enc(fin|bin, "") + enc(fin|ping, ""), []string{
		"start 1 1", `message 1 "" size=0 wire=2 1..2 frames=1`, "start 2 3", "message 2 size=0 wire=2 3..4 frames=1",
		`control 9 "" 5..6`, "idle=true mid=false lost=false off=6",
	}},
	{"empty masked messages", setup{client: true}, encMasked(fin|text, "") + encMasked(fin|cls, ""), []string{
		"start 1 1", `message 1 "" size=0 wire=6 1..6 frames=1`, `control 8 "" 7..12`, "idle=true mid=false lost=false off=12",
	}},
	{"binary", setup{}, enc(fin|bin, "abc") + enc(bin, "de") + enc(0, "") + enc(fin, "f"), []string{
		"start 2 1", `payload "abc" at 3 true`, "message 2 size=3 wire=5 1..5 frames=1",
		"start 2 6", `payload "de" at 8 true`, "frame", `payload "f" at 14 true`, "message 2 size=3 wire=9 6..14 frames=3",
		"idle=true mid=false lost=false off=14",
	}},
	{"binary, masked", setup{client: true}, encMasked(fin|bin, "abcdefghijk"), []string{
		"start 2 1", `payload "abcdefghijk" at 7 true`, "message 2 size=11 wire=17 1..17 frames=1", "idle=true mid=false lost=false off=17",
	}},
	{"control frames in between", setup{}, enc(text, "a") + enc(fin|ping, "p") + enc(0, "b") + enc(fin|pong, "") + enc(fin, "c"), []string{
		"start 1 1", `control 9 "p" 4..6`, `control 10 "" 10..11`, `message 1 "abc" size=3 wire=9 1..14 frames=3`, "idle=true mid=false lost=false off=14",
	}},
	{"control frames in between, masked", setup{client: true}, encMasked(text, "abc") + encMasked(fin|ping, "pq") + encMasked(fin, "defgh"), []string{
		"start 1 1", `control 9 "pq" 10..17`, `message 1 "abcdefgh" size=8 wire=20 1..28 frames=2`, "idle=true mid=false lost=false off=28",
	}},
	{"empty fragments around a whole one", setup{}, enc(text, "") + enc(0, "") + enc(fin, "abc"), []string{
		"start 1 1", `message 1 "abc" size=3 wire=9 1..9 frames=3`, "idle=true mid=false lost=false off=9",
	}},
	{"an empty last fragment", setup{}, enc(text, "abc") + enc(fin, ""), []string{
		"start 1 1", `message 1 "abc" size=3 wire=7 1..7 frames=2`, "idle=true mid=false lost=false off=7",
	}},
	{"frames behind a close frame", setup{}, enc(fin|cls, "\x03\xe8bye") + enc(fin|text, "x"), []string{
		`control 8 "\x03\xe8bye" 1..7`, "start 1 8", `message 1 "x" size=1 wire=3 8..10 frames=1`, "idle=true mid=false lost=false off=10",
	}},
	{"lengths that are not minimal", setup{}, string(frame{head: fin | text, body: []byte("ab"), wide: 2}.bytes()) + string(frame{head: fin | text, body: []byte("ab"), wide: 8}.bytes()), []string{
		"start 1 1", `message 1 "ab" size=2 wire=6 1..6 frames=1`, "start 1 7", `message 1 "ab" size=2 wire=12 7..18 frames=1`,
		"idle=true mid=false lost=false off=18",
	}},
	{"not UTF-8", setup{}, enc(fin|text, "a\xffb") + enc(fin|text, "\xed\xa0\x80") + enc(text, "\xce") + enc(fin, "\xba"), []string{
		"start 1 1", `message 1 "a\xffb" size=3 wire=5 1..5 frames=1 text not utf-8`,
		"start 1 6", `message 1 "\xed\xa0\x80" size=3 wire=5 6..10 frames=1 text not utf-8`,
		"start 1 11", `message 1 "κ" size=2 wire=6 11..16 frames=2`, // a character in two fragments is whole
		"idle=true mid=false lost=false off=16",
	}},
	{"text over the limit", setup{limit: 4}, enc(fin|text, "abcd") + enc(fin|text, "abcde") + enc(text, "ab") + enc(fin, "cde"), []string{
		"start 1 1", `message 1 "abcd" size=4 wire=6 1..6 frames=1`,
		"start 1 7", "message 1 size=5 wire=7 7..13 frames=1 truncated 36bbe50e",
		"start 1 14", "message 1 size=5 wire=9 14..22 frames=2 truncated 36bbe50e", "idle=true mid=false lost=false off=22",
	}},
	{"text over the limit, masked", setup{limit: 4, client: true}, encMasked(text, "ab") + encMasked(fin, "cde"), []string{
		"start 1 1", "message 1 size=5 wire=17 1..17 frames=2 truncated 36bbe50e", "idle=true mid=false lost=false off=17",
	}},
	{"cut inside a header", setup{}, "\x81", []string{"start 1 1", "idle=false mid=true lost=false off=1"}},
	{"cut inside a payload", setup{}, "\x81\x05He", []string{"start 1 1", "idle=false mid=true lost=false off=4"}},
	{"cut between fragments", setup{}, "\x01\x00", []string{"start 1 1", "idle=false mid=false lost=false off=2"}},
	{"cut inside a control frame", setup{}, "\x89\x02a", []string{"idle=false mid=true lost=false off=3"}},

	{"RSV1 without an extension", setup{}, enc(fin|text, "a") + enc(fin|rsv1|text, "a") + "rest", []string{
		"start 1 1", `message 1 "a" size=1 wire=3 1..3 frames=1`, "lost reserved bit 4", "idle=false mid=false lost=true off=10",
	}},
	{"RSV2", setup{deflate: &ws.Deflate{}}, "\xa1\x00", []string{"lost reserved bit 1", "idle=false mid=false lost=true off=2"}},
	{"RSV3", setup{deflate: &ws.Deflate{}}, "\x99\x00", []string{"lost reserved bit 1", "idle=false mid=false lost=true off=2"}},
	{"RSV1 on a control frame", setup{deflate: &ws.Deflate{}}, "\xc9\x00", []string{"lost reserved bit 1", "idle=false mid=false lost=true off=2"}},
	{"RSV1 on a continuation", setup{deflate: &ws.Deflate{}}, enc(text, "a") + "\xc0\x00", []string{
		"start 1 1", "lost reserved bit 4", "idle=false mid=false lost=true off=5",
	}},
	{"opcode 3", setup{}, "\x83\x00", []string{"lost reserved opcode 1", "idle=false mid=false lost=true off=2"}},
	{"opcode 7", setup{}, "\x87\x00", []string{"lost reserved opcode 1", "idle=false mid=false lost=true off=2"}},
	{"opcode 11", setup{}, "\x8b\x00", []string{"lost reserved opcode 1", "idle=false mid=false lost=true off=2"}},
	{"opcode 15", setup{}, "\x8f\x00", []string{"lost reserved opcode 1", "idle=false mid=false lost=true off=2"}},
	{"a control frame in fragments", setup{}, "\x09\x00", []string{"lost malformed control frame 1", "idle=false mid=false lost=true off=2"}},
	{"a control frame of 125 bytes, then 126", setup{}, enc(fin|ping, a126[:125]) + enc(fin|ping, a126), []string{
		"control 9 125:a8e1a0f3 1..127", "lost malformed control frame 129", "idle=false mid=false lost=true off=257",
	}},
	{"a lone continuation", setup{}, enc(fin, "a"), []string{"lost misplaced fragment 1", "idle=false mid=false lost=true off=3"}},
	{"a message inside a message", setup{}, enc(text, "a") + enc(fin|bin, "a"), []string{
		"start 1 1", "lost misplaced fragment 4", "idle=false mid=false lost=true off=6",
	}},
	{"a client without a mask", setup{client: true}, enc(fin|text, "a"), []string{"start 1 1", "lost wrong masking 2", "idle=false mid=false lost=true off=3"}},
	{"a server with a mask", setup{}, encMasked(fin|text, "a"), []string{"start 1 1", "lost wrong masking 2", "idle=false mid=false lost=true off=7"}},
	{"a length with its top bit", setup{}, "\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x01a", []string{
		"start 2 1", "lost malformed frame length 3", "idle=false mid=false lost=true off=11",
	}},
	{"the largest length", setup{}, "\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xffa", []string{
		"start 2 1", `payload "a" at 11 true`, "idle=false mid=true lost=false off=11",
	}},
	{"the largest length, text", setup{}, enc(text, "a") + "\x80\x7f\x7f\xff\xff\xff\xff\xff\xff\xffa", []string{
		"start 1 1", "idle=false mid=true lost=false off=14",
	}},
}

func TestVectors(t *testing.T) {
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			if diff := cmp.Diff(v.want, sameCuts(t, v.in, v.setup)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestReservedOpcodes: each opcode that is not assigned loses the thread.
func TestReservedOpcodes(t *testing.T) {
	for op := range byte(16) {
		var c silent
		s := ws.Scanner{H: &c}
		s.Feed([]byte{1, 0}) // inside a message, so that a continuation is in place
		s.Feed([]byte{fin | op, 0})
		want := op > 10 || op > 0 && op < 8
		if s.Lost() != want {
			t.Errorf("opcode %d: lost=%t, want %t", op, s.Lost(), want)
		}
	}
}

// TestSizes: payloads at the borders of the three length forms (Autobahn 1).
func TestSizes(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 127, 128, 65535, 65536, 100000} {
		for _, client := range []bool{false, true} {
			body := noise(n, uint64(n))
			for _, op := range []byte{text, bin} {
				in := frame{head: fin | op, body: body, masked: client}.bytes()
				in = append(in, in...)
				got := sameCuts(t, string(in), setup{client: client})
				want := fmt.Sprintf("message %d", op)
				if op == text {
					want += " " + short(body)
				}
				want += fmt.Sprintf(" size=%d wire=%d %d..%d frames=1", n, len(in)/2, len(in)/2+1, len(in))
				if got[len(got)-2] != want {
					t.Errorf("size %d: got %s, want %s", n, got[len(got)-2], want)
				}
			}
		}
	}
}

func TestSkipLosesTheThread(t *testing.T) {
	l := &log{}
	s := ws.Scanner{H: l}
	s.Feed([]byte("\x81\x05He"))
	s.Skip(0)
	s.Skip(3)
	s.Skip(5)
	s.Feed([]byte("\x81\x00"))
	l.add("idle=%t mid=%t lost=%t off=%d", s.Idle(), s.MidFrame(), s.Lost(), s.Offset())
	want := []string{"start 1 1", "lost bytes not analysed 5", "idle=false mid=false lost=true off=14"}
	if diff := cmp.Diff(want, l.out); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestCloseGoesQuiet(t *testing.T) {
	l := &log{}
	s := ws.Scanner{H: l}
	s.Compress(ws.Deflate{})
	s.Feed([]byte("\x81\x05He"))
	s.Close()
	s.Feed([]byte("llo\x81\x00"))
	s.Skip(1)
	l.add("lost=%t mid=%t off=%d", s.Lost(), s.MidFrame(), s.Offset())
	if diff := cmp.Diff([]string{"start 1 1", "lost=false mid=true off=10"}, l.out); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// peek is a Handler that compares the memory of what it is given.
type peek struct {
	silent
	at *byte
}

func (p *peek) Message(m ws.Message) { p.at = unsafe.SliceData(m.Data) }

// TestNoCopy: a text that lies whole in what is fed is handed over as it lies.
func TestNoCopy(t *testing.T) {
	in := []byte(enc(fin|text, a126))
	h := &peek{}
	s := ws.Scanner{H: h}
	s.Feed(in)
	if h.at != &in[4] {
		t.Error("whole in one piece: copied")
	}
	s.Feed(in[:4])
	s.Feed(in[4:])
	if h.at != &in[4] {
		t.Error("header apart: copied")
	}
}

// TestInputIsNotChanged: others read the bytes as well.
func TestInputIsNotChanged(t *testing.T) {
	in := []byte(encMasked(fin|text, a126) + encMasked(fin|bin, a126) + encMasked(fin|ping, "abc"))
	want := string(in)
	s := ws.Scanner{H: &silent{}, FromClient: true}
	s.Feed(in[:50])
	s.Feed(in[50:])
	if string(in) != want {
		t.Error("the bytes were changed")
	}
}

// TestBigMessages: 16 MiB in one frame and in 100,000 fragments (Autobahn 9).
func TestBigMessages(t *testing.T) {
	const size = 16 << 20
	body := make([]byte, size)
	for i := range body {
		body[i] = byte('a' + i%26)
	}
	var parts []byte
	step := size/100_000 + 1
	for i := range 100_000 {
		head := byte(0)
		if i == 0 {
			head = text
		}
		if i == 99_999 {
			head |= fin
		}
		from := min(i*step, size)
		parts = append(parts, frame{head: head, body: body[from:min(from+step, size)]}.bytes()...)
	}
	for name, in := range map[string][]byte{
		"one frame": frame{head: fin | text, body: body}.bytes(),
		"fragments": parts,
	} {
		sum := sha256.Sum256(body)
		for _, limit := range []int{size, size - 1} {
			h := &digest{}
			s := ws.Scanner{H: h, Limit: limit}
			for p := in; len(p) > 0; {
				n := min(len(p), 10_007)
				s.Feed(p[:n])
				p = p[n:]
			}
			if h.sum != sum || h.last.Size != size || h.last.Truncated != (limit < size) || h.last.Wire != int64(len(in)) {
				t.Errorf("%s, limit %d: %+v", name, limit, h.last)
			}
		}
	}
}

// digest is a Handler that hashes what text it is given, or takes the scanner's hash.
type digest struct {
	silent
	sum [32]byte
}

func (d *digest) Message(m ws.Message) {
	d.sum = m.Sum
	if m.Data != nil {
		d.sum = sha256.Sum256(m.Data)
	}
	m.Data = nil
	d.silent.Message(m)
}
