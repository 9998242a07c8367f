package http1

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// log is a Handler that writes down what it is told, joining Body spans so that
// different cuts compare equal.
type log struct {
	expect func(*Head) Expect
	out    []string
	body   []byte
	bodyAt int64
}

func (l *log) add(format string, args ...any) {
	if l.body != nil {
		l.out = append(l.out, fmt.Sprintf("body %q at %d", l.body, l.bodyAt))
		l.body = nil
	}
	if format != "" {
		l.out = append(l.out, fmt.Sprintf(format, args...))
	}
}

func (l *log) MessageStart(off int64) { l.add("start %d", off) }

func (l *log) Head(h *Head, end int64) Expect {
	l.add("head %s%s%d fields=%d end=%d", h.Method, h.Target, h.Status, len(h.Fields), end)
	if l.expect != nil {
		return l.expect(h)
	}
	return ByHead
}

func (l *log) span(p []byte, off int64) {
	if l.body == nil {
		l.bodyAt = off
		l.body = []byte{}
	}
	l.body = append(l.body, p...)
}

func (l *log) Body(p []byte, off int64)   { l.span(p, off) }
func (l *log) Tunnel(p []byte, off int64) { l.span(p, off) }
func (l *log) ChunkStart(size int64)      { l.add("chunk %d", size) }
func (l *log) ChunkEnd(off int64)         { l.add("chunkend %d", off) }
func (l *log) MessageEnd(off int64)       { l.add("end %d", off) }
func (l *log) Lost(err error, off int64)  { l.add("lost %v %d", err, off) }

var vectors = []struct {
	name     string
	response bool
	expect   func(*Head) Expect
	in       string
	closed   bool
	want     []string
}{
	{
		name: "pipelined requests", in: "GET /a HTTP/1.1\r\nHost: x\r\n\r\nPOST /b HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /c HTTP/1.0\n\n", closed: true,
		want: []string{
			"start 1", "head GET/a0 fields=1 end=28", "end 28", "start 29", "head POST/b0 fields=1 end=67",
			`body "abc" at 68`, "end 70", "start 71", "head GET/c0 fields=0 end=87", "end 87",
		},
	},
	{
		name: "chunks, extension, trailer", response: true, closed: true,
		in: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n1\r\nd\r\n0\r\nT: 1\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
		want: []string{
			"start 1", "head 200 fields=1 end=47", "chunk 3", `body "abc" at 55`, "chunkend 57", "chunk 1", `body "d" at 63`, "chunkend 63",
			"end 76", "start 77", "head 204 fields=0 end=103", "end 103",
		},
	},
	{
		name: "informational answers, then to the close", response: true, closed: true,
		in: "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.0 200 OK\r\n\r\nrest",
		want: []string{
			"start 1", "head 102 fields=0 end=27", "end 27", "start 28", "head 103 fields=1 end=64", "end 64",
			"start 65", "head 200 fields=0 end=83", `body "rest" at 84`, "end 87",
		},
	},
	{
		name: "answer to HEAD has no body", response: true, closed: true, expect: func(*Head) Expect { return NoBody },
		in:   "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
		want: []string{"start 1", "head 200 fields=1 end=38", "end 38"},
	},
	{
		name: "upgrade", response: true, closed: true, expect: func(*Head) Expect { return Upgraded },
		in:   "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x81\x02hi",
		want: []string{"start 1", "head 101 fields=1 end=56", `body "\x81\x02hi" at 57`},
	},
	{
		name: "length and chunks both", response: true,
		in:   "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
		want: []string{"start 1", "head 200 fields=2 end=66", "lost ambiguous framing 66"},
	},
	{
		name: "two lengths", in: "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
		want: []string{"start 1", "head POST/0 fields=2 end=57", "lost ambiguous framing 57"},
	},
	{
		name: "the same length twice", closed: true, in: "POST / HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\nabc",
		want: []string{"start 1", "head POST/0 fields=1 end=41", `body "abc" at 42`, "end 44"},
	},
	{
		name: "bad chunk size", response: true,
		in:   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
		want: []string{"start 1", "head 200 fields=1 end=47", "lost malformed chunk 48"},
	},
	{name: "h2 prior knowledge", in: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", want: []string{"start 1", "lost h2 16"}},
	{name: "tls", in: "\x16\x03\x01\x02\x00", want: []string{"start 1", "lost tls 0"}},
	{name: "no http", in: "SSH-2.0-x\r\n", want: []string{"start 1", "lost not http/1 11"}},
	{name: "cut in the body", response: true, in: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", want: []string{"start 1", "head 200 fields=1 end=38", `body "abc" at 39`}},
	{name: "space before the colon", in: "GET / HTTP/1.1\r\nHost : x\r\n\r\n", want: []string{"start 1", "lost malformed head 28"}},
	{name: "empty lines ahead", closed: true, in: "\r\n\r\nGET / HTTP/1.1\r\n\r\n", want: []string{"start 5", "head GET/0 fields=0 end=22", "end 22"}},
}

func run(response bool, expect func(*Head) Expect, in []byte, cut int) ([]string, bool) {
	l := &log{expect: expect}
	p := &Parser{H: l, Response: response}
	for len(in) > 0 {
		n := min(cut, len(in))
		p.Feed(in[:n])
		in = in[n:]
	}
	closed := p.Close()
	l.add("")
	return l.out, closed
}

func TestParserAnyCut(t *testing.T) {
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			for _, cut := range []int{1, 2, 3, 7, 16, 4096} {
				got, closed := run(v.response, v.expect, []byte(v.in), cut)
				if d := cmp.Diff(v.want, got); d != "" {
					t.Errorf("cut %d (-want +got):\n%s", cut, d)
				}
				if closed != v.closed {
					t.Errorf("cut %d: Close() = %v, want %v", cut, closed, v.closed)
				}
			}
		})
	}
}

func TestHeadBound(t *testing.T) {
	in := []byte("GET / HTTP/1.1\r\nX: " + strings.Repeat("a", 2*DefaultMaxHead) + "\r\n\r\n")
	for _, cut := range []int{1000, len(in)} {
		got, _ := run(false, nil, in, cut)
		if want := fmt.Sprintf("lost %v %d", ErrHeadSize, DefaultMaxHead+1); got[len(got)-1] != want {
			t.Errorf("cut %d: %q, want %q", cut, got[len(got)-1], want)
		}
	}
}

func TestHeldBehindUpgradeRequest(t *testing.T) {
	for _, refused := range []bool{false, true} {
		l := &log{expect: func(*Head) Expect { return Waiting }}
		p := &Parser{H: l}
		p.Feed([]byte("GET / HTTP/1.1\r\n\r\nEARLY bytes"))
		if got := len(l.out); got != 3 {
			t.Fatalf("%d calls before the answer, want 3: %q", got, l.out)
		}
		if refused {
			p.Resume()
		} else {
			p.Upgrade()
		}
		l.add("")
		want := `body "EARLY bytes" at 19`
		if refused {
			want = "start 19"
		}
		if l.out[3] != want {
			t.Errorf("refused=%v: %q, want %q", refused, l.out[3], want)
		}
	}
}

func TestSkip(t *testing.T) {
	l := &log{}
	p := &Parser{H: l, Response: true}
	p.Feed([]byte("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab"))
	if !p.Skip(5) {
		t.Error("a gap inside a body of known length was not passed over")
	}
	p.Feed([]byte("xyz"))
	if got := l.out[len(l.out)-1]; got != "end 49" {
		t.Errorf("after the gap: %q, want the end at 49", got)
	}
	if p.Skip(1); !p.Lost() {
		t.Error("a gap between messages must lose the thread")
	}
}

func FuzzParser(f *testing.F) {
	for _, v := range vectors {
		f.Add([]byte(v.in), v.response, uint8(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, response bool, cut uint8) {
		whole, closed := run(response, nil, in, len(in)+1)
		parts, closed2 := run(response, nil, in, int(cut)%16+1)
		if d := cmp.Diff(whole, parts); d != "" || closed != closed2 {
			t.Errorf("cut at %d changes the reading (closed %v, %v):\n%s", cut, closed, closed2, d)
		}
	})
}
