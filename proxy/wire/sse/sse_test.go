package sse

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// read gives the events of in, fed in pieces of cut bytes from offset 1.
func read(in string, cut, maxEvent int) (out []string, pending bool, comments int64) {
	p := &Parser{MaxEvent: maxEvent}
	p.OnEvent = func(e Event) {
		out = append(out, fmt.Sprintf("%s|%s|%d|%d|%v", e.Type, e.Data, e.End, e.Size, e.Truncated))
	}
	off := int64(1)
	for i := 0; i < len(in); i += cut {
		b := []byte(in[i:min(i+cut, len(in))])
		p.Feed(b, off)
		off += int64(len(b))
	}
	pending = p.Pending()
	p.Close(off - 1)
	return out, pending, p.Comments
}

var vectors = []struct {
	name, in string
	want     []string
	pending  bool
	comments int64
}{
	{name: "LF", in: "data: a\n\ndata: b\n\n", want: []string{"|a|9|9|false", "|b|18|9|false"}},
	{name: "CRLF", in: "data: a\r\n\r\ndata: b\r\n\r\n", want: []string{"|a|11|11|false", "|b|22|11|false"}},
	{name: "CR", in: "data: a\r\rdata: b\r\r", want: []string{"|a|9|9|false", "|b|18|9|false"}},
	{name: "mixed", in: "data: a\r\n\rdata: b\n\r\ndata: c\r\n\n", want: []string{"|a|10|10|false", "|b|19|9|false", "|c|30|10|false"}},
	{name: "no space", in: "data:a\n\n", want: []string{"|a|8|8|false"}},
	{name: "one space only", in: "data:  a\n\n", want: []string{"| a|10|10|false"}},
	{name: "three data lines", in: "event: e\ndata: 1\ndata\ndata: 3\n\n", want: []string{"e|1\n\n3|31|31|false"}},
	{name: "comments", in: ": ping\n\n:\n\ndata: a\n: x\n\n", want: []string{"|a|24|13|false"}, comments: 3},
	{name: "byte order mark", in: "\xEF\xBB\xBFdata: a\n\n", want: []string{"|a|12|9|false"}},
	{name: "half a mark is content", in: "\xEF\xBBdata: a\n\ndata: b\n\n", want: []string{"|b|20|9|false"}},
	{name: "UTF-8 and line separators", in: "data: \u2028\u00e9\u20ac\n\n", want: []string{"|\u2028\u00e9\u20ac|16|16|false"}},
	{name: "no blank line at the end", in: "data: a\n\ndata: b\n", want: []string{"|a|9|9|false"}, pending: true},
	{name: "other fields", in: "id: 1\nretry: 5\nfoo\n\ndata: a\n\n", want: []string{"|a|29|9|false"}},
	{name: "type alone is no event", in: "event: x\n\ndata: a\n\n", want: []string{"|a|19|9|false"}},
	{name: "blank lines", in: "\n\n\ndata: a\n\n\n", want: []string{"|a|12|9|false"}},
}

func TestParserAnyCut(t *testing.T) {
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			for _, cut := range []int{1, 2, 3, 7, 1000} {
				got, pending, comments := read(v.in, cut, 0)
				if d := cmp.Diff(v.want, got); d != "" {
					t.Errorf("cut %d (-want +got):\n%s", cut, d)
				}
				if pending != v.pending || comments != v.comments {
					t.Errorf("cut %d: pending %v, comments %d, want %v, %d", cut, pending, comments, v.pending, v.comments)
				}
			}
		})
	}
}

func TestBound(t *testing.T) {
	big := "data: " + strings.Repeat("x", 100) + "\n\n"
	for _, cut := range []int{1, 50, 1000} {
		got, _, _ := read(big+"data: a\n\n", cut, 64)
		want := []string{"||108|108|true", "|a|117|9|false"}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("cut %d (-want +got):\n%s", cut, d)
		}
	}
}

func TestIdleKeepsNothing(t *testing.T) {
	p := &Parser{OnEvent: func(Event) {}}
	p.Feed([]byte("data: "+strings.Repeat("x", 70000)), 1)
	p.Feed([]byte("\n\n"), 70007)
	if cap(p.buf) != 0 {
		t.Errorf("%d bytes are kept between events", cap(p.buf))
	}
}

func FuzzParser(f *testing.F) {
	for _, v := range vectors {
		f.Add(v.in, uint8(2))
	}
	f.Fuzz(func(t *testing.T, in string, cut uint8) {
		whole, p1, c1 := read(in, len(in)+1, 200)
		parts, p2, c2 := read(in, int(cut)%9+1, 200)
		if d := cmp.Diff(whole, parts); d != "" || p1 != p2 || c1 != c2 {
			t.Errorf("the cut changes the events (pending %v %v, comments %d %d):\n%s", p1, p2, c1, c2, d)
		}
	})
}
