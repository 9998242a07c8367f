// Package ordered writes JSON whose keys stand in a given order and whose
// spacing and escapes are those of one of the servers' encoders: clients that
// match bytes, and proxies, must meet what the real servers send.
package ordered

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Obj is a JSON object: keys and values in turn.
type Obj []any

// List is a JSON array.
type List []any

// Raw is JSON that is written as it is.
type Raw string

// Style is the handwriting of an encoder.
type Style struct {
	colon, comma string
	quote        func(string) string
}

// The styles that the servers use.
var (
	// Compact has no spaces and leaves UTF-8 as it is (pydantic, orjson).
	Compact = Style{":", ",", Quote}
	// Spaced has spaces and ASCII escapes (Python's json.dumps).
	Spaced = Style{": ", ", ", QuoteASCII}
)

// Render writes a value: nil, bool, string, int, float64, Obj, List, Raw, or
// a slice of strings. Anything else is null.
func (st Style) Render(v any) string {
	var b strings.Builder
	st.write(&b, v)
	return b.String()
}

func (st Style) write(b *strings.Builder, v any) {
	switch v := v.(type) {
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case string:
		b.WriteString(st.quote(v))
	case int:
		b.WriteString(strconv.Itoa(v))
	case float64:
		b.WriteString(float(v))
	case Raw:
		b.WriteString(string(v))
	case Obj:
		st.object(b, v)
	case List:
		st.list(b, v)
	case []string:
		items := make(List, len(v))
		for i, s := range v {
			items[i] = s
		}
		st.list(b, items)
	default:
		b.WriteString("null")
	}
}

func (st Style) object(b *strings.Builder, o Obj) {
	b.WriteByte('{')
	for i := 0; i+1 < len(o); i += 2 {
		if i > 0 {
			b.WriteString(st.comma)
		}
		key, _ := o[i].(string)
		b.WriteString(st.quote(key) + st.colon)
		st.write(b, o[i+1])
	}
	b.WriteByte('}')
}

func (st Style) list(b *strings.Builder, l List) {
	b.WriteByte('[')
	for i, v := range l {
		if i > 0 {
			b.WriteString(st.comma)
		}
		st.write(b, v)
	}
	b.WriteByte(']')
}

// float writes a number as Python does: with a point, always.
func float(v float64) string {
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// Get returns the value of a key, nil if there is none.
func (o Obj) Get(key string) any {
	for i := 0; i+1 < len(o); i += 2 {
		if o[i] == key {
			return o[i+1]
		}
	}
	return nil
}

// With returns a copy in which the keys of more replace or follow those of o.
func (o Obj) With(more ...any) Obj {
	out := append(Obj(nil), o...)
next:
	for j := 0; j+1 < len(more); j += 2 {
		for i := 0; i+1 < len(out); i += 2 {
			if out[i] == more[j] {
				out[i+1] = more[j+1]
				continue next
			}
		}
		out = append(out, more[j], more[j+1])
	}
	return out
}

// Parse reads JSON into Obj, List, string, bool, nil and Raw numbers, so that
// it can be written again in another style.
func Parse(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := parse(d)
	if err != nil {
		return nil, fmt.Errorf("reading json: %w", err)
	}
	return v, nil
}

func parse(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		return Raw(t.String()), nil
	case json.Delim:
		var out List
		for d.More() { // the keys of an object are tokens as well
			v, err := parse(d)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		if _, err := d.Token(); err != nil {
			return nil, err
		}
		if t == '{' {
			return Obj(out), nil
		}
		return out, nil
	default:
		return t, nil
	}
}
