// Package column makes the columns of a flat table from a Go type: one for each field
// that encoding/json would write, in order, nested objects taken apart. Lists of objects
// have tables of their own and are left out.
//
// Names are those of the JSON, joined by an underscore, with the unit at the end and in
// every name that has one: audio_gap_ms.p50 is audio_gap_p50_ms, points.t_in is t_in_ns.
//
// Out of scope: what a table is written as.
package column

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// Kind is the type of a column's values.
type Kind string

// The kinds.
const (
	Text  Kind = "text"
	Int   Kind = "int64"
	Float Kind = "float64"
	Bool  Kind = "bool"
	// List is a list of texts, Map is from text to text, JSON is any value as JSON text.
	List Kind = "list<text>"
	Map  Kind = "map<text,text>"
	JSON Kind = "json"
)

// Column is one column of a table.
type Column struct {
	Name string
	// Source is the dotted path of the value in the JSON.
	Source string
	Kind   Kind
	// Nullable says that a value may be missing.
	Nullable bool

	index []int // of the field, through every struct on the way
	empty bool  // an empty text is a missing one
}

// Value is one value of a table; the field of its column's kind holds it.
type Value struct {
	// OK is false for null.
	OK    bool
	Int   int64
	Float float64
	Bool  bool
	// Text is also what a JSON column holds.
	Text string
	List []string
	Map  map[string]string
}

// Of returns the columns of a struct type. Sources begin with prefix, unless they are of
// a struct that is embedded by value: that one holds the keys of the table.
func Of[T any](prefix string) []Column {
	return appendColumns(nil, reflect.TypeFor[T](), place{prefix: prefix})
}

// place is where in a type the walk is.
type place struct {
	prefix   string
	names    []string
	index    []int
	nullable bool
}

// into is the place of field i under a name, empty for an embedded struct.
func (p place) into(i int, name string) place {
	p.index = append(slices.Clone(p.index), i)
	if name != "" {
		p.names = append(slices.Clone(p.names), name)
	}
	return p
}

func appendColumns(cols []Column, t reflect.Type, at place) []Column {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if !f.IsExported() && !f.Anonymous || name == "-" {
			continue
		}
		in := at.into(i, name)
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
			in.nullable = in.nullable || !f.Anonymous
		} else if f.Anonymous {
			in.prefix = ""
		}
		cols = appendField(cols, ft, in, options)
	}
	return cols
}

func appendField(cols []Column, t reflect.Type, at place, options string) []Column {
	kind := kindOf(t)
	switch {
	case kind == "" && t.Kind() == reflect.Struct:
		return appendColumns(cols, t, at)
	case kind == "":
		return cols // a list of objects
	}
	c := Column{Name: Name(at.names), Source: at.prefix + strings.Join(at.names, "."), Kind: kind, index: at.index}
	c.empty = kind == Text && (t == reflect.TypeFor[timeline.Text]() || strings.Contains(options, "omitempty"))
	c.Nullable = at.nullable || c.empty || t == reflect.TypeFor[timeline.Number]() || kind == List || kind == Map || kind == JSON
	return append(cols, c)
}

// kindOf returns the kind of column that a type makes, "" for one that makes none.
func kindOf(t reflect.Type) Kind {
	switch t {
	case reflect.TypeFor[timeline.Number]():
		return Int
	case reflect.TypeFor[json.RawMessage]():
		return JSON
	case reflect.TypeFor[[]string]():
		return List
	case reflect.TypeFor[map[string]string]():
		return Map
	}
	switch t.Kind() {
	case reflect.String:
		return Text
	case reflect.Bool:
		return Bool
	case reflect.Float32, reflect.Float64:
		return Float
	case reflect.Struct, reflect.Slice:
		return ""
	case reflect.Map, reflect.Interface, reflect.Array:
		return JSON
	default:
		return Int
	}
}

// Read appends a row's values to dst. The row is a pointer to the type that the columns
// are of.
func Read(dst []Value, cols []Column, row any) []Value {
	v := reflect.ValueOf(row).Elem()
	for i := range cols {
		dst = append(dst, cols[i].value(v))
	}
	return dst
}

func (c *Column) value(v reflect.Value) Value {
	for _, i := range c.index {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return Value{}
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return Value{}
		}
		v = v.Elem()
	}
	return c.leaf(v)
}

func (c *Column) leaf(v reflect.Value) Value {
	switch c.Kind {
	case Text:
		return Value{OK: !c.empty || v.Len() > 0, Text: v.String()}
	case Float:
		return Value{OK: true, Float: v.Float()}
	case Bool:
		return Value{OK: true, Bool: v.Bool()}
	case List:
		list, _ := reflect.TypeAssert[[]string](v)
		return Value{OK: list != nil, List: list}
	case Map:
		m, _ := reflect.TypeAssert[map[string]string](v)
		return Value{OK: m != nil, Map: m}
	case JSON:
		return jsonValue(v)
	case Int:
	}
	return intValue(v)
}

func intValue(v reflect.Value) Value {
	switch {
	case v.CanInt():
		return Value{OK: true, Int: v.Int()}
	case v.CanUint():
		return Value{OK: true, Int: int64(v.Uint())} // counters: none comes near the sign
	}
	n, _ := reflect.TypeAssert[*timeline.Number](v.Addr())
	if n == nil {
		return Value{}
	}
	value, ok := n.Get()
	return Value{OK: ok, Int: value}
}

// jsonValue writes maps with their keys sorted, as encoding/json does.
func jsonValue(v reflect.Value) Value {
	if (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.IsNil() {
		return Value{}
	}
	text, err := json.Marshal(v.Interface())
	return Value{OK: err == nil && string(text) != "null", Text: string(text)}
}

// Keys returns the keys of a map in order: what is written twice is the same twice.
func Keys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
