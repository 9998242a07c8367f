package ws

import (
	"crypto/sha256"
	"hash"
	"unicode/utf8"

	"github.com/segmentio/asm/ascii"
)

// pieceSize bounds in bytes what is unmasked or inflated at a time.
const pieceSize = 32 << 10

// mode is what becomes of a message's payload as it comes.
type mode uint8

const (
	pass  mode = iota // binary: handed on
	hold              // text, compressed: gathered until it is whole
	count             // text over the limit: hashed
	leave             // compressed and not to be inflated: passed over
)

// message is the data message at hand.
type message struct {
	text             // what is gathered
	start, wire, got int64
	frames           int
	op               Opcode
	mode             mode
	open             bool // its last frame is still to end
	compressed       bool
}

// text gathers bytes, and hashes them once they are too many.
type text struct {
	buf *[]byte
	sum hash.Hash // set: buf is given up
}

// cut goes over from gathering to hashing.
func (t *text) cut() {
	t.sum = sha256.New()
	t.sum.Write(bytesOf(t.buf))
	put(t.buf)
	t.buf = nil
}

// add takes bytes that are already plain.
func (t *text) add(p []byte, limit int64) {
	if t.sum == nil && int64(len(bytesOf(t.buf))+len(p)) > limit {
		t.cut()
	}
	if t.sum != nil {
		t.sum.Write(p)
		return
	}
	t.buf = grow(t.buf, len(p))
	copy((*t.buf)[len(*t.buf)-len(p):], p)
}

// tell writes what became of a text whose bytes are data, unless they were cut.
func (t *text) tell(m *Message, data []byte) {
	if t.sum != nil {
		m.Truncated = true
		copy(m.Sum[:], t.sum.Sum(nil)) // not into m: it would move to the heap
		return
	}
	m.Data = data
	if !ascii.ValidPrint(data) && !utf8.Valid(data) { // nearly all text is JSON in plain ASCII
		m.Err = ErrUTF8
	}
}

func (t *text) drop() {
	put(t.buf)
	*t = text{}
}

// start opens a message at the byte that was just read.
func (s *Scanner) start(op Opcode, compressed bool) {
	s.msg = message{op: op, start: s.off, open: true, compressed: compressed}
	switch {
	case compressed && s.z.broken:
		s.msg.mode = leave
	case compressed || op == Text:
		s.msg.mode = hold
	}
	s.H.MessageStart(op, s.off)
}

// frame adds a frame of the message, whose header is complete. What is too
// long to be held is told from the header, so that nothing is held of it.
func (s *Scanner) frame() {
	m := &s.msg
	m.frames++
	m.wire += int64(s.n) + s.left
	if m.mode != hold || s.left <= s.limit()-m.got {
		return
	}
	if m.compressed {
		m.mode = leave
		m.drop()
		s.z.fault()
		return
	}
	m.mode = count
	m.cut()
}

// data takes payload bytes of a data frame.
func (s *Scanner) data(b []byte) {
	m := &s.msg
	m.got += int64(len(b))
	switch m.mode {
	case hold:
		if !s.fin() || !s.whole(m.buf) {
			m.buf = s.gather(m.buf, b)
			b = bytesOf(m.buf)
		}
	case pass, count:
		s.pieces(b)
	case leave:
	}
	if s.left > 0 {
		return
	}
	fin := s.fin()
	s.n, s.st = 0, stHead
	if fin {
		s.finish(b)
	}
}

// pieces hands on, or hashes, payload bytes of which the last was just read.
func (s *Scanner) pieces(b []byte) {
	if len(b) == 0 {
		return
	}
	off := s.off - int64(len(b)) + 1
	if !s.FromClient {
		s.piece(b, off)
		return
	}
	scratch := grow(nil, min(len(b), pieceSize))
	for len(b) > 0 {
		p := (*scratch)[:min(len(b), len(*scratch))]
		s.plain(p, b[:len(p)])
		s.piece(p, off)
		b, off = b[len(p):], off+int64(len(p))
	}
	put(scratch)
}

func (s *Scanner) piece(p []byte, off int64) {
	if s.msg.mode == count {
		s.msg.sum.Write(p)
		return
	}
	s.H.Payload(p, off, true)
}

// finish ends the message; data is what was held of it.
func (s *Scanner) finish(data []byte) {
	m := s.msg
	s.msg = message{}
	out := Message{
		Op: m.op, Size: m.got, Wire: m.wire, Start: m.start, End: s.off,
		Frames: m.frames, Compressed: m.compressed,
	}
	switch {
	case m.mode == leave:
		out.Size, out.Err = 0, ErrDeflate
		out.Truncated = m.got > s.limit()
	case m.compressed:
		m.text = s.inflate(&out, &m.text, data)
	case m.op == Text:
		m.tell(&out, data)
	}
	s.H.Message(out)
	m.drop()
}
