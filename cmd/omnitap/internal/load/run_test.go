package load

import (
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock"
)

// startMock serves a mock and returns its address.
func startMock(t *testing.T) (*mock.Server, string) {
	t.Helper()
	s, err := mock.New(mock.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve() = %v", err)
		}
	})
	return s, "http://" + l.Addr().String()
}

// TestDemo: the demo's requests are answered with text and sound, all of them alike, under
// the ids that were given.
func TestDemo(t *testing.T) {
	s, base := startMock(t)
	got, err := Run(t.Context(), base, Demo(), Plan{Requests: 6, Concurrency: 2}, "demo-1")
	if err != nil || len(got.Sent) != 6 {
		t.Fatalf("%d sent: %v", len(got.Sent), err)
	}
	ids := map[string]bool{}
	for i, r := range got.Sent {
		ordered := got.StartNS <= r.SentNS && r.SentNS < r.FirstByteNS && r.FirstByteNS < r.DoneNS && r.DoneNS <= got.EndNS
		if r.Index != i || r.Status != 200 || r.Err != "" || r.Bytes < 1000 || !ordered || r.Name != Demo()[0].Name {
			t.Errorf("%+v", r)
		}
		ids["chatcmpl-"+r.RequestID] = true
	}
	truth := s.Requests()
	for _, q := range truth {
		if !ids[q.ID] || q.Text != truth[0].Text || q.Samples != truth[0].Samples || q.Samples == 0 || q.Text == "" || q.Form != "sse" {
			t.Errorf("%s: %d samples, text %q, %s", q.ID, q.Samples, q.Text, q.Form)
		}
	}
	if len(truth) != 6 || len(ids) != 6 {
		t.Errorf("%d requests came, %d ids", len(truth), len(ids))
	}
}

// seen is what a server saw of a request.
type seen struct {
	target, host, body string
	method             string
	header             http.Header
	te                 []string
}

// TestWhatIsSent: the set goes out in turns, bodies and paths as they are, and fields of a
// connection or of another request are made anew.
func TestWhatIsSent(t *testing.T) {
	var mu sync.Mutex
	var all []seen
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, seen{q.RequestURI, q.Host, string(b), q.Method, q.Header, q.TransferEncoding})
	}))
	defer s.Close()
	set := Set{
		{Name: "a", Method: "POST", Path: "/v1/x%2fy?b=1;2&c=%zz", Body: []byte("{ \"a\" : 1}\x00"), Header: http.Header{
			"host": {"other"}, "Content-Length": {"77"}, "Transfer-Encoding": {"chunked"}, "Connection": {"keep-alive, X-Mine"}, "x-mine": {"1"}, "Expect": {"100-continue"},
			"X-Request-Id": {"old"}, "Idempotency-Key": {"k"}, "Traceparent": {"t"}, "X-Kept": {"1", "2"}, "Authorization": {"Bearer b"}, "User-Agent": {"mine/1"},
		}},
		{Name: "b", Method: "GET", Path: "/v1/models?"},
	}
	got, err := Run(t.Context(), s.URL, set, Plan{Requests: 5, Concurrency: 1}, "p-0")
	if err != nil {
		t.Fatal(err)
	}
	for i, q := range all {
		want := set[i%2]
		host := strings.TrimPrefix(s.URL, "http://")
		if q.target != want.Path || q.method != want.Method || q.body != string(want.Body) || q.host != host || len(q.te) != 0 || q.header.Get("X-Request-Id") != got.Sent[i].RequestID || got.Sent[i].Name != want.Name {
			t.Errorf("%d: %+v", i, q)
		}
		fields := []string{"Authorization", "Content-Length", "User-Agent", "X-Kept", "X-Request-Id"}
		agents := "mine/1"
		if i%2 == 1 {
			fields, agents = []string{"User-Agent", "X-Request-Id"}, agent
		}
		names := []string{}
		for name := range q.header {
			names = append(names, name)
		}
		if slices.Sort(names); !slices.Equal(names, fields) || q.header.Get("User-Agent") != agents {
			t.Errorf("%d: fields %v", i, q.header)
		}
	}
	if len(all) != 5 || got.Sent[4].RequestID != "p-0-4" {
		t.Errorf("%d came: %+v", len(all), got.Sent)
	}
	if set[0].Header.Get("X-Request-Id") != "old" {
		t.Error("the caller's set was written to")
	}
}

// TestConnectionsAreReused: no more of them than requests under way.
func TestConnectionsAreReused(t *testing.T) {
	var opened atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) }))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	if _, err := Run(t.Context(), s.URL, Demo(), Plan{Requests: 300, Concurrency: 3}, "p"); err != nil {
		t.Fatal(err)
	}
	if n := opened.Load(); n > 3 {
		t.Errorf("%d connections for 3 at a time", n)
	}
}

// TestAnswersAreNotKept: a long answer costs its buffer.
func TestAnswersAreNotKept(t *testing.T) {
	const size = 64 << 20
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 1<<20)
		for range size >> 20 {
			_, _ = w.Write(chunk)
		}
	}))
	defer s.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := Run(t.Context(), s.URL, Demo(), Plan{Requests: 1, Concurrency: 1}, "p")
	runtime.ReadMemStats(&after)
	if err != nil || got.Sent[0].Bytes != size || got.Sent[0].Err != "" {
		t.Fatalf("%+v, %v", got.Sent, err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > size/8 {
		t.Errorf("%d bytes allocated for an answer of %d", took, size)
	}
}

// raw is a server that reads a request's head and answers with bytes; end says how the
// connection ends.
func raw(t *testing.T, answer string, end func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 64<<10)
			_, _ = c.Read(buf)
			_, _ = io.WriteString(c, answer)
			end(c.(*net.TCPConn))
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); done.Wait() })
	return "http://" + l.Addr().String()
}

// TestBadAnswers: each ends with a word on why, the run goes on, and nothing of an answer
// is in it.
func TestBadAnswers(t *testing.T) {
	nothing := func(*net.TCPConn) {}
	reset := func(c *net.TCPConn) { _ = c.SetLinger(0) }
	for _, c := range []struct {
		name, answer string
		end          func(*net.TCPConn)
		status       int
		err          string
	}{
		{"a refusal is an answer", "HTTP/1.1 429 Busy\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno", nothing, 429, ""},
		{"a redirect is not followed", "HTTP/1.1 307 There\r\nLocation: http://127.0.0.1:1/\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", nothing, 307, ""},
		{"nothing", "", nothing, 0, "the connection was closed before the answer"},
		{"half of a chunked body", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nsk-se\r\n", nothing, 200, "the answer broke off"},
		{"half of a length", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nsk-se", nothing, 200, "the answer broke off"},
		{"a reset", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nsk-se", reset, 200, "connection reset"},
		{"no HTTP", "sk-secret sk-secret\r\n\r\n", nothing, 0, "no valid HTTP"},
		{"a bad field", "HTTP/1.1 200 OK\r\nsk-secret\r\n\r\n", nothing, 0, "no valid HTTP"},
		{"a bad chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nsk-secret\r\n", nothing, 200, "no valid HTTP"},
		{"an upgrade", "HTTP/1.1 101 Go\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", nothing, 101, "an upgrade that was not asked for"},
	} {
		got, err := Run(t.Context(), raw(t, c.answer, c.end), Demo(), Plan{Requests: 2, Concurrency: 1}, "p")
		if err != nil || len(got.Sent) != 2 {
			t.Errorf("%s: %d sent, %v", c.name, len(got.Sent), err)
			continue
		}
		for _, s := range got.Sent {
			if s.Status != c.status || (s.Err == "") != (c.err == "") || !strings.Contains(s.Err, c.err) || strings.Contains(s.Err, "sk-") {
				t.Errorf("%s: %+v", c.name, s)
			}
		}
	}
}

// TestNoServer: a run ends soon where nobody listens.
func TestNoServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	base := "http://" + l.Addr().String()
	for name, plan := range map[string]Plan{"closed": {Requests: 100000, Concurrency: 4}, "open": {Requests: 100000, Rate: 5000}, "few": {Requests: 2, Concurrency: 1}} {
		got, err := Run(t.Context(), base, Demo(), plan, "p")
		if err == nil || !strings.HasPrefix(err.Error(), "none of") || !strings.Contains(err.Error(), "refused") || len(got.Sent) > 2*maxRefused {
			t.Errorf("%s: %d sent, %v", name, len(got.Sent), err)
		}
	}
}

// TestServerGoes: so does one whose server goes.
func TestServerGoes(t *testing.T) {
	var n atomic.Int64
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		if n.Add(1) == 10 {
			_ = s.Listener.Close()
		}
	}))
	defer s.Close()
	got, err := Run(t.Context(), s.URL, Demo(), Plan{Requests: 100000, Concurrency: 1}, "p")
	if err == nil || !strings.Contains(err.Error(), errGone.Error()) || len(got.Sent) != 10+maxRefused || got.Sent[9].Err != "" || got.Sent[10].Err == "" {
		t.Errorf("%d sent, %v", len(got.Sent), err)
	}
}

// TestRefusalsInBetween: a server that refuses every other connection is there all the same.
func TestRefusalsInBetween(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") }))
	defer s.Close()
	r, err := newRunner(s.URL, Demo(), Plan{Requests: 3 * maxRefused, Concurrency: 1}, "p")
	if err != nil {
		t.Fatal(err)
	}
	dials := 0
	r.transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials++; dials%2 == 0 {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	got, err := r.run(t.Context())
	if err != nil || len(got.Sent) != 3*maxRefused || got.Sent[0].Err != "" || !strings.Contains(got.Sent[1].Err, "refused") {
		t.Errorf("%d sent, %v", len(got.Sent), err)
	}
}

// TestOwnFault: what this process lacks is an error of the run and none of the server's.
func TestOwnFault(t *testing.T) {
	r, err := newRunner("http://127.0.0.1:1", Demo(), Plan{Requests: 500, Concurrency: 1}, "p")
	if err != nil {
		t.Fatal(err)
	}
	r.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}
	}
	got, err := r.run(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "500 of 500 requests could not be sent by this process") || len(got.Sent) != 500 {
		t.Errorf("%d sent, %v", len(got.Sent), err)
	}
}

func TestRefused(t *testing.T) {
	good := Plan{Requests: 1, Concurrency: 1}
	demo := func(change func(*Request)) Set { s := Demo(); change(&s[0]); return s }
	for _, c := range []struct {
		base, prefix string
		set          Set
		plan         Plan
		want         string
	}{
		{"http://h:1", "p", Demo(), Plan{}, "the plan of requests"},
		{"http://h:1", "", Demo(), good, "prefix"},
		{"http://h:1", "a_b", Demo(), good, "prefix"},
		{"http://h:1", strings.Repeat("x", 65), Demo(), good, "prefix"},
		{"https://h:1", "p", Demo(), good, "address"},
		{"http://h:1/v1", "p", Demo(), good, "address"},
		{"http://sk-secret@h:1", "p", Demo(), good, "address"},
		{"h:1", "p", Demo(), good, "address"},
		{"", "p", Demo(), good, "address"},
		{"http://h:1", "p", nil, good, "no request"},
		{"http://h:1", "p", demo(func(q *Request) { q.Path = "" }), good, "path"},
		{"http://h:1", "p", demo(func(q *Request) { q.Path = "//sk-secret" }), good, "path"},
		{"http://h:1", "p", demo(func(q *Request) { q.Path = "/x HTTP/1.1\r\nsk-secret: 1" }), good, "path"},
		{"http://h:1", "p", demo(func(q *Request) { q.Method = "" }), good, "method"},
		{"http://h:1", "p", demo(func(q *Request) { q.Method = "CONNECT" }), good, "method"},
		{"http://h:1", "p", demo(func(q *Request) { q.Header.Set("X-Y", "sk-secret\r\n") }), good, `"X-Y"`},
	} {
		got, err := Run(t.Context(), c.base, c.set, c.plan, c.prefix)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "sk-") || len(got.Sent) != 0 {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestLag: only requests that were due and sent have one.
func TestLag(t *testing.T) {
	if l := (Result{}).Lag(); l.N != 0 || !math.IsNaN(l.P50) {
		t.Errorf("nothing: %+v", l)
	}
	ms := int64(time.Millisecond)
	r := Result{Sent: []Sent{{PlannedNS: ms, SentNS: 3 * ms}, {SentNS: 5 * ms}, {PlannedNS: 7 * ms}, {PlannedNS: 10 * ms, SentNS: 14 * ms}}}
	if l := r.Lag(); l.N != 2 || l.P50 != 3 || l.Max != 4 {
		t.Errorf("%+v", l)
	}
}

// TestIDsEndUnlikeTheServers: the server's tail is a hyphen and eight hex digits.
func TestIDsEndUnlikeTheServers(t *testing.T) {
	r, err := newRunner("http://h:1", Demo(), Plan{Requests: MaxRequests, Concurrency: 1}, "p")
	if err != nil {
		t.Fatal(err)
	}
	r.label(MaxRequests - 1)
	if id := r.sent[MaxRequests-1].RequestID; id != "p-999999" {
		t.Errorf("the last id is %s", id)
	}
}

// BenchmarkStream is what a streaming answer of 64 events costs the generator and a server
// of net/http together.
func BenchmarkStream(b *testing.B) {
	event := []byte("data: " + strings.Repeat("x", 4000) + "\n\n")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 64 {
			_, _ = w.Write(event)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer s.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Run(b.Context(), s.URL, Demo(), Plan{Requests: 100, Concurrency: 4}, "p"); err != nil {
			b.Fatal(err)
		}
	}
}
