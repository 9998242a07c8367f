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
	got, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(schema.Requests), string(got)); diff != "" {
		t.Errorf("requests.schema.json is old, `go generate ./exporter/rundir/schema` renews it (-committed +types):\n%s", diff)
	}
}

func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.json")
	if rc := run([]string{file}); rc != 0 {
		t.Errorf("run = %d, want 0", rc)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want, err := generate()
	if err != nil || string(got) != string(want) {
		t.Errorf("the file differs from what generate returns, %v", err)
	}
	if rc := run(nil); rc != 2 {
		t.Errorf("run without a file = %d, want 2", rc)
	}
	if rc := run([]string{filepath.Join(file, "x")}); rc != 1 {
		t.Errorf("run below a file = %d, want 1", rc)
	}
}
