package columnar

import (
	"reflect"

	"github.com/parquet-go/parquet-go"

	"github.com/omnitap/omnitap/exporter/convert/internal/column"
)

// record is a group whose fields keep their order: parquet.Group sorts them.
type record struct {
	parquet.Group
	fields []parquet.Field
}

func newRecord(cols []column.Column) *record {
	r := &record{Group: parquet.Group{}}
	for i := range cols {
		n := node(&cols[i])
		r.Group[cols[i].Name] = n
		r.fields = append(r.fields, field{n, cols[i].Name})
	}
	return r
}

// Fields returns the columns in the table's order.
func (r *record) Fields() []parquet.Field { return r.fields }

type field struct {
	parquet.Node
	name string
}

// Name returns the column's name.
func (f field) Name() string { return f.name }

// Value is what reading rows as Go values needs; rows are written as they are.
func (f field) Value(base reflect.Value) reflect.Value {
	return base.MapIndex(reflect.ValueOf(&f.name).Elem())
}

// node is a column's. A list or map is optional whatever the column says: appendTexts writes
// it as one.
func node(c *column.Column) parquet.Node {
	n := leaf(c.Kind)
	if c.Nullable || c.Kind == column.List || c.Kind == column.Map {
		return parquet.Optional(n)
	}
	return n
}

func leaf(kind column.Kind) parquet.Node {
	switch kind {
	case column.Int:
		return parquet.Encoded(parquet.Int(64), &parquet.DeltaBinaryPacked)
	case column.Float:
		return parquet.Leaf(parquet.DoubleType)
	case column.Bool:
		return parquet.Leaf(parquet.BooleanType)
	case column.List:
		return parquet.List(word())
	case column.Map:
		return parquet.Map(word(), word())
	case column.JSON:
		return parquet.JSON()
	case column.Text:
	}
	return word()
}

// word is a text that comes again and again.
func word() parquet.Node { return parquet.Encoded(parquet.String(), &parquet.RLEDictionary) }

var (
	_ parquet.Node  = (*record)(nil)
	_ parquet.Field = field{}
)
