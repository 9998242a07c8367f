package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock"
	"github.com/omnitap/omnitap/proxy"
	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// Field cases C01 to C13: framing on the wire.

// textChunks lists the text events of an exchange: their place and size.
func textChunks(events []timeline.Event) (out [][2]int64) {
	for _, e := range events {
		if e.Event == "text_chunk" {
			off, _ := e.Offset.Get()
			size, _ := e.Bytes.Get()
			out = append(out, [2]int64{off, size})
		}
	}
	return out
}

// wantText checks the text of a record.
func wantText(t testing.TB, rec *timeline.Record, deltas ...string) {
	t.Helper()
	text := strings.Join(deltas, "")
	wantInt(t, "text_units", rec.TextUnits, int64(len(deltas)))
	wantInt(t, "text_bytes", rec.TextBytes, int64(len(text)))
	sum := sha256.Sum256([]byte(text))
	if rec.TextSHA256 == nil || *rec.TextSHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("text_sha256 is not that of %q", text)
	}
}

// lineEnds puts other line ends into a body.
func lineEnds(body, end string) string { return strings.ReplaceAll(body, "\n", end) }

// TestC01Grammar: the same events for every split, whatever the lines look like.
func TestC01Grammar(t *testing.T) {
	plain := chatText("Hello") + chatText(" wörld") + chatFinish + chatDone
	two := []string{"Hello", " wörld"}
	threeLines := strings.Replace(chatText("Hello"), `,"model"`, ",\ndata: \"model\"", 1)
	threeLines = strings.Replace(threeLines, `,"choices"`, "\ndata: ,\"choices\"", 1)
	for _, tc := range []struct {
		name, body string
		deltas     []string
		cutAt      string // one more cut behind the first byte of this
		flag       string
	}{
		{name: "crlf", body: lineEnds(plain, "\r\n"), deltas: two},
		{name: "read ends on cr", body: lineEnds(plain, "\r\n"), deltas: two, cutAt: "\r\n\r\ndata"},
		{name: "read ends on the blank line's cr", body: lineEnds(plain, "\r\n"), deltas: two, cutAt: "\r\ndata"},
		{name: "bare cr", body: lineEnds(plain, "\r"), deltas: two},
		{name: "crlf, the last lf missing", body: strings.TrimSuffix(lineEnds(plain, "\r\n"), "\n"), deltas: two},
		{name: "no space", body: strings.ReplaceAll(plain, "data: ", "data:"), deltas: two},
		{name: "three data lines", body: threeLines + chatText(" wörld") + chatFinish + chatDone, deltas: two},
		{name: "cut character", body: chatText("語") + chatFinish + chatDone, deltas: []string{"語"}, cutAt: "語"},
		{name: "line separator", body: chatText("x") + strings.Replace(chatText("a#b"), "#", "\u2028", 1) + chatFinish + chatDone, deltas: []string{"x", "a\u2028b"}},
		{name: "comments", body: strings.Repeat(": ping\n\n", 10) + plain, deltas: two, flag: "comments"},
		{name: "byte order mark", body: "\uFEFF" + plain, deltas: two},
		{name: "no blank line at the end", body: chatText("Hello") + chatFinish + strings.TrimSuffix(chatText("lost"), "\n"), deltas: []string{"Hello"}, flag: "unterminated_event"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			whole := answerHead("text/event-stream") + httpChunk(tc.body) + zeroChunk
			splits := map[string][]caseWrite{"one": writesOf(whole), "1": cutEvery(whole, 1), "7": cutEvery(whole, 7)}
			if i := strings.Index(whole, tc.cutAt); tc.cutAt != "" {
				splits["cut"] = writesOf(whole[:i+1], whole[i+1:])
			}
			var first [][2]int64
			for name, writes := range splits {
				res := exchangeCase(t, nil, chatRequest(caseChatBody), endFIN, writes...)
				wantTerminal(t, res.rec, timeline.Success, "done")
				wantText(t, res.rec, tc.deltas...)
				wantFlag(t, res.rec, "unterminated_event", tc.flag == "unterminated_event")
				wantFlag(t, res.rec, "comments", tc.flag == "comments")
				wantNull(t, "ttfa_ms", res.rec.TTFAMS)
				chunks := textChunks(res.events)
				if first == nil {
					first = chunks
					wantInt(t, "offsets.t_text", res.rec.Offsets.TText, firstEventEnd(whole, tc.body))
				}
				if diff := cmp.Diff(first, chunks); diff != "" {
					t.Errorf("split %s: other events (-first +this):\n%s", name, diff)
				}
			}
		})
	}
}

// firstEventEnd is the byte that ends the first event with text: the last of its
// blank line.
func firstEventEnd(whole, body string) int64 {
	start := strings.Index(whole, body)
	data := strings.Index(body, "content")
	end := len(body)
	for _, blank := range []string{"\n\n", "\r\r", "\r\n\r\n"} {
		if i := strings.Index(body[data:], blank); i >= 0 {
			end = min(end, data+i+len(blank))
		}
	}
	return int64(start + end)
}

// TestC01KeepAlives: comments ahead of the first event set neither TTFT nor TTFA.
func TestC01KeepAlives(t *testing.T) {
	const pings = 8
	writes := writesOf(answerHead("text/event-stream"))
	for range pings {
		writes = append(writes, caseWrite{5 * time.Millisecond, httpChunk(": ping\n\n")})
	}
	writes = append(writes, caseWrite{data: httpChunk(chatText("Hi"))}, caseWrite{data: httpChunk(chatFinish+chatDone) + zeroChunk})
	res := exchangeCase(t, nil, chatRequest(caseChatBody), endFIN, writes...)
	wantTerminal(t, res.rec, timeline.Success, "done")
	res.wantPointIn(t, "t_hdr", res.rec.Points.THdr, 0)
	res.wantPointIn(t, "t_text", res.rec.Points.TText, pings+1)
	wantNull(t, "t_audio_event", res.rec.Points.TAudioEvent)
}

// TestC01EndOfFile: a last event that the close of the connection ends is none.
func TestC01EndOfFile(t *testing.T) {
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
	res := exchangeCase(t, nil, chatRequest(caseChatBody), endFIN, writesOf(head+chatText("Hi")+chatFinish, "data: [DONE]\n")...)
	wantTerminal(t, res.rec, timeline.Success, "done")
	wantFlag(t, res.rec, "unterminated_event", true)
	wantFlag(t, res.rec, "missing_done", true)
}

// TestC02LongLines: an event of any size up to the limit is read; beyond it the
// bytes flow on and no state is guessed.
func TestC02LongLines(t *testing.T) {
	for _, size := range []int{65_537, 1<<20 + 1, 8 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			samples := (size/4*3 + 3) / 2
			whole := answerHead("text/event-stream") + httpChunk(speechDelta(sine(samples, 24000))) + httpChunk(speechDone) + zeroChunk
			res := exchangeCase(t, nil, speechRequest(caseSpeechBody), endBlunt, writesOf(whole)...)
			wantTerminal(t, res.rec, timeline.Success, "done")
			wantSamples(t, res.rec, int64(samples), 1)
		})
	}
	t.Run("over the limit", func(t *testing.T) {
		whole := answerHead("text/event-stream") + httpChunk(speechDelta(sine(1<<20, 24000))) + httpChunk(speechDone) + zeroChunk
		change := func(_ *proxy.Config, c *tap.Config) { c.MaxEvent = 1 << 20 }
		res := exchangeCase(t, change, speechRequest(caseSpeechBody), endBlunt, writesOf(whole)...)
		if res.rec.Analysis != "truncated" || res.rec.AnalysisReason == nil {
			t.Errorf("analysis = %s, want truncated with a reason", res.rec.Analysis)
		}
		wantTerminal(t, res.rec, timeline.HarnessError, "not_analysed")
		wantNull(t, "ttfa_ms", res.rec.TTFAMS)
		if res.rec.Audio != nil {
			wantNull(t, "audio.samples", res.rec.Audio.Samples)
		}
	})
}

// TestC02Memory: an endless event keeps no more than the limit.
func TestC02Memory(t *testing.T) {
	cfg := tap.Config{MaxEvent: 1 << 20}.WithDefaults()
	c := tap.NewConn(&cfg, func(int) timeline.Identity { return timeline.Identity{OwnID: "x"} }, &caseSink{}, nil, true)
	c.Bytes(tap.Client, []byte(speechRequest(caseSpeechBody)), 1, 1)
	c.Bytes(tap.Server, []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"type\":\"speech.audio.delta\",\"audio\":\""), 2, 2)
	piece := bytes.Repeat([]byte("A"), 64<<10)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range 1024 { // 64 MiB
		c.Bytes(tap.Server, piece, int64(3+i), 0)
		if i%256 != 255 {
			continue
		}
		if now := heap(); now > before+4<<20 {
			t.Fatalf("the heap grew by %d bytes after %d MiB of one event, want under 4 MiB", now-before, (i+1)/16)
		}
	}
}

// TestC04Terminals: the matrix of reason, end marker and clean end.
func TestC04Terminals(t *testing.T) {
	body := chatText("Hello")
	for _, tc := range []struct {
		name         string
		rest         string
		cut          bool
		state        timeline.State
		reason       string
		flags, clear []string
	}{
		{"reason, done", chatFinish + chatDone, false, timeline.Success, "done", nil, []string{"missing_done", "missing_finish_reason", "after_terminal", "cut_after_terminal"}},
		{"reason", chatFinish, false, timeline.Success, "done", []string{"missing_done"}, []string{"missing_finish_reason"}},
		{"done", chatDone, false, timeline.Success, "done", []string{"missing_finish_reason"}, []string{"missing_done"}},
		{"neither", "", false, timeline.InvalidOutput, "missing_terminal", nil, []string{"missing_done"}},
		{"reason, done, cut", chatFinish + chatDone, true, timeline.Success, "done", []string{"cut_after_terminal"}, []string{"missing_done"}},
		{"reason, cut", chatFinish, true, timeline.TransportError, "cut", nil, nil},
		{"done, cut", chatDone, true, timeline.Success, "done", []string{"missing_finish_reason", "cut_after_terminal"}, nil},
		{"neither, cut", "", true, timeline.TransportError, "cut", nil, nil},
		{"event behind done", chatFinish + chatDone + chatText("late"), false, timeline.Success, "done", []string{"after_terminal"}, nil},
		{"done twice", chatFinish + chatDone + chatDone, false, timeline.Success, "done", []string{"after_terminal"}, nil},
		{"empty reason, done", strings.Replace(chatFinish, `"stop"`, `""`, 1) + chatDone, false, timeline.Success, "done", []string{"missing_finish_reason"}, nil},
		{"empty reason", strings.Replace(chatFinish, `"stop"`, `""`, 1), false, timeline.InvalidOutput, "missing_terminal", nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			writes := writesOf(answerHead("text/event-stream") + httpChunk(body))
			if tc.rest != "" {
				writes = append(writes, caseWrite{data: httpChunk(tc.rest)})
			}
			if !tc.cut {
				writes = append(writes, caseWrite{data: zeroChunk})
			}
			res := exchangeCase(t, nil, chatRequest(caseChatBody), endFIN, writes...)
			wantTerminal(t, res.rec, tc.state, tc.reason)
			wantText(t, res.rec, "Hello")
			for _, f := range tc.flags {
				wantFlag(t, res.rec, f, true)
			}
			for _, f := range tc.clear {
				wantFlag(t, res.rec, f, false)
			}
			if i := strings.Index(res.sent, chatDone); i >= 0 { // the first one ends the exchange
				wantInt(t, "offsets.t_term", res.rec.Offsets.TTerm, int64(i+len(chatDone)))
				res.wantPointIn(t, "t_term", res.rec.Points.TTerm, 1)
			}
		})
	}
}

// TestC05LengthIsNotHeldBack: each part of a body of known length arrives before
// the next is sent; if the relay held one back, the upstream would wait in vain.
func TestC05LengthIsNotHeldBack(t *testing.T) {
	body := wavHead(24000, 1, 2956) + sine(1478, 24000)
	head := "HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\nContent-Length: 3000\r\n\r\n"
	t.Run("parts", func(t *testing.T) {
		res := exchangeCase(t, nil, speechRequest(caseWAVBody), endOpen,
			caseWrite{data: head + body[:1000]}, caseWrite{10 * time.Millisecond, body[1000:2000]}, caseWrite{10 * time.Millisecond, body[2000:]})
		wantTerminal(t, res.rec, timeline.Success, "done")
		wantSamples(t, res.rec, 1478, 1)
		res.wantPointIn(t, "t_audio", res.rec.Points.TAudio, 1) // 44+960 bytes
		wantInt(t, "offsets.t_audio", res.rec.Offsets.TAudio, int64(len(head)+44+960))
		res.wantPointIn(t, "t_term", res.rec.Points.TTerm, 2)
	})
	t.Run("head first", func(t *testing.T) {
		res := exchangeCase(t, nil, speechRequest(caseWAVBody), endOpen, caseWrite{data: head}, caseWrite{50 * time.Millisecond, body})
		wantTerminal(t, res.rec, timeline.Success, "done")
		res.wantPointIn(t, "t_hdr", res.rec.Points.THdr, 0)
		res.wantPointIn(t, "t_audio", res.rec.Points.TAudio, 1)
		if d := res.rec.OwnDelayUS; d == nil || d.Max > float64(slack.Microseconds()) {
			t.Errorf("own_delay_us = %+v, want under %v", d, slack)
		}
	})
}

// outputChunks lists the audio chunks of an exchange.
func outputChunks(events []timeline.Event) (out []timeline.Event) {
	for _, e := range events {
		if e.Event == "output_chunk" {
			out = append(out, e)
		}
	}
	return out
}

// TestC06LogicalChunks: chunks are those of the wire, not of reads.
func TestC06LogicalChunks(t *testing.T) {
	pcm := answerHead("audio/pcm")
	big := httpChunk(sine(48_000, 24000))
	event := speechDelta(sine(960, 24000))
	sse := answerHead("text/event-stream")
	for _, tc := range []struct {
		name    string
		writes  []caseWrite
		samples int64
		unit    string
		at      []int // the write in which each chunk is complete
	}{
		{"one HTTP chunk in five segments", append(writesOf(pcm), append(cutEvery(big, len(big)/5+1), writesOf(zeroChunk)...)...), 48_000, "http_chunk", []int{5}},
		{"two HTTP chunks in one segment", writesOf(pcm, httpChunk(sine(960, 24000))+httpChunk(sineFrom(960, 960, 24000)), zeroChunk), 1920, "http_chunk", []int{1, 1}},
		{"an event over two HTTP chunks", writesOf(sse, httpChunk(event[:100]), httpChunk(event[100:]), httpChunk(speechDone)+zeroChunk), 960, "event", []int{2}},
		{"two events in one HTTP chunk", writesOf(sse, httpChunk(event+speechDelta(sineFrom(960, 960, 24000))), httpChunk(speechDone)+zeroChunk), 1920, "event", []int{1, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res := exchangeCase(t, nil, speechRequest(caseSpeechBody), endFIN, tc.writes...)
			wantTerminal(t, res.rec, timeline.Success, "done")
			wantSamples(t, res.rec, tc.samples, int64(len(tc.at)))
			if u := res.rec.Audio.ChunkUnit; u == nil || *u != tc.unit {
				t.Errorf("chunk_unit = %v, want %s", u, tc.unit)
			}
			chunks := outputChunks(res.events)
			if len(chunks) != len(tc.at) {
				t.Fatalf("%d output_chunk events, want %d", len(chunks), len(tc.at))
			}
			for i, c := range chunks {
				res.wantPointIn(t, fmt.Sprintf("t_chunk(%d)", i), &c.MonoNS, tc.at[i])
			}
			if tc.unit == "http_chunk" { // a sample is there before its chunk is
				res.wantPointIn(t, "t_audio", res.rec.Points.TAudio, 1)
			}
		})
	}
	t.Run("no borders on the wire", func(t *testing.T) {
		head := "HTTP/1.1 200 OK\r\nContent-Type: audio/pcm\r\nConnection: close\r\n\r\n"
		res := exchangeCase(t, nil, speechRequest(caseSpeechBody), endFIN, writesOf(head, sine(960, 24000), sineFrom(960, 960, 24000))...)
		wantTerminal(t, res.rec, timeline.Success, "done")
		wantSamples(t, res.rec, 1920, 2)
		if u := res.rec.Audio.ChunkUnit; u == nil || *u != "read" {
			t.Errorf("chunk_unit = %v, want read", u)
		}
	})
}

// TestC07CutMidBody: an answer that dies arrives as dead as it was sent.
func TestC07CutMidBody(t *testing.T) {
	pcm := answerHead("audio/pcm")
	chunk := func(i int) string { return httpChunk(sineFrom(960*i, 960, 24000)) }
	for _, tc := range []struct {
		name           string
		writes         []caseWrite
		end            caseEnd
		reason, server string
		bytes, samples int64
	}{
		{"no zero chunk, FIN", writesOf(pcm+chunk(0), chunk(1)), endFIN, "cut", "fin", 3840, 1920},
		{"within a chunk, FIN", writesOf(pcm+chunk(0), chunk(1)[:100]), endFIN, "cut", "fin", 1920 + 95, 960 + 47},
		{"short of its length, FIN", writesOf(lengthAnswer("audio/pcm", "0123456789")[:len(lengthAnswer("audio/pcm", "0123456789"))-6]), endFIN, "cut", "fin", 4, 2},
		{"bad chunk size", writesOf(pcm+chunk(0), "xyz\r\nabc"), endFIN, "malformed_body", "fin", 1920, 960},
		{"RST", writesOf(pcm+chunk(0), chunk(1), chunk(2)), endRST, "reset", "rst", 5760, 2880},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res := exchangeCase(t, nil, speechRequest(caseSpeechBody), tc.end, tc.writes...)
			wantTerminal(t, res.rec, timeline.TransportError, tc.reason)
			e := res.rec.Terminal.Evidence
			if e["bytes_received"] != tc.bytes || e["samples"] != tc.samples || e["server_end"] != tc.server && tc.reason != "malformed_body" {
				t.Errorf("evidence = %v, want %d bytes, %d samples, %s", e, tc.bytes, tc.samples, tc.server)
			}
			if tc.reason == "malformed_body" && e["framing"] == nil {
				t.Errorf("evidence = %v, want the framing's fault", e)
			}
			if err := readThroughClient(t, tc.writes, tc.end); err == nil {
				t.Error("net/http's client took the answer for whole")
			}
		})
	}
}

// readThroughClient reads the same answer with net/http through a relay and
// returns how that ended.
func readThroughClient(t testing.TB, writes []caseWrite, end caseEnd) error {
	t.Helper()
	got := make(chan struct{})
	up := caseUpstream(t, func(c *net.TCPConn, _ int) {
		_, _ = readCaseRequest(c)
		for _, w := range writes {
			caseSend(t, c, w.data)
		}
		if end == endRST {
			<-got
			_ = c.SetLinger(0)
		}
	})
	rig := startCaseRig(t, up, nil)
	res, err := http.Post("http://"+rig.addr+"/v1/audio/speech", "application/json", strings.NewReader(caseSpeechBody))
	close(got)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	_, err = io.ReadAll(res.Body)
	return err
}

// gzipped compresses each part with a sync flush behind it; the last return
// value ends the member.
func gzipped(t testing.TB, parts ...string) (out []string, end string) {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	for _, p := range parts {
		if _, err := io.WriteString(w, p); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		out = append(out, buf.String())
		buf.Reset()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out, buf.String()
}

// TestC09Encodings: nobody asked the relay to zip or unzip, so it does neither.
func TestC09Encodings(t *testing.T) {
	plain := []string{chatText("Hello"), chatText(" world"), chatFinish + chatDone}
	zipped, end := gzipped(t, plain...)
	head := answerHead("text/event-stream", "Content-Encoding: gzip")
	t.Run("not asked for", func(t *testing.T) {
		req := chatRequest(caseChatBody)
		res := exchangeCase(t, nil, req, endOpen, writesOf(answerHead("text/event-stream")+httpChunk(strings.Join(plain, ""))+zeroChunk)...)
		if res.request != req {
			t.Errorf("the upstream saw %q, want the client's %q", res.request, req)
		}
		wantTerminal(t, res.rec, timeline.Success, "done")
	})
	t.Run("gzip", func(t *testing.T) {
		req := post("/v1/chat/completions", caseChatBody, "Accept-Encoding: gzip")
		res := exchangeCase(t, nil, req, endOpen, writesOf(head, httpChunk(zipped[0]), httpChunk(zipped[1]), httpChunk(zipped[2])+httpChunk(end)+zeroChunk)...)
		wantTerminal(t, res.rec, timeline.Success, "done")
		wantText(t, res.rec, "Hello", " world")
		res.wantPointIn(t, "t_text", res.rec.Points.TText, 1)
		if res.rec.Analysis != "full" {
			t.Errorf("analysis = %s, want full", res.rec.Analysis)
		}
	})
	t.Run("gzip in single bytes", func(t *testing.T) {
		whole := head + httpChunk(strings.Join(zipped, "")+end) + zeroChunk
		res := exchangeCase(t, nil, chatRequest(caseChatBody), endFIN, cutEvery(whole, 1)...)
		wantTerminal(t, res.rec, timeline.Success, "done")
		wantText(t, res.rec, "Hello", " world")
	})
	t.Run("gzip of samples", func(t *testing.T) {
		z, end := gzipped(t, sine(2400, 24000))
		res := exchangeCase(t, nil, speechRequest(caseSpeechBody), endFIN, writesOf(answerHead("audio/pcm", "Content-Encoding: gzip"), httpChunk(z[0]+end)+zeroChunk)...)
		wantTerminal(t, res.rec, timeline.Success, "done")
		wantInt(t, "audio.samples", audioOf(t, res.rec).Samples, 2400)
	})
	t.Run("member cut, framing whole", func(t *testing.T) {
		res := exchangeCase(t, nil, chatRequest(caseChatBody), endFIN, writesOf(head, httpChunk(zipped[0]), httpChunk(zipped[1][:len(zipped[1])/2])+zeroChunk)...)
		if res.rec.Terminal.State != timeline.InvalidOutput {
			t.Errorf("terminal = %+v, want invalid-output", res.rec.Terminal)
		}
		wantText(t, res.rec, "Hello")
	})
	t.Run("member cut with the connection", func(t *testing.T) {
		res := exchangeCase(t, nil, chatRequest(caseChatBody), endFIN, writesOf(head, httpChunk(zipped[0]), httpChunk(zipped[1])[:len(zipped[1])/2])...)
		wantTerminal(t, res.rec, timeline.TransportError, "cut")
		wantText(t, res.rec, "Hello")
	})
	for _, enc := range []string{"br", "zstd"} {
		t.Run(enc, func(t *testing.T) {
			res := exchangeCase(t, nil, chatRequest(caseChatBody), endFIN, writesOf(answerHead("text/event-stream", "Content-Encoding: "+enc), httpChunk("\x0b\x02\x80abc\x03")+zeroChunk)...)
			if res.rec.Analysis != "unsupported_encoding" {
				t.Errorf("analysis = %s, want unsupported_encoding", res.rec.Analysis)
			}
			wantNull(t, "ttft_ms", res.rec.TTFTMS)
			if res.rec.Terminal.State == timeline.Success || res.rec.Terminal.State == timeline.InvalidOutput {
				t.Errorf("terminal = %+v, want no guess", res.rec.Terminal)
			}
		})
	}
}

// TestC10FormFromTheBytes: how an answer is read is told by the answer.
func TestC10FormFromTheBytes(t *testing.T) {
	wav, pcm := wavHead(24000, 1, 4800)+sine(2400, 24000), sine(2400, 24000)
	jsonError := `{"error":{"message":"the engine broke","type":"server_error","code":500}}`
	for _, tc := range []struct {
		name, answer  string
		state         timeline.State
		reason        string
		container     string
		samples       int64
		notAsRequired bool
	}{
		{"raw pcm", answerHead("audio/pcm") + httpChunk(pcm) + zeroChunk, timeline.Success, "done", "raw", 2400, false},
		{"events", answerHead("text/event-stream") + httpChunk(speechDelta(pcm)) + httpChunk(speechDone) + zeroChunk, timeline.Success, "done", "raw", 2400, false},
		{"wav", lengthAnswer("audio/wav", wav), timeline.Success, "done", "wav", 2400, true},
		{"wav without a label", lengthAnswer("application/octet-stream", wav), timeline.Success, "done", "wav", 2400, true},
		{"wav without a type", strings.Replace(lengthAnswer("", wav), "Content-Type: \r\n", "", 1), timeline.Success, "done", "wav", 2400, true},
		{"wav in events", answerHead("text/event-stream") + httpChunk(speechDelta(wav)) + httpChunk(speechDone) + zeroChunk, timeline.Success, "done", "wav", 2400, true},
		{"json error", lengthAnswer("application/json", jsonError), timeline.ServerError, "http_500", "", 0, false},
		{"mpeg label, wav bytes", lengthAnswer("audio/mpeg", wav), timeline.InvalidOutput, "format_mismatch", "", 0, false},
		{"pcm label, wav bytes", lengthAnswer("audio/pcm", wav), timeline.InvalidOutput, "format_mismatch", "", 0, false},
		{"wav label, pcm bytes", lengthAnswer("audio/wav", pcm), timeline.InvalidOutput, "format_mismatch", "", 0, false},
		{"nothing", answerHead("audio/pcm") + zeroChunk, timeline.InvalidOutput, "no_output", "", 0, false},
		{"json of no audio", lengthAnswer("application/json", `{"status":"ok"}`), timeline.InvalidOutput, "no_output", "", 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res := exchangeCase(t, nil, speechRequest(caseSpeechBody), endFIN, writesOf(tc.answer)...)
			wantTerminal(t, res.rec, tc.state, tc.reason)
			if tc.container == "" {
				return
			}
			wantFlag(t, res.rec, "format_not_as_requested", tc.notAsRequired)
			wantSamples(t, res.rec, tc.samples, 1)
			if c := res.rec.Audio.Container; c == nil || *c != tc.container {
				t.Errorf("container = %v, want %s", c, tc.container)
			}
		})
	}
	t.Run("chat without the audio asked for", func(t *testing.T) {
		res := exchangeCase(t, nil, chatRequest(caseAudioChat), endFIN, writesOf(answerHead("text/event-stream")+httpChunk(chatText("Hi")+chatFinish+chatDone)+zeroChunk)...)
		wantTerminal(t, res.rec, timeline.InvalidOutput, "no_audio")
	})
}

// TestC11Informational: 1xx answers pass and are not the answer; an upload waits for its 100.
func TestC11Informational(t *testing.T) {
	interim := []string{"HTTP/1.1 102 Processing\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nConnection: X-Nom\r\nX-Nom: s\r\nLink: </a>; rel=preload\r\n\r\n"}
	const goOn = "HTTP/1.1 100 Continue\r\n\r\n"
	head, audio := answerHead("audio/pcm"), httpChunk(sine(2400, 24000))+zeroChunk
	upload := `{"model":"m","input":"` + strings.Repeat("x", 2<<20) + `"}`
	request := post("/v1/audio/speech", upload, "Expect: 100-continue")
	requestHead := strings.TrimSuffix(request, upload)
	var stamps [5]caseStamp
	var body string
	received := &atomic.Int64{}
	served := make(chan struct{})
	up := caseUpstream(t, func(c *net.TCPConn, _ int) {
		defer close(served)
		got := make([]byte, len(requestHead))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != requestHead {
			t.Errorf("the upstream got %q, %v", got, err)
		}
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read %d bytes of the upload ahead of the 100, %v", n, err)
		}
		_ = c.SetReadDeadline(time.Time{})
		sent := 0
		for i, s := range []string{goOn, interim[0], interim[1], head, audio} {
			waitCase(t, "the client to receive", func() bool { return received.Load() >= int64(sent) })
			if i == 1 {
				b := make([]byte, len(upload))
				_, _ = io.ReadFull(c, b)
				body = string(b)
			}
			stamps[i].before = monoNow()
			caseSend(t, c, s)
			stamps[i].after = monoNow()
			sent += len(s)
		}
		_, _ = c.Read(make([]byte, 1))
	})
	rig := startCaseRig(t, up, nil)
	c := caseDial(t, rig.addr)
	caseSend(t, c, requestHead)
	want := goOn + interim[0] + interim[1] + head + audio
	got := make([]byte, len(want))
	n, _ := io.ReadFull(c, got[:len(goOn)])
	received.Store(int64(n))
	caseSend(t, c, upload)
	for n < len(want) {
		m, err := c.Read(got[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += m
		received.Store(int64(n))
	}
	_ = c.Close()
	if string(got) != want {
		t.Errorf("the client got other bytes than were sent, from %d on", differAt(string(got), want))
	}
	<-served
	recs := rig.stop()
	if len(recs) != 1 {
		t.Fatalf("%d records, want 1", len(recs))
	}
	res := &caseResult{stamps: stamps[:], rec: recs[0]}
	if body != upload {
		t.Error("the upload arrived changed")
	}
	checkNulls(t, res.rec)
	wantTerminal(t, res.rec, timeline.Success, "done")
	res.wantPointIn(t, "t_hdr", res.rec.Points.THdr, 3)
	res.wantPointIn(t, "t_audio", res.rec.Points.TAudio, 4)
	wantFlag(t, res.rec, "informational", true)
	if *res.rec.Status != 200 || *res.rec.Points.TBody < stamps[0].before {
		t.Errorf("status = %d, t_body %d ns behind the 100", *res.rec.Status, *res.rec.Points.TBody-stamps[0].before)
	}
}

// TestC12IdleClose: when the server closes an idle connection, the client's closes too.
func TestC12IdleClose(t *testing.T) {
	closeNow := make(chan struct{})
	answer := lengthAnswer("audio/pcm", sine(2400, 24000))
	up := caseUpstream(t, func(c *net.TCPConn, _ int) {
		_, _ = readCaseRequest(c)
		caseSend(t, c, answer)
		<-closeNow
	})
	rig := startCaseRig(t, up, nil)
	c := caseDial(t, rig.addr)
	caseSend(t, c, speechRequest(caseSpeechBody))
	if _, err := io.ReadFull(c, make([]byte, len(answer))); err != nil {
		t.Fatal(err)
	}
	before := monoNow()
	close(closeNow)
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read %d, %v; want the end", n, err)
	}
	if d := time.Duration(monoNow() - before); d > slack {
		t.Errorf("the end took %v, want at once", d)
	}
	_ = c.Close()
	if recs := rig.stop(); len(recs) != 1 || recs[0].Terminal.State != timeline.Success {
		t.Errorf("%d records, want one success", len(recs))
	}
}

// TestC12BehindTheEnd: a request sent into a connection that the server has
// closed is lost, and it was not the client who left.
func TestC12BehindTheEnd(t *testing.T) {
	answer := lengthAnswer("audio/pcm", sine(2400, 24000))
	var conns atomic.Int64
	up := caseUpstream(t, func(c *net.TCPConn, _ int) {
		conns.Add(1)
		_, _ = readCaseRequest(c)
		caseSend(t, c, answer)
	})
	rig := startCaseRig(t, up, nil)
	c := caseDial(t, rig.addr)
	caseSend(t, c, speechRequest(caseSpeechBody))
	if got, err := io.ReadAll(c); string(got) != answer || err != nil {
		t.Fatalf("got %d bytes, %v", len(got), err)
	}
	caseSend(t, c, post("/v1/audio/speech", caseSpeechBody, "Idempotency-Key: k"))
	if n, _ := c.Read(make([]byte, 1)); n != 0 {
		t.Error("an answer came from nowhere")
	}
	_ = c.Close()
	recs := rig.stop()
	if len(recs) != 2 {
		t.Fatalf("%d records, want 2", len(recs))
	}
	checkNulls(t, recs[1])
	e := recs[1].Terminal.Evidence
	if recs[1].Terminal.State != timeline.TransportError || e["reused_conn"] != true || fmt.Sprint(e["bytes_received"]) != "0" || e["closed_first"] != "server" {
		t.Errorf("terminal = %+v, want transport-error on a reused connection that the server closed", recs[1].Terminal)
	}
	if conns.Load() != 1 {
		t.Errorf("%d connections at the upstream, want 1", conns.Load())
	}
}

// TestC12Race: a request that meets the close of its connection is lost once,
// and no one but the client may ask again.
func TestC12Race(t *testing.T) {
	for _, reset := range []bool{false, true} {
		t.Run(map[bool]string{false: "fin", true: "rst"}[reset], func(t *testing.T) {
			answer := lengthAnswer("audio/pcm", sine(2400, 24000))
			var conns, asked atomic.Int64
			up := caseUpstream(t, func(c *net.TCPConn, _ int) {
				conns.Add(1)
				_, _ = readCaseRequest(c)
				asked.Add(1)
				caseSend(t, c, answer)
				_, _ = readCaseRequest(c) // taken, and not served
				if reset {
					_ = c.SetLinger(0)
				}
			})
			rig := startCaseRig(t, up, nil)
			c := caseDial(t, rig.addr)
			caseSend(t, c, speechRequest(caseSpeechBody))
			if _, err := io.ReadFull(c, make([]byte, len(answer))); err != nil {
				t.Fatal(err)
			}
			caseSend(t, c, post("/v1/audio/speech", caseSpeechBody, "Idempotency-Key: k"))
			n, err := c.Read(make([]byte, 1))
			if wantErr := map[bool]error{false: io.EOF, true: syscall.ECONNRESET}[reset]; n != 0 || !errors.Is(err, wantErr) {
				t.Errorf("the client read %d, %v; want %v", n, err, wantErr)
			}
			_ = c.Close()
			recs := rig.stop()
			if len(recs) != 2 {
				t.Fatalf("%d records, want 2", len(recs))
			}
			rec := recs[1]
			checkNulls(t, rec)
			wantTerminal(t, rec, timeline.TransportError, map[bool]string{false: "closed_before_answer", true: "reset_before_answer"}[reset])
			if e := rec.Terminal.Evidence; e["reused_conn"] != true || fmt.Sprint(e["bytes_received"]) != "0" {
				t.Errorf("evidence = %v, want reused_conn and no bytes", e)
			}
			if recs[0].Terminal.Evidence["reused_conn"] != nil {
				t.Error("the first exchange says reused_conn")
			}
			if conns.Load() != 1 || asked.Load() != 1 {
				t.Errorf("%d connections and %d generations at the upstream, want one each", conns.Load(), asked.Load())
			}
		})
	}
}

// TestC12Generations: requests around the idle limit are generated once at most.
func TestC12Generations(t *testing.T) {
	const idle, rounds = 10 * time.Millisecond, 30
	for _, field := range []string{"", "Idempotency-Key: k\r\n"} {
		t.Run(field, func(t *testing.T) {
			script, err := mock.ParseFaults([]string{"idle=" + idle.String(), "burst"})
			if err != nil {
				t.Fatal(err)
			}
			script.Samples, script.Chunks, script.Framing = mock.Ints{2400}, 1, "length"
			s, base := caseMock(t, mock.Config{Script: script})
			rig := startCaseRig(t, base, nil)
			var c *net.TCPConn
			whole := 0
			for i := range rounds {
				if c == nil {
					c = caseDial(t, rig.addr)
				}
				request := post("/v1/audio/speech", caseSpeechBody, fmt.Sprintf("%sX-Request-Id: r%d", field, i))
				if !askOnce(c, request) {
					_ = c.Close()
					c = nil
					continue
				}
				whole++
				time.Sleep(idle - time.Millisecond + time.Duration(i%5)*500*time.Microsecond) // a paced client
			}
			if c != nil {
				_ = c.Close()
			}
			recs := rig.stop()
			seen := map[string]int{}
			for _, rec := range recs {
				seen[rec.RequestID]++
				if rec.Terminal.State == timeline.Success {
					continue
				}
				if e := rec.Terminal.Evidence; rec.Terminal.State != timeline.TransportError || e["reused_conn"] != true || fmt.Sprint(e["bytes_received"]) != "0" {
					t.Fatalf("terminal = %+v, want transport-error on a reused connection", rec.Terminal)
				}
			}
			for id, n := range seen {
				if n > 1 {
					t.Errorf("request %s has %d records", id, n)
				}
			}
			if got := len(s.Requests()); got != whole || whole == 0 {
				t.Errorf("%d generations for %d answers, want as many", got, whole)
			}
		})
	}
}

// askOnce sends a request and reports whether its answer came.
func askOnce(c net.Conn, request string) bool {
	if _, err := io.WriteString(c, request); err != nil {
		return false
	}
	head, err := readCaseRequest(c) // an answer of known length reads the same
	return err == nil && strings.HasPrefix(head, "HTTP/1.1 200 ")
}

// startNginx runs nginx with the template's buffering in front of upstream.
func startNginx(t testing.TB, upstream string) (base string) {
	t.Helper()
	bin, err := exec.LookPath("nginx")
	if err != nil {
		for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/sbin"} { // not on everybody's path
			if bin, err = exec.LookPath(filepath.Join(dir, "nginx")); err == nil {
				break
			}
		}
	}
	if err != nil {
		t.Fatalf("case C13 needs nginx (package nginx-light): %v", err)
	}
	template, err := os.ReadFile(filepath.Join("..", "..", "testdata", "clients", "nginx.conf.template"))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr, dir := ln.Addr().String(), t.TempDir()
	_ = ln.Close()
	conf := strings.NewReplacer("@LISTEN@", addr, "@UPSTREAM@", upstream, "@PREFIX@", dir).Replace(string(template))
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, bin, "-p", dir, "-c", file)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("nginx: %s", out.String())
		}
	})
	waitCase(t, "nginx to listen", func() bool {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
	return "http://" + addr
}

// TestC13Buffered: something ahead of the relay that holds an answer back looks
// like a slow model, and the record says so.
func TestC13Buffered(t *testing.T) {
	const chunks = 10
	paced := mock.Script{Samples: mock.Ints{2400}, Chunks: chunks, GapMS: mock.Floats{15}, Tone: "sine", Format: "pcm"}
	fast := paced
	fast.GapMS = mock.Floats{3}
	raw, whole := paced, paced
	raw.Variant = "raw"
	whole.Variant, whole.Format = "whole", "wav"
	for _, tc := range []struct {
		name        string
		script      mock.Script
		nginx       bool
		incremental bool
	}{
		{"nginx ahead of a paced server", paced, true, false},
		{"nginx ahead of paced samples", raw, true, false},
		{"paced server", paced, false, true},
		{"fast server", fast, false, true},
		{"not streaming", whole, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, base := caseMock(t, mock.Config{Script: tc.script})
			if tc.nginx {
				base = startNginx(t, base)
			}
			rig := startCaseRig(t, base, nil)
			c := caseDial(t, rig.addr)
			caseSend(t, c, post("/v1/audio/speech", caseSpeechBody, "Connection: close"))
			got, err := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 200 ") {
				t.Fatalf("got %.200q, %v", got, err)
			}
			_ = c.Close()
			recs := rig.stop()
			if len(recs) != 1 {
				t.Fatalf("%d records, want 1", len(recs))
			}
			rec := recs[0]
			checkNulls(t, rec)
			wantTerminal(t, rec, timeline.Success, "done")
			wantInt(t, "audio.samples", audioOf(t, rec).Samples, 2400*chunks)
			if rec.Incremental == nil {
				t.Error("incremental is null")
			} else if *rec.Incremental != tc.incremental {
				t.Errorf("incremental = %v, want %v", *rec.Incremental, tc.incremental)
			}
			if rec.TTFAMS == nil {
				t.Error("ttfa_ms is null, want it reported")
			}
			if rec.Playback != nil && rec.Playback.Underruns != 0 && !tc.incremental {
				t.Errorf("playback = %+v, want no underrun", *rec.Playback)
			}
			if tc.nginx {
				wantBurst(t, rec)
			}
		})
	}
}

// wantBurst checks what is said of an answer that came in one lump.
func wantBurst(t testing.TB, rec *timeline.Record) {
	t.Helper()
	if rec.Audio.Chunks > 1 { // one chunk alone is labelled by incremental
		wantFlag(t, rec, "burst_delivery", true)
	}
	if s := fmt.Sprint(rec.Terminal.Evidence); !strings.Contains(s, "nginx") {
		t.Errorf("evidence = %s, want the Server field noted", s)
	}
	if rec.TTFAMS != nil && rec.JCTMS != nil && *rec.TTFAMS < *rec.JCTMS-float64(slack.Milliseconds()) {
		t.Errorf("ttfa = %.1f ms, jct = %.1f ms, want them about alike", *rec.TTFAMS, *rec.JCTMS)
	}
}
