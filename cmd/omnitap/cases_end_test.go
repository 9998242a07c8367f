package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock"
	"github.com/omnitap/omnitap/exporter/report"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/proxy"
	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// statusAnswer is an answer with an error status and a JSON body.
func statusAnswer(status int, reason, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, reason, len(body), body)
}

// errorText is OpenAI's error object as vLLM-Omni writes it in mid-stream.
func errorText(message string, code int) string {
	q, _ := json.Marshal(message)
	return fmt.Sprintf(`{"error": {"message": %s, "type": "InternalServerError", "param": null, "code": %d}}`, q, code)
}

// TestC53ErrorInsideA200: what the server said decides, not status nor end marker.
func TestC53ErrorInsideA200(t *testing.T) {
	sse := answerHead("text/event-stream")
	content := ""
	for i := range 3 {
		content += httpChunk(chatText("word"))
		if i < 2 {
			content += httpChunk(chatAudio(wavFile(24000, 1, sineFrom(i*2400, 2400, 24000))))
		}
	}
	done := httpChunk(chatDone) + zeroChunk
	failed := httpChunk(sseData(errorText("mock engine fault", 500)))
	var recs []*timeline.Record
	for _, c := range []struct {
		name, request, answer string
		state                 timeline.State
		reason                string
	}{
		{"a: first event", chatRequest(caseChatBody), sse + failed + done, timeline.ServerError, "http_500"},
		{"b: behind text and audio", chatRequest(caseAudioChat), sse + content + failed + done, timeline.ServerError, "http_500"},
		{"b: without DONE", chatRequest(caseAudioChat), sse + content + failed + zeroChunk, timeline.ServerError, "http_500"},
		{"b: then cut", chatRequest(caseAudioChat), sse + content + failed, timeline.ServerError, "http_500"},
		{"c: event field", chatRequest(caseChatBody), sse + httpChunk("event: error\ndata: {\"message\":\"boom\",\"code\":500}\n\n") + done, timeline.ServerError, "http_500"},
		{
			"d: speech", speechRequest(caseSpeechBody), sse + httpChunk(speechDelta(sine(2400, 24000))) +
				httpChunk("event: speech.audio.error\ndata: {\"type\":\"speech.audio.error\",\"error\":{\"message\":\"boom\",\"type\":\"server_error\",\"param\":null,\"code\":500}}\n\n") + zeroChunk,
			timeline.ServerError, "http_500",
		},
		{"e: string", chatRequest(caseChatBody), sse + httpChunk(sseData(`{"error":"boom"}`)) + done, timeline.ServerError, "server_error"},
		{"f: JSON body", chatRequest(caseChatBody), lengthAnswer("application/json", errorText("boom", 500)), timeline.ServerError, "http_500"},
		{"f: JSON body, speech", speechRequest(caseSpeechBody), lengthAnswer("application/json", `{"error":"boom"}`), timeline.ServerError, "server_error"},
		{"engine dead", chatRequest(caseAudioChat), sse + content + httpChunk(sseData(errorText("EngineDeadError: EngineCore encountered an issue.", 500))) + done, timeline.WorkerLost, "engine_dead"},
		{"stage dead", chatRequest(caseAudioChat), sse + content + httpChunk(sseData(errorText("Dead stage process(es) detected: talker (pid=7, exit=-9)", 500))) + done, timeline.WorkerLost, "engine_dead"},
		{"no replica", chatRequest(caseChatBody), sse + httpChunk(sseData(errorText("no available replica for stage 1", 503))) + done, timeline.WorkerLost, "engine_dead"},
		{"memory", chatRequest(caseChatBody), sse + httpChunk(sseData(errorText("CUDA out of memory. Tried to allocate 2.00 GiB", 500))) + done, timeline.OOM, "out_of_memory"},
		{"g: the word", chatRequest(caseChatBody), sse + httpChunk(chatText(`data: {"error":"x"} is an error`)) + httpChunk(chatFinish) + done, timeline.Success, "done"},
		{"g: null", chatRequest(caseChatBody), sse + httpChunk(strings.Replace(chatText("Hi"), `"object"`, `"error":null,"object"`, 1)) + httpChunk(chatFinish) + done, timeline.Success, "done"},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, nil, c.request, endFIN, caseWrite{data: c.answer})
			wantTerminal(t, res.rec, c.state, c.reason)
			recs = append(recs, res.rec)
			if c.state == timeline.Success {
				return
			}
			if res.rec.Terminal.By != "server" || *res.rec.Status != 200 || res.rec.Terminal.Evidence["in_stream"] != true {
				t.Errorf("terminal = %+v, status %d, want the server's word inside a 200", res.rec.Terminal, *res.rec.Status)
			}
			if strings.HasPrefix(c.name, "b") { // partial counts are told
				wantInt(t, "text_units", res.rec.TextUnits, 3)
				wantSamples(t, res.rec, 4800, 2)
			}
		})
	}
	tables := report.Tables(all(recs))
	for _, f := range tables.Flows {
		for _, m := range f.Metrics {
			if m.Of != f.Success || m.Over.N > f.Success {
				t.Errorf("%s %s is over %d of %d, want successes alone (%d)", f.Name, m.Name, m.Over.N, m.Of, f.Success)
			}
		}
	}
}

// TestC54A200WithNothing: no output is no success, however clean.
func TestC54A200WithNothing(t *testing.T) {
	sse := answerHead("text/event-stream")
	usage := sseData(`{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":0,"total_tokens":3}}`)
	for _, c := range []struct {
		name, request, answer string
		wait                  time.Duration
	}{
		{"DONE alone", chatRequest(caseChatBody), sse + httpChunk(chatDone) + zeroChunk, 0},
		{"reason and DONE", chatRequest(caseChatBody), sse + httpChunk(chatFinish) + httpChunk(chatDone) + zeroChunk, 0},
		{"zero-length stream", chatRequest(caseChatBody), sse + zeroChunk, 0},
		{"zero-length JSON", chatRequest(caseChatBody), lengthAnswer("application/json", ""), 0},
		{"JSON without choices", chatRequest(caseChatBody), lengthAnswer("application/json", `{"id":"chatcmpl-1","object":"chat.completion","choices":[]}`), 0},
		{"empty object", chatRequest(caseChatBody), lengthAnswer("application/json", `{}`), 0},
		{"zero-length sound", speechRequest(caseSpeechBody), answerHead("audio/pcm", "X-Sample-Rate: 24000") + zeroChunk, 0},
		{"zero-length file", speechRequest(caseWAVBody), lengthAnswer("audio/wav", ""), 0},
		{"usage alone", chatRequest(caseChatBody), sse + httpChunk(usage) + httpChunk(chatDone) + zeroChunk, 0},
		{"done event alone", speechRequest(caseSpeechBody), sse + httpChunk(speechDone) + zeroChunk, 0},
		{"header alone", speechRequest(caseWAVBody), lengthAnswer("audio/wav", wavHead(24000, 1, 0)), 0},
		{"streaming header alone", speechRequest(caseWAVBody), answerHead("audio/wav") + httpChunk(wavHead(24000, 1, 0xffffffff)) + zeroChunk, 0},
		{"nothing for long", chatRequest(caseChatBody), sse + zeroChunk, 150 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, nil, c.request, endFIN, caseWrite{wait: c.wait, data: c.answer})
			wantTerminal(t, res.rec, timeline.InvalidOutput, "no_output")
			wantNull(t, "ttft_ms", res.rec.TTFTMS)
			wantNull(t, "ttfa_ms", res.rec.TTFAMS)
			wantNull(t, "rtf", res.rec.RTF)
			wantMS(t, "jct_ms", res.rec.JCTMS, max(c.wait, 1), c.wait+10*slack)
		})
	}
}

// paced is an upstream that sends head, then chunk every gap, until the
// connection fails; it tells how its reading ended and when.
type paced struct {
	base   string
	chunks atomic.Int64
	gone   chan int64 // CLOCK_MONOTONIC at which the client's end was seen
}

func startPaced(t testing.TB, head string, chunk func(i int) string, gap time.Duration) *paced {
	t.Helper()
	p := &paced{gone: make(chan int64, 1)}
	p.base = caseUpstream(t, func(c *net.TCPConn, _ int) {
		_, _ = readCaseRequest(c)
		left := make(chan struct{})
		go func() {
			_, _ = c.Read(make([]byte, 1))
			p.gone <- monoNow()
			close(left)
		}()
		if _, err := io.WriteString(c, head); err != nil {
			return
		}
		tick := time.NewTicker(gap)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-left: // as the real servers do: a FIN is a wish to cancel
				return
			case <-tick.C:
			}
			if _, err := io.WriteString(c, chunk(i)); err != nil {
				return
			}
			p.chunks.Add(1)
		}
	})
	return p
}

// leave closes a client connection, with RST where reset.
func leave(c *net.TCPConn, reset bool) {
	if reset {
		_ = c.SetLinger(0)
	}
	_ = c.Close()
}

// TestC55ClientLeaves: the client closes a stream at 60 ms, at what looks like a
// timeout, or while it does not read.
func TestC55ClientLeaves(t *testing.T) {
	for _, c := range []struct {
		name         string
		reset, blind bool
		after        time.Duration
	}{
		{"a: close", false, false, 60 * time.Millisecond},
		{"a: reset", true, false, 60 * time.Millisecond},
		{"a: close with bytes unread", false, true, 60 * time.Millisecond},
		{"f: own timeout", false, true, 300 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := startPaced(t, answerHead("text/event-stream"), func(int) string { return httpChunk(chatText("word")) }, 20*time.Millisecond)
			rig := startCaseRig(t, p.base, nil)
			conn := caseDial(t, rig.addr)
			from := monoNow()
			caseSend(t, conn, chatRequest(caseChatBody))
			_ = conn.SetReadDeadline(time.Now().Add(c.after))
			if c.blind {
				<-time.NewTimer(c.after).C // the client's patience
			} else {
				_, _ = io.Copy(io.Discard, conn)
			}
			at := monoNow()
			leave(conn, c.reset)
			seen := <-p.gone
			if d := time.Duration(seen - at); d > 100*time.Millisecond {
				t.Errorf("the server saw the client leave after %v, want at most 100 ms", d)
			}
			rec := rig.stop()[0]
			checkNulls(t, rec)
			if rec.Terminal.State != timeline.ClientCancelled || rec.Terminal.By != "client" || rec.Terminal.Evidence["closed_first"] != "client" {
				t.Errorf("terminal = %+v, want client-cancelled by the client", rec.Terminal)
			}
			age := time.Duration(at - from)
			wantMS(t, "jct_ms", rec.JCTMS, age-5*time.Millisecond, age+100*time.Millisecond)
			wantLeft(t, rec, age)
		})
	}
}

// wantLeft checks what the evidence tells of a client that left at an age: a round
// one is its own timeout (case C55), and the server was told at once (case C56);
// what the server then did is not known.
func wantLeft(t testing.TB, rec *timeline.Record, age time.Duration) {
	t.Helper()
	e := rec.Terminal.Evidence
	got, ok := e["age_ms"].(float64)
	if d := time.Duration(got*1e6) - age; !ok || d < -5*time.Millisecond || d > 100*time.Millisecond {
		t.Errorf("age_ms = %v, want about %v", e["age_ms"], age)
	}
	if told, ok := e["cancel_propagated_ms"].(float64); !ok || told < 0 || told > 100 {
		t.Errorf("cancel_propagated_ms = %v, want 0 to 100", e["cancel_propagated_ms"])
	}
	if e["server_stopped"] != "unknown" {
		t.Errorf("server_stopped = %v, want unknown", e["server_stopped"])
	}
}

// TestC55UpstreamResets: a reset of the server's is the server's, also when the
// client leaves right behind it.
func TestC55UpstreamResets(t *testing.T) {
	t.Run("c", func(t *testing.T) {
		writes := []caseWrite{{data: answerHead("text/event-stream")}}
		for range 5 {
			writes = append(writes, caseWrite{wait: 5 * time.Millisecond, data: httpChunk(chatText("word"))})
		}
		res := exchangeCase(t, nil, chatRequest(caseChatBody), endRST, writes...)
		wantTerminal(t, res.rec, timeline.TransportError, "reset")
		if res.rec.Terminal.By != "server" {
			t.Errorf("by = %s, want server", res.rec.Terminal.By)
		}
	})
	t.Run("d", func(t *testing.T) {
		const rounds = 25
		reset := make(chan struct{}, rounds)
		up := caseUpstream(t, func(c *net.TCPConn, _ int) {
			_, _ = readCaseRequest(c)
			caseSend(t, c, answerHead("text/event-stream")+httpChunk(chatText("word")))
			_, _ = io.ReadFull(c, make([]byte, 1)) // the client has it
			leave(c, true)
			reset <- struct{}{}
		})
		rig := startCaseRig(t, up, nil)
		for range rounds {
			c := caseDial(t, rig.addr)
			caseSend(t, c, chatRequest(caseChatBody))
			got := make([]byte, len(answerHead("text/event-stream")+httpChunk(chatText("word"))))
			if _, err := io.ReadFull(c, got); err != nil {
				t.Fatal(err)
			}
			caseSend(t, c, "\r") // an empty line ahead of a next request: no request
			<-reset
			<-time.NewTimer(time.Millisecond).C // the case's millisecond
			_ = c.Close()
		}
		for _, rec := range rig.stop() {
			if rec.Terminal.State != timeline.TransportError || rec.Terminal.By != "server" {
				t.Fatalf("terminal = %+v, want transport-error by the server", rec.Terminal)
			}
		}
	})
}

// TestC55ClientLeavesBehindTheMarker: what comes behind the end marker is no state.
func TestC55ClientLeavesBehindTheMarker(t *testing.T) {
	for _, c := range []struct{ name, request, answer string }{
		{"e: chat", chatRequest(caseChatBody), httpChunk(chatText("Hi")) + httpChunk(chatFinish) + httpChunk(chatDone)},
		{"e: speech", speechRequest(caseSpeechBody), httpChunk(speechDelta(sine(2400, 24000))) + httpChunk(speechDone)},
	} {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reset %v", c.name, reset), func(t *testing.T) {
				answer := answerHead("text/event-stream") + c.answer
				up := caseUpstream(t, func(conn *net.TCPConn, _ int) {
					_, _ = readCaseRequest(conn)
					caseSend(t, conn, answer)
					_, _ = conn.Read(make([]byte, 1)) // until the client has left
					_, _ = io.WriteString(conn, zeroChunk)
				})
				rig := startCaseRig(t, up, nil)
				conn := caseDial(t, rig.addr)
				caseSend(t, conn, c.request)
				if _, err := io.ReadFull(conn, make([]byte, len(answer))); err != nil {
					t.Fatal(err)
				}
				leave(conn, reset)
				waitCase(t, "the connection to end", func() bool { return rig.server.Open() == 0 })
				rec := rig.stop()[0]
				checkNulls(t, rec)
				wantTerminal(t, rec, timeline.Success, "done")
			})
		}
	}
}

// TestC56CancelReachesTheServer: within 100 ms, in mid-stream and while nothing
// has been sent yet.
func TestC56CancelReachesTheServer(t *testing.T) {
	hundred := mock.Script{Chunks: 100, Samples: mock.Ints{480}, GapMS: mock.Floats{10}}
	queued := mock.Script{HeaderDelayMS: 60000}
	thinking := mock.Script{FirstDelayMS: new(60000.0)}
	for _, c := range []struct {
		name, request string
		script        mock.Script
		chunks        int // that the client waits for
		phase         string
	}{
		{"stream", speechRequest(`{"model":"m","input":"hi","stream_format":"audio","response_format":"pcm"}`), hundred, 3, "content"},
		{"stream, nothing yet", chatRequest(caseChatBody), thinking, 0, "before_first_content"},
		{"stream, queued", chatRequest(caseChatBody), queued, 0, "before_headers"},
		{"whole, queued", chatRequest(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`), queued, 0, "before_headers"},
	} {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reset %v", c.name, reset), func(t *testing.T) {
				m, base := caseMock(t, mock.Config{Script: c.script})
				rig := startCaseRig(t, base, nil)
				conn := caseDial(t, rig.addr)
				from := monoNow()
				caseSend(t, conn, c.request)
				waitCase(t, "the mock to have the request", func() bool { return len(m.Requests()) == 1 })
				if c.phase != "before_headers" {
					r := bufio.NewReader(conn)
					for line := ""; line != "\r\n"; {
						line, _ = r.ReadString('\n')
					}
					_, _ = io.ReadFull(r, make([]byte, c.chunks*970))
				}
				at := monoNow()
				leave(conn, reset)
				waitCase(t, "the mock to see it", func() bool { return m.Requests()[0].Stamps.ClientClosedNS != 0 })
				truth := m.Requests()[0]
				if d := time.Duration(truth.Stamps.ClientClosedNS - at); d > 100*time.Millisecond {
					t.Errorf("the server saw the client leave after %v, want at most 100 ms", d)
				}
				waitCase(t, "the connection to end", func() bool { return rig.server.Open() == 0 })
				rec := rig.stop()[0]
				checkNulls(t, rec)
				if rec.Terminal.State != timeline.ClientCancelled || rec.Terminal.By != "client" || rec.Terminal.Phase != c.phase {
					t.Errorf("terminal = %+v, want client-cancelled in phase %s", rec.Terminal, c.phase)
				}
				wantLeft(t, rec, time.Duration(at-from))
				wantNull(t, "cancel_quiesce_ms", rec.CancelQuiesceMS)
				if len(truth.SamplesPerChunk) > 20 {
					t.Errorf("the server sent %d chunks to nobody", len(truth.SamplesPerChunk)-c.chunks)
				}
			})
		}
	}
}

// oomText is what a failed allocation says.
const oomText = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.20 GiB is free."

// TestC58OutOfMemoryInDisguise: an error that names memory is one, an assistant's
// message is content.
func TestC58OutOfMemoryInDisguise(t *testing.T) {
	sse := answerHead("text/event-stream")
	end := httpChunk(chatFinish) + httpChunk(chatDone) + zeroChunk
	whole := func(s string) string {
		q, _ := json.Marshal(s)
		return lengthAnswer("application/json", `{"id":"chatcmpl-1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":`+string(q)+`},"finish_reason":"stop"}]}`)
	}
	for _, c := range []struct {
		name, request, answer string
		state                 timeline.State
		reason                string
	}{
		{"first: status 500", chatRequest(caseChatBody), statusAnswer(500, "Internal Server Error", errorText(oomText, 500)), timeline.OOM, "out_of_memory"},
		{"first: torch's type", chatRequest(caseChatBody), statusAnswer(500, "Internal Server Error", `{"error":{"message":"stage 1 failed","type":"OutOfMemoryError","code":500}}`), timeline.OOM, "out_of_memory"},
		{"first: detail", chatRequest(caseChatBody), statusAnswer(500, "Internal Server Error", `{"detail":"`+oomText+`"}`), timeline.OOM, "out_of_memory"},
		{"third: exact envelope", chatRequest(caseChatBody), lengthAnswer("application/json", errorText(oomText, 500)), timeline.OOM, "out_of_memory"},
		{"third: message", chatRequest(caseChatBody), whole(oomText), timeline.Success, "done"},
		{"third: streamed message", chatRequest(caseChatBody), sse + httpChunk(chatText(oomText)) + end, timeline.Success, "done"},
		{
			"last: speech about it", speechRequest(`{"model":"m","input":"The GPU is out of memory.","stream":true,"response_format":"pcm"}`),
			answerHead("audio/pcm", "X-Sample-Rate: 24000") + httpChunk(sine(2400, 24000)) + zeroChunk, timeline.Success, "done",
		},
		{"last: text about it", chatRequest(caseChatBody), sse + httpChunk(chatText("If you run out of memory, use a smaller batch.")) + end, timeline.Success, "done"},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, nil, c.request, endFIN, caseWrite{data: c.answer})
			wantTerminal(t, res.rec, c.state, c.reason)
			suspicious := strings.HasPrefix(c.name, "third") && c.state == timeline.Success
			if has := slices.ContainsFunc(res.rec.Flags, func(f string) bool { return strings.Contains(f, "oom") || strings.Contains(f, "memory") }); has != suspicious {
				t.Errorf("a flag names the suspicion: %v, want %v; flags %q", has, suspicious, res.rec.Flags)
			}
		})
	}
}

// TestC59DeadlineOfTheServers: a 504 is a deadline, and so is a 500 that says so.
func TestC59DeadlineOfTheServers(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		state        timeline.State
		reason       string
	}{
		{"c: JSON", statusAnswer(504, "Gateway Timeout", errorText("generation took too long", 504)), timeline.DeadlineExceeded, "upstream"},
		{"c: no body", "HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\n\r\n", timeline.DeadlineExceeded, "upstream"},
		{"c: a page", "HTTP/1.1 504 Gateway Timeout\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<h1>504</h1>\n", timeline.DeadlineExceeded, "upstream"},
		{"d: companion deadline", statusAnswer(500, "Internal Server Error", errorText("deferred parent: companion deadline of 300 s exceeded", 500)), timeline.DeadlineExceeded, "upstream_by_text"},
		{"d: timed out", statusAnswer(500, "Internal Server Error", `{"detail":"stage 2 timed out"}`), timeline.DeadlineExceeded, "upstream_by_text"},
		{"d: inside a 200", answerHead("text/event-stream") + httpChunk(sseData(errorText("companion deadline exceeded", 500))) + httpChunk(chatDone) + zeroChunk, timeline.DeadlineExceeded, "upstream_by_text"},
		{"another 500", statusAnswer(500, "Internal Server Error", errorText("boom", 500)), timeline.ServerError, "http_500"},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, nil, chatRequest(caseChatBody), endFIN, caseWrite{data: c.answer})
			wantTerminal(t, res.rec, c.state, c.reason)
			if res.rec.Terminal.By != "server" {
				t.Errorf("by = %s, want server", res.rec.Terminal.By)
			}
		})
	}
}

// relayChildEnv makes TestC61RelayChild the relay process of another test: its
// value is the upstream.
const relayChildEnv = "OMNITAP_CASE_RELAY"

// recordMark leads the lines on which the child prints records.
const recordMark = "record: "

// TestC61RelayChild is no test of its own: it is the relay with few descriptors.
func TestC61RelayChild(t *testing.T) {
	upstream := os.Getenv(relayChildEnv)
	if upstream == "" {
		t.Skip("the child of TestC61OutOfDescriptors")
	}
	rig := startCaseRig(t, upstream, nil)
	waitCase(t, "the loop", func() bool { return openAs(t, "anon_inode:[eventpoll]") == 2 && openAs(t, "anon_inode:[eventfd]") == 2 }) // Go's, and the relay's loop's
	limit := syscall.Rlimit{Cur: limitFor(t, 2*10+1), Max: 1024}                                                                       // ten streams, and one to accept with
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprintln(os.Stdout, "addr "+rig.addr)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent has seen enough
	for _, r := range rig.stop() {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(os.Stdout, "%s%s\n", recordMark, b)
	}
}

// openAs counts the open descriptors of that name.
func openAs(t testing.TB, name string) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range open {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to == name {
			n++
		}
	}
	return n
}

// limitFor returns the limit of descriptors below which free numbers are unused.
func limitFor(t testing.TB, free int) uint64 {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd") // its own is closed again
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, e := range open {
		if _, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			used[e.Name()] = true
		}
	}
	n := 0
	for ; free > 0; n++ {
		if !used[strconv.Itoa(n)] {
			free--
		}
	}
	return uint64(n)
}

// TestC61OutOfDescriptors: the relay runs out of descriptors with streams open;
// these go on, what cannot be served is our own fault, and it passes.
func TestC61OutOfDescriptors(t *testing.T) {
	const streams = 40
	answer := answerHead("text/event-stream") + httpChunk(chatText("Hi"))
	end := httpChunk(chatFinish) + httpChunk(chatDone) + zeroChunk
	release := make(chan struct{})
	up := caseUpstream(t, func(c *net.TCPConn, _ int) {
		_, _ = readCaseRequest(c)
		caseSend(t, c, answer)
		<-release
		caseSend(t, c, end)
	})
	lines, stop := startRelayChild(t, up)
	addr := strings.TrimPrefix(<-lines, "addr ")
	var held []*net.TCPConn
	refused := 0
	for range streams {
		c := caseDial(t, addr)
		caseSend(t, c, chatRequest(caseChatBody))
		got := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(c, got); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(string(got), "200") {
			held = append(held, c)
			continue
		}
		rest, _ := io.ReadAll(c)
		if !strings.HasSuffix(string(got), "502") || !strings.Contains(string(rest), "out_of_descriptors") {
			t.Fatalf("got %q, want a 502 that names the reason", string(got)+string(rest))
		}
		_ = c.Close() // the relay keeps the descriptor until it has
		refused++
	}
	close(release)
	for _, c := range held {
		got, err := io.ReadAll(c)
		if err != nil || "HTTP/1.1 200"+string(got) != answer+end {
			t.Errorf("a stream that was open got %q, %v", got, err)
		}
		_ = c.Close()
	}
	if refused == 0 || len(held) == 0 {
		t.Fatalf("%d streams, %d refusals, want some of both", len(held), refused)
	}
	stop()
	states := map[string]int{}
	for line := range lines {
		raw, ok := strings.CutPrefix(line, recordMark)
		if !ok {
			continue
		}
		var r timeline.Record
		if err := json.Unmarshal([]byte(raw), &r); err != nil {
			t.Fatal(err)
		}
		states[fmt.Sprintf("%s/%s/%v/%s", r.Terminal.State, r.Terminal.Reason, r.Terminal.Evidence["errno"], r.Terminal.By)]++
	}
	if n := states["success/done/<nil>/server"]; n != len(held) {
		t.Errorf("%d successes, want %d; all: %v", n, len(held), states)
	}
	if n := states["harness-error/out_of_descriptors/EMFILE/relay"]; n != refused {
		t.Errorf("%d harness errors, want %d; all: %v", n, refused, states)
	}
}

// startRelayChild runs the test binary as a relay; its lines end when it does.
func startRelayChild(t *testing.T, upstream string) (lines <-chan string, stop func()) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestC61RelayChild$", "-test.count=1")
	cmd.Env = append(os.Environ(), relayChildEnv+"="+upstream)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	all := make(chan string, 1024)
	go func() {
		defer close(all)
		s := bufio.NewScanner(out)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			all <- s.Text()
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the relay's process: %v", err)
		}
	}()
	return all, func() { _ = in.Close() }
}

// TestC61FullDisk: the run directory's file system is full: requests pass as ever,
// and metadata.json names the loss.
func TestC61FullDisk(t *testing.T) {
	if os.Geteuid() != 0 && os.Getenv("REQUIRE_KERNEL") != "1" {
		t.Skip("mounting a tmpfs needs root")
	}
	disk := t.TempDir()
	err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64k,mode=0700")
	if errors.Is(err, unix.EPERM) && os.Getenv("REQUIRE_KERNEL") != "1" {
		t.Skip("root without CAP_SYS_ADMIN cannot mount a tmpfs")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Errorf("unmounting: %v", err)
		}
	})
	answer := answerHead("text/event-stream") + strings.Repeat(httpChunk(chatText("word")), 50) + httpChunk(chatFinish) + httpChunk(chatDone) + zeroChunk
	up := caseUpstream(t, func(c *net.TCPConn, _ int) {
		_, _ = readCaseRequest(c)
		caseSend(t, c, answer)
	})
	dir := filepath.Join(disk, "run")
	f := &serveFlags{fileConfig: fileConfig{Upstream: up, Listen: "127.0.0.1:0", Admin: "off", Log: "off", Out: dir}}
	var complaints bytes.Buffer
	s, err := (&app{io.Discard, &complaints}).build(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx) }()
	const requests = 40 // some 400 KiB of events
	for i := range requests {
		c := caseDial(t, s.listener.Addr().String())
		caseSend(t, c, chatRequest(caseChatBody))
		got, err := io.ReadAll(c)
		if err != nil || string(got) != answer {
			t.Fatalf("request %d got %d bytes, %v, want %d", i, len(got), err, len(answer))
		}
		_ = c.Close()
	}
	cancel()
	if err := <-ended; !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("run ended with %v, want ENOSPC", err)
	}
	run, err := rundir.Read(dir)
	if err != nil || run.MetadataErr != nil {
		t.Fatalf("reading the run: %v, metadata %v", err, run.MetadataErr)
	}
	files := run.Metadata.Files
	if files.Events.LostLines == 0 || files.Requests.Lines+files.Requests.LostLines != requests {
		t.Errorf("metadata: requests %+v, events %+v, want the loss named and %d requests accounted for", files.Requests, files.Events, requests)
	}
	if !strings.Contains(complaints.String(), "not writable") {
		t.Errorf("the log says %q, want that the directory is not writable", complaints.String())
	}
}

// TestC61MalformedByTheDriver: a 400 is the request's fault (contract section 5).
func TestC61MalformedByTheDriver(t *testing.T) {
	res := exchangeCase(t, nil, chatRequest(`{"model":`), endFIN, caseWrite{data: statusAnswer(400, "Bad Request", errorText("Expecting value", 400))})
	wantTerminal(t, res.rec, timeline.InvalidRequest, "http_400")
}

// TestC62RudeClients: an abnormal end is that client's alone.
func TestC62RudeClients(t *testing.T) {
	upload := post("/v1/audio/transcriptions", strings.Repeat("u", 256<<10))
	for _, c := range []struct {
		name, sent string
		reset      bool
		reason     string
	}{
		{"reset in mid-upload", upload[:100<<10], true, "client_reset"},
		{"close in mid-upload", upload[:100<<10], false, "half_closed"},
		{"half a head", "POST /v1/audio/speech HTTP/1.1\r\nHo", false, "half_closed"},
		{"half a head, reset", "POST /v1/audio/speech HTTP/1.1\r\nHo", true, "client_reset"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got bytes.Buffer
			ended := make(chan error, 1)
			up := caseUpstream(t, func(conn *net.TCPConn, n int) {
				if n > 0 {
					_, _ = readCaseRequest(conn)
					caseSend(t, conn, lengthAnswer("text/plain", "ok"))
					return
				}
				b := make([]byte, 64<<10)
				for {
					m, err := conn.Read(b)
					got.Write(b[:m])
					if err != nil {
						ended <- err
						return
					}
				}
			})
			rig := startCaseRig(t, up, nil)
			conn := caseDial(t, rig.addr)
			caseSend(t, conn, c.sent)
			waitCase(t, "the relay to pass it on", func() bool { return unsent(t, conn) == 0 })
			leave(conn, c.reset)
			err := <-ended
			if c.reset != errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the server saw %v, want a reset: %v", err, c.reset)
			}
			if !c.reset && got.String() != c.sent {
				t.Errorf("the server got %d bytes, want the %d that were sent", got.Len(), len(c.sent))
			}
			next := caseDial(t, rig.addr)
			caseSend(t, next, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
			if b, err := io.ReadAll(next); err != nil || !strings.HasSuffix(string(b), "ok") {
				t.Errorf("the next client got %q, %v", b, err)
			}
			_ = next.Close()
			recs := rig.stop()
			if len(recs) != 2 {
				t.Fatalf("%d records, want 2", len(recs))
			}
			byConnection(recs)
			checkNulls(t, recs[0])
			wantTerminal(t, recs[0], timeline.ClientCancelled, c.reason)
			wantTerminal(t, recs[1], timeline.Success, "done")
		})
	}
}

// byConnection sorts records: connections are read by several workers.
func byConnection(recs []*timeline.Record) {
	slices.SortStableFunc(recs, func(a, b *timeline.Record) int { return cmp.Compare(a.ConnectionID, b.ConnectionID) })
}

// unsent returns how many bytes a peer has not acknowledged.
func unsent(t testing.TB, c *net.TCPConn) int {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n
}

// TestC62ServerDiesOfARudeClient: what follows is a transport error that names its
// neighbour in time.
func TestC62ServerDiesOfARudeClient(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	died := make(chan struct{})
	go func() { // a server that one rude close ends
		defer close(died)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		_ = ln.Close()
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}()
	rig := startCaseRig(t, "http://"+ln.Addr().String(), nil)
	c := caseDial(t, rig.addr)
	caseSend(t, c, post("/v1/audio/transcriptions", strings.Repeat("u", 1<<10))[:500])
	waitCase(t, "the relay to pass it on", func() bool { return unsent(t, c) == 0 })
	leave(c, true)
	<-died
	next := caseDial(t, rig.addr)
	caseSend(t, next, chatRequest(caseChatBody))
	if b, _ := io.ReadAll(next); !strings.Contains(string(b), "connect_refused") {
		t.Errorf("the next client got %q, want a 502 that says refused", b)
	}
	_ = next.Close()
	recs := rig.stop()
	if len(recs) != 2 {
		t.Fatalf("%d records, want 2", len(recs))
	}
	byConnection(recs)
	wantTerminal(t, recs[0], timeline.ClientCancelled, "client_reset")
	wantTerminal(t, recs[1], timeline.TransportError, "connect_refused")
	t.Run("link", func(t *testing.T) {
		b, err := json.Marshal(recs[1])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), "client_abort") {
			t.Errorf("nothing in the record says that it started within 5 s of a client's abort: terminal %+v, flags %q, warnings %q", recs[1].Terminal, recs[1].Flags, recs[1].Warnings)
		}
	})
}

// TestC63ClientsThatDoNotRead: the server is slowed, memory is bounded, others
// notice nothing, the record says so.
func TestC63ClientsThatDoNotRead(t *testing.T) {
	const clients, offered, perClient = 50, 8 << 20, 256 << 10
	chunk := httpChunk(pcmOf(16<<10, func(i int) int { return int(16384 * math.Sin(2*math.Pi*float64(i%64)/64)) }))
	var accepted atomic.Int64
	up := caseUpstream(t, func(c *net.TCPConn, _ int) {
		_ = c.SetWriteBuffer(64 << 10)
		req, _ := readCaseRequest(c)
		if strings.Contains(req, "/v1/chat") {
			echoStream(c)
			return
		}
		if _, err := io.WriteString(c, answerHead("audio/pcm", "X-Sample-Rate: 24000")); err != nil {
			return
		}
		for n := 0; n < offered; n += 32 << 10 {
			if _, err := io.WriteString(c, chunk); err != nil {
				return
			}
			accepted.Add(32 << 10)
		}
		_, _ = io.WriteString(c, zeroChunk)
	})
	rig := startCaseRig(t, up, func(_ *proxy.Config, c *tap.Config) {
		c.Timeline.Hash, c.Timeline.NoEvents = "off", true // this rig would keep them in memory
		c.Timeline.Checks.Off = true                       // with the race detector they take tens of seconds of that much sound
	})
	echo := openEcho(t, rig.addr)
	before := echo.delays(t, 200)
	debug.FreeOSMemory()
	memory, used := rss(), inUse()
	var idle []*net.TCPConn
	for range clients {
		c := caseDial(t, rig.addr)
		_ = c.SetReadBuffer(64 << 10)
		caseSend(t, c, speechRequest(caseSpeechBody))
		if _, err := io.ReadFull(c, make([]byte, 1<<10)); err != nil {
			t.Fatal(err)
		}
		idle = append(idle, c)
	}
	waitStill(t, &accepted)
	if got := accepted.Load(); got >= clients*offered {
		t.Errorf("the server got rid of all %d bytes, want its writes to block", got)
	}
	waitCase(t, "the analysis", func() bool { return rig.queued() == 0 })
	debug.FreeOSMemory() // what analysis used while the kernel's buffers filled is free
	debug.FreeOSMemory()
	// with the race detector each byte that was ever in use has several beside it
	if grown, bound := rss()-memory, int64(clients*perClient); grown > bound && !raceEnabled() {
		t.Errorf("resident memory grew by %d KiB, want at most %d (%d clients × 256 KiB)", grown>>10, bound>>10, clients)
	}
	if grown, bound := inUse()-used, int64(clients*perClient); grown > bound {
		t.Errorf("memory in use grew by %d KiB, want at most %d (%d clients × 256 KiB)", grown>>10, bound>>10, clients)
	}
	after := echo.delays(t, 200)
	echo.close()
	if p := after[len(after)*9/10]; p > before[len(before)*9/10]+5*time.Millisecond {
		t.Errorf("another stream's p90 went from %v to %v", before[len(before)*9/10], p)
	}
	finishIdle(t, idle)
	checkSlow(t, rig.stop(), clients)
}

// inUse returns the bytes of heap and stacks that are in use.
func inUse() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// finishIdle lets half of the clients read on and the others leave.
func finishIdle(t *testing.T, idle []*net.TCPConn) {
	t.Helper()
	var wg sync.WaitGroup
	for i, c := range idle {
		if i%2 == 1 {
			leave(c, true)
			continue
		}
		wg.Go(func() {
			if _, err := io.Copy(io.Discard, c); err != nil {
				t.Errorf("reading on: %v", err)
			}
			_ = c.Close()
		})
	}
	wg.Wait()
}

func checkSlow(t *testing.T, recs []*timeline.Record, clients int) {
	t.Helper()
	states, slow := map[timeline.State]int{}, map[timeline.State]int{}
	for _, r := range recs {
		if r.Flow != "speech" {
			continue
		}
		states[r.Terminal.State]++
		if slices.Contains(r.Flags, "client_slow") {
			slow[r.Terminal.State]++
		}
		if r.Terminal.State == timeline.Success {
			wantInt(t, "audio.samples", r.Audio.Samples, 4<<20)
		}
	}
	want := map[timeline.State]int{timeline.Success: clients / 2, timeline.ClientCancelled: clients / 2}
	for state, n := range want {
		if states[state] != n {
			t.Errorf("%d of %s, want %d; all: %v", states[state], state, n, states)
		}
		if slow[state] != n {
			t.Errorf("%d of %s say client_slow, want %d", slow[state], state, n)
		}
	}
}

// waitStill waits until a counter has not moved for 300 ms.
func waitStill(t *testing.T, n *atomic.Int64) {
	t.Helper()
	last, since := n.Load(), time.Now()
	waitCase(t, "the writes to block", func() bool {
		if v := n.Load(); v != last {
			last, since = v, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	})
}

// raceEnabled tells by the build's settings whether the race detector runs.
func raceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}

// echoStream answers each byte with an event of its own.
func echoStream(c *net.TCPConn) {
	_, _ = io.WriteString(c, answerHead("text/event-stream"))
	b := make([]byte, 1)
	for {
		if _, err := c.Read(b); err != nil {
			return
		}
		if _, err := io.WriteString(c, httpChunk(chatText("w"))); err != nil {
			return
		}
	}
}

// echoClient measures a stream that goes on beside others.
type echoClient struct{ c *net.TCPConn }

func openEcho(t testing.TB, addr string) *echoClient {
	t.Helper()
	c := caseDial(t, addr)
	caseSend(t, c, chatRequest(caseChatBody))
	if _, err := io.ReadFull(c, make([]byte, len(answerHead("text/event-stream")))); err != nil {
		t.Fatal(err)
	}
	return &echoClient{c}
}

// delays returns n sorted round trips.
func (e *echoClient) delays(t testing.TB, n int) []time.Duration {
	t.Helper()
	var out []time.Duration
	b := make([]byte, len(httpChunk(chatText("w"))))
	for range n {
		at := time.Now()
		caseSend(t, e.c, "\r")
		if _, err := io.ReadFull(e.c, b); err != nil {
			t.Fatal(err)
		}
		out = append(out, time.Since(at))
	}
	slices.Sort(out)
	return out
}

func (e *echoClient) close() { _ = e.c.Close() }

// blockedSink keeps analysis waiting until it is released.
type blockedSink struct {
	caseSink

	release chan struct{}
}

func (s *blockedSink) Event(e *timeline.Event) {
	<-s.release
	s.caseSink.Event(e)
}

// blockedRig is a relay whose analysis gets stuck at its first event.
type blockedRig struct {
	addr    string
	server  *proxy.Server
	sink    *blockedSink
	dropped func() int64
	stop    func() // releases the sink and ends the relay
}

func startBlockedRig(t testing.TB, upstream string, tc tap.Config) *blockedRig {
	t.Helper()
	r := &blockedRig{sink: &blockedSink{release: make(chan struct{})}}
	analyzer := tap.NewAnalyzer(tc, r.sink, nil)
	s, err := proxy.New(proxy.Config{Upstream: upstream, RunID: "t", Node: "n", Drain: 5 * time.Second, Analyzer: analyzer})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := proxy.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr, r.server, r.dropped = ln.Addr().String(), s, analyzer.Dropped
	ctx, cancel := context.WithCancel(context.Background())
	actx, acancel := context.WithCancel(context.Background())
	var relay, analysis sync.WaitGroup
	relay.Go(func() { _ = s.Run(ctx, ln) })
	analysis.Go(func() { analyzer.Run(actx) })
	free := sync.OnceFunc(func() { close(r.sink.release) })
	r.stop = sync.OnceFunc(func() {
		free()
		cancel()
		relay.Wait()
		acancel()
		analysis.Wait()
	})
	t.Cleanup(r.stop)
	return r
}

// TestC65TheEndIsNeverDropped: a queue that is full of chunks takes the end all
// the same: every request has exactly one record.
func TestC65TheEndIsNeverDropped(t *testing.T) {
	const connections = 8
	tiny := func(p *proxy.Config, c *tap.Config) {
		c.MaxQueue, c.Latency, p.Drain = 8<<10, 200*time.Millisecond, 100*time.Millisecond
	}
	burst := answerHead("text/event-stream") + strings.Repeat(httpChunk(chatText("word")), 1000)
	end := httpChunk(chatFinish) + httpChunk(chatDone) + zeroChunk
	for _, c := range []struct {
		name, tail string
		end        caseEnd
		states     []timeline.State
	}{
		{"end", end, endFIN, []timeline.State{timeline.HarnessError}},
		{"error", httpChunk(sseData(errorText("boom", 500))) + end, endFIN, []timeline.State{timeline.HarnessError, timeline.ServerError}},
		{"cut", "", endFIN, []timeline.State{timeline.HarnessError, timeline.TransportError}},
		{"reset", "", endRST, []timeline.State{timeline.HarnessError, timeline.TransportError}},
		{"cancel", "", endOpen, []timeline.State{timeline.HarnessError}}, // the answer may have been whole
	} {
		t.Run(c.name, func(t *testing.T) {
			for range connections {
				res := exchangeCase(t, tiny, chatRequest(caseChatBody), c.end, caseWrite{data: burst + c.tail})
				if res.rec.Analysis != "truncated" || !slices.Contains(c.states, res.rec.Terminal.State) {
					t.Errorf("analysis %s, terminal %+v, want truncated and one of %v", res.rec.Analysis, res.rec.Terminal, c.states)
				}
			}
		})
	}
	t.Run("shutdown", func(t *testing.T) {
		up := caseUpstream(t, func(conn *net.TCPConn, _ int) {
			_, _ = readCaseRequest(conn)
			_, _ = io.WriteString(conn, burst)
			_, _ = conn.Read(make([]byte, 1))
		})
		rig := startCaseRig(t, up, tiny)
		for range connections {
			conn := caseDial(t, rig.addr)
			caseSend(t, conn, chatRequest(caseChatBody))
			if _, err := io.ReadFull(conn, make([]byte, len(burst))); err != nil {
				t.Fatal(err)
			}
		}
		recs := rig.stop()
		if len(recs) != connections {
			t.Errorf("%d records, want %d", len(recs), connections)
		}
		for _, r := range recs {
			checkNulls(t, r)
			wantTerminal(t, r, timeline.HarnessError, "proxy_shutdown")
		}
	})
}

// TestC65ShutdownWithOpenStreams: with nothing lost ahead of it.
func TestC65ShutdownWithOpenStreams(t *testing.T) {
	for _, c := range []struct{ name, answer, phase string }{
		{"content", answerHead("text/event-stream") + httpChunk(chatText("word")), "content"},
		{"head", answerHead("text/event-stream"), "before_first_content"},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := caseUpstream(t, func(conn *net.TCPConn, _ int) {
				_, _ = readCaseRequest(conn)
				caseSend(t, conn, c.answer)
				_, _ = conn.Read(make([]byte, 1))
			})
			rig := startCaseRig(t, up, func(p *proxy.Config, _ *tap.Config) { p.Drain = 50 * time.Millisecond })
			conn := caseDial(t, rig.addr)
			caseSend(t, conn, chatRequest(caseChatBody))
			if _, err := io.ReadFull(conn, make([]byte, len(c.answer))); err != nil {
				t.Fatal(err)
			}
			recs := rig.stop()
			if len(recs) != 1 {
				t.Fatalf("%d records, want 1", len(recs))
			}
			checkNulls(t, recs[0])
			wantTerminal(t, recs[0], timeline.HarnessError, "proxy_shutdown")
			if recs[0].Terminal.Phase != c.phase || recs[0].Terminal.By != "relay" {
				t.Errorf("terminal = %+v, want by relay in phase %s", recs[0].Terminal, c.phase)
			}
		})
	}
}

// TestC65RequestsAreNeverDropped: a request whose own bytes found no room in the
// queue is an attempt all the same. (How many requests lay in bytes that one
// connection lost cannot be known: its record says what was dropped.)
func TestC65RequestsAreNeverDropped(t *testing.T) {
	const requests = 60
	answer := lengthAnswer("application/json", `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}`)
	serve := func(c *net.TCPConn, _ int) {
		for {
			if _, err := readCaseRequest(c); err != nil {
				return
			}
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	}
	for _, c := range []struct {
		name        string
		connections int
	}{{"on a connection each", requests}} {
		t.Run(c.name, func(t *testing.T) {
			rig := startBlockedRig(t, caseUpstream(t, serve), tap.Config{MaxQueue: 4 << 10, MaxMemory: 16 << 10, Workers: 1})
			var conn *net.TCPConn
			for i := range requests {
				if i%(requests/c.connections) == 0 {
					conn = caseDial(t, rig.addr)
				}
				caseSend(t, conn, chatRequest(caseChatBody))
				got := make([]byte, len(answer))
				if _, err := io.ReadFull(conn, got); err != nil || string(got) != answer {
					t.Fatalf("request %d got %q, %v", i, got, err)
				}
				if i%(requests/c.connections) == requests/c.connections-1 {
					_ = conn.Close()
				}
			}
			waitCase(t, "the connections to end", func() bool { return rig.server.Open() == 0 })
			rig.stop()
			if got := len(rig.sink.records); got != requests {
				t.Errorf("%d records of %d requests", got, requests)
			}
		})
	}
}

// TestC66SlowAnalysisSlowsNobody: analysis stands still and every byte arrives; what
// it missed is named, and is no fault of the sound.
func TestC66SlowAnalysisSlowsNobody(t *testing.T) {
	const streams, chunks = 10, 64
	body := ""
	for i := range chunks {
		body += ramp(i*16000%60000, 16<<10)
	}
	chunked := answerHead("audio/pcm", "X-Sample-Rate: 24000")
	for i := range chunks {
		chunked += httpChunk(body[i*(32<<10) : (i+1)*(32<<10)])
	}
	events := answerHead("text/event-stream")
	for i := range chunks {
		events += httpChunk(speechDelta(body[i*(32<<10) : (i+1)*(32<<10)]))
	}
	wav := wavFile(24000, 1, body)
	for _, c := range []struct{ name, answer string }{
		{"raw, chunked", chunked + zeroChunk},
		{"raw, by length", lengthAnswer("audio/wav", wav)},
		{"events", events + httpChunk(speechDone) + zeroChunk},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := caseUpstream(t, func(conn *net.TCPConn, _ int) {
				_, _ = readCaseRequest(conn)
				_, _ = io.WriteString(conn, c.answer)
			})
			rig := startBlockedRig(t, up, tap.Config{MaxQueue: 256 << 10})
			for i := range streams {
				conn := caseDial(t, rig.addr)
				caseSend(t, conn, speechRequest(caseSpeechBody))
				if got, err := io.ReadAll(conn); err != nil || string(got) != c.answer {
					t.Fatalf("stream %d got %d bytes, %v, want %d", i, len(got), err, len(c.answer))
				}
				_ = conn.Close()
			}
			waitCase(t, "the connections to end", func() bool { return rig.server.Open() == 0 })
			rig.stop()
			if len(rig.sink.records) != streams {
				t.Fatalf("%d records, want %d", len(rig.sink.records), streams)
			}
			for _, r := range rig.sink.records {
				checkNulls(t, r)
				if r.Analysis != "truncated" || r.AnalysisReason == nil || !strings.Contains(*r.AnalysisReason, "dropped") {
					t.Fatalf("analysis = %s, want truncated by dropped bytes; terminal %+v", r.Analysis, r.Terminal)
				}
				if r.Terminal.State != timeline.HarnessError || r.Quality.Verdict != "not_measured" || len(r.Quality.Failed) > 0 {
					t.Errorf("terminal %+v, quality %+v, want a harness error with quality not measured", r.Terminal, r.Quality)
				}
				if r.Audio != nil && r.Audio.Samples != nil {
					t.Errorf("audio.samples = %d, want null: not all were seen", *r.Audio.Samples)
				}
			}
		})
	}
}

// TestC66TheBoundHoldsForSmallReads: many small reads are as bounded as few large ones.
func TestC66TheBoundHoldsForSmallReads(t *testing.T) {
	const bound, events = 64 << 10, 4000
	event := httpChunk(chatText("word"))
	next := make(chan struct{})
	up := caseUpstream(t, func(c *net.TCPConn, _ int) {
		_, _ = readCaseRequest(c)
		caseSend(t, c, answerHead("text/event-stream"))
		for range next { // one read each: the client has the one before
			if _, err := io.WriteString(c, event); err != nil {
				return
			}
		}
	})
	rig := startBlockedRig(t, up, tap.Config{MaxQueue: bound})
	c := caseDial(t, rig.addr)
	caseSend(t, c, chatRequest(caseChatBody))
	_, _ = io.ReadFull(c, make([]byte, len(answerHead("text/event-stream"))))
	for i := range events {
		next <- struct{}{}
		if _, err := io.ReadFull(c, make([]byte, len(event))); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	close(next)
	_, _ = io.ReadAll(c)
	_ = c.Close()
	// one queue is being looked at, another one waits
	if kept, sent := int64(events*len(event))-rig.dropped(), int64(events*len(event)); kept > 2*bound {
		t.Errorf("of %d bytes %d wait for analysis, want at most %d", sent, kept, 2*bound)
	}
	rig.stop()
	if len(rig.sink.records) != 1 || rig.sink.records[0].Analysis != "truncated" {
		t.Errorf("%d records, want one that is truncated", len(rig.sink.records))
	}
}
