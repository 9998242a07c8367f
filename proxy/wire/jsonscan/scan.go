package jsonscan

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/segmentio/asm/ascii"
)

// ErrSyntax says that a text is no JSON; ErrDepth that it nests too deep.
var (
	ErrSyntax = errors.New("malformed JSON")
	ErrDepth  = errors.New("JSON nested too deep")
)

// maxDepth bounds nesting: recursion on hostile input must end.
const maxDepth = 256

// Kind is the kind of a value.
type Kind uint8

// The kinds. Missing is what Get and Index return for what is not there.
const (
	Missing Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// node is one value: its bytes (a string's without quotes), its member name,
// and the index of the value that follows its last descendant.
type node struct {
	kind           Kind
	escaped        bool
	keyEscaped     bool
	start, end     int32
	keyAt, keyEnd  int32
	next, children int32
}

// Doc is a parsed text. The zero value is ready.
type Doc struct {
	b     []byte
	nodes []node
	depth int
}

// Parse reads b, which must hold one JSON value and white space. It keeps b.
func (d *Doc) Parse(b []byte) error {
	d.b, d.nodes, d.depth = b, d.nodes[:0], 0
	if len(b) > 1<<31-2 {
		return ErrSyntax
	}
	i, err := d.value(d.space(0))
	if err == nil && d.space(i) != len(b) {
		err = ErrSyntax
	}
	if err != nil {
		d.nodes = d.nodes[:0]
	}
	return err
}

// Root returns the outermost value; Missing after a failed Parse.
func (d *Doc) Root() Value {
	if len(d.nodes) == 0 {
		return Value{}
	}
	return Value{d, 0}
}

// Spaced reports whether white space follows the separators of the outermost
// object, as Python's default json.dumps writes.
func (d *Doc) Spaced() bool {
	if len(d.nodes) < 2 || d.nodes[0].kind != Object {
		return false
	}
	i := d.nodes[1].keyEnd + 1 // behind the closing quote
	return int(i)+1 < len(d.b) && d.b[i] == ':' && d.b[i+1] == ' '
}

func (d *Doc) space(i int) int {
	for i < len(d.b) {
		switch d.b[i] {
		case ' ', '\t', '\r', '\n':
			i++
		default:
			return i
		}
	}
	return i
}

// value reads the value at i and returns where it ends.
func (d *Doc) value(i int) (int, error) {
	if i >= len(d.b) {
		return i, ErrSyntax
	}
	at := len(d.nodes)
	d.nodes = append(d.nodes, node{start: int32(i)})
	var end int
	var err error
	var kind Kind
	switch c := d.b[i]; c {
	case '{':
		kind = Object
		end, err = d.container(i, '}', at)
	case '[':
		kind = Array
		end, err = d.container(i, ']', at)
	case '"':
		kind = String
		var esc bool
		end, esc, err = d.str(i)
		d.nodes[at].escaped = esc
	case 't':
		kind = Bool
		end, err = d.word(i, "true")
	case 'f':
		kind = Bool
		end, err = d.word(i, "false")
	case 'n':
		kind = Null
		end, err = d.word(i, "null")
	default:
		kind = Number
		end, err = d.number(i)
	}
	n := &d.nodes[at]
	n.kind, n.end, n.next = kind, int32(end), int32(len(d.nodes))
	if kind == String && err == nil {
		n.start, n.end = n.start+1, n.end-1
	}
	return end, err
}

// container reads the members of an object or the elements of an array.
func (d *Doc) container(i int, closing byte, at int) (int, error) {
	if d.depth++; d.depth > maxDepth {
		return i, ErrDepth
	}
	i = d.space(i + 1)
	if i < len(d.b) && d.b[i] == closing {
		d.depth--
		return i + 1, nil
	}
	for n := int32(1); ; n++ {
		var key node
		if closing == '}' {
			if i >= len(d.b) || d.b[i] != '"' {
				return i, ErrSyntax
			}
			end, esc, err := d.str(i)
			if err != nil {
				return i, err
			}
			key = node{keyAt: int32(i + 1), keyEnd: int32(end - 1), keyEscaped: esc}
			i = d.space(end)
			if i >= len(d.b) || d.b[i] != ':' {
				return i, ErrSyntax
			}
			i = d.space(i + 1)
		}
		child := len(d.nodes)
		end, err := d.value(i)
		if err != nil {
			return end, err
		}
		c := &d.nodes[child]
		c.keyAt, c.keyEnd, c.keyEscaped = key.keyAt, key.keyEnd, key.keyEscaped
		d.nodes[at].children = n
		i = d.space(end)
		if i >= len(d.b) {
			return i, ErrSyntax
		}
		if d.b[i] == closing {
			d.depth--
			return i + 1, nil
		}
		if d.b[i] != ',' {
			return i, ErrSyntax
		}
		i = d.space(i + 1)
	}
}

// shortString is the length up to which a string is walked byte by byte: most
// are names and small values, for which a search costs more than the walk.
const shortString = 24

// str reads the string whose opening quote is at i.
func (d *Doc) str(i int) (end int, escaped bool, err error) {
	b := d.b
	j := i + 1
	for stop := min(j+shortString, len(b)); j < stop; j++ {
		switch c := b[j]; {
		case c == '"':
			return j + 1, false, nil
		case c == '\\' || c < 0x20:
			return d.longStr(i, j)
		}
	}
	return d.longStr(i, j)
}

// longStr goes on at j, with nothing of note before it.
func (d *Doc) longStr(i, j int) (end int, escaped bool, err error) {
	for {
		k := bytes.IndexByte(d.b[j:], '"')
		if k < 0 {
			return i, false, ErrSyntax
		}
		k += j
		e := bytes.IndexByte(d.b[j:k], '\\')
		if e < 0 {
			if hasControl(d.b[j:k]) {
				return i, false, ErrSyntax
			}
			return k + 1, escaped, nil
		}
		escaped = true
		if hasControl(d.b[j : j+e]) {
			return i, false, ErrSyntax
		}
		n := escapeLen(d.b[j+e:])
		if n == 0 {
			return i, false, ErrSyntax
		}
		j += e + n
	}
}

// escapeLen returns the length of the escape that b starts with, 0 if it is none.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, c := range b[2:6] {
			if ('0' > c || c > '9') && ('a' > c || c > 'f') && ('A' > c || c > 'F') {
				return 0
			}
		}
		return 6
	}
	return 0
}

// hasControl reports whether b holds a byte below 0x20. Nearly all that is long is
// base64, and plain ASCII is told many bytes at a time.
func hasControl(b []byte) bool { return !ascii.ValidPrint(b) && control(b) }

// control does the same eight bytes at a time.
func control(b []byte) bool {
	const low, high = 0x2020202020202020, 0x8080808080808080
	for len(b) >= 32 { // long strings are nearly all of an event
		v0, v1 := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		v2, v3 := binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
		if ((v0-low)&^v0|(v1-low)&^v1|(v2-low)&^v2|(v3-low)&^v3)&high != 0 {
			return true
		}
		b = b[32:]
	}
	for len(b) >= 8 {
		v := binary.LittleEndian.Uint64(b)
		if (v-low)&^v&high != 0 {
			return true
		}
		b = b[8:]
	}
	for _, c := range b {
		if c < 0x20 {
			return true
		}
	}
	return false
}

func (d *Doc) word(i int, w string) (int, error) {
	if len(d.b)-i < len(w) || string(d.b[i:i+len(w)]) != w {
		return i, ErrSyntax
	}
	return i + len(w), nil
}

// number reads -?int[.frac][exp] (RFC 8259 section 6).
func (d *Doc) number(i int) (int, error) {
	digits := func() bool {
		from := i
		for i < len(d.b) && '0' <= d.b[i] && d.b[i] <= '9' {
			i++
		}
		return i > from
	}
	is := func(c byte) bool { return i < len(d.b) && d.b[i] == c }
	if is('-') {
		i++
	}
	if is('0') {
		i++
	} else if !digits() {
		return i, ErrSyntax
	}
	if is('.') {
		if i++; !digits() {
			return i, ErrSyntax
		}
	}
	if is('e') || is('E') {
		if i++; is('+') || is('-') {
			i++
		}
		if !digits() {
			return i, ErrSyntax
		}
	}
	return i, nil
}
