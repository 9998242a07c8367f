package delimited

import (
	"bytes"
	"encoding/csv"
	"errors"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/convert/internal/column"
)

func TestWriter(t *testing.T) {
	cols := []column.Column{
		{Name: "a", Kind: column.Text},
		{Name: "b", Kind: column.Int},
		{Name: "c", Kind: column.Float},
		{Name: "d", Kind: column.Bool},
		{Name: "e", Kind: column.List},
		{Name: "f", Kind: column.Map},
	}
	var b bytes.Buffer
	w, err := NewWriter(&b, cols)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range [][]column.Value{
		{{OK: true, Text: "x,\"y\"\nz"}, {OK: true, Int: -1796043901830875044}, {OK: true, Float: 1e21}, {OK: true, Bool: true}, {OK: true, List: []string{"p", "q"}}, {OK: true, Map: map[string]string{"k": "v"}}},
		{{}, {}, {}, {}, {}, {}},
		{{OK: true}, {OK: true}, {OK: true, Float: 0.1}, {OK: true}, {OK: true, List: []string{}}, {OK: true, Map: map[string]string{}}},
	} {
		if err := w.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	want := "a,b,c,d,e,f\r\n" +
		"\"x,\"\"y\"\"\nz\",-1796043901830875044,1e+21,true,\"[\"\"p\"\",\"\"q\"\"]\",\"{\"\"k\"\":\"\"v\"\"}\"\r\n" +
		",,,,,\r\n" +
		"\"\",0,0.1,false,[],{}\r\n"
	if b.String() != want {
		t.Errorf("got %q\nwant %q", b.String(), want)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no room") }

func TestWriterFails(t *testing.T) {
	cols := []column.Column{{Name: "a", Kind: column.Text}}
	w, err := NewWriter(full{}, cols)
	for err == nil {
		if err = w.Write([]column.Value{{OK: true, Text: strings.Repeat("x", 64<<10)}}); err == nil {
			err = w.Close()
		}
	}
	if !strings.Contains(err.Error(), "no room") {
		t.Errorf("error %v", err)
	}
}

// encoding/csv reads back what was written, but for the line ends that it changes.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", " x", "a,b", `"`, "a\r\nb", "=1+1", "\ufeff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		line := append(appendText([]byte("first,"), s), "\r\n"...)
		rows, err := csv.NewReader(bytes.NewReader(line)).ReadAll()
		if err != nil || len(rows) != 1 || len(rows[0]) != 2 || rows[0][1] != strings.ReplaceAll(s, "\r\n", "\n") {
			t.Errorf("%q was read as %q, %v", line, rows, err)
		}
	})
}
