package twin

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/omnitap/omnitap/proxy/wire/audio"
)

// speech makes n values that behave like speech: a harmonic voice with a pitch that
// wanders, noise, syllables and pauses with a quiet room in them.
func speech(rnd *rand.Rand, n, rate int) []int16 {
	out := make([]int16, n)
	phase, pitch, level, target, left := 0.0, 120.0, 0.0, 0.0, 0
	var low float64
	for i := range out {
		if left == 0 {
			left = rate/20 + rnd.IntN(rate/5)
			target = 0.05 + 0.25*rnd.Float64()
			if rnd.IntN(4) == 0 {
				target = 0.002
			}
		}
		left--
		pitch += (rnd.Float64() - 0.5) * 0.2
		pitch = max(80, min(pitch, 250))
		level += (target - level) * 50 / float64(rate)
		phase += pitch / float64(rate)
		v := 0.0
		for k := 1; k <= 8; k++ {
			v += math.Sin(2*math.Pi*phase*float64(k)) / float64(k)
		}
		low += (rnd.NormFloat64() - low) * 0.3
		out[i] = int16(32767 * max(-1, min(level*(0.4*v+0.3*low), 1)))
	}
	return out
}

func s16(x []int16, rate int) Take {
	var p []byte
	for _, v := range x {
		p = binary.LittleEndian.AppendUint16(p, uint16(v))
	}
	return Take{Format: audio.Format{Encoding: audio.S16LE, Rate: rate, Channels: 1}, Rate: rate, Samples: p}
}

func seeded(n uint64) *rand.Rand { return rand.New(rand.NewPCG(n, 7)) }
