package telemetry

import (
	"context"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// tree is the spans of one record, the record's own last.
type tree []sdktrace.ReadOnlySpan

// queue holds trees between those who build them and the one that feeds the batcher. It
// is bounded by spans, since trees are of any size, and never waits to take one.
type queue struct {
	limit int

	mu     sync.Mutex // protects what follows
	trees  []tree
	head   int // of trees: what came before has been taken
	spans  int // in trees
	taken  int // trees that were taken and are not done
	closed bool
	// some wakes the taker, none whoever waits until all is done.
	some, none *sync.Cond
}

func newQueue(limit int) *queue {
	q := &queue{limit: limit}
	q.some, q.none = sync.NewCond(&q.mu), sync.NewCond(&q.mu)
	return q
}

// room says why there is none for another tree, empty where there is.
func (q *queue) room() Reason {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return Closed
	case q.spans >= q.limit:
		return QueueFull
	}
	return ""
}

// put takes a tree in as a whole, or says why not.
func (q *queue) put(t tree) Reason {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return Closed
	case q.spans > 0 && q.spans+len(t) > q.limit:
		return QueueFull
	}
	q.trees = append(q.trees, t)
	q.spans += len(t)
	q.some.Signal()
	return ""
}

// take waits for a tree. It returns nil once the queue is closed and empty. The one
// before counts as done.
func (q *queue) take() tree {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken = 0
	for q.head == len(q.trees) {
		q.none.Broadcast()
		if q.closed {
			return nil
		}
		q.some.Wait()
	}
	t := q.trees[q.head]
	q.trees[q.head] = nil
	q.head++
	q.spans -= len(t)
	q.taken = 1
	q.compact()
	return t
}

// compact gives the room of taken trees back once it is half of the slice.
func (q *queue) compact() {
	switch {
	case q.head == len(q.trees):
		q.trees, q.head = q.trees[:0], 0
	case q.head > len(q.trees)/2:
		n := copy(q.trees, q.trees[q.head:])
		clear(q.trees[n:])
		q.trees, q.head = q.trees[:n], 0
	}
}

// close lets nothing more in.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.some.Broadcast()
}

// drained waits until everything was taken and done, or ctx ends.
func (q *queue) drained(ctx context.Context) error {
	stop := context.AfterFunc(ctx, q.wake)
	defer stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.head < len(q.trees) || q.taken > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		q.none.Wait()
	}
	return nil
}

func (q *queue) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.none.Broadcast()
}
