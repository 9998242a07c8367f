package tone

import (
	"encoding/binary"
	"testing"
)

// Companding keeps every value within its step and every code its value.
func TestG711(t *testing.T) {
	for name, law := range map[string]Law{"mu": MuLaw, "a": ALaw} {
		for v := -32768; v <= 32767; v += 7 {
			codes, out := law.Encode(binary.LittleEndian.AppendUint16(nil, uint16(int16(v))))
			got := int(int16(binary.LittleEndian.Uint16(out)))
			if d := max(got-v, v-got); len(codes) != 1 || d > max(v, -v)/16+20 {
				t.Fatalf("%s law: %d becomes %d", name, v, got)
			}
			if again, _ := law.Encode(out); again[0] != codes[0] && got != 0 { // mu-law has two zeros
				t.Fatalf("%s law: %d has code %#x, its expansion %#x", name, v, codes[0], again[0])
			}
		}
	}
	if codes, _ := MuLaw.Encode([]byte{0, 0}); codes[0] != 0xFF {
		t.Errorf("mu-law silence is %#x, want 0xff", codes[0])
	}
	if codes, _ := ALaw.Encode([]byte{0, 0}); codes[0] != 0xD5 {
		t.Errorf("a-law silence is %#x, want 0xd5", codes[0])
	}
}
