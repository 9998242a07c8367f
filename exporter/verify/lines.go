package verify

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/omnitap/omnitap/exporter/rundir"
)

// maxLine bounds a line: a record holds some KiB.
const maxLine = 64 << 20

// lines reads a file line by line.
type lines struct {
	name string
	f    io.Closer
	r    *bufio.Reader
	n    int   // of the line that was read last, from 1
	off  int64 // of its first byte
	size int64 // bytes read so far
	long []byte
}

func openLines(dir, name string) (*lines, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	return newLines(name, f), nil
}

func newLines(name string, f io.ReadCloser) *lines {
	return &lines{name: name, f: f, r: bufio.NewReaderSize(f, 1<<20)}
}

var (
	errLong = errors.New("too long for a line of a run")
	errGzip = errors.New("the file is compressed (gzip): a run directory holds plain lines")
)

// gzipMagic begins a gzip file (RFC 1952 section 2.3.1).
var gzipMagic = []byte{0x1f, 0x8b}

// next returns the next line without its line feed; it is valid until the next call.
// The error is io.EOF behind the last line, a *rundir.LineError for a line that
// cannot be used, and anything else for a file that cannot be read on.
func (l *lines) next() ([]byte, error) {
	l.n++
	l.off = l.size
	if l.n == 1 {
		if head, _ := l.r.Peek(len(gzipMagic)); bytes.Equal(head, gzipMagic) {
			return nil, errGzip
		}
	}
	line, err := l.read()
	switch {
	case err == nil && line != nil:
		return line, nil
	case errors.Is(err, io.EOF) && l.size == l.off:
		l.n--
		return nil, io.EOF
	case errors.Is(err, io.EOF):
		return nil, &rundir.LineError{File: l.name, Line: l.n, Offset: l.off, Unfinished: true}
	case err == nil:
		return nil, l.bad(errLong)
	}
	return nil, fmt.Errorf("reading %s: %w", l.name, err)
}

// bad is the line that was read last, with what is wrong with it.
func (l *lines) bad(err error) error {
	return &rundir.LineError{File: l.name, Line: l.n, Offset: l.off, Err: err}
}

// read returns a line without its line feed, nil for one that is too long.
func (l *lines) read() ([]byte, error) {
	part, err := l.r.ReadSlice('\n')
	l.size += int64(len(part))
	if err == nil {
		return part[:len(part)-1], nil
	}
	l.long = append(l.long[:0], part...)
	for errors.Is(err, bufio.ErrBufferFull) {
		part, err = l.r.ReadSlice('\n')
		l.size += int64(len(part))
		if l.size-l.off <= maxLine {
			l.long = append(l.long, part...)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case l.size-l.off > maxLine:
		return nil, nil
	}
	return l.long[:len(l.long)-1], nil
}

func (l *lines) close() { _ = l.f.Close() }
