package hosttest

import (
	"fmt"
	"testing"
)

// heard is a test that only listens to what it is told.
type heard struct {
	testing.TB
	said []string
}

func (h *heard) Helper()                        {}
func (h *heard) Errorf(format string, a ...any) { h.said = append(h.said, fmt.Sprintf(format, a...)) }

// Files and links of a tree are read through its root.
func TestTree(t *testing.T) {
	tree := New(t)
	tree.Write("proc/1/comm", "init\n")
	tree.Link("1", "proc/self")
	for _, name := range []string{"proc/1/comm", "proc/self/comm"} {
		if got, err := tree.Root().Text(name); err != nil || got != "init" {
			t.Errorf("%s holds %q (%v)", name, got, err)
		}
	}
}

// A null without a reason is told, and so is a reason without a null.
func TestHolds(t *testing.T) {
	type value struct {
		A *int `json:"a"`
		B *int `json:"b"`
	}
	for want, reasons := range map[int]map[string]string{
		0: {"x.a": "unread"},
		1: {},
		2: {"x.b": "unread"},
	} {
		h := &heard{TB: t}
		Holds(h, value{B: new(1)}, reasons, "x.")
		if len(h.said) != want {
			t.Errorf("%v: told %q, want %d", reasons, h.said, want)
		}
	}
}
