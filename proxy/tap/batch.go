package tap

import "unsafe"

// kind is what an item of a batch says.
type kind uint8

const (
	kData kind = iota
	kGap
	kWrote
	kNote
)

// item is one thing that happened on a connection.
type item struct {
	data   []byte
	block  *Block // holds data, nil where the batch's own slabs do
	note   func(*Conn)
	mono   int64 // stamp of the last byte; else when it happened
	first  int64 // stamp of the first byte; gap: its size
	wrote  int64 // when the data had been written on, 0 for not yet
	waited int64 // how long the write had blocked
	next   int32 // the connection's next item in the batch, 0 for none
	kind   kind
	dir    Dir
}

// batch is what connections handed over between two looks: items in the order
// they came, each connection's chained, and slabs with copies of their bytes.
type batch struct {
	items  []item // from 1: 0 is none
	firsts []first
	slabs  []*Block
	used   int   // of the last slab
	size   int64 // bytes held, whole slabs and blocks
}

// first is where a connection's chain begins.
type first struct {
	h    *Handle
	item int32
}

// itemSize is what an item weighs in the account of memory.
const itemSize = int64(unsafe.Sizeof(item{}))

// slabSize is how many bytes are taken at a time for copies.
const slabSize = 64 << 10

var slabs = NewPool(slabSize)

// maxIdleItems bounds the lists that a batch keeps for its next use.
const maxIdleItems = 1 << 14

// room reports whether n bytes can be copied without another slab.
func (b *batch) room(n int) bool { return len(b.slabs) > 0 && slabSize-b.used >= n }

// copy puts bytes into the slabs, the last of which has room or gets a next one.
func (b *batch) copy(p []byte) []byte {
	if !b.room(len(p)) {
		b.slabs, b.used = append(b.slabs, Take(slabs)), 0
	}
	s := b.slabs[len(b.slabs)-1].B
	q := s[b.used : b.used+len(p) : b.used+len(p)]
	copy(q, p)
	b.used += len(p)
	return q
}

// add appends an item of h, whose last one so far is tail (0: none).
func (b *batch) add(h *Handle, tail int32, it item) int32 {
	if len(b.items) == 0 {
		b.items = append(b.items, item{})
	}
	n := int32(len(b.items))
	b.items = append(b.items, it)
	if tail == 0 {
		b.firsts = append(b.firsts, first{h, n})
	} else {
		b.items[tail].next = n
	}
	return n
}

// reset empties the batch for its next use.
func (b *batch) reset() {
	for _, s := range b.slabs {
		s.Release()
	}
	if cap(b.items) > maxIdleItems {
		*b = batch{}
		return
	}
	clear(b.items)
	clear(b.firsts)
	clear(b.slabs)
	b.items, b.firsts, b.slabs, b.used, b.size = b.items[:0], b.firsts[:0], b.slabs[:0], 0, 0
}
