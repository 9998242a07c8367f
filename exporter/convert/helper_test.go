package convert

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// made is a run of seven requests, cut out of a demo's: a chat with stages, two errors, a
// session with two turns, one answer that nobody asked for and one that was cut off.
const made = "testdata/run"

// copyRun copies the made run, so that it can be changed.
func copyRun(tb testing.TB) string {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "run")
	if err := os.CopyFS(dir, os.DirFS(made)); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// demo unpacks the run that exporter/verify has: every flow of the demo.
func demo(tb testing.TB) string {
	tb.Helper()
	f, err := os.Open("../verify/testdata/demo.tar.gz")
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	dir := filepath.Join(tb.TempDir(), "demo")
	if err := os.Mkdir(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	for in := tar.NewReader(unzipped); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			tb.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(in)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(h.Name)), text, 0o600)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// edit changes a file of a run.
func edit(tb testing.TB, dir, name string, change func(text string) string) {
	tb.Helper()
	path := filepath.Join(dir, name)
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	changed := change(string(text))
	if changed == string(text) {
		tb.Fatalf("the edit changes nothing in %s", name)
	}
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// export converts runs into a folder of the test's, and returns what was told.
func export(tb testing.TB, f Format, dirs ...string) (*Result, []Note) {
	tb.Helper()
	var notes []Note
	o := Options{Format: f, Out: filepath.Join(tb.TempDir(), "out"), Note: func(n Note) { notes = append(notes, n) }}
	res, err := Convert(tb.Context(), dirs, o)
	if err != nil {
		tb.Fatal(err)
	}
	return res, notes
}

// objects reads a file of lines as whatever JSON has.
func objects(tb testing.TB, dir, name string) []map[string]any {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		tb.Fatal(err)
	}
	var all []map[string]any
	for line := range strings.Lines(string(text)) {
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber() // nanoseconds do not fit a float64
		var v map[string]any
		if err := d.Decode(&v); err != nil {
			tb.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

// uncounted is metadata.json without its counts of lines.
func uncounted(s string) string {
	head, _, _ := strings.Cut(s, `"files":`)
	return head + `"sealed": false}`
}
