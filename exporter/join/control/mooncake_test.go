package control

import (
	"encoding/binary"
	"encoding/hex"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMooncakeHeader(t *testing.T) {
	// As Mooncake 0.3.13 sent it.
	b := unhex(t, "3a0010000000000040f0ffa3df7f00008100000000000000")
	size, addr, op, ok := MooncakeHeader(b)
	if !ok || size != 0x10003a || addr != 0x7fdfa3fff040 || op != 0x81 {
		t.Errorf("%d %#x %#x %v", size, addr, op, ok)
	}
	for _, op := range []byte{0x80, 0x01, 0x00} {
		b[16] = op
		if _, _, got, ok := MooncakeHeader(b); !ok || got != op {
			t.Errorf("operation %#x: %#x %v", op, got, ok)
		}
	}
	b[16] = 0x81
	for n := range b {
		if _, _, _, ok := MooncakeHeader(b[:n]); ok {
			t.Errorf("%d bytes taken for a header", n)
		}
	}
	for at, v := range map[int]byte{16: 0x82, 17: 1, 23: 1, 6: 0xff, 15: 0xff} {
		c := append([]byte(nil), b...)
		c[at] = v
		if _, _, _, ok := MooncakeHeader(c); ok {
			t.Errorf("byte %d = %#x taken for a header", at, v)
		}
	}
	binary.LittleEndian.PutUint64(b, 0)
	if _, _, _, ok := MooncakeHeader(b); ok {
		t.Error("no bytes taken for a header")
	}
	if _, _, _, ok := MooncakeHeader(make([]byte, 24)); ok {
		t.Error("zeros taken for a header")
	}
}

func TestMooncakeAck(t *testing.T) {
	// As Mooncake 0.3.13 sent it.
	if status, ok := MooncakeAck(unhex(t, "000000005654434d")); !ok || status != 0 {
		t.Errorf("%d %v", status, ok)
	}
	if status, ok := MooncakeAck(unhex(t, "050000005654434d")); !ok || status != 5 {
		t.Errorf("%d %v", status, ok)
	}
	for _, s := range []string{"", "00000000565443", "0100000000000000", "000000005654434d00"} {
		if _, ok := MooncakeAck(unhex(t, s)); ok {
			t.Errorf("%s taken for an answer", s)
		}
	}
}
