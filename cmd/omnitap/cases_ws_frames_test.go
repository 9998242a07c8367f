package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/omnitap/omnitap/proxy"
	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// TestWSBadInput: what breaks the protocol passes as it is, both ways, and what
// comes behind it; the records say why they end there; other sessions go on.
func TestWSBadInput(t *testing.T) {
	k := startTalks(t, func(_ *proxy.Config, tc *tap.Config) { tc.MaxEvent = 64 << 10 })
	other := k.opened("X-Request-Id: other")
	other.begin("o")
	other.sound("o", sine(480, 24000))
	long := strings.Repeat("p", 126)
	type badCase struct {
		name, data string
		from       int
		state      timeline.State
		reason     string
		side, why  string // of the session's analysis; empty: full
		flag       string
	}
	var cases []badCase
	for _, c := range []struct{ name, frame, why string }{
		{"oversize control", "\x89\x7e\x00\x7e" + long, "control"},
		{"lone continuation", talkFrame(server, 0x80, "x"), "fragment"},
		{"reserved opcode", talkFrame(server, 0x83, "x"), "opcode"},
		{"RSV1 without compression", talkFrame(server, 0xc1, "x"), "reserved bit"},
		{"masked", maskedFrame(true, 0x81, "{}"), "masking"},
		{"no frames at all", "HTTP/1.1 500 Internal Server Error\r\n\r\n", ""},
	} {
		cases = append(cases, badCase{"server: " + c.name, c.frame, server, timeline.InvalidOutput, "malformed_frames", "server: ", c.why, "protocol_violation"})
	}
	for _, c := range []struct{ name, frame, why string }{
		{"unmasked", maskedFrame(false, 0x81, "{}"), "masking"},
		{"oversize control", talkFrame(client, 0x89, long), "control"},
		{"lone continuation", talkFrame(client, 0x80, "x"), "fragment"},
	} {
		cases = append(cases, badCase{"client: " + c.name, c.frame, client, timeline.Success, "done", "client: ", c.why, "protocol_violation"})
	}
	cases = append(
		cases,
		badCase{"server: JSON that is none", talkFrame(server, 0x81, "nonsense"), server, timeline.InvalidOutput, "malformed_json", "", "", "malformed_message"},
		badCase{"client: JSON that is none", talkFrame(client, 0x81, "nonsense"), client, timeline.Success, "done", "", "", "malformed_message"},
		badCase{"server: over the bound", talkFrame(server, 0x81, talkJSON("x", `"a":"`+strings.Repeat("y", 1<<20)+`"`)), server, timeline.Success, "done", "", "message of", ""},
		badCase{"client: over the bound", talkFrame(client, 0x81, talkJSON("x", `"a":"`+strings.Repeat("y", 1<<20)+`"`)), client, timeline.Success, "done", "", "message of", ""},
	)
	for i, c := range cases {
		w := k.opened(fmt.Sprintf("X-Request-Id: %d", i))
		w.begin("a")
		w.sound("a", sine(480, 24000))
		w.send(c.from, c.data)
		w.done("a")
		w.send(client, talkFrame(client, 0x81, "{}"))
		w.shut()
	}
	other.done("o")
	other.shut()
	turns, lines := k.end(t, len(cases)+1)
	for n, l := range lines {
		recs := turns[n]
		if len(recs) != 1 {
			t.Errorf("session %s: %d records, want 1", l.SessionID, len(recs))
			continue
		}
		if l.SessionID == "other" {
			wantTerminal(t, recs[0], timeline.Success, "done")
			wantSamples(t, recs[0], 480, 1)
			if l.Analysis != "full" || recs[0].Analysis != "full" || len(l.Flags) != 0 {
				t.Errorf("the other session: analysis %s, flags %q, want it untouched", l.Analysis, l.Flags)
			}
			continue
		}
		var i int
		_, _ = fmt.Sscan(l.SessionID, &i)
		c := cases[i]
		if s := recs[0].Terminal; s.State != c.state || s.Reason != c.reason {
			t.Errorf("%s: %s/%s, want %s/%s", c.name, s.State, s.Reason, c.state, c.reason)
		}
		want, why := c.side+c.why, text(l.AnalysisReason)
		told := l.Analysis != "full" && strings.HasPrefix(why, c.side) && strings.Contains(why, c.why)
		if told != (want != "") || c.flag != "" && !slices.Contains(l.Flags, c.flag) {
			t.Errorf("%s: analysis %s (%s), flags %q, want %q and %q", c.name, l.Analysis, why, l.Flags, want, c.flag)
		}
	}
}

// TestWSUpgradeRefused: a connection goes on behind a refused upgrade, and the
// next upgrade on it is a session like any other.
func TestWSUpgradeRefused(t *testing.T) {
	k := startTalks(t, nil)
	w := k.dial()
	for _, answer := range []string{
		"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 23\r\n\r\n{\"error\":{\"code\":\"x\"}}\n",
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi",
	} {
		w.send(client, talkUpgrade("/v1/audio/speech/stream"))
		w.send(server, answer)
	}
	w.send(client, talkUpgrade("/v1/realtime"))
	w.send(server, talkSwitch)
	w.say(server, "session.created", `"session":{"id":"sess_1"}`)
	w.begin("a")
	w.sound("a", sine(480, 24000))
	w.done("a")
	w.shut()
	turns, lines := k.end(t, 1)
	var recs []*timeline.Record
	for n := range lines {
		recs = turns[n]
	}
	if len(recs) != 4 {
		t.Fatalf("%d records, want 4", len(recs))
	}
	slices.SortFunc(recs, func(a, b *timeline.Record) int { return int(*a.Points.TIn - *b.Points.TIn) })
	wantTerminal(t, recs[0], timeline.InvalidRequest, "http_403")
	wantTerminal(t, recs[1], timeline.AdmissionRejected, "http_503")
	wantTerminal(t, recs[2], timeline.InvalidOutput, "no_output")
	wantTerminal(t, recs[3], timeline.Success, "done")
	for _, r := range recs[:3] {
		if r.Flow != timeline.FlowSpeechWS || r.Turn != nil || r.SessionID != nil {
			t.Errorf("flow %s, turn %v, want a request of speech_ws", r.Flow, r.Turn)
		}
	}
	for _, l := range lines {
		if l.BytesUp >= w.n[client] || l.BytesDown >= w.n[server] {
			t.Errorf("session bytes %d up, %d down, of the connection's %d and %d: those of the requests before it are none of its own", l.BytesUp, l.BytesDown, w.n[client], w.n[server])
		}
	}
}

// TestWSClientNotReading: a slow client is named in its own turn.
func TestWSClientNotReading(t *testing.T) {
	k := startTalks(t, nil)
	w := k.opened()
	w.begin("a")
	frame := talkFrame(server, 0x81, talkJSON("response.output_audio.delta", soundOf("a", sine(24000, 24000))))
	var burst strings.Builder
	for burst.Len() < 24<<20 { // over what the sockets hold
		burst.WriteString(frame)
	}
	written := make(chan error, 1)
	go func() {
		_, err := io.WriteString(w.ends[server], burst.String())
		written <- err
	}()
	waitCase(t, "the upstream to be held up", func() bool { return unsent(t, w.ends[server]) > 0 })
	before := monoNow()
	waitCase(t, "the client's pause to be over", func() bool { return monoNow()-before > int64(200*time.Millisecond) })
	if _, err := io.ReadFull(w.ends[client], make([]byte, burst.Len())); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	w.done("a")
	w.shut()
	recs, _ := k.only(t, 1)
	wantTerminal(t, recs[0], timeline.Success, "done")
	wantFlag(t, recs[0], "client_slow", true)
	if wait := recs[0].ClientWaitMS; wait == nil || *wait < 100 {
		t.Errorf("client_wait_ms = %v, want 100 at least; analysis %s", wait, recs[0].Analysis)
	}
}

// TestC65Sessions: with a queue that is full most of the time, and at shutdown,
// every turn has one record and every session its line.
func TestC65Sessions(t *testing.T) {
	const sessions = 8
	tiny := func(p *proxy.Config, c *tap.Config) {
		c.MaxQueue, c.Latency, p.Drain = 32<<10, 100*time.Millisecond, 100*time.Millisecond
	}
	burst := strings.Repeat(talkFrame(server, 0x81, talkJSON("response.output_audio.delta", soundOf("a", sine(480, 24000)))), 1000)
	done := talkFrame(server, 0x81, talkJSON("response.done", `"response":{"id":"a","status":"completed"}`))
	for _, c := range []struct {
		name string
		end  func(*talk)
	}{
		{"done", func(w *talk) { w.send(server, done); w.shut() }},
		{"error", func(w *talk) { w.say(server, "error", `"error":{"type":"server_error","message":"boom"}`); w.shut() }},
		{"cut", func(w *talk) { w.fin(server); w.fin(client) }},
		{"cancel", func(w *talk) { w.say(client, "response.cancel", ""); w.rst(client) }},
		{"shutdown", func(*talk) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := startTalks(t, tiny)
			for range sessions {
				w := k.opened()
				w.begin("a")
				w.send(server, burst)
				c.end(w)
			}
			turns, lines := k.end(t, sessions)
			for n, l := range lines {
				if len(turns[n]) != 1 {
					t.Errorf("%d records of a session, want 1", len(turns[n]))
				}
				for _, r := range turns[n] {
					if r.Analysis == "full" || r.Terminal.State == timeline.Success {
						t.Errorf("analysis %s, terminal %+v, want one that says what was lost", r.Analysis, r.Terminal)
					}
				}
				if l.Analysis == "full" || text(l.AnalysisReason) == "" {
					t.Errorf("session: analysis %s (%s), want what was lost", l.Analysis, text(l.AnalysisReason))
				}
			}
		})
	}
}

// TestC65SessionsAtShutdown: with nothing lost ahead of it: a turn that runs ends as
// the relay's, what was over stays as it was, and an idle session has its line.
func TestC65SessionsAtShutdown(t *testing.T) {
	k := startTalks(t, func(p *proxy.Config, _ *tap.Config) { p.Drain = 50 * time.Millisecond })
	idle := k.opened("X-Request-Id: idle")
	idle.begin("a")
	idle.sound("a", sine(480, 24000))
	idle.done("a")
	running := k.opened("X-Request-Id: running")
	running.begin("a")
	running.sound("a", sine(480, 24000))
	asked := k.opened("X-Request-Id: asked")
	asked.say(client, "response.create", "")
	k.opened("X-Request-Id: empty")
	turns, lines := k.end(t, 4)
	for n, l := range lines {
		want, count := timeline.HarnessError, 1
		switch l.SessionID {
		case "idle":
			want = timeline.Success
		case "empty":
			count = 0
		}
		if len(turns[n]) != count {
			t.Errorf("%s: %d records, want %d", l.SessionID, len(turns[n]), count)
		}
		for _, r := range turns[n] {
			if r.Terminal.State != want || want == timeline.HarnessError && (r.Terminal.Reason != "proxy_shutdown" || r.Terminal.By != "relay") {
				t.Errorf("%s: %+v, want %s", l.SessionID, r.Terminal, want)
			}
		}
		if l.Analysis != "full" || l.Close.By == "client" || l.Close.By == "server" {
			t.Errorf("%s: analysis %s, close %+v, want by the relay", l.SessionID, l.Analysis, l.Close)
		}
	}
}
