package tone

import "encoding/binary"

// Law is one of the two companding laws of G.711.
type Law struct {
	encode func(int) byte
	decode func(byte) int
}

// The laws of G.711.
var (
	MuLaw = Law{encodeMu, decodeMu}
	ALaw  = Law{encodeA, decodeA}
)

// Encode compands s16le samples; expanded is what a decoder makes of the codes.
func (l Law) Encode(pcm []byte) (codes, expanded []byte) {
	for ; len(pcm) >= 2; pcm = pcm[2:] {
		c := l.encode(int(int16(binary.LittleEndian.Uint16(pcm))))
		codes = append(codes, c)
		expanded = binary.LittleEndian.AppendUint16(expanded, uint16(int16(l.decode(c))))
	}
	return codes, expanded
}

const muBias = 0x84

func encodeMu(v int) byte {
	sign := byte(0)
	if v < 0 {
		sign, v = 0x80, -v
	}
	v = min(v, 32635) + muBias
	exp := 7
	for mask := 0x4000; exp > 0 && v&mask == 0; mask >>= 1 {
		exp--
	}
	return ^(sign | byte(exp<<4) | byte(v>>(exp+3)&0xF))
}

func decodeMu(c byte) int {
	c = ^c
	v := (int(c&0xF)<<3+muBias)<<(c>>4&7) - muBias
	if c&0x80 != 0 {
		return -v
	}
	return v
}

func encodeA(v int) byte {
	sign := byte(0x80)
	if v < 0 {
		sign, v = 0, -v-1
	}
	v >>= 3
	exp := 7
	for mask := 0x800; exp > 0 && v&mask == 0; mask >>= 1 {
		exp--
	}
	low := v >> 1 & 0xF
	if exp > 0 {
		low = v >> exp & 0xF
	}
	return (sign | byte(exp<<4) | byte(low)) ^ 0x55
}

func decodeA(c byte) int {
	c ^= 0x55
	exp := int(c >> 4 & 7)
	v := int(c&0xF)<<4 + 8
	if exp > 0 {
		v = (v + 0x100) << (exp - 1)
	}
	if c&0x80 == 0 {
		return -v
	}
	return v
}
