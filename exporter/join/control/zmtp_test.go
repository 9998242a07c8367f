package control

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// greeting is libzmq's, with the mechanism NULL.
func greeting() []byte {
	b := make([]byte, 64)
	copy(b, "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01NULL")
	return b
}

// appendFrame writes one frame as libzmq does.
func appendFrame(b []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		b = binary.BigEndian.AppendUint64(append(b, flags|flagLong), uint64(len(body)))
	} else {
		b = append(b, flags, byte(len(body)))
	}
	return append(b, body...)
}

func appendMessage(b []byte, frames ...[]byte) []byte {
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		b = appendFrame(b, flags, f)
	}
	return b
}

// call is one socket call as a probe tells it.
type call struct {
	head, tail []byte
	n          int64
}

// cut makes a call of the bytes, of which at most head and tail are copied.
func cut(b []byte, head, tail int) call {
	c := call{head: b[:min(head, len(b))], n: int64(len(b))}
	if len(b) > head {
		c.tail = b[len(b)-min(tail, len(b)):]
	}
	return c
}

func (z *Zmtp) feed(calls []call) (messages [][]Frame) {
	for _, c := range calls {
		z.Feed(slices.Clone(c.head), slices.Clone(c.tail), c.n, func(frames []Frame) {
			m := make([]Frame, len(frames))
			for i, f := range frames {
				m[i] = Frame{Size: f.Size, Head: slices.Clone(f.Head), Tail: slices.Clone(f.Tail)}
			}
			messages = append(messages, m)
		})
	}
	return messages
}

// conversation is what a test sends: messages of all kinds and sizes.
func conversation(t testing.TB, rng *rand.Rand, n int) [][][]byte {
	t.Helper()
	var pool [][][]byte
	for _, s := range samples(t) {
		var m [][]byte
		for _, f := range s.Frames {
			if int64(len(f.Head)) == f.Size {
				m = append(m, f.Head)
			}
		}
		if len(m) == len(s.Frames) {
			pool = append(pool, m)
		}
	}
	for _, size := range []int{0, 1, 255, 256, 1023, 1024, 1025, 8192, 70000} {
		big := make([]byte, size)
		for i := range big {
			big[i] = byte(rng.Uint32())
		}
		pool = append(pool, [][]byte{pack(list{0, list{}, nil}), big})
	}
	list := make([][][]byte, n)
	for i := range list {
		list[i] = pool[rng.IntN(len(pool))]
	}
	return list
}

// checkFrames compares what came out with what went in.
func checkFrames(t *testing.T, got []Frame, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d frames, want %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if g.Size != int64(len(w)) || !bytes.HasPrefix(w, g.Head) || !bytes.HasSuffix(w, g.Tail) {
			t.Fatalf("frame %d: %d bytes, head %x, tail %x; want %d bytes", i, g.Size, g.Head, g.Tail, len(w))
		}
		if len(g.Head) > keepHead || len(g.Tail) > keepTail {
			t.Fatalf("frame %d: %d bytes of head, %d of tail kept", i, len(g.Head), len(g.Tail))
		}
	}
}

func stream(messages [][][]byte) []byte {
	b := greeting()
	b = appendFrame(b, flagCommand, []byte("\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH"))
	for i, m := range messages {
		b = appendMessage(b, m...)
		if i%7 == 3 {
			b = appendFrame(b, flagCommand, []byte("\x04PING\x00\x00"))
		}
	}
	return b
}

// Copied whole, a stream gives every message back, wherever the calls cut it.
func TestZmtpCutAnywhere(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		messages := conversation(t, rng, 60)
		b := stream(messages)
		var calls []call
		for len(b) > 0 {
			n := min(1+rng.IntN([]int{3, 40, 700, 9000, 100000}[rng.IntN(5)]), len(b))
			calls = append(calls, cut(b[:n], n, 0))
			b = b[n:]
		}
		var z Zmtp
		got := z.feed(calls)
		if len(got) != len(messages) || z.Lost() != 0 {
			t.Fatalf("seed %d: %d messages of %d, lost %d", seed, len(got), len(messages), z.Lost())
		}
		for i := range got {
			checkFrames(t, got[i], messages[i])
			for j, f := range got[i] {
				if w := messages[i][j]; len(f.Head) != min(len(w), keepHead) || len(w) > keepHead && len(f.Tail) != keepTail {
					t.Fatalf("seed %d: %d and %d bytes kept of %d", seed, len(f.Head), len(f.Tail), len(w))
				}
			}
		}
	}
}

// byMessage makes the calls that libzmq makes: small messages together up to 8 KiB,
// the rest of a large frame by itself.
func byMessage(messages [][][]byte, head, tail int) []call {
	var calls []call
	for _, m := range messages {
		b := appendMessage(nil, m...)
		first := min(len(b), 8192)
		calls = append(calls, cut(b[:first], head, tail))
		if len(b) > first {
			calls = append(calls, cut(b[first:], head, tail))
		}
	}
	return calls
}

// With heads and tails only, bytes that were not copied are passed by the frames'
// lengths: a message that comes in a call of its own is never lost.
func TestZmtpHeadsOnly(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var messages [][][]byte
		for _, m := range conversation(t, rng, 80) {
			// Its frames' headers lie in the head: that is the case where all can be seen.
			if len(appendMessage(nil, m[:len(m)-1]...)) < 900 {
				messages = append(messages, m)
			}
		}
		var z Zmtp
		z.feed([]call{cut(stream(nil), 1024, 64)})
		got := z.feed(byMessage(messages, 1024, 64))
		if len(got) != len(messages) || z.Lost() != 0 {
			t.Fatalf("seed %d: %d messages of %d, lost %d", seed, len(got), len(messages), z.Lost())
		}
		for i := range got {
			checkFrames(t, got[i], messages[i])
		}
	}
}

// A header in bytes that were not copied loses the thread, says so once, and the next
// call that begins with a frame finds it again.
func TestZmtpLoses(t *testing.T) {
	add := [][]byte{{0}, pack(list{"chatcmpl-1-8a2fdadf", list{1, 2, 3}, nil})}
	fill := [][]byte{pack(list{0, list{}, make([]byte, 1500)})}
	both := appendMessage(appendMessage(nil, fill...), add...)
	both = append(both, appendMessage(nil, fill...)...)
	var z Zmtp
	got := z.feed([]call{
		cut(stream([][][]byte{add}), 1024, 64),
		cut(both, 1024, 64), // the second message's header is at 1521
		cut(appendMessage(nil, add...), 1024, 64),
	})
	if z.Lost() != 1 || len(got) != 3 {
		t.Fatalf("lost %d, %d messages", z.Lost(), len(got))
	}
	checkFrames(t, got[0], add)
	checkFrames(t, got[1], fill)
	checkFrames(t, got[2], add)
}

// A message that began before the thread was lost does not go on behind it: its first
// frame is told as it is.
func TestZmtpDropsHalves(t *testing.T) {
	first := appendFrame(nil, flagMore, pack(list{0, list{}, make([]byte, 1500)}))
	first = appendFrame(first, 0, make([]byte, 300))
	add := [][]byte{{0}, pack(list{"chatcmpl-1-8a2fdadf", list{1}, nil})}
	var z Zmtp
	got := z.feed([]call{cut(first, 1024, 64), cut(appendMessage(nil, add...), 1024, 64)})
	if z.Lost() != 1 || len(got) != 2 {
		t.Fatalf("lost %d, %d messages", z.Lost(), len(got))
	}
	checkFrames(t, got[0], [][]byte{pack(list{0, list{}, make([]byte, 1500)})})
	checkFrames(t, got[1], add)
}

// Attached in mid-connection, bytes of a payload are no frame; the first message that
// begins a call is found.
func TestZmtpMidConnection(t *testing.T) {
	add := [][]byte{{0}, pack(list{"chatcmpl-1-8a2fdadf", list{1}, nil})}
	noise := make([]byte, 6000)
	rng := rand.New(rand.NewPCG(5, 5))
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	samples16 := make([]byte, 4000) // sound: small numbers, many zeros
	for i := 0; i < len(samples16); i += 2 {
		binary.LittleEndian.PutUint16(samples16[i:], uint16(int16(rng.IntN(9)-4)))
	}
	for name, before := range map[string][]byte{
		"noise": noise, "sound": samples16, "zeros": make([]byte, 5000), "ones": bytes.Repeat([]byte{1}, 5000),
		"text": bytes.Repeat([]byte("what a payload says. "), 100), "one byte": {0},
	} {
		var z Zmtp
		got := z.feed([]call{cut(before, 1024, 64), cut(appendMessage(nil, add...), 1024, 64)})
		if len(got) != 1 || z.Lost() != 0 {
			t.Errorf("%s: %d messages, lost %d", name, len(got), z.Lost())
			continue
		}
		checkFrames(t, got[0], add)
	}
}

// In sync, bytes that are no header lose the thread.
func TestZmtpNoHeader(t *testing.T) {
	for _, b := range []string{"\x08\x01a", "\xff\x01a", "\x05\x01a", "\x02\xff\xff\xff\xff\xff\xff\xff\xff"} {
		var z Zmtp
		z.feed([]call{cut(stream(nil), 1024, 64), cut([]byte(b), 1024, 64)})
		if z.Lost() != 1 {
			t.Errorf("%x: lost %d", b, z.Lost())
		}
	}
}

// Many frames do not cost memory without bound, and lose no bytes of the count.
func TestZmtpManyFrames(t *testing.T) {
	var frames [][]byte
	for i := range 300 {
		frames = append(frames, make([]byte, i+1))
	}
	var z Zmtp
	b := stream([][][]byte{frames})
	got := z.feed([]call{cut(b, len(b), 0)})
	if len(got) != 1 || len(got[0]) != keepFrames {
		t.Fatalf("%d messages", len(got))
	}
	var sum int64
	for _, f := range got[0] {
		sum += f.Size
	}
	if sum != 300*301/2 {
		t.Errorf("%d bytes", sum)
	}
}

// The recorded calls of a Mooncake side channel, of which 64 bytes were copied: both
// directions of it, from the greeting on.
func TestZmtpRecorded(t *testing.T) {
	b, err := os.ReadFile("../../../testdata/stages/control/calls.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range bytes.Lines(b) {
		var conn struct {
			Calls []struct {
				N    int64  `json:"n"`
				Head []byte `json:"head"`
			} `json:"calls"`
		}
		if err := json.Unmarshal(line, &conn); err != nil {
			t.Fatal(err)
		}
		n++
		var calls []call
		for _, c := range conn.Calls {
			calls = append(calls, call{head: c.Head, n: c.N})
		}
		var z Zmtp
		count := map[Kind]int{}
		for _, m := range z.feed(calls) {
			d, ok := Decode(m)
			if !ok {
				t.Errorf("message not known: %+v", m)
			}
			count[d.Kind]++
		}
		// 24 questions, 9 of them with an answer, and as many pulls.
		asks := count[Query] == 24 && count[Pull] == 9
		answers := count[PullMissing] == 15 && count[QueryFound] == 9 && count[PullDone] == 9
		if z.Lost() != 0 || asks == answers {
			t.Errorf("lost %d, %v", z.Lost(), count)
		}
	}
	if n != 4 {
		t.Errorf("%d directions", n)
	}
}

func FuzzZmtp(f *testing.F) {
	rng := rand.New(rand.NewPCG(7, 7))
	b := stream(conversation(f, rng, 5))
	f.Add(b[:min(len(b), 4000)], uint16(100), uint8(64), uint8(64))
	f.Add(stream(nil), uint16(10), uint8(255), uint8(0))
	f.Add(appendMessage(nil, []byte{0}, []byte("\x92\xa1a\xc0")), uint16(3), uint8(3), uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, step uint16, head, tail uint8) {
		var z Zmtp
		emit := func(frames []Frame) {
			if len(frames) == 0 || len(frames) > keepFrames {
				t.Fatalf("%d frames", len(frames))
			}
			for _, f := range frames {
				if f.Size < 0 || int64(len(f.Head)) > f.Size || int64(len(f.Tail)) > f.Size ||
					len(f.Head) > keepHead || len(f.Tail) > keepTail {
					t.Fatalf("%d bytes, head %d, tail %d", f.Size, len(f.Head), len(f.Tail))
				}
			}
			Decode(frames)
		}
		for len(b) > 0 {
			n := min(int(step)+1, len(b))
			c := cut(b[:n], int(head), int(tail))
			z.Feed(c.head, c.tail, c.n, emit)
			b = b[n:]
		}
		z.Feed(b, b, -1, emit)
		z.Feed([]byte("ab"), []byte("cd"), 3, emit)
		if len(z.keep) > keepBytes || z.Lost() < 0 {
			t.Fatalf("%d kept, lost %d", len(z.keep), z.Lost())
		}
	})
}

func BenchmarkZmtp(b *testing.B) {
	s := find(b, "outputs", "vo-basic")
	c := cut(appendMessage(nil, s.Frames[0].Head), 1024, 64)
	var z Zmtp
	n := 0
	emit := func([]Frame) { n++ }
	b.ReportAllocs()
	for b.Loop() {
		z.Feed(c.head, c.tail, c.n, emit)
	}
	if n == 0 {
		b.Fatal("no message")
	}
}
