package study

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// cut is a way to make chunks.
type cut struct {
	name      string  // frames a chunk × frames a second
	perSecond float64 // the model's frames; 0 for chunks of any size
	frames    int     // in a chunk
	growing   bool    // each chunk has twice the frames of the one before
	flushed   bool    // one chunk in five is of another length, as where a sentence ends
}

// cuts lists how models cut, and three more: chunks that grow, so that the first
// one is early, chunks of which some end early, and chunks as a network or an
// encoder makes them.
func cuts() []cut {
	var out []cut
	for _, perSecond := range []float64{12.5, 25, 50} {
		for _, frames := range []int{1, 2, 4, 10, 25} {
			out = append(out, cut{name: fmt.Sprintf("%d × %g/s", frames, perSecond), perSecond: perSecond, frames: frames})
		}
	}
	return append(out,
		cut{name: "growing from 1 × 12.5/s", perSecond: 12.5, frames: 1, growing: true},
		cut{name: "4 × 25/s, one in five shorter", perSecond: 25, frames: 4, flushed: true},
		cut{name: "irregular"})
}

// Irregular chunks have so many samples; small ones are as likely as large ones.
const (
	smallest = 64
	largest  = 16384
)

// frame is the model's frame in samples, 0 where there is none.
func (c cut) frame(rate int) int {
	if c.perSecond == 0 {
		return 0
	}
	return int(float64(rate) / c.perSecond)
}

// hop is what the checks may know of the frame: nothing where chunks do not keep to
// it.
func (c cut) hop(rate int) int {
	if c.flushed {
		return 0
	}
	return c.frame(rate)
}

// sizes returns the sizes of the chunks of a stream of n samples; the last one
// has what is left.
func (c cut) sizes(n, rate int, r *rand.Rand) []int {
	var out []int
	size := c.frames * c.frame(rate)
	for n > 0 {
		if c.flushed {
			if size = c.frames * c.frame(rate); r.IntN(5) == 0 {
				size -= r.IntN(size / 2)
			}
		}
		if c.perSecond == 0 {
			size = int(smallest * math.Pow(largest/smallest, r.Float64()))
		}
		out = append(out, min(size, n))
		n -= size
		if c.growing {
			size = min(2*size, 32*c.frame(rate))
		}
	}
	return out
}

// stream is sound and how it is cut.
type stream struct {
	rate  int
	x     []int16
	sizes []int
}

func (s stream) seconds() float64 { return float64(len(s.x)) / float64(s.rate) }

// chunks cuts; they share the memory of the stream, with no room behind each.
func (s stream) chunks() [][]int16 { return split(s.x, s.sizes) }

// split cuts x in chunks of sizes, as far as it goes.
func split(x []int16, sizes []int) [][]int16 {
	var out [][]int16
	for _, n := range sizes {
		if n = min(n, len(x)); n == 0 {
			break
		}
		out = append(out, x[:n:n])
		x = x[n:]
	}
	return out
}
