package main

import (
	"bufio"
	"bytes"
	"compress/flate"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// The benchmarks run each relay as a process of its own, so that its CPU time is
// its own: the test binary starts itself again with childEnv set to what to be.
const (
	childEnv    = "OMNITAP_BENCH_CHILD"
	upstreamEnv = "OMNITAP_BENCH_UPSTREAM"
)

func TestMain(m *testing.M) {
	stagesChild()
	if kind := os.Getenv(childEnv); kind != "" {
		os.Exit(benchChild(kind, os.Getenv(upstreamEnv)))
	}
	os.Exit(m.Run())
}

// relayKinds are what is compared: the limit, what everybody would use, our
// forward path with stamps and hand-over, with the analysis, with the checks of
// the samples, and with all that writing a run directory, audio hashes in it.
var relayKinds = []string{"bare", "reverseproxy", "forward", "analysis", "checks", "full"}

func benchChild(kind, upstream string) int {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if dir := os.Getenv("PROF"); dir != "" {
		f, _ := os.Create(dir + "/" + kind + ".prof")
		_ = pprof.StartCPUProfile(f)
		defer pprof.StopCPUProfile()
	}
	switch kind {
	case "bare":
		go bareRelay(upstream)
	case "reverseproxy":
		go reverseProxy(upstream)
	case "collector":
		go swallowAll()
	case "forward", "analysis", "checks", "full":
		go omnitapChild(ctx, kind, upstream)
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() { // each line asks for the CPU time and memory so far, "gc" after a collection
		if in.Text() == "gc" {
			debug.FreeOSMemory()
		}
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		_, _ = fmt.Fprintln(os.Stdout, "cpu", u.Utime.Nano()+u.Stime.Nano(), rss())
	}
	return 0
}

func rss() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	return n * int64(os.Getpagesize())
}

func omnitapChild(ctx context.Context, kind, upstream string) {
	f := &serveFlags{fileConfig: fileConfig{Upstream: "http://" + upstream, Listen: "127.0.0.1:0", Admin: "off", Log: "off"}}
	switch kind {
	case "forward":
		f.Tap.Off = true
	case "analysis":
		f.Tap.Timeline.Checks.Off = true
	case "full":
		dir, err := os.MkdirTemp("", "omnitap-bench-")
		if err != nil {
			panic(err)
		}
		f.Out = dir
	}
	a := &app{os.Stdout, os.Stderr}
	s, err := a.build(ctx, f)
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintln(os.Stdout, "addr", s.listener.Addr())
	_ = s.run(ctx)
}

func reverseProxy(upstream string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintln(os.Stdout, "addr", ln.Addr())
	target := &url.URL{Scheme: "http", Host: upstream}
	p := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1}
	p.Transport = &http.Transport{MaxIdleConnsPerHost: 10000, DisableCompression: true}
	_ = (&http.Server{Handler: p, ReadHeaderTimeout: time.Minute}).Serve(ln)
}

// bareRelay is the limit: a goroutine a direction, raw system calls, no stamps.
func bareRelay(upstream string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintln(os.Stdout, "addr", ln.Addr())
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			u, err := net.Dial("tcp", upstream)
			if err != nil {
				_ = c.Close()
				return
			}
			go bareCopy(u.(*net.TCPConn), c.(*net.TCPConn))
			bareCopy(c.(*net.TCPConn), u.(*net.TCPConn))
		}()
	}
}

var bareBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

func bareCopy(dst, src *net.TCPConn) {
	r, err1 := src.SyscallConn()
	w, err2 := dst.SyscallConn()
	if err1 != nil || err2 != nil {
		return
	}
	var buf *[]byte
	var n int
	var e syscall.Errno
	recv := func(fd uintptr) bool {
		if buf == nil {
			buf = bareBuffers.Get().(*[]byte)
		}
		m, _, en := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&(*buf)[0])), uintptr(len(*buf)), syscall.MSG_DONTWAIT, 0, 0)
		n, e = int(m), en
		if en == syscall.EAGAIN {
			bareBuffers.Put(buf)
			buf = nil
			return false
		}
		return true
	}
	var out []byte
	send := func(fd uintptr) bool {
		for len(out) > 0 {
			m, _, en := syscall.RawSyscall6(syscall.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&out[0])), uintptr(len(out)), syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT, 0, 0)
			if en == syscall.EAGAIN {
				return false
			}
			if en != 0 {
				return true
			}
			out = out[m:]
		}
		return true
	}
	for {
		if r.Read(recv) != nil || e != 0 || n == 0 {
			_ = dst.CloseWrite()
			return
		}
		out = (*buf)[:n]
		if w.Write(send) != nil || len(out) > 0 {
			return
		}
	}
}

// child is a relay process.
type child struct {
	cmd  *exec.Cmd
	in   io.Writer
	out  *bufio.Scanner
	addr string
}

func startChild(tb testing.TB, kind, upstream string) *child {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+kind, upstreamEnv+"="+upstream)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	c := &child{cmd: cmd, in: in, out: bufio.NewScanner(out)}
	if !c.out.Scan() {
		tb.Fatal("the relay did not start")
	}
	c.addr = strings.TrimPrefix(c.out.Text(), "addr ")
	tb.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return c
}

// usage returns the relay's CPU time in ns and its resident memory in bytes.
func (c *child) usage(tb testing.TB, gc ...string) (cpu, mem int64) {
	tb.Helper()
	if _, err := io.WriteString(c.in, strings.Join(gc, "")+"\n"); err != nil {
		tb.Fatal(err)
	}
	if !c.out.Scan() {
		tb.Fatal("the relay is gone")
	}
	if _, err := fmt.Sscanf(c.out.Text(), "cpu %d %d", &cpu, &mem); err != nil {
		tb.Fatal(err)
	}
	return cpu, mem
}

// pacer is an upstream that sends one event a stream each time it is asked to.
type pacer struct {
	ln      net.Listener
	chunk   []byte
	chunks  [][]byte // the same and those that follow, in turn
	load    workload
	streams chan *net.TCPConn
}

func startPacer(tb testing.TB, w workload) *pacer {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &pacer{ln: ln, load: w, streams: make(chan *net.TCPConn, 8192)}
	for _, e := range w.events {
		if w.greeting == "" {
			e = slices.Concat(fmt.Appendf(nil, "%x\r\n", len(e)), e, []byte("\r\n"))
		}
		p.chunks = append(p.chunks, e)
	}
	p.chunk = p.chunks[0]
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				req, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				// ReverseProxy cuts about one in a hundred answers that come at once
				time.Sleep(10 * time.Millisecond)
				_, _ = io.WriteString(c, p.load.head+p.load.greeting)
				p.streams <- c.(*net.TCPConn)
			}()
		}
	}()
	tb.Cleanup(func() { _ = ln.Close() })
	return p
}

const (
	sseHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	pcmHead = "HTTP/1.1 200 OK\r\nContent-Type: audio/pcm\r\nX-Sample-Rate: 24000\r\nX-Channels: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
)

// stream is one open stream through a relay.
type stream struct {
	up, down net.Conn
	next     int // the event that comes next
}

// open opens a stream and takes its head.
func (p *pacer) open(tb testing.TB, addr string) *stream {
	tb.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	body := `{"model":"m","stream":true,"modalities":["text","audio"]}`
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", p.load.path, len(body), body)
	if p.load.greeting != "" {
		head = fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", p.load.path)
	}
	if _, err := io.WriteString(c, head); err != nil {
		tb.Fatal(err)
	}
	s := &stream{up: <-p.streams, down: c}
	b := make([]byte, 1)
	for got := ""; !strings.HasSuffix(got, "\r\n\r\n"); got += string(b) {
		if _, err := c.Read(b); err != nil {
			tb.Fatal(err)
		}
	}
	if _, err := io.ReadFull(c, make([]byte, len(p.load.greeting))); err != nil {
		tb.Fatal(err)
	}
	return s
}

func (s *stream) close() {
	_ = s.up.Close()
	_ = s.down.Close()
}

// pump sends n events through the stream, each when the one before has arrived,
// and adds the times from just ahead of the send to arrival.
func (s *stream) pump(chunks [][]byte, n int, took []time.Duration) ([]time.Duration, error) {
	buf := make([]byte, 64<<10)
	for range n {
		chunk := chunks[s.next%len(chunks)]
		s.next++
		// a stream's pace, not a wait for anything: 15 to 25 ms, so that streams do not fall into step
		time.Sleep(15*time.Millisecond + rand.N(10*time.Millisecond))
		t := time.Now()
		if _, err := s.up.Write(chunk); err != nil {
			return took, err
		}
		for got := 0; got < len(chunk); {
			m, err := s.down.Read(buf)
			if err != nil {
				return took, err
			}
			got += m
		}
		took = append(took, time.Since(t))
	}
	return took, nil
}

// workload is what passes: a stream of events behind a head. A greeting makes it
// a WebSocket: what the server says before the events, which are frames.
type workload struct {
	name, path, head, greeting string
	events                     [][]byte // all of one length, which follow each other
}

// workloads are text deltas, raw chunks of 80 ms, base64 audio.
func workloads() []workload {
	text := `data: {"id":"chatcmpl-q1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null,"token_ids":null}],"modality":"text"}` + "\n\n"
	sound := func(pcm []byte) []byte {
		return []byte(`data: {"id":"chatcmpl-q1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"` + base64.StdEncoding.EncodeToString(pcm) + `"},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":7,"total_tokens":7,"completion_tokens":0},"modality":"audio"}` + "\n\n")
	}
	return []workload{
		{"sse220", "/v1/chat/completions", sseHead, "", [][]byte{[]byte(text)}},
		{"raw3840", "/v1/audio/speech", pcmHead, "", spoken(3840, func(pcm []byte) []byte { return pcm })},
		{"b64audio6400", "/v1/chat/completions", sseHead, "", spoken(4800, sound)},
	}
}

// spoken is 20 s of sound made like speech in events of so many bytes of it.
func spoken(size int, event func([]byte) []byte) (out [][]byte) {
	for pcm := range slices.Chunk(madeSpeech(), size) {
		if len(pcm) == size {
			out = append(out, event(pcm))
		}
	}
	return out
}

// frame is a server's frame of one message.
func frame(op byte, payload []byte, rsv1 bool) []byte {
	b := []byte{0x80 | op}
	if rsv1 {
		b[0] |= 0x40
	}
	if len(payload) < 126 {
		b = append(b, byte(len(payload)))
	} else {
		b = append(b, 126, byte(len(payload)>>8), byte(len(payload)))
	}
	return append(b, payload...)
}

const socketHead = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"

// socketWorkloads are the same over a WebSocket: text deltas, binary chunks,
// base64 audio, and that compressed.
func socketWorkloads() []workload {
	id := "resp-duplex-5d4fda1c2ea04e85b7c08e21ade9c3c3-0-b918ac2d"
	delta := func(kind, payload string) []byte {
		return fmt.Appendf(nil, `{"type":"response.%s.delta","response_id":%q,"item_id":"item_1","output_index":0,"content_index":0,"delta":%q,"event_id":"event_1"}`, kind, id, payload)
	}
	text := func(s string) string { return string(frame(1, []byte(s), false)) }
	created := text(`{"type":"session.created","session":{"id":"sess_1","object":"realtime.session","type":"realtime","model":"m"},"event_id":"event_0"}`)
	realtime := created + text(`{"type":"response.created","response":{"id":"`+id+`","status":"in_progress"},"event_id":"event_0"}`)
	speech := text(`{"type":"audio.start","utterance_index":0,"sentence_index":0,"sentence_text":"Hello.","format":"pcm","sample_rate":24000}`)
	sound := func(pcm []byte) []byte { return delta("output_audio", base64.StdEncoding.EncodeToString(pcm)) }
	deflated := "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\r\n"
	return []workload{
		{"ws220", "/v1/realtime", socketHead + "\r\n", realtime, [][]byte{frame(1, delta("output_text", " word"), false)}},
		{"ws3840", "/v1/audio/speech/stream", socketHead + "\r\n", speech, spoken(3840, func(pcm []byte) []byte { return frame(2, pcm, false) })},
		{"ws6400", "/v1/realtime", socketHead + "\r\n", realtime, spoken(4800, func(pcm []byte) []byte { return frame(1, sound(pcm), false) })},
		{"ws6400deflate", "/v1/realtime", socketHead + deflated + "\r\n", realtime, [][]byte{frame(1, deflate(sound(noise(4800))), true)}},
	}
}

// noise is sound that hardly compresses.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewPCG(1, 2)
	for i := range b {
		b[i] = byte(r.Uint64())
	}
	return b
}

// deflate compresses a message (RFC 7692 section 7.2.1).
func deflate(p []byte) []byte {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.DefaultCompression)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(p)
	_ = w.Flush()
	return bytes.TrimSuffix(b.Bytes(), []byte{0, 0, 0xff, 0xff})
}

// BenchmarkRelay compares the relays side by side: rounds of the same events in
// turn, so that a noisy machine disturbs all of them alike. It reports CPU time
// per event of each relay and the ratios, and the added latency.
func BenchmarkRelay(b *testing.B) {
	for _, w := range workloads() {
		b.Run(w.name, func(b *testing.B) { benchRelay(b, w) })
	}
}

// BenchmarkSocketRelay is the same with messages of WebSockets.
func BenchmarkSocketRelay(b *testing.B) {
	for _, w := range socketWorkloads() {
		b.Run(w.name, func(b *testing.B) { benchRelay(b, w) })
	}
}

// benchStreams is how many streams run at once. With -short a benchmark shows that it
// runs, with a tenth of streams and events, and measures nothing worth.
func benchStreams() int {
	if testing.Short() {
		return 10
	}
	return 100
}

// benchRound is the events a stream and round.
func benchRound() int {
	if testing.Short() {
		return 5
	}
	return 50
}

func benchRelay(b *testing.B, w workload) {
	p := startPacer(b, w)
	kinds := append([]string{"direct"}, relayKinds...)
	kinds = append(kinds, "bare-again") // the noise: the same against itself
	streams, children := map[string][]*stream{}, map[string]*child{}
	for _, k := range kinds {
		addr := p.ln.Addr().String()
		if k != "direct" {
			children[k] = startChild(b, strings.TrimSuffix(k, "-again"), addr)
			addr = children[k].addr
		}
		for range benchStreams() {
			s := p.open(b, addr)
			defer s.close()
			streams[k] = append(streams[k], s)
		}
	}
	cpu, took, events, round := map[string]int64{}, map[string][]time.Duration{}, 0, benchRound()
	for b.Loop() {
		events += benchStreams() * round
		order := slices.Clone(kinds)
		if events/(benchStreams()*round)%2 == 0 {
			slices.Reverse(order)
		}
		for _, k := range order {
			var before int64
			if c := children[k]; c != nil {
				before, _ = c.usage(b)
			}
			took[k] = append(took[k], pumpAll(b, k, streams[k], p.chunks)...)
			if c := children[k]; c != nil {
				after, _ := c.usage(b)
				cpu[k] += after - before
			}
		}
	}
	reportRelays(b, cpu, took, events)
}

// pumpAll pumps a round through all streams at once.
func pumpAll(b *testing.B, kind string, streams []*stream, chunks [][]byte) []time.Duration {
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	for _, s := range streams {
		wg.Go(func() {
			took, err := s.pump(chunks, benchRound(), make([]time.Duration, 0, benchRound()))
			if err != nil {
				b.Errorf("%s: %v", kind, err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
		})
	}
	wg.Wait()
	return all
}

func reportRelays(b *testing.B, cpu map[string]int64, took map[string][]time.Duration, events int) {
	per := func(k string) float64 { return float64(cpu[k]) / float64(events) }
	for _, k := range relayKinds {
		b.ReportMetric(per(k), k+"-cpu-ns/event")
	}
	b.ReportMetric(per("forward")/per("bare"), "forward/bare")
	b.ReportMetric(per("bare-again")/per("bare"), "bare/bare")
	b.ReportMetric(per("analysis")/per("reverseproxy"), "analysis/reverseproxy")
	b.ReportMetric(per("checks")/per("reverseproxy"), "checks/reverseproxy")
	b.ReportMetric(per("full")/per("reverseproxy"), "full/reverseproxy")
	b.ReportMetric(per("bare")/per("reverseproxy"), "bare/reverseproxy")
	at := func(k string, q float64) float64 {
		v := took[k]
		slices.Sort(v)
		return float64(v[int(q*float64(len(v)-1))].Nanoseconds()) / 1e3
	}
	for _, k := range []string{"bare", "bare-again", "forward", "analysis", "checks", "full", "reverseproxy"} {
		b.ReportMetric(at(k, .5)-at("direct", .5), k+"-added-p50-us")
		b.ReportMetric(at(k, .99)-at("direct", .99), k+"-added-p99-us")
	}
	b.ReportMetric(0, "ns/op") // what a round takes says nothing
}

// BenchmarkIdleStreams opens streams that have begun to answer and then fall
// quiet, and reports what each costs its relay in resident memory.
func BenchmarkIdleStreams(b *testing.B) { benchIdle(b, workloads()[0], "stream") }

// BenchmarkIdleSessions is the same with WebSocket sessions amid a turn.
func BenchmarkIdleSessions(b *testing.B) { benchIdle(b, socketWorkloads()[0], "session") }

func benchIdle(b *testing.B, w workload, what string) {
	const n = 5000
	p := startPacer(b, w)
	for b.Loop() {
		for _, kind := range []string{"bare", "analysis", "reverseproxy"} {
			c := startChild(b, kind, p.ln.Addr().String())
			_, before := c.usage(b, "gc")
			streams := p.openMany(b, c.addr, n)
			_, after := c.usage(b, "gc")
			b.ReportMetric(float64(after-before)/n, kind+"-B/"+what)
			for _, s := range streams {
				s.close()
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}

// openMany opens n streams, each with one event that has arrived.
func (p *pacer) openMany(b *testing.B, addr string, n int) []*stream {
	b.Helper()
	streams := make([]*stream, n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := range next {
				streams[i] = p.openAny(b, addr)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return streams
}

// openAny opens a stream whose upstream end may belong to another one opened at
// the same time, and has an event come through one of them.
func (p *pacer) openAny(b *testing.B, addr string) *stream {
	b.Helper()
	s := p.open(b, addr)
	if _, err := s.up.Write(p.chunk); err != nil {
		b.Error(err)
	}
	if _, err := io.ReadFull(s.down, make([]byte, len(p.chunk))); err != nil {
		b.Error(err)
	}
	return s
}
