package ws_test

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/proxy/wire/ws"
)

// The messages of RFC 7692 section 7.2.3, and what else a sender may do.
var deflateVectors = []struct {
	name  string
	setup setup
	in    string
	want  []string
}{
	{"one block, 7.2.3.1", setup{}, "\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00", []string{
		"start 1 1", `message 1 "Hello" size=5 wire=9 1..9 frames=1 z`, "idle=true mid=false lost=false off=9",
	}},
	{"fragments, a ping in between", setup{}, "\x41\x03\xf2\x48\xcd" + "\x89\x00" + "\x80\x04\xc9\xc9\x07\x00", []string{
		"start 1 1", `control 9 "" 6..7`, `message 1 "Hello" size=5 wire=11 1..13 frames=2 z`, "idle=true mid=false lost=false off=13",
	}},
	{"context takeover, 7.2.3.2", setup{}, "\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00" + "\xc1\x05\xf2\x00\x11\x00\x00", []string{
		"start 1 1", `message 1 "Hello" size=5 wire=9 1..9 frames=1 z`,
		"start 1 10", `message 1 "Hello" size=5 wire=7 10..16 frames=1 z`, "idle=true mid=false lost=false off=16",
	}},
	{"an uncompressed message leaves the context alone", setup{}, "\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00" + "\x81\x02xy" + "\xc1\x05\xf2\x00\x11\x00\x00", []string{
		"start 1 1", `message 1 "Hello" size=5 wire=9 1..9 frames=1 z`, "start 1 10", `message 1 "xy" size=2 wire=4 10..13 frames=1`,
		"start 1 14", `message 1 "Hello" size=5 wire=7 14..20 frames=1 z`, "idle=true mid=false lost=false off=20",
	}},
	{"a context that is not there", setup{deflate: &ws.Deflate{NoContextTakeover: true}}, "\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00" + "\xc1\x05\xf2\x00\x11\x00\x00" + "\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00", []string{
		"start 1 1", `message 1 "Hello" size=5 wire=9 1..9 frames=1 z`,
		"start 1 10", "message 1 size=1 wire=7 10..16 frames=1 z malformed deflate",
		"start 1 17", `message 1 "Hello" size=5 wire=9 17..25 frames=1 z`, "idle=true mid=false lost=false off=25",
	}},
	{"a block without compression, 7.2.3.3", setup{}, "\xc1\x0b\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00", []string{
		"start 1 1", `message 1 "Hello" size=5 wire=13 1..13 frames=1 z`, "idle=true mid=false lost=false off=13",
	}},
	{"BFINAL, 7.2.3.4", setup{}, "\xc1\x08\xf3\x48\xcd\xc9\xc9\x07\x00\x00" + "\xc1\x05\xf2\x00\x11\x00\x00", []string{
		"start 1 1", `message 1 "Hello" size=5 wire=10 1..10 frames=1 z`,
		"start 1 11", `message 1 "Hello" size=5 wire=7 11..17 frames=1 z`, "idle=true mid=false lost=false off=17",
	}},
	{"BFINAL, and a block behind it that refers to it", setup{deflate: &ws.Deflate{NoContextTakeover: true}}, "\xc1\x0c\xf3\x48\xcd\xc9\xc9\x07\x00" + "\xf2\x00\x11\x00\x00", []string{
		"start 1 1", `message 1 "HelloHello" size=10 wire=14 1..14 frames=1 z`, "idle=true mid=false lost=false off=14",
	}},
	{"BFINAL and nothing behind it", setup{}, "\xc1\x07\xf3\x48\xcd\xc9\xc9\x07\x00", []string{
		"start 1 1", `message 1 "Hello" size=5 wire=9 1..9 frames=1 z`, "idle=true mid=false lost=false off=9",
	}},
	{"two blocks, 7.2.3.5", setup{}, "\xc1\x0d\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00", []string{
		"start 1 1", `message 1 "Hello" size=5 wire=15 1..15 frames=1 z`, "idle=true mid=false lost=false off=15",
	}},
	{"empty, 7.2.3.6", setup{}, "\xc1\x01\x00" + "\xc2\x01\x00", []string{
		"start 1 1", `message 1 "" size=0 wire=3 1..3 frames=1 z`, "start 2 4", "message 2 size=0 wire=3 4..6 frames=1 z", "idle=true mid=false lost=false off=6",
	}},
	{"empty without the byte", setup{}, "\xc1\x00", []string{
		"start 1 1", `message 1 "" size=0 wire=2 1..2 frames=1 z`, "idle=true mid=false lost=false off=2",
	}},
	{"binary", setup{}, "\x42\x03\xf2\x48\xcd" + "\x80\x04\xc9\xc9\x07\x00", []string{
		"start 2 1", `payload "Hello" at 11 false`, "message 2 size=5 wire=11 1..11 frames=2 z", "idle=true mid=false lost=false off=11",
	}},
	{"malformed, and what follows refers to it", setup{}, "\xc1\x02\xff\xff" + "\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00" + "\x81\x01a", []string{
		"start 1 1", "message 1 size=0 wire=4 1..4 frames=1 z malformed deflate", "start 1 5", "message 1 size=0 wire=9 5..13 frames=1 z malformed deflate",
		"start 1 14", `message 1 "a" size=1 wire=3 14..16 frames=1`, "idle=true mid=false lost=false off=16",
	}},
	{"cut short", setup{deflate: &ws.Deflate{NoContextTakeover: true}}, "\xc1\x04\xf2\x48\xcd\xc9" + "\xc2\x04\xf2\x48\xcd\xc9", []string{
		"start 1 1", "message 1 size=4 wire=6 1..6 frames=1 z malformed deflate",
		"start 2 7", `payload "Helh" at 12 false`, "message 2 size=4 wire=6 7..12 frames=1 z malformed deflate", "idle=true mid=false lost=false off=12",
	}},
	{"over the limit while compressed", setup{limit: 4}, "\x41\x03\xf2\x48\xcd\x80\x04\xc9\xc9\x07\x00" + "\xc1\x01\x00", []string{
		"start 1 1", "message 1 size=0 wire=11 1..11 frames=2 z truncated 00000000 malformed deflate",
		"start 1 12", "message 1 size=0 wire=3 12..14 frames=1 z malformed deflate", "idle=true mid=false lost=false off=14",
	}},
	{"over the limit while compressed, no takeover", setup{limit: 4, deflate: &ws.Deflate{NoContextTakeover: true}}, "\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00" + "\xc1\x01\x00", []string{
		"start 1 1", "message 1 size=0 wire=9 1..9 frames=1 z truncated 00000000 malformed deflate",
		"start 1 10", `message 1 "" size=0 wire=3 10..12 frames=1 z`, "idle=true mid=false lost=false off=12",
	}},
	{"text over the limit once inflated", setup{limit: 5}, enc(fin|rsv1|text, string((&packer{}).pack([]byte("aaaaaaaaaa")))) + enc(fin|rsv1|text, "\x4a\x04\x00"), []string{
		"start 1 1", "message 1 size=10 wire=7 1..7 frames=1 z truncated bf2cb58a",
		"start 1 8", `message 1 "a" size=1 wire=5 8..12 frames=1 z`, "idle=true mid=false lost=false off=12",
	}},
	{"not UTF-8", setup{}, enc(fin|rsv1|text, string((&packer{}).pack([]byte("\xff")))), []string{
		"start 1 1", `message 1 "\xff" size=1 wire=5 1..5 frames=1 z text not utf-8`, "idle=true mid=false lost=false off=5",
	}},
}

func TestDeflateVectors(t *testing.T) {
	for _, v := range deflateVectors {
		t.Run(v.name, func(t *testing.T) {
			if v.setup.deflate == nil {
				v.setup.deflate = &ws.Deflate{WindowBits: 15}
			}
			if diff := cmp.Diff(v.want, sameCuts(t, v.in, v.setup)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestWindows: messages that refer back as far as the window reaches, for every
// window, with and without takeover, masked or not, fragmented or not
// (Autobahn 12 and 13).
func TestWindows(t *testing.T) {
	for bits := 8; bits <= 15; bits++ {
		for variant := range 8 {
			takeover, client, fragments := variant&1 != 0, variant&2 != 0, variant&4 != 0
			z := &packer{takeover: takeover, bits: bits}
			part := noise(1<<bits/3, uint64(bits))
			var in, all []byte
			var want []string
			for i := range 12 {
				op := byte(text)
				if i%3 == 2 {
					op = bin
				}
				msg := append(fmt.Appendf(nil, "%d ", i), part...)
				if i%4 == 3 {
					msg = msg[:i]
				}
				all = append(all, msg...)
				packed := z.pack(msg)
				for head := op | rsv1; ; head = 0 {
					n := len(packed)
					if fragments {
						n = (n + 1) / 2
					}
					if n == len(packed) {
						head |= fin
					}
					in = append(in, frame{head: head, body: packed[:n], masked: client}.bytes()...)
					if packed = packed[n:]; head&fin != 0 {
						break
					}
				}
				want = append(want, fmt.Sprintf("size=%d", len(msg)))
				if op == text {
					want[i] = short(msg) + " " + want[i]
				}
			}
			got := sameCuts(t, string(in), setup{client: client, deflate: &ws.Deflate{NoContextTakeover: !takeover, WindowBits: bits}})
			i := 0
			for _, e := range got {
				if !strings.HasPrefix(e, "message") {
					continue
				}
				if !strings.Contains(e, want[i]+" ") || strings.Contains(e, "malformed") {
					t.Errorf("bits %d variant %d message %d: %s, want %s", bits, variant, i, e, want[i])
				}
				i++
			}
			if i != 12 {
				t.Errorf("bits %d variant %d: %d messages of 12, %d bytes", bits, variant, i, len(all))
			}
		}
	}
}

// TestBigCompressed: binary comes out in pieces of 32 KiB at most.
func TestBigCompressed(t *testing.T) {
	body := bytes.Repeat(noise(1000, 1), 5000)
	h := &pieces{}
	s := ws.Scanner{H: h}
	s.Compress(ws.Deflate{WindowBits: 15})
	z := &packer{takeover: true, bits: 15}
	for range 3 {
		s.Feed(frame{head: fin | rsv1 | bin, body: z.pack(body)}.bytes())
		if !bytes.Equal(h.all, body) || h.last.Err != nil || h.largest > 32<<10 {
			t.Fatalf("%d bytes of %d, %v, pieces of %d", len(h.all), len(body), h.last.Err, h.largest)
		}
		h.all = h.all[:0]
	}
}

type pieces struct {
	silent
	all     []byte
	largest int
}

func (p *pieces) Payload(b []byte, _ int64, _ bool) {
	p.all = append(p.all, b...)
	p.largest = max(p.largest, len(b))
}

// TestManyFinalBlocks: blocks that say to be the last cost a restart each, so
// their number is bounded.
func TestManyFinalBlocks(t *testing.T) {
	for n, want := range map[int]error{200: nil, 400: ws.ErrDeflate, 1 << 20: ws.ErrDeflate} {
		h := &silent{}
		s := ws.Scanner{H: h}
		s.Compress(ws.Deflate{WindowBits: 15})
		s.Feed(frame{head: fin | rsv1 | text, body: bytes.Repeat([]byte{3, 0}, n)}.bytes())
		if h.messages != 1 || !errors.Is(h.last.Err, want) {
			t.Errorf("%d blocks: %v, want %v", n, h.last.Err, want)
		}
	}
}

// bomb is a message that inflates to n bytes of zero.
func bomb(n int) []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, 9)
	zeros := make([]byte, 1<<20)
	for range n >> 20 {
		_, _ = w.Write(zeros)
	}
	_ = w.Flush()
	return bytes.TrimSuffix(b.Bytes(), []byte{0, 0, 0xFF, 0xFF})
}
