package tap

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// kept is a Sink that keeps records; gate, if set, is waited for at each event.
type kept struct {
	mu      sync.Mutex // protects records
	records []*timeline.Record
	gate    chan struct{}
}

func (k *kept) Event(*timeline.Event) {
	if k.gate != nil {
		<-k.gate
	}
}

func (k *kept) Session(*timeline.Session) {}

func (k *kept) Record(r *timeline.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.records = append(k.records, r)
}

// runAnalyzer starts one and returns how to end it.
func runAnalyzer(t testing.TB, cfg Config, sink timeline.Sink) (*Analyzer, func()) {
	t.Helper()
	a := NewAnalyzer(cfg, sink, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { a.Run(ctx) })
	var once sync.Once
	end := func() {
		once.Do(func() {
			cancel()
			wg.Wait()
		})
	}
	t.Cleanup(end)
	return a, end
}

var pool = NewPool(32 << 10)

// give hands bytes over as a relay does.
func give(h *Handle, dir Dir, s string) {
	for len(s) > 0 {
		b := Take(pool)
		n := copy(b.B, s)
		h.Data(dir, b, b.B[:n], 1, 0)
		h.Wrote(dir, 2, 0)
		b.Release()
		s = s[n:]
	}
}

const (
	ask   = "POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
	head  = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	final = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
)

func event(text string) string {
	d := `data: {"object":"chat.completion.chunk","choices":[{"delta":{"content":"` + text + `"}}]}` + "\n\n"
	return fmt.Sprintf("%x\r\n%s\r\n", len(d), d)
}

func own(n int) timeline.Identity { return timeline.Identity{OwnID: fmt.Sprint("own-", n)} }

// TestEveryRequestHasOneRecord, whatever else is lost: ends find room when bytes
// do not (case C65).
func TestEveryRequestHasOneRecord(t *testing.T) {
	sink := &kept{gate: make(chan struct{})}
	a, end := runAnalyzer(t, Config{MaxQueue: 8 << 10, Workers: 1}, sink)
	const n = 20
	for i := range n {
		h := a.Open(uint64(i), own)
		give(h, Client, ask)
		give(h, Server, head)
		for range 1000 {
			give(h, Server, event("word"))
		}
		give(h, Server, final)
		h.End(Server, timeline.FIN, 3)
		h.Closed(4)
	}
	close(sink.gate)
	end()
	if len(sink.records) != n {
		t.Fatalf("%d records of %d requests", len(sink.records), n)
	}
	truncated := 0
	for _, r := range sink.records {
		if r.Analysis == "truncated" {
			truncated++
			if r.Terminal.State == timeline.Success || r.Quality.Verdict != "not_measured" {
				t.Errorf("truncated and %s, quality %s", r.Terminal.State, r.Quality.Verdict)
			}
		}
	}
	if truncated == 0 || a.Dropped() == 0 {
		t.Errorf("%d truncated, %d bytes dropped: the queue was to overflow", truncated, a.Dropped())
	}
	if a.Queued() != 0 {
		t.Errorf("%d bytes are still counted as queued", a.Queued())
	}
}

// TestMemoryIsBounded: with analysis stuck, what waits stays within the bound.
func TestMemoryIsBounded(t *testing.T) {
	sink := &kept{gate: make(chan struct{})}
	const bound = 1 << 20
	a, end := runAnalyzer(t, Config{MaxQueue: bound, MaxMemory: 4 * bound, Workers: 1}, sink)
	big := strings.Repeat("x", 32<<10)
	for i := range 16 {
		h := a.Open(uint64(i), own)
		give(h, Client, ask)
		give(h, Server, "HTTP/1.1 200 OK\r\nContent-Type: audio/pcm\r\n\r\n")
		for range 200 {
			give(h, Server, big)
		}
		h.Closed(3)
	}
	if q := a.Queued(); q > 4*bound {
		t.Errorf("%d bytes wait, over the bound of %d", q, 4*bound)
	}
	close(sink.gate)
	end()
	if len(sink.records) != 16 {
		t.Errorf("%d records", len(sink.records))
	}
}

// TestAnswerNeverAheadOfItsRequest: both directions hand over from goroutines of
// their own; what asked is always seen first.
func TestAnswerNeverAheadOfItsRequest(t *testing.T) {
	sink := &kept{}
	a, end := runAnalyzer(t, Config{}, sink)
	const n = 2000
	h := a.Open(1, own)
	asked, answered := make(chan struct{}), make(chan struct{})
	go func() {
		for range n {
			<-asked
			give(h, Server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
			answered <- struct{}{}
		}
	}()
	for range n {
		b := Take(pool)
		k := copy(b.B, "GET / HTTP/1.1\r\n\r\n")
		h.Data(Client, b, b.B[:k], 1, 0)
		asked <- struct{}{} // the server has it, and answers ahead of our write's return
		<-answered
		h.Wrote(Client, 2, 0)
		b.Release()
	}
	h.Closed(3)
	end()
	good := 0
	for _, r := range sink.records {
		if r.Terminal.State == timeline.Success {
			good++
		}
	}
	if good != n {
		t.Errorf("%d of %d requests got their answer", good, n)
	}
}

// lookAll does what the worker does.
func lookAll(h *Handle) {
	b, _ := h.w.take(&batch{})
	h.w.look(b)
}

func TestIdle(t *testing.T) {
	a := NewAnalyzer(Config{}, &kept{}, nil)
	h := a.Open(1, own)
	if !h.Idle() {
		t.Error("a new connection is idle")
	}
	give(h, Client, ask)
	if h.Idle() {
		t.Error("something waits to be looked at")
	}
	lookAll(h)
	if h.Idle() {
		t.Error("a request is under way")
	}
	give(h, Server, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	lookAll(h)
	if !h.Idle() {
		t.Error("the answer is over")
	}
}

// faulty is a Sink that fails on one connection.
type faulty struct{ kept }

func (f *faulty) Event(e *timeline.Event) {
	if e.RequestID == "own-bad" && e.Event == "text_chunk" {
		panic("made to fail")
	}
}

// TestFaultOfTheReader: it ends the reading of its own connection, with a record
// that says so, and nothing else.
func TestFaultOfTheReader(t *testing.T) {
	sink := &faulty{}
	a, end := runAnalyzer(t, Config{Workers: 1}, sink)
	bad := a.Open(1, func(int) timeline.Identity { return timeline.Identity{OwnID: "own-bad"} })
	good := a.Open(2, own)
	for _, h := range []*Handle{bad, good} {
		give(h, Client, ask)
		give(h, Server, head+event("word")+final)
		h.End(Server, timeline.FIN, 3)
		h.Closed(4)
	}
	end()
	if a.Faults() != 1 || len(sink.records) != 2 {
		t.Fatalf("%d faults, %d records", a.Faults(), len(sink.records))
	}
	for _, r := range sink.records {
		want := timeline.Success
		if r.RequestID == "own-bad" {
			want = timeline.HarnessError
		}
		if r.Terminal.State != want {
			t.Errorf("%s: %s (%s), analysis %s; want %s", r.RequestID, r.Terminal.State, r.Terminal.Reason, r.Analysis, want)
		}
	}
	if a.Queued() != 0 {
		t.Errorf("%d bytes are still counted as queued", a.Queued())
	}
}
