// Package scan walks one JSON text, value by value, without building it: a million
// lines in a second or two.
//
//	r := scan.New(line)
//	for r.Object(); ; {
//		key, more := r.Key()
//		if !more { break }
//		switch string(key) { case "mono_ns": n = r.Int(); default: r.Skip() }
//	}
//	err := r.End()
//
// The first error stays and everything after it does nothing, so that it is asked
// for once, by End or Err. What is accepted is what encoding/json accepts. Bytes that are no UTF-8 stay what they are.
//
// Out of scope: what the values mean, and members that occur twice, which only their
// reader can know.
package scan

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Kind is what a value is.
type Kind uint8

// The kinds of values. None is what cannot begin one, or no text any more.
const (
	None Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// String names the kind as JSON Schema does.
func (k Kind) String() string {
	return [...]string{"nothing", "null", "boolean", "number", "string", "array", "object"}[k]
}

// maxDepth is encoding/json's.
const maxDepth = 10000

// Reader walks a text. Make it with New, or Reset one.
type Reader struct {
	b     []byte
	i     int
	first bool // no member or element of the value at hand was read yet
	depth int
	err   error
}

// New returns a Reader of a text, which it does not change.
func New(text []byte) *Reader { return &Reader{b: text} }

// Reset makes the Reader read another text.
func (r *Reader) Reset(text []byte) { *r = Reader{b: text} }

// Err is the first error, nil for none.
func (r *Reader) Err() error { return r.err }

// Fail sets the error, unless there is one.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Pos is the byte of the text that is read next, from 0.
func (r *Reader) Pos() int { return r.i }

// End wants nothing but white space behind what was read, and returns the error.
func (r *Reader) End() error {
	if r.space(); r.err == nil && r.i < len(r.b) {
		r.fail("more behind the value")
	}
	return r.err
}

func (r *Reader) fail(what string) {
	if r.i >= len(r.b) {
		what = "the text ends early"
	}
	r.Fail(fmt.Errorf("byte %d: %s", r.i+1, what))
}

func (r *Reader) space() {
	for r.i < len(r.b) {
		switch r.b[r.i] {
		case ' ', '\t', '\r', '\n':
			r.i++
		default:
			return
		}
	}
}

// Peek is the kind of the next value.
func (r *Reader) Peek() Kind {
	if r.space(); r.err != nil || r.i >= len(r.b) {
		return None
	}
	switch c := r.b[r.i]; {
	case c == '"':
		return String
	case c == '{':
		return Object
	case c == '[':
		return Array
	case c == 'n':
		return Null
	case c == 't', c == 'f':
		return Bool
	case c == '-', c >= '0' && c <= '9':
		return Number
	default:
		return None
	}
}

// Object begins an object: Key comes next.
func (r *Reader) Object() { r.open('{', "an object") }

// Array begins an array: Element comes next.
func (r *Reader) Array() { r.open('[', "an array") }

func (r *Reader) open(c byte, what string) {
	if r.space(); r.err != nil {
		return
	}
	if r.i >= len(r.b) || r.b[r.i] != c {
		r.fail("no " + what[len("a"):] + " begins here")
		return
	}
	if r.depth++; r.depth > maxDepth {
		r.fail("nested too deep")
		return
	}
	r.i++
	r.first = true
}

// next goes to the next member or element; false at the end, which is then read.
func (r *Reader) next(end byte) bool {
	if r.space(); r.err != nil {
		return false
	}
	if r.i < len(r.b) && r.b[r.i] == end {
		r.i++
		r.depth--
		r.first = false
		return false
	}
	if !r.first {
		if r.i >= len(r.b) || r.b[r.i] != ',' {
			r.fail("no comma and no end")
			return false
		}
		r.i++
	}
	r.first = false
	return true
}

// Key returns the next member's name; its value comes next. False is the end of the
// object, or an error. The name may lie in the text: do not keep it.
func (r *Reader) Key() ([]byte, bool) {
	if !r.next('}') {
		return nil, false
	}
	key := r.String()
	if r.space(); r.err != nil {
		return nil, false
	}
	if r.i >= len(r.b) || r.b[r.i] != ':' {
		r.fail("no colon behind a name")
		return nil, false
	}
	r.i++
	return key, true
}

// Element reports whether another element comes next. False is the end of the array,
// or an error.
func (r *Reader) Element() bool { return r.next(']') }

var errString = errors.New("a text that JSON cannot hold")

// String reads a string. It may lie in the text: do not keep it.
func (r *Reader) String() []byte {
	if r.space(); r.err != nil {
		return nil
	}
	if r.i >= len(r.b) || r.b[r.i] != '"' {
		r.fail("no string begins here")
		return nil
	}
	from := r.i + 1
	for i := from; i < len(r.b); i++ {
		switch c := r.b[i]; {
		case c == '"':
			r.i = i + 1
			return r.b[from:i]
		case c == '\\':
			return r.escaped(from, i)
		case c < ' ':
			r.i = i
			r.fail("a control character in a string")
			return nil
		}
	}
	r.i = len(r.b)
	r.fail("")
	return nil
}

// escaped reads a string with an escape, whose first lies at i.
func (r *Reader) escaped(from, i int) []byte {
	for ; i < len(r.b); i++ {
		switch r.b[i] {
		case '\\':
			i++
		case '"':
			var s string
			if err := json.Unmarshal(r.b[from-1:i+1], &s); err != nil {
				r.Fail(fmt.Errorf("byte %d: %w", from, errString))
				return nil
			}
			r.i = i + 1
			return []byte(s)
		}
	}
	r.i = len(r.b)
	r.fail("")
	return nil
}

// Literal reads a number and returns its text, and whether it is written as an
// integer.
func (r *Reader) Literal() (text []byte, integer bool) {
	if r.space(); r.err != nil {
		return nil, false
	}
	from := r.i
	r.take('-')
	if !r.take('0') && !r.digits() {
		r.fail("no number begins here")
		return nil, false
	}
	integer = true
	if r.take('.') {
		if integer = false; !r.digits() {
			r.fail("no digit behind the point")
			return nil, false
		}
	}
	if r.take('e') || r.take('E') {
		integer = false
		_ = r.take('+') || r.take('-')
		if !r.digits() {
			r.fail("no digit in the exponent")
			return nil, false
		}
	}
	return r.b[from:r.i], integer
}

func (r *Reader) take(c byte) bool {
	if r.i < len(r.b) && r.b[r.i] == c {
		r.i++
		return true
	}
	return false
}

func (r *Reader) digits() bool {
	from := r.i
	for r.i < len(r.b) && r.b[r.i]-'0' < 10 {
		r.i++
	}
	return r.i > from
}

// Int reads an integer of 64 bits.
func (r *Reader) Int() int64 {
	at := r.i
	text, integer := r.Literal()
	if r.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if !integer || err != nil {
		r.Fail(fmt.Errorf("byte %d: %s is no integer of 64 bits", at+1, clip(text)))
	}
	return n
}

// clip bounds what is shown of a text.
func clip(b []byte) []byte { return b[:min(len(b), 32)] }

// Word reads null, true or false.
func (r *Reader) Word() {
	if r.space(); r.err != nil {
		return
	}
	for _, w := range [...]string{"null", "true", "false"} {
		if len(r.b)-r.i >= len(w) && string(r.b[r.i:r.i+len(w)]) == w {
			r.i += len(w)
			return
		}
	}
	r.fail("no value begins here")
}

// Skip reads any value.
func (r *Reader) Skip() {
	switch r.Peek() {
	case Object:
		for r.Object(); ; r.Skip() {
			if _, more := r.Key(); !more {
				return
			}
		}
	case Array:
		for r.Array(); r.Element(); {
			r.Skip()
		}
	case String:
		r.String()
	case Number:
		r.Literal()
	case Null, Bool:
		r.Word()
	case None:
		r.fail("no value begins here")
	}
}
