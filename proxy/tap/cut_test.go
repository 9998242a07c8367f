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

// lines reads what happened, each read cut in pieces of n bytes with its stamp,
// and gives the records as JSON.
func lines(t testing.TB, in []happening, n int) []string {
	t.Helper()
	var got records
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
	for _, r := range got.records {
		b, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(b))
	}
	return out
}

// TestCutsDoNotMatter: the record depends on the bytes and their stamps, not on
// how reads cut them.
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

// TestEveryNullHasAReason holds records of all captures to the rule.
func TestEveryNullHasAReason(t *testing.T) {
	files, err := filepath.Glob(captures + "/*/*.wire.jsonl*")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, path := range files {
		var got records
		cfg := tap.Config{}.WithDefaults()
		if _, err := tap.Replay(&cfg, open(t, path), timeline.Identity{OwnID: "r"}, &got); err != nil {
			t.Fatal(err)
		}
		for _, r := range got.records {
			for name, v := range flatten(t, r) {
				if v == "null" && r.Unmeasured[name] == "" && !strings.HasPrefix(name, "unmeasured") {
					t.Errorf("%s: %s is null without a reason", filepath.Base(path), name)
				}
			}
			for name := range r.Unmeasured {
				if v, ok := flatten(t, r)[name]; ok && v != "null" {
					t.Errorf("%s: %s = %s and has a reason for being null", filepath.Base(path), name, v)
				}
			}
		}
	}
}

func FuzzConn(f *testing.F) {
	f.Add([]byte("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"),
		[]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ndata: {}\r\n2\r\n\n\n\r\n0\r\n\r\n"), uint8(3), true)
	f.Add([]byte("POST /v1/audio/speech HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}GET / HTTP/1.1\r\n\r\n"),
		[]byte("HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\n\r\nRIFF\xff\xff\xff\xffWAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\xc0\x5d\x00\x00\x80\xbb\x00\x00\x02\x00\x10\x00data\xff\xff\xff\xffabcdefgh"), uint8(1), false)
	f.Add([]byte("GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"), []byte("HTTP/1.1 101 X\r\n\r\nxx"), uint8(2), true)
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
