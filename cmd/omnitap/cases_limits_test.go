package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/omnitap/omnitap/exporter/report"
	"github.com/omnitap/omnitap/proxy"
	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// hung is an exchange whose server has stopped: a client that waits, a relay with
// a deadline, a server that neither sends nor ends.
type hung struct {
	rig    *caseRig
	client *net.TCPConn
	server chan error // how the server's side ended
}

// startHung sends request, has answer come in full, and leaves the rest to time.
func startHung(t *testing.T, deadline, stall time.Duration, abort bool, request, answer string) *hung {
	t.Helper()
	h := &hung{server: make(chan error, 1)}
	up := caseUpstream(t, func(c *net.TCPConn, _ int) {
		_, _ = readCaseRequest(c)
		caseSend(t, c, answer)
		_, err := c.Read(make([]byte, 1))
		h.server <- err
	})
	h.rig = startCaseRig(t, up, func(p *proxy.Config, tc *tap.Config) {
		tc.Timeline.Deadline, tc.Timeline.AudioStallMS = deadline, int(stall.Milliseconds())
		if abort {
			p.AbortAfter = deadline
		}
	})
	h.client = caseDial(t, h.rig.addr)
	caseSend(t, h.client, request)
	if got := make([]byte, len(answer)); len(got) > 0 {
		if _, err := io.ReadFull(h.client, got); err != nil || string(got) != answer {
			t.Fatalf("the answer's beginning: %v", err)
		}
	}
	return h
}

// told returns the events of a name so far.
func (h *hung) told(name string) (out []timeline.Event) {
	for _, e := range h.rig.events() {
		if e.Event == name {
			out = append(out, e)
		}
	}
	return out
}

// moment waits for an event and returns when it says that it was.
func (h *hung) moment(t *testing.T, name string) int64 {
	t.Helper()
	waitCase(t, name, func() bool { return len(h.told(name)) > 0 })
	return h.told(name)[0].MonoNS
}

// uncut checks that the relay ended neither side.
func (h *hung) uncut(t *testing.T) {
	t.Helper()
	_ = h.client.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := h.client.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the client's read gave %d bytes and %v, want it to wait still", n, err)
	}
	select {
	case err := <-h.server:
		t.Errorf("the server's side ended: %v", err)
	default:
	}
}

var hungPhases = []struct {
	name, request, answer, phase string
}{
	{"a: no byte", chatRequest(caseChatBody), "", "before_headers"},
	{"b: head alone", chatRequest(caseChatBody), answerHead("text/event-stream"), "before_first_content"},
	{"comments", chatRequest(caseChatBody), answerHead("text/event-stream") + httpChunk(": ping\n\n"), "before_first_content"},
	{"text", chatRequest(caseChatBody), answerHead("text/event-stream") + httpChunk(chatText("Hi")), "content"},
	{"sound", speechRequest(caseSpeechBody), answerHead("audio/pcm", "X-Sample-Rate: 24000") + httpChunk(sine(2400, 24000)), "content"},
}

// TestC59WaitsForEver: a server that never answers exceeds the user's deadline,
// counted from t_in, with the phase it hung in; the relay cuts nothing, and the
// oldest exchange shows before that.
func TestC59WaitsForEver(t *testing.T) {
	const limit = 150 * time.Millisecond
	for _, c := range hungPhases {
		t.Run(c.name, func(t *testing.T) {
			h := startHung(t, limit, -1, false, c.request, c.answer)
			waitCase(t, "the oldest in flight", func() bool { at, n := h.rig.oldest(); return n == 1 && at != 0 })
			oldest, _ := h.rig.oldest()
			at := h.moment(t, "deadline")
			h.uncut(t)
			leave(h.client, false)
			<-h.server
			rec := h.rig.stop()[0]
			checkNulls(t, rec)
			wantTerminal(t, rec, timeline.DeadlineExceeded, "deadline")
			if rec.Terminal.Phase != c.phase || rec.Terminal.By != "relay" || rec.Terminal.Evidence["deadline_ms"] != 150. {
				t.Errorf("terminal = %+v, want phase %s by the relay's deadline of 150 ms", rec.Terminal, c.phase)
			}
			if in := *rec.Points.TIn; at != in+int64(limit) || oldest != in {
				t.Errorf("the deadline was %d behind t_in, want %d; the oldest in flight %d, want t_in", at-in, limit, oldest-in)
			}
			if n := len(h.told("deadline")); n != 1 {
				t.Errorf("%d events tell of the deadline, want 1", n)
			}
			if _, n := h.rig.oldest(); n != 0 {
				t.Errorf("%d in flight at the end, want 0", n)
			}
		})
	}
}

// TestC59Abort: with the action abort both sides get a reset at the deadline, and
// not a byte more.
func TestC59Abort(t *testing.T) {
	for _, c := range hungPhases {
		t.Run(c.name, func(t *testing.T) {
			h := startHung(t, 150*time.Millisecond, -1, true, c.request, c.answer)
			_ = h.client.SetReadDeadline(time.Now().Add(10 * time.Second))
			if n, err := h.client.Read(make([]byte, 1)); n > 0 || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client got %d bytes and %v, want a reset", n, err)
			}
			if err := <-h.server; !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the server's side ended by %v, want a reset", err)
			}
			rec := h.rig.stop()[0]
			checkNulls(t, rec)
			wantTerminal(t, rec, timeline.DeadlineExceeded, "deadline")
			if rec.Terminal.Phase != c.phase || rec.Terminal.Evidence["aborted"] != true {
				t.Errorf("terminal = %+v, want phase %s, aborted", rec.Terminal, c.phase)
			}
			wantMS(t, "jct_ms", rec.JCTMS, 150*time.Millisecond, 150*time.Millisecond+10*slack)
		})
	}
}

// TestC55DeadlinePrecedence: whose end came first decides, and what the server said
// in so many words stays its word.
func TestC55DeadlinePrecedence(t *testing.T) {
	sse := answerHead("text/event-stream")
	text := sse + httpChunk(chatText("Hi"))
	end := httpChunk(chatFinish) + httpChunk(chatDone) + zeroChunk
	const late = 250 * time.Millisecond
	for _, c := range []struct {
		name   string
		end    caseEnd
		writes []caseWrite
		state  timeline.State
		reason string
		flag   bool
	}{
		{"in time", endFIN, []caseWrite{{data: text}, {data: end}}, timeline.Success, "done", false},
		{"b: good, and late", endFIN, []caseWrite{{data: text}, {wait: late, data: end}}, timeline.DeadlineExceeded, "deadline", false},
		{"cut, and late", endFIN, []caseWrite{{data: text}, {wait: late, data: httpChunk(chatText("more"))}}, timeline.DeadlineExceeded, "deadline", false},
		{"reset, and late", endRST, []caseWrite{{data: text}, {wait: late, data: httpChunk(chatText("more"))}}, timeline.DeadlineExceeded, "deadline", false},
		{"the client left, and late", endOpen, []caseWrite{{data: text}, {wait: late, data: httpChunk(chatText("more"))}}, timeline.DeadlineExceeded, "deadline", false},
		{"nothing, and late", endFIN, []caseWrite{{wait: late, data: sse + zeroChunk}}, timeline.DeadlineExceeded, "deadline", false},
		{"the server's word, and late", endFIN, []caseWrite{{data: text}, {wait: late, data: httpChunk(sseData(errorText("EngineDeadError", 500))) + zeroChunk}}, timeline.WorkerLost, "engine_dead", true},
		{"a refusal, and late", endFIN, []caseWrite{{wait: late, data: statusAnswer(429, "Too Many Requests", errorText("busy", 429))}}, timeline.AdmissionRejected, "http_429", true},
		{"the client left in time", endOpen, []caseWrite{{data: text}}, timeline.ClientCancelled, "client_closed", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, func(_ *proxy.Config, tc *tap.Config) { tc.Timeline.Deadline = 150 * time.Millisecond }, chatRequest(caseChatBody), c.end, c.writes...)
			if c.state == timeline.ClientCancelled {
				if res.rec.Terminal.State != c.state {
					t.Errorf("state = %s, want %s", res.rec.Terminal.State, c.state)
				}
			} else {
				wantTerminal(t, res.rec, c.state, c.reason)
			}
			wantFlag(t, res.rec, "deadline_passed", c.flag)
			if len(c.writes) > 1 && c.name != "nothing, and late" {
				wantMS(t, "ttft_ms", res.rec.TTFTMS, 0, 10*slack) // what came is kept
			}
		})
	}
}

// TestC41SoundStopsOverHTTP: text and comments go on, sound comes once: told while
// it lasts, and the reason at the deadline. A pause that ends is a note.
func TestC41SoundStopsOverHTTP(t *testing.T) {
	const limit, deadline = 100 * time.Millisecond, 500 * time.Millisecond
	change := func(_ *proxy.Config, tc *tap.Config) {
		tc.Timeline.Deadline, tc.Timeline.AudioStallMS = deadline, int(limit.Milliseconds())
	}
	sse := answerHead("text/event-stream")
	sound := func(from int) string { return httpChunk(chatAudio(wavFile(24000, 1, sineFrom(from, 480, 24000)))) }
	word, ping := httpChunk(chatText("word")), httpChunk(": ping\n\n")
	end := httpChunk(chatFinish) + httpChunk(chatDone) + zeroChunk
	every := func(n int, what ...string) (out []caseWrite) {
		for i := range n {
			out = append(out, caseWrite{wait: 20 * time.Millisecond, data: what[i%len(what)]})
		}
		return out
	}
	for _, c := range []struct {
		name   string
		writes []caseWrite
		state  timeline.State
		reason string
		told   int
		flag   bool
	}{
		{"never again", append([]caseWrite{{data: sse + word + sound(0)}}, every(30, word, ping)...), timeline.DeadlineExceeded, "stall_audio", 1, true},
		{"again, and late", append(append([]caseWrite{{data: sse + word + sound(0)}}, every(30, word, ping)...), caseWrite{data: sound(480) + end}), timeline.DeadlineExceeded, "stall_audio", 1, true},
		{"a pause", append(append([]caseWrite{{data: sse + word + sound(0)}}, every(10, word, ping)...), caseWrite{data: sound(480) + end}), timeline.Success, "done", 1, true},
		{"a short pause", append(append([]caseWrite{{data: sse + word + sound(0)}}, every(2, word, ping)...), caseWrite{data: sound(480) + end}), timeline.Success, "done", 0, false},
		{"text behind the sound", append(append([]caseWrite{{data: sse + word + sound(0)}}, every(10, word, ping)...), caseWrite{data: end}), timeline.Success, "done", 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, change, chatRequest(caseAudioChat), endFIN, c.writes...)
			wantTerminal(t, res.rec, c.state, c.reason)
			wantFlag(t, res.rec, "audio_stall", c.flag)
			wantMS(t, "ttfa_ms", res.rec.TTFAMS, 0, 10*slack)
			wantMS(t, "ttft_ms", res.rec.TTFTMS, 0, 10*slack)
			var told []timeline.Event
			for _, e := range res.events {
				if e.Event == "audio_stall" {
					told = append(told, e)
				}
			}
			if len(told) != c.told {
				t.Fatalf("%d events tell of a stall, want %d", len(told), c.told)
			}
			if want := *res.rec.Points.TAudio + int64(limit+20*time.Millisecond); c.told > 0 && told[0].MonoNS != want {
				t.Errorf("the stall was told %d ns behind where a player is dry for %v, want at it", told[0].MonoNS-want, limit)
			}
		})
	}
}

// TestC41ToldWhileItLasts: the stall goes out while the stream is open and silent.
func TestC41ToldWhileItLasts(t *testing.T) {
	h := startHung(t, 0, 50*time.Millisecond, false, speechRequest(caseSpeechBody), answerHead("audio/pcm", "X-Sample-Rate: 24000")+httpChunk(sine(2400, 24000)))
	at := h.moment(t, "audio_stall")
	h.uncut(t)
	leave(h.client, true)
	<-h.server
	rec := h.rig.stop()[0]
	wantFlag(t, rec, "audio_stall", true)
	if rec.Terminal.State != timeline.ClientCancelled || at <= *rec.Points.TAudio {
		t.Errorf("state %s, stall %d ns behind t_audio, want client-cancelled and behind", rec.Terminal.State, at-*rec.Points.TAudio)
	}
}

// TestC60FrontLooksHealthy: the child behind a front dies amid a stream: what the
// front then does decides, and its health says nothing.
func TestC60FrontLooksHealthy(t *testing.T) {
	f := startFront(t)
	const streams = 4
	rig := startCaseRig(t, f.base, func(_ *proxy.Config, tc *tap.Config) { tc.Timeline.Deadline = 400 * time.Millisecond })
	var conns []*net.TCPConn
	for range streams {
		c := caseDial(t, rig.addr)
		caseSend(t, c, speechRequest(caseSpeechBody))
		conns = append(conns, c)
	}
	for _, c := range conns {
		readUntil(t, c, len(answerHead("audio/pcm", "X-Sample-Rate: 24000"))+2*len(f.chunk))
	}
	f.kill()
	health := caseDial(t, rig.addr)
	caseSend(t, health, "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if b, _ := io.ReadAll(health); !strings.HasPrefix(string(b), "HTTP/1.1 200") {
		t.Fatalf("the front's health: %q", b)
	}
	waitCase(t, "all deadlines", func() bool {
		n := 0
		for _, e := range rig.events() {
			if e.Event == "deadline" {
				n++
			}
		}
		return n == streams
	})
	for _, c := range conns {
		leave(c, false)
	}
	recs := rig.stop()
	hung := 0
	for _, r := range recs {
		if *r.Path == "/health" {
			wantTerminal(t, r, timeline.Success, "done")
			continue
		}
		wantTerminal(t, r, timeline.DeadlineExceeded, "deadline")
		hung++
	}
	if hung != streams {
		t.Fatalf("%d streams exceeded their deadline, want %d", hung, streams)
	}
	wantIncident(t, recs, streams, "deadline-exceeded/deadline")
}

// TestC60FrontDies: the front dies with its connections: a transport error for each
// request, one incident for all, and the refusals behind it belong to it.
func TestC60FrontDies(t *testing.T) {
	f := startFront(t)
	const streams, refused = 4, 5
	rig := startCaseRig(t, f.base, nil)
	var conns []*net.TCPConn
	for range streams {
		c := caseDial(t, rig.addr)
		caseSend(t, c, speechRequest(caseSpeechBody))
		conns = append(conns, c)
	}
	for _, c := range conns {
		readUntil(t, c, len(answerHead("audio/pcm", "X-Sample-Rate: 24000"))+2*len(f.chunk))
	}
	f.die()
	for _, c := range conns {
		if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client's end = %v, want a reset", err)
		}
	}
	for range refused {
		c := caseDial(t, rig.addr)
		caseSend(t, c, speechRequest(caseSpeechBody))
		if b, _ := io.ReadAll(c); !strings.HasPrefix(string(b), "HTTP/1.1 502") {
			t.Errorf("the answer of a relay without upstream: %.40q", b)
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		leave(c, false)
	}
	recs := rig.stop()
	n := map[string]int{}
	for _, r := range recs {
		n[string(r.Terminal.State)+"/"+r.Terminal.Reason]++
	}
	if n["transport-error/reset"] != streams || n["transport-error/connect_refused"] != refused || len(recs) != streams+refused {
		t.Errorf("ends = %v, want %d reset and %d refused", n, streams, refused)
	}
	wantIncident(t, recs, streams+refused, "transport-error/connect_refused", "transport-error/reset")
}

// TestC56CancelReachesTheServerOfASocket: a client that leaves a session amid a turn
// is gone for the server within 100 ms.
func TestC56CancelReachesTheServerOfASocket(t *testing.T) {
	for _, reset := range []bool{false, true} {
		t.Run(fmt.Sprintf("reset %v", reset), func(t *testing.T) {
			k := startTalks(t, nil)
			w := k.opened()
			asked, _ := w.begin("a")
			w.sound("a", sine(480, 24000))
			at := monoNow()
			leave(w.ends[client], reset)
			if n, err := w.ends[server].Read(make([]byte, 1)); n > 0 || err == nil {
				t.Errorf("the server read %d bytes, %v", n, err)
			}
			if d := time.Duration(monoNow() - at); d > 100*time.Millisecond {
				t.Errorf("the server saw the client leave after %v, want at most 100 ms", d)
			}
			leave(w.ends[server], false)
			recs, _ := k.only(t, 1)
			if recs[0].Terminal.State != timeline.ClientCancelled {
				t.Errorf("terminal = %+v, want client-cancelled", recs[0].Terminal)
			}
			wantLeft(t, recs[0], time.Duration(at-asked.before))
		})
	}
}

// TestC59AbortASocket: a turn's deadline cuts its session, and the turns that were in
// time are not blamed.
func TestC59AbortASocket(t *testing.T) {
	k := startTalks(t, func(p *proxy.Config, tc *tap.Config) {
		p.AbortAfter, tc.Timeline.Deadline = 150*time.Millisecond, 150*time.Millisecond
	})
	w := k.opened()
	w.begin("a")
	w.sound("a", sine(480, 24000))
	w.done("a")
	w.begin("b")
	w.sees(client, syscall.ECONNRESET)
	w.sees(server, syscall.ECONNRESET)
	recs, _ := k.only(t, 2)
	wantTerminal(t, recs[0], timeline.Success, "done")
	wantTerminal(t, recs[1], timeline.DeadlineExceeded, "deadline")
	if e := recs[1].Terminal.Evidence; e["aborted"] != true || recs[1].Terminal.Phase != "before_first_content" {
		t.Errorf("terminal = %+v, want aborted ahead of content", recs[1].Terminal)
	}
	wantMS(t, "jct_ms", recs[1].JCTMS, 150*time.Millisecond, 150*time.Millisecond+10*slack)
}

// wantIncident checks that the report takes the failures for one incident.
func wantIncident(t *testing.T, recs []*timeline.Record, n int, kinds ...string) {
	t.Helper()
	r := report.Tables(all(recs))
	if len(r.Incidents) != 1 {
		t.Fatalf("%d incidents, want 1: %+v", len(r.Incidents), r.Incidents)
	}
	i := r.Incidents[0]
	var got []string
	for _, k := range i.Kinds {
		got = append(got, k.Name)
	}
	if i.Failures != n || i.Connections != n || !slices.Equal(got, kinds) || i.AtWallNS == 0 {
		t.Errorf("incident = %+v, want %d failures as %q", i, n, kinds)
	}
	var text strings.Builder
	if err := r.Render(&text); err != nil || !strings.Contains(text.String(), fmt.Sprintf("%d failures on %d connections", n, n)) {
		t.Errorf("the tables do not tell of the incident: %v\n%s", err, &text)
	}
}

// readUntil reads until n bytes have come.
func readUntil(t *testing.T, c net.Conn, n int) {
	t.Helper()
	if _, err := io.ReadFull(c, make([]byte, n)); err != nil {
		t.Fatal(err)
	}
}

// front is a server whose sound comes from a process behind it: an API server and
// its worker.
type front struct {
	base  string
	chunk string
	kill  func() // ends the worker by SIGKILL
	die   func() // the front itself goes away, by a reset on every connection
}

func startFront(t *testing.T) *front {
	t.Helper()
	f := &front{chunk: httpChunk(sine(240, 24000))}
	worker := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", "while :; do echo x; sleep 0.02; done")
	out, err := worker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	conns := map[*net.TCPConn]bool{} // true where a stream is wanted
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.base = "http://" + ln.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() {
		for in := bufio.NewScanner(out); in.Scan(); {
			mu.Lock()
			for c, on := range conns {
				if on {
					_, _ = io.WriteString(c, f.chunk)
				}
			}
			mu.Unlock()
		}
	})
	serve := func(c *net.TCPConn) {
		defer func() { _ = c.Close() }()
		mu.Lock()
		conns[c] = false
		mu.Unlock()
		request, err := readCaseRequest(c)
		switch {
		case err != nil:
		case strings.HasPrefix(request, "GET /health"):
			_, _ = io.WriteString(c, lengthAnswer("application/json", `{"status":"ok"}`))
		default:
			mu.Lock()
			_, _ = io.WriteString(c, answerHead("audio/pcm", "X-Sample-Rate: 24000"))
			conns[c] = true
			mu.Unlock()
			_, _ = c.Read(make([]byte, 1))
		}
		mu.Lock()
		delete(conns, c)
		mu.Unlock()
	}
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serve(c.(*net.TCPConn)) })
		}
	})
	f.kill = func() { _ = worker.Process.Kill() }
	f.die = func() {
		_ = ln.Close()
		mu.Lock()
		defer mu.Unlock()
		for c := range conns {
			leave(c, true)
		}
	}
	t.Cleanup(func() {
		f.die()
		f.kill()
		wg.Wait()
		_ = worker.Wait()
	})
	return f
}
