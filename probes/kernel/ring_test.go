//go:build linux && amd64

package kernel

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/probes/event"
)

// record makes the bytes of an event as common.h has them.
type record struct {
	mono, enter            uint64
	pid, tid               uint32
	probe, more, typ, call byte
	fd                     int32
	ret, flags, size       int64
	count                  int64
	sock                   uint64
	path, head, tail       uint16
	comm                   string
	data                   []byte
}

func (r record) bytes() []byte {
	ne := binary.NativeEndian
	b := ne.AppendUint64(nil, r.mono)
	b = ne.AppendUint64(b, r.enter)
	b = ne.AppendUint32(b, r.pid)
	b = ne.AppendUint32(b, r.tid)
	b = append(b, r.probe, r.more, r.typ, r.call)
	b = ne.AppendUint32(b, uint32(r.fd))
	for _, n := range []int64{r.ret, r.flags, r.size, r.count, int64(r.sock)} {
		b = ne.AppendUint64(b, uint64(n))
	}
	for _, n := range []uint16{r.path, r.head, r.tail, 0} {
		b = ne.AppendUint16(b, n)
	}
	b = append(append(b, r.comm...), make([]byte, 16-len(r.comm))...)
	return append(b, r.data...)
}

func words(n ...uint64) (b []byte) {
	for _, w := range n {
		b = binary.NativeEndian.AppendUint64(b, w)
	}
	return b
}

func pad(s string, n int) []byte { return append([]byte(s), make([]byte, n-len(s))...) }

func TestDecode(t *testing.T) {
	bulk := pad("head", 8192+64)
	copy(bulk[8192:], "tail")
	message := pad("head", 1024+64)
	copy(message[1024:], "tail")
	for _, tt := range []struct {
		name string
		in   record
		want event.Event
	}{
		{
			"fields",
			record{mono: 2, enter: 1, pid: 3, tid: 4, probe: byte(event.FlockExit), fd: -5, ret: -6, flags: 7, size: 8, count: 9, sock: 10, comm: "VLLM::StageEngi"},
			event.Event{MonoNS: 2, EnterNS: 1, PID: 3, TID: 4, Probe: event.FlockExit, FD: -5, Ret: -6, Flags: 7, Size: 8, Count: 9, Sock: 10, Comm: "VLLM::StageEngi"},
		},
		{"a comm without a zero", record{probe: byte(event.Close), comm: strings.Repeat("c", 16)}, event.Event{Probe: event.Close, Comm: strings.Repeat("c", 16)}},
		{"path", record{probe: byte(event.OpenAt), path: 11, data: pad("/dev/shm/x", 272)}, event.Event{Probe: event.OpenAt, Path: "/dev/shm/x"}},
		{"an empty path", record{probe: byte(event.Exec), path: 1, data: pad("", 272)}, event.Event{Probe: event.Exec}},
		{"a path longer than its record", record{probe: byte(event.OpenAt), path: 500, data: pad("/x", 8)}, event.Event{Probe: event.OpenAt}},
		{"small frame", record{probe: byte(event.ZMQSend), more: 1, typ: 101, head: 5, data: pad("hello", 64)}, event.Event{Probe: event.ZMQSend, More: true, MsgType: 101, Head: []byte("hello")}},
		{"frame with tail", record{probe: byte(event.ZMQRecv), head: 1024, tail: 64, data: message}, event.Event{Probe: event.ZMQRecv, Head: message[:1024], Tail: message[1024:]}},
		{"bulk with tail", record{probe: byte(event.Send), call: 2, head: 8192, tail: 64, data: bulk}, event.Event{Probe: event.Send, Call: "sendto", Head: bulk[:8192], Tail: bulk[8192:]}},
		{"a head longer than its record", record{probe: byte(event.Send), call: 200, head: 65, tail: 64, data: pad("", 64)}, event.Event{Probe: event.Send}},
		{"arguments", record{probe: byte(event.Fork), data: words(1, 2, 3, 4, 5)}, event.Event{Probe: event.Fork, Args: [5]int64{1, 2, 3, 4, 5}}},
		{"half the arguments", record{probe: byte(event.Exit), data: words(1, 2)}, event.Event{Probe: event.Exit, Args: [5]int64{1, 2}}},
		{"address", record{probe: byte(event.Connect), head: 16, data: pad("\x02\x00\x1f\x90\x7f\x00\x00\x01", 272)}, event.Event{Probe: event.Connect, Path: "127.0.0.1:8080"}},
		{
			"state",
			record{probe: byte(event.SockState), flags: 2, head: 64, data: append(words(2, 1, 50000, 8080), append(pad("\x0a\x00\x00\x01", 16), pad("\x0a\x00\x00\x02", 16)...)...)},
			event.Event{Probe: event.SockState, Flags: 2, Path: "10.0.0.1 10.0.0.2", Args: [5]int64{2, 1, 50000, 8080}},
		},
		{"an unknown probe", record{probe: 200}, event.Event{Probe: 200}},
	} {
		var b Batch
		b.add(tt.in.bytes())
		if len(b.Events) != 1 {
			t.Fatalf("%s: %d events", tt.name, len(b.Events))
		}
		if diff := cmp.Diff(tt.want, b.Events[0]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	var b Batch
	if b.add(make([]byte, headBytes-1)); len(b.Events) != 0 {
		t.Error("half a head made an event")
	}
}

// TestPayloadsAreKept: what events point to stays as it was while later ones come.
func TestPayloadsAreKept(t *testing.T) {
	var b Batch
	var kept []event.Event
	for i := range 3000 {
		b.Reset()
		b.add(record{probe: byte(event.ZMQSend), head: 33, comm: fmt.Sprint(i % 7), data: pad(fmt.Sprint("frame ", i), 64)}.bytes())
		kept = append(kept, b.Events...)
	}
	for i, e := range kept {
		if want := string(pad(fmt.Sprint("frame ", i), 33)); string(e.Head) != want || e.Comm != fmt.Sprint(i%7) {
			t.Fatalf("event %d has %q of %q", i, e.Head, e.Comm)
		}
	}
}

// TestBatchBounds: neither names nor a burst keep their memory.
func TestBatchBounds(t *testing.T) {
	var b Batch
	for i := range maxKept * 2 {
		b.add(record{probe: byte(event.Close), comm: fmt.Sprint(i)}.bytes())
	}
	b.Reset()
	if cap(b.Events) != 0 || len(b.names) > 4096 {
		t.Errorf("room for %d events and %d names is kept", cap(b.Events), len(b.names))
	}
}

func TestAddress(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"\x02", ""},
		{"\x02\x00\x00\x50\x7f\x00\x00\x01", "127.0.0.1:80"},
		{"\x02\x00\x00\x50\x7f\x00\x00", ""},
		{"\x0a\x00\x00\x50\x00\x00\x00\x00" + strings.Repeat("\x00", 15) + "\x01", "[::1]:80"},
		{"\x0a\x00\x00\x50\x00\x00\x00\x00" + strings.Repeat("\x00", 10) + "\xff\xff\x0a\x00\x00\x01", "10.0.0.1:80"},
		{"\x0a\x00\x00\x50", ""},
		{"\x01\x00", "unix:"},
		{"\x01\x00/tmp/a.sock\x00junk", "unix:/tmp/a.sock"},
		{"\x01\x00/tmp/a.sock", "unix:/tmp/a.sock"},
		{"\x01\x00\x00abstract\x00name", "unix:@abstract\x00name"},
		{"\x11\x00\x01\x02", ""},
	} {
		if got := address([]byte(tt.in)); got != tt.want {
			t.Errorf("address(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

// FuzzBatch: no record makes it fail or hand out more bytes than there are.
func FuzzBatch(f *testing.F) {
	for _, p := range []event.Probe{event.OpenAt, event.ZMQSend, event.Send, event.Connect, event.SockState, event.CUDACall, event.Loss} {
		f.Add(record{probe: byte(p), path: 3, head: 40, tail: 64, comm: "c", data: make([]byte, 300)}.bytes())
	}
	f.Add(record{probe: byte(event.Send), head: 8192, tail: 64, data: make([]byte, 8256)}.bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		var b Batch
		b.add(in)
		b.add(in)
		if len(in) < headBytes {
			if len(b.Events) != 0 {
				t.Fatal("an event of nothing")
			}
			return
		}
		if len(b.Events) != 2 || !cmp.Equal(b.Events[0], b.Events[1]) {
			t.Fatalf("the same record twice: %+v", b.Events)
		}
		e := b.Events[0]
		if len(e.Head)+len(e.Tail) > len(in)-headBytes || len(e.Tail) > len(in) {
			t.Fatalf("head %d, tail %d of %d bytes", len(e.Head), len(e.Tail), len(in))
		}
	})
}
