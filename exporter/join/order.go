package join

import (
	"container/heap"

	"github.com/omnitap/omnitap/probes/event"
)

// verdict is what order makes of an event.
type verdict uint8

const (
	inOrder verdict = iota
	late
)

// order holds events back until none that belongs before them can still come. Those
// that come in order wait in a queue, the others in a heap: a file in order costs no
// comparison more than one.
type order struct {
	slack  int64
	limit  int
	newest int64
	passed int64 // the stamp of the last one that was let through
	queue  []event.Event
	head   int
	strays strays
	free   []*stray
	seq    uint64
	out    event.Event // what pop returned last
}

// push takes an event, or says that it came too late to be held.
func (o *order) push(e *event.Event) verdict {
	at := stamp(e)
	if at < o.passed {
		return late
	}
	o.newest = max(o.newest, at)
	o.seq++
	if n := len(o.queue); o.head == n || at >= stamp(&o.queue[n-1]) {
		if o.head == n {
			o.queue, o.head = o.queue[:0], 0
		}
		o.queue = append(o.queue, *e)
		return inOrder
	}
	var s *stray
	if n := len(o.free); n > 0 {
		s, o.free = o.free[n-1], o.free[:n-1]
	} else {
		s = new(stray)
	}
	s.at, s.seq, s.e = at, o.seq, *e
	heap.Push(&o.strays, s)
	return inOrder
}

// stamp is the time that an event is put in order by.
func stamp(e *event.Event) int64 { return e.MonoNS }

// pop is the next event that is due, nil if none is; early says that it goes before
// its time because too many wait. It is valid until the next call.
func (o *order) pop() (e *event.Event, early bool) {
	if e := o.popUpTo(o.newest - o.slack); e != nil {
		return e, false
	}
	if len(o.queue)-o.head+len(o.strays) > o.limit {
		return o.popUpTo(o.newest), true
	}
	return nil, false
}

// popUpTo is the next event that is not after a stamp.
func (o *order) popUpTo(limit int64) *event.Event {
	var first *event.Event
	if o.head < len(o.queue) {
		first = &o.queue[o.head]
	}
	if len(o.strays) > 0 && (first == nil || o.strays[0].at < stamp(first)) {
		if o.strays[0].at > limit {
			return nil
		}
		s, _ := heap.Pop(&o.strays).(*stray)
		o.out, s.e = s.e, event.Event{}
		o.passed = max(o.passed, s.at)
		if len(o.free) < maxFree {
			o.free = append(o.free, s)
		}
		return &o.out
	}
	if first == nil || stamp(first) > limit {
		return nil
	}
	o.passed = max(o.passed, stamp(first))
	o.out, *first = *first, event.Event{} // the queue must not keep Head and Tail
	o.head++
	if o.head >= 1024 && 2*o.head >= len(o.queue) {
		n := copy(o.queue, o.queue[o.head:])
		clear(o.queue[n:])
		o.queue, o.head = o.queue[:n], 0
	}
	return &o.out
}

// maxFree bounds the strays that are kept to be used again.
const maxFree = 4096

// stray is an event that came after a later one.
type stray struct {
	at  int64
	seq uint64
	e   event.Event
}

type strays []*stray

func (s strays) Len() int      { return len(s) }
func (s strays) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s strays) Less(i, j int) bool {
	return s[i].at < s[j].at || s[i].at == s[j].at && s[i].seq < s[j].seq
}

func (s *strays) Push(x any) { *s = append(*s, x.(*stray)) }

func (s *strays) Pop() any {
	n := len(*s) - 1
	x := (*s)[n]
	(*s)[n] = nil
	*s = (*s)[:n]
	return x
}
