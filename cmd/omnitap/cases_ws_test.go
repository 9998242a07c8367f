package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/omnitap/omnitap/proxy"
	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// WebSocket sessions over real sockets: the test holds both ends and says each
// thing when all before it has arrived, so what comes of it is certain. (What
// messages mean is tested on captures, in proxy/tap.)

// talks is a relay for sessions.
type talks struct {
	t     testing.TB
	rig   *caseRig
	conns chan *net.TCPConn // as the upstream accepts them
}

func startTalks(t testing.TB, change func(*proxy.Config, *tap.Config)) *talks {
	t.Helper()
	k := &talks{t: t, conns: make(chan *net.TCPConn)}
	done := make(chan struct{})
	up := caseUpstream(t, func(c *net.TCPConn, _ int) {
		select {
		case k.conns <- c:
			<-done
		case <-done:
		}
	})
	t.Cleanup(func() { close(done) })
	k.rig = startCaseRig(t, up, change)
	return k
}

// talk is one session. Its ends are the client and the server.
type talk struct {
	t    testing.TB
	ends [2]*net.TCPConn
	n    [2]int64 // bytes each has sent
}

const (
	client = iota
	server
)

// talkUpgrade asks for a session at path; fields as for post.
func talkUpgrade(path string, fields ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + strings.Join(append(fields, ""), "\r\n") +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
}

const talkSwitch = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"

// dial connects a client and the upstream through the relay.
func (k *talks) dial() *talk {
	k.t.Helper()
	w := &talk{t: k.t}
	w.ends[client] = caseDial(k.t, k.rig.addr)
	w.ends[server] = <-k.conns
	for _, c := range w.ends {
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	}
	return w
}

// open is dial and the upgrade.
func (k *talks) open(path string, fields ...string) *talk {
	k.t.Helper()
	w := k.dial()
	w.send(client, talkUpgrade(path, fields...))
	w.send(server, talkSwitch)
	return w
}

// send writes as one end, and returns when the other has received it unchanged.
func (w *talk) send(from int, data string) (at caseStamp) {
	w.t.Helper()
	var writing sync.WaitGroup
	at.before = monoNow()
	writing.Go(func() { caseSend(w.t, w.ends[from], data) })
	got := make([]byte, len(data))
	n, err := io.ReadFull(w.ends[1-from], got)
	writing.Wait()
	at.after = monoNow()
	if err != nil || string(got) != data {
		w.t.Errorf("%d of %d bytes arrived, %v; first difference at %d", n, len(data), err, differAt(string(got[:n]), data))
	}
	w.n[from] += int64(len(data))
	return at
}

// say sends a text message.
func (w *talk) say(from int, kind, members string) caseStamp {
	w.t.Helper()
	return w.send(from, talkFrame(from, 0x81, talkJSON(kind, members)))
}

func talkJSON(kind, members string) string {
	if members != "" {
		members = "," + members
	}
	return `{"type":"` + kind + `"` + members + `}`
}

// talkFrame makes a frame of that end.
func talkFrame(from int, first byte, payload string) string {
	return maskedFrame(from == client, first, payload)
}

func maskedFrame(masked bool, first byte, payload string) string {
	var mask byte
	if masked {
		mask = 0x80
	}
	f := []byte{first}
	switch n := len(payload); {
	case n < 126:
		f = append(f, mask|byte(n))
	case n < 1<<16:
		f = binary.BigEndian.AppendUint16(append(f, mask|126), uint16(n))
	default:
		f = binary.BigEndian.AppendUint64(append(f, mask|127), uint64(n))
	}
	if !masked {
		return string(f) + payload
	}
	key := [4]byte{1, 0xf2, 0x33, 0x84}
	f = append(f, key[:]...)
	for i := range len(payload) {
		f = append(f, payload[i]^key[i&3])
	}
	return string(f)
}

// closeFrame is a close frame with that code, -1 for none.
func closeFrame(from, code int, reason string) string {
	if code < 0 {
		return talkFrame(from, 0x88, "")
	}
	return talkFrame(from, 0x88, string(binary.BigEndian.AppendUint16(nil, uint16(code)))+reason)
}

// fin ends one direction, and rst an end; the other end sees it as it was made.
func (w *talk) fin(from int) {
	w.t.Helper()
	_ = w.ends[from].CloseWrite()
	w.sees(1-from, nil)
}

func (w *talk) rst(from int) {
	w.t.Helper()
	_ = w.ends[from].SetLinger(0)
	_ = w.ends[from].Close()
	w.sees(1-from, syscall.ECONNRESET)
}

// sees reads to the end, which must be want (nil: FIN) with nothing ahead of it.
func (w *talk) sees(end int, want error) {
	w.t.Helper()
	n, err := io.Copy(io.Discard, w.ends[end])
	if n != 0 || !errors.Is(err, want) {
		w.t.Errorf("end %d got %d bytes and %v, want none and %v", end, n, err, want)
	}
}

// shut ends a session well.
func (w *talk) shut() {
	w.t.Helper()
	w.send(client, closeFrame(client, 1000, ""))
	w.send(server, closeFrame(server, 1000, ""))
	w.fin(server)
	w.fin(client)
}

// The messages of a turn with response ids; begin, sound and done are the server's.
func (w *talk) begin(id string) (asked, begun caseStamp) {
	w.t.Helper()
	asked = w.say(client, "response.create", "")
	return asked, w.say(server, "response.created", `"response":{"id":"`+id+`"}`)
}

func soundOf(id, pcm string) string {
	return `"response_id":"` + id + `","delta":"` + base64.StdEncoding.EncodeToString([]byte(pcm)) + `"`
}

func (w *talk) sound(id, pcm string) caseStamp {
	w.t.Helper()
	return w.say(server, "response.output_audio.delta", soundOf(id, pcm))
}

func (w *talk) done(id string) caseStamp {
	w.t.Helper()
	return w.say(server, "response.done", `"response":{"id":"`+id+`","status":"completed"}`)
}

// opened is open at /v1/realtime with the server's first message.
func (k *talks) opened(fields ...string) *talk {
	k.t.Helper()
	w := k.open("/v1/realtime", fields...)
	w.say(server, "session.created", `"session":{"id":"sess_1","model":"m"}`)
	return w
}

// end stops the relay and checks what holds for all sessions: one record a turn,
// one line a session, and every null with its reason.
func (k *talks) end(t testing.TB, sessions int) (turns map[uint64][]*timeline.Record, lines map[uint64]*timeline.Session) {
	t.Helper()
	recs := k.rig.stop()
	turns, lines = map[uint64][]*timeline.Record{}, map[uint64]*timeline.Session{}
	names := map[string]bool{}
	for _, r := range recs {
		checkNulls(t, r)
		if names[r.RequestID] {
			t.Errorf("two records of %s", r.RequestID)
		}
		names[r.RequestID] = true
		turns[r.ConnectionID] = append(turns[r.ConnectionID], r)
	}
	for _, l := range k.rig.lines() {
		checkLine(t, l)
		if lines[l.ConnectionID] != nil {
			t.Errorf("two lines of connection %d", l.ConnectionID)
		}
		lines[l.ConnectionID] = l
		n := 0
		for _, r := range turns[l.ConnectionID] {
			if r.Turn != nil && r.SessionID != nil && *r.SessionID == l.SessionID {
				n++
			}
		}
		sum := 0
		for _, m := range l.States {
			sum += m
		}
		if n != l.Turns || sum != n {
			t.Errorf("session of connection %d: turns %d, states %v, records %d", l.ConnectionID, l.Turns, l.States, n)
		}
		slices.SortFunc(turns[l.ConnectionID], func(a, b *timeline.Record) int { return turnNumber(a) - turnNumber(b) })
	}
	if len(lines) != sessions {
		t.Errorf("%d session lines, want %d", len(lines), sessions)
	}
	return turns, lines
}

func turnNumber(r *timeline.Record) int {
	if r.Turn == nil {
		return -1
	}
	return *r.Turn
}

// only returns the records and the line of the one session there was.
func (k *talks) only(t testing.TB, turns int) ([]*timeline.Record, *timeline.Session) {
	t.Helper()
	recs, lines := k.end(t, 1)
	for n, l := range lines {
		if len(recs[n]) != turns {
			t.Fatalf("%d records, want %d", len(recs[n]), turns)
		}
		return recs[n], l
	}
	t.Fatal("no session")
	return nil, nil
}

// checkLine checks that every null of a session's line has its reason.
func checkLine(t testing.TB, l *timeline.Session) {
	t.Helper()
	b, err := json.Marshal(l)
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
		if l.Unmeasured[name] == "" {
			t.Errorf("session: %s is null without a reason", name)
		}
	}
	for name, why := range l.Unmeasured {
		if !nulls[name] {
			t.Errorf("session: unmeasured names %s (%s), which is not null", name, why)
		}
	}
}

// wantWithin checks that a point lies within a send.
func wantWithin(t testing.TB, name string, got *int64, at caseStamp) {
	t.Helper()
	if got == nil {
		t.Errorf("%s is null", name)
	} else if *got < at.before-int64(clockSlack) || *got > at.after+int64(clockSlack) {
		t.Errorf("%s lies %.3f ms behind the start of its message, which took %.3f", name, float64(*got-at.before)/1e6, float64(at.after-at.before)/1e6)
	}
}

// TestWSTurn: what only a live turn has, and its points against the test's clock.
func TestWSTurn(t *testing.T) {
	k := startTalks(t, nil)
	w := k.opened("X-Request-Id: mine")
	var checks []func(r *timeline.Record)
	for i, id := range []string{"a", "b"} {
		asked, begun := w.begin(id)
		askedEnd := w.n[client]
		w.sound(id, "")
		first := w.sound(id, sineFrom(0, 480, 24000))
		firstEnd := w.n[server]
		w.sound(id, sineFrom(480, 480, 24000))
		over := w.done(id)
		overEnd := w.n[server]
		checks = append(checks, func(r *timeline.Record) {
			wantTerminal(t, r, timeline.Success, "done")
			wantWithin(t, "t_in", r.Points.TIn, asked)
			wantWithin(t, "t_body", r.Points.TBody, asked)
			wantWithin(t, "t_up", r.Points.TUp, asked)
			created := r.TInAlternatives["response_created"]
			wantWithin(t, "response_created", &created, begun)
			wantWithin(t, "t_audio", r.Points.TAudio, first)
			wantWithin(t, "t_term", r.Points.TTerm, over)
			wantInt(t, "offsets.t_in", r.Offsets.TIn, askedEnd)
			wantInt(t, "offsets.t_up", r.Offsets.TUp, askedEnd)
			wantInt(t, "offsets.t_audio", r.Offsets.TAudio, firstEnd)
			wantInt(t, "offsets.t_term", r.Offsets.TTerm, overEnd)
			wantSamples(t, r, 960, 2)
			if r.OwnDelayUS == nil || r.OwnDelayUS.N != 2 || r.ClientWaitMS == nil {
				t.Errorf("own_delay_us = %+v, client_wait_ms = %v, want two chunks' and one", r.OwnDelayUS, r.ClientWaitMS)
			}
			if want := fmt.Sprintf("mine-t%d", i); r.RequestID != want || r.RequestIDSource != "client" || *r.SessionID != "mine" || *r.Status != 101 || r.TInWallNS == nil {
				t.Errorf("request_id %s by %s, session %s, status %d, t_in_wall_ns %v, want %s of the client's mine", r.RequestID, r.RequestIDSource, *r.SessionID, *r.Status, r.TInWallNS, want)
			}
			writes := map[string]int{}
			for _, e := range k.rig.events() {
				if e.RequestID == r.RequestID {
					writes[e.Event]++
					if e.SessionID != "mine" {
						t.Errorf("event %s of session %q, want mine", e.Event, e.SessionID)
					}
				}
			}
			if writes["client_write"] != 2 || writes["output_chunk"] != 2 || writes["ingress"] != 1 || writes["first_audio"] != 1 || writes["upstream_sent"] != 1 {
				t.Errorf("events %v, want each point once and two chunks with their writes", writes)
			}
		})
	}
	w.shut()
	recs, l := k.only(t, 2)
	for i, check := range checks {
		check(recs[i])
	}
	if l.BytesUp != w.n[client] || l.BytesDown != w.n[server] || l.MessagesUp != 2 || l.MessagesDown != 11 || l.SessionID != "mine" || l.OpenedWallNS == nil || l.Close.By != "client" {
		t.Errorf("session = %+v, want %d bytes up and %d down", l, w.n[client], w.n[server])
	}
}

// TestWSEarlyBytes: a client that does not wait for the 101: t_in is its own.
func TestWSEarlyBytes(t *testing.T) {
	k := startTalks(t, nil)
	w := k.dial()
	w.send(client, talkUpgrade("/v1/realtime"))
	asked := w.say(client, "response.create", "")
	askedEnd := w.n[client]
	w.send(client, talkFrame(client, 0x89, "are you there?"))
	w.send(server, talkSwitch+talkFrame(server, 0x8a, "are you there?"))
	w.say(server, "session.created", `"session":{"id":"sess_1"}`)
	w.say(server, "response.created", `"response":{"id":"a"}`)
	w.sound("a", sine(480, 24000))
	w.done("a")
	w.fin(server)
	w.fin(client)
	recs, l := k.only(t, 1)
	wantTerminal(t, recs[0], timeline.Success, "done")
	wantWithin(t, "t_in", recs[0].Points.TIn, asked)
	wantWithin(t, "t_up", recs[0].Points.TUp, asked)
	wantInt(t, "offsets.t_in", recs[0].Offsets.TIn, askedEnd)
	if l.PingsUp != 1 || l.Pongs != 1 || l.PingRTTMS == nil {
		t.Errorf("session = %+v, want a ping and its pong", l)
	}
}

// TestC42Ends: how a session ends reaches the other side as it was made, and the
// line says both sides' codes apart.
func TestC42Ends(t *testing.T) {
	k := startTalks(t, nil)
	invalid := func(end int) func(*talk) {
		return func(w *talk) {
			w.send(end, talkFrame(end, 0x88, "\x03"))
			w.fin(end)
			w.fin(1 - end)
		}
	}
	code := func(end, code int, reason string) func(*talk) {
		return func(w *talk) {
			w.send(end, closeFrame(end, code, reason))
			w.fin(end)
			w.fin(1 - end)
		}
	}
	cases := []struct {
		name              string
		end               func(*talk)
		up, down          int // -1: none
		by, transport     string
		state             timeline.State
		reason, flag, say string
	}{
		{"empty", code(client, -1, ""), 0, -1, "client", "fin", timeline.ClientCancelled, "client_closed", "", ""},
		{"server's 4001", code(server, 4001, "bye"), -1, 4001, "server", "fin", timeline.ServerError, "close_4001", "", "bye"},
		{"long reason", code(server, 1011, strings.Repeat("é", 61)), -1, 1011, "server", "fin", timeline.ServerError, "close_1011", "", strings.Repeat("é", 61)},
		{"999", code(client, 999, ""), 999, -1, "client", "fin", timeline.ClientCancelled, "client_closed", "invalid_close_code", ""},
		{"one byte", invalid(client), 0, -1, "client", "fin", timeline.ClientCancelled, "client_closed", "invalid_close_code", ""},
		{"client's RST", func(w *talk) { w.rst(client) }, -1, -1, "client", "rst", timeline.ClientCancelled, "client_reset", "no_close_frame", ""},
		{"server's RST", func(w *talk) { w.rst(server) }, -1, -1, "server", "rst", timeline.TransportError, "reset", "no_close_frame", ""},
		{"server's FIN", func(w *talk) { w.fin(server); w.fin(client) }, -1, -1, "server", "fin", timeline.TransportError, "cut", "no_close_frame", ""},
		{"client's FIN", func(w *talk) { w.fin(client); w.fin(server) }, -1, -1, "client", "fin", timeline.ClientCancelled, "half_closed", "no_close_frame", ""},
	}
	for i, c := range cases {
		w := k.opened("X-Request-Id: " + fmt.Sprint(i))
		w.begin("a")
		w.sound("a", sine(480, 24000))
		c.end(w)
	}
	turns, lines := k.end(t, len(cases))
	for n, l := range lines {
		var i int
		_, _ = fmt.Sscan(l.SessionID, &i)
		c := cases[i]
		if len(turns[n]) != 1 {
			t.Errorf("%s: %d records, want 1", c.name, len(turns[n]))
			continue
		}
		if r := turns[n][0]; r.Terminal.State != c.state || r.Terminal.Reason != c.reason {
			t.Errorf("%s: %s/%s, want %s/%s", c.name, r.Terminal.State, r.Terminal.Reason, c.state, c.reason)
		}
		got := [2]int{-1, -1}
		for d, p := range []*int{l.CloseSeenUp, l.CloseSeenDown} {
			if p != nil {
				got[d] = *p
			}
		}
		reason := ""
		if l.Close.Reason != nil {
			reason = *l.Close.Reason
		}
		if got != [2]int{c.up, c.down} || l.Close.By != c.by || l.Close.Transport != c.transport || reason != c.say || c.flag != "" && !slices.Contains(l.Flags, c.flag) {
			t.Errorf("%s: codes %v, close %+v, reason %q, flags %q", c.name, got, l.Close, reason, l.Flags)
		}
	}
}

// TestC44BigMessage: 10 MB of text in 200 fragments, a ping amid them.
func TestC44BigMessage(t *testing.T) {
	const samples = 3_900_000 // 10.4 MB of base64
	text := talkJSON("response.output_audio.delta", soundOf("a", sineFrom(480, samples, 24000)))
	var fragments []string
	for size := len(text)/200 + 1; len(text) > 0; {
		part, first := text[:min(size, len(text))], byte(0)
		if text = text[len(part):]; len(fragments) == 0 {
			first = 1
		} else if text == "" {
			first = 0x80
		}
		fragments = append(fragments, talkFrame(server, first, part))
	}
	for _, c := range []struct {
		name     string
		limit    int
		sent     int
		end      func(*talk)
		state    timeline.State
		reason   string
		analysis string
	}{
		{"whole", 0, 200, func(w *talk) { w.done("a"); w.shut() }, timeline.Success, "done", "full"},
		{"over the bound", 1 << 20, 200, func(w *talk) { w.done("a"); w.shut() }, timeline.Success, "done", "truncated"},
		{"closed behind 199", 0, 199, func(w *talk) { w.send(server, closeFrame(server, 1001, "")); w.fin(server); w.fin(client) }, timeline.TransportError, "close_1001", "full"},
		{"cut behind 199", 0, 199, func(w *talk) { w.fin(server); w.fin(client) }, timeline.TransportError, "cut", "full"},
		{"reset behind 199", 0, 199, func(w *talk) { w.rst(server) }, timeline.TransportError, "reset", "full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := startTalks(t, func(_ *proxy.Config, tc *tap.Config) { tc.MaxEvent = c.limit })
			w := k.opened()
			w.begin("a")
			w.sound("a", sine(480, 24000))
			w.send(server, strings.Join(fragments[:50], "")+talkFrame(server, 0x89, "p"))
			w.send(client, talkFrame(client, 0x8a, "p"))
			w.send(server, strings.Join(fragments[50:c.sent-1], ""))
			last := w.send(server, fragments[c.sent-1])
			c.end(w)
			recs, l := k.only(t, 1)
			r := recs[0]
			wantTerminal(t, r, c.state, c.reason)
			if r.Analysis != c.analysis || l.Analysis != c.analysis || l.PingRTTMS == nil {
				t.Errorf("analysis %s, session %s, ping_rtt_ms %v, want %s and a round trip", r.Analysis, l.Analysis, l.PingRTTMS, c.analysis)
			}
			switch {
			case c.analysis == "truncated":
				wantNull(t, "audio.samples", audioOf(t, r).Samples)
			case c.sent < 200:
				wantSamples(t, r, 480, 1)
			default:
				wantSamples(t, r, samples+480, 2)
				for _, e := range k.rig.events() {
					if n, _ := e.ChunkID.Get(); e.Event == "output_chunk" && n == 1 {
						wantWithin(t, "the message", &e.MonoNS, last)
					}
				}
			}
		})
	}
}

// TestC45SilentPeers: who did not answer a ping is known, if with low confidence.
func TestC45SilentPeers(t *testing.T) {
	for _, c := range []struct {
		name   string
		from   int
		state  timeline.State
		reason string
	}{
		{"the client", server, timeline.ClientCancelled, "ping_timeout"},
		{"the server", client, timeline.WorkerLost, "ping_timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := startTalks(t, nil)
			w := k.opened()
			w.begin("a")
			w.send(c.from, talkFrame(c.from, 0x89, "are you there?"))
			w.send(c.from, closeFrame(c.from, 1011, "keepalive ping timeout"))
			w.fin(c.from)
			w.fin(1 - c.from)
			recs, l := k.only(t, 1)
			wantTerminal(t, recs[0], c.state, c.reason)
			wantNull(t, "ttfa_ms", recs[0].TTFAMS)
			wantNull(t, "ping_rtt_ms", l.PingRTTMS)
			if recs[0].Terminal.Evidence["confidence"] != "low" || l.PingsUp+l.PingsDown != 1 || l.Pongs != 0 {
				t.Errorf("evidence %v, pings %d up, %d down, pongs %d", recs[0].Terminal.Evidence, l.PingsUp, l.PingsDown, l.Pongs)
			}
		})
	}
}

// TestC47HalfCloseRecords: late sound is in the record; a client that is gone is
// one that left.
func TestC47HalfCloseRecords(t *testing.T) {
	begin := func(t *testing.T) (*talks, *talk) {
		t.Helper()
		k := startTalks(t, nil)
		w := k.opened()
		w.begin("a")
		return k, w
	}
	t.Run("late sound", func(t *testing.T) {
		k, w := begin(t)
		w.fin(client)
		late := w.sound("a", sine(480, 24000))
		w.done("a")
		w.fin(server)
		recs, l := k.only(t, 1)
		wantTerminal(t, recs[0], timeline.Success, "done")
		wantWithin(t, "t_audio", recs[0].Points.TAudio, late)
		wantSamples(t, recs[0], 480, 1)
		if l.Close.By != "client" {
			t.Errorf("close = %+v, want by client", l.Close)
		}
	})
	t.Run("a turn that begins behind it", func(t *testing.T) {
		k := startTalks(t, nil)
		w := k.opened()
		w.say(client, "response.create", "")
		w.fin(client)
		w.say(server, "response.created", `"response":{"id":"a"}`)
		w.sound("a", sine(480, 24000))
		w.fin(server)
		recs, _ := k.only(t, 1)
		wantTerminal(t, recs[0], timeline.ClientCancelled, "half_closed")
	})
	t.Run("gone, and the server is silent", func(t *testing.T) {
		k, w := begin(t)
		_ = w.ends[client].Close()
		w.sees(server, nil)
		_ = w.ends[server].Close()
		recs, _ := k.only(t, 1)
		wantTerminal(t, recs[0], timeline.ClientCancelled, "half_closed")
	})
	t.Run("gone, and the server sends on", func(t *testing.T) {
		k, w := begin(t)
		_ = w.ends[client].Close()
		w.sees(server, nil)
		frame := talkFrame(server, 0x81, talkJSON("response.output_audio.delta", soundOf("a", sine(480, 24000))))
		var err error
		for err == nil { // until the relay lets go
			_, err = io.WriteString(w.ends[server], frame)
		}
		recs, l := k.only(t, 1)
		if s := recs[0].Terminal; s.State != timeline.ClientCancelled || s.By != "client" {
			t.Errorf("terminal = %+v, want client-cancelled by client", s)
		}
		if l.Close.By != "client" {
			t.Errorf("close = %+v, want by client", l.Close)
		}
	})
}

// TestC52OpaqueHTTP2: HTTP/2 by prior knowledge passes and is no request.
func TestC52OpaqueHTTP2(t *testing.T) {
	k := startTalks(t, nil)
	w := k.dial()
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	w.send(client, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings)
	w.send(server, settings+"\x00\x00\x00\x04\x01\x00\x00\x00\x00")
	w.send(client, "\x00\x00\x00\x04\x01\x00\x00\x00\x00")
	w.fin(client)
	w.fin(server)
	turns, _ := k.end(t, 0)
	for _, recs := range turns {
		for _, r := range recs {
			if r.Flow != timeline.FlowOpaque || r.Analysis != "lost" || r.AnalysisReason == nil || !strings.Contains(*r.AnalysisReason, "h2") {
				t.Errorf("flow %s, analysis %s (%v), want opaque(h2)", r.Flow, r.Analysis, text(r.AnalysisReason))
			}
			if r.BytesUp != w.n[client] || r.BytesDown != w.n[server] {
				t.Errorf("bytes %d, %d, want %d, %d", r.BytesUp, r.BytesDown, w.n[client], w.n[server])
			}
		}
	}
	if len(turns) != 1 {
		t.Errorf("records of %d connections, want 1", len(turns))
	}
}

func text(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}
