package waveform

import (
	"fmt"
	"hash/maphash"
)

// repeat finds a chunk that is the chunk before once more, to the byte. Silence
// and steady tones repeat themselves and are none.
type repeat struct {
	hash   maphash.Hash
	n      int   // bytes of the chunk at hand
	from   int64 // its first frame
	last   uint64
	lastN  int
	again  bool // the chunk before was the one before it
	judged int
	bad    int
	at     place
}

// repeatMin is how many values a chunk must have to be no repeat by chance.
const repeatMin = 64

func (r *repeat) forget() { r.lastN = 0 }

func (r *repeat) begin(frame int64) {
	r.n, r.from = 0, frame
	r.hash.Reset()
}

func (r *repeat) add(p []byte) {
	_, _ = r.hash.Write(p)
	r.n += len(p)
}

// end compares the chunk at hand, whose values ended in o, with the one before,
// and reports whether it is that once more.
func (r *repeat) end(chunk int, o *overlap, silent float64) (again bool) {
	if r.n == 0 {
		return false
	}
	sum := r.hash.Sum64()
	if r.lastN > 0 {
		r.judged++
		again = r.n == r.lastN && sum == r.last && (r.again || telling(o, silent))
	}
	if again {
		if r.bad++; r.bad == 1 {
			r.at = place{chunk, r.from}
		}
	}
	r.last, r.lastN, r.again = sum, r.n, again
	return again
}

// telling reports whether the last values of a chunk are such that they would not
// come again by themselves.
func telling(o *overlap, silent float64) bool {
	var b [2 * overlapMax]byte
	var v [overlapMax]int16
	p := o.last(b[:2*o.headN], 0)
	return len(p) >= 2*repeatMin && !o.steady(p) && deviation(values(v[:], p)) > silent
}

// finding is measured in chunks.
func (r *repeat) finding() Finding {
	const name = "repeated_chunk"
	switch {
	case r.judged == 0:
		return notMeasured(name, "fewer than two chunks")
	case r.bad > 0:
		return failed(name, r.at, float64(r.bad), 0, "%s the chunk before it once more, to the byte", count(r.bad))
	}
	return passed(name, 0, 0)
}

func count(n int) string {
	if n == 1 {
		return "1 chunk is"
	}
	return fmt.Sprintf("%d chunks are each", n)
}
