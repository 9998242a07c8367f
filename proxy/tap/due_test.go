package tap

import (
	"slices"
	"testing"
	"time"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// TestDues: the soonest comes first, a later moment waits for the one noted, and
// what is dropped is gone.
func TestDues(t *testing.T) {
	var d dues
	hs := make([]*Handle, 6)
	for i := range hs {
		hs[i] = &Handle{}
	}
	for i, due := range []int64{50, 20, 40, 10, 30, 0} { // 0 is never
		d.await(hs[i], due)
	}
	d.await(hs[0], 5)  // sooner than it was
	d.await(hs[1], 99) // later: it is looked at when it was due
	d.drop(hs[2])
	d.drop(hs[2])
	var got []int64
	for len(d) > 0 {
		h := d[0]
		got = append(got, h.due)
		d.drop(h)
		if h.place != 0 {
			t.Errorf("a handle that was dropped has place %d", h.place)
		}
	}
	if want := []int64{5, 10, 20, 30}; !slices.Equal(got, want) {
		t.Errorf("due at %d, want %d", got, want)
	}
}

// TestDeadlineWaitsForWhatCame: a connection of which something waits to be looked
// at is not cut: its end may be in it.
func TestDeadlineWaitsForWhatCame(t *testing.T) {
	cfg := Config{Timeline: timeline.Config{Deadline: 100 * time.Millisecond}}
	a := NewAnalyzer(cfg, nil, nil)
	w := a.workers[0]
	cut := 0
	open := func() *Handle {
		h := a.Open(1, func(int) timeline.Identity { return timeline.Identity{OwnID: "r"} })
		h.OnDeadline(func() { cut++ })
		return h
	}
	look := func() {
		b, _ := w.take(&batch{})
		w.look(b)
	}
	const t0 = int64(1e9)
	h := open()
	h.Data(Client, nil, []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), t0, 0)
	look()
	if len(w.dues) != 1 || w.dues[0].due != t0+1e8 {
		t.Fatalf("dues = %+v, want the deadline", w.dues)
	}
	h.Data(Server, nil, []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), t0+9e7, 0)
	w.dues.check(t0 + 2e8)
	if cut != 0 || len(w.dues) != 1 {
		t.Fatalf("cut %d times with an answer waiting, %d due; want 0 and 1", cut, len(w.dues))
	}
	h.Wrote(Server, t0+9e7, 0)
	look()
	w.dues.check(t0 + 3e8)
	if cut != 0 || len(w.dues) != 0 {
		t.Errorf("cut %d times behind the answer, %d due; want none", cut, len(w.dues))
	}
	other := open()
	other.Data(Client, nil, []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), t0, 0)
	look()
	if mono, n := a.Oldest(); mono != t0 || n != 1 {
		t.Errorf("the oldest came at %d, %d under way; want %d, 1", mono, n, t0)
	}
	w.dues.check(t0 + 2e8)
	if cut != 1 {
		t.Errorf("cut %d times without an answer, want once", cut)
	}
	endless := open()
	endless.Data(Client, nil, []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), t0, 0)
	look()
	endless.Data(Server, nil, []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), t0+9e7, 0)
	w.dues.check(t0 + 2e8)
	if cut != 1 {
		t.Error("cut with an answer waiting")
	}
	look()
	endless.Data(Server, nil, []byte("2\r\nok\r\n"), t0+2e8, 0)
	w.dues.check(t0 + 3e8)
	if cut != 2 {
		t.Error("not cut where an answer goes on after its deadline")
	}
	endless.Closed(t0 + 3e8)
	other.Closed(t0 + 3e8)
	look()
	h.Closed(t0 + 3e8)
	look()
	if len(w.all) != 0 || len(w.dues) != 0 {
		t.Errorf("%d handles and %d dues are left", len(w.all), len(w.dues))
	}
}
