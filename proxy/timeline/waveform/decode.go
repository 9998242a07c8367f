package waveform

import (
	"encoding/binary"
	"math"

	"github.com/omnitap/omnitap/proxy/wire/audio"
)

// full is full scale: values are looked at in 16 bits, whatever the encoding.
const full = math.MaxInt16

// amplitude turns decibels of full scale into a value.
func amplitude(db float64) float64 { return full * math.Pow(10, db/20) }

// magnitude is the distance from 0.
func magnitude(v int16) int32 { return max(int32(v), -int32(v)) }

// decode writes channel c of the frames of p to x. Values that are no finite
// numbers become 0; it returns how many there are, and the first one's frame.
func decode(x []int16, p []byte, f audio.Format, c int) (bad, first int) {
	size, at := f.FrameBytes(), c*f.Encoding.SampleBytes()
	if f.Encoding == audio.S16LE {
		for i := range x {
			x[i] = int16(binary.LittleEndian.Uint16(p[at:]))
			at += size
		}
		return 0, 0
	}
	for i := range x {
		v := Value(p[at:], f.Encoding)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			v = 0
			if bad++; bad == 1 {
				first = i
			}
		}
		x[i] = int16(math.Round(max(-1, min(v, 1)) * full))
		at += size
	}
	return bad, first
}

// Value returns the value of the sample that p starts with, full scale 1; of an
// encoding that is not decoded 0.
func Value(p []byte, e audio.Encoding) float64 {
	switch e {
	case audio.S16LE:
		return float64(int16(binary.LittleEndian.Uint16(p))) / 32768
	case audio.S16BE:
		return float64(int16(binary.BigEndian.Uint16(p))) / 32768
	case audio.U8:
		return (float64(p[0]) - 128) / 128
	case audio.S24LE:
		return float64(int32(uint32(p[0])<<8|uint32(p[1])<<16|uint32(p[2])<<24)) / (1 << 31)
	case audio.S24BE:
		return float64(int32(uint32(p[2])<<8|uint32(p[1])<<16|uint32(p[0])<<24)) / (1 << 31)
	case audio.S32LE:
		return float64(int32(binary.LittleEndian.Uint32(p))) / (1 << 31)
	case audio.S32BE:
		return float64(int32(binary.BigEndian.Uint32(p))) / (1 << 31)
	case audio.F32LE:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(p)))
	case audio.F64LE:
		return math.Float64frombits(binary.LittleEndian.Uint64(p))
	case audio.ULaw:
		return ulaw(p[0])
	case audio.ALaw:
		return alaw(p[0])
	}
	return 0
}

// ulaw expands one sample (ITU-T G.711, table 2a).
func ulaw(b byte) float64 {
	b = ^b
	v := ((int(b&0x0F) << 3) + 0x84) << (b >> 4 & 7)
	v -= 0x84
	if b&0x80 != 0 {
		v = -v
	}
	return float64(v) / 32768
}

// alaw expands one sample (ITU-T G.711, table 1a).
func alaw(b byte) float64 {
	b ^= 0x55
	v := int(b&0x0F)<<4 + 8
	if e := b >> 4 & 7; e > 0 {
		v = (v + 0x100) << (e - 1)
	}
	if b&0x80 == 0 {
		v = -v
	}
	return float64(v) / 32768
}
