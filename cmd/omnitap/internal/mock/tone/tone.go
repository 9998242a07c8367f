// Package tone makes the test signals of the mock server and the WAV files
// that carry them. All signals are signed 16-bit, channels interleaved, and a
// function of their Spec alone: equal specs give equal samples.
//
// It does not resample, mix or play, and knows no compressed format.
package tone

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Kinds lists the signal kinds that Samples knows, the default first.
var Kinds = []string{"chirp", "ramp", "sine", "speech-like", "silence", "dither", "noise"}

const (
	amplitude  = 12000 // of chirp and sine, about -9 dBFS
	chirpStart = 220   // Hz
	chirpSlope = 97    // Hz per second, so that no two periods are alike
	chirpTop   = 3500  // Hz, where the sweep turns back
	sineHz     = 440
	noiseDB    = -20 // level of the kind noise
)

// Spec describes one signal.
type Spec struct {
	// Kind is one of Kinds; empty is chirp.
	Kind string
	// Rate in Hz and Channels; both must be positive.
	Rate, Channels int
	// Frames is the length in sample frames, silence included.
	Frames int
	// Lead and Tail are the frames at the start and the end that are silent.
	Lead, Tail int
	// LeadDB and TailDB fill the silent parts with noise of that level in
	// dBFS; 0 leaves them at zero.
	LeadDB, TailDB float64
	// DC is added to every silent frame, in steps of one sample value.
	DC int
	// Click is the frame in the leading silence where a click of 3 ms starts;
	// 0 means none.
	Click int
	// Seed feeds the noise generators.
	Seed uint64
}

// Check reports what is wrong with a kind.
func Check(kind string) error {
	if kind == "" || slices.Contains(Kinds, kind) {
		return nil
	}
	return fmt.Errorf("unknown tone %q, want one of %v", kind, Kinds)
}

// Samples returns the signal as s16le bytes, channels interleaved.
func Samples(s Spec) []byte {
	out := make([]byte, 0, 2*s.Frames*s.Channels)
	rng := rand.New(rand.NewPCG(s.Seed, 0x746f6e65))
	body := source(s, rng)
	lead, tail := hiss(s.LeadDB, rng), hiss(s.TailDB, rng)
	for i := range s.Frames {
		for ch := range s.Channels {
			v := 0
			switch {
			case i < s.Lead:
				v = lead() + s.DC + click(s, i)
			case i >= s.Frames-s.Tail:
				v = tail() + s.DC
			default:
				v = body(i, ch)
			}
			out = binary.LittleEndian.AppendUint16(out, uint16(int16(v)))
		}
	}
	return out
}

// source returns the function that gives the sample of frame i on channel ch.
func source(s Spec, rng *rand.Rand) func(i, ch int) int {
	rate := float64(s.Rate)
	switch s.Kind {
	case "ramp":
		// The value is the frame's index modulo 65536: loss and repetition
		// can be read off exactly.
		return func(i, _ int) int { return i }
	case "silence":
		return func(int, int) int { return 0 }
	case "dither":
		return func(int, int) int { return rng.IntN(3) - 1 }
	case "noise":
		n := hiss(noiseDB, rng)
		return func(int, int) int { return n() }
	case "sine":
		return func(i, ch int) int {
			return round(amplitude * math.Sin(2*math.Pi*sineHz*float64(i)/rate+float64(ch)))
		}
	case "speech-like":
		return func(i, ch int) int { return speech(float64(i)/rate, float64(ch)) }
	default:
		return func(i, ch int) int {
			return round(amplitude * math.Sin(chirpPhase(float64(i)/rate)+float64(ch)))
		}
	}
}

// chirpPhase is the phase at t seconds of a sweep that goes up and down
// between chirpStart and chirpTop for ever, without a jump.
func chirpPhase(t float64) float64 {
	const span = (chirpTop - chirpStart) / float64(chirpSlope) // seconds of one way
	full := math.Floor(t / span)
	rest := t - full*span
	phase := full * span * (chirpStart + chirpTop) / 2
	if int(full)%2 == 0 {
		phase += chirpStart*rest + chirpSlope*rest*rest/2
	} else {
		phase += chirpTop*rest - chirpSlope*rest*rest/2
	}
	return 2 * math.Pi * phase
}

// speech is a harmonic sum under a syllable envelope: it has the onsets and
// the short pauses of a voice and none of its meaning.
func speech(t, ch float64) int {
	envelope := math.Pow(math.Abs(math.Sin(math.Pi*2.3*t)), 0.7)
	pitch := 2 * math.Pi * (120*t + 3*math.Sin(2*math.Pi*0.9*t))
	v := 0.0
	for h := 1; h <= 6; h++ {
		v += math.Sin(float64(h)*pitch+ch) / float64(h)
	}
	return round(6000 * envelope * v)
}

// hiss returns a source of white noise whose standard deviation is db dBFS;
// 0 is silence.
func hiss(db float64, rng *rand.Rand) func() int {
	if db == 0 {
		return func() int { return 0 }
	}
	sigma := 32767 * math.Pow(10, db/20)
	return func() int { return round(rng.NormFloat64() * sigma) }
}

func click(s Spec, i int) int {
	if s.Click > 0 && i >= s.Click && i < s.Click+s.Rate*3/1000 {
		return amplitude
	}
	return 0
}

func round(v float64) int {
	return int(math.Round(max(-32768, min(32767, v))))
}
