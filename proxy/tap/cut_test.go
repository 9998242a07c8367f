package tap_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/tap/capture"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// happening is one line of a capture.
type happening struct {
	dir  tap.Dir
	data []byte
	end  timeline.End
	at   int64
}

func load(t testing.TB, path string) []happening {
	t.Helper()
	r, _, err := capture.NewReader(open(t, path))
	if err != nil {
		t.Fatal(err)
	}
	var out []happening
	for {
		e, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		h := happening{data: append([]byte(nil), e.Data...), at: e.NS + 1}
		if e.Dir == 's' {
			h.dir = tap.Server
		}
		h.end = map[string]timeline.End{"fin": timeline.FIN, "rst": timeline.RST}[e.End]
		out = append(out, h)
	}
}

// whole keeps the lines of sessions too.
type whole struct {
	records
	sessions []*timeline.Session
}

func (w *whole) Session(x *timeline.Session) { w.sessions = append(w.sessions, x) }

// all lists the records and the lines of sessions.
func (w *whole) all() []any {
	var out []any
	for _, r := range w.records.records {
		out = append(out, r)
	}
	for _, x := range w.sessions {
		out = append(out, x)
	}
	return out
}

// lines reads what happened, each read cut in pieces of n bytes with its stamp,
// and gives the records and the lines of sessions as JSON.
func lines(t testing.TB, in []happening, n int) []string {
	t.Helper()
	var got whole
	cfg := tap.Config{}.WithDefaults()
	c := tap.NewConn(&cfg, func(k int) timeline.Identity { return timeline.Identity{OwnID: fmt.Sprint("r-", k)} }, &got, nil, true)
	last := int64(1)
	for _, h := range in {
		last = h.at
		if h.end != timeline.Open {
			c.End(h.dir, h.end, h.at)
		}
		for p := h.data; len(p) > 0; {
			k := min(n, len(p))
			c.Bytes(h.dir, p[:k], h.at, 0)
			p = p[k:]
		}
	}
	c.Close(last)
	var out []string
	for _, r := range got.all() {
		b, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(b))
	}
	return out
}

// TestCutsDoNotMatter: records and sessions depend on the bytes and their stamps,
// not on how reads cut them.
func TestCutsDoNotMatter(t *testing.T) {
	files, err := filepath.Glob(captures + "/*/*.wire.jsonl*")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			in := load(t, path)
			want := lines(t, in, 1<<30)
			if n := strings.Count(strings.Join(want, ""), `"messages_up"`); n != sessionsIn(in) {
				t.Fatalf("%d lines of sessions, want %d", n, sessionsIn(in))
			}
			cuts := []int{7, 1000}
			if size := func() (n int) {
				for _, h := range in {
					n += len(h.data)
				}
				return n
			}(); size < 100_000 {
				cuts = append(cuts, 1)
			}
			for _, n := range cuts {
				if d := cmp.Diff(want, lines(t, in, n)); d != "" {
					t.Errorf("cut at %d bytes (-whole +cut):\n%s", n, d)
				}
			}
		})
	}
}

// sessionsIn is how many WebSockets a capture holds.
func sessionsIn(in []happening) int {
	if len(in) > 0 && in[0].dir == tap.Client && strings.Contains(string(in[0].data), "Sec-WebSocket-Key: ") {
		return 1
	}
	return 0
}

// TestEveryNullHasAReason holds records and sessions of all captures to the rule,
// whole and where they break off.
func TestEveryNullHasAReason(t *testing.T) {
	files, err := filepath.Glob(captures + "/*/*.wire.jsonl*")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	sessions := 0
	for _, path := range files {
		var got whole
		cfg := tap.Config{}.WithDefaults()
		if _, err := tap.Replay(&cfg, open(t, path), timeline.Identity{OwnID: "r"}, &got); err != nil {
			t.Fatal(err)
		}
		sessions += len(got.sessions)
		for _, r := range got.records.records {
			reasoned(t, filepath.Base(path), r, r.Unmeasured)
		}
		for _, x := range got.sessions {
			reasoned(t, filepath.Base(path)+", its session", x, x.Unmeasured)
		}
	}
	if sessions < 20 {
		t.Errorf("%d sessions", sessions)
	}
}

// reasoned holds that every null has a reason, and nothing else has one.
func reasoned(t testing.TB, at string, x any, reasons map[string]string) {
	t.Helper()
	flat := flatten(t, x)
	for name, v := range flat {
		if v == "null" && reasons[name] == "" && !strings.HasPrefix(name, "unmeasured") {
			t.Errorf("%s: %s is null without a reason", at, name)
		}
	}
	for name := range reasons {
		if v, ok := flat[name]; ok && v != "null" {
			t.Errorf("%s: %s = %s and has a reason for being null", at, name, v)
		}
	}
}

// TestCapturesBrokenOff: wherever a WebSocket breaks off, each of its turns has one
// record, the session one line that counts them, and each null its reason.
func TestCapturesBrokenOff(t *testing.T) {
	files, err := filepath.Glob(captures + "/*/*.wire.jsonl*")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, path := range files {
		in := load(t, path)
		if sessionsIn(in) == 0 {
			continue
		}
		step := max(1, len(in)/25)
		for n := 2; n < len(in); n += step {
			for _, end := range []timeline.End{timeline.Open, timeline.RST, timeline.FIN} {
				brokenOff(t, filepath.Base(path), in[:n], end)
			}
		}
	}
}

func brokenOff(t *testing.T, at string, in []happening, end timeline.End) {
	t.Helper()
	var got whole
	cfg := tap.Config{}.WithDefaults()
	c := tap.NewConn(&cfg, func(k int) timeline.Identity { return timeline.Identity{OwnID: fmt.Sprint("r-", k)} }, &got, nil, true)
	for _, h := range in {
		if h.end != timeline.Open {
			c.End(h.dir, h.end, h.at)
		} else {
			c.Bytes(h.dir, h.data, h.at, 0)
		}
	}
	last := in[len(in)-1].at
	if end != timeline.Open {
		c.End(tap.Server, end, last+1)
	}
	c.Close(last + 2)
	at = fmt.Sprintf("%s broken off after %d reads by %s", at, len(in), end)
	if len(got.sessions) != 1 {
		t.Errorf("%s: %d lines of sessions", at, len(got.sessions))
		return
	}
	x := got.sessions[0]
	turns := map[int]bool{}
	for _, r := range got.records.records {
		if r.Turn != nil {
			turns[*r.Turn] = true
		}
		reasoned(t, at, r, r.Unmeasured)
	}
	sum := 0
	for _, n := range x.States {
		sum += n
	}
	if x.Turns != len(turns) || sum != x.Turns || x.Turns > 0 && (!turns[0] || !turns[x.Turns-1]) {
		t.Errorf("%s: %d turns, states %v, records of %v", at, x.Turns, x.States, turns)
	}
	reasoned(t, at, x, x.Unmeasured)
}

func FuzzConn(f *testing.F) {
	f.Add([]byte("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"),
		[]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ndata: {}\r\n2\r\n\n\n\r\n0\r\n\r\n"), uint8(3), true)
	f.Add([]byte("POST /v1/audio/speech HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}GET / HTTP/1.1\r\n\r\n"),
		[]byte("HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\n\r\nRIFF\xff\xff\xff\xffWAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\xc0\x5d\x00\x00\x80\xbb\x00\x00\x02\x00\x10\x00data\xff\xff\xff\xffabcdefgh"), uint8(1), false)
	f.Add([]byte("GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"), []byte("HTTP/1.1 101 X\r\n\r\nxx"), uint8(2), true)
	upgrade := "GET /v1/realtime HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n"
	switched := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	deflated := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
	f.Add([]byte(upgrade+"\x81\x9b\x00\x00\x00\x00{\"type\":\"response.create\"}  \x88\x82\x00\x00\x00\x00\x03\xe8"),
		[]byte(switched+"\x81\x2c{\"type\":\"session.created\",\"session\":{\"id\":1}}\x81\x33{\"type\":\"response.created\",\"response\":{\"id\":\"r1\"}} \x89\x01p\x88\x02\x03\xe8"), uint8(3), true)
	f.Add([]byte(upgrade+"\x81\x94\x00\x00\x00\x00{\"type\":\"input.done\"}"), []byte(switched+"\x01\x10{\"type\":\"audio.st\x89\x00\x80\x19art\",\"utterance_index\":0} \x82\x04abcd\x82\x00"), uint8(0), false)
	f.Add([]byte(upgrade), []byte(deflated+"\xc1\x07\xaa\x56\x2a\xa9\x2c\x48\x00"), uint8(1), true)
	f.Add([]byte("\x16\x03\x01"), []byte("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b"), uint8(9), true)
	f.Fuzz(func(t *testing.T, up, down []byte, cut uint8, fin bool) {
		end := timeline.RST
		if fin {
			end = timeline.FIN
		}
		in := []happening{{dir: tap.Client, data: up, at: 10}, {dir: tap.Server, data: down, at: 20}, {dir: tap.Server, end: end, at: 30}}
		if len(up) == 0 && len(down) == 0 {
			return
		}
		want := lines(t, in, 1<<30)
		if strings.Contains(strings.Join(want, ""), `"chunk_unit": "read"`) {
			return // labelled so: its chunks are reads (case C06)
		}
		if d := cmp.Diff(want, lines(t, in, int(cut)%16+1)); d != "" {
			t.Errorf("the cut changes the record (-whole +cut):\n%s", d)
		}
	})
}
