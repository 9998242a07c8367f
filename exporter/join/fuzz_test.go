package join

import (
	"encoding/binary"
	"testing"

	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// Names, paths and calls that fuzzed events pick from, beside their own bytes.
var fuzzPaths = []string{
	"", shmDir, shmDir + "chatcmpl-a-01234567_0_0", shmDir + "shm_chatcmpl-a-01234567_0_0_lockfile.lock", shmDir + "chatcmpl-a-01234567_1_0",
	shmDir + "psm_01234567", shmDir + "sem.x", shmDir + "omni_0_to_1_kv_cache_q", shmDir + "shm__lockfile.lock", "cuGraphLaunch", "cuEventSynchronize",
	"cuLaunchKernel", "shm", "/tmp/x",
}

var fuzzCalls = []string{"", "write", "read", "sendto", "recvfrom", "sendmsg"}

// FuzzAdd: whatever events come, nothing panics, all that is held stays bounded, gaps
// sum up and are not negative, and each transfer is told once at most.
func FuzzAdd(f *testing.F) {
	// Small seeds: the fuzzer's time goes into making them smaller else.
	for _, make := range []func(*synth){
		func(s *synth) { s.addMessage(sec, 5, "chatcmpl-a-01234567", thinkerPID) },
		func(s *synth) { s.hop(sec, thinkerPID, talkerPID, "chatcmpl-a-01234567", 0, 9, 2) },
		func(s *synth) {
			s.outputMessage(sec, thinkerPID, []string{"chatcmpl-a-01234567"}, true, false)
			s.outputMessage(sec, codePID, []string{"chatcmpl-a-01234567"}, true, false)
		},
		func(s *synth) { s.relayed(sec, "0b1e", 0, "shm") },
	} {
		s := newSynth(1)
		make(s)
		s.sort(0)
		var seed []byte
		for i := range s.events {
			seed = appendFuzz(seed, &s.events[i])
		}
		f.Add(seed)
	}
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		told := 0
		cfg := Config{Requests: 8, Segments: 16, Each: 16, Held: 64, Samples: 16, Pending: 32, Done: func(Transfer) { told++ }}
		j := New(cfg)
		j.Processes(madeProcesses())
		for n := 0; len(b) > 0 && n < 2000; n++ {
			var e event.Event
			e, b = readFuzz(b)
			j.Add(&e)
			if j.requests.n > cfg.Requests || j.requests.held > cfg.Held+cfg.Each || len(j.shm.segs.entries) > cfg.Segments || len(j.shm.fds.entries) > cfg.Segments {
				t.Fatalf("%d requests with %d, %d segments", j.requests.n, j.requests.held, len(j.shm.segs.entries))
			}
		}
		if len(j.Transfers()) > cfg.Held+cfg.Segments+cfg.Each {
			t.Fatal("too many transfers")
		}
		for r := range j.requests.all() {
			in, audio := r.first-10, r.last+10
			x := j.Request(Ask{ServerRequestID: r.external, Flow: "speech", CancelNS: r.first, Points: timeline.Points{TIn: &in, TAudio: &audio}})
			if len(x.Path) > 0 && sumOf(x.Path) != audio-in {
				t.Fatalf("%+v do not sum to %d", x.Path, audio-in)
			}
			for _, g := range x.Path {
				if g.NS < 0 {
					t.Fatalf("negative gap %+v", g)
				}
			}
			x.Apply(&timeline.Record{})
			x.Events(timeline.Event{}, 1)
		}
		j.Close()
		if int64(told) > j.stats.Transfers+j.stats.Nameless {
			t.Fatalf("%d told of %d", told, j.stats.Transfers)
		}
	})
}

// appendFuzz is the form of an event that readFuzz takes.
func appendFuzz(b []byte, e *event.Event) []byte {
	path := 0
	for i, p := range fuzzPaths {
		if p == e.Path {
			path = i
		}
	}
	b = append(b, byte(e.Probe), byte(e.PID-apiPID), byte(e.TID), byte(e.FD), byte(path), byte(e.Flags), byte(e.Flags>>8), byte(e.Ret), byte(len(e.Head)), 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(e.MonoNS-sec))
	return append(b, e.Head[:min(len(e.Head), 255)]...)
}

func readFuzz(b []byte) (e event.Event, rest []byte) {
	var h [14]byte
	rest = b[copy(h[:], b):]
	at := int64(int32(binary.LittleEndian.Uint32(h[10:])))
	e = event.Event{
		Probe: event.Probe(h[0] % 40), PID: apiPID + int32(h[1]%6), TID: int32(h[2]), FD: int32(h[3]), Path: fuzzPaths[int(h[4])%len(fuzzPaths)],
		Flags: int64(h[5]) | int64(h[6])<<8, Ret: int64(int8(h[7])), Call: fuzzCalls[int(h[9])%len(fuzzCalls)], MonoNS: sec + at, EnterNS: sec + at - int64(h[9]),
		Count: int64(int8(h[6])), Size: int64(h[8]), More: h[9]&1 != 0, Sock: uint64(h[9] >> 6),
		Args: [5]int64{apiPID + int64(h[3]%6), apiPID + int64(h[2]%6), int64(h[2]), apiPID + int64(h[5]%6), int64(h[6])},
	}
	n := min(int(h[8]), len(rest))
	e.Head, rest = rest[:n:n], rest[n:]
	if e.Probe == event.Send || e.Probe == event.Recv {
		e.Ret = int64(n)
	}
	return e, rest
}
