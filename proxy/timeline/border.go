package timeline

import "github.com/omnitap/omnitap/proxy/wire/audio"

// border compares the bend of the curve between two chunks (the second
// difference: how far a value lies from where a straight line would go) with the
// bends just inside them, on the first channel of s16le: samples lost or
// repeated at every border show as bends far above those around. One border
// alone proves nothing.
type border struct {
	tail    [borderSpan]int16 // last values of the chunk before, oldest first
	tailN   int
	head    [borderSpan]int16 // first values of the chunk at hand
	headN   int
	cur     [borderSpan]int16 // last values of the chunk at hand, a ring
	curN    int
	odd     []byte
	frameN  int
	judged  int // borders looked at
	flagged int // borders with a jump
}

// borderSpan is how many values on either side are looked at.
const borderSpan = 64

func (b *border) begin() {
	b.headN, b.curN = 0, 0
}

// add takes sample bytes of the chunk at hand.
func (b *border) add(p []byte, f audio.Format) {
	if f.Encoding != audio.S16LE {
		b.frameN = 0
		return
	}
	fb := f.FrameBytes()
	b.frameN = fb
	if len(b.odd) > 0 {
		n := min(fb-len(b.odd), len(p))
		b.odd = append(b.odd, p[:n]...)
		p = p[n:]
		if len(b.odd) < fb {
			return
		}
		b.value(b.odd)
		b.odd = b.odd[:0]
	}
	whole := len(p) / fb * fb
	for i := 0; i < whole && b.headN < borderSpan; i += fb {
		b.head[b.headN] = int16(uint16(p[i]) | uint16(p[i+1])<<8)
		b.headN++
	}
	first := max(0, whole-borderSpan*fb)
	for i := first; i < whole; i += fb {
		b.last(int16(uint16(p[i]) | uint16(p[i+1])<<8))
	}
	if whole < len(p) {
		b.odd = append(b.odd, p[whole:]...)
	}
}

func (b *border) value(p []byte) {
	v := int16(uint16(p[0]) | uint16(p[1])<<8)
	if b.headN < borderSpan {
		b.head[b.headN] = v
		b.headN++
	}
	b.last(v)
}

func (b *border) last(v int16) {
	b.cur[b.curN%borderSpan] = v
	b.curN++
}

// end judges the border ahead of the chunk at hand, then makes it the one before.
func (b *border) end() {
	if b.frameN == 0 {
		b.tailN = 0
		return
	}
	if b.tailN >= borderSpan/2 && b.headN >= borderSpan/2 {
		b.judged++
		inside := max(sharpest(b.tail[:b.tailN]), sharpest(b.head[:b.headN]))
		t := b.tail[:b.tailN]
		across := max(bend(t[len(t)-2], t[len(t)-1], b.head[0]), bend(t[len(t)-1], b.head[0], b.head[1]))
		if across > 3*inside+32 {
			b.flagged++
		}
	}
	n := min(b.curN, borderSpan)
	for i := range n {
		b.tail[i] = b.cur[(b.curN-n+i)%borderSpan]
	}
	b.tailN = n
}

// periodic reports whether borders jump as a rule: at least three, and every
// second one. A border where the curve is flat shows little of what it lost.
func (b *border) periodic() bool {
	return b.flagged >= 3 && b.flagged*2 >= b.judged
}

// sharpest is the largest bend among the values.
func sharpest(v []int16) int {
	n := 0
	for i := 2; i < len(v); i++ {
		n = max(n, bend(v[i-2], v[i-1], v[i]))
	}
	return n
}

// bend is the size of the second difference.
func bend(a, b, c int16) int {
	d := int(a) - 2*int(b) + int(c)
	return max(d, -d)
}
