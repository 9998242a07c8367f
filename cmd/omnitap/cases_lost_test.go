package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// Field cases of servers that die, go silent, or say what nobody knows.

// TestC50UnknownEventsThatMayBeSound: sound that is owed and may have come in events
// that are not known is not said to be missing.
func TestC50UnknownEventsThatMayBeSound(t *testing.T) {
	pcm := b64(sine(2400, 24000))
	unknown := func(members string) string { return sseData(`{"type":"speech.audio.v9.delta",` + members + `}`) }
	tail := []string{chatFinish, chatDone}
	for _, c := range []struct {
		name, request string
		events        []string
		state         timeline.State
		reason        string
		samples       int64 // -1: audio is null
		unknown       bool
	}{
		{"speech", speechRequest(caseSpeechBody), []string{unknown(`"pcm":"` + pcm + `"`), unknown(`"pcm":"` + pcm + `"`), speechDone}, timeline.HarnessError, "unknown_events", -1, true},
		{"speech, no end marker", speechRequest(caseSpeechBody), []string{unknown(`"pcm":"` + pcm + `"`)}, timeline.HarnessError, "unknown_events", -1, true},
		{"speech, within an object", speechRequest(caseSpeechBody), []string{unknown(`"audio":{"format":"pcm","data":"` + pcm + `"}`), speechDone}, timeline.HarnessError, "unknown_events", -1, true},
		{"speech, within a list", speechRequest(caseSpeechBody), []string{unknown(`"output":[{"audio":{"data":"` + pcm + `"}}]`), speechDone}, timeline.HarnessError, "unknown_events", -1, true},
		{"speech, URL-safe", speechRequest(caseSpeechBody), []string{unknown(`"pcm":"` + strings.NewReplacer("+", "-", "/", "_").Replace(pcm) + `"`), speechDone}, timeline.HarnessError, "unknown_events", -1, true},
		{"chat with text", chatRequest(caseAudioChat), append([]string{chatText("Hi"), sseData(`{"object":"chat.audio.chunk","payload":"` + pcm + `"}`)}, tail...), timeline.HarnessError, "unknown_events", -1, true},
		{"beside sound that is known", speechRequest(caseSpeechBody), []string{unknown(`"pcm":"` + pcm + `"`), speechDelta(sine(2400, 24000)), speechDone}, timeline.Success, "done", 2400, true},
		{"beside empty events", speechRequest(caseSpeechBody), []string{unknown(`"pcm":"` + pcm + `"`), speechDelta(""), speechDone}, timeline.HarnessError, "unknown_events", 0, true},
		{"nothing like sound", chatRequest(caseAudioChat), append([]string{chatText("Hi"), sseData(`{"object":"chat.status","note":"` + strings.Repeat("all is well, ", 30) + `"}`)}, tail...), timeline.InvalidOutput, "no_audio", -1, true},
		{"nothing like sound, speech", speechRequest(caseSpeechBody), []string{unknown(`"note":"` + strings.Repeat("all is well, ", 30) + `"`), speechDone}, timeline.InvalidOutput, "no_output", -1, true},
		{"sound not asked for", chatRequest(caseChatBody), append([]string{chatText("Hi"), sseData(`{"object":"chat.audio.chunk","payload":"` + pcm + `"}`)}, tail...), timeline.Success, "done", -1, true},
		{"known events alone", chatRequest(caseAudioChat), append([]string{chatText("Hi")}, tail...), timeline.InvalidOutput, "no_audio", -1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := exchangeCase(t, nil, c.request, endFIN, soundAnswer("text/event-stream", c.events...)...).rec
			wantTerminal(t, rec, c.state, c.reason)
			wantFlag(t, rec, "unknown_events", c.unknown)
			wantNull(t, "points.t_audio", map[bool]*int64{true: nil, false: rec.Points.TAudio}[c.samples > 0])
			if c.samples < 0 {
				wantNull(t, "audio", rec.Audio)
			} else {
				wantInt(t, "audio.samples", audioOf(t, rec).Samples, c.samples)
			}
			wantHonest(t, rec)
		})
	}
}

// TestC59DeadlineByText: the server's words alone tell of its deadline: told with
// low confidence, in every form that an error comes in.
func TestC59DeadlineByText(t *testing.T) {
	sse := answerHead("text/event-stream") + httpChunk(chatText("Hi"))
	end := httpChunk(chatDone) + zeroChunk
	for _, c := range []struct {
		name, request, answer string
		state                 timeline.State
		reason                string
		low                   bool
	}{
		{"object without a code", chatRequest(caseChatBody), sse + httpChunk(sseData(`{"error":{"message":"companion deadline exceeded","type":"InternalServerError"}}`)) + end, timeline.DeadlineExceeded, "upstream_by_text", true},
		{"null code", chatRequest(caseChatBody), sse + httpChunk(sseData(`{"error":{"message":"stage 1 timed out","type":"server_error","param":null,"code":null}}`)) + end, timeline.DeadlineExceeded, "upstream_by_text", true},
		{"string", chatRequest(caseChatBody), sse + httpChunk(sseData(`{"error":"Request timed out after 300 s"}`)) + end, timeline.DeadlineExceeded, "upstream_by_text", true},
		{"code in words", chatRequest(caseChatBody), sse + httpChunk(sseData(`{"error":{"message":"no answer","code":"DEADLINE_EXCEEDED"}}`)) + end, timeline.DeadlineExceeded, "upstream_by_text", true},
		{"type", chatRequest(caseChatBody), sse + httpChunk(sseData(`{"error":{"message":"","type":"TimeoutError"}}`)) + end, timeline.DeadlineExceeded, "upstream_by_text", true},
		{"event field", chatRequest(caseChatBody), sse + httpChunk("event: error\ndata: {\"message\":\"Deadline exceeded\"}\n\n") + end, timeline.DeadlineExceeded, "upstream_by_text", true},
		{"speech", speechRequest(caseSpeechBody), answerHead("text/event-stream") + httpChunk(speechDelta(sine(2400, 24000))) + httpChunk(sseData(`{"type":"speech.audio.error","error":{"message":"generation timed out"}}`)) + zeroChunk, timeline.DeadlineExceeded, "upstream_by_text", true},
		{"JSON body", chatRequest(caseChatBody), lengthAnswer("application/json", `{"error":"deadline exceeded"}`), timeline.DeadlineExceeded, "upstream_by_text", true},
		{"status 500", chatRequest(caseChatBody), statusAnswer(500, "Internal Server Error", errorText("companion deadline exceeded", 500)), timeline.DeadlineExceeded, "upstream_by_text", true},
		{"status 504", chatRequest(caseChatBody), statusAnswer(504, "Gateway Timeout", errorText("companion deadline exceeded", 504)), timeline.DeadlineExceeded, "upstream", false},
		{"the client's mistake", chatRequest(caseChatBody), lengthAnswer("application/json", `{"error":{"message":"timeout must be positive","type":"invalid_request_error"}}`), timeline.InvalidRequest, "invalid_request_error", false},
		{"the client's mistake, by code", chatRequest(caseChatBody), statusAnswer(400, "Bad Request", errorText("deadline must be positive", 400)), timeline.InvalidRequest, "http_400", false},
		{"a dead engine that timed out", chatRequest(caseChatBody), sse + httpChunk(sseData(`{"error":{"message":"EngineDeadError: collective timed out"}}`)) + end, timeline.WorkerLost, "engine_dead", false},
		{"memory", chatRequest(caseChatBody), sse + httpChunk(sseData(`{"error":{"message":"CUDA out of memory, request timed out"}}`)) + end, timeline.OOM, "out_of_memory", false},
		{"something else", chatRequest(caseChatBody), sse + httpChunk(sseData(`{"error":{"message":"boom"}}`)) + end, timeline.ServerError, "server_error", false},
		{"content that speaks of it", chatRequest(caseChatBody), sse + httpChunk(chatText("the request timed out: deadline exceeded")) + httpChunk(chatFinish) + end, timeline.Success, "done", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := exchangeCase(t, nil, c.request, endFIN, caseWrite{data: c.answer}).rec
			wantTerminal(t, rec, c.state, c.reason)
			if low := rec.Terminal.Evidence["confidence"] == "low"; low != c.low || rec.Terminal.By != "server" {
				t.Errorf("confidence %v by %s, want low: %v, by server", rec.Terminal.Evidence["confidence"], rec.Terminal.By, c.low)
			}
		})
	}
}

// TestC58EngineErrors: a generic 500 whose words name a dead engine is a lost worker,
// and no claim about memory; another 500 is neither.
func TestC58EngineErrors(t *testing.T) {
	const words = "EngineCore encountered an issue. See stack trace (above) for the root cause."
	for _, c := range []struct {
		name, answer string
		state        timeline.State
		reason       string
	}{
		{"status 500", statusAnswer(500, "Internal Server Error", errorText(words, 500)), timeline.WorkerLost, "engine_dead"},
		{"detail", statusAnswer(500, "Internal Server Error", `{"detail":"`+words+`"}`), timeline.WorkerLost, "engine_dead"},
		{"in the stream", answerHead("text/event-stream") + httpChunk(chatText("Hi")) + httpChunk(sseData(errorText(words, 500))) + httpChunk(chatDone) + zeroChunk, timeline.WorkerLost, "engine_dead"},
		{"in the stream, without a code", answerHead("text/event-stream") + httpChunk(sseData(`{"error":"`+words+`"}`)) + zeroChunk, timeline.WorkerLost, "engine_dead"},
		{"generic", statusAnswer(500, "Internal Server Error", errorText("Internal server error", 500)), timeline.ServerError, "http_500"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := exchangeCase(t, nil, chatRequest(caseChatBody), endFIN, caseWrite{data: c.answer}).rec
			wantTerminal(t, rec, c.state, c.reason)
			wantNoOOM(t, rec)
		})
	}
}

// wantNoOOM checks that nothing in a record claims or suspects that memory ran out.
func wantNoOOM(t testing.TB, rec *timeline.Record) {
	t.Helper()
	said := fmt.Sprint(rec.Terminal.State, rec.Terminal.Reason, rec.Terminal.Evidence, rec.Flags, rec.Warnings)
	if s := strings.ToLower(said); strings.Contains(s, "oom") || strings.Contains(s, "memory") {
		t.Errorf("it claims something about memory: %s", said)
	}
}

// killedEnv makes TestC58KilledServer the server of the test below.
const killedEnv = "OMNITAP_CASE_KILLED"

// killedAnswer is what that server sends before it hangs.
func killedAnswer() string {
	answer := answerHead("audio/pcm", "X-Sample-Rate: 24000", "X-Channels: 1")
	for i := range 3 {
		answer += httpChunk(sineFrom(i*2400, 2400, 24000))
	}
	return answer
}

// TestC58KilledServer is no test of its own: it is a server that begins to answer,
// of each request no more than the head read.
func TestC58KilledServer(t *testing.T) {
	if os.Getenv(killedEnv) == "" {
		t.Skip("the child of TestC58ServerKilled")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprintln(os.Stdout, "addr "+ln.Addr().String())
	for {
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		for b, head := make([]byte, 1), ""; !strings.HasSuffix(head, "\r\n\r\n"); head += string(b) {
			if _, err := c.Read(b); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = io.WriteString(c, killedAnswer())
	}
}

// TestC58ServerKilled: the server's process is killed amid the stream (SIGKILL): its
// kernel ends the connection, by FIN or, with bytes unread, by RST. That is all the
// wire tells: no word of memory.
func TestC58ServerKilled(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, request, reason, end string
		err                        error
	}{
		{"nothing unread", "POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "cut", "fin", nil},
		{"a body unread", speechRequest(caseSpeechBody), "reset", "rst", syscall.ECONNRESET},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestC58KilledServer$", "-test.count=1")
			cmd.Env = append(os.Environ(), killedEnv+"=1")
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			rig := startCaseRig(t, "http://"+strings.TrimSpace(strings.TrimPrefix(line, "addr ")), nil)
			conn := caseDial(t, rig.addr)
			caseSend(t, conn, c.request)
			got := make([]byte, len(killedAnswer()))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != killedAnswer() {
				t.Fatalf("the answer changed, %v", err)
			}
			killed := monoNow()
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, conn); n != 0 || !errors.Is(err, c.err) {
				t.Errorf("the client got %d bytes more and %v, want %v", n, err, c.err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Errorf("the server ended by %v, want SIGKILL", err)
			}
			recs := rig.stop()
			if len(recs) != 1 {
				t.Fatalf("%d records, want 1", len(recs))
			}
			rec := recs[0]
			checkNulls(t, rec)
			wantTerminal(t, rec, timeline.TransportError, c.reason)
			wantSamples(t, rec, 7200, 3)
			e := rec.Terminal.Evidence
			if rec.Terminal.By != "server" || rec.Terminal.Phase != "content" || e["server_end"] != c.end || e["closed_first"] != "server" || fmt.Sprint(e["samples"], e["bytes_received"]) != "7200 14400" {
				t.Errorf("terminal = %+v, want the server's %s with what had come", rec.Terminal, c.end)
			}
			if at := rec.Points.TTerm; at == nil || *at < killed-int64(clockSlack) {
				t.Errorf("t_term = %v, want behind the kill at %d", at, killed)
			}
			wantNoOOM(t, rec)
		})
	}
}

// TestC47SilentServerOfAClientThatIsGone: with the relay as it is, a client that
// closes for good ends a WebSocket whose server is silent within the stated ten
// seconds, whether it reads the client's FIN or nothing more. (Many rounds and what
// they leave behind: proxy, TestC47Rounds.)
func TestC47SilentServerOfAClientThatIsGone(t *testing.T) {
	t.Parallel()
	k := startTalks(t, nil)
	gone, over := map[*talk]int64{}, map[*talk]caseStamp{}
	reading, deaf := k.opened("X-Request-Id: reading"), k.opened("X-Request-Id: deaf")
	for _, w := range []*talk{reading, deaf} {
		w.begin("a")
		w.sound("a", sine(480, 24000))
		if w == deaf { // bytes that the server never takes, ahead of the FIN
			caseSend(t, w.ends[client], talkFrame(client, 0x81, talkJSON("input_audio_buffer.append", `"audio":"AAAA"`)))
		}
		gone[w] = monoNow()
		_ = w.ends[client].Close()
		if w == reading {
			w.sees(server, nil)
		}
	}
	for _, w := range []*talk{reading, deaf} {
		waitReset(t, w.ends[server], 15*time.Second)
		over[w] = caseStamp{gone[w], monoNow()}
		_ = w.ends[server].Close()
	}
	waitCase(t, "the connections to end", func() bool { return k.rig.server.Open() == 0 })
	turns, lines := k.end(t, 2)
	for n, l := range lines {
		at := over[map[string]*talk{"reading": reading, "deaf": deaf}[l.SessionID]]
		if d := time.Duration(at.after - at.before); d < 10*time.Second || d > 12*time.Second {
			t.Errorf("%s: the server's side ended %v behind the client's close, want 10 s", l.SessionID, d)
		}
		if len(turns[n]) != 1 {
			t.Fatalf("%s: %d records, want 1", l.SessionID, len(turns[n]))
		}
		rec := turns[n][0]
		if s := rec.Terminal; s.State != timeline.ClientCancelled || s.By != "client" {
			t.Errorf("%s: terminal = %+v, want client-cancelled by client", l.SessionID, s)
		}
		wantSamples(t, rec, 480, 1)
		if l.Close.By != "client" || !slices.Contains(l.Flags, "no_close_frame") {
			t.Errorf("%s: close = %+v, flags %q, want by client, without a frame", l.SessionID, l.Close, l.Flags)
		}
	}
}

// waitReset waits for a connection's reset without reading it.
func waitReset(t testing.TB, c *net.TCPConn, limit time.Duration) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}} // errors and hang-ups alone
		n, err := unix.Poll(fds, int(limit/time.Millisecond))
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll(fds, int(limit/time.Millisecond))
		}
		if n != 1 || fds[0].Revents&unix.POLLERR == 0 {
			t.Errorf("no reset: %d, %v, events %#x", n, err, fds[0].Revents)
		}
	})
}
