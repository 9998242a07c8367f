package join

import "iter"

// table is a map with a bound: what was put in first makes room. A key that is put
// in again keeps its place.
type table[K comparable, V any] struct {
	limit   int
	entries map[K]*entry[K, V]
	first   *entry[K, V] // the oldest
	last    *entry[K, V]
	free    *entry[K, V]
}

type entry[K comparable, V any] struct {
	key        K
	value      V
	prev, next *entry[K, V]
}

func newTable[K comparable, V any](limit int) table[K, V] {
	return table[K, V]{limit: limit, entries: make(map[K]*entry[K, V])}
}

func (t *table[K, V]) get(k K) (v V, ok bool) {
	if e := t.entries[k]; e != nil {
		return e.value, true
	}
	return v, false
}

// put keeps a value. Where the table is full the oldest is given back.
func (t *table[K, V]) put(k K, v V) (old V, dropped bool) {
	if e := t.entries[k]; e != nil {
		e.value = v
		return old, false
	}
	if len(t.entries) >= t.limit && t.first != nil {
		old, dropped = t.first.value, true
		t.remove(t.first)
	}
	e := t.free
	if e == nil {
		e = new(entry[K, V])
	} else {
		t.free = e.next
	}
	e.key, e.value, e.prev, e.next = k, v, t.last, nil
	if t.last != nil {
		t.last.next = e
	} else {
		t.first = e
	}
	t.last = e
	t.entries[k] = e
	return old, dropped
}

func (t *table[K, V]) del(k K) {
	if e := t.entries[k]; e != nil {
		t.remove(e)
	}
}

func (t *table[K, V]) remove(e *entry[K, V]) {
	delete(t.entries, e.key)
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		t.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		t.last = e.prev
	}
	var k K
	var v V
	e.key, e.value, e.prev, e.next = k, v, nil, t.free
	t.free = e
}

func (t *table[K, V]) clear() {
	clear(t.entries)
	t.first, t.last, t.free = nil, nil, nil
}

// all goes from the oldest on. The entry that it stands at may be deleted.
func (t *table[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for e := t.first; e != nil; {
			next := e.next
			if !yield(e.key, e.value) {
				return
			}
			e = next
		}
	}
}

// ring keeps the newest values.
type ring[V any] struct {
	limit  int
	values []V
	head   int // where the oldest is, once it is full
}

// add keeps a value; where the ring is full the oldest is given back.
func (r *ring[V]) add(v V) (old V, dropped bool) {
	if len(r.values) < r.limit {
		r.values = append(r.values, v)
		return old, false
	}
	if r.limit <= 0 {
		return v, true
	}
	old, r.values[r.head] = r.values[r.head], v
	if r.head++; r.head == len(r.values) {
		r.head = 0
	}
	return old, true
}

func (r *ring[V]) len() int { return len(r.values) }

// at is the i-th oldest.
func (r *ring[V]) at(i int) *V {
	if i += r.head; i >= len(r.values) {
		i -= len(r.values)
	}
	return &r.values[i]
}

func (r *ring[V]) all() iter.Seq2[int, V] {
	return func(yield func(int, V) bool) {
		for i := range r.values {
			if !yield(i, *r.at(i)) {
				return
			}
		}
	}
}

func (r *ring[V]) clear() { r.values, r.head = nil, 0 }
