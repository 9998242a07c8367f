package waveform

import "fmt"

// border looks at the seams between chunks, on the first channel: where samples were
// lost, were repeated or do not belong, the curve breaks. A break at one border
// must be far above what sound does by itself (border_break); at a tenth of them it
// is no chance (border_jumps).
type border struct {
	cfg  *Config
	size int               // values on either side that are looked at: 10 ms
	tail [predictors]int16 // last values of the chunk before, oldest first
	head [predictors]int16 // first values of the chunk at hand
	tailN,
	headN int
	from int64 // the chunk's first frame

	judged  int     // borders looked at: those with sound on both sides
	flagged tale    // borders with a jump
	broken  tale    // borders with a break
	worst   float64 // of those above the jump
	hops    hops
}

const (
	// bordersNeeded is how many borders must jump.
	bordersNeeded = 3
	// oddly is how many times BorderJump a border must surprise behind a chunk of
	// another length than the others.
	oddly = 1.6
	// bendSpan is how many values on either side the first look takes.
	bendSpan = 64
	// bendFloor is restFloor for bends.
	bendFloor = 32
	// suspect is the ratio of bends from which a border gets a second look.
	suspect = 0.8
)

func (b *border) setRate(rate int) {
	b.size = max(predictMin, min(rate/100, predictors))
	b.headN = min(b.headN, b.size)
}

func (b *border) begin(frame int64) { b.headN, b.from = 0, frame }

// forget makes the next chunk the first one.
func (b *border) forget() {
	b.tailN, b.headN = 0, 0
	b.hops.forget()
}

// add takes values of the chunk at hand.
func (b *border) add(x []int16) { b.headN += copy(b.head[b.headN:b.size], x) }

// addMono is add for the bytes of s16le of one channel.
func (b *border) addMono(p []byte) {
	if n := min(b.size-b.headN, len(p)/2); n > 0 {
		b.headN += len(values(b.head[b.headN:], p[:2*n]))
	}
}

// end judges the border ahead of the chunk at hand, which ends at frame at, its
// values last in o, and makes it the one before. again says that it repeats what
// came before: that curve breaks, and is told of elsewhere.
func (b *border) end(at place, o *overlap, again bool, silent float64) {
	if at.frame == b.from {
		return
	}
	if !again {
		b.judge(place{at.chunk, b.from}, silent)
	}
	b.hops.add(place{at.chunk, b.from}, at.frame-b.from)
	var p [2 * predictors]byte
	b.tailN = len(values(b.tail[:], o.last(p[:2*b.size], 0)))
}

func (b *border) judge(at place, silent float64) {
	t, h := b.tail[:b.tailN], b.head[:b.headN]
	if len(t) < predictMin || len(h) < predictMin || deviation(t) <= silent || deviation(h) <= silent {
		return
	}
	b.judged++
	if bends(t, h) < suspect {
		return
	}
	ratio := surprise(t, h, b.cfg.BorderJump)
	b.worst = max(b.worst, ratio)
	if ratio > b.cfg.BorderJump {
		b.flagged.add(at)
	}
	if ratio > b.cfg.BorderBreak || ratio > oddly*b.cfg.BorderJump && b.hops.odd() {
		b.broken.add(at)
	}
}

// findings are measured as the share of borders that jump, and as the worst break.
func (b *border) findings() []Finding {
	const jumps, breaks = "border_jumps", "border_break"
	if b.judged == 0 {
		reason := "no chunk border with sound on both sides"
		return []Finding{notMeasured(breaks, reason), notMeasured(jumps, reason)}
	}
	share := float64(b.flagged.n) / float64(b.judged)
	out := []Finding{passed(breaks, b.worst, b.cfg.BorderBreak), passed(jumps, share, b.cfg.BorderShare)}
	if b.broken.n > 0 {
		out[0] = failed(breaks, b.broken.at, b.worst, b.cfg.BorderBreak, "the curve breaks at %d of %d chunk borders far above what sound does: up to %.1f times the largest rest of its prediction around", b.broken.n, b.judged, b.worst)
	}
	switch {
	case b.judged < bordersNeeded:
		out[1] = notMeasured(jumps, fmt.Sprintf("%d chunk borders could be judged, %d are needed", b.judged, bordersNeeded))
	case b.flagged.n >= bordersNeeded && share >= b.cfg.BorderShare:
		out[0] = notMeasured(breaks, "the curve breaks as a rule (border_jumps)")
		out[1] = failed(jumps, b.flagged.at, share, b.cfg.BorderShare, "the curve breaks at %d of %d chunk borders%s", b.flagged.n, b.judged, b.hops.amount())
	}
	return out
}

// bends compares the sharpest bend over a border with the sharpest beside it.
func bends(t, h []int16) float64 {
	t, h = t[max(0, len(t)-bendSpan):], h[:min(len(h), bendSpan)]
	inside := max(sharpest(t), sharpest(h))
	var x [8]int16
	copy(x[:4], t[len(t)-4:])
	copy(x[4:], h[:4])
	return float64(sharpest(x[:])) / float64(inside+bendFloor)
}

// sharpest is the largest bend among the values: their fourth difference.
func sharpest(v []int16) int32 {
	var n int32
	for i := 4; i < len(v); i++ {
		d := int32(v[i-4]) - 4*int32(v[i-3]) + 6*int32(v[i-2]) - 4*int32(v[i-1]) + int32(v[i])
		n = max(n, d, -d)
	}
	return n
}
