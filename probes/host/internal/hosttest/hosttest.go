// Package hosttest helps tests of what reads the machine: folders of its shape, and a
// check that what is null has a reason. It is used by tests alone.
package hosttest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/omnitap/omnitap/probes/host"
)

// Tree is a folder of the shape of a machine's root: proc/, sys/, and what the test puts
// beside them. It is removed with the test.
type Tree struct {
	Dir string
	t   testing.TB
}

// New makes an empty tree.
func New(t testing.TB) *Tree {
	t.Helper()
	return &Tree{t.TempDir(), t}
}

// Root is the tree for what is tested.
func (f *Tree) Root() host.Root { return host.Root(f.Dir) }

// Path is where a file of the tree lies, with its folder made.
func (f *Tree) Path(name string) string {
	f.t.Helper()
	path := filepath.Join(f.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// Write writes a file.
func (f *Tree) Write(name, content string) {
	f.t.Helper()
	if err := os.WriteFile(f.Path(name), []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// Link makes a symbolic link.
func (f *Tree) Link(to, name string) {
	f.t.Helper()
	if err := os.Symlink(to, f.Path(name)); err != nil {
		f.t.Fatal(err)
	}
}

// Holds checks that each field of a value that is null has a reason under its name, and
// that no other has.
func Holds(t testing.TB, v any, reasons map[string]string, prefix string) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	for name, value := range fields {
		if name != "unmeasured" && (value == nil) != (reasons[prefix+name] != "") {
			t.Errorf("%s%s is %v, with the reason %q", prefix, name, value, reasons[prefix+name])
		}
	}
}
