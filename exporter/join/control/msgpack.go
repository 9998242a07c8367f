package control

import "math"

// kind is the type of a msgpack value.
type kind uint8

const (
	kindNone kind = iota
	kindNil
	kindBool
	kindInt
	kindUint
	kindFloat32
	kindFloat64
	kindStr
	kindBin
	kindExt
	kindArray
	kindMap
)

// wide are the types 0xc0 to 0xdf: the kind, and how many bytes follow that hold the
// value, the length or the count. A fixed ext has its length in data instead.
var wide = [32]struct {
	kind kind
	size uint8
	data uint8
}{
	0x00: {kind: kindNil},
	0x02: {kind: kindBool},
	0x03: {kind: kindBool, data: 1},
	0x04: {kind: kindBin, size: 1},
	0x05: {kind: kindBin, size: 2},
	0x06: {kind: kindBin, size: 4},
	0x07: {kind: kindExt, size: 1},
	0x08: {kind: kindExt, size: 2},
	0x09: {kind: kindExt, size: 4},
	0x0a: {kind: kindFloat32, size: 4},
	0x0b: {kind: kindFloat64, size: 8},
	0x0c: {kind: kindUint, size: 1},
	0x0d: {kind: kindUint, size: 2},
	0x0e: {kind: kindUint, size: 4},
	0x0f: {kind: kindUint, size: 8},
	0x10: {kind: kindInt, size: 1},
	0x11: {kind: kindInt, size: 2},
	0x12: {kind: kindInt, size: 4},
	0x13: {kind: kindInt, size: 8},
	0x14: {kind: kindExt, data: 1},
	0x15: {kind: kindExt, data: 2},
	0x16: {kind: kindExt, data: 4},
	0x17: {kind: kindExt, data: 8},
	0x18: {kind: kindExt, data: 16},
	0x19: {kind: kindStr, size: 1},
	0x1a: {kind: kindStr, size: 2},
	0x1b: {kind: kindStr, size: 4},
	0x1c: {kind: kindArray, size: 2},
	0x1d: {kind: kindArray, size: 4},
	0x1e: {kind: kindMap, size: 2},
	0x1f: {kind: kindMap, size: 4},
}

// reader walks over msgpack bytes that may end anywhere. Every read consumes one
// value whole; a read that meets another type consumes that value and says false.
// At the end of the bytes, or at one that is no msgpack, it is over: all reads after
// say false. Nothing is allocated, and a declared length costs nothing.
//
// We wrote it because libraries give back nothing of a message that was cut off.
type reader struct {
	b []byte
	i int
	// over says that the bytes ended, or were none of msgpack, inside a value.
	over bool
}

// end makes all later reads fail.
func (r *reader) end() {
	r.i, r.over = len(r.b), true
}

// next reads a value's head: its kind and its number, count or length in bytes.
// The bytes of a string, bin or ext are still to be read.
func (r *reader) next() (kind, uint64) {
	if r.i >= len(r.b) {
		r.end()
		return kindNone, 0
	}
	t := r.b[r.i]
	r.i++
	switch {
	case t < 0x80:
		return kindInt, uint64(t)
	case t < 0x90:
		return kindMap, uint64(t & 15)
	case t < 0xa0:
		return kindArray, uint64(t & 15)
	case t < 0xc0:
		return kindStr, uint64(t & 31)
	case t >= 0xe0:
		return kindInt, uint64(int64(int8(t)))
	case t == 0xc0:
		return kindNil, 0
	}
	return r.nextWide(t)
}

// nextWide is next for the types whose number follows in bytes of its own.
func (r *reader) nextWide(t byte) (kind, uint64) {
	w := wide[t-0xc0]
	if w.kind == kindNone || len(r.b)-r.i < int(w.size) {
		r.end()
		return kindNone, 0
	}
	n := uint64(w.data)
	for range w.size {
		n = n<<8 | uint64(r.b[r.i])
		r.i++
	}
	switch w.kind {
	case kindExt:
		n++ // the byte that says which ext
	case kindInt:
		shift := 64 - 8*uint(w.size)
		n = uint64(int64(n<<shift) >> shift)
	default: // n is the value
	}
	return w.kind, n
}

// bytes takes the next n bytes, which stay part of b.
func (r *reader) bytes(n uint64) ([]byte, bool) {
	if n > uint64(len(r.b)-r.i) {
		r.end()
		return nil, false
	}
	v := r.b[r.i : r.i+int(n)]
	r.i += int(n)
	return v, true
}

// rest leaves the value behind whose head was read. It goes level by level without
// recursion, so depth costs nothing; each value takes at least a byte, so it ends.
func (r *reader) rest(k kind, n uint64) {
	for left := uint64(1); ; {
		switch k {
		case kindNone:
			return
		case kindStr, kindBin, kindExt:
			r.bytes(n)
		case kindArray:
			left += n
		case kindMap:
			left += 2 * n
		default: // the head was all
		}
		left--
		if left == 0 || r.over {
			return
		}
		k, n = r.next()
	}
}

// skip leaves n values behind.
func (r *reader) skip(n int) {
	for ; n > 0 && !r.over; n-- {
		r.rest(r.next())
	}
}

// str reads a string, which stays part of b.
func (r *reader) str() ([]byte, bool) {
	k, n := r.next()
	if k != kindStr {
		r.rest(k, n)
		return nil, false
	}
	return r.bytes(n)
}

// text reads a string that can be a name or an id: not empty, at most 1024 bytes,
// without control characters.
func (r *reader) text() (string, bool) {
	b, ok := r.str()
	if !ok || !readable(b) {
		return "", false
	}
	return string(b), true
}

// readable says whether b can be a name or an id.
func readable(b []byte) bool {
	if len(b) == 0 || len(b) > 1024 {
		return false
	}
	for _, c := range b {
		if c < ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

// integer reads a whole number.
func (r *reader) integer() (int64, bool) {
	k, n := r.next()
	switch {
	case k == kindInt, k == kindUint && n <= math.MaxInt64:
		return int64(n), true
	}
	r.rest(k, n)
	return 0, false
}

// unsigned reads a whole number of at least 0.
func (r *reader) unsigned() (uint64, bool) {
	k, n := r.next()
	switch {
	case k == kindUint, k == kindInt && int64(n) >= 0:
		return n, true
	}
	r.rest(k, n)
	return 0, false
}

// number reads a number of any type.
func (r *reader) number() (float64, bool) {
	k, n := r.next()
	switch k {
	case kindFloat64:
		return math.Float64frombits(n), true
	case kindFloat32:
		return float64(math.Float32frombits(uint32(n))), true
	case kindInt:
		return float64(int64(n)), true
	case kindUint:
		return float64(n), true
	default:
		r.rest(k, n)
		return 0, false
	}
}

// boolean reads true or false.
func (r *reader) boolean() (value, ok bool) {
	k, n := r.next()
	if k != kindBool {
		r.rest(k, n)
		return false, false
	}
	return n == 1, true
}

// array reads the head of an array: how many values follow. The count is what the
// bytes claim, it may be far more than there are.
func (r *reader) array() (int, bool) {
	return r.container(kindArray)
}

// mapping reads the head of a map: how many pairs follow, as they claim.
func (r *reader) mapping() (int, bool) {
	return r.container(kindMap)
}

func (r *reader) container(want kind) (int, bool) {
	k, n := r.next()
	if k != want {
		r.rest(k, n)
		return 0, false
	}
	return int(n), true
}
