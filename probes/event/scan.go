package event

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds the nesting of what is skipped.
const maxDepth = 32

var (
	errEnd     = errors.New("ends in the middle")
	errNumber  = errors.New("a whole number was expected")
	errBool    = errors.New("true or false was expected")
	errString  = errors.New("a string was expected")
	errEscape  = errors.New("unknown escape in a string")
	errControl = errors.New("control character in a string")
	errDeep    = errors.New("nested too deep")
)

// scanner reads JSON from a line that stays in memory, without making values of
// what nobody asked for.
type scanner struct {
	b []byte
	i int
	// scratch holds the last string that had escapes.
	scratch []byte
}

// space skips white space and returns the next byte, 0 at the end.
func (s *scanner) space() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// expect takes one byte of punctuation.
func (s *scanner) expect(c byte) error {
	got := s.space()
	if s.i >= len(s.b) {
		return errEnd
	}
	if got != c {
		return fmt.Errorf("%q was expected, not %q", c, got)
	}
	s.i++
	return nil
}

// object calls each for every key of an object; each must take the value. The key is
// valid until the next string is read.
func (s *scanner) object(each func(key []byte) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	if s.space() == '}' {
		s.i++
		return nil
	}
	for {
		key, err := s.str()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := each(key); err != nil {
			return err
		}
		if s.space() == ',' {
			s.i++
			continue
		}
		return s.expect('}')
	}
}

// str takes a string. The result is valid until the next one and is not to be kept.
func (s *scanner) str() ([]byte, error) {
	if s.space() != '"' {
		if s.i >= len(s.b) {
			return nil, errEnd
		}
		return nil, errString
	}
	s.i++
	start := s.i
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return s.b[start : s.i-1], nil
		case c == '\\':
			return s.escaped(start)
		case c < 0x20:
			return nil, errControl
		}
	}
	return nil, errEnd
}

// escaped goes on with a string that began at start and has an escape at s.i.
func (s *scanner) escaped(start int) ([]byte, error) {
	out := s.scratch[:0]
	out = append(out, s.b[start:s.i]...)
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			s.scratch = out
			return out, nil
		case c < 0x20:
			return nil, errControl
		case c != '\\':
			out = append(out, c)
			s.i++
		default:
			var err error
			if out, err = s.escape(out); err != nil {
				return nil, err
			}
		}
	}
	return nil, errEnd
}

// escape appends what the escape at s.i stands for.
func (s *scanner) escape(out []byte) ([]byte, error) {
	if s.i+1 >= len(s.b) {
		return nil, errEnd
	}
	c := s.b[s.i+1]
	s.i += 2
	switch c {
	case '"', '\\', '/':
		return append(out, c), nil
	case 'b':
		return append(out, '\b'), nil
	case 'f':
		return append(out, '\f'), nil
	case 'n':
		return append(out, '\n'), nil
	case 'r':
		return append(out, '\r'), nil
	case 't':
		return append(out, '\t'), nil
	case 'u':
		return s.unicode(out)
	default:
		return nil, errEscape
	}
}

// unicode appends \uXXXX: a rune, a pair of surrogates, or the byte that a lone
// U+DC80…U+DCFF stands for (see appendString).
func (s *scanner) unicode(out []byte) ([]byte, error) {
	r, err := s.hex4()
	if err != nil {
		return nil, err
	}
	if r >= 0xdc80 && r <= 0xdcff {
		return append(out, byte(r)), nil
	}
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(out, r), nil
	}
	if s.i+1 < len(s.b) && s.b[s.i] == '\\' && s.b[s.i+1] == 'u' {
		back := s.i
		s.i += 2
		low, err := s.hex4()
		if err != nil {
			return nil, err
		}
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return utf8.AppendRune(out, pair), nil
		}
		s.i = back
	}
	return utf8.AppendRune(out, utf8.RuneError), nil
}

func (s *scanner) hex4() (rune, error) {
	if s.i+4 > len(s.b) {
		return 0, errEnd
	}
	n, err := strconv.ParseUint(string(s.b[s.i:s.i+4]), 16, 16)
	if err != nil {
		return 0, errEscape
	}
	s.i += 4
	return rune(n), nil
}

// integer takes a whole number: no fraction, no exponent, no leading zeros.
func (s *scanner) integer() (int64, error) {
	s.space()
	if s.i >= len(s.b) {
		return 0, errEnd
	}
	negative := s.b[s.i] == '-'
	if negative {
		s.i++
	}
	start := s.i
	var n uint64
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		if s.i-start >= 19 {
			return 0, strconv.ErrRange
		}
		n = n*10 + uint64(s.b[s.i]-'0')
		s.i++
	}
	if s.i == start || (s.b[start] == '0' && s.i-start > 1) || (s.i < len(s.b) && isNumber(s.b[s.i])) {
		return 0, errNumber
	}
	if negative {
		if n > -math.MinInt64 {
			return 0, strconv.ErrRange
		}
		return -int64(n), nil //nolint:gosec // checked in the line above
	}
	if n > math.MaxInt64 {
		return 0, strconv.ErrRange
	}
	return int64(n), nil
}

func (s *scanner) boolean() (bool, error) {
	s.space()
	switch {
	case s.word("true"):
		return true, nil
	case s.word("false"):
		return false, nil
	default:
		return false, errBool
	}
}

func (s *scanner) word(w string) bool {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		return false
	}
	s.i += len(w)
	return true
}

// skip takes a value of any kind.
func (s *scanner) skip(depth int) error {
	if depth > maxDepth {
		return errDeep
	}
	switch c := s.space(); c {
	case '"':
		_, err := s.str()
		return err
	case '{':
		return s.object(func([]byte) error { return s.skip(depth + 1) })
	case '[':
		return s.skipList(depth)
	default:
		if s.word("true") || s.word("false") || s.word("null") {
			return nil
		}
		return s.skipNumber()
	}
}

func (s *scanner) skipList(depth int) error {
	s.i++
	if s.space() == ']' {
		s.i++
		return nil
	}
	for {
		if err := s.skip(depth + 1); err != nil {
			return err
		}
		if s.space() == ',' {
			s.i++
			continue
		}
		return s.expect(']')
	}
}

func (s *scanner) skipNumber() error {
	start := s.i
	for s.i < len(s.b) && isNumber(s.b[s.i]) {
		s.i++
	}
	if s.i == start {
		if s.i >= len(s.b) {
			return errEnd
		}
		return errors.New("a value was expected")
	}
	return nil
}

func isNumber(c byte) bool {
	return c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}
