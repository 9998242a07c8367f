package reader

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// msg is a message of fields: number and value in turns.
func msg(fields ...any) (b []byte) {
	for i := 0; i < len(fields); i += 2 {
		n := protowire.Number(fields[i].(int))
		switch v := fields[i+1].(type) {
		case int:
			b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
		case string:
			b = protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v)
		case []byte:
			b = protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
		}
	}
	return b
}

func packets(list ...[]byte) []byte {
	var out []byte
	for _, p := range list {
		out = append(out, msg(1, p)...)
	}
	return out
}

// TestEmptyAndTorn: the reader is what traces are held to, so it must refuse.
func TestEmptyAndTorn(t *testing.T) {
	for name, text := range map[string][]byte{
		"no packet of a trace":         msg(2, []byte("x")),
		"a packet that is cut":         packets(msg(8, 5, 10, 1))[:2],
		"a length beyond the end":      {0x0a, 0xff, 0xff, 0x03, 1},
		"a field that nobody knows":    packets(msg(999, 1)),
		"a field of another type":      packets(msg(8, "text")),
		"an event of no track":         packets(msg(8, 5, 10, 1, 11, msg(9, 3, 11, 77, 23, "x"))),
		"a track without a name":       packets(msg(10, 1, 60, msg(1, 7))),
		"a slice that ends and was no": packets(msg(10, 1, 60, msg(1, 7, 2, "t")), msg(8, 5, 10, 1, 11, msg(9, 2, 11, 7))),
		"a slice that never ends":      packets(msg(10, 1, 60, msg(1, 7, 2, "t")), msg(8, 5, 10, 1, 11, msg(9, 1, 11, 7, 23, "x"))),
	} {
		if got, err := Read(bytes.NewReader(text)); err == nil {
			t.Errorf("%s: taken as %v", name, strings.TrimSpace(got.String()))
		}
	}
}
