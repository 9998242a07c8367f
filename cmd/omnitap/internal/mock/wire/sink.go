package wire

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
)

// mark is a stretch of the outgoing byte stream whose writes are stamped.
type mark struct {
	from, to int64
	stamp    truth.Stamp
	done     func(truth.Stamp)
}

// sink turns pieces into writes. HTTP chunks and writes are independent: the
// faults merge, segments, chunk-bytes and chunk-events move either kind of
// border.
type sink struct {
	c       *Conn
	f       *script.Set
	rng     *rand.Rand
	pause   func(time.Duration) error
	chunked bool

	buf     []byte // bytes not yet written
	off     int64  // of buf[0] in the stream
	marks   []mark
	held    []*plan.Piece // events that wait to be joined in one HTTP chunk
	done    []func(truth.Stamp)
	chunks  int // HTTP chunks in buf
	segAt   int // entry of the segment list
	chunkAt int // entry of the list of chunk sizes
	left    int // bytes left of the current segment
}

// raw adds bytes that are not body: heads and ends.
func (s *sink) raw(b []byte, done func(truth.Stamp)) {
	at := s.off + int64(len(s.buf))
	s.buf = append(s.buf, b...)
	if done != nil {
		s.marks = append(s.marks, mark{from: at, to: at + int64(len(b)), done: done})
	}
}

// add takes one piece and writes what is due.
func (s *sink) add(p *plan.Piece, done func(truth.Stamp)) error {
	s.held = append(s.held, p)
	s.done = append(s.done, done)
	if len(s.held) < s.f.ChunkEvents {
		return nil
	}
	s.frame()
	if s.f.Burst || s.chunks < s.limit() {
		return nil
	}
	return s.flush()
}

// limit is the number of HTTP chunks a write.
func (s *sink) limit() int {
	if s.f.Merge == script.MergeAll {
		return math.MaxInt
	}
	return s.f.Merge
}

// frame moves the held pieces into the buffer as HTTP chunks.
func (s *sink) frame() {
	var body []byte
	for i, p := range s.held {
		from := int64(len(body))
		body = append(body, p.Data...)
		if len(p.Data) > 0 && s.done[i] != nil {
			at := s.off + int64(len(s.buf))
			s.marks = append(s.marks, mark{from: at + from, to: at + int64(len(body)), done: s.done[i]})
		}
	}
	s.held, s.done = s.held[:0], s.done[:0]
	first := len(s.marks)
	for first > 0 && s.marks[first-1].from >= s.off+int64(len(s.buf)) {
		first--
	}
	for len(body) > 0 {
		n := len(body)
		if sizes := s.f.ChunkBytes; len(sizes) > 0 {
			n = min(n, sizes[min(s.chunkAt, len(sizes)-1)])
			s.chunkAt++
		}
		if s.chunked {
			size := strconv.FormatInt(int64(n), 16) + "\r\n"
			s.shift(first, s.off+int64(len(s.buf)), len(size))
			s.buf = append(s.buf, size...)
		}
		s.buf = append(s.buf, body[:n]...)
		if s.chunked {
			s.shift(first, s.off+int64(len(s.buf)), 2)
			s.buf = append(s.buf, "\r\n"...)
		}
		body = body[n:]
		s.chunks++
	}
}

// shift moves what the marks from index i on say about bytes at or behind an
// offset: framing was put in there.
func (s *sink) shift(i int, at int64, by int) {
	for ; i < len(s.marks); i++ {
		m := &s.marks[i]
		if m.from >= at {
			m.from += int64(by)
		}
		if m.to > at {
			m.to += int64(by)
		}
	}
}

// flush writes the buffer, in segments if a fault says so.
func (s *sink) flush() error {
	if len(s.held) > 0 {
		s.frame()
	}
	s.chunks = 0
	for first := true; len(s.buf) > 0; first = false {
		if !first && s.f.SegmentPause > 0 {
			if err := s.pause(s.f.SegmentPause); err != nil {
				return err
			}
		}
		n := s.segment(len(s.buf))
		before := truth.Mono()
		n, err := s.c.nc.Write(s.buf[:n])
		after := truth.Mono()
		s.off += int64(n)
		s.buf = s.buf[n:]
		s.stamp(before, after)
		if err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}
	return nil
}

// segment returns how many of n bytes the next write takes.
func (s *sink) segment(n int) int {
	switch {
	case s.left > 0:
	case s.f.SegmentRange[1] > 0:
		lo, hi := s.f.SegmentRange[0], s.f.SegmentRange[1]
		s.left = lo + s.rng.IntN(hi-lo+1)
	case len(s.f.Segments) > 0:
		s.left = s.f.Segments[min(s.segAt, len(s.f.Segments)-1)]
		s.segAt++
	default:
		return n
	}
	n = min(n, s.left)
	s.left -= n
	return n
}

// stamp settles the marks that the last write touched: it ended at s.off.
func (s *sink) stamp(before, after int64) {
	kept := s.marks[:0]
	for _, m := range s.marks {
		if m.stamp.BeforeNS == 0 && m.from < s.off {
			m.stamp.BeforeNS = before
		}
		if m.to <= s.off {
			m.stamp.AfterNS = after
			m.done(m.stamp)
			continue
		}
		kept = append(kept, m)
	}
	s.marks = kept
}
