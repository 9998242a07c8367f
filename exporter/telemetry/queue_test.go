package telemetry

import (
	"context"
	"errors"
	"testing"
)

// TestQueueIsBoundedBySpans holds order, bound and end.
func TestQueueIsBoundedBySpans(t *testing.T) {
	q := newQueue(10)
	for i, c := range []struct {
		spans int
		want  Reason
	}{{4, ""}, {4, ""}, {4, QueueFull}, {2, ""}, {1, QueueFull}} {
		if got := q.put(make(tree, c.spans)); got != c.want {
			t.Errorf("put %d of %d spans: %q, want %q", i, c.spans, got, c.want)
		}
	}
	if q.room() != QueueFull {
		t.Error("a full queue has room")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.drained(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("drained with trees in it: %v", err)
	}
	for _, want := range []int{4, 4, 2} {
		if got := len(q.take()); got != want {
			t.Errorf("took %d spans, want %d", got, want)
		}
	}
	if q.put(make(tree, 20)) != "" { // a tree larger than the queue goes in alone
		t.Error("a large tree finds no room in an empty queue")
	}
	q.close()
	if q.put(make(tree, 1)) != Closed || q.room() != Closed {
		t.Error("a closed queue takes")
	}
	if len(q.take()) != 20 || q.take() != nil {
		t.Error("a closed queue gives what it has, then nil")
	}
	if err := q.drained(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestQueueGivesRoomBack does not grow with what went through it.
func TestQueueGivesRoomBack(t *testing.T) {
	q := newQueue(100)
	for range 50 {
		q.put(make(tree, 1))
	}
	for range 100000 {
		q.put(make(tree, 1))
		q.take()
	}
	if n := cap(q.trees); n > 400 {
		t.Errorf("room for %d trees after 50 at a time", n)
	}
}
