// Package columnar writes tables as Parquet files: typed columns in the table's order,
// compressed with zstd, null for what is missing. Times are int64 nanoseconds, as in the
// JSON that they come from.
//
// Memory: one row group's compressed pages (at most RowGroup rows), and a page a column.
package columnar

import (
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/omnitap/omnitap/exporter/convert/internal/column"
)

const (
	// RowGroup is the most rows of a row group.
	RowGroup = 100_000
	batch    = 256      // rows that are handed over at once
	page     = 64 << 10 // bytes of a column's page
)

// Writer writes one table. Its owner closes what it writes to.
type Writer struct {
	w    *parquet.GenericWriter[any]
	cols []column.Column
	rows []parquet.Row
}

// NewWriter begins a table of that name.
func NewWriter(w io.Writer, name string, cols []column.Column) *Writer {
	schema := parquet.NewSchema(name, newRecord(cols))
	return &Writer{cols: cols, w: parquet.NewGenericWriter[any](
		w, schema,
		parquet.Compression(&zstd.Codec{Level: zstd.SpeedDefault}),
		parquet.MaxRowsPerRowGroup(RowGroup),
		parquet.PageBufferSize(page),
		parquet.DictionaryMaxBytes(1<<20), // ids are as many as rows
		parquet.CreatedBy("omnitap", "", ""),
	)}
}

// Write appends a row, a value for each column. Texts are copied by the time of the next
// call of Close or of a full batch.
func (p *Writer) Write(row []column.Value) error {
	if len(p.rows) < cap(p.rows) {
		p.rows = p.rows[:len(p.rows)+1]
	} else {
		p.rows = append(p.rows, nil)
	}
	last := &p.rows[len(p.rows)-1]
	*last = appendRow((*last)[:0], p.cols, row)
	if len(p.rows) < batch {
		return nil
	}
	return p.flush()
}

// Close writes what is left, and the file's footer.
func (p *Writer) Close() error {
	if err := p.flush(); err != nil {
		return err
	}
	if err := p.w.Close(); err != nil {
		return fmt.Errorf("writing a table: %w", err)
	}
	return nil
}

func (p *Writer) flush() error {
	_, err := p.w.WriteRows(p.rows)
	p.rows = p.rows[:0]
	if err != nil {
		return fmt.Errorf("writing a table: %w", err)
	}
	return nil
}

// appendRow appends a row's values with their repetition and definition levels: one leaf
// a column, two for a map.
func appendRow(r parquet.Row, cols []column.Column, row []column.Value) parquet.Row {
	leaf := 0
	for i := range cols {
		c, v := &cols[i], &row[i]
		switch c.Kind {
		case column.List:
			r = appendTexts(r, v.OK, v.List, leaf)
		case column.Map:
			keys := column.Keys(v.Map)
			r = appendTexts(r, v.OK, keys, leaf)
			leaf++
			values := make([]string, len(keys))
			for i, k := range keys {
				values[i] = v.Map[k]
			}
			r = appendTexts(r, v.OK, values, leaf)
		case column.Text, column.Int, column.Float, column.Bool, column.JSON:
			r = append(r, scalar(c, v).Level(0, defined(c, v), leaf))
		}
		leaf++
	}
	return r
}

func defined(c *column.Column, v *column.Value) int {
	if c.Nullable && v.OK {
		return 1
	}
	return 0
}

func scalar(c *column.Column, v *column.Value) parquet.Value {
	if !v.OK && c.Nullable {
		return parquet.NullValue()
	}
	switch c.Kind {
	case column.Int:
		return parquet.Int64Value(v.Int)
	case column.Float:
		return parquet.DoubleValue(v.Float)
	case column.Bool:
		return parquet.BooleanValue(v.Bool)
	case column.Text, column.JSON, column.List, column.Map:
	}
	return parquet.ByteArrayValue([]byte(v.Text))
}

// appendTexts appends an optional list of required texts: definition level 0 is null, 1
// an empty list, 2 an element; repetition level 1 goes on in the same list.
func appendTexts(r parquet.Row, there bool, texts []string, leaf int) parquet.Row {
	switch {
	case !there:
		return append(r, parquet.NullValue().Level(0, 0, leaf))
	case len(texts) == 0:
		return append(r, parquet.NullValue().Level(0, 1, leaf))
	}
	for i, t := range texts {
		r = append(r, parquet.ByteArrayValue([]byte(t)).Level(min(i, 1), 2, leaf))
	}
	return r
}
