package ws

import (
	"encoding/binary"
	"math/bits"
)

// A frame's header (RFC 6455 section 5.2).
const (
	finBit  = 0x80
	rsv1    = 0x40
	rsv23   = 0x30
	maskBit = 0x80

	len16 = 126 // two bytes of length follow
	len64 = 127 // eight do

	maxHead    = 14
	maxControl = 125
)

type state uint8

const (
	stHead state = iota
	stPayload
	stLost
	stClosed
)

// Scanner reads one direction. The zero value with H set reads a server's
// frames without compression.
type Scanner struct {
	// H is told what is found.
	H Handler
	// FromClient says that the direction is the client's: its frames must be
	// masked, a server's must not be (RFC 6455 section 5.1).
	FromClient bool
	// Limit bounds in bytes what is held of a message (text, or still
	// compressed); 0 means DefaultLimit.
	Limit int

	st   state
	n    uint8 // bytes of the header at hand
	head [maxHead]byte
	key  uint32 // mask of the next payload byte on, lowest byte first
	off  int64  // bytes of the stream read
	left int64  // payload bytes left of the frame at hand
	ctl  *[]byte
	msg  message
	z    *deflater // nil: compression was not negotiated
}

// Compress tells that permessage-deflate was negotiated for the direction
// (RFC 7692 section 7.1). Call it before Feed.
func (s *Scanner) Compress(p Deflate) { s.z = newDeflater(p) }

// Start sets the bytes of the stream that lie before the first frame (the HTTP
// head). Call it before Feed.
func (s *Scanner) Start(off int64) { s.off = off }

// Offset returns the number of bytes of the stream read so far, those given to
// Start and Skip included.
func (s *Scanner) Offset() int64 { return s.off }

// Idle reports whether the scanner stands between two messages.
func (s *Scanner) Idle() bool { return s.st != stLost && s.n == 0 && !s.msg.open }

// MidFrame reports whether the stream stands inside a frame.
func (s *Scanner) MidFrame() bool { return s.st != stLost && s.n > 0 }

// Lost reports whether the scanner gave up.
func (s *Scanner) Lost() bool { return s.st == stLost }

// Feed reads the next bytes of the direction. It neither changes nor keeps p.
func (s *Scanner) Feed(p []byte) {
	for len(p) > 0 && s.st < stLost {
		if s.st == stHead {
			p = s.header(p)
		} else {
			p = s.payload(p)
		}
	}
	s.off += int64(len(p))
}

// Skip stands for n bytes that were not kept: the scanner is lost at the first
// of them, for a message of which bytes are missing is none.
func (s *Scanner) Skip(n int64) {
	if n > 0 && s.st < stLost {
		s.lose(ErrGap, s.off+1)
	}
	s.off += n
}

// Close gives the buffers back. What is fed behind it is counted only. It must
// not be called by the Handler.
func (s *Scanner) Close() {
	s.release()
	if s.st != stLost {
		s.st = stClosed
	}
}

func (s *Scanner) release() {
	s.msg.drop()
	put(s.ctl)
	s.ctl, s.z = nil, nil
}

func (s *Scanner) lose(err error, off int64) {
	s.release()
	s.st = stLost
	s.H.Lost(err, off)
}

func (s *Scanner) limit() int64 {
	if s.Limit > 0 {
		return int64(s.Limit)
	}
	return DefaultLimit
}

func (s *Scanner) fin() bool  { return s.head[0]&finBit != 0 }
func (s *Scanner) op() Opcode { return Opcode(s.head[0] & 0x0F) }

// header reads bytes of a frame's header, each judged as it comes, so that a
// fault has the same offset whatever the cut, and returns the rest.
func (s *Scanner) header(p []byte) []byte {
	for i, c := range p {
		s.head[s.n] = c
		s.n++
		s.off++
		if err := s.judge(c); err != nil {
			s.lose(err, s.off)
			return p[i+1:]
		}
		if s.n > 1 && s.n == s.headLen() {
			s.begin()
			return p[i+1:]
		}
	}
	return nil
}

// headLen returns the header's length, which its second byte tells.
func (s *Scanner) headLen() uint8 {
	n := uint8(2)
	switch s.head[1] &^ maskBit {
	case len16:
		n += 2
	case len64:
		n += 8
	}
	if s.head[1]&maskBit != 0 {
		n += 4
	}
	return n
}

// judge checks the header byte c that just came.
func (s *Scanner) judge(c byte) error {
	switch {
	case s.n == 1:
		return s.first(c)
	case s.n == 2 && (c&maskBit != 0) != s.FromClient:
		return ErrMask
	case s.n == 2 && s.op().control() && c&^maskBit > maxControl:
		return ErrControl
	case s.n == 3 && s.head[1]&^maskBit == len64 && c >= 0x80:
		return ErrLength
	}
	return nil
}

// first checks a frame's first byte, and starts a message with it.
func (s *Scanner) first(c byte) error {
	op := s.op()
	data := op == Text || op == Binary
	switch {
	case c&rsv23 != 0, c&rsv1 != 0 && (s.z == nil || !data):
		return ErrReserved
	case !op.known():
		return ErrOpcode
	case op.control():
		if !s.fin() {
			return ErrControl
		}
		return nil
	case data == s.msg.open:
		return ErrContinuation
	}
	if data {
		s.start(op, c&rsv1 != 0)
	}
	return nil
}

// begin handles a complete header.
func (s *Scanner) begin() {
	n := int(s.n)
	if s.FromClient {
		n -= 4
		s.key = binary.LittleEndian.Uint32(s.head[n:])
	}
	switch s.left = int64(s.head[1] &^ maskBit); s.left {
	case len16:
		s.left = int64(binary.BigEndian.Uint16(s.head[2:]))
	case len64:
		s.left = int64(binary.BigEndian.Uint64(s.head[2:]))
	}
	s.st = stPayload
	if !s.op().control() {
		s.frame()
	}
	if s.left == 0 {
		s.payload(nothing)
	}
}

// payload takes bytes of the frame at hand and returns the rest.
func (s *Scanner) payload(p []byte) []byte {
	b := p[:min(int64(len(p)), s.left)]
	s.left -= int64(len(b))
	s.off += int64(len(b))
	if s.op().control() {
		s.control(b)
	} else {
		s.data(b)
	}
	return p[len(b):]
}

// whole says that the payload bytes at hand, the frame's last, are all of it
// that is needed as they lie: nothing was gathered before, nothing is masked.
func (s *Scanner) whole(gathered *[]byte) bool {
	return s.left == 0 && gathered == nil && !s.FromClient
}

// gather adds payload bytes to buf, unmasked.
func (s *Scanner) gather(buf *[]byte, b []byte) *[]byte {
	if len(b) == 0 {
		return buf
	}
	buf = grow(buf, len(b))
	s.plain((*buf)[len(*buf)-len(b):], b)
	return buf
}

// plain copies payload bytes of the frame at hand to dst, unmasked.
func (s *Scanner) plain(dst, b []byte) {
	if !s.FromClient {
		copy(dst, b)
		return
	}
	unmask(dst, b, s.key)
	s.key = bits.RotateLeft32(s.key, -8*(len(b)&3))
}

// control takes bytes of a control frame.
func (s *Scanner) control(b []byte) {
	if !s.whole(s.ctl) {
		s.ctl = s.gather(s.ctl, b)
		b = bytesOf(s.ctl)
	}
	if s.left > 0 {
		return
	}
	op, buf := s.op(), s.ctl
	start := s.off - int64(len(b)) - int64(s.n) + 1
	s.ctl, s.n, s.st = nil, 0, stHead
	s.H.Control(op, b, start, s.off)
	put(buf)
}

// unmask writes src to dst with the key applied, its lowest byte first
// (RFC 6455 section 5.3).
func unmask(dst, src []byte, key uint32) {
	dst = dst[:len(src)]
	k := uint64(key)<<32 | uint64(key)
	for len(src) >= 8 {
		binary.LittleEndian.PutUint64(dst, binary.LittleEndian.Uint64(src)^k)
		dst, src = dst[8:], src[8:]
	}
	for i, c := range src {
		dst[i] = c ^ byte(k)
		k >>= 8
	}
}
