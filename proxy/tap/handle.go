package tap

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// kind is what an item of the queue says.
type kind uint8

const (
	kData kind = iota
	kGap
	kWrote
	kNote
)

// item is one thing that happened on a connection.
type item struct {
	kind   kind
	dir    Dir
	data   []byte
	block  *Block // holds data
	mono   int64  // stamp of the last byte; else when it happened
	first  int64  // stamp of the first byte; gap: its size
	wrote  int64  // when the data had been written on, 0 for not yet
	waited int64  // how long the write had blocked
	note   func(*Conn)
}

// copyBelow is the size up to which a read is copied rather than kept: keeping
// a few bytes would keep a whole buffer.
const copyBelow = 8 << 10

// hurryAbove is the backlog at which a worker does not wait any longer.
const hurryAbove = 256 << 10

// Handle takes what a relay sees of one connection. Its methods may be called
// from the goroutines of both directions; none of them waits for analysis.
type Handle struct {
	w    *worker
	conn *Conn

	mu    sync.Mutex // protects what follows
	items *[]item
	small *Block // the block that small reads are copied to
	used  int
	bytes int64
	lost  [2]bool // the last bytes of each direction were dropped
	last  [2]int  // the last data of each direction among items, from 1; 0: none
	dirty bool

	broken  bool       // the reader failed; looks alone use it
	tape    *tape      // where a capture goes, nil for none
	reading sync.Mutex // one worker at a time
	idle    atomic.Bool
}

// Data hands over bytes just read from dir, ahead of their being written on:
// an answer must never be seen before what asked for it. mono is the stamp of
// the last byte, first of the first (0: the same). p lies in b; kept says that b
// is held until it was looked at, and that nobody may write to p any more.
func (h *Handle) Data(dir Dir, b *Block, p []byte, mono, first int64) (kept bool) {
	if h == nil {
		return false
	}
	a := h.w.a
	kept = len(p) >= copyBelow
	h.mu.Lock()
	// memory is counted in blocks: what is held is the whole of each, once
	n := int64(0)
	switch {
	case kept && !b.counted:
		n = int64(len(b.B))
	case !kept && h.room() < len(p):
		n = int64(h.nextSize(len(p)))
	}
	if n > 0 && (h.bytes+n > a.cfg.MaxQueue || a.queued.Load()+n > a.cfg.MaxMemory) {
		h.drop(dir, int64(len(p)), mono)
		h.mu.Unlock()
		return false
	}
	it := item{kind: kData, dir: dir, mono: mono, first: first}
	if kept {
		b.Keep()
		b.counted = true
		it.data, it.block = p, b
	} else {
		if n > 0 {
			h.next(len(p))
		}
		it.data, it.block = h.copy(p)
	}
	if n > 0 {
		h.bytes += n
		a.queued.Add(n)
		if h.bytes > hurryAbove {
			signal(h.w.hurry)
		}
	}
	h.push(it)
	h.last[dir], h.lost[dir] = len(*h.items), false
	h.mu.Unlock()
	return kept
}

// room returns how much of the block of small reads is free.
func (h *Handle) room() int {
	if h.small == nil {
		return 0
	}
	return len(h.small.B) - h.used
}

// nextSize is the size of the next block of small reads, for one of n bytes: one
// that fits first, most connections need no other.
func (h *Handle) nextSize(n int) int {
	switch {
	case h.small != nil || n > midBlock:
		return wideBlock
	case n > smallBlock/4:
		return midBlock
	}
	return smallBlock
}

// next takes that block.
func (h *Handle) next(n int) {
	pool := wideBlocks
	switch h.nextSize(n) {
	case smallBlock:
		pool = smallBlocks
	case midBlock:
		pool = midBlocks
	}
	if h.small != nil {
		h.small.Release()
	}
	h.small, h.used = Take(pool), 0
}

// copy puts a small read into the block of small reads, where there is room.
func (h *Handle) copy(p []byte) ([]byte, *Block) {
	q := h.small.B[h.used : h.used+len(p) : h.used+len(p)]
	copy(q, p)
	h.used += len(p)
	h.small.Keep()
	return q, h.small
}

// drop counts bytes that found no room; ends and notes always find some.
func (h *Handle) drop(dir Dir, n, mono int64) {
	h.w.a.dropped.Add(n)
	h.lost[dir] = true
	if h.items != nil {
		if l := len(*h.items); l > 0 && (*h.items)[l-1].kind == kGap && (*h.items)[l-1].dir == dir {
			(*h.items)[l-1].first += n
			return
		}
	}
	h.push(item{kind: kGap, dir: dir, mono: mono, first: n})
}

// push queues an item and lets the worker know. h.mu is held.
func (h *Handle) push(it item) {
	if h.items == nil {
		h.items = itemLists.Get().(*[]item)
	}
	*h.items = append(*h.items, it)
	if !h.dirty {
		h.dirty = true
		h.idle.Store(false)
		h.w.add(h)
	}
}

// Wrote notes that all bytes handed over of dir were written on at mono, after
// the write had blocked for waited nanoseconds.
func (h *Handle) Wrote(dir Dir, mono, waited int64) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost[dir] { // what was written was dropped ahead of analysis
		return
	}
	if i := h.last[dir]; i > 0 { // nearly always the bytes are still queued
		it := &(*h.items)[i-1]
		it.wrote, it.waited = mono, waited
		return
	}
	h.push(item{kind: kWrote, dir: dir, mono: mono, waited: waited})
}

// Blocked notes that writes of what came from dir had been blocked for waited
// nanoseconds when they failed.
func (h *Handle) Blocked(dir Dir, waited int64) {
	if waited > 0 {
		h.note(func(c *Conn) { c.Blocked(dir, waited) })
	}
}

// note queues a call on the connection's reading.
func (h *Handle) note(f func(*Conn)) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.push(item{kind: kNote, note: f})
}

// End notes that a side ended.
func (h *Handle) End(dir Dir, e timeline.End, mono int64) {
	h.note(func(c *Conn) {
		h.tape.end(dir, e, mono)
		c.End(dir, e, mono)
	})
}

// Injected notes the request id put into the head that ends at byte end of the
// client's stream; call it ahead of Data.
func (h *Handle) Injected(id string, end int64) { h.note(func(c *Conn) { c.Injected(id, end) }) }

// Refused notes that the server could not be reached; own says that the fault
// is the relay's.
func (h *Handle) Refused(reason, errno string, own bool, mono int64) {
	h.note(func(c *Conn) { c.Refused(reason, errno, own, mono) })
}

// Shutdown notes that the relay ends the connection because it stops.
func (h *Handle) Shutdown(mono int64) { h.note(func(c *Conn) { c.Shutdown(mono) }) }

// Closed ends the reading: every exchange gets its record. It is the last call.
func (h *Handle) Closed(mono int64) {
	h.note(func(c *Conn) {
		c.Close(mono)
		h.tape.close()
	})
}

// Idle reports whether no exchange is under way and nothing waits to be looked at.
func (h *Handle) Idle() bool { return h == nil || h.idle.Load() }

// look analyses what is queued.
func (h *Handle) look() {
	h.reading.Lock()
	defer h.reading.Unlock()
	h.mu.Lock()
	items, small, bytes := h.items, h.small, h.bytes
	h.items, h.small, h.used, h.bytes, h.dirty, h.last = nil, nil, 0, 0, false, [2]int{}
	h.mu.Unlock()
	if items == nil {
		return
	}
	for i := range *items {
		it := &(*items)[i]
		if !h.w.a.cfg.Off && !h.broken {
			h.guarded(it)
		}
		if it.block != nil {
			it.block.Release()
		}
	}
	if h.tape != nil {
		h.tape.flush()
	}
	if small != nil {
		small.Release()
	}
	h.w.a.queued.Add(-bytes)
	clear(*items)
	*items = (*items)[:0]
	if cap(*items) <= 4096 {
		itemLists.Put(items)
	}
	h.mu.Lock()
	if !h.dirty {
		h.idle.Store(h.conn.Idle())
	}
	h.mu.Unlock()
}

// guarded looks at an item. A fault of the reader ends the reading of its own
// connection, with records that say so; the relay and everybody else go on.
func (h *Handle) guarded(it *item) {
	defer func() {
		if r := recover(); r != nil {
			h.broken = true
			h.w.a.faults.Add(1)
			h.w.a.log.Error("the reader failed: its connection is not analysed any more", "fault", fmt.Sprint(r), "stack", string(debug.Stack()))
			h.conn.fail(it.mono)
		}
	}()
	h.one(it)
}

func (h *Handle) one(it *item) {
	switch it.kind {
	case kData:
		h.tape.data(it.dir, it.data, it.mono, it.first)
		h.conn.Bytes(it.dir, it.data, it.mono, it.first)
		if it.wrote != 0 {
			h.conn.Wrote(it.dir, it.wrote, it.waited)
		}
	case kGap:
		h.tape.stop("bytes were dropped")
		h.conn.Gap(it.dir, it.first, it.mono)
	case kWrote:
		h.conn.Wrote(it.dir, it.mono, it.waited)
	case kNote:
		it.note(h.conn)
	}
}
