package waveform

import (
	"bytes"
	"encoding/binary"
	"math"
)

// overlap finds chunks that begin with the samples that the chunk before ended
// with: sound that plays twice. What repeats itself anyway, a steady tone, is no
// overlap, and neither is silence.
type overlap struct {
	ring   [4 * overlapMax]byte // the last values of the stream, of 2 bytes
	n      int                  // values so far
	headN  int                  // of them the chunk's first, at most overlapMax
	from   int64                // the chunk's first frame
	before int                  // values ahead of it
	same   int                  // how many of its first values came last before it
	doubt  bool                 // they would, whatever they are
	level  float64              // their RMS about their mean
	tired  bool                 // the comparison was given up
	period int                  // of the last steady values, 0 for none

	judged, found int
	gaveUp        bool
	at            place
	longer        int // the longest overlap
}

const (
	// overlapMax is the longest overlap that is found, overlapMin the shortest: a
	// few samples agree by chance.
	overlapMax = 2048
	overlapMin = 8
	// overlapEffort bounds the comparisons at a border.
	overlapEffort = 64
)

func (o *overlap) forget() { o.n, o.headN, o.before = 0, 0, 0 }

// begin starts a chunk.
func (o *overlap) begin(frame int64) { o.headN, o.before, o.from = 0, o.n, frame }

// add takes values of 2 bytes.
func (o *overlap) add(p []byte) {
	if o.headN < overlapMax {
		n := min(2*(overlapMax-o.headN), len(p))
		o.push(p[:n])
		if o.headN += n / 2; o.headN == overlapMax { // what came before is still in the ring
			o.compare()
		}
		p = p[n:]
	}
	o.push(p)
}

func (o *overlap) push(p []byte) {
	n := copy(o.ring[2*o.n%len(o.ring):], p)
	copy(o.ring[:], p[n:])
	o.n += len(p) / 2
}

// last copies the values that end skip ahead of the stream's end to p, as many as
// there are, and returns them.
func (o *overlap) last(p []byte, skip int) []byte {
	end := 2 * (o.n - skip)
	p = p[:min(len(p), end)]
	n := copy(p, o.ring[(end-len(p))%len(o.ring):])
	copy(p[n:], o.ring[:])
	return p
}

// values returns the values of bytes, in x.
func values(x []int16, p []byte) []int16 {
	x = x[:len(p)/2]
	for i := range x {
		x[i] = int16(binary.LittleEndian.Uint16(p[2*i:]))
	}
	return x
}

// compare looks for the chunk's first values in what came before it.
func (o *overlap) compare() {
	var b, h [2 * overlapMax]byte
	back, head := o.last(b[:2*o.headN], o.headN), o.last(h[:2*o.headN], 0) // no overlap is longer than the head
	if o.same, o.tired = longest(back, head); o.same < overlapMin {
		return
	}
	if o.doubt = o.steady(head) || o.steady(head[:2*o.same]); !o.doubt {
		var v [overlapMax]int16
		o.level = deviation(values(v[:], head[:2*o.same]))
	}
}

// steady reports whether values of 2 bytes have a period. The one found last is
// tried first: a tone goes on.
func (o *overlap) steady(p []byte) bool {
	if n := 2 * o.period; n > 0 && n <= len(p)-min(2*steadyMin, len(p)/2) && bytes.Equal(p[n:], p[:len(p)-n]) {
		return true
	}
	var v [overlapMax]int16
	o.period = period(values(v[:], p))
	return o.period > 0
}

// end judges the chunk. One that repeats the one before as a whole is told by
// repeat.
func (o *overlap) end(chunk int, again bool, silent float64) {
	if o.headN == 0 || o.before < overlapMin {
		return
	}
	if o.headN < overlapMax {
		o.compare()
	}
	o.judged++
	o.gaveUp = o.gaveUp || o.tired
	if again || o.doubt || o.same < overlapMin || o.level <= silent {
		return
	}
	if o.found++; o.found == 1 {
		o.at = place{chunk, o.from}
	}
	o.longer = max(o.longer, o.same)
}

// longest returns the largest k at which the last k values of back are the first
// k of head; tired says that it gave up. It looks for the first few values that
// are not all alike: a head that begins in silence is found by where that ends.
func longest(back, head []byte) (k int, tired bool) {
	const size = 2 * overlapMin
	from := 2 * max(0, alike(head)-1)
	if len(head) < from+size {
		return 0, false
	}
	anchor := head[from : from+size]
	at := 0 // where to look on
	for range overlapEffort {
		i := bytes.Index(back[at:], anchor)
		if i < 0 {
			return 0, false
		}
		at += i
		start := at - from
		if at%2 == 0 && start >= 0 && len(back)-start <= len(head) && bytes.Equal(back[start:], head[:len(back)-start]) {
			return (len(back) - start) / 2, false
		}
		at++
	}
	return 0, true
}

// alike returns how many values of 2 bytes p begins with that are the same.
func alike(p []byte) int {
	n := 0
	for n < len(p)/2 && p[2*n] == p[0] && p[2*n+1] == p[1] {
		n++
	}
	return n
}

// deviation is the RMS of values about their mean.
func deviation(x []int16) float64 {
	var sum, sq float64
	if len(x) == 0 {
		return 0
	}
	for _, v := range x {
		sum += float64(v)
		sq += float64(v) * float64(v)
	}
	n := float64(len(x))
	return math.Sqrt(max(0, sq/n-sum/n*sum/n))
}

// finding is measured in samples of the longest overlap.
func (o *overlap) finding() Finding {
	const name = "border_overlap"
	switch {
	case o.found > 0:
		return failed(name, o.at, float64(o.longer), overlapMin, "%d of %d chunks begin with what the chunk before ended with, %d samples at most", o.found, o.judged, o.longer)
	case o.judged == 0:
		return notMeasured(name, "fewer than two chunks")
	case o.gaveUp:
		return notMeasured(name, "too many near repeats to compare")
	}
	return passed(name, 0, overlapMin)
}
