package waveform

import "math"

// overlap finds chunks that begin with the samples that the chunk before ended
// with: sound that plays twice. What repeats itself anyway, a steady tone, is no
// overlap, and neither is silence.
type overlap struct {
	ring  [2 * overlapMax]float32 // the last values of the stream
	n     int                     // values so far
	headN int                     // of them the chunk's first, at most overlapMax
	from  int64                   // the chunk's first frame
	same  int                     // how many of its first values came last before it
	doubt bool                    // they would, whatever they are
	quiet float64                 // their RMS about their mean
	tired bool                    // the comparison was given up

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
	overlapEffort = 1 << 16
)

func (o *overlap) forget() { o.n, o.headN = 0, 0 }

// begin starts a chunk.
func (o *overlap) begin(frame int64) { o.headN, o.from = 0, frame }

func (o *overlap) add(x []float32) {
	if o.headN < overlapMax {
		n := min(overlapMax-o.headN, len(x))
		o.push(x[:n])
		if o.headN += n; o.headN == overlapMax { // what came before is still in the ring
			o.compare()
		}
		x = x[n:]
	}
	o.push(x)
}

func (o *overlap) push(x []float32) {
	n := copy(o.ring[o.n%len(o.ring):], x)
	copy(o.ring[:], x[n:])
	o.n += len(x)
}

// last copies the values that end skip ahead of the stream's end to x, as many as
// there are, and returns them.
func (o *overlap) last(x []float32, skip int) []float32 {
	end := o.n - skip
	x = x[:min(len(x), end)]
	n := copy(x, o.ring[(end-len(x))%len(o.ring):])
	copy(x[n:], o.ring[:])
	return x
}

// compare looks for the chunk's first values in what came before it.
func (o *overlap) compare() {
	var b, h [overlapMax]float32
	back, head := o.last(b[:], o.headN), o.last(h[:o.headN], 0)
	o.same, o.tired = longest(back, head)
	o.doubt = o.same >= overlapMin && (steady(head[:o.same]) || steady(head))
	o.quiet = deviation(head[:o.same])
}

// end judges the chunk. One that repeats the one before as a whole is told by
// repeat.
func (o *overlap) end(chunk int, again bool, silent float64) {
	if o.headN == 0 || o.n == o.headN {
		return
	}
	if o.headN < overlapMax {
		o.compare()
	}
	o.judged++
	o.gaveUp = o.gaveUp || o.tired
	if again || o.doubt || o.same < overlapMin || o.quiet <= silent {
		return
	}
	if o.found++; o.found == 1 {
		o.at = place{chunk, o.from}
	}
	o.longer = max(o.longer, o.same)
}

// longest returns the largest k at which the last k values of back are the first
// k of head; tired says that it gave up.
func longest(back, head []float32) (k int, tired bool) {
	effort := 0
	for k := min(len(back), len(head), overlapMax); k >= overlapMin; k-- {
		b := back[len(back)-k:]
		i := 0
		for i < k && b[i] == head[i] {
			i++
		}
		if i == k {
			return k, false
		}
		if effort += i + 1; effort > overlapEffort {
			return 0, true
		}
	}
	return 0, false
}

// deviation is the RMS of values about their mean.
func deviation(x []float32) float64 {
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
