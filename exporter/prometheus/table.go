package prometheus

import (
	"maps"
	"sync"
	"sync/atomic"
)

// table holds what belongs to a set of label values. Looking up takes no lock and
// allocates nothing; the first look-up of a set makes it. Its keys must be bounded values.
type table[K comparable, V any] struct {
	open func(K) *V
	// limit bounds the sets, 0 for as many as there are keys; rest is the key of what
	// comes beyond, over counts it.
	limit int
	rest  K
	over  func()

	mu sync.Mutex
	// all is replaced as a whole, with mu held.
	all atomic.Pointer[map[K]*V]
}

func newTable[K comparable, V any](open func(K) *V) *table[K, V] {
	t := &table[K, V]{open: open}
	t.all.Store(&map[K]*V{})
	return t
}

// bounded limits a table.
func (t *table[K, V]) bounded(limit int, rest K, over func()) *table[K, V] {
	t.limit, t.rest, t.over = limit, rest, over
	return t
}

// of returns what belongs to a key.
func (t *table[K, V]) of(k K) *V {
	if v := (*t.all.Load())[k]; v != nil {
		return v
	}
	return t.add(k)
}

func (t *table[K, V]) add(k K) *V {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := *t.all.Load()
	if v := old[k]; v != nil {
		return v
	}
	if t.limit > 0 && len(old) >= t.limit {
		t.over()
		k = t.rest
		if v := old[k]; v != nil {
			return v
		}
	}
	grown := maps.Clone(old)
	v := t.open(k)
	grown[k] = v
	t.all.Store(&grown)
	return v
}
