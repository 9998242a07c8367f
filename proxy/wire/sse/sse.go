// Package sse reads server-sent events as they pass (WHATWG HTML, section
// 9.2.6): line ends LF, CRLF and CR, comments, fields without a space, data of
// several lines, a byte order mark, events cut anywhere.
//
// A Parser is fed payload bytes with the stream offset of each span and calls
// back once for each event, with the offset of the byte that ended its blank
// line. Any cut of the same bytes gives the same events. A bare CR ends a
// blank line at once, unless the line before it ended in CRLF: then the LF
// belongs to it. An event that its end of stream left without a blank line is
// no event: Pending tells.
//
// It does not reconnect, keeps no last id, and does not look into data.
package sse

import "bytes"

// DefaultMaxEvent bounds one event in bytes, line ends included.
const DefaultMaxEvent = 16 << 20

// Event is one event. Type and Data are valid during the call only.
type Event struct {
	// Type is the event field, empty where there was none.
	Type []byte
	// Data is the data lines joined by LF.
	Data []byte
	// End is the offset of the byte that ended the blank line.
	End int64
	// Size is the event's length in bytes as it lay in the payload.
	Size int64
	// Truncated says that the event was over the bound: Data is nil then.
	Truncated bool
}

// Parser reads one stream of events. The zero value with OnEvent set is ready.
type Parser struct {
	// OnEvent is called for each event that has data.
	OnEvent func(Event)
	// MaxEvent bounds an event in bytes; 0 means DefaultMaxEvent.
	MaxEvent int

	// Comments counts comment lines (keep-alives).
	Comments int64

	buf     []byte // whole lines of the event at hand, LF-ended, then a partial one
	size    int64  // payload bytes of the event so far, kept or not
	lineLen int64  // bytes of the line at hand
	over    bool   // the event at hand is over the bound: nothing is kept of it
	bom     int8   // bytes of the byte order mark seen; -1: no longer looked for
	lastCR  bool   // the byte before was the CR of a line end
	crlf    bool   // the last line with content ended in CRLF
	blank   bool   // the CR of a blank line was seen and its LF is due
	data    []byte // scratch for joining data lines
}

var byteOrderMark = [3]byte{0xEF, 0xBB, 0xBF}

// Feed reads the next payload bytes; the first of them is byte off of the stream.
func (p *Parser) Feed(b []byte, off int64) {
	for len(b) > 0 {
		n := 0
		if p.bom >= 0 {
			n = p.mark(b)
		} else if n = p.whole(b, off); n == 0 {
			n = p.step(b, off)
		}
		b, off = b[n:], off+int64(n)
	}
	if p.size == 0 {
		p.buf, p.data = nil, nil // an idle stream keeps nothing
	}
}

// Pending reports whether bytes of an event without its blank line are left.
// Call it at the end of the stream; a blank line whose CR came last counts as whole.
func (p *Parser) Pending() bool {
	if p.blank {
		return false
	}
	return p.size > 0
}

// Close ends the stream at offset off: a blank line that ended in CR is whole now.
func (p *Parser) Close(off int64) {
	if p.blank {
		p.blank, p.lastCR = false, false
		p.dispatch(off)
	}
}

// mark passes over a byte order mark at the start.
func (p *Parser) mark(b []byte) int {
	if b[0] == byteOrderMark[p.bom] {
		if p.bom++; p.bom == int8(len(byteOrderMark)) {
			p.bom = -1
		}
		return 1
	}
	for _, c := range byteOrderMark[:p.bom] { // no mark after all: its bytes are content
		p.take([]byte{c})
	}
	p.bom = -1
	return 0
}

// whole handles, without copying, an event of LF lines that lies in b entirely.
func (p *Parser) whole(b []byte, off int64) int {
	if p.size != 0 || p.lastCR {
		return 0
	}
	for i := 0; ; {
		j := bytes.IndexByte(b[i:], '\n')
		if j < 0 || i+j >= p.max() {
			return 0
		}
		if bytes.IndexByte(b[i:i+j], '\r') >= 0 {
			return 0 // other line ends: step knows them
		}
		if j == 0 {
			p.crlf = false
			p.emit(b[:i], int64(i+1), off+int64(i))
			return i + 1
		}
		i += j + 1
	}
}

// step takes one byte that ends a line, or the bytes up to it.
func (p *Parser) step(b []byte, off int64) int {
	if p.lastCR {
		p.lastCR = false
		lf := b[0] == '\n'
		if p.blank {
			p.blank = false
			if lf {
				p.size++
				p.dispatch(off)
				return 1
			}
			p.dispatch(off - 1)
		} else {
			p.crlf = lf
		}
		if lf {
			if p.size > 0 {
				p.size++
			}
			return 1
		}
	}
	i := lineEnd(b)
	if i > 0 {
		p.take(b[:i])
		return i
	}
	p.size++
	p.endLine(b[0], off)
	return 1
}

// lineEnd returns the index of the first CR or LF, or the length of b.
func lineEnd(b []byte) int {
	n := len(b)
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		n = i
	}
	if i := bytes.IndexByte(b[:n], '\r'); i >= 0 {
		n = i
	}
	return n
}

// take keeps bytes of a line, within the bound.
func (p *Parser) take(b []byte) {
	p.size += int64(len(b))
	p.lineLen += int64(len(b))
	if p.over || p.size > int64(p.max()) {
		p.over, p.buf = true, nil
		return
	}
	p.buf = append(p.buf, b...)
}

func (p *Parser) max() int {
	if p.MaxEvent > 0 {
		return p.MaxEvent
	}
	return DefaultMaxEvent
}

func (p *Parser) endLine(term byte, off int64) {
	p.lastCR = term == '\r'
	if p.lineLen == 0 {
		if p.lastCR && p.crlf {
			p.blank = true
			return
		}
		p.dispatch(off)
		return
	}
	p.lineLen = 0
	if !p.lastCR {
		p.crlf = false
	}
	if !p.over {
		p.buf = append(p.buf, '\n')
	}
}

// dispatch ends the event at hand; its blank line ended at off.
func (p *Parser) dispatch(off int64) {
	buf, size, over := p.buf, p.size, p.over
	p.buf, p.size, p.over, p.lineLen = p.buf[:0], 0, false, 0
	if over {
		p.OnEvent(Event{End: off, Size: size, Truncated: true})
		return
	}
	p.emit(buf, size, off)
}

// emit reads the lines of a whole event (LF-ended) and calls OnEvent.
func (p *Parser) emit(lines []byte, size, off int64) {
	ev := Event{End: off, Size: size}
	n := 0
	for len(lines) > 0 {
		i := bytes.IndexByte(lines, '\n')
		line := lines[:i]
		lines = lines[i+1:]
		if len(line) == 0 {
			continue
		}
		if line[0] == ':' {
			p.Comments++
			continue
		}
		name, value, _ := bytes.Cut(line, colon)
		if len(value) > 0 && value[0] == ' ' {
			value = value[1:]
		}
		switch string(name) {
		case "event":
			ev.Type = value
		case "data":
			n++
			ev.Data = p.join(ev.Data, value, n)
		}
	}
	if n > 0 {
		p.OnEvent(ev)
	}
}

var colon = []byte{':'}

// join adds the nth data line to what came before.
func (p *Parser) join(have, value []byte, n int) []byte {
	switch n {
	case 1:
		return value
	case 2:
		p.data = append(p.data[:0], have...)
	}
	p.data = append(append(p.data, '\n'), value...)
	return p.data
}
