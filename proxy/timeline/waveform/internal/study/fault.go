package study

import (
	"math"
	"math/rand/v2"
	"slices"
)

// fault is a way to spoil a stream. All have a known amount at known places.
type fault struct {
	name string
	// what says it in the report.
	what string
	// single says that there is one place, which may lie in silence.
	single bool
	// whole says that the amount is a chunk, whatever is asked for.
	whole bool
	// spoil returns the chunks with k samples lost, repeated or put in, and the
	// first place as a sample of the stream; ok is false where the stream is cut
	// too small for it.
	spoil func(s stream, k int, r *rand.Rand) (chunks [][]int16, at int, ok bool)
}

func faults() []fault {
	return []fault{
		{name: "lost-borders", what: "every chunk but the last lacks its last k samples", spoil: eachBorder(shorten)},
		{name: "lost-border", what: "one chunk lacks its last k samples", single: true, spoil: oneBorder(shorten)},
		{name: "lost-inside", what: "one chunk lacks k samples amid it", single: true, spoil: lostInside},
		{name: "lost-scattered", what: "k samples are lost about once a second, before the stream is cut", spoil: lostScattered},
		{name: "again-borders", what: "every chunk but the first begins with the last k samples of the chunk before", spoil: eachBorder(overlap)},
		{name: "again-border", what: "one chunk begins with the last k samples of the chunk before", single: true, spoil: oneBorder(overlap)},
		{name: "again-inside", what: "k samples amid one chunk come twice", single: true, spoil: againInside},
		{name: "chunk-again", what: "one chunk comes twice", single: true, whole: true, spoil: chunkAgain},
		{name: "zeros-borders", what: "every chunk but the first begins with k zeros that do not belong there", spoil: eachBorder(zeros)},
		{name: "zeros-border", what: "one chunk does", single: true, spoil: oneBorder(zeros)},
	}
}

// atBorder spoils the border between two chunks.
type atBorder func(before, behind []int16, k int) (newBefore, newBehind []int16, ok bool)

func shorten(before, behind []int16, k int) (newBefore, newBehind []int16, ok bool) {
	if len(before) <= k {
		return nil, nil, false
	}
	return before[: len(before)-k : len(before)-k], behind, true
}

func overlap(before, behind []int16, k int) (newBefore, newBehind []int16, ok bool) {
	if len(before) <= k {
		return nil, nil, false
	}
	return before, slices.Concat(before[len(before)-k:], behind), true
}

func zeros(before, behind []int16, k int) (newBefore, newBehind []int16, ok bool) {
	return before, slices.Concat(make([]int16, k), behind), true
}

// eachBorder spoils all borders; what one border does to a chunk is not seen by
// the next.
func eachBorder(f atBorder) func(stream, int, *rand.Rand) ([][]int16, int, bool) {
	return func(s stream, k int, _ *rand.Rand) ([][]int16, int, bool) {
		whole := s.chunks()
		out := slices.Clone(whole)
		for i := 1; i < len(whole); i++ {
			before, behind, ok := f(whole[i-1], whole[i], k)
			if !ok {
				return nil, 0, false
			}
			if len(before) != len(whole[i-1]) {
				out[i-1] = before
			}
			out[i] = behind
		}
		return out, s.sizes[0], len(whole) > 1
	}
}

func oneBorder(f atBorder) func(stream, int, *rand.Rand) ([][]int16, int, bool) {
	return func(s stream, k int, r *rand.Rand) ([][]int16, int, bool) {
		out := s.chunks()
		if len(out) < 2 {
			return nil, 0, false
		}
		i := 1 + r.IntN(len(out)-1)
		at := start(out, i)
		var ok bool
		out[i-1], out[i], ok = f(out[i-1], out[i], k)
		return out, at, ok
	}
}

func lostInside(s stream, k int, r *rand.Rand) ([][]int16, int, bool) {
	out := s.chunks()
	i := r.IntN(len(out))
	c := out[i]
	if len(c) < k+2 { // a sample stays on either side
		return nil, 0, false
	}
	p := 1 + r.IntN(len(c)-k-1)
	at := start(out, i) + p
	out[i] = slices.Concat(c[:p], c[p+k:])
	return out, at, true
}

func lostScattered(s stream, k int, r *rand.Rand) ([][]int16, int, bool) {
	if k >= s.rate {
		return nil, 0, false
	}
	var x []int16
	from := 0
	for second := 0; second+s.rate <= len(s.x); second += s.rate {
		p := second + r.IntN(s.rate-k)
		x = append(x, s.x[from:p]...)
		from = p + k
	}
	return split(append(x, s.x[from:]...), s.sizes), 0, true
}

func againInside(s stream, k int, r *rand.Rand) ([][]int16, int, bool) {
	out := s.chunks()
	i := r.IntN(len(out))
	c := out[i]
	if len(c) < k+2 {
		return nil, 0, false
	}
	p := k + 1 + r.IntN(len(c)-k-1)
	at := start(out, i) + p
	out[i] = slices.Concat(c[:p], c[p-k:])
	return out, at, true
}

func chunkAgain(s stream, _ int, r *rand.Rand) ([][]int16, int, bool) {
	out := s.chunks()
	i := r.IntN(len(out))
	return slices.Insert(out, i, out[i]), start(out, i), true
}

// start is where in the stream chunk i begins.
func start(chunks [][]int16, i int) int {
	n := 0
	for _, c := range chunks[:i] {
		n += len(c)
	}
	return n
}

// heardAbove is the level at which a place is heard, as a value: -60 dB of full
// scale, RMS about the mean.
const heardAbove = 32.768

// heard reports whether there is sound within 10 ms of a place.
func (s stream) heard(at int) bool {
	x := s.x[max(0, at-s.rate/100):min(len(s.x), at+s.rate/100)]
	var sum, sq float64
	for _, v := range x {
		sum += float64(v)
		sq += float64(v) * float64(v)
	}
	n := float64(max(1, len(x)))
	return math.Sqrt(max(0, sq/n-sum*sum/n/n)) > heardAbove
}
