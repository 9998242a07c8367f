package columnar

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/omnitap/omnitap/exporter/convert/internal/column"
)

var columns = []column.Column{
	{Name: "name", Kind: column.Text, Nullable: true},
	{Name: "t_ns", Kind: column.Int, Nullable: true},
	{Name: "v_ms", Kind: column.Float, Nullable: true},
	{Name: "ok", Kind: column.Bool, Nullable: true},
	{Name: "flags", Kind: column.List},
	{Name: "why", Kind: column.Map},
	{Name: "more", Kind: column.JSON, Nullable: true},
}

func row(i int) []column.Value {
	if i%3 == 0 { // nothing is known
		return make([]column.Value, len(columns))
	}
	return []column.Value{
		{OK: true, Text: strings.Repeat("x", i%7)},
		{OK: true, Int: math.MaxInt64 - int64(i)},
		{OK: true, Float: float64(i) / 7},
		{OK: true, Bool: i%2 == 0},
		{OK: true, List: []string{"a", "b"}[:i%3]},
		{OK: true, Map: map[string]string{"k": "v"}},
		{OK: true, Text: `{"a":1}`},
	}
}

// TestRoundTrip: what a table is given is what a reader of the library finds, over more rows
// than are handed over at once, null as null.
func TestRoundTrip(t *testing.T) {
	const rows = 3*batch + 5
	var out bytes.Buffer
	w := NewWriter(&out, "table", columns)
	for i := range rows {
		if err := w.Write(row(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	type read struct {
		Name  *string           `parquet:"name,optional"`
		TNS   *int64            `parquet:"t_ns,optional"`
		VMS   *float64          `parquet:"v_ms,optional"`
		OK    *bool             `parquet:"ok,optional"`
		Flags []string          `parquet:"flags,list"`
		Why   map[string]string `parquet:"why"`
		More  *string           `parquet:"more,optional,json"`
	}
	got, err := parquet.Read[read](bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil || len(got) != rows {
		t.Fatalf("%d rows, %v", len(got), err)
	}
	for i := range got {
		g, want := &got[i], row(i)
		if !want[0].OK {
			if g.Name != nil || g.TNS != nil || g.VMS != nil || g.OK != nil || len(g.Flags) != 0 || len(g.Why) != 0 || g.More != nil {
				t.Fatalf("row %d is %+v, want nothing", i, g)
			}
			continue
		}
		if g.Name == nil || *g.Name != want[0].Text || g.TNS == nil || *g.TNS != want[1].Int || g.VMS == nil || *g.VMS != want[2].Float ||
			g.OK == nil || *g.OK != want[3].Bool || len(g.Flags) != len(want[4].List) || g.Why["k"] != "v" || g.More == nil || *g.More != `{"a":1}` {
			t.Fatalf("row %d is %+v, want %+v", i, g, want)
		}
	}
}

type full struct{ left int }

var errFull = errors.New("no space left")

func (f *full) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// TestFullDisk: a disk that is full at the footer is an error as much as one that was ahead.
func TestFullDisk(t *testing.T) {
	for _, room := range []int{0, 20, 500} {
		w := NewWriter(&full{room}, "table", columns)
		var err error
		for i := 0; i < 2*batch && err == nil; i++ {
			err = w.Write(row(i))
		}
		if err = errors.Join(err, w.Close()); !errors.Is(err, errFull) {
			t.Errorf("room for %d bytes: %v", room, err)
		}
	}
}
