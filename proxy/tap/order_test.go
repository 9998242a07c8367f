package tap

import (
	"slices"
	"strings"
	"testing"
)

// TestOrder: a connection's items by their stamps, a side's own bytes and what
// has no stamp where they belong.
func TestOrder(t *testing.T) {
	data := func(dir Dir, mono int64) item { return item{kind: kData, dir: dir, mono: mono} }
	note, wrote := item{kind: kNote}, item{kind: kWrote, dir: Server, mono: 500}
	for _, v := range []struct {
		name  string
		items []item
		want  []int32
	}{
		{"nothing", nil, nil},
		{"as they came", []item{data(Client, 1), data(Server, 2), note}, []int32{1, 2, 3}},
		{"handed over late", []item{data(Client, 100), data(Server, 99), note}, []int32{2, 1, 3}},
		{"ends stay behind all", []item{data(Client, 100), data(Server, 99), note, note, note}, []int32{2, 1, 3, 4, 5}},
		{"a side keeps its order", []item{data(Server, 50), data(Server, 49), data(Client, 48)}, []int32{3, 1, 2}},
		{"an old write goes ahead of new bytes", []item{data(Client, 100), wrote, data(Server, 40)}, []int32{2, 3, 1}},
	} {
		b := &batch{}
		h, tail := &Handle{}, int32(0)
		for _, it := range v.items {
			tail = b.add(h, tail, it)
		}
		first := int32(0)
		if len(v.items) > 0 {
			first = b.firsts[0].item
		}
		var o order
		var got []int32
		for _, p := range o.of(b, first, true) {
			got = append(got, p.item)
		}
		if !slices.Equal(got, v.want) {
			t.Errorf("%s: %v, want %v", v.name, got, v.want)
		}
		got = nil
		for _, p := range o.of(b, first, false) {
			got = append(got, p.item)
		}
		if !slices.IsSorted(got) {
			t.Errorf("%s: HTTP is read as it came, not %v", v.name, got)
		}
	}
}

// overflow hands over bytes of the server until some are dropped.
func overflow(a *Analyzer, h *Handle) {
	for a.Dropped() == 0 {
		b := Take(pool)
		h.Data(Server, b, b.B[:9000], 30, 0)
		b.Release()
	}
}

// TestIdleBehindDroppedBytes: that dropped bytes were written on says nothing, and
// an answer whose end was dropped is over all the same.
func TestIdleBehindDroppedBytes(t *testing.T) {
	a := NewAnalyzer(Config{MaxQueue: 64 << 10}, &kept{}, nil)
	h := a.Open(1, own)
	give(h, Client, ask)
	give(h, Server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"+strings.Repeat("x", 100))
	overflow(a, h)
	lookAll(h)
	idle := h.Idle()
	h.Wrote(Server, 40, 0)
	if h.Idle() != idle {
		t.Error("a write of dropped bytes made the connection busy, and woke nobody")
	}

	sink := &kept{}
	a = NewAnalyzer(Config{MaxQueue: 70 << 10}, sink, nil)
	h = a.Open(2, own)
	give(h, Client, ask)
	give(h, Server, "HTTP/1.1 200 OK\r\nContent-Type: audio/pcm\r\nContent-Length: 180000\r\n\r\n")
	for range 6 {
		give(h, Server, strings.Repeat("x", 30000))
	}
	lookAll(h)
	if !h.Idle() || len(sink.records) != 1 {
		t.Errorf("idle %v, %d records of an answer that is over", h.Idle(), len(sink.records))
	}
}
