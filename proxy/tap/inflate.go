package tap

import (
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"iter"
)

// inflater undoes a content encoding of a copy, as the bytes come: the standard
// readers pull, so they run as a coroutine that yields when it has read all
// that is there.
type inflater struct {
	in   []byte
	out  func([]byte)
	next func() (struct{}, bool)
	stop func()
	err  error
	done bool // the encoded stream came to its end
}

// newInflater returns nil for an encoding that is not known.
func newInflater(encoding string, out func([]byte)) *inflater {
	i := &inflater{out: out}
	var open func(io.Reader) (io.Reader, error)
	switch encoding {
	case "gzip", "x-gzip":
		open = func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }
	case "deflate":
		open = openDeflate
	default:
		return nil
	}
	i.next, i.stop = iter.Pull(func(yield func(struct{}) bool) {
		src := &pulled{i: i, yield: yield}
		r, err := open(src)
		buf := make([]byte, 32<<10)
		for err == nil {
			var n int
			n, err = r.Read(buf)
			if n > 0 {
				i.out(buf[:n])
			}
		}
		i.done = errors.Is(err, io.EOF)
		if !i.done {
			i.err = err
		}
	})
	return i
}

// openDeflate reads zlib, as RFC 9110 section 8.4.1.2 has it, or the bare
// deflate that some senders mean.
func openDeflate(r io.Reader) (io.Reader, error) {
	src := r.(*pulled)
	first, err := src.ReadByte()
	if err != nil {
		return nil, fmt.Errorf("reading deflate: %w", err)
	}
	src.back = append(src.back, first)
	if first&0x0F == 8 && first>>4 <= 7 {
		return zlib.NewReader(src)
	}
	return flate.NewReader(src), nil
}

// feed inflates the next bytes. After an error, or behind the end, they are ignored.
func (i *inflater) feed(p []byte) {
	i.in = p
	if i.err == nil && !i.done {
		i.next()
	}
}

// close ends the stream: an error says that it was malformed or cut.
func (i *inflater) close() error {
	i.in = nil
	i.stop()
	if i.err != nil {
		return i.err
	}
	if !i.done {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// pulled is the coroutine's input.
type pulled struct {
	i     *inflater
	yield func(struct{}) bool
	back  []byte
}

// ReadByte keeps the readers from reading ahead (flate.Reader).
func (p *pulled) ReadByte() (byte, error) {
	var b [1]byte
	_, err := p.Read(b[:])
	return b[0], err
}

// Read waits for bytes by giving way to the feeder.
func (p *pulled) Read(b []byte) (int, error) {
	if len(p.back) > 0 {
		n := copy(b, p.back)
		p.back = p.back[n:]
		return n, nil
	}
	for len(p.i.in) == 0 {
		if !p.yield(struct{}{}) {
			return 0, io.EOF // inside a member the readers make it ErrUnexpectedEOF
		}
	}
	n := copy(b, p.i.in)
	p.i.in = p.i.in[n:]
	return n, nil
}
