package control

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// An engine that answers two requests at once sends its message and a frame of sound
// for each. Of the call that carries the rest the first 8 KiB and the last 64 bytes are
// copied: the second sound's header lies in between. What names the requests was whole,
// and is told; the messages behind it are whole again.
func TestZmtpTellsWhatWasWhole(t *testing.T) {
	long := func(flags byte, n int) []byte {
		return append(binary.BigEndian.AppendUint64([]byte{flags | 2}, uint64(n)), bytes.Repeat([]byte{7}, n)...)
	}
	outputs := append([]byte{1, 5}, "\x98\x00\x91\x90\xc0"...)
	message := append(append(append([]byte{}, outputs...), long(1, 40000)...), long(0, 40000)...)
	next := append([]byte{0, 3}, "\x98\x00\x90"...)

	type seen struct {
		frames int
		cut    bool
		first  string
	}
	var got []seen
	z := new(Zmtp)
	feed := func(b []byte) {
		head, tail := b, []byte(nil)
		if len(b) > 8192 {
			head, tail = b[:8192], b[len(b)-64:]
		}
		z.Feed(head, tail, int64(len(b)), func(f []Frame) { got = append(got, seen{len(f), z.Cut(), string(f[0].Head)}) })
	}
	feed(message[:8192])
	feed(message[8192:])
	feed(next)
	want := []seen{{2, true, "\x98\x00\x91\x90\xc0"}, {1, false, "\x98\x00\x90"}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%+v, want %+v", got, want)
	}
	if z.Lost() != 1 {
		t.Errorf("lost the thread %d times", z.Lost())
	}
}
