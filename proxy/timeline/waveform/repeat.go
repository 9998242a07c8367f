package waveform

import (
	"fmt"
	"hash/maphash"
)

// repeat finds chunks that begin with sound which came before as a whole, to the
// byte: the chunk before once more, the chunk before and more (a server that sends
// all so far each time), or everything so far (a final result on top of its own
// stream). Silence and steady tones repeat themselves and are none.
type repeat struct {
	chunk, all maphash.Hash // of the chunk at hand, and of the stream up to and with it
	n, allN    int64        // bytes of each
	from       int64        // the chunk's first frame

	last     uint64 // of the chunk before
	lastN    int64
	tail     [2 * repeatTail]byte // its last values, of 2 bytes
	tailN    int
	telling  int8   // whether they would not come again by themselves: 0 unknown, 1 yes, -1 no
	before   uint64 // of all ahead of the chunk at hand
	beforeN  int64
	starts   bool // the chunk at hand begins with the chunk before
	repeats  bool // it begins with all before it
	judged   int
	same     tale // chunks that are the chunk before once more
	more     tale // chunks that begin with sound that came before
	repeated int64
}

// tale is how often something was found, and where first.
type tale struct {
	n  int
	at place
}

func (t *tale) add(at place) {
	if t.n++; t.n == 1 {
		t.at = at
	}
}

const (
	// repeatMin is how many values a chunk must have to be no repeat by chance.
	repeatMin = 64
	// repeatTail is how many values of a chunk tell whether it says anything.
	repeatTail = overlapMax
)

func (r *repeat) forget() {
	r.lastN, r.beforeN, r.allN = 0, 0, 0
	r.all.Reset()
}

func (r *repeat) begin(frame int64) {
	if r.allN == 0 {
		r.all.SetSeed(r.chunk.Seed())
	}
	r.before, r.beforeN = 0, r.allN
	if r.allN > r.lastN { // else the chunk before is all there is
		r.before = r.all.Sum64()
	}
	r.n, r.from, r.starts, r.repeats = 0, frame, false, false
	r.chunk.Reset()
}

// add takes bytes of the chunk at hand.
func (r *repeat) add(p []byte) {
	for len(p) > 0 {
		n := int64(len(p))
		for _, at := range [...]int64{r.lastN, r.beforeN} {
			if at > r.n {
				n = min(n, at-r.n)
			}
		}
		_, _ = r.chunk.Write(p[:n])
		_, _ = r.all.Write(p[:n])
		r.n += n
		r.allN += n
		p = p[n:]
		if r.n == r.lastN {
			r.starts = r.chunk.Sum64() == r.last
		}
		if r.n == r.beforeN && r.beforeN > r.lastN {
			r.repeats = r.chunk.Sum64() == r.before
		}
	}
}

// end compares the chunk at hand, whose values ended in o, with what came before,
// and reports whether it repeats it.
func (r *repeat) end(chunk int, o *overlap, silent float64) (again bool) {
	if r.n == 0 {
		return false
	}
	if r.lastN > 0 {
		r.judged++
		if (r.starts || r.repeats) && r.tells(o, silent) {
			again = true
			r.note(place{chunk, r.from})
		}
	}
	if r.last, r.lastN = r.chunk.Sum64(), r.n; !again { // else it ends as the chunk before
		r.telling = 0
		r.tailN = len(o.last(r.tail[:2*min(repeatTail, o.headN)], 0))
	}
	return again
}

// note counts a repeat.
func (r *repeat) note(at place) {
	switch {
	case r.repeats:
		r.more.add(at)
		r.repeated += r.beforeN
	case r.n == r.lastN:
		r.same.add(at)
		r.repeated += r.lastN
	default:
		r.more.add(at)
		r.repeated += r.lastN
	}
}

// tells reports whether the last values of the chunk before are such that they
// would not come again by themselves.
func (r *repeat) tells(o *overlap, silent float64) bool {
	if r.telling == 0 {
		var v [repeatTail]int16
		p := r.tail[:r.tailN]
		r.telling = -1
		if len(p) >= 2*repeatMin && !o.steady(p) && deviation(values(v[:], p)) > silent {
			r.telling = 1
		}
	}
	return r.telling > 0
}

// findings are measured in chunks. size is a frame's bytes.
func (r *repeat) findings(frames int64, size int) []Finding {
	const same, more = "repeated_chunk", "repeated_audio"
	if r.judged == 0 {
		return []Finding{notMeasured(same, "fewer than two chunks"), notMeasured(more, "fewer than two chunks")}
	}
	left := ""
	if size > 0 {
		left = fmt.Sprintf("; without what came again the sound has %d sample frames, not %d", frames-r.repeated/int64(size), frames)
	}
	out := []Finding{passed(same, 0, 0), passed(more, 0, 0)}
	if n := r.same.n; n > 0 {
		out[0] = failed(same, r.same.at, float64(n), 0, "%s the chunk before once more, to the byte%s", count(n, "is", "are each"), left)
	}
	if n := r.more.n; n > 0 {
		out[1] = failed(more, r.more.at, float64(n), 0, "%s with sound that came before as a whole%s", count(n, "begins", "each begin"), left)
	}
	return out
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 chunk " + one
	}
	return fmt.Sprintf("%d chunks %s", n, many)
}
