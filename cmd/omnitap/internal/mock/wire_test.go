package mock

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
)

// pipeListener hands out one end of net.Pipe: there a read with room gives
// exactly one write.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// writes returns the single writes of one answer.
func writes(t *testing.T, sc Script, out string) []string {
	t.Helper()
	s, err := New(Config{Script: sc})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	here, there := net.Pipe()
	l.conns <- there
	if _, err := io.WriteString(here, out); err != nil {
		t.Fatal(err)
	}
	var got []string
	buf := make([]byte, 1<<20)
	for len(got) == 0 || !strings.HasSuffix(got[len(got)-1], "0\r\n\r\n") {
		n, err := here.Read(buf)
		if err != nil {
			break
		}
		got = append(got, string(buf[:n]))
	}
	_ = here.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Serve() = %v", err)
	}
	return got
}

func TestWriteBorders(t *testing.T) {
	// Head of 147 bytes, then HTTP chunks of 4+200+2, 4+100+2 and 4+60+2
	// bytes, then the zero chunk.
	sizes := func(all []string) []int {
		var out []int
		for _, w := range all {
			out = append(out, len(w))
		}
		return out
	}
	head := len("HTTP/1.1 200 OK\r\ndate: Mon, 02 Jan 2006 15:04:05 GMT\r\nserver: uvicorn\r\ncontent-type: audio/pcm\r\nvary: Origin\r\ntransfer-encoding: chunked\r\n\r\n")
	tests := []struct {
		faults []string
		want   []int
	}{
		{nil, []int{head, 206, 106, 66, 5}},
		{[]string{"merge=2"}, []int{head, 312, 66, 5}},
		{[]string{"merge=0"}, []int{head, 378, 5}},
		{[]string{"burst"}, []int{head + 383}},
		{[]string{"burst", "segments=100"}, func() []int {
			all := []int{}
			for n := head + 383; n > 0; n -= 100 {
				all = append(all, min(n, 100))
			}
			return all
		}()},
		{[]string{"segments=10/1000", "merge=0"}, []int{10, head - 10, 378, 5}},
		{[]string{"chunk-events=2"}, []int{head, 5 + 300 + 2, 66, 5}},
		// 200 = 3·64+8, 100 = 64+36, 60; the framing of a chunk has 6 bytes, of
		// the one of 8 bytes 5.
		{[]string{"chunk-bytes=64"}, []int{head, 3*(64+6) + 8 + 5, 64 + 6 + 36 + 6, 60 + 6, 5}},
	}
	tests = append(tests, tests[len(tests)-1]) // a list of sizes goes on with its last
	tests[len(tests)-1].faults = []string{"chunk-bytes=150/49/1000"}
	tests[len(tests)-1].want = []int{head, 150 + 6 + 49 + 6 + 1 + 5, 106, 66, 5}
	for _, tt := range tests {
		t.Run(strings.Join(tt.faults, ","), func(t *testing.T) {
			s := quick(tt.faults...)
			s.Samples = script.Ints{100, 50, 30}
			got := sizes(writes(t, s, post("/v1/audio/speech", `{"input":"x","stream_format":"audio","response_format":"pcm"}`)))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("write sizes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSegmentsKeepTheBytes(t *testing.T) {
	sc := quick("segments=1-9", "chunk-bytes=33", "merge=3")
	sc.Text = []string{"naïve 日本"}
	_, addr := start(t, Config{Script: sc})
	res := talk(t, addr, post("/v1/chat/completions", chatBody))
	pcm, text := audioOf(t, res.payload())
	if len(pcm) != 24000 || text != "naïve 日本" || !res.whole {
		t.Errorf("%d bytes of audio, text %q", len(pcm), text)
	}
	for i, c := range res.chunks {
		if len(c) > 33 {
			t.Errorf("HTTP chunk %d has %d bytes", i, len(c))
		}
	}
}

func TestInterim(t *testing.T) {
	_, addr := start(t, Config{Script: quick("interim=102/103")})
	c := dial(t, addr)
	if _, err := io.WriteString(c, post("/v1/chat/completions", chatBody)); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	want := []string{
		"HTTP/1.1 102 Processing\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\nConnection: X-Nom\r\nX-Nom: s\r\nLink: </voice.css>; rel=preload\r\n\r\n",
	}
	for _, w := range want {
		if res := readAnswer(t, r); res.head != w {
			t.Errorf("head = %q, want %q", res.head, w)
		}
	}
	if res := readAnswer(t, r); !strings.HasPrefix(res.head, "HTTP/1.1 200 ") || !res.whole {
		t.Errorf("head = %q", res.head)
	}
}

func TestExpectContinue(t *testing.T) {
	_, addr := start(t, Config{Script: quick()})
	c := dial(t, addr)
	head, body, _ := strings.Cut(post("/v1/chat/completions", chatBody, "Expect: 100-continue"), "\r\n\r\n")
	if _, err := io.WriteString(c, head+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	if res := readAnswer(t, r); res.head != "HTTP/1.1 100 Continue\r\n\r\n" {
		t.Fatalf("head = %q", res.head)
	}
	if _, err := io.WriteString(c, body); err != nil {
		t.Fatal(err)
	}
	if res := readAnswer(t, r); !res.whole {
		t.Errorf("head = %q", res.head)
	}
}

func TestPipelinedAndKeptAlive(t *testing.T) {
	s, addr := start(t, Config{Script: quick()})
	c := dial(t, addr)
	r := bufio.NewReader(c)
	one := func(id string) string {
		return post("/v1/chat/completions", chatBody, "X-Request-Id: "+id)
	}
	for _, ids := range [][]string{{"a", "b", "c"}, {"d"}} {
		out := ""
		for _, id := range ids {
			out += one(id)
		}
		if _, err := io.WriteString(c, out); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			res := readAnswer(t, r)
			if got := decodeJSON[vllmChunk](t, events(res.payload())[0].data).ID; got != "chatcmpl-"+id || !res.whole {
				t.Errorf("id = %q, want chatcmpl-%s", got, id)
			}
		}
	}
	all := s.Requests()
	if len(all) != 4 || all[3].Index != 3 || all[3].Connection != 1 {
		t.Errorf("%d requests, last %+v", len(all), all[len(all)-1])
	}
	if _, err := io.WriteString(c, "GET /health HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	want := "HTTP/1.1 200 OK\r\ndate: D\r\nserver: uvicorn\r\ncontent-length: 0\r\nvary: Origin\r\nconnection: close\r\n\r\n"
	if res := readAnswer(t, r); normal(res.head) != want {
		t.Errorf("health = %q", res.head)
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("after Connection: close: %v, want EOF", err)
	}
}

func TestOldAndBrokenRequests(t *testing.T) {
	_, addr := start(t, Config{Script: quick()})
	res := talk(t, addr, strings.Replace(post("/v1/chat/completions", chatBody), "HTTP/1.1", "HTTP/1.0", 1))
	if strings.Contains(res.head, "chunked") || !strings.HasSuffix(string(res.body), "data: [DONE]\n\n") {
		t.Errorf("HTTP/1.0: head %q", res.head)
	}
	res = talk(t, addr, "NONSENSE\r\n\r\n")
	if !strings.HasPrefix(res.head, "HTTP/1.1 400 ") {
		t.Errorf("nonsense: %q", res.head)
	}
	chunked := "POST /v1/chat/completions HTTP/1.1\r\nHost: m\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"mod\r\n6\r\nel\":1}\r\n0\r\n\r\n"
	if res = talk(t, addr, chunked); !strings.HasPrefix(res.head, "HTTP/1.1 200 ") {
		t.Errorf("chunked upload: %q", res.head)
	}
}

func TestRejectUpload(t *testing.T) {
	s, addr := start(t, Config{Script: quick("reject-upload")})
	c := dial(t, addr)
	if _, err := io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: m\r\nContent-Length: 1000000\r\n\r\nsome bytes"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	if res := readAnswer(t, r); !strings.HasPrefix(res.head, "HTTP/1.1 413 ") || !res.whole {
		t.Errorf("head = %q", res.head)
	}
	if _, err := r.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after 413: %v, want a reset", err)
	}
	await(t, s, truth.Rejected)
}

func TestClientLeaves(t *testing.T) {
	for _, body := range []string{chatBody, strings.Replace(chatBody, "true", "false", 1)} {
		s, addr := start(t, Config{Script: quick("stall=start")})
		c := dial(t, addr)
		if _, err := io.WriteString(c, post("/v1/chat/completions", body)); err != nil {
			t.Fatal(err)
		}
		for len(s.Requests()) == 0 { // the request is under way
		}
		_ = c.(*net.TCPConn).CloseWrite()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("after a half-close: %v, want EOF", err)
		}
		if tr := await(t, s, truth.ClientGone); tr.Stamps.ClientClosedNS < tr.Stamps.RequestNS {
			t.Errorf("close noticed at %d, request at %d", tr.Stamps.ClientClosedNS, tr.Stamps.RequestNS)
		}
	}
}

func TestHalfCloseAllowed(t *testing.T) {
	sc := quick("half-close")
	five := 5.0
	sc.FirstDelayMS = &five
	_, addr := start(t, Config{Script: sc})
	c := dial(t, addr)
	if _, err := io.WriteString(c, post("/v1/chat/completions", chatBody)); err != nil {
		t.Fatal(err)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	if res := readAnswer(t, bufio.NewReader(c)); !res.whole {
		t.Errorf("answer to a half-closed client: %q", res.head)
	}
}

func TestGate(t *testing.T) {
	sc := quick("gate")
	sc.Chunks = 3
	_, addr := start(t, Config{Script: sc})
	c := dial(t, addr)
	if _, err := io.WriteString(c, post("/v1/audio/speech", `{"input":"x","stream_format":"audio","response_format":"pcm"}`)); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	read := func(n int) {
		t.Helper()
		if _, err := io.ReadFull(r, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	for line := ""; line != "\r\n"; {
		line, _ = r.ReadString('\n')
	}
	for range 2 { // the producer waits for the consumer
		read(4 + 2 + 4800 + 2)
		if res := talk(t, addr, post("/mock/step", ``)); res.payload() != `{"steps":1}` {
			t.Errorf("step = %s", res.payload())
		}
	}
	read(4 + 2 + 4800 + 2 + 5)
}

func TestIdleConnectionIsClosed(t *testing.T) {
	_, addr := start(t, Config{Script: quick("idle=20ms")})
	c := dial(t, addr)
	if _, err := io.WriteString(c, post("/v1/chat/completions", chatBody)); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	if res := readAnswer(t, r); !res.whole {
		t.Error("no answer")
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("idle: %v, want EOF", err)
	}
}

func TestShutdownEndsStreams(t *testing.T) {
	s, err := New(Config{Script: quick("stall=after:1")})
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
	c := dial(t, l.Addr().String())
	if _, err := io.WriteString(c, post("/v1/chat/completions", chatBody)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Serve() = %v", err)
	}
	if got := last(t, s).End; got != truth.Shutdown {
		t.Errorf("end = %q, want %q", got, truth.Shutdown)
	}
}

// A client that neither reads nor stays must not hold the generation.
func TestLeavingWhileTheWriteIsBlocked(t *testing.T) {
	s, addr := start(t, Config{Script: quick("send-buffer=4096")})
	c := dial(t, addr)
	if _, err := io.WriteString(c, post("/v1/audio/speech", `{"input":"x","stream_format":"audio","mock":{"tone":"silence","chunks":4,"samples":4000000}}`)); err != nil {
		t.Fatal(err)
	}
	for len(s.Requests()) == 0 || last(t, s).Stamps.Head == nil { // it is writing
	}
	_ = c.(*net.TCPConn).CloseWrite()
	if tr := await(t, s, truth.ClientGone); tr.Samples > 12000000 {
		t.Errorf("%d samples went out", tr.Samples)
	}
}

// A reset must not take back what was written before it.
func TestResetComesBehindTheData(t *testing.T) {
	const n = 4 * 1000000 // bytes, more than the socket buffers of a slow reader
	s, addr := start(t, Config{Script: quick("reset=after:2")})
	c := dial(t, addr)
	if _, err := io.WriteString(c, post("/v1/audio/speech", `{"input":"x","stream_format":"audio","response_format":"pcm","mock":{"tone":"silence","samples":1000000}}`)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if !errors.Is(err, syscall.ECONNRESET) || len(got) < n {
		t.Errorf("%d bytes, then %v, want %d and a reset", len(got), err, n)
	}
	await(t, s, truth.Reset)
}

func TestManyClients(t *testing.T) {
	s, addr := start(t, Config{Script: quick("segments=1-5000")})
	const n = 40
	done := make(chan result, n)
	for range n {
		go func() { done <- talk(t, addr, post("/v1/chat/completions", chatBody)) }()
	}
	for range n {
		if res := <-done; !res.whole {
			t.Errorf("answer ends %q", res.payload()[max(0, len(res.payload())-40):])
		}
	}
	ids := map[string]bool{}
	for _, tr := range s.Requests() {
		ids[tr.ID] = true
		if tr.End != plan.Complete || tr.Samples != 12000 {
			t.Errorf("truth %d: %s, %d samples", tr.Seq, tr.End, tr.Samples)
		}
	}
	if len(ids) != n {
		t.Errorf("%d ids, want %d", len(ids), n)
	}
}
