// Package voice is the sound that the fake stages speak: what a talker's codec
// frames say and which samples code2wav makes of them. Everything is a function of
// a seed and a frame number, so that a test can plan what must come out, and no two
// stretches are alike. It opens nothing and keeps no state.
package voice

import (
	"encoding/binary"
	"fmt"
	"math"
)

const (
	// Rate is the sample rate in Hz; there is one channel.
	Rate = 24000
	// FrameSamples is what one codec frame lasts: 12.5 frames a second.
	FrameSamples = 1920
	// Codebooks is the number of codes a frame.
	Codebooks = 16
	// FirstShort is by how many samples the first chunk of an answer is short, as
	// with Qwen3-Omni.
	FirstShort = 555

	codeBits  = 11 // a code is below 2048
	codeMask  = 1<<codeBits - 1
	seedCodes = 6 // codes 2 to 7
	maxFrames = 1 << (2 * codeBits)
)

// Codes returns the codes of a frame: its number, the seed, and a sum over both.
func Codes(seed uint64, frame int) [Codebooks]int64 {
	var c [Codebooks]int64
	c[0], c[1] = int64(frame&codeMask), int64(frame>>codeBits&codeMask)
	for i := range seedCodes {
		c[2+i] = int64(seed >> (codeBits * i) & codeMask)
	}
	h := mix(seed ^ uint64(frame)<<32)
	for i := 2 + seedCodes; i < Codebooks; i++ {
		c[i] = int64(h & codeMask)
		h = mix(h)
	}
	return c
}

// Read is the reverse of Codes; codes that are none of its making are an error.
func Read(codes []int64) (seed uint64, frame int, err error) {
	if len(codes) != Codebooks {
		return 0, 0, fmt.Errorf("a frame of %d codes, want %d", len(codes), Codebooks)
	}
	for i, c := range codes {
		if c < 0 || c > codeMask {
			return 0, 0, fmt.Errorf("code %d is %d, outside 0 to %d", i, c, codeMask)
		}
	}
	frame = int(codes[0] | codes[1]<<codeBits)
	for i := range seedCodes {
		seed |= uint64(codes[2+i]) << (codeBits * i)
	}
	if [Codebooks]int64(codes) != Codes(seed, frame) {
		return 0, 0, fmt.Errorf("the codes of frame %d do not agree with each other", frame)
	}
	return seed, frame, nil
}

// CheckFrames says what is wrong with the length of an answer.
func CheckFrames(n int) error {
	if n < 1 || n > maxFrames {
		return fmt.Errorf("%d codec frames, want 1 to %d", n, maxFrames)
	}
	return nil
}

// Decode turns frames that follow one another into samples in bfloat16, little
// endian, as a vocoder hands them out; frame 0 is FirstShort samples short.
func Decode(codes []int64) ([]byte, error) {
	if len(codes)%Codebooks != 0 {
		return nil, fmt.Errorf("%d codes are no whole frames", len(codes))
	}
	n := len(codes) / Codebooks
	if n == 0 {
		return nil, nil
	}
	seed, first, err := Read(codes[:Codebooks])
	if err != nil {
		return nil, err
	}
	for i := 1; i < n; i++ {
		s, f, err := Read(codes[i*Codebooks:][:Codebooks])
		if err != nil {
			return nil, err
		}
		if s != seed || f != first+i {
			return nil, fmt.Errorf("frame %d of seed %d where frame %d of seed %d is due", f, s, first+i, seed)
		}
	}
	return bfloats(seed, first, n), nil
}

func bfloats(seed uint64, first, n int) []byte {
	from, to := first*FrameSamples, (first+n)*FrameSamples
	if first == 0 {
		from = FirstShort
	}
	out := make([]byte, 0, 2*(to-from))
	say := speaker(seed)
	for i := from; i < to; i++ {
		out = binary.LittleEndian.AppendUint16(out, toBF16(say(i)))
	}
	return out
}

// PCM turns samples in bfloat16 into s16le; a last odd byte is left away.
func PCM(bf []byte) []byte {
	out := make([]byte, 0, len(bf))
	for ; len(bf) >= 2; bf = bf[2:] {
		f := math.Float32frombits(uint32(binary.LittleEndian.Uint16(bf)) << 16)
		v := math.RoundToEven(float64(f) * 32768)
		out = binary.LittleEndian.AppendUint16(out, uint16(int16(max(-32768, min(32767, v)))))
	}
	return out
}

// Samples is how many samples so many frames of an answer have.
func Samples(frames int) int { return max(0, frames*FrameSamples-FirstShort) }

// Planned is the s16le samples that an answer of so many frames has.
func Planned(seed uint64, frames int) []byte { return PCM(bfloats(seed, 0, frames)) }

// toBF16 rounds to nearest, ties to even, as hardware does.
func toBF16(v float64) uint16 {
	b := math.Float32bits(float32(v / 32768))
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// block is how many samples lie between two exact values of envelope and pitch.
const block = 32

// speaker returns the sample function of a voice: harmonics under a syllable
// envelope, its pitch never at rest, with a breath of noise. Any sample can be asked
// for, so chunks join without a seam.
func speaker(seed uint64) func(i int) float64 {
	h := mix(seed)
	base := (95 + float64(h%70)) / Rate           // turns a sample
	rate := math.Pi * (2 + float64(h>>8%100)/100) // half syllables
	sway := 2 * math.Pi * (0.7 + float64(h>>16%100)/200)
	drift := 2 * math.Pi * (0.11 + float64(h>>24%100)/1000)
	phase := 2 * math.Pi * float64(h>>32%1000) / 1000
	slow := func(b int) (env, turns float64) {
		t := float64(b) * block / Rate
		env = 7000 * math.Sqrt(math.Abs(math.Sin(rate*t+phase)))
		return env, 1.4*math.Sin(sway*t) + 3.3*math.Sin(drift*t+phase)
	}
	at, env, turns, env1, turns1 := -1, 0.0, 0.0, 0.0, 0.0
	return func(i int) float64 {
		if b := i / block; b != at {
			at = b
			env, turns = slow(b)
			env1, turns1 = slow(b + 1)
		}
		f := float64(i%block) / block
		noise := float64(int64(mix(seed+uint64(i))>>32%81) - 40)
		return (env+f*(env1-env))*wave(base*float64(i)+turns+f*(turns1-turns)) + noise
	}
}

const tableSize = 4096

// table is one period of the harmonic sum, one value more for the interpolation.
var table = func() (t [tableSize + 1]float64) {
	for i := range t {
		for h := 1.0; h <= 6; h++ {
			t[i] += math.Sin(2*math.Pi*h*float64(i)/tableSize) / h
		}
	}
	return t
}()

func wave(turns float64) float64 {
	at := (turns - math.Floor(turns)) * tableSize
	i := min(int(at), tableSize-1)
	return table[i] + (at-float64(i))*(table[i+1]-table[i])
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
