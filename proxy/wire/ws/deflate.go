package ws

import (
	"compress/flate"
	"errors"
	"io"
	"sync"
)

// maxWindow is the largest window (RFC 7692 section 7.1.2), which flate always has.
const maxWindow = 32 << 10

// maxInflated bounds in bytes what one message may inflate to: with the limit
// on what is gathered it bounds the time that a message can take.
const maxInflated = 1 << 30

// maxFinal bounds the blocks of one message that say to be the last, for each
// of them starts the decompressor anew.
const maxFinal = 256

// deflateTail is what a sender left out (RFC 7692 section 7.2.2), and an empty
// last block, by which a message that ended well is told from one cut short.
var deflateTail = []byte{0, 0, 0xFF, 0xFF, 1, 0, 0, 0xFF, 0xFF}

// deflater is what is kept of a compressed direction between its messages.
type deflater struct {
	takeover bool
	broken   bool // a message was not inflated that the following ones refer to
	window   window
}

func newDeflater(p Deflate) *deflater {
	z := &deflater{takeover: !p.NoContextTakeover}
	z.window.size = maxWindow
	if p.WindowBits >= 8 && p.WindowBits < 15 {
		z.window.size = 1 << p.WindowBits
	}
	return z
}

// fault marks a message that could not be inflated.
func (z *deflater) fault() {
	if z.takeover {
		z.broken = true
		z.window.b = nil
	}
}

// window is the last size bytes of what was inflated.
type window struct {
	b    []byte
	size int
}

// add moves the window on by p, and lets it take no more memory than its size.
func (w *window) add(p []byte) {
	p = p[max(0, len(p)-w.size):]
	if over := len(w.b) + len(p) - w.size; over > 0 {
		w.b = w.b[:copy(w.b, w.b[over:])]
	}
	if need := len(w.b) + len(p); need > cap(w.b) {
		w.b = append(make([]byte, 0, min(w.size, max(need, 2*cap(w.b)))), w.b...)
	}
	w.b = append(w.b, p...)
}

// inflate reads the compressed message data into out and returns the text of
// it, which the caller drops. What was gathered is given back at once.
func (s *Scanner) inflate(out *Message, gathered *text, data []byte) text {
	var t text
	f := inflaters.Get().(*inflater)
	z := s.z
	w := &z.window
	if !z.takeover {
		w = &f.own
		w.b, w.size = w.b[:0], maxWindow
	}
	f.reset(data, w)
	out.Size = 0
	for out.Err == nil {
		var p []byte
		if p, out.Err = f.next(); len(p) == 0 {
			break
		}
		out.Size += int64(len(p))
		switch {
		case out.Size > maxInflated:
			out.Err = ErrDeflate
		case out.Op == Text:
			t.add(p, s.limit())
		default:
			s.H.Payload(p, out.End, false)
		}
	}
	f.release()
	gathered.drop()
	if out.Err != nil {
		z.fault()
		t.drop()
	} else if out.Op == Text {
		t.tell(out, bytesOf(t.buf))
	}
	return t
}

// inflater pulls the output of one message.
type inflater struct {
	r      io.ReadCloser
	src    source
	err    error   // of the decompressor, told once its output was
	window *window // the direction's, or own without context takeover
	own    window
	finals int
	out    [pieceSize]byte
}

// inflaters are shared by all directions: one that is at rest needs none.
var inflaters = sync.Pool{New: func() any {
	f := &inflater{}
	f.r = flate.NewReader(&f.src)
	return f
}}

func (f *inflater) reset(data []byte, w *window) {
	f.src = source{data: data, tail: deflateTail}
	f.err, f.finals, f.window = nil, 0, w
	if len(data) == 0 {
		f.err = io.EOF // RFC 7692 section 7.2.3.6 wants a byte here, but what is meant is clear
		f.src.tail = nil
		return
	}
	f.restart()
}

// restart begins a stream behind what was inflated so far.
func (f *inflater) restart() {
	f.err = f.r.(flate.Resetter).Reset(&f.src, f.window.b)
}

// release gives the inflater back without what it referred to.
func (f *inflater) release() {
	f.src, f.window = source{}, nil
	inflaters.Put(f)
}

// next returns the next bytes, valid until the following call; none at the end.
func (f *inflater) next() ([]byte, error) {
	n := 0
	for n == 0 {
		switch {
		case f.err == nil:
			n, f.err = f.r.Read(f.out[:])
		case !errors.Is(f.err, io.EOF):
			return nil, ErrDeflate
		case !f.src.more():
			return nil, nil
		case f.finals == maxFinal:
			return nil, ErrDeflate
		default: // RFC 7692 section 7.2.3.4: a block with BFINAL need not be the last
			f.finals++
			f.restart()
		}
	}
	f.window.add(f.out[:n])
	return f.out[:n], nil
}

// source is a message's bytes, then the tail. It hands out single bytes, so
// that flate neither buffers nor reads ahead.
type source struct{ data, tail []byte }

// more says that bytes of the message itself are left.
func (s *source) more() bool { return s.tail != nil && len(s.data) > 0 }

// ReadByte makes it a flate.Reader.
func (s *source) ReadByte() (byte, error) {
	if !s.fill() {
		return 0, io.EOF
	}
	c := s.data[0]
	s.data = s.data[1:]
	return c, nil
}

// Read is for stored blocks.
func (s *source) Read(p []byte) (int, error) {
	if !s.fill() {
		return 0, io.EOF
	}
	n := copy(p, s.data)
	s.data = s.data[n:]
	return n, nil
}

func (s *source) fill() bool {
	if len(s.data) == 0 {
		s.data, s.tail = s.tail, nil
	}
	return len(s.data) > 0
}

var _ flate.Reader = (*source)(nil)
