package ws

import "sync"

// classes are the sizes in bytes of the buffers that are pooled: a message that
// is cut should not keep a much larger buffer than it needs.
var classes = [...]int{4 << 10, 64 << 10, 1 << 20}

var pools [len(classes)]sync.Pool

// nothing is an empty payload that is not nil.
var nothing = []byte{}

// grow returns buf, which may be nil, with n more bytes of length, moved to a
// larger buffer if need be.
func grow(buf *[]byte, n int) *[]byte {
	have := bytesOf(buf)
	size := len(have) + n
	if size > cap(have) {
		next := get(max(size, min(2*cap(have), DefaultLimit)))
		*next = append((*next)[:0], have...)
		put(buf)
		buf = next
	}
	*buf = (*buf)[:size]
	return buf
}

// get returns a buffer of at least size bytes.
func get(size int) *[]byte {
	for i, class := range classes {
		if size > class {
			continue
		}
		if buf, ok := pools[i].Get().(*[]byte); ok {
			return buf
		}
		size = class
		break
	}
	b := make([]byte, 0, size)
	return &b
}

// put gives buf back, nil or not. Buffers over the largest class are left to
// the collector.
func put(buf *[]byte) {
	if buf == nil {
		return
	}
	for i, class := range classes {
		if cap(*buf) == class {
			pools[i].Put(buf) // it may be another's from here on
			return
		}
	}
}

// bytesOf returns what lies in buf, which may be nil.
func bytesOf(buf *[]byte) []byte {
	if buf == nil {
		return nothing
	}
	return *buf
}
