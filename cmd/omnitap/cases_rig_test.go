package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock"
	"github.com/omnitap/omnitap/proxy"
	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// The field cases go through the real relay over loopback TCP: an upstream in
// the test's hand ← proxy.Server ← a client in the test's hand.

// caseSink keeps records, events and the lines of sessions.
type caseSink struct {
	mu      sync.Mutex // protects what follows
	records []*timeline.Record
	events  []timeline.Event
	lines   []*timeline.Session
	blind   bool // keeps no events
}

func (s *caseSink) Session(l *timeline.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, l)
}

func (s *caseSink) Record(r *timeline.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, r)
}

func (s *caseSink) Event(e *timeline.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.blind {
		s.events = append(s.events, *e)
	}
}

// caseRig is a relay before an upstream.
type caseRig struct {
	addr   string
	server *proxy.Server
	sink   *caseSink
	queued func() int64 // bytes that wait for analysis
	oldest func() (mono int64, busy int)
	once   sync.Once
	end    func()
}

// startCaseRig relays to upstream (http://host:port); change may be nil.
func startCaseRig(t testing.TB, upstream string, change func(*proxy.Config, *tap.Config)) *caseRig {
	t.Helper()
	r := &caseRig{sink: &caseSink{}}
	cfg, tc := proxy.Config{Upstream: upstream, RunID: "t", Node: "n", Drain: 5 * time.Second}, tap.Config{}
	if change != nil {
		change(&cfg, &tc)
	}
	analyzer := tap.NewAnalyzer(tc, r.sink, nil)
	cfg.Analyzer = analyzer
	s, err := proxy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := proxy.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr, r.server, r.queued, r.oldest = ln.Addr().String(), s, analyzer.Queued, analyzer.Oldest
	ctx, cancel := context.WithCancel(context.Background())
	actx, acancel := context.WithCancel(context.Background())
	var relay, analysis sync.WaitGroup
	relay.Go(func() {
		if err := s.Run(ctx, ln); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	analysis.Go(func() { analyzer.Run(actx) })
	r.end = func() {
		cancel()
		relay.Wait()
		acancel()
		analysis.Wait()
	}
	t.Cleanup(func() { r.stop() })
	return r
}

// blind keeps no events from now on.
func (r *caseRig) blind() {
	r.sink.mu.Lock()
	defer r.sink.mu.Unlock()
	r.sink.blind = true
}

// stop ends the relay, waits for the analysis and returns all records.
func (r *caseRig) stop() []*timeline.Record {
	r.once.Do(r.end)
	return r.records()
}

// records returns the records so far.
func (r *caseRig) records() []*timeline.Record {
	r.sink.mu.Lock()
	defer r.sink.mu.Unlock()
	return slices.Clone(r.sink.records)
}

// events returns the events so far.
func (r *caseRig) events() []timeline.Event {
	r.sink.mu.Lock()
	defer r.sink.mu.Unlock()
	return slices.Clone(r.sink.events)
}

// lines returns the lines of sessions so far.
func (r *caseRig) lines() []*timeline.Session {
	r.sink.mu.Lock()
	defer r.sink.mu.Unlock()
	return slices.Clone(r.sink.lines)
}

// caseUpstream runs a raw TCP server: one call of serve a connection, n counts
// them from 0. The connection is closed when serve returns.
func caseUpstream(t testing.TB, serve func(c *net.TCPConn, n int)) (base string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				serve(c.(*net.TCPConn), n)
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		wg.Wait()
	})
	return "http://" + ln.Addr().String()
}

// caseMock runs the mock.
func caseMock(t testing.TB, cfg mock.Config) (s *mock.Server, base string) {
	t.Helper()
	s, err := mock.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(ctx, ln); err != nil {
			t.Errorf("mock: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return s, "http://" + ln.Addr().String()
}

// caseDial opens a raw client connection that is closed with the test.
func caseDial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// caseSend writes s and marks the test as failed if it cannot.
func caseSend(t testing.TB, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Errorf("writing: %v", err)
	}
}

// readCaseRequest reads a request's head and the body that its Content-Length names.
func readCaseRequest(c net.Conn) (request string, err error) {
	var got []byte
	b := make([]byte, 1)
	for len(got) < 4 || string(got[len(got)-4:]) != "\r\n\r\n" {
		if _, err := c.Read(b); err != nil {
			return string(got), err
		}
		got = append(got, b[0])
	}
	n := 0
	if _, after, ok := strings.Cut(strings.ToLower(string(got)), "content-length: "); ok {
		_, _ = fmt.Sscanf(after, "%d", &n)
	}
	body := make([]byte, n)
	_, err = io.ReadFull(c, body)
	return string(got) + string(body), err
}

// waitCase gives way until cond holds; it fails the test after ten seconds.
func waitCase(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !cond(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// monoNow returns CLOCK_MONOTONIC nanoseconds, the clock of records' points.
func monoNow() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// slack is how much later than its sender's stamp a point may lie.
const slack = 20 * time.Millisecond

// clockSlack is how far a kernel's stamp, turned from one clock to the other, may
// lie off.
const clockSlack = 500 * time.Microsecond

// caseWrite is one write of an upstream. It starts when the client has received
// all that was written before and wait has passed since then, so each write is
// (at least) one read of its own in the relay.
type caseWrite struct {
	wait time.Duration
	data string
}

// caseEnd is how an upstream ends its connection.
type caseEnd uint8

const (
	endFIN   caseEnd = iota // close behind the last byte
	endRST                  // reset when the client has received all
	endOpen                 // the client leaves first, when it has received all
	endBlunt                // FIN, and the writes are not told apart: no waiting for the client
)

// caseStamp holds CLOCK_MONOTONIC right before and right after a write.
type caseStamp struct{ before, after int64 }

// caseResult is one exchange through the relay.
type caseResult struct {
	request string // as the upstream received it
	sent    string // all that the upstream wrote
	got     string // all that the client received
	err     error  // how the client's reading ended; nil for FIN
	stamps  []caseStamp
	blunt   bool      // writes were not told apart
	asked   caseStamp // of the client's write
	rec     *timeline.Record
	events  []timeline.Event
}

// exchangeCase sends request through a fresh relay to an upstream that answers
// with writes, and checks what holds in every case: the bytes arrive as they were
// sent, the end arrives as it was made, one record comes and none of its
// nulls lacks a reason.
func exchangeCase(t testing.TB, change func(*proxy.Config, *tap.Config), request string, end caseEnd, writes ...caseWrite) *caseResult {
	t.Helper()
	res := &caseResult{blunt: end == endBlunt}
	for _, w := range writes {
		res.sent += w.data
	}
	var received atomic.Int64
	gone := make(chan struct{})
	served := make(chan struct{})
	up := caseUpstream(t, func(c *net.TCPConn, _ int) {
		defer close(served)
		res.request, _ = readCaseRequest(c)
		res.stamps = playCase(t, c, end, &received, gone, writes)
	})
	rig := startCaseRig(t, up, change)
	c := caseDial(t, rig.addr)
	res.asked.before = monoNow()
	caseSend(t, c, request)
	res.asked.after = monoNow()
	res.receive(c, end, &received, gone)
	<-served
	res.checkBytes(t, end)
	recs := rig.stop()
	if len(recs) != 1 {
		t.Fatalf("%d records, want 1", len(recs))
	}
	res.rec, res.events = recs[0], rig.events()
	checkNulls(t, res.rec)
	res.checkFrame(t)
	return res
}

// checkFrame checks what frames every exchange: when it began, the order of its
// first points, and its size on the wire.
func (res *caseResult) checkFrame(t testing.TB) {
	t.Helper()
	p := &res.rec.Points
	if p.TIn == nil || p.TBody == nil || p.TUp == nil {
		t.Fatalf("points t_in, t_body, t_up = %v, %v, %v, want none null", p.TIn, p.TBody, p.TUp)
	}
	if d := time.Duration(*p.TIn - res.asked.before); d < -clockSlack || d > time.Duration(res.asked.after-res.asked.before)+slack {
		t.Errorf("t_in lies %v behind the client's write", d)
	}
	if *p.TBody < *p.TIn || *p.TUp < *p.TBody {
		t.Errorf("t_in, t_body, t_up = %d, %d, %d, want them in order", *p.TIn, *p.TBody, *p.TUp)
	}
	wantInt(t, "offsets.t_in", res.rec.Offsets.TIn, 1)
	wantInt(t, "offsets.t_body", res.rec.Offsets.TBody, int64(len(res.request)))
	for name, at := range map[string]*int64{"t_hdr": p.THdr, "t_text": p.TText, "t_audio_event": p.TAudioEvent, "t_audio": p.TAudio, "t_audible": p.TAudible, "t_term": p.TTerm} {
		if at != nil && (*at < *p.TIn || p.THdr != nil && *at < *p.THdr) {
			t.Errorf("%s lies ahead of t_in or t_hdr", name)
		}
	}
	if res.rec.BytesUp != int64(len(res.request)) || res.rec.BytesDown != int64(len(res.sent)) {
		t.Errorf("bytes_up, bytes_down = %d, %d, want %d, %d", res.rec.BytesUp, res.rec.BytesDown, len(res.request), len(res.sent))
	}
}

// receive reads the answer to its end, or leaves when all has come.
func (res *caseResult) receive(c *net.TCPConn, end caseEnd, received *atomic.Int64, gone chan<- struct{}) {
	defer close(gone)
	var got strings.Builder
	buf := make([]byte, 64<<10)
	for res.err == nil && (end != endOpen || got.Len() < len(res.sent)) {
		var n int
		n, res.err = c.Read(buf)
		got.Write(buf[:n])
		received.Store(int64(got.Len()))
	}
	if errors.Is(res.err, io.EOF) {
		res.err = nil
	}
	res.got = got.String()
	_ = c.Close()
}

// playCase is the upstream's side of exchangeCase.
func playCase(t testing.TB, c *net.TCPConn, end caseEnd, received *atomic.Int64, gone <-chan struct{}, writes []caseWrite) []caseStamp {
	t.Helper()
	stamps := make([]caseStamp, 0, len(writes))
	var sent int64
	arrived := func() bool {
		select {
		case <-gone:
			return true
		default:
			return received.Load() >= sent
		}
	}
	for i, w := range writes {
		if i > 0 && end != endBlunt {
			waitCase(t, "the client to receive", arrived)
		}
		time.Sleep(w.wait) // a paced sender
		s := caseStamp{before: monoNow()}
		caseSend(t, c, w.data)
		s.after = monoNow()
		stamps = append(stamps, s)
		sent += int64(len(w.data))
	}
	if end == endRST {
		waitCase(t, "the client to receive", arrived)
		_ = c.SetLinger(0)
	}
	if end == endOpen {
		_, _ = c.Read(make([]byte, 1))
	}
	return stamps
}

// checkBytes compares what came with what was sent, and the ends.
func (res *caseResult) checkBytes(t testing.TB, end caseEnd) {
	t.Helper()
	if res.got != res.sent {
		t.Errorf("the client got %d bytes, want the upstream's %d unchanged; first difference at %d", len(res.got), len(res.sent), differAt(res.got, res.sent))
	}
	if end == endRST && !errors.Is(res.err, syscall.ECONNRESET) {
		t.Errorf("the client's end = %v, want a reset", res.err)
	}
	if end != endRST && res.err != nil {
		t.Errorf("the client's end = %v, want FIN", res.err)
	}
}

func differAt(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// wantPointIn checks that a point lies within write i of the upstream.
func (res *caseResult) wantPointIn(t testing.TB, name string, got *int64, i int) {
	t.Helper()
	if got == nil {
		t.Errorf("%s is null, want it in write %d", name, i)
		return
	}
	from, to := res.stamps[i].before, res.stamps[i].after+int64(slack)
	if i+1 < len(res.stamps) && !res.blunt { // the client had it before the next write began
		to = min(to, res.stamps[i+1].before+int64(clockSlack))
	}
	if *got < from-int64(clockSlack) || *got > to {
		t.Errorf("%s lies %.1f ms behind the start of write %d, want 0 to %.1f", name, float64(*got-from)/1e6, i, float64(to-from)/1e6)
	}
}

// wantTerminal checks state and reason of a record.
func wantTerminal(t testing.TB, rec *timeline.Record, state timeline.State, reason string) {
	t.Helper()
	if rec.Terminal.State != state || rec.Terminal.Reason != reason {
		t.Errorf("terminal = %s/%s, want %s/%s; evidence %v", rec.Terminal.State, rec.Terminal.Reason, state, reason, rec.Terminal.Evidence)
	}
}

// wantFailed checks that a record is quality-failed by exactly these checks.
func wantFailed(t testing.TB, rec *timeline.Record, checks ...string) {
	t.Helper()
	if rec.Terminal.State != timeline.QualityFailed || !slices.Equal(rec.Quality.Failed, checks) || rec.Quality.Verdict != "failed" {
		t.Errorf("terminal = %s/%s, quality = %+v, want quality-failed by %q", rec.Terminal.State, rec.Terminal.Reason, rec.Quality, checks)
	}
}

// wantFlag checks that a record has a flag, or with want false that it has not.
func wantFlag(t testing.TB, rec *timeline.Record, flag string, want bool) {
	t.Helper()
	if got := slices.Contains(rec.Flags, flag); got != want {
		t.Errorf("flag %s = %v, want %v; flags %q", flag, got, want, rec.Flags)
	}
}

// wantInt checks an integer of a record that must not be null.
func wantInt(t testing.TB, name string, got *int64, want int64) {
	t.Helper()
	if got == nil {
		t.Errorf("%s is null, want %d", name, want)
	} else if *got != want {
		t.Errorf("%s = %d, want %d", name, *got, want)
	}
}

// wantNull checks that a value is null; checkNulls looks for its reason.
func wantNull[T any](t testing.TB, name string, got *T) {
	t.Helper()
	if got != nil {
		t.Errorf("%s = %v, want null", name, *got)
	}
}

// wantSamples checks the sample frames and chunks of a record's audio.
func wantSamples(t testing.TB, rec *timeline.Record, samples, chunks int64) {
	t.Helper()
	a := audioOf(t, rec)
	wantInt(t, "audio.samples", a.Samples, samples)
	if a.Chunks != chunks {
		t.Errorf("audio.chunks = %d, want %d", a.Chunks, chunks)
	}
}

// audioOf returns a record's audio, which must not be null.
func audioOf(t testing.TB, rec *timeline.Record) *timeline.Audio {
	t.Helper()
	if rec.Audio == nil {
		t.Fatal("audio is null, want some")
	}
	return rec.Audio
}

// checkNulls checks that every null of a record has its reason in unmeasured,
// and that nothing measured has one.
func checkNulls(t testing.TB, rec *timeline.Record) {
	t.Helper()
	b, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	nulls := map[string]bool{}
	findNulls(v, "", nulls)
	for name := range nulls {
		if rec.Unmeasured[name] == "" {
			t.Errorf("%s is null without a reason in unmeasured", name)
		}
	}
	for name, reason := range rec.Unmeasured {
		if _, there := v[name]; name == "own_delay_us" && !there {
			continue // left out where it is null
		}
		if !nulls[name] && !underNull(name, nulls) {
			t.Errorf("unmeasured names %s (%s), which is not null", name, reason)
		}
	}
}

func findNulls(v map[string]any, prefix string, out map[string]bool) {
	for name, x := range v {
		switch x := x.(type) {
		case nil:
			out[prefix+name] = true
		case map[string]any:
			if name != "unmeasured" && name != "evidence" {
				findNulls(x, prefix+name+".", out)
			}
		}
	}
}

func underNull(name string, nulls map[string]bool) bool {
	for i := strings.LastIndexByte(name, '.'); i > 0; i = strings.LastIndexByte(name[:i], '.') {
		if nulls[name[:i]] {
			return true
		}
	}
	return false
}

// post makes a POST request with a JSON body; fields are header lines without
// their line ends.
func post(path, body string, fields ...string) string {
	extra := ""
	for _, f := range fields {
		extra += f + "\r\n"
	}
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: mock\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", path, extra, len(body), body)
}

// The requests that most cases ask with.
const (
	caseSpeechBody = `{"model":"m","input":"hi","voice":"v","stream":true,"response_format":"pcm"}`
	caseWAVBody    = `{"model":"m","input":"hi","voice":"v","response_format":"wav"}`
	caseChatBody   = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`
	caseAudioChat  = `{"model":"m","stream":true,"modalities":["text","audio"],"messages":[{"role":"user","content":"hi"}]}`
)

func speechRequest(body string) string { return post("/v1/audio/speech", body) }
func chatRequest(body string) string   { return post("/v1/chat/completions", body) }

// answerHead is a 200 with chunked framing; fields as for post.
func answerHead(contentType string, fields ...string) string {
	h := "HTTP/1.1 200 OK\r\nContent-Type: " + contentType + "\r\nTransfer-Encoding: chunked\r\n"
	for _, f := range fields {
		h += f + "\r\n"
	}
	return h + "\r\n"
}

// lengthAnswer is a 200 with Content-Length and its body.
func lengthAnswer(contentType, body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", contentType, len(body), body)
}

// httpChunk frames one HTTP chunk.
func httpChunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// zeroChunk ends a chunked body.
const zeroChunk = "0\r\n\r\n"

// sseData is one server-sent event of one data line.
func sseData(s string) string { return "data: " + s + "\n\n" }

// The events of a chat stream in OpenAI's form.
const (
	chatDone   = "data: [DONE]\n\n"
	chatFinish = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
)

// chatText is a chat event with a text delta.
func chatText(s string) string {
	q, _ := json.Marshal(s)
	return sseData(`{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":` + string(q) + `},"finish_reason":null}]}`)
}

// speechDelta is an event of a speech stream with base64 audio.
func speechDelta(b string) string {
	return sseData(`{"type":"speech.audio.delta","audio":"` + base64.StdEncoding.EncodeToString([]byte(b)) + `"}`)
}

// speechDone ends a speech stream.
const speechDone = `data: {"type":"speech.audio.done","usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}` + "\n\n"

// ramp is n s16le samples that count up from first.
func ramp(first, n int) string {
	b := make([]byte, 0, 2*n)
	for i := range n {
		b = binary.LittleEndian.AppendUint16(b, uint16(first+i))
	}
	return string(b)
}

// sine is n s16le samples of a 440 Hz tone at half of full scale.
func sine(n, rate int) string { return sineFrom(0, n, rate) }

// sineFrom is a sine's samples first to first+n.
func sineFrom(first, n, rate int) string {
	b := make([]byte, 0, 2*n)
	for i := first; i < first+n; i++ {
		v := int16(16384 * math.Sin(2*math.Pi*440*float64(i)/float64(rate)))
		b = binary.LittleEndian.AppendUint16(b, uint16(v))
	}
	return string(b)
}

// wavHead is a 44-byte header of s16le that declares dataBytes.
func wavHead(rate, channels int, dataBytes uint32) string {
	riff := dataBytes
	if riff < 0x70000000 {
		riff += 36
	}
	return wavOf(riff, fmtChunk(1, channels, rate, 16), "data"+le32(dataBytes))
}

// wavOf joins a RIFF header and chunks.
func wavOf(size uint32, chunks ...string) string {
	return "RIFF" + le32(size) + "WAVE" + strings.Join(chunks, "")
}

// fmtChunk is a PCM fmt chunk of 16 bytes with its own header.
func fmtChunk(tag, channels, rate, bits int) string {
	align := channels * bits / 8
	return "fmt " + le32(16) + le16(tag) + le16(channels) + le32(uint32(rate)) + le32(uint32(rate*align)) + le16(align) + le16(bits)
}

func le16(n int) string    { return string(binary.LittleEndian.AppendUint16(nil, uint16(n))) }
func le32(n uint32) string { return string(binary.LittleEndian.AppendUint32(nil, n)) }

// cutEvery cuts s into writes of n bytes, without pauses.
func cutEvery(s string, n int) []caseWrite {
	var out []caseWrite
	for len(s) > n {
		out = append(out, caseWrite{data: s[:n]})
		s = s[n:]
	}
	return append(out, caseWrite{data: s})
}

// writesOf makes writes of strings, without pauses.
func writesOf(parts ...string) []caseWrite {
	out := make([]caseWrite, len(parts))
	for i, p := range parts {
		out[i].data = p
	}
	return out
}
