package event

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// MaxLine is the longest line that is read; a longer one is damaged. A frame's head
// and tail make about 1.5 KiB.
const MaxLine = 1 << 20

// maxNames bounds how many names of unknown probes are kept apart.
const maxNames = 64

// LineError is a line that could not be used. It does not end the reading.
type LineError struct {
	// Line counts from 1.
	Line int
	// Last says that the file ends in it: it is unfinished rather than damaged.
	Last bool
	Err  error
}

// Error names the line and what is wrong with it.
func (e *LineError) Error() string {
	if e.Last {
		return fmt.Sprintf("line %d is unfinished: %v", e.Line, e.Err)
	}
	return fmt.Sprintf("line %d is damaged: %v", e.Line, e.Err)
}

// Unwrap is what is wrong with the line.
func (e *LineError) Unwrap() error { return e.Err }

// Reader reads the events of a raw.jsonl, plain or compressed with gzip.
type Reader struct {
	in      *bufio.Reader
	opened  bool
	line    int
	long    []byte
	unknown map[string]int64
	end     error
}

// NewReader reads from r, which stays the caller's to close. Nothing is read yet.
func NewReader(r io.Reader) *Reader {
	return &Reader{in: bufio.NewReaderSize(r, 64<<10)}
}

// Next reads the next event into e. It is false at the end (nil), for a line that
// cannot be used (*LineError: call Next again for what follows), and when the reader
// failed (any other error, which stays). An event of an unknown probe is true with
// Probe Unknown; see Unknown for the count.
func (r *Reader) Next(e *Event) (bool, error) {
	for r.end == nil {
		line, finished, err := r.read()
		if err != nil {
			if lineError, ok := errors.AsType[*LineError](err); ok {
				return false, lineError
			}
			r.end = err
			break
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		err = Parse(line, e)
		if unknown, ok := errors.AsType[*UnknownProbeError](err); ok {
			r.count(unknown.Probe)
			return true, nil
		}
		if err != nil {
			return false, &LineError{Line: r.line, Last: !finished, Err: err}
		}
		return true, nil
	}
	if errors.Is(r.end, io.EOF) {
		return false, nil
	}
	return false, r.end
}

// Unknown tells how many events each unknown probe had; the names beyond 64 are
// counted together under "".
func (r *Reader) Unknown() map[string]int64 { return r.unknown }

func (r *Reader) count(name string) {
	if r.unknown == nil {
		r.unknown = make(map[string]int64)
	}
	if _, ok := r.unknown[name]; !ok && len(r.unknown) >= maxNames {
		name = ""
	}
	r.unknown[name]++
}

// read takes one line without its end. finished is false for one that the input's
// end cut off.
func (r *Reader) read() (line []byte, finished bool, err error) {
	if err := r.open(); err != nil {
		return nil, false, err
	}
	r.long = r.long[:0]
	for {
		part, err := r.in.ReadSlice('\n')
		if err == nil {
			r.line++
			if len(r.long) == 0 {
				return part[:len(part)-1], true, nil
			}
			return r.within(append(r.long, part[:len(part)-1]...), true)
		}
		if r.long = append(r.long, part...); len(r.long) > MaxLine {
			r.line++
			return nil, false, r.tooLong(r.discard())
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		r.end = err
		if len(r.long) == 0 {
			return nil, false, err
		}
		r.line++
		return r.within(r.long, false)
	}
}

func (r *Reader) within(line []byte, finished bool) ([]byte, bool, error) {
	r.long = line
	if len(line) > MaxLine {
		return nil, finished, r.tooLong(!finished)
	}
	return line, finished, nil
}

func (r *Reader) tooLong(last bool) error {
	return &LineError{Line: r.line, Last: last, Err: fmt.Errorf("longer than %d bytes", MaxLine)}
}

// discard reads up to the next line. It says whether the input ended before.
func (r *Reader) discard() (ended bool) {
	for {
		_, err := r.in.ReadSlice('\n')
		if err == nil {
			return false
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			r.end = err
			return true
		}
	}
}

// open looks for gzip's magic number, once.
func (r *Reader) open() error {
	if r.opened {
		return nil
	}
	r.opened = true
	if magic, _ := r.in.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return nil
	}
	z, err := gzip.NewReader(r.in)
	if err != nil {
		return fmt.Errorf("reading the gzip head: %w", err)
	}
	r.in = bufio.NewReaderSize(z, 64<<10)
	return nil
}
