package twin

import (
	"encoding/binary"
	"math"

	"github.com/omnitap/omnitap/proxy/timeline/waveform"
	"github.com/omnitap/omnitap/proxy/wire/audio"
)

// Take is the sound of one answer. Its samples are read, never written.
type Take struct {
	// Format says what the sample bytes are; its Rate is 0 where none was declared.
	Format audio.Format
	// Rate is what seconds are reckoned with where neither take declares one, in Hz.
	Rate int
	// Samples holds the bare sample bytes, from the first frame on; a part of a
	// frame at their end is passed over.
	Samples []byte
}

// Frames returns the number of whole sample frames, 0 where the encoding is not
// known.
func (t Take) Frames() int {
	if fb := t.Format.FrameBytes(); fb > 0 {
		return len(t.Samples) / fb
	}
	return 0
}

// read writes the values of channel c to dst, full scale 1, from a frame on;
// there is silence ahead of the take and behind it.
func (t Take) read(dst []float64, from, c int) {
	n := t.Frames()
	lo := min(max(0, -from), len(dst))
	hi := max(lo, min(len(dst), n-from))
	clear(dst[:lo])
	clear(dst[hi:])
	if lo == hi {
		return
	}
	size := t.Format.FrameBytes()
	p := t.Samples[(from+lo)*size+c*t.Format.Encoding.SampleBytes():]
	if t.Format.Encoding == audio.S16LE {
		for i := range dst[lo:hi] {
			dst[lo+i] = float64(int16(binary.LittleEndian.Uint16(p[i*size:]))) / 32768
		}
		return
	}
	for i := range dst[lo:hi] {
		dst[lo+i] = bounded(waveform.Value(p[i*size:], t.Format.Encoding))
	}
}

// at returns one value of the first channel.
func (t Take) at(i int) float64 {
	var x [1]float64
	t.read(x[:], i, 0)
	return x[0]
}

// bounded makes a value that is no finite number 0 and keeps the rest within full
// scale, as the other checks on the sound do.
func bounded(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return max(-1, min(v, 1))
}
