package tap

import (
	"sync"
	"sync/atomic"
)

// Block is a buffer of which parts are handed over. It returns to its pool when
// its last user releases it.
type Block struct {
	B       []byte
	pool    *sync.Pool
	refs    atomic.Int32
	counted bool // its size is counted as waiting for analysis; the worker's lock guards it
}

// NewPool returns a pool of Blocks of size bytes.
func NewPool(size int) *sync.Pool {
	p := &sync.Pool{}
	p.New = func() any { return &Block{B: make([]byte, size), pool: p} }
	return p
}

// Take returns a Block of the pool with one user.
func Take(p *sync.Pool) *Block {
	b := p.Get().(*Block)
	b.refs.Store(1)
	b.counted = false
	return b
}

// Keep adds a user.
func (b *Block) Keep() { b.refs.Add(1) }

// Release takes a user away.
func (b *Block) Release() {
	if b.refs.Add(-1) == 0 {
		b.pool.Put(b)
	}
}
