package timeline

import (
	"math"

	"github.com/omnitap/omnitap/proxy/timeline/waveform"
	"github.com/omnitap/omnitap/proxy/wire/audio"
)

// place is a point's moment and byte: the read's stamp and the stream offset.
type place struct {
	mono, off int64
}

// audible finds the first sample frame that a person hears (contract section 2):
// the first above the threshold of a stretch that stays above it for 5 ms.
//
// The level is looked at in blocks of 1 ms, as RMS about the resting level, so
// that neither a constant offset, nor noise below the threshold with peaks
// above it, nor a click of 3 ms ends a silence. The resting level is the mean of
// the quiet so far once it has lasted 5 ms; before that it is 0, so that sound
// which starts at once is found at its first sample.
type audible struct {
	threshold float64 // of full scale, 1
	block     int     // sample frames in 1 ms
	frame     int64   // sample frames seen

	n        int        // frames of the block at hand
	sum, sq  float64    // over the block
	rest     float64    // resting level
	settled  bool       // rest was learned from 5 ms of quiet
	quiet    int        // quiet blocks in a row
	quietSum float64    // their mean levels
	loud     int        // loud blocks in a row
	run      [3]float64 // of these: frames, their sum, their squares

	cand      place // first frame above the threshold in the stretch at hand
	candFrame int64 // -1: none
	found     bool
	at        place
	atFrame   int64
}

// sustainBlocks is 5 ms of blocks of 1 ms.
const sustainBlocks = 5

func newAudible(dbfs float64, rate int) *audible {
	return &audible{threshold: math.Pow(10, dbfs/20), block: max(1, rate/1000), candFrame: -1}
}

// value adds one frame's value, -1 to 1, complete at p.
func (a *audible) value(v float64, p place) {
	if a.found {
		return
	}
	d := v - a.rest
	if a.candFrame < 0 && math.Abs(d) > a.threshold {
		a.cand, a.candFrame = p, a.frame
	}
	a.frame++
	a.n++
	a.sum += v
	a.sq += v * v
	if a.n == a.block {
		a.endBlock()
	}
}

func (a *audible) endBlock() {
	n := float64(a.n)
	mean := a.sum / n
	// mean square about the resting level; before it is known, about the mean of
	// the first block of the stretch, so that an offset alone is quiet
	ref := a.rest
	if !a.settled {
		if a.quiet+a.loud == 0 {
			ref = mean
		} else {
			ref = a.quietSum / max(1, float64(a.quiet))
		}
	}
	rms := math.Sqrt(max(0, a.sq/n-2*ref*mean+ref*ref))
	sq := a.sq
	a.n, a.sum, a.sq = 0, 0, 0
	if rms > a.threshold {
		a.louder(n, n*mean, sq)
		return
	}
	a.loud, a.run = 0, [3]float64{} // what was loud was too short to be heard
	a.quiet++
	a.quietSum += mean
	switch {
	case a.settled:
		a.candFrame = -1
	case a.quiet >= sustainBlocks:
		a.settled = true
		a.rest = a.quietSum / float64(a.quiet)
		a.candFrame = -1
	}
}

// louder adds a loud block. A stretch that is long enough and moves is sound; one
// that only stands at another level is silence there.
func (a *audible) louder(n, sum, sq float64) {
	if !a.settled { // quiet teaches a level in a row alone: a wave's flat tops do not
		a.quiet, a.quietSum = 0, 0
	}
	a.loud++
	a.run[0] += n
	a.run[1] += sum
	a.run[2] += sq
	if a.loud < sustainBlocks {
		return
	}
	mean := a.run[1] / a.run[0]
	if math.Sqrt(max(0, a.run[2]/a.run[0]-mean*mean)) <= a.threshold {
		a.settled, a.rest, a.candFrame = true, mean, -1
		a.loud, a.run = 0, [3]float64{}
		return
	}
	if a.candFrame >= 0 {
		a.found, a.at, a.atFrame = true, a.cand, a.candFrame
	}
}

// read turns sample bytes into the values of a frame's first channel and the
// loudest of the others, and adds them. It is called with whole frames.
func (a *audible) read(p []byte, f audio.Format, at func(n int) place) {
	size := f.FrameBytes()
	for i := 0; i+size <= len(p) && !a.found; i += size {
		v := sample(p[i:], f.Encoding)
		for c := 1; c < f.Channels; c++ {
			if w := sample(p[i+c*f.Encoding.SampleBytes():], f.Encoding); math.Abs(w) > math.Abs(v) {
				v = w
			}
		}
		a.value(v, at(i+size))
	}
}

// sample returns the value of the sample that p starts with, full scale 1. NaN
// and infinities, which a check names, do not spoil sums.
func sample(p []byte, e audio.Encoding) float64 {
	v := waveform.Value(p, e)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}
