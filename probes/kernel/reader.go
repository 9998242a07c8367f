//go:build linux && amd64

package kernel

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reader reads a ring buffer by polling. It never waits: not for an event, and not for
// a program that was preempted while it fills one in (a reader that spins there takes
// the very CPU that the program needs).
//
// The form is kernel/bpf/ringbuf.c's: a page with the consumer's position, a page with
// the producer's, then the data, mapped twice in a row so that no record is torn.
type reader struct {
	cons, prod []byte
	data       []byte
	mask       uint64
}

// The head of a record: its length with two flags, and a word for the kernel.
const (
	recordHead    = 8
	recordBusy    = 1 << 31
	recordDiscard = 1 << 30
)

func newReader(fd, size int) (*reader, error) {
	page := os.Getpagesize()
	cons, err := unix.Mmap(fd, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping a ring: %w", err)
	}
	prod, err := unix.Mmap(fd, int64(page), page+2*size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mapping a ring: %w", err), unix.Munmap(cons))
	}
	return &reader{cons: cons, prod: prod, data: prod[page:], mask: uint64(size - 1)}, nil
}

func position(page []byte) *uint64 { return (*uint64)(unsafe.Pointer(&page[0])) }

// drain hands over the records that lie in the ring now, each valid during the call,
// and says whether these were all: false where one is not filled in yet.
func (r *reader) drain(use func(record []byte)) (all bool) {
	end := atomic.LoadUint64(position(r.prod))
	at := atomic.LoadUint64(position(r.cons))
	for at < end {
		head := r.data[at&r.mask:]
		n := atomic.LoadUint32((*uint32)(unsafe.Pointer(&head[0])))
		if n&recordBusy != 0 {
			return false
		}
		size := n &^ (recordBusy | recordDiscard)
		if n&recordDiscard == 0 {
			use(head[recordHead : recordHead+size : recordHead+size])
		}
		at += (recordHead + uint64(size) + 7) &^ 7
		atomic.StoreUint64(position(r.cons), at)
	}
	return true
}

func (r *reader) close() error {
	err := errors.Join(unix.Munmap(r.prod), unix.Munmap(r.cons))
	r.cons, r.prod, r.data = nil, nil, nil
	return err
}
