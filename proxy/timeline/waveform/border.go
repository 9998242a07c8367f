package waveform

import "fmt"

// border compares the bend of the curve between two chunks (the second
// difference: how far a value lies from where a straight line would go) with the
// bends just inside them, on the first channel: samples lost or repeated at
// every border show as bends far above those around. One border alone proves
// nothing.
type border struct {
	cfg     *Config
	tail    [borderSpan]int16 // last values of the chunk before, oldest first
	tailN   int
	head    [borderSpan]int16 // first values of the chunk at hand
	headN   int
	from    int64 // the chunk's first frame
	judged  int   // borders looked at
	flagged int   // borders with a jump
	at      place // the first of them

	// what chunks have beyond whole hops, the last one left out
	ends      int64 // frames up to the last chunk's end
	remainder int64
	chunks    int
	uneven    bool
	pending   int64 // frames of the last chunk
}

const (
	// borderSpan is how many values on either side are looked at.
	borderSpan = 64
	// sharper is how many times the sharpest bend inside a jump must be.
	sharper = 3
	// bendFloor keeps the noise of quiet passages from being jumps.
	bendFloor = 32
	// bordersNeeded is how many borders must jump, and half of all.
	bordersNeeded = 3
)

func (b *border) begin(frame int64) { b.headN, b.from = 0, frame }

// forget makes the next chunk the first one.
func (b *border) forget() { b.tailN, b.headN = 0, 0 }

// add takes values of the chunk at hand.
func (b *border) add(x []int16) { b.headN += copy(b.head[b.headN:], x) }

// addMono is add for the bytes of s16le of one channel.
func (b *border) addMono(p []byte) {
	if n := min(borderSpan-b.headN, len(p)/2); n > 0 {
		b.headN += len(values(b.head[b.headN:], p[:2*n]))
	}
}

// end judges the border ahead of the chunk at hand, which ends at frame at, its
// values last in o, and makes it the one before. again says that it repeats what
// came before: that curve breaks, and is told of elsewhere.
func (b *border) end(at place, o *overlap, again bool) {
	n := min(at.frame-b.from, borderSpan)
	if n == 0 {
		return
	}
	if !again && b.tailN >= borderSpan/2 && b.headN >= borderSpan/2 {
		b.judge(at)
	}
	var p [2 * borderSpan]byte
	b.tailN = len(values(b.tail[:], o.last(p[:2*n], 0)))
	b.measure(at.frame)
}

func (b *border) judge(at place) {
	b.judged++
	t, h := b.tail[:b.tailN], b.head[:b.headN]
	inside := max(sharpest(t), sharpest(h))
	across := max(bend(t[len(t)-2], t[len(t)-1], h[0]), bend(t[len(t)-1], h[0], h[1]))
	if across > sharper*inside+bendFloor {
		if b.flagged++; b.flagged == 1 {
			b.at = place{at.chunk, b.from}
		}
	}
}

// measure keeps what the chunk ahead of the last one has beyond whole hops: the
// last one of a stream may be short.
func (b *border) measure(frame int64) {
	if hop := int64(b.cfg.Hop); hop > 0 && b.pending > 0 {
		r := b.pending % hop
		b.uneven = b.uneven || b.chunks > 0 && r != b.remainder
		b.remainder = r
		b.chunks++
	}
	b.pending, b.ends = frame-b.ends, frame
}

// periodic reports whether borders jump as a rule. A border where the curve is
// flat shows little of what it lost.
func (b *border) periodic() bool { return b.flagged >= bordersNeeded && b.flagged*2 >= b.judged }

// finding is measured as the share of borders that jump.
func (b *border) finding() Finding {
	const name = "border_jumps"
	if b.judged < bordersNeeded {
		return notMeasured(name, fmt.Sprintf("%d chunk borders could be judged, %d are needed", b.judged, bordersNeeded))
	}
	share := float64(b.flagged) / float64(b.judged)
	if !b.periodic() {
		return passed(name, share, .5)
	}
	return failed(name, b.at, share, .5, "the curve breaks at %d of %d chunk borders%s", b.flagged, b.judged, b.amount())
}

// amount says how much every chunk lacks, where the model's hop tells.
func (b *border) amount() string {
	if b.chunks < bordersNeeded || b.uneven || b.remainder == 0 {
		return ""
	}
	return fmt.Sprintf("; every chunk but the last has %d samples beyond whole hops of %d, it lacks %d", b.remainder, b.cfg.Hop, int64(b.cfg.Hop)-b.remainder)
}

// sharpest is the largest bend among the values.
func sharpest(v []int16) int32 {
	var n int32
	for i := 2; i < len(v); i++ {
		n = max(n, bend(v[i-2], v[i-1], v[i]))
	}
	return n
}

// bend is the size of the second difference.
func bend(a, b, c int16) int32 {
	d := int32(a) - 2*int32(b) + int32(c)
	return max(d, -d)
}
