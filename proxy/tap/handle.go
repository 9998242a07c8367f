package tap

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// copyBelow is the size up to which a read is copied rather than kept: keeping
// a few bytes would keep a whole buffer.
const copyBelow = 8 << 10

// hurryAbove is a connection's backlog at which its worker does not wait any longer.
const hurryAbove = 256 << 10

// Handle takes what a relay sees of one connection. Its methods may be called
// from the goroutines of both directions; none of them waits for analysis.
type Handle struct {
	w *worker

	// What follows is of the batch with that number; the worker's lock protects it.
	number uint64
	bytes  int64    // handed over in it
	tail   int32    // the last item, 0 for none
	last   [2]int32 // the last data of each direction, 0 for none
	gap    [2]int32 // the gap at the end of each direction, 0 for none
	lost   [2]bool  // the last bytes of each direction were dropped, in whatever batch

	// What follows is the worker's own.
	conn   *Conn
	broken bool   // the reader failed
	tape   *tape  // where a capture goes, nil for none
	due    int64  // when something is due
	spared uint64 // the batch that it is put off for, 0 for none
	place  int    // in the worker's dues, from 1; 0 for none
	idle   atomic.Bool
	oldest atomic.Int64 // when the oldest exchange that is not over began, 0 for none
	// expired is called where a deadline passed with its exchange open, nil for nothing.
	expired func()
}

// enter makes the handle's account that of the batch at hand. w.mu is held.
func (h *Handle) enter() *batch {
	if h.number != h.w.number {
		h.number, h.bytes, h.tail, h.last, h.gap = h.w.number, 0, 0, [2]int32{}, [2]int32{}
	}
	return h.w.batch
}

// Data hands over bytes just read from dir, ahead of their being written on:
// an answer must never be seen before what asked for it. mono is the stamp of
// the last byte, first of the first (0: the same). p lies in b; kept says that b
// is held until it was looked at, and that nobody may write to p any more.
func (h *Handle) Data(dir Dir, b *Block, p []byte, mono, first int64) (kept bool) {
	if h == nil {
		return false
	}
	w, a := h.w, h.w.a
	kept = len(p) >= copyBelow
	it := item{kind: kData, dir: dir, mono: mono, first: first}
	w.mu.Lock()
	q := h.enter()
	// memory is counted in slabs and blocks: what is held is the whole of each, once
	n, held := itemSize, itemSize+int64(len(p))
	switch {
	case kept && !b.counted:
		n, held = n+int64(len(b.B)), itemSize+int64(len(b.B))
	case !kept && !q.room(len(p)):
		n += slabSize
	}
	if h.bytes+held > a.cfg.MaxQueue || a.queued.Load()+n > a.cfg.MaxMemory {
		h.drop(dir, int64(len(p)), mono)
		w.mu.Unlock()
		return false
	}
	if kept {
		b.Keep()
		b.counted = true
		it.data, it.block = p, b
	} else {
		it.data = q.copy(p)
	}
	q.size += n
	a.queued.Add(n)
	if h.bytes += held; h.bytes > hurryAbove {
		signal(w.hurry)
	}
	h.last[dir], h.lost[dir], h.gap[dir] = h.push(it), false, 0
	w.mu.Unlock()
	return kept
}

// drop counts bytes that found no room; ends and notes always find some.
func (h *Handle) drop(dir Dir, n, mono int64) {
	h.w.a.dropped.Add(n)
	h.lost[dir] = true
	if i := h.gap[dir]; i > 0 { // nothing of that side was kept since
		h.w.batch.items[i].first += n
		return
	}
	h.gap[dir] = h.push(item{kind: kGap, dir: dir, mono: mono, first: n})
}

// push queues an item, lets the worker know, and returns the item's number. w.mu
// is held, and enter was called.
func (h *Handle) push(it item) int32 {
	w := h.w
	h.tail = w.batch.add(h, h.tail, it)
	if !w.armed {
		w.armed = true
		signal(w.wake)
	}
	return h.tail
}

// Wrote notes that all bytes handed over of dir were written on at mono, after
// the write had blocked for waited nanoseconds.
func (h *Handle) Wrote(dir Dir, mono, waited int64) {
	if h == nil {
		return
	}
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	if h.lost[dir] { // what was written was dropped ahead of analysis
		return
	}
	q := h.enter()
	if i := h.last[dir]; i > 0 { // nearly always the bytes are still queued
		it := &q.items[i]
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
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.enter()
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

// OnDeadline sets what is called once, from a worker's goroutine, when the deadline of an
// exchange or a turn has passed with its end still out. Call it ahead of Data.
func (h *Handle) OnDeadline(f func()) {
	if h != nil {
		h.expired = f
	}
}

// Aborted notes that the relay cut the connection because of a deadline.
func (h *Handle) Aborted(mono int64) { h.note(func(c *Conn) { c.Aborted(mono) }) }

// Propagated notes that the client's end had been passed on to the server.
func (h *Handle) Propagated(mono int64) { h.note(func(c *Conn) { c.Propagated(mono) }) }

// Closed ends the reading: every exchange gets its record. It is the last call.
func (h *Handle) Closed(mono int64) {
	h.note(func(c *Conn) {
		c.Close(mono)
		h.tape.close()
		h.w.dues.drop(h)
	})
	if h != nil {
		h.w.forget(h)
	}
}

// Idle reports whether no exchange is under way and nothing waits to be looked at.
func (h *Handle) Idle() bool {
	if h == nil {
		return true
	}
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	return h.number <= h.w.looked && h.idle.Load()
}

// look analyses what of a batch is the connection's, from item i on.
func (h *Handle) look(b *batch, i int32) {
	for _, p := range h.w.order.of(b, i, h.conn.socket != nil) {
		it := &b.items[p.item]
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
	if idle := h.conn.Idle(); idle != h.idle.Load() {
		h.idle.Store(idle)
	}
	if h.broken {
		return
	}
	h.guard(0, func() {
		if at := h.conn.Oldest(); at != h.oldest.Load() {
			h.oldest.Store(at)
		}
		due := h.conn.Due()
		if h.expired != nil && h.conn.Overdue() { // passed unnoticed: it was looked at late
			due = 1
		}
		h.w.dues.await(h, due)
	})
}

// guarded looks at an item.
func (h *Handle) guarded(it *item) { h.guard(it.mono, func() { h.one(it) }) }

// guard calls f. A fault of the reader ends the reading of its own connection, with
// records that say so; the relay and everybody else go on.
func (h *Handle) guard(mono int64, f func()) {
	defer func() {
		if r := recover(); r != nil {
			h.broken = true
			h.w.a.faults.Add(1)
			h.w.a.log.Error("the reader failed: its connection is not analysed any more", "fault", fmt.Sprint(r), "stack", string(debug.Stack()))
			h.conn.fail(mono)
			h.tape.stop("the reader failed")
			h.oldest.Store(0)
		}
	}()
	f()
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
