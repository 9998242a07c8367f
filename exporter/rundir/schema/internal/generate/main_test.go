package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/exporter/rundir/schema"
)

// The committed schema is the one that the types give now.
func TestCommittedSchema(t *testing.T) {
	for i, committed := range [][]byte{schema.Requests, schema.Sessions, schema.Quality, schema.Events} {
		got, err := generate(lines[i])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(committed), string(got)); diff != "" {
			t.Errorf("the schema of %s is old, `go generate ./exporter/rundir/schema` renews it (-committed +types):\n%s", lines[i].file, diff)
		}
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "requests.json"), filepath.Join(dir, "sessions.json"), filepath.Join(dir, "quality.json"), filepath.Join(dir, "events.json")}
	if rc := run(files); rc != 0 {
		t.Errorf("run = %d, want 0", rc)
	}
	for i, file := range files {
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := generate(lines[i])
		if err != nil || string(got) != string(want) {
			t.Errorf("the file differs from what generate returns, %v", err)
		}
	}
	if rc := run(nil); rc != 2 {
		t.Errorf("run without a file = %d, want 2", rc)
	}
	if rc := run([]string{filepath.Join(files[0], "x"), files[1], files[2], files[3]}); rc != 1 {
		t.Errorf("run below a file = %d, want 1", rc)
	}
}
