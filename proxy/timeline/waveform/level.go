package waveform

import (
	"encoding/binary"
	"math"
)

// levels measures windows of 5 ms and tells silence, clipping and offset.
type levels struct {
	cfg  *Config
	rate int
	size int // frames of a window

	// the window at hand
	n         int
	sum, sq   int64
	low, high int16
	from      place
	threshold float64
	nonzero   bool // some window was not

	silence silence
	offset  offset
	clip    clip
}

// windowsPerSecond makes windows of 5 ms, the time that sound must last to be
// heard (contract section 2).
const windowsPerSecond = 200

// window is 5 ms of sound, or less at the end.
type window struct {
	from place
	n    int
	mean float64 // of full scale
	rms  float64 // about the mean, a value
	zero bool    // every sample is exactly 0
	loud bool
}

func (l *levels) setRate(rate int) {
	l.rate, l.size = rate, max(1, rate/windowsPerSecond)
	l.threshold = amplitude(l.cfg.SilenceDBFS)
}

func (l *levels) add(x []int16, at place) {
	for len(x) > 0 {
		if l.n == 0 {
			l.from = at
		}
		n := min(l.size-l.n, len(x))
		l.note(measure(x[:n]), at, func([]int16) []int16 { return x[:n] })
		x, at.frame = x[n:], at.frame+int64(n)
		if l.n == l.size {
			l.flush()
		}
	}
}

// addMono is add for the bytes of s16le of one channel, which is what nearly every
// stream is: the values are not written down in between.
func (l *levels) addMono(p []byte, at place) {
	for len(p) > 1 {
		if l.n == 0 {
			l.from = at
		}
		n := min(l.size-l.n, len(p)/2)
		l.note(measureMono(p[:2*n]), at, func(x []int16) []int16 { return values(x, p[:2*n]) })
		p, at.frame = p[2*n:], at.frame+int64(n)
		if l.n == l.size {
			l.flush()
		}
	}
}

// stats sums up some frames.
type stats struct {
	n         int
	sum, sq   int64
	low, high int16
}

func measure(x []int16) stats {
	s := stats{n: len(x), low: x[0], high: x[0]}
	for _, v := range x {
		n := int64(v)
		s.sum += n
		s.sq += n * n
		s.low, s.high = min(s.low, v), max(s.high, v)
	}
	return s
}

// halfScale marks, of four values in a word, those whose two top bits differ: half of
// full scale and more. (What one value's shift carries into the next is masked off.)
const halfScale = 0x8000_8000_8000_8000

// measureMono measures the values of s16le bytes. Lowest and highest are only told
// as far as anybody asks: whether all values are 0, and whether some may be at full
// scale; else they are 0 and 1.
func measureMono(p []byte) stats {
	var sum, sum2, sq, sq2 int64
	var all, high uint64
	i := 0
	for ; i+8 <= len(p); i += 8 {
		u := binary.LittleEndian.Uint64(p[i : i+8])
		all |= u
		high |= u ^ u<<1
		a, b, c, d := int64(int16(u)), int64(int16(u>>16)), int64(int16(u>>32)), int64(u)>>48
		sum += a + c
		sum2 += b + d
		sq += a*a + c*c
		sq2 += b*b + d*d
	}
	for ; i+2 <= len(p); i += 2 {
		v := int64(int16(binary.LittleEndian.Uint16(p[i : i+2])))
		sum += v
		sq += v * v
		all |= uint64(v)
		high |= uint64(uint16(v)) ^ uint64(uint16(v))<<1
	}
	switch {
	case high&halfScale != 0:
		return measureLoud(p)
	case all == 0:
		return stats{n: len(p) / 2}
	}
	return stats{len(p) / 2, sum + sum2, sq + sq2, 0, 1}
}

func measureLoud(p []byte) stats {
	sum, sq, low, high := int64(0), int64(0), int16(full), int16(-full-1)
	for i := 0; i+2 <= len(p); i += 2 {
		v := int16(binary.LittleEndian.Uint16(p[i : i+2]))
		n := int64(v)
		sum += n
		sq += n * n
		low, high = min(low, v), max(high, v)
	}
	return stats{len(p) / 2, sum, sq, low, high}
}

// note adds frames, which lie in one window, to it; decode gives their values.
func (l *levels) note(s stats, at place, decode func([]int16) []int16) {
	if s.low <= -full || s.high >= full {
		var x [block]int16
		l.clip.add(decode(x[:]), at)
	} else {
		l.clip.run = 0
	}
	if l.n > 0 {
		s.low, s.high = min(s.low, l.low), max(s.high, l.high)
	}
	l.sum, l.sq, l.low, l.high = l.sum+s.sum, l.sq+s.sq, s.low, s.high
	l.n += s.n
}

// flush ends the window at hand.
func (l *levels) flush() {
	n := float64(l.n)
	mean := float64(l.sum) / n
	w := window{from: l.from, n: l.n, mean: mean / full, rms: math.Sqrt(max(0, float64(l.sq)/n-mean*mean)), zero: l.low == 0 && l.high == 0}
	w.loud = w.rms > l.threshold
	l.nonzero = l.nonzero || !w.zero
	l.n, l.sum, l.sq = 0, 0, 0
	l.silence.add(w)
	l.offset.add(w)
}

// findings ends the stream.
func (l *levels) findings(frames int64, whole bool) []Finding {
	if l.n > 0 {
		l.flush()
	}
	return append(l.silence.findings(l.cfg, l.rate, frames, whole), l.offset.finding(l.cfg, l.rate), l.clip.finding(l.cfg, frames))
}
