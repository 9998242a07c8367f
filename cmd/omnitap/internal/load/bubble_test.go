package load

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a network in memory, for tests whose clock is synctest's.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func newPipes() *pipes {
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.close(); return nil }

func (*pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// within runs a test in a bubble, with a server and a runner whose clock is the bubble's.
// at is the time since the start.
func within(t *testing.T, plan Plan, serve func(w http.ResponseWriter, q *http.Request, at time.Duration), test func(r *runner, cancel context.CancelFunc, ctx context.Context)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		net := newPipes()
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body) // or net/http does not notice that the client leaves
			serve(w, q, time.Since(begun))
		})}
		var served sync.WaitGroup
		served.Go(func() { _ = server.Serve(net) })
		r, err := newRunner("http://server:1", Demo(), plan, "t")
		if err != nil {
			t.Fatal(err)
		}
		r.now = func() int64 { return 1 + int64(time.Since(begun)) } // 0 is not reached
		r.transport.DialContext = net.dial
		ctx, cancel := context.WithCancel(t.Context())
		test(r, cancel, ctx)
		cancel()
		r.transport.CloseIdleConnections()
		_ = server.Close()
		served.Wait()
	})
}

// stalled answers at once, but from 1 s to 5 s nobody.
func stalled(w http.ResponseWriter, q *http.Request, at time.Duration) {
	if at >= time.Second && at < 5*time.Second {
		select {
		case <-time.NewTimer(5*time.Second - at).C:
		case <-q.Context().Done():
		}
	}
	_, _ = w.Write([]byte("whole"))
}

// TestOpenLoopDoesNotWait: while the server stalls arrivals go on as planned, none of the
// wait is the generator's, and all of it stands in the figures of those that arrived.
func TestOpenLoopDoesNotWait(t *testing.T) {
	plan := Plan{Times: make([]time.Duration, 60)}
	for i := range plan.Times {
		plan.Times[i] = time.Duration(i) * 100 * time.Millisecond
	}
	within(t, plan, stalled, func(r *runner, _ context.CancelFunc, ctx context.Context) {
		got, err := r.run(ctx)
		if err != nil || len(got.Sent) != 60 {
			t.Fatalf("%d sent: %v", len(got.Sent), err)
		}
		for i, s := range got.Sent {
			due, want := plan.Times[i], time.Duration(0)
			if due >= time.Second {
				want = max(0, 5*time.Second-due)
			}
			if s.Index != i || s.PlannedNS != 1+int64(due) || s.SentNS != s.PlannedNS || time.Duration(s.DoneNS-s.PlannedNS) != want || s.Status != 200 || s.Bytes != 5 || s.Err != "" {
				t.Errorf("request %d, due at %v, wants %v: %+v", i, due, want, s)
			}
		}
		if lag := got.Lag(); lag.N != 60 || lag.Max != 0 {
			t.Errorf("lag: %+v", lag)
		}
	})
}

// TestClosedLoopWaits: the same server holds a closed loop up, which is why it is another one.
func TestClosedLoopWaits(t *testing.T) {
	slow := func(w http.ResponseWriter, q *http.Request, at time.Duration) {
		time.Sleep(100 * time.Millisecond)
		stalled(w, q, at)
	}
	within(t, Plan{Requests: 60, Concurrency: 2}, slow, func(r *runner, _ context.CancelFunc, ctx context.Context) {
		got, err := r.run(ctx)
		if err != nil || len(got.Sent) != 60 {
			t.Fatalf("%d sent: %v", len(got.Sent), err)
		}
		late := 0
		for _, s := range got.Sent {
			if s.PlannedNS != 0 {
				t.Errorf("planned in a closed loop: %+v", s)
			}
			if time.Duration(s.DoneNS-s.SentNS) > time.Second {
				late++
			}
		}
		if lag := got.Lag(); late != 2 || lag.N != 0 {
			t.Errorf("%d of two stalled; lag %+v", late, lag)
		}
	})
}

// TestReadsAsItComes: a head alone is no first byte, and the end is the end.
func TestReadsAsItComes(t *testing.T) {
	stream := func(w http.ResponseWriter, _ *http.Request, _ time.Duration) {
		flush := http.NewResponseController(w).Flush
		_ = flush()
		for range 3 {
			time.Sleep(300 * time.Millisecond)
			_, _ = w.Write([]byte("data: x\n\n"))
			_ = flush()
		}
	}
	within(t, Plan{Requests: 4, Concurrency: 1}, stream, func(r *runner, _ context.CancelFunc, ctx context.Context) {
		got, err := r.run(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range got.Sent {
			if s.FirstByteNS-s.SentNS != int64(300*time.Millisecond) || s.DoneNS-s.SentNS != int64(900*time.Millisecond) || s.Bytes != 27 {
				t.Errorf("%+v", s)
			}
		}
	})
}

// TestBoundDelaysNothing: what comes above the bound is not sent, and says so.
func TestBoundDelaysNothing(t *testing.T) {
	never := func(_ http.ResponseWriter, q *http.Request, _ time.Duration) { <-q.Context().Done() }
	within(t, Plan{Times: make([]time.Duration, 5), Timeout: time.Second}, never, func(r *runner, _ context.CancelFunc, ctx context.Context) {
		r.slots = make(chan struct{}, 3)
		got, err := r.run(ctx)
		if err == nil || !strings.Contains(err.Error(), "2 of 5 requests were not sent") {
			t.Errorf("%v", err)
		}
		for i, s := range got.Sent {
			sent, want := i < 3, "not sent"
			if sent {
				want = "no whole answer within 1s"
			}
			if (s.SentNS != 0) != sent || !strings.HasPrefix(s.Err, want) || s.PlannedNS != 1 || s.RequestID == "" || sent && s.DoneNS-s.SentNS != int64(time.Second) {
				t.Errorf("%d: %+v", i, s)
			}
		}
		if lag := got.Lag(); len(got.Sent) != 5 || lag.N != 3 {
			t.Errorf("%d, lag of %d", len(got.Sent), lag.N)
		}
	})
}

// TestSlotsComeBack: a request that has ended makes room for one more.
func TestSlotsComeBack(t *testing.T) {
	at := []time.Duration{0, 0, time.Second, time.Second, 2 * time.Second}
	within(t, Plan{Times: at}, stalled, func(r *runner, _ context.CancelFunc, ctx context.Context) {
		r.slots = make(chan struct{}, 4)
		got, err := r.run(ctx)
		if err != nil || len(got.Sent) != 5 {
			t.Fatalf("%d sent: %v", len(got.Sent), err)
		}
		for i, s := range got.Sent {
			if s.SentNS != 1+int64(at[i]) || s.Err != "" {
				t.Errorf("%+v", s)
			}
		}
	})
}

// TestContextEnds: what is under way is cut off, what was not sent is not there, and the
// error says how far it came.
func TestContextEnds(t *testing.T) {
	never := func(_ http.ResponseWriter, q *http.Request, _ time.Duration) { <-q.Context().Done() }
	for name, plan := range map[string]Plan{
		"closed": {Requests: 10, Concurrency: 3},
		"open":   {Times: []time.Duration{0, 0, time.Second, time.Hour}},
	} {
		within(t, plan, never, func(r *runner, cancel context.CancelFunc, ctx context.Context) {
			time.AfterFunc(2*time.Second, cancel)
			got, err := r.run(ctx)
			if err == nil || !strings.HasPrefix(err.Error(), "3 of ") || !strings.HasSuffix(err.Error(), context.Canceled.Error()) || len(got.Sent) != 3 {
				t.Errorf("%s: %d sent, %v", name, len(got.Sent), err)
			}
			for _, s := range got.Sent {
				if s.Err != "cut off at the end of the run" || s.DoneNS != 1+int64(2*time.Second) {
					t.Errorf("%s: %+v", name, s)
				}
			}
			if got.EndNS != 1+int64(2*time.Second) {
				t.Errorf("%s: ended at %d", name, got.EndNS)
			}
		})
	}
}

// TestAllSentIsNoError: a run whose last answers were cut off has sent what it should.
func TestAllSentIsNoError(t *testing.T) {
	never := func(_ http.ResponseWriter, q *http.Request, _ time.Duration) { <-q.Context().Done() }
	within(t, Plan{Requests: 3, Concurrency: 3}, never, func(r *runner, cancel context.CancelFunc, ctx context.Context) {
		time.AfterFunc(time.Second, cancel)
		if got, err := r.run(ctx); err != nil || len(got.Sent) != 3 || got.Sent[0].Err == "" {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
