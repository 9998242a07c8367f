package control

import (
	"encoding/binary"
	"fmt"
	"math"
)

// pack writes msgpack, for tests.

type pair struct {
	key   string
	value any
}

type (
	dict []pair
	list []any
)

func pack(v any) []byte { return appendValue(nil, v) }

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, 0xc0)
	case bool:
		if v {
			return append(b, 0xc3)
		}
		return append(b, 0xc2)
	case int:
		if v >= 0 && v < 128 {
			return append(b, byte(v))
		}
		return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
	case uint64:
		return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
	case float64:
		return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(v))
	case string:
		if len(v) < 32 {
			return append(append(b, 0xa0|byte(len(v))), v...)
		}
		return append(binary.BigEndian.AppendUint16(append(b, 0xda), uint16(len(v))), v...)
	case []byte:
		return append(binary.BigEndian.AppendUint32(append(b, 0xc6), uint32(len(v))), v...)
	case list:
		if b = append(b, 0x90|byte(len(v))); len(v) > 15 {
			b = binary.BigEndian.AppendUint16(append(b[:len(b)-1], 0xdc), uint16(len(v)))
		}
		for _, e := range v {
			b = appendValue(b, e)
		}
		return b
	case dict:
		if b = append(b, 0x80|byte(len(v))); len(v) > 15 {
			b = binary.BigEndian.AppendUint16(append(b[:len(b)-1], 0xde), uint16(len(v)))
		}
		for _, p := range v {
			b = appendValue(appendValue(b, p.key), p.value)
		}
		return b
	}
	panic(fmt.Sprintf("no msgpack for %T", v))
}
