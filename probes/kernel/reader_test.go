//go:build linux && amd64

package kernel

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"
)

// ring is a ring buffer in memory, which mirrors its data as the kernel's mapping does.
type ring struct {
	*reader
	at uint64
}

func newRing(size int) *ring {
	page := os.Getpagesize()
	prod := make([]byte, page+2*size)
	return &ring{reader: &reader{cons: make([]byte, page), prod: prod, data: prod[page:], mask: uint64(size - 1)}}
}

func (r *ring) put(s string, flags uint32) {
	b := binary.NativeEndian.AppendUint32(nil, uint32(len(s))|flags)
	b = append(append(b, 0, 0, 0, 0), s...)
	for i, c := range b {
		at := (r.at + uint64(i)) & r.mask
		r.data[at], r.data[at+r.mask+1] = c, c
	}
	r.at += uint64(len(b)+7) &^ 7
	binary.NativeEndian.PutUint64(r.prod, r.at)
}

func (r *ring) read() (out string, all bool) {
	var got []string
	all = r.drain(func(b []byte) { got = append(got, string(b)) })
	return strings.Join(got, " "), all
}

func TestReader(t *testing.T) {
	r := newRing(128)
	if got, all := r.read(); got != "" || !all {
		t.Errorf("an empty ring: %q %t", got, all)
	}
	for i := range 20 { // around the end, every size
		a, b := fmt.Sprint("a", i), strings.Repeat("b", i)
		r.put(a, 0)
		r.put("discarded", recordDiscard)
		r.put(b, 0)
		if got, all := r.read(); got != a+" "+b || !all {
			t.Errorf("%d: %q %t", i, got, all)
		}
	}
}

// TestReaderDoesNotWait: a record that is not filled in holds back what is behind it,
// and the reader goes away until it is.
func TestReaderDoesNotWait(t *testing.T) {
	r := newRing(256)
	r.put("first", 0)
	busy := r.at & r.mask
	r.put("second", recordBusy)
	r.put("third", 0)
	if got, all := r.read(); got != "first" || all {
		t.Errorf("%q %t", got, all)
	}
	if got, all := r.read(); got != "" || all {
		t.Errorf("%q %t", got, all)
	}
	binary.NativeEndian.PutUint32(r.data[busy:], uint32(len("second")))
	if got, all := r.read(); got != "second third" || !all {
		t.Errorf("%q %t", got, all)
	}
}
