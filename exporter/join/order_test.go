package join

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/omnitap/omnitap/probes/event"
)

// TestOrder: what comes within the slack goes through in order of time, equal stamps
// as they came; what comes later is told.
func TestOrder(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		o := order{slack: 1000, limit: 1 << 20}
		var got []int64
		pop := func() {
			for e, _ := o.pop(); e != nil; e, _ = o.pop() {
				got = append(got, e.MonoNS)
			}
		}
		n := 5000
		for i := range n {
			e := event.Event{MonoNS: int64(i)*10 + 2000 - rng.Int64N(900), Head: []byte{1}}
			if o.push(&e) == late {
				t.Fatalf("seed %d: an event within the slack is late", seed)
			}
			pop()
		}
		for e := o.popUpTo(1 << 62); e != nil; e = o.popUpTo(1 << 62) {
			got = append(got, e.MonoNS)
		}
		if len(got) != n || !slices.IsSorted(got) {
			t.Fatalf("seed %d: %d of %d events, sorted %v", seed, len(got), n, slices.IsSorted(got))
		}
		if o.push(&event.Event{MonoNS: 5}) != late {
			t.Error("an event far behind is not told")
		}
	}
}

// TestOrderBounded: events that never become due make room before their time.
func TestOrderBounded(t *testing.T) {
	j := New(Config{Pending: 100})
	for i := range 1000 {
		j.Add(&event.Event{MonoNS: int64(1000 + i%7)})
		if n := len(j.order.queue) - j.order.head + len(j.order.strays); n > 101 {
			t.Fatalf("%d events wait", n)
		}
	}
	if s := j.Stats(); s.Early == 0 || s.Events != 1000 {
		t.Errorf("stats %+v", s)
	}
}

func TestTable(t *testing.T) {
	tab := newTable[int, string](3)
	for i, v := range []string{"a", "b", "c"} {
		tab.put(i, v)
	}
	tab.put(0, "A") // keeps its place
	if old, dropped := tab.put(3, "d"); !dropped || old != "A" {
		t.Errorf("dropped %q, %v", old, dropped)
	}
	tab.del(2)
	tab.del(77)
	var keys []int
	for k := range tab.all() {
		keys = append(keys, k)
		tab.del(k)
	}
	if !slices.Equal(keys, []int{1, 3}) || len(tab.entries) != 0 || tab.first != nil || tab.last != nil {
		t.Errorf("keys %v", keys)
	}
	tab.put(9, "x")
	if v, ok := tab.get(9); !ok || v != "x" {
		t.Errorf("got %q, %v", v, ok)
	}
}

func TestRing(t *testing.T) {
	r := ring[int]{limit: 3}
	for i := range 5 {
		if old, dropped := r.add(i); dropped != (i > 2) || dropped && old != i-3 {
			t.Errorf("add %d dropped %d, %v", i, old, dropped)
		}
	}
	var got []int
	for _, v := range r.all() {
		got = append(got, v)
	}
	if !slices.Equal(got, []int{2, 3, 4}) {
		t.Errorf("got %v", got)
	}
}

// TestBounded: requests, segments and polls beyond their bounds make room and are
// counted; every transfer is told once.
func TestBounded(t *testing.T) {
	s := newSynth(2)
	s.load(300, 16, 3)
	told := map[string]int{}
	j := New(Config{Requests: 20, Segments: 64, Held: 400, Done: func(x Transfer) { told[x.Key]++ }})
	j.Processes(madeProcesses())
	for i := range s.events {
		j.Add(&s.events[i])
		if n := j.requests.n; n > 20 {
			t.Fatalf("%d requests are held", n)
		}
		if n := j.requests.held; n > 400 {
			t.Fatalf("%d things are held", n)
		}
		if n := len(j.shm.segs.entries); n > 64 {
			t.Fatalf("%d segments are held", n)
		}
	}
	j.Close()
	if len(told) != len(s.want) {
		t.Errorf("%d transfers told, want %d", len(told), len(s.want))
	}
	for k, n := range told {
		if n != 1 {
			t.Errorf("%s told %d times", k, n)
		}
	}
	if st := j.Stats(); st.RequestsDropped == 0 || st.SegmentsDropped == 0 || st.Unread != 60 {
		t.Errorf("stats %+v", st)
	}
	if j.requests.n != 0 || len(j.requests.engine) != 0 || len(j.requests.external) != 0 || j.requests.held != 0 {
		t.Errorf("after Close %d requests are left", j.requests.n)
	}
}

// TestForget: a request is kept for the grace time and then let go.
func TestForget(t *testing.T) {
	s := newSynth(2)
	end := s.request(sec, "chatcmpl-one-00000001", 2)
	s.sort(0)
	j := New(Config{GraceNS: 2 * sec})
	j.Processes(madeProcesses())
	for i := range s.events {
		j.Add(&s.events[i])
	}
	j.Flush(end + 1)
	j.Forget("chatcmpl-one")
	j.Flush(end + sec)
	if j.requests.n != 1 {
		t.Error("it is gone within the grace time")
	}
	j.Flush(end + 4*sec)
	if j.requests.n != 0 {
		t.Error("it is held after the grace time")
	}
}

// TestPIDReuse: a pid with another start is another process.
func TestPIDReuse(t *testing.T) {
	j := New(Config{})
	list := madeProcesses()
	list[1].StartTicks = 5
	j.Processes(list)
	first := j.procs[thinkerPID]
	j.Processes(list)
	if j.procs[thinkerPID] != first {
		t.Error("the same process is another one")
	}
	list[1].StartTicks = 6
	list[1].Stage, list[1].StageID = "talker", new(1)
	j.Processes(list)
	if p := j.procs[thinkerPID]; p == first || p.stage != "talker" {
		t.Errorf("another process is the same one: %+v", p.stage)
	}
	j.Processes(list[:1])
	if p := j.procs[talkerPID]; p == nil || !p.gone {
		t.Error("a process that went is not told so")
	}
}
