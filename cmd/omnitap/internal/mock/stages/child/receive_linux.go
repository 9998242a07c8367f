package child

import (
	"sync"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/record"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/segment"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/shm"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/thread"
)

// pollEvery is what lies between two passes over the waiting requests.
const pollEvery = time.Millisecond

// receiver is the thread that polls for chunks.
type receiver struct {
	c *core

	mu      sync.Mutex
	changed *sync.Cond
	waiting []*poll // protects the list, not what it points to
}

// poll is a chunk that a request waits for. Only the thread uses it.
type poll struct {
	id, httpID, key string
	chunk           int
	misses          int
	firstNS         int64
}

func newReceiver(c *core) *receiver {
	r := &receiver{c: c}
	r.changed = sync.NewCond(&r.mu)
	return r
}

func (r *receiver) ask(id, httpID string, chunk int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := shm.Key(id, r.c.spec.Stage-1, chunk)
	r.waiting = append(r.waiting, &poll{id: id, httpID: httpID, key: key, chunk: chunk})
	r.changed.Signal()
}

func (r *receiver) drop(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(func(p *poll) bool { return p.id == id })
}

// remove makes a new list: the thread may be in the midst of the old one.
func (r *receiver) remove(gone func(*poll) bool) {
	var left []*poll
	for _, p := range r.waiting {
		if !gone(p) {
			left = append(left, p)
		}
	}
	r.waiting = left
}

// list blocks until somebody waits.
func (r *receiver) list() []*poll {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.waiting) == 0 {
		r.changed.Wait()
	}
	return r.waiting
}

func (r *receiver) run() {
	for {
		for _, p := range r.list() {
			if r.get(p) {
				r.mu.Lock()
				r.remove(func(o *poll) bool { return o == p })
				r.mu.Unlock()
			}
		}
		thread.Sleep(thread.MonoNS() + int64(pollEvery))
	}
}

// get tries once, and hands over what it got.
func (r *receiver) get(p *poll) bool {
	t := r.c.truth
	now := thread.MonoNS()
	if p.firstNS == 0 {
		p.firstNS = now
	}
	var got segment.Payload
	b, state, err := shm.Get(r.c.tracker, p.key, shm.Hooks{
		Valid: func(b []byte) bool {
			var err error
			got, err = segment.Decode(b)
			return err == nil && got.ID == p.id && got.Chunk == p.chunk
		},
		Start: func(key string, n int) { t.Of("read_start", p.httpID, p.chunk, n, key) },
		End:   func(key string, n int) { t.Of("read_end", p.httpID, p.chunk, n, key) },
	})
	if err != nil {
		fail(err)
	}
	if state != shm.Read {
		p.misses++
		return false
	}
	n := len(b)
	t.Write(record.Event{
		MonoNS: now, Event: "get_start", RequestID: &p.httpID, Chunk: &p.chunk, Bytes: &n, Key: &p.key,
		Misses: &p.misses, FirstPollNS: p.firstNS,
	})
	t.Of("get_end", p.httpID, p.chunk, n, p.key)
	r.c.arrivals <- arrival{p.id, got}
	return true
}
