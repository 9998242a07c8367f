package ws_test

import (
	"strings"
	"testing"

	"github.com/omnitap/omnitap/proxy/wire/ws"
)

// FuzzScanner: any cut of any bytes tells the same, offsets included, and
// neither panics nor changes what was fed.
func FuzzScanner(f *testing.F) {
	for _, v := range vectors {
		f.Add([]byte(v.in), v.setup.client, uint8(0), uint16(v.setup.limit), uint64(1))
	}
	for _, v := range deflateVectors {
		bits := uint8(15)
		if v.setup.deflate != nil {
			bits |= 0x80
		}
		f.Add([]byte(v.in), false, bits, uint16(v.setup.limit), uint64(2))
	}
	f.Fuzz(func(t *testing.T, in []byte, client bool, bits uint8, limit uint16, seed uint64) {
		c := setup{client: client, limit: int(limit)}
		if bits != 0 {
			c.deflate = &ws.Deflate{NoContextTakeover: bits&0x80 != 0, WindowBits: int(bits & 0x7F)}
		}
		before := string(in)
		whole := strings.Join(scan(in, c, atOnce), "\n")
		for _, cut := range []func(int) int{single, random(seed)} {
			if got := strings.Join(scan(in, c, cut), "\n"); got != whole {
				t.Fatalf("cut:\n%s\nat once:\n%s", got, whole)
			}
		}
		if string(in) != before {
			t.Fatal("the bytes were changed")
		}
	})
}
