// Package http1 reads one direction of an HTTP/1 connection as it passes
// (RFC 9112): heads, informational answers, bodies by length, by chunks or to
// the close, chunk borders, trailers, upgrades.
//
// A Parser is fed the bytes of one direction in order, cut anywhere, and calls
// its Handler with what it found, each with the offset at which it was
// complete; any cut of the same bytes gives the same calls but for the borders
// of Body spans. Two parsers make a connection; who pairs answers with
// requests is the caller (proxy/tap), which tells the response parser what the
// request was.
//
// It keeps no clock, changes no byte, and never joins again what it lost: after
// an error it reports Lost once and ignores the rest.
package http1

import (
	"bytes"
)

// Handler is told what a Parser reads. Offsets count bytes of the direction's
// stream from 1: the byte at which the thing was complete.
type Handler interface {
	// MessageStart marks the first byte of a message.
	MessageStart(off int64)
	// Head brings a complete head, its last byte at end. The handler answers
	// with what it knows of the body; the zero Body follows the head alone.
	Head(h *Head, end int64) Expect
	// Body brings payload bytes; the first of them is byte off of the stream.
	// The span is valid during the call only.
	Body(p []byte, off int64)
	// ChunkStart brings the size of the HTTP chunk that follows.
	ChunkStart(size int64)
	// ChunkEnd marks the last payload byte of an HTTP chunk.
	ChunkEnd(off int64)
	// MessageEnd marks the last byte of a message, framing included.
	MessageEnd(off int64)
	// Tunnel brings bytes behind an upgrade or a CONNECT.
	Tunnel(p []byte, off int64)
	// Lost says that the parser cannot follow from the byte after off.
	Lost(err error, off int64)
}

// Expect tells a Parser what only its owner knows about the message behind a head.
type Expect uint8

// What follows a head.
const (
	// ByHead: the head's own fields say (the default).
	ByHead Expect = iota
	// NoBody: none, whatever the fields say (an answer to HEAD).
	NoBody
	// Upgraded: the connection is a tunnel from here (101, or 2xx to CONNECT).
	Upgraded
	// Waiting: as ByHead, but an upgrade was asked for: after the request the
	// parser holds what follows until Resume or Upgrade is called.
	Waiting
)

type state uint8

const (
	stStart state = iota
	stHead
	stLength
	stChunkSize
	stChunkData
	stChunkCRLF
	stTrailer
	stToClose
	stTunnel
	stHeld
	stLost
)

// DefaultMaxHead bounds a head in bytes.
const DefaultMaxHead = 64 << 10

// maxHeld bounds what is kept behind a request that asks for an upgrade until
// the answer decides.
const maxHeld = 1 << 20

// Parser reads one direction. The zero value with H set reads requests.
type Parser struct {
	H Handler
	// Response says which direction this is.
	Response bool
	// MaxHead bounds a head in bytes; 0 means DefaultMaxHead.
	MaxHead int

	st      state
	buf     []byte // partial head, chunk line or trailer
	left    int64  // payload bytes left of the body or chunk
	off     int64  // bytes of the stream consumed
	held    []byte
	waiting bool
}

// Offset returns the number of bytes fed so far.
func (p *Parser) Offset() int64 { return p.off }

// Idle reports whether the parser stands between two messages.
func (p *Parser) Idle() bool { return p.st == stStart }

// Lost reports whether the parser gave up.
func (p *Parser) Lost() bool { return p.st == stLost }

// BodyToClose reports whether the body at hand ends with the connection.
func (p *Parser) BodyToClose() bool { return p.st == stToClose }

// Feed reads the next bytes of the direction.
func (p *Parser) Feed(b []byte) {
	for len(b) > 0 {
		var n int
		switch p.st {
		case stStart:
			n = p.start(b)
		case stHead, stTrailer:
			n = p.lines(b)
		case stLength, stChunkData, stToClose:
			n = p.payload(b)
		case stChunkSize, stChunkCRLF:
			n = p.chunkLine(b)
		case stTunnel:
			p.H.Tunnel(b, p.off+1)
			n = len(b)
		case stHeld:
			n = p.hold(b)
		case stLost:
			n = len(b)
		}
		p.off += int64(n)
		b = b[n:]
	}
}

// Skip stands for n bytes that were not kept. Payload of known extent can be
// passed over; anything else loses the thread. It reports whether it could.
func (p *Parser) Skip(n int64) bool {
	switch {
	case p.st == stToClose || p.st == stTunnel || p.st == stLost:
	case (p.st == stLength || p.st == stChunkData) && n < p.left:
		p.left -= n
	case p.st == stLength && n == p.left:
		p.left = 0
		p.off += n
		p.doneAt(p.off)
		return true
	default:
		p.off += n
		p.lose(ErrGap)
		return false
	}
	p.off += n
	return true
}

func (p *Parser) start(b []byte) int {
	if !p.Response && (b[0] == '\r' || b[0] == '\n') {
		return 1 // RFC 9112 section 2.2: empty lines ahead of a request are ignored
	}
	p.H.MessageStart(p.off + 1)
	p.st = stHead
	if !p.Response && !tokenByte(b[0]) {
		if b[0] == 0x16 {
			p.lose(ErrTLS)
		} else {
			p.lose(ErrNotHTTP)
		}
	}
	return 0
}

// lines gathers a head or trailer up to its blank line. The first line of a
// head is judged as soon as it is whole, so that other protocols are told early.
func (p *Parser) lines(b []byte) int {
	limit := p.MaxHead
	if limit == 0 {
		limit = DefaultMaxHead
	}
	if p.st == stHead && len(p.buf) == 0 {
		if n := headEnd(b); n > 0 && n <= limit { // the usual case: all in one read, no copy
			if !p.firstLine(b, p.off) {
				return len(b)
			}
			p.head(b[:n], p.off+int64(n))
			return n
		}
	}
	for i, c := range b {
		p.buf = append(p.buf, c)
		at := p.off + int64(i+1)
		if c == '\n' {
			if p.lineEnd(at) {
				return i + 1
			}
		} else if len(p.buf) > limit {
			p.loseAt(ErrHeadSize, at)
			return i + 1
		}
	}
	return len(b)
}

// lineEnd handles a line feed that was just gathered and reports whether the
// gathering is over.
func (p *Parser) lineEnd(at int64) bool {
	if p.st == stTrailer {
		if p.trailerDone() {
			p.doneAt(at)
			return true
		}
		return false
	}
	if bytes.IndexByte(p.buf, '\n') == len(p.buf)-1 && !p.firstLine(p.buf, at-int64(len(p.buf))) {
		return true
	}
	if headEnd(p.buf[max(0, len(p.buf)-4):]) > 0 {
		head := p.buf
		p.buf = nil
		p.head(head, at)
		return true
	}
	return false
}

// firstLine checks the line that b starts with, base bytes into the stream.
func (p *Parser) firstLine(b []byte, base int64) bool {
	line, rest := cutLine(b)
	h := &Head{}
	var err error
	if p.Response {
		err = h.statusLine(string(line))
	} else {
		err = h.requestLine(string(line))
	}
	if err != nil {
		p.loseAt(err, base+int64(len(b)-len(rest)))
	}
	return err == nil
}

// headEnd returns the length of a head that ends in b, 0 for none.
func headEnd(b []byte) int {
	for i := 0; ; {
		j := bytes.IndexByte(b[i:], '\n')
		if j < 0 {
			return 0
		}
		i += j + 1
		switch {
		case i < len(b) && b[i] == '\n':
			return i + 1
		case i+1 < len(b) && b[i] == '\r' && b[i+1] == '\n':
			return i + 2
		}
	}
}

func (p *Parser) trailerDone() bool {
	s := string(p.buf)
	return s == "\n" || s == "\r\n" || len(s) > 2 && (s[len(s)-2:] == "\n\n" || len(s) > 3 && s[len(s)-3:] == "\n\r\n")
}

// head handles a complete head whose last byte is at end.
func (p *Parser) head(b []byte, end int64) {
	h, err := parseHead(b, p.Response)
	if err != nil {
		p.loseAt(err, end)
		return
	}
	expect := p.H.Head(h, end)
	if p.st == stLost {
		return
	}
	p.waiting = expect == Waiting
	if expect == Upgraded {
		p.st = stTunnel
		return
	}
	if err := p.frame(h, expect); err != nil {
		p.loseAt(err, end)
		return
	}
	if p.st == stStart {
		p.doneAt(end)
	}
}

// frame chooses how the body is delimited (RFC 9112 section 6.3).
func (p *Parser) frame(h *Head, expect Expect) error {
	n, err := h.contentLength()
	if err != nil {
		return err
	}
	_, te := h.Get("Transfer-Encoding")
	if te && n >= 0 {
		return ErrAmbiguous
	}
	bodiless := expect == NoBody || p.Response && (h.Status < 200 || h.Status == 204 || h.Status == 304)
	switch {
	case bodiless:
		p.st = stStart
	case te && h.chunkedLast():
		p.st = stChunkSize
	case te && !p.Response:
		return ErrAmbiguous
	case n > 0:
		p.st, p.left = stLength, n
	case n == 0 || !p.Response:
		p.st = stStart
	default:
		p.st = stToClose
	}
	return nil
}

func (p *Parser) payload(b []byte) int {
	n := len(b)
	if p.st != stToClose && int64(n) > p.left {
		n = int(p.left)
	}
	p.H.Body(b[:n], p.off+1)
	if p.st == stToClose {
		return n
	}
	p.left -= int64(n)
	if p.left > 0 {
		return n
	}
	if p.st == stChunkData {
		p.H.ChunkEnd(p.off + int64(n))
		p.st = stChunkCRLF
		return n
	}
	p.doneAt(p.off + int64(n))
	return n
}

// maxChunkLine bounds a chunk-size line with its extensions.
const maxChunkLine = 4096

// chunkLine reads a chunk-size line or the line end behind a chunk's data, byte
// by byte, so that garbage is told at its first byte whatever the cut.
func (p *Parser) chunkLine(b []byte) int {
	for i, c := range b {
		at := p.off + int64(i+1)
		if c != '\n' {
			p.buf = append(p.buf, c)
			bad := len(p.buf) > maxChunkLine
			if p.st == stChunkCRLF {
				bad = bad || len(p.buf) > 1 || c != '\r'
			} else {
				bad = bad || len(p.buf) == 1 && !isHex(c)
			}
			if bad {
				p.loseAt(ErrChunk, at)
				return i + 1
			}
			continue
		}
		p.chunkLineEnd(at)
		return i + 1
	}
	return len(b)
}

func (p *Parser) chunkLineEnd(at int64) {
	line := bytes.TrimSuffix(p.buf, []byte{'\r'})
	p.buf = p.buf[:0]
	if p.st == stChunkCRLF {
		p.st = stChunkSize
		return
	}
	size, ok := chunkSize(line)
	switch {
	case !ok:
		p.loseAt(ErrChunk, at)
	case size == 0:
		p.st = stTrailer
	default:
		p.H.ChunkStart(size)
		p.st, p.left = stChunkData, size
	}
}

// chunkSize reads the hexadecimal size ahead of any extension.
func chunkSize(line []byte) (int64, bool) {
	var n int64
	digits := 0
	for _, c := range line {
		switch {
		case '0' <= c && c <= '9':
			n = n<<4 | int64(c-'0')
		case 'a' <= c && c <= 'f':
			n = n<<4 | int64(c-'a'+10)
		case 'A' <= c && c <= 'F':
			n = n<<4 | int64(c-'A'+10)
		case c == ';' || c == ' ' || c == '\t':
			return n, digits > 0
		default:
			return 0, false
		}
		if digits++; digits > 15 {
			return 0, false
		}
	}
	return n, digits > 0
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// Close tells the parser that the direction ended, and reports whether it
// ended between messages or ended a body that runs to the close.
func (p *Parser) Close() bool {
	switch p.st {
	case stToClose:
		p.doneAt(p.off)
		return true
	case stStart, stTunnel:
		return true
	default:
		return false
	}
}

func (p *Parser) doneAt(off int64) {
	p.buf = nil
	p.st = stStart
	if p.waiting {
		p.st, p.waiting = stHeld, false
	}
	p.H.MessageEnd(off)
}

func (p *Parser) lose(err error) { p.loseAt(err, p.off) }

func (p *Parser) loseAt(err error, off int64) {
	p.buf, p.held = nil, nil
	p.st = stLost
	p.H.Lost(err, off)
}
