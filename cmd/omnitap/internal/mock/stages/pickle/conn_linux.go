package pickle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

const (
	// oneWrite is up to which size a Connection puts length and item in one write.
	oneWrite = 16384
	maxItem  = 64 << 20
)

// Write writes an item to a pipe with the calls of a multiprocessing.Connection.
func Write(fd int, item []byte) error {
	if len(item) > maxItem {
		return fmt.Errorf("an item of %d bytes, more than %d", len(item), maxItem)
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(len(item)))
	if len(item) > oneWrite {
		if err := writeAll(fd, head); err != nil {
			return err
		}
		return writeAll(fd, item)
	}
	return writeAll(fd, append(head, item...))
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		b = b[max(n, 0):]
	}
	return nil
}

// Read reads an item from a pipe; io.EOF when nobody can write any more.
func Read(fd int) ([]byte, error) {
	var head [4]byte
	if err := readAll(fd, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxItem {
		return nil, fmt.Errorf("an item of %d bytes, more than %d", n, maxItem)
	}
	b := make([]byte, n)
	if err := readAll(fd, b); err != nil {
		return nil, fmt.Errorf("an item of %d bytes: %w", n, err)
	}
	return b, nil
}

func readAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		}
		b = b[n:]
	}
	return nil
}
