package ws_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/omnitap/omnitap/proxy/wire/ws"
)

// TestFeedAllocatesNothing: what passes in the usual way costs no allocation.
func TestFeedAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates; make test runs this once more without it")
	}
	body300, body4k := noise(300, 1), noise(4096, 2)
	for _, c := range []struct {
		name   string
		client bool
		in     []byte
	}{
		{"text", false, frame{head: fin | text, body: body300}.bytes()},
		{"binary", false, frame{head: fin | bin, body: body4k}.bytes()},
		{"masked text", true, frame{head: fin | text, body: body300, masked: true}.bytes()},
		{"masked binary", true, frame{head: fin | bin, body: body4k, masked: true}.bytes()},
		{"ping", true, frame{head: fin | ping, body: body300[:9], masked: true}.bytes()},
	} {
		for _, cut := range []int{len(c.in), len(c.in) / 2, 1} {
			h := &silent{}
			s := ws.Scanner{H: h, FromClient: c.client}
			feed := func() {
				s.Feed(c.in[:cut])
				s.Feed(c.in[cut:])
			}
			if n := testing.AllocsPerRun(1000, feed); n > 0 {
				t.Errorf("%s cut at %d: %v allocations", c.name, cut, n)
			}
			if h.lost > 0 || h.messages+h.controls < 1000 {
				t.Fatalf("%s: %+v", c.name, h)
			}
		}
	}
}

// TestRestIsSmall: a scanner at rest is its struct, and a window where one was
// negotiated.
func TestRestIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(ws.Scanner{}); size > 200 {
		t.Errorf("%d bytes", size)
	}
	const n = 50
	for _, c := range []struct {
		name    string
		deflate *ws.Deflate
		most    int64
	}{
		{"plain", nil, 400},
		{"no takeover", &ws.Deflate{NoContextTakeover: true, WindowBits: 15}, 600},
		{"9 bits", &ws.Deflate{WindowBits: 9}, 600 + 512},
		{"15 bits", &ws.Deflate{WindowBits: 15}, 600 + 32<<10},
	} {
		z := &packer{takeover: true, bits: 15}
		in := frame{head: fin | text, body: noise(60000, 1), masked: true}.bytes()
		if c.deflate != nil {
			in = frame{head: fin | rsv1 | text, body: z.pack(noise(60000, 1)), masked: true}.bytes()
		}
		scanners := make([]*ws.Scanner, n)
		before := inUse()
		for i := range scanners {
			scanners[i] = &ws.Scanner{H: &silent{}, FromClient: true}
			if c.deflate != nil {
				scanners[i].Compress(*c.deflate)
			}
			scanners[i].Feed(in[:len(in)/2])
			scanners[i].Feed(in[len(in)/2:])
			if !scanners[i].Idle() {
				t.Fatal("not idle")
			}
			scanners[i].H = nil
		}
		// What the pools keep is shared; two collections empty them.
		if per := (inUse() - before) / n; per > c.most {
			t.Errorf("%s: %d bytes a scanner, want %d at most", c.name, per, c.most)
		}
		runtime.KeepAlive(scanners)
	}
}

func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestMemoryIsBounded: neither a bomb, nor a frame that promises much, nor
// fragments without number take memory.
func TestMemoryIsBounded(t *testing.T) {
	const limit = 256 << 10
	var fragments []byte
	fragments = append(fragments, text, 0)
	for range 100_000 {
		fragments = append(fragments, 0, 0)
	}
	packed := bomb(16 << 20)
	promise := frame{head: fin | text, body: nil, wide: 8}.bytes()
	promise[5] = 1 // 2^32 bytes follow
	for _, c := range []struct {
		name string
		in   []byte
		size int64
	}{
		{"text bomb", frame{head: fin | rsv1 | text, body: packed}.bytes(), 16 << 20},
		{"binary bomb", frame{head: fin | rsv1 | bin, body: packed}.bytes(), 16 << 20},
		{"100,000 empty fragments", append(fragments, fin, 0), 0},
		{"a promise", append(promise, make([]byte, 1<<20)...), -1},
		{"text over the limit", frame{head: fin | text, body: make([]byte, 16<<20)}.bytes(), 16 << 20},
	} {
		h := &silent{}
		s := ws.Scanner{H: h, Limit: limit}
		s.Compress(ws.Deflate{WindowBits: 15})
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for p := c.in; len(p) > 0; {
			n := min(len(p), 16<<10)
			s.Feed(p[:n])
			p = p[n:]
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 2<<20 {
			t.Errorf("%s: %d bytes allocated", c.name, took)
		}
		if c.size >= 0 && (h.messages != 1 || h.last.Size != c.size || h.last.Err != nil) {
			t.Errorf("%s: %+v", c.name, h.last)
		}
		s.Close()
	}
}

func BenchmarkScanner(b *testing.B) {
	json := bytes.Repeat([]byte(`{"type":"response.text.delta","delta":"word"},`), 300)
	z := &packer{}
	for _, c := range []struct {
		name   string
		client bool
		head   byte
		body   []byte
	}{
		{"text 220", false, fin | text, json[:220]},
		{"binary 3840", false, fin | bin, noise(3840, 1)},
		{"text 6400", false, fin | text, json[:6400]},
		{"masked text 1700", true, fin | text, json[:1700]},
		{"deflate text 220", false, fin | rsv1 | text, z.pack(json[:220])},
		{"deflate text 6400", false, fin | rsv1 | text, z.pack(noise(6400, 3))},
	} {
		in := frame{head: c.head, body: c.body, masked: c.client}.bytes()
		for _, cut := range []int{len(in), 1448} {
			if cut > len(in) {
				continue
			}
			b.Run(fmt.Sprintf("%s, reads of %d", c.name, cut), func(b *testing.B) {
				s := ws.Scanner{H: &silent{}, FromClient: c.client}
				s.Compress(ws.Deflate{WindowBits: 15})
				b.SetBytes(int64(len(in)))
				b.ReportAllocs()
				for b.Loop() {
					for p := in; len(p) > 0; {
						n := min(len(p), cut)
						s.Feed(p[:n])
						p = p[n:]
					}
				}
			})
		}
	}
}
