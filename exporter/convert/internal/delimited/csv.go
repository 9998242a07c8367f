// Package delimited writes tables as comma-separated values of RFC 4180: a header, lines
// that end in CR LF, quotes where a value needs them. Null is an empty field and an empty
// text a pair of quotes; lists, maps and objects are JSON.
//
// encoding/csv is not used since it rewrites line ends within values.
package delimited

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/omnitap/omnitap/exporter/convert/internal/column"
)

// Writer writes one table. Its owner closes what it writes to.
type Writer struct {
	w    *bufio.Writer
	cols []column.Column
	line []byte
}

// NewWriter writes the header.
func NewWriter(w io.Writer, cols []column.Column) (*Writer, error) {
	d := &Writer{w: bufio.NewWriterSize(w, 256<<10), cols: cols}
	for i := range cols {
		d.separate(i)
		d.line = appendText(d.line, cols[i].Name)
	}
	return d, d.end()
}

// Write appends a row, a value for each column.
func (d *Writer) Write(row []column.Value) error {
	for i := range d.cols {
		d.separate(i)
		d.line = appendValue(d.line, d.cols[i].Kind, &row[i])
	}
	return d.end()
}

// Close flushes what is buffered.
func (d *Writer) Close() error {
	if err := d.w.Flush(); err != nil {
		return fmt.Errorf("writing a table: %w", err)
	}
	return nil
}

func (d *Writer) separate(i int) {
	if i > 0 {
		d.line = append(d.line, ',')
	}
}

func (d *Writer) end() error {
	d.line = append(d.line, '\r', '\n')
	_, err := d.w.Write(d.line)
	d.line = d.line[:0]
	if err != nil {
		return fmt.Errorf("writing a table: %w", err)
	}
	return nil
}

func appendValue(b []byte, kind column.Kind, v *column.Value) []byte {
	if !v.OK {
		return b
	}
	switch kind {
	case column.Int:
		return strconv.AppendInt(b, v.Int, 10)
	case column.Float:
		return strconv.AppendFloat(b, v.Float, 'g', -1, 64)
	case column.Bool:
		return strconv.AppendBool(b, v.Bool)
	case column.List:
		return appendJSON(b, v.List)
	case column.Map:
		return appendJSON(b, v.Map)
	case column.Text, column.JSON:
	}
	return appendText(b, v.Text)
}

func appendJSON(b []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return b // lists and maps of texts have no value that JSON cannot hold
	}
	return appendText(b, string(text))
}

// appendText quotes what holds a separator, a quote, a line end or outer space, and what
// is empty.
func appendText(b []byte, s string) []byte {
	if s != "" && !strings.ContainsAny(s, ",\"\r\n") && strings.TrimSpace(s) == s {
		return append(b, s...)
	}
	b = append(b, '"')
	b = append(b, strings.ReplaceAll(s, `"`, `""`)...)
	return append(b, '"')
}
