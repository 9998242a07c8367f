package tap

import (
	"container/heap"
	"time"

	"golang.org/x/sys/unix"
)

// Limits in time pass without a byte: a worker keeps the connections for which
// something is due in the order of when.

// dues is a heap of connections by when something is due.
type dues []*Handle

func (d dues) Len() int           { return len(d) }
func (d dues) Less(i, j int) bool { return d[i].due < d[j].due }
func (d dues) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i+1, j+1
}

// Push is part of heap.Interface.
func (d *dues) Push(x any) {
	h := x.(*Handle)
	*d = append(*d, h)
	h.place = len(*d)
}

// Pop is part of heap.Interface.
func (d *dues) Pop() any {
	n := len(*d) - 1
	h := (*d)[n]
	(*d)[n] = nil
	*d, h.place = (*d)[:n], 0
	return h
}

// await notes when something is due for a connection, 0 for never. A later
// moment than the one noted waits for that: it is looked at again then.
func (d *dues) await(h *Handle, due int64) {
	switch {
	case h.place == 0 && due != 0:
		h.due = due
		heap.Push(d, h)
	case h.place != 0 && due != 0 && due < h.due:
		h.due = due
		heap.Fix(d, h.place-1)
	}
}

// drop forgets a connection.
func (d *dues) drop(h *Handle) {
	if h.place != 0 {
		heap.Remove(d, h.place-1)
	}
}

// next returns how long until something is due, and whether anything is.
func (d dues) next(now int64) (time.Duration, bool) {
	if len(d) == 0 {
		return 0, false
	}
	return time.Duration(d[0].due - now), true
}

// check looks at the connections for which something was due by mono.
func (d *dues) check(mono int64) {
	var unseen []*Handle
	for len(*d) > 0 && (*d)[0].due < mono {
		h := heap.Pop(d).(*Handle)
		if h.broken {
			continue
		}
		if h.expired != nil && h.spare() {
			unseen = append(unseen, h)
			continue
		}
		h.spared = 0
		late := false
		h.guard(mono, func() {
			late = h.conn.Check(mono)
			d.await(h, h.conn.Due())
		})
		if late && h.expired != nil {
			h.expired()
			h.expired = nil // once
		}
	}
	for _, h := range unseen {
		d.await(h, mono)
	}
}

// spare reports whether what waited to be looked at when the connection's moment was over
// still does: its end may be in it. What comes later does not count, or bytes that flow
// without end would put the moment off as long as they flow.
func (h *Handle) spare() bool {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	if h.spared == 0 && h.number > h.w.looked {
		h.spared = h.number
	}
	return h.spared > h.w.looked
}

// grace is how much later than its moment a limit is looked at, at least: what
// came before it has been handed over by then.
const grace = int64(10 * time.Millisecond)

// Monotonic returns CLOCK_MONOTONIC nanoseconds, the clock of all stamps.
func Monotonic() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return ts.Nano()
}

// Due returns when a limit of an exchange or a turn is reached if nothing else
// happens, 0 for never.
func (c *Conn) Due() int64 {
	var due int64
	sooner := func(at int64) {
		if at != 0 && (due == 0 || at < due) {
			due = at
		}
	}
	for _, x := range c.open {
		if x != c.tunnel {
			sooner(x.b.Due())
		}
	}
	if c.socket != nil {
		sooner(c.socket.ses.Due())
	}
	return due
}

// Check tells of limits that passed by mono without a byte, and reports whether a
// deadline is over with its exchange or turn still open.
func (c *Conn) Check(mono int64) (late bool) {
	for _, x := range c.open {
		if x != c.tunnel {
			late = x.b.Check(mono) || late
		}
	}
	if c.socket != nil {
		late = c.socket.ses.Check(mono) || late
	}
	return late
}

// Overdue reports whether a deadline has passed with its exchange or turn still
// open.
func (c *Conn) Overdue() bool {
	for _, x := range c.open {
		if x != c.tunnel && x.b.Overdue() {
			return true
		}
	}
	return c.socket != nil && c.socket.ses.Overdue()
}

// Aborted notes that the relay cut the connection at mono because of a deadline.
func (c *Conn) Aborted(mono int64) {
	c.now = mono
	for _, x := range c.open {
		x.b.Aborted(mono)
	}
	if c.socket != nil {
		c.socket.ses.Aborted(mono)
	}
}

// Propagated notes that the client's end had been passed on to the server at mono.
func (c *Conn) Propagated(mono int64) {
	for _, x := range c.open {
		x.b.Propagated(mono)
	}
	if c.socket != nil {
		c.socket.ses.Propagated(mono)
	}
}

// Oldest returns when the first byte of the oldest exchange or turn that is not
// over came, 0 for none.
func (c *Conn) Oldest() int64 {
	if c.socket != nil {
		return c.socket.ses.Oldest()
	}
	for _, x := range c.open {
		if x != c.tunnel && x.b.Waits() {
			in, _ := x.b.Opened()
			return in
		}
	}
	return 0
}
