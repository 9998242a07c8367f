package waveform

import "encoding/binary"

// dropout finds holes: samples that are exactly 0 with sound right up to them on
// both sides. Sound that falls silent by itself fades, also to digital silence;
// whoever pauses for long may cut it off.
type dropout struct {
	run    int64 // zeros in a row so far
	from   place // where they began
	before int16 // the value ahead of them
	prev   int16 // the last value

	most int64 // zeros in a hole: more are a pause

	holes   tale
	zeros   int64 // in all holes
	longest int64
}

const (
	// dropoutMin is how many zeros make a hole: fewer may be a curve's crossing.
	dropoutMin = 8
	// dropoutPerSecond makes the longest hole: 200 ms.
	dropoutPerSecond = 5
	// dropoutEdge is how loud the values on either side must be, -36 dB of full scale:
	// formant synthesizers end sounds at up to -38 without fading them.
	dropoutEdge = 512
)

func (d *dropout) setRate(rate int) { d.most = int64(rate / dropoutPerSecond) }

// add takes values from at on.
func (d *dropout) add(x []int16, at place) {
	for i, v := range x {
		d.value(v, place{at.chunk, at.frame + int64(i)})
	}
}

func (d *dropout) value(v int16, at place) {
	switch {
	case v == 0 && d.run == 0:
		d.run, d.from, d.before = 1, at, d.prev
	case v == 0:
		d.run++
	case d.run > 0:
		d.end(v)
	}
	d.prev = v
}

// end ends a run of zeros at a value.
func (d *dropout) end(v int16) {
	if d.run >= dropoutMin && d.run <= d.most && magnitude(d.before) >= dropoutEdge && magnitude(v) >= dropoutEdge {
		d.holes.add(d.from)
		d.zeros += d.run
		d.longest = max(d.longest, d.run)
	}
	d.run = 0
}

// addMono is add for the bytes of s16le of one channel: four values at a time, of
// which a run of dropoutMin holds four in a row.
func (d *dropout) addMono(p []byte, at place) {
	p = p[:len(p)&^1]
	i := 0
	if d.run > 0 { // a run goes on
		i = d.zerosTo(p, 0, at)
	}
	const four = 8
	for done := i; i+four <= len(p); {
		if binary.LittleEndian.Uint64(p[i:]) != 0 {
			i += four
			continue
		}
		for i > done && sample(p, i-2) == 0 {
			i -= 2
		}
		i = d.zerosTo(p, i, at)
		done = i
	}
	d.last(p, at)
}

func sample(p []byte, i int) int16 { return int16(binary.LittleEndian.Uint16(p[i:])) }

// zerosTo takes the zeros from byte i on, the first of them of a run or in one, and
// returns where they end; the value there ends the run.
func (d *dropout) zerosTo(p []byte, i int, at place) int {
	if d.run == 0 {
		if i > 0 {
			d.prev = sample(p, i-2)
		}
		d.from, d.before = place{at.chunk, at.frame + int64(i/2)}, d.prev
	}
	j := i
	for j+8 <= len(p) && binary.LittleEndian.Uint64(p[j:]) == 0 {
		j += 8
	}
	for j < len(p) && sample(p, j) == 0 {
		j += 2
	}
	d.run += int64((j - i) / 2)
	d.prev = 0
	if j < len(p) {
		d.end(sample(p, j))
	}
	return j
}

// last ends a span that was looked at but for a few values: zeros at
// its end may begin a run.
func (d *dropout) last(p []byte, at place) {
	if d.run > 0 || len(p) == 0 {
		return
	}
	j := len(p)
	for j > 0 && sample(p, j-2) == 0 {
		j -= 2
	}
	if j < len(p) {
		d.zerosTo(p, j, at)
		return
	}
	d.prev = sample(p, len(p)-2)
}

// finding is measured in holes.
func (d *dropout) finding() Finding {
	const name = "dropout"
	if d.holes.n == 0 {
		return passed(name, 0, 0)
	}
	return failed(name, d.holes.at, float64(d.holes.n), 0, "%d holes of exact zeros with sound on both sides, %d samples in all, the longest %d", d.holes.n, d.zeros, d.longest)
}
