package tap_test

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// wsText is a message in one frame; that of a client is masked with zeros.
func wsText(client bool, text string) []byte { return wsMessage(client, 0x81, []byte(text)) }

func wsMessage(client bool, head byte, p []byte) []byte {
	b := []byte{head, 0}
	switch n := len(p); {
	case n > 0xffff:
		b[1] = 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	case n > 125:
		b[1] = 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] = byte(n)
	}
	if client {
		b[1] |= 0x80
		b = append(b, 0, 0, 0, 0)
	}
	return append(b, p...)
}

// wire drives a Conn message by message, each its own read and write a millisecond
// after the one before.
type wire struct {
	c    *tap.Conn
	mono int64
}

// reader serves all of them, as a worker's does.
var reader dialect.Reader

func newWire(sink timeline.Sink, cfg *tap.Config, path string) *wire {
	w := &wire{c: tap.NewConn(cfg, func(n int) timeline.Identity { return timeline.Identity{OwnID: fmt.Sprint("r-", n)} }, sink, &reader, false), mono: 1}
	w.send(tap.Client, []byte("GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"))
	w.send(tap.Server, []byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"))
	return w
}

func (w *wire) send(dir tap.Dir, p []byte) {
	w.mono += 1e6
	w.c.Bytes(dir, p, w.mono, 0)
	w.c.Wrote(dir, w.mono+5000, 0)
}

const (
	wsDuplex  = `{"type":"session.created","session":{"id":"duplex-09e8d9297357413b9844be8c13384bb1","turn_state":"idle","epoch":0,"model":"m","modalities":["text","audio"]}}`
	wsCommit  = `{"type":"input_audio_buffer.commit"}`
	wsCreated = `{"type":"response.created","response_id":"resp-duplex-09e8d9297357413b9844be8c13384bb1-0-12bd48ce","response":{"id":"resp-duplex-09e8d9297357413b9844be8c13384bb1-0-12bd48ce","object":"realtime.response","status":"in_progress"}}`
	wsDone    = `{"type":"response.done","response_id":"resp-duplex-09e8d9297357413b9844be8c13384bb1-0-12bd48ce","response":{"id":"resp-duplex-09e8d9297357413b9844be8c13384bb1-0-12bd48ce","object":"realtime.response","status":"completed","status_details":{"type":"completed","reason":"stop"}}}`
	wsDelta   = `{"type":"response.output_text.delta","response_id":"resp-duplex-09e8d9297357413b9844be8c13384bb1-0-12bd48ce","item_id":"item_resp-duplex-09e8d9297357413b9844be8c13384bb1-0-12bd48ce","output_index":0,"content_index":1,"delta":"Hel","event_id":"event_e43763d3eec54287b180ded3da5f9eca"}`
)

// wsSound is a delta of 6,400 bytes of base64.
var wsSound = `{"type":"response.audio.delta","response_id":"resp-duplex-09e8d9297357413b9844be8c13384bb1-0-12bd48ce","item_id":"item_resp-duplex-09e8d9297357413b9844be8c13384bb1-0-12bd48ce","output_index":0,"content_index":0,"delta":"` +
	strings.Repeat("AAECAwQF", 800) + `","format":"pcm16","sample_rate_hz":24000,"event_id":"event_846b1e777d2241f4ab7f4a6c8351dc02"}`

// TestTunnelTurn: bytes in, a record and a line out.
func TestTunnelTurn(t *testing.T) {
	var got whole
	cfg := tap.Config{}.WithDefaults()
	w := newWire(&got, &cfg, "/v1/realtime?duplex=1")
	w.send(tap.Server, wsText(false, wsDuplex))
	if !w.c.Idle() {
		t.Error("a session at rest is not idle")
	}
	w.send(tap.Client, wsText(true, wsCommit))
	if w.c.Idle() {
		t.Error("idle with a commit that waits")
	}
	w.send(tap.Server, wsText(false, wsCreated))
	w.send(tap.Server, wsText(false, wsDelta))
	w.send(tap.Server, wsMessage(false, 0x89, []byte("p")))
	w.send(tap.Client, wsMessage(true, 0x8a, []byte("p")))
	w.send(tap.Server, wsText(false, wsSound))
	w.send(tap.Server, wsText(false, wsDone))
	if !w.c.Idle() || len(got.records.records) != 1 {
		t.Fatalf("idle %v, %d records", w.c.Idle(), len(got.records.records))
	}
	w.send(tap.Client, wsMessage(true, 0x88, []byte{3, 0xe8}))
	w.send(tap.Server, wsMessage(false, 0x88, []byte{3, 0xe8}))
	w.c.End(tap.Server, timeline.FIN, w.mono+1e6)
	w.c.End(tap.Client, timeline.FIN, w.mono+2e6)
	w.c.Close(w.mono + 3e6)
	if len(got.records.records) != 1 || len(got.sessions) != 1 {
		t.Fatalf("%d records, %d sessions", len(got.records.records), len(got.sessions))
	}
	r, x := got.records.records[0], got.sessions[0]
	if r.Terminal.State != timeline.Success || *r.TTFTMS != 2 || *r.TTFAMS != 5 || *r.JCTMS != 6 || r.OwnDelayUS == nil || r.OwnDelayUS.N != 2 || r.OwnDelayUS.Max != 5 || r.Points.TUp == nil {
		t.Errorf("%s: ttft %v, ttfa %v, jct %v, delay %+v", r.Terminal.State, *r.TTFTMS, *r.TTFAMS, *r.JCTMS, r.OwnDelayUS)
	}
	if x.Turns != 1 || x.MessagesUp != 1 || x.MessagesDown != 5 || *x.PingRTTMS != 1 || x.Close.By != "client" || *x.Close.Code != 1000 || x.BytesUp == 0 || x.BytesDown < int64(len(wsSound)) {
		t.Errorf("%+v", x)
	}
	reasoned(t, "the turn", r, r.Unmeasured)
	reasoned(t, "the session", x, x.Unmeasured)
}

// TestTunnelBlocked: a client that stopped reading held the turn up, though its
// last write failed.
func TestTunnelBlocked(t *testing.T) {
	var got whole
	cfg := tap.Config{}.WithDefaults()
	w := newWire(&got, &cfg, "/v1/realtime?duplex=1")
	w.send(tap.Server, wsText(false, wsDuplex))
	w.send(tap.Client, wsText(true, wsCommit))
	w.send(tap.Server, wsText(false, wsCreated))
	w.c.Bytes(tap.Server, wsText(false, wsDelta), w.mono+1e6, 0)
	w.c.Blocked(tap.Server, 900e6)
	w.c.End(tap.Client, timeline.RST, w.mono+901e6)
	w.c.Close(w.mono + 902e6)
	if r := got.records.records[0]; *r.ClientWaitMS != 900 || !strings.Contains(fmt.Sprint(r.Flags), "client_slow") {
		t.Errorf("client_wait_ms %v, flags %v", *r.ClientWaitMS, r.Flags)
	}
}

// TestTunnelGap: bytes that were not kept: the turn at hand and all behind it say so.
func TestTunnelGap(t *testing.T) {
	for _, dir := range []tap.Dir{tap.Client, tap.Server} {
		var got whole
		cfg := tap.Config{}.WithDefaults()
		w := newWire(&got, &cfg, "/v1/realtime?duplex=1")
		w.send(tap.Server, wsText(false, wsDuplex))
		w.send(tap.Client, wsText(true, wsCommit))
		w.send(tap.Server, wsText(false, wsCreated))
		w.send(tap.Server, wsText(false, wsDelta))
		w.c.Gap(dir, 5000, w.mono+1e6)
		w.send(tap.Server, wsText(false, wsDone))
		w.c.End(tap.Server, timeline.FIN, w.mono+2e6)
		w.c.Close(w.mono + 3e6)
		if len(got.records.records) != 1 || len(got.sessions) != 1 {
			t.Fatalf("%d records, %d sessions", len(got.records.records), len(got.sessions))
		}
		if r, x := got.records.records[0], got.sessions[0]; r.Analysis != "lost" || x.Analysis != "lost" {
			t.Errorf("direction %d: turn %s, session %s", dir, r.Analysis, x.Analysis)
		}
	}
}

// BenchmarkSession is what a message costs from bytes to record.
func BenchmarkSession(b *testing.B) {
	for _, v := range []struct{ name, data string }{{"audio6400", wsSound}, {"text300", wsDelta}} {
		for _, hash := range []string{"auto", "off"} {
			b.Run(v.name+"/hash="+hash, func(b *testing.B) {
				cfg := tap.Config{}.WithDefaults()
				cfg.Timeline.Hash = hash
				w := newWire(nowhere{}, &cfg, "/v1/realtime?duplex=1")
				frame := wsText(false, v.data)
				b.SetBytes(int64(len(frame)))
				begin, commit, created, done := wsText(false, wsDuplex), wsText(true, wsCommit), wsText(false, wsCreated), wsText(false, wsDone)
				w.send(tap.Server, begin)
				n := 0
				b.ReportAllocs()
				for b.Loop() {
					if n%4096 == 0 { // a new turn: one without end would keep a list of its chunks
						w.send(tap.Server, done)
						w.send(tap.Client, commit)
						w.send(tap.Server, created)
					}
					n++
					w.send(tap.Server, frame)
				}
			})
		}
	}
	b.Run("turn", func(b *testing.B) { // a short one: what a turn costs by itself
		cfg := tap.Config{}.WithDefaults()
		w := newWire(nowhere{}, &cfg, "/v1/realtime?duplex=1")
		begin, commit, created, delta, done := wsText(false, wsDuplex), wsText(true, wsCommit), wsText(false, wsCreated), wsText(false, wsDelta), wsText(false, wsDone)
		w.send(tap.Server, begin)
		b.ReportAllocs()
		for b.Loop() {
			w.send(tap.Client, commit)
			w.send(tap.Server, created)
			w.send(tap.Server, delta)
			w.send(tap.Server, done)
		}
	})
}

// BenchmarkIdleSession reports what the analysis holds of a session that rests
// behind its upgrade, and behind a turn.
func BenchmarkIdleSession(b *testing.B) {
	for _, turns := range []int{0, 1, 20} {
		b.Run(fmt.Sprint("turns=", turns), func(b *testing.B) {
			n := 2000 / max(1, turns)
			cfg := tap.Config{}.WithDefaults()
			frames := [][]byte{wsText(true, wsCommit), wsText(false, wsCreated), wsText(false, wsDelta), wsText(false, wsSound), wsText(false, wsDone)}
			heap := func() int64 {
				var m runtime.MemStats
				runtime.GC()
				runtime.GC()
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc)
			}
			for b.Loop() {
				before := heap()
				all := make([]*wire, n)
				for i := range all {
					w := newWire(nowhere{}, &cfg, "/v1/realtime?duplex=1")
					w.send(tap.Server, wsText(false, strings.Replace(wsDuplex, "09e8", fmt.Sprintf("%04x", i), 1)))
					for turn := range turns {
						for k, f := range frames {
							dir := tap.Server
							if k == 0 {
								dir = tap.Client
							}
							w.send(dir, []byte(strings.ReplaceAll(string(f), "12bd48ce", fmt.Sprintf("%08x", turn))))
						}
					}
					all[i] = w
				}
				b.ReportMetric(float64(heap()-before)/float64(n), "B/session")
				for _, w := range all {
					if !w.c.Idle() {
						b.Fatal("not idle")
					}
				}
				runtime.KeepAlive(all)
			}
		})
	}
}
