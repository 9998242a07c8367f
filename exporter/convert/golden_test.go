package convert

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/exporter/convert/internal/perfetto/reader"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), -update writes it anew:\n%s", name, diff)
	}
}

// The columns are what queries are written against: a change here is seen by users.
func TestGoldenColumns(t *testing.T) {
	var b strings.Builder
	all := schemas()
	for _, table := range tableNames {
		for i := range all[table] {
			c := &all[table][i]
			null := ""
			if c.Nullable {
				null = " null"
			}
			fmt.Fprintf(&b, "%s.%s\t%s%s\t%s\n", table, c.Name, c.Kind, null, c.Source)
		}
	}
	golden(t, "columns.txt", []byte(b.String()))
}

func TestGolden(t *testing.T) {
	res, _ := export(t, CSV, made)
	for _, table := range []string{"runs", "stages", "transfers", "path", "sessions"} {
		text, err := os.ReadFile(filepath.Join(res.Out, table+".csv"))
		if err != nil {
			t.Fatal(err)
		}
		golden(t, table+".csv", bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))) // git keeps no CR
	}
	res, _ = export(t, Perfetto, made)
	f, err := os.Open(res.Out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	read, err := reader.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "trace.txt", []byte(read.String()))
}

// The same run gives the same bytes, however often it is converted.
func TestSameBytes(t *testing.T) {
	for _, f := range []Format{Perfetto, Parquet, CSV} {
		first, _ := export(t, f, made)
		again, _ := export(t, f, made)
		if a, b := contents(t, first.Out), contents(t, again.Out); !bytes.Equal(a, b) || len(a) == 0 {
			t.Errorf("%s: %d and %d bytes differ", f, len(a), len(b))
		}
	}
}

// contents is a file, or all files of a folder.
func contents(t *testing.T, path string) []byte {
	t.Helper()
	names := []string{path}
	if entries, err := os.ReadDir(path); err == nil {
		names = nil
		for _, e := range entries {
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	var all []byte
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	return all
}
