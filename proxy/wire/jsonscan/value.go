package jsonscan

import (
	"bytes"
	"encoding/json"
	"iter"
	"strconv"
)

// Value is one value of a Doc. The zero Value is Missing; every method of it
// answers that nothing is there.
type Value struct {
	d *Doc
	i int32
}

func (v Value) node() *node { return &v.d.nodes[v.i] }

// Kind returns the value's kind.
func (v Value) Kind() Kind {
	if v.d == nil {
		return Missing
	}
	return v.node().kind
}

// There reports whether the value is there and not null.
func (v Value) There() bool { return v.Kind() > Null }

// Get returns the member of an object with that name.
func (v Value) Get(name string) Value {
	if v.Kind() != Object {
		return Value{}
	}
	found := int32(-1)
	i := v.i + 1
	for range v.node().children {
		n := &v.d.nodes[i]
		if n.keyEscaped || int(n.keyEnd-n.keyAt) == len(name) {
			if (Value{v.d, i}).KeyIs(name) {
				found = i
			}
		}
		i = n.next
	}
	if found < 0 {
		return Value{}
	}
	return Value{v.d, found}
}

// Index returns element n of an array.
func (v Value) Index(n int) Value {
	if v.Kind() == Array {
		for c := range v.All() {
			if n == 0 {
				return c
			}
			n--
		}
	}
	return Value{}
}

// Len returns the number of members or elements.
func (v Value) Len() int {
	if k := v.Kind(); k != Array && k != Object {
		return 0
	}
	return int(v.node().children)
}

// All goes over the members of an object or the elements of an array.
func (v Value) All() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		i := v.i + 1
		for range v.Len() {
			if !yield(Value{v.d, i}) {
				return
			}
			i = v.d.nodes[i].next
		}
	}
}

// Key returns the name of an object's member.
func (v Value) Key() []byte {
	n := v.node()
	k := v.d.b[n.keyAt:n.keyEnd]
	if n.keyEscaped {
		return unescape(nil, k)
	}
	return k
}

// KeyIs reports whether an object's member has that name.
func (v Value) KeyIs(name string) bool {
	n := v.node()
	k := v.d.b[n.keyAt:n.keyEnd]
	if !n.keyEscaped {
		return string(k) == name
	}
	return string(unescape(nil, k)) == name
}

// Raw returns the bytes of the value as they stand; of a string without its
// quotes and not unescaped.
func (v Value) Raw() []byte {
	if v.d == nil {
		return nil
	}
	n := v.node()
	return v.d.b[n.start:n.end]
}

// Plain reports whether Raw of a string is its text: nothing is escaped in it.
func (v Value) Plain() bool { return v.Kind() == String && !v.node().escaped }

// Text returns the text of a string, unescaped into scratch where needed.
func (v Value) Text(scratch []byte) ([]byte, bool) {
	if v.Kind() != String {
		return nil, false
	}
	if !v.node().escaped {
		return v.Raw(), true
	}
	return unescape(scratch[:0], v.Raw()), true
}

// Str returns the text of a string as a string, empty for anything else.
func (v Value) Str() string {
	b, _ := v.Text(nil)
	return string(b)
}

// Int returns the value of an integral number.
func (v Value) Int() (int64, bool) {
	if v.Kind() != Number {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v.Raw()), 10, 64)
	return n, err == nil
}

// True reports whether the value is true.
func (v Value) True() bool { return v.Kind() == Bool && v.Raw()[0] == 't' }

// unescape appends the text of a string's raw bytes; they were checked.
func unescape(dst, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		raw = raw[i:]
		n := escapeLen(raw)
		if raw[1] != 'u' {
			dst = append(dst, simple[raw[1]])
			raw = raw[n:]
			continue
		}
		// surrogate pairs take both escapes: leave them to encoding/json
		for bytes.HasPrefix(raw[n:], []byte(`\u`)) && escapeLen(raw[n:]) == 6 {
			n += 6
		}
		var s string
		_ = json.Unmarshal(append(append([]byte{'"'}, raw[:n]...), '"'), &s)
		dst = append(dst, s...)
		raw = raw[n:]
	}
}

var simple = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}
