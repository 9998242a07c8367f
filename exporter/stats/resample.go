package stats

import (
	"math/rand/v2"
	"slices"
)

// redrawer draws from one block as many values as it has, with replacement. It
// counts how often each one came and lists them in ascending order, which costs a
// pass where sorting each resample would cost many.
type redrawer struct {
	sorted []float64
	times  []int32
	out    []float64 // the last resample, overwritten by the next
}

func newRedrawer(block []float64) *redrawer {
	r := &redrawer{sorted: slices.Clone(block), times: make([]int32, len(block)), out: make([]float64, 0, len(block))}
	slices.Sort(r.sorted)
	return r
}

func (r *redrawer) draw(rng *rand.Rand) []float64 {
	clear(r.times)
	for range r.sorted {
		r.times[rng.IntN(len(r.sorted))]++
	}
	r.out = r.out[:0]
	for i, v := range r.sorted {
		for range r.times[i] {
			r.out = append(r.out, v)
		}
	}
	return r.out
}

// pool draws whole blocks out of several with replacement and lists the values of
// those drawn in ascending order.
type pool struct {
	sorted []float64 // the values of all blocks
	block  []int32   // the block of each of them
	inside [][]int32 // of each block the places of its values in sorted
	drawn  []int32   // how often each block came
	times  []int32   // how often each value came, where values are drawn too
	out    []float64 // the last resample, overwritten by the next
}

func newPool(v Blocks) *pool {
	type entry struct {
		value float64
		block int32
	}
	entries := make([]entry, 0, v.count())
	for i, block := range v {
		for _, x := range block {
			entries = append(entries, entry{x, int32(i)})
		}
	}
	slices.SortStableFunc(entries, func(x, y entry) int {
		switch {
		case x.value < y.value:
			return -1
		case x.value > y.value:
			return 1
		}
		return 0
	})
	p := &pool{
		sorted: make([]float64, len(entries)), block: make([]int32, len(entries)), inside: make([][]int32, len(v)),
		drawn: make([]int32, len(v)), times: make([]int32, len(entries)), out: make([]float64, 0, len(entries)),
	}
	for i, e := range entries {
		p.sorted[i], p.block[i] = e.value, e.block
		p.inside[e.block] = append(p.inside[e.block], int32(i))
	}
	return p
}

// draw draws as many blocks as there are; within, also the values inside each of
// them.
func (p *pool) draw(rng *rand.Rand, within bool) []float64 {
	clear(p.drawn)
	for range p.drawn {
		p.drawn[rng.IntN(len(p.drawn))]++
	}
	if within {
		return p.redraw(rng)
	}
	p.out = p.out[:0]
	for i, v := range p.sorted {
		for range p.drawn[p.block[i]] {
			p.out = append(p.out, v)
		}
	}
	return p.out
}

func (p *pool) redraw(rng *rand.Rand) []float64 {
	clear(p.times)
	for b, places := range p.inside {
		for range p.drawn[b] {
			for range places {
				p.times[places[rng.IntN(len(places))]]++
			}
		}
	}
	p.out = p.out[:0]
	for i, v := range p.sorted {
		for range p.times[i] {
			p.out = append(p.out, v)
		}
	}
	return p.out
}

// without lists the values of all blocks but those from up to to.
func (p *pool) without(from, to int) []float64 {
	p.out = p.out[:0]
	for i, v := range p.sorted {
		if b := int(p.block[i]); b < from || b >= to {
			p.out = append(p.out, v)
		}
	}
	return p.out
}
