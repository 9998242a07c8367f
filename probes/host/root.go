package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Root is where the files of the machine lie: "" on the machine itself, or a folder of
// the same shape (proc/…, sys/…).
type Root string

// ErrTooLong is what a file with more bytes than it may have is answered with.
var ErrTooLong = errors.New("longer than it may be")

// Path is the path of a file, whose name is given without the leading slash.
func (r Root) Path(name string) string {
	return filepath.Join("/", string(r), name)
}

// Real says whether these are the machine's own files.
func (r Root) Real() bool { return r == "" || r == "/" }

// Read returns a file. One with more than limit bytes is ErrTooLong: half a file would
// look like a whole one.
func (r Root) Read(name string, limit int) ([]byte, error) {
	return r.Append(nil, name, limit)
}

// Append appends a file to b, as Read, so that a buffer can be used again.
func (r Root) Append(b []byte, name string, limit int) ([]byte, error) {
	fd, err := open(r.Path(name))
	if err != nil {
		return b, &fs.PathError{Op: "open", Path: "/" + name, Err: err}
	}
	defer func() { _ = syscall.Close(fd) }()
	start := len(b)
	for {
		if len(b) == cap(b) {
			b = slices.Grow(b, max(4096, min(len(b), 1<<20)))
		}
		n, err := read(fd, b[len(b):cap(b)])
		switch {
		case err != nil:
			return b[:start], &fs.PathError{Op: "read", Path: "/" + name, Err: err}
		case n == 0:
			return b, nil
		case len(b)+n-start > limit:
			return b[:start], fmt.Errorf("/%s: %w: %d bytes", name, ErrTooLong, limit)
		}
		b = b[:len(b)+n]
	}
}

// Text returns a short file without the white space around it.
func (r Root) Text(name string) (string, error) {
	b, err := r.Read(name, 64<<10)
	return strings.TrimSpace(string(b)), err
}

// open opens without the runtime's poller, which costs three more system calls a file.
// A FIFO in the place of a file does not hold it.
func open(path string) (int, error) {
	for {
		fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
		if !errors.Is(err, syscall.EINTR) {
			return fd, err
		}
	}
}

func read(fd int, b []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, b)
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// Reason says in words why something could not be read, and what would help.
func Reason(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return err.Error() + "; CAP_SYS_PTRACE (or root) grants it"
	case errors.Is(err, syscall.ESRCH):
		return err.Error() + ": the process ended"
	default:
		return err.Error()
	}
}
