package join

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/omnitap/omnitap/probes/event"
)

// packed writes a msgpack map of strings, whole numbers, booleans and maps.
func packed(b []byte, pairs ...any) []byte {
	b = append(b, 0x80|byte(len(pairs)/2))
	for _, v := range pairs {
		switch v := v.(type) {
		case string:
			b = packString(b, v)
		case int:
			b = append(b, 0xd2, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
		case bool:
			b = append(b, map[bool]byte{false: 0xc2, true: 0xc3}[v])
		case []any:
			b = packed(b, v...)
		}
	}
	return b
}

func message0(id, from, to, object, transport string, chunk, size int, segment string) []byte {
	info := []any{"size", size}
	if segment != "" {
		info = []any{"shm_name", segment, "size", size}
	}
	return packed(nil, "type", "data_ready", "request_id", id, "from_stage", from, "to_stage", to, "data_ref",
		[]any{"_type", "DataRef", "object_id", object, "transport", transport, "buffer", []any{"info", []any{"transfer_info", info}, "length", size}},
		"chunk_id", chunk)
}

// relayed makes a hand-over of SGLang-Omni's through shared memory or another
// transport, with the announcement and the answer at both ends.
func (s *synth) relayed(t int64, id string, chunk int, transport string) {
	object := fmt.Sprintf("%s:stream:thinker:talker:%d:%d", id, chunk, chunk)
	size := 100 + s.rng.IntN(100_000)
	segment := ""
	if transport == "shm" {
		segment = fmt.Sprintf("psm_%08x", s.rng.Uint32())
		fd := s.nextFD()
		s.add(event.Event{Probe: event.OpenAt, PID: thinkerPID, TID: int32(fd), MonoNS: t, Path: shmDir + segment, Ret: fd, Flags: 0o302})
		s.add(event.Event{Probe: event.FTruncate, PID: thinkerPID, TID: int32(fd), MonoNS: t + 1000, FD: int32(fd), Size: int64(size)})
		s.add(event.Event{Probe: event.Close, PID: thinkerPID, TID: int32(fd), MonoNS: t + 2000, FD: int32(fd)})
		back := s.nextFD()
		s.add(event.Event{Probe: event.OpenAt, PID: talkerPID, TID: talkerPID, MonoNS: t + 400_000, Path: shmDir + segment, Ret: back, Flags: 2})
		s.add(event.Event{Probe: event.Close, PID: talkerPID, TID: talkerPID, MonoNS: t + 410_000, FD: int32(back)})
		s.add(event.Event{Probe: event.Unlink, PID: talkerPID, TID: talkerPID, MonoNS: t + 420_000, Path: shmDir + segment})
	}
	ready := message0(id, "thinker", "talker", object, transport, chunk, size, segment)
	s.frame(event.ZMQSend, thinkerPID, t+10_000, 7, ready, false)
	s.frame(event.ZMQRecv, talkerPID, t+300_000, 8, ready, false)
	ack := packed(nil, "type", "data_ack", "request_id", id, "from_stage", "talker", "to_stage", "thinker", "object_id", object, "success", true)
	s.frame(event.ZMQSend, talkerPID, t+500_000, 9, ack, false)
	s.frame(event.ZMQRecv, thinkerPID, t+700_000, 10, ack, false)
	s.want[object] = made{id, "thinker", "talker", int64(chunk), int64(size), -1, false}
}

// TestRelayAnyOrder: segments and the messages that name them are put together in
// whatever order they come.
func TestRelayAnyOrder(t *testing.T) {
	s := newSynth(9)
	transports := []string{"shm", "cuda_ipc", "mooncake", "shm"}
	for r := range 100 {
		for c := range 12 {
			s.relayed(sec+int64(r)*3_000_000+int64(c)*1_100_000+int64(r*7+c), fmt.Sprintf("0b1e-%d", r), c, transports[c%4])
		}
	}
	s.sort(0)
	want := bare(s.join().Transfers())
	for seed := range uint64(5) {
		if got := bare(s.join().Transfers()); !slices.Equal(got, want) {
			t.Fatalf("seed %d: other transfers", seed)
		}
		if len(want) != len(s.want) {
			t.Fatalf("%d transfers, want %d", len(want), len(s.want))
		}
		s.rng = rand.New(rand.NewPCG(seed, 4))
		s.sort(20_000_000)
	}
	for _, g := range want {
		w := s.want[g.Object]
		if have := (made{g.Request, g.From, g.To, g.Chunk, g.Bytes, g.Misses, g.Unread}); have != w || g.Match != ByID || g.Confidence != Certain {
			t.Fatalf("got %+v, want %+v", g, w)
		}
		if g.Acked == 0 || g.Announced == 0 || g.Heard < g.Announced || g.RxEnd < g.RxStart || g.RxStart == 0 {
			t.Fatalf("times of %+v", g)
		}
		by, end := ControlPlane, Ack
		if g.Transport == "shm" {
			by, end = Exact, Syscall
		}
		if g.BytesBy != by || g.EndBy != end {
			t.Fatalf("%s: bytes %q, end %q", g.Transport, g.BytesBy, g.EndBy)
		}
	}
	// Events that are missing make no wrong pair.
	for seed := range uint64(4) {
		cut := *s
		cut.rng = rand.New(rand.NewPCG(seed, 5))
		cut.events = slices.DeleteFunc(slices.Clone(s.events), func(event.Event) bool { return cut.rng.IntN(4) == 0 })
		for _, g := range cut.join().Transfers() {
			w, ok := s.want[g.Object]
			if g.Request == "" && g.Key != "" {
				continue // its messages are missing
			}
			if !ok || g.Request != w.request || g.Chunk != w.chunk || g.Bytes != w.bytes {
				t.Fatalf("seed %d: %+v, want %+v", seed, g, w)
			}
		}
	}
}

// TestNameless: shared memory that no message names is told as a transfer of no
// request; a segment that stays with its own stage, or that only a foreign process
// unlinks, is none.
func TestNameless(t *testing.T) {
	s := newSynth(1)
	s.relayed(sec, "x", 0, "shm")
	s.events = slices.DeleteFunc(s.events, func(e event.Event) bool { return e.Probe == event.ZMQSend || e.Probe == event.ZMQRecv })
	for i, name := range []string{"psm_00000001", "psm_00000002", "psm_00000003"} {
		at := 2*sec + int64(i)*1000
		s.add(event.Event{Probe: event.OpenAt, PID: thinkerPID, TID: 1, MonoNS: at, Path: shmDir + name, Ret: 7, Flags: 0o302})
		s.add(event.Event{Probe: event.FTruncate, PID: thinkerPID, TID: 1, MonoNS: at + 1, FD: 7, Size: 9})
	}
	s.add(event.Event{Probe: event.Unlink, PID: thinkerPID, TID: 1, MonoNS: 3 * sec, Path: shmDir + "psm_00000001"})
	s.add(event.Event{Probe: event.Unlink, PID: 999, TID: 999, MonoNS: 3 * sec, Path: shmDir + "psm_00000002"})
	s.sort(0)
	j := s.join()
	got := j.Transfers()
	if len(got) != 1 || got[0].Request != "" || got[0].Match != ByConnection || got[0].From != "thinker" || got[0].To != "talker" || got[0].Bytes < 100 {
		t.Errorf("got %+v", got)
	}
	n := 0
	j.cfg.Done = func(Transfer) { n++ }
	j.Close()
	if n != 1 || j.Stats().Nameless != 1 {
		t.Errorf("%d told, stats %+v", n, j.Stats())
	}
}

// TestQueueItems: vLLM-Omni's first generation forwards by queue items that name
// shared memory, or hold the data.
func TestQueueItems(t *testing.T) {
	s := newSynth(1)
	str := func(v string) string { return "\x8c" + string(rune(len(v))) + v + "\x94" }
	item := func(pairs ...string) []byte {
		b := "\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}\x94("
		for _, p := range pairs {
			b += p
		}
		return []byte(b + "u.")
	}
	pipe := func(at int64, pid int32, send bool, fd int32, b []byte) {
		e := event.Event{Probe: event.Recv, Call: "read", PID: pid, TID: pid, MonoNS: at, FD: fd, Ret: int64(len(b)), Size: int64(len(b)), Head: b}
		if send {
			e.Probe, e.Call = event.Send, "write"
		}
		s.add(e)
	}
	number := func(n int) string { return "K" + string(rune(n)) }
	task := item(str("request_id"), str("r1"), str("engine_inputs"), str("hello"))
	pipe(sec, apiPID, true, 5, task)
	pipe(sec+1000, thinkerPID, false, 6, task)
	result := item(str("request_id"), str("r1"), str("stage_id"), number(0), str("engine_outputs_shm"), "}\x94("+str("name")+str("psm_0badcafe")+str("size")+"M\x10\x27u")
	open := func(at int64, pid int32, flags int64) {
		s.add(event.Event{Probe: event.OpenAt, PID: pid, TID: pid, MonoNS: at, Path: shmDir + "psm_0badcafe", Ret: 9, Flags: flags})
	}
	open(2*sec, thinkerPID, 0o302)
	s.add(event.Event{Probe: event.FTruncate, PID: thinkerPID, TID: thinkerPID, MonoNS: 2*sec + 1, FD: 9, Size: 10_000})
	s.add(event.Event{Probe: event.Close, PID: thinkerPID, TID: thinkerPID, MonoNS: 2*sec + 2, FD: 9})
	pipe(2*sec+10, thinkerPID, true, 8, result)
	pipe(2*sec+2000, apiPID, false, 9, result)
	open(2*sec+3000, apiPID, 2)
	s.add(event.Event{Probe: event.Unlink, PID: apiPID, TID: apiPID, MonoNS: 2*sec + 4000, Path: shmDir + "psm_0badcafe"})
	s.sort(0)
	j := s.join()
	got := j.Transfers()
	if len(got) != 2 {
		t.Fatalf("%d transfers: %+v", len(got), got)
	}
	if g := got[0]; g.Transport != "queue" || g.Request != "r1" || g.From != "api" || g.To != "thinker" || g.Bytes != -1 || g.MessageBytes != int64(len(task)) || g.Announced == 0 || g.Heard == 0 {
		t.Errorf("the task: %+v", g)
	}
	if g := got[1]; g.Transport != "shm" || g.Request != "r1" || g.From != "thinker" || g.To != "api" || g.Bytes != 10_000 || g.BytesBy != Exact || g.RxEnd == 0 || g.Unread {
		t.Errorf("the result: %+v", g)
	}
	if r := j.requests.engine["r1"]; r == nil || r.added == 0 {
		t.Errorf("the request: %+v", r)
	}
}

// TestSocketsAlone: where libzmq shows nothing, messages are put together from socket
// calls; where it does they do not count twice.
func TestSocketsAlone(t *testing.T) {
	payload := packString([]byte{0xdc, 0, 22}, "chatcmpl-z-0a0b0c0d")
	wire := append([]byte{1, 1, 0, 0, byte(len(payload))}, payload...)
	for _, uprobes := range []bool{false, true} {
		s := newSynth(1)
		if uprobes {
			s.add(event.Event{Probe: event.ZMQConnect, PID: thinkerPID, TID: thinkerPID, MonoNS: sec / 2, Path: "ipc:///tmp/x"})
			s.addMessage(sec-100_000, 5, "chatcmpl-z-0a0b0c0d", thinkerPID)
		}
		s.add(event.Event{Probe: event.Connect, PID: apiPID, TID: apiPID, MonoNS: sec / 2, FD: 4})
		s.add(event.Event{Probe: event.Send, Call: "sendto", PID: apiPID, TID: 7, MonoNS: sec, FD: 4, Ret: int64(len(wire)), Head: wire})
		s.add(event.Event{Probe: event.Recv, Call: "recvfrom", PID: thinkerPID, TID: 8, MonoNS: sec + 1000, FD: 5, Ret: int64(len(wire)), Head: wire})
		s.sort(0)
		j := s.join()
		r := j.requests.engine["chatcmpl-z-0a0b0c0d"]
		if r == nil || r.added == 0 || len(r.stages) != 1 || r.stages[0].got == 0 {
			t.Fatalf("uprobes %v: %+v", uprobes, r)
		}
		if got := j.Stats().Messages; got != 2 {
			t.Errorf("uprobes %v: %d messages, want 2", uprobes, got)
		}
	}
}

// TestMooncakeWithoutHeader: over RDMA the messages alone tell of a transfer; a header
// of an address that is another transfer's by now is not taken for an old one.
func TestMooncakeWithoutHeader(t *testing.T) {
	s := readSet(t, "mc-tcp")
	s.events = slices.DeleteFunc(s.events, func(e event.Event) bool { return e.Probe == event.Send || e.Probe == event.Recv })
	got := s.join(Config{}).Transfers()
	if len(got) != 9 {
		t.Fatalf("%d transfers, want 9", len(got))
	}
	for i, g := range got {
		w := s.expected.Transfers[i]
		if g.Transport != "mooncake" || g.Request != w.Request || g.Chunk != *w.Chunk || g.Bytes != *w.Bytes || g.BytesBy != ControlPlane || g.EndBy != Ack || g.Unread {
			t.Errorf("%+v, want %s", g, describe(&w))
		}
	}
	// Of the second pull on, those that their sender had are missing.
	pulls := 0
	s = readSet(t, "mc-tcp")
	s.events = slices.DeleteFunc(s.events, func(e event.Event) bool {
		if e.Probe == event.ZMQRecv && len(e.Head) > 100 {
			pulls++
			return pulls > 1
		}
		return false
	})
	if pulls != 9 {
		t.Fatalf("%d pulls: %s", pulls, base64.StdEncoding.EncodeToString(s.events[0].Head))
	}
	for i, g := range s.join(Config{}).Transfers() {
		if w := s.expected.Transfers[i]; g.Request != w.Request || g.Bytes != *w.Bytes || (g.Transport == "tcp") != (i == 0) {
			t.Errorf("%+v, want %s", g, describe(&w))
		}
	}
}
