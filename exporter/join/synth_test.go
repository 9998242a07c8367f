package join

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/omnitap/omnitap/probes/event"
)

// The processes of a made server.
const (
	apiPID = 100 + iota
	thinkerPID
	talkerPID
	codePID
)

func madeProcesses() []event.Process {
	return []event.Process{
		{PID: apiPID, Stage: "api", Role: "api"},
		{PID: thinkerPID, Stage: "thinker", StageID: new(0), Role: "stage"},
		{PID: talkerPID, Stage: "talker", StageID: new(1), Role: "stage"},
		{PID: codePID, Stage: "code2wav", StageID: new(2), Role: "stage"},
	}
}

// synth makes the events of a server, as probes would see them, in order of time.
type synth struct {
	rng    *rand.Rand
	events []event.Event
	want   map[string]made // by segment name
	fd     int32
	tid    int32
}

// made is what a made transfer must come out as.
type made struct {
	request  string
	from, to string
	chunk    int64
	bytes    int64
	misses   int64
	unread   bool
}

func newSynth(seed uint64) *synth {
	return &synth{rng: rand.New(rand.NewPCG(seed, 7)), want: map[string]made{}, fd: 10}
}

func (s *synth) add(e event.Event) {
	if e.EnterNS == 0 {
		e.EnterNS = e.MonoNS - 1000
	}
	s.events = append(s.events, e)
}

func (s *synth) nextFD() int64 {
	if s.fd++; s.fd > 4000 {
		s.fd = 10
	}
	return int64(s.fd)
}

// hop makes a chunk's way through shared memory from t on; it returns the time of the
// receipt's end.
func (s *synth) hop(t int64, from, to int32, request string, chunk, bytes int64, misses int) int64 {
	name := fmt.Sprintf("%s_%d_%d", request, from-thinkerPID, chunk)
	path, lock := shmDir+name, shmDir+"shm_"+name+"_lockfile.lock"
	stages := map[int32]string{thinkerPID: "thinker", talkerPID: "talker", codePID: "code2wav"}
	s.want[name] = made{request, stages[from], stages[to], chunk, bytes, int64(misses), false}
	// A thread writes, and reads, one after the other.
	s.tid++
	w := event.Event{PID: from, TID: 10_000 + s.tid}
	r := event.Event{PID: to, TID: 1_000_000 + s.tid}
	call := func(e event.Event, at int64, p event.Probe, path string, ret, flags int64) {
		e.MonoNS, e.Probe, e.Path, e.Ret, e.Flags = at, p, path, ret, flags
		s.add(e)
	}
	on := func(e event.Event, at int64, p event.Probe, fd, flags, size int64) {
		e.MonoNS, e.Probe, e.FD, e.Flags, e.Size = at, p, int32(fd), flags, size
		s.add(e)
	}
	s.polls(&r, t, path, misses)
	t += int64(misses) * 1_000_000
	lockFD, fd := s.nextFD(), s.nextFD()
	call(w, t+10_000, event.OpenAt, lock, lockFD, 0o1101)
	on(w, t+20_000, event.FlockExit, lockFD, lockEx, 0)
	call(w, t+30_000, event.OpenAt, path, fd, 0o302)
	on(w, t+40_000, event.FTruncate, fd, 0, bytes)
	on(w, t+50_000, event.Close, fd, 0, 0)
	on(w, t+60_000, event.FlockEnter, lockFD, lockUn, 0)
	on(w, t+70_000, event.Close, lockFD, 0, 0)
	if to == 0 {
		return t + 70_000
	}
	t += 200_000 + s.rng.Int64N(2_000_000)
	first, again, lockFD := s.nextFD(), s.nextFD(), s.nextFD()
	call(r, t, event.OpenAt, path, first, 2)
	call(r, t+10_000, event.OpenAt, lock, lockFD, 2)
	on(r, t+20_000, event.FlockExit, lockFD, lockEx, 0)
	call(r, t+30_000, event.OpenAt, path, again, 2)
	on(r, t+40_000, event.Close, again, 0, 0)
	call(r, t+50_000, event.Unlink, path, 0, 0)
	on(r, t+60_000, event.FlockEnter, lockFD, lockUn, 0)
	on(r, t+70_000, event.Close, lockFD, 0, 0)
	call(r, t+80_000, event.Unlink, lock, 0, 0)
	on(r, t+90_000, event.Close, first, 0, 0)
	return t + 49_000
}

// polls makes polls that miss: each one told, or counted in the kernel.
func (s *synth) polls(r *event.Event, t int64, path string, n int) {
	if n == 0 {
		return
	}
	if n > 2 && s.rng.IntN(2) == 0 {
		e := *r
		e.Probe, e.Path, e.EnterNS, e.MonoNS, e.Count = event.OpenMisses, path, t, t+int64(n-1)*1_000_000, int64(n)
		s.add(e)
		return
	}
	for i := range n {
		e := *r
		e.Probe, e.Path, e.Ret, e.MonoNS, e.EnterNS = event.OpenAt, path, enoent, t+int64(i)*1_000_000, t+int64(i)*1_000_000-1000
		s.add(e)
	}
}

func packString(b []byte, s string) []byte {
	if len(s) < 32 {
		b = append(b, 0xa0|byte(len(s)))
	} else {
		b = append(b, 0xd9, byte(len(s)))
	}
	return append(b, s...)
}

// addMessage is a vLLM request on its way to a stage: its frames, one event each.
func (s *synth) addMessage(t int64, sock uint64, id string, to int32) {
	payload := packString([]byte{0xdc, 0, 22}, id)
	for i, f := range [][]byte{{0, 0}, {0}, payload} {
		s.frame(event.ZMQSend, apiPID, t+int64(i)*2000, sock, f, i < 2)
	}
	for i, f := range [][]byte{{0}, payload} {
		s.frame(event.ZMQRecv, to, t+150_000+int64(i)*2000, 1, f, i < 1)
	}
}

func (s *synth) frame(p event.Probe, pid int32, t int64, sock uint64, b []byte, more bool) {
	s.add(event.Event{
		Probe: p, PID: pid, TID: pid + 3000, MonoNS: t, EnterNS: t - 900, Ret: int64(len(b)), Size: int64(len(b)),
		Sock: sock, More: more, Head: b,
	})
}

// outputMessage is a stage's answer about some requests, at both ends.
func (s *synth) outputMessage(t int64, from int32, ids []string, finished, payload bool) {
	b := []byte{0x98, 0, 0x90 | byte(len(ids))}
	for _, id := range ids {
		b = packString(append(b, 0x98), id)
		b = append(b, 0x91, 1, 0xc0, 0xc0, 0xc0)
		if finished {
			b = append(b, 0)
		} else {
			b = append(b, 0xc0)
		}
		b = append(b, 0xc0, 0xc0)
	}
	s.frame(event.ZMQSend, from, t, 2, b, payload)
	s.frame(event.ZMQRecv, apiPID, t+200_000, uint64(from), b, payload)
	if payload {
		audio := make([]byte, 640)
		s.frame(event.ZMQSend, from, t+3000, 2, audio, false)
		s.frame(event.ZMQRecv, apiPID, t+203_000, uint64(from), audio, false)
	}
}

// request makes all events of one request through three stages from t on: chunks of
// the thinker, one chunk of the talker for two of them, an output for each.
func (s *synth) request(t int64, id string, chunks int) int64 {
	for i, to := range []int32{thinkerPID, talkerPID, codePID} {
		s.addMessage(t+int64(i)*20_000, uint64(50+i), id, to)
	}
	t += 1_000_000
	end := t
	for c := range chunks {
		s.outputMessage(t+500_000, thinkerPID, []string{id}, c == chunks-1, false)
		at := s.hop(t+600_000, thinkerPID, talkerPID, id, int64(c), 1000+s.rng.Int64N(100_000), s.rng.IntN(4))
		if c%2 == 0 {
			s.outputMessage(at+100_000, talkerPID, []string{id}, c+2 >= chunks, false)
			at = s.hop(at+200_000, talkerPID, codePID, id, int64(c/2), 100+s.rng.Int64N(5000), s.rng.IntN(4))
			s.outputMessage(at+400_000, codePID, []string{id}, c+2 >= chunks, true)
			at += 700_000
		}
		end = max(end, at)
		t += 4_000_000
	}
	return end + 1_000_000
}

// left makes a chunk that nobody reads.
func (s *synth) left(t int64, id string, chunk int64) {
	s.hop(t, thinkerPID, 0, id, chunk, 116, 0)
	name := fmt.Sprintf("%s_0_%d", id, chunk)
	w := s.want[name]
	w.to, w.unread, w.misses = "talker", true, -1
	s.want[name] = w
}

// load makes n requests, inFlight of them at once.
func (s *synth) load(n, inFlight, chunks int) {
	s.events = slices.Grow(s.events, n*(chunks+1)*45)
	free := make([]int64, inFlight)
	for i := range free {
		free[i] = 1_000_000_000 + int64(i)*371_000
	}
	for i := range n {
		lane := 0
		for k := range free {
			if free[k] < free[lane] {
				lane = k
			}
		}
		id := fmt.Sprintf("chatcmpl-made-%d_3-%08x", i, s.rng.Uint32())
		start := free[lane]
		free[lane] = s.request(start, id, chunks) + s.rng.Int64N(500_000)
		if i%5 == 0 {
			s.left(start+3_000_000, id, 90)
		}
	}
	s.sort(0)
}

// sort puts events in the order in which they come: that of time, each late by less
// than jitter.
func (s *synth) sort(jitter int64) {
	type keyed struct {
		at int64
		i  int32
	}
	list := make([]keyed, len(s.events))
	for i := range s.events {
		list[i] = keyed{s.events[i].MonoNS, int32(i)}
		if jitter > 0 {
			list[i].at += s.rng.Int64N(jitter)
		}
	}
	slices.SortFunc(list, func(a, b keyed) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.i, b.i)) })
	sorted := make([]event.Event, len(list))
	for i := range list {
		sorted[i] = s.events[list[i].i]
	}
	s.events = sorted
}

func (s *synth) join() *Joiner {
	j := New(Config{})
	j.Processes(madeProcesses())
	for i := range s.events {
		j.Add(&s.events[i])
	}
	j.Flush(Everything)
	return j
}

func bare(list []Transfer) []Transfer {
	for i := range list {
		list[i].owner = nil
	}
	return list
}

// check holds transfers to what was made.
func (s *synth) check(t *testing.T, got []Transfer) {
	t.Helper()
	if len(got) != len(s.want) {
		t.Errorf("%d transfers, want %d", len(got), len(s.want))
	}
	for i := range got {
		g := &got[i]
		w, ok := s.want[g.Key]
		if have := (made{g.Request, g.From, g.To, g.Chunk, g.Bytes, g.Misses, g.Unread}); !ok || have != w {
			t.Fatalf("%s is %+v, want %+v", g.Key, have, w)
		}
		if !g.Unread && (g.TxStart == 0 || g.TxEnd < g.TxStart || g.RxStart < g.TxEnd || g.RxEnd < g.RxStart) {
			t.Fatalf("%s: times %d %d %d %d", g.Key, g.TxStart, g.TxEnd, g.RxStart, g.RxEnd)
		}
		if (g.WaitStart > 0) != (w.misses > 0) {
			t.Fatalf("%s: wait from %d, with %d misses", g.Key, g.WaitStart, w.misses)
		}
	}
}

// TestAnyOrder: events of 32 requests in flight come up to 20 ms out of order; the
// transfers are the same, to the nanosecond.
func TestAnyOrder(t *testing.T) {
	s := newSynth(1)
	s.load(200, 32, 5)
	straight := s.join()
	want := bare(straight.Transfers())
	s.check(t, want)
	for seed := range uint64(4) {
		s.rng = rand.New(rand.NewPCG(seed, 3))
		s.sort(20_000_000)
		j := s.join()
		if got := bare(j.Transfers()); !slices.Equal(got, want) {
			t.Errorf("seed %d: other transfers than in order (%d, want %d)", seed, len(got), len(want))
			s.check(t, got)
		}
		if st := j.Stats(); st.Late != 0 || st.RequestsDropped+st.SegmentsDropped+st.MissesDropped != 0 {
			t.Errorf("seed %d: stats %+v", seed, st)
		}
	}
}

// TestDrops: whatever events are missing, no transfer has another's bytes, request or
// stages, and none is made up.
func TestDrops(t *testing.T) {
	for _, share := range []float64{0.01, 0.1, 0.3, 0.6} {
		for seed := range uint64(3) {
			s := newSynth(seed)
			s.load(96, 32, 4)
			s.events = slices.DeleteFunc(s.events, func(event.Event) bool { return s.rng.Float64() < share })
			s.sort(20_000_000)
			seen := map[string]bool{}
			for _, g := range s.join().Transfers() {
				w, ok := s.want[g.Key]
				if !ok || seen[g.Key] || g.Request != w.request || g.From != w.from || g.To != w.to || g.Chunk != w.chunk {
					t.Fatalf("share %v seed %d: %+v, want %+v", share, seed, g, w)
				}
				if g.Bytes != w.bytes && g.Bytes != -1 {
					t.Fatalf("share %v seed %d: %s has %d bytes, want %d or none", share, seed, g.Key, g.Bytes, w.bytes)
				}
				if g.Misses > w.misses && !w.unread {
					t.Fatalf("share %v seed %d: %s has %d misses, of %d", share, seed, g.Key, g.Misses, w.misses)
				}
				seen[g.Key] = true
			}
			if len(seen) < int(float64(len(s.want))*(1-share)*0.8) {
				t.Errorf("share %v: only %d of %d transfers", share, len(seen), len(s.want))
			}
		}
	}
}
