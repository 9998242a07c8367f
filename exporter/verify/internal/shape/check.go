package shape

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/omnitap/omnitap/exporter/verify/internal/scan"
)

// Error says at which place a line is not what its schema wants.
type Error struct {
	// Path is the place, as stages[].cpu_ms; empty for the line itself.
	Path string
	Text string
}

// Error names the place and what is wrong there.
func (e *Error) Error() string {
	if e.Path == "" {
		return e.Text
	}
	return e.Path + ": " + e.Text
}

// Present returns how often the lines so far held something other than null at a
// place. A place that the schema does not name is never there.
func (c *Checker) Present(path string) int64 {
	var sum int64
	for _, n := range c.nodes {
		if n.path == path {
			sum += n.present
		}
	}
	return sum
}

// Paths lists the places that hold values, in the schema's order: objects and arrays
// are their members and elements.
func (c *Checker) Paths() []string {
	var out []string
	for _, n := range c.nodes {
		if n.path != "" && len(n.list) == 0 && n.items == nil && n.rest == nil && !slices.Contains(out, n.path) {
			out = append(out, n.path)
		}
	}
	return out
}

// Lack is a required member that was missing.
type Lack struct {
	Path string
	// Had and Lacked count the objects that had it and that did not, First is the first
	// line of these.
	Had, Lacked int64
	First       int
}

// Lacking lists the required members that were missing somewhere, in the schema's
// order.
func (c *Checker) Lacking() []Lack {
	var out []Lack
	for _, n := range c.nodes {
		for i := range n.list {
			if m := &n.list[i]; m.lacked > 0 {
				out = append(out, Lack{strings.TrimPrefix(n.path+"."+m.name, "."), m.had, m.lacked, m.first})
			}
		}
	}
	return out
}

// Check holds one line, the n-th, to the schema and counts what is present. It returns
// an *Error for the first thing that does not fit, another error for what is no JSON.
func (c *Checker) Check(line []byte, n int) error {
	w := walk{r: scan.New(line), line: n}
	w.value(c.root)
	if err := w.r.End(); err != nil {
		return err
	}
	if w.bad != nil {
		return w.bad
	}
	return nil
}

// walk goes through a line. What does not fit is noted, and the rest is read on: that
// the line is no JSON counts for more.
type walk struct {
	r    *scan.Reader
	line int
	bad  *Error
}

func (w *walk) wrong(path, format string, a ...any) {
	if w.bad == nil {
		w.bad = &Error{path, fmt.Sprintf(format, a...)}
	}
}

func (w *walk) value(n *node) {
	kind := w.r.Peek()
	if kind != scan.None && !n.kinds[kind] {
		w.wrong(n.path, "%s, want %s", kind, n.wants())
		w.r.Skip()
		return
	}
	if kind != scan.Null {
		n.present++
	}
	switch kind {
	case scan.Object:
		w.object(n)
	case scan.Array:
		for w.r.Array(); w.r.Element(); {
			if n.items == nil {
				w.r.Skip()
				continue
			}
			w.value(n.items)
		}
	case scan.Number:
		w.number(n)
	case scan.String:
		if s := w.r.String(); n.only != nil && w.r.Err() == nil {
			w.oneOf(n, s)
		}
	case scan.None, scan.Null, scan.Bool:
		w.r.Skip()
	}
}

func (w *walk) number(n *node) {
	text, integer := w.r.Literal()
	if w.r.Err() != nil {
		return
	}
	if n.integer && !integer && !whole(text) {
		w.wrong(n.path, "%s, want an integer", text)
	}
	if n.only != nil {
		w.oneOf(n, text)
	}
}

// whole reports whether a number that is not written as an integer is one.
func whole(text []byte) bool {
	f, err := strconv.ParseFloat(string(text), 64)
	return err == nil && f == math.Trunc(f)
}

func (w *walk) oneOf(n *node, text []byte) {
	if slices.Contains(n.only, string(text)) {
		return
	}
	w.wrong(n.path, "%s, want %s", text[:min(len(text), 64)], strings.Join(n.only, " or "))
}

func (w *walk) object(n *node) {
	var seen [maxMembers / 64]uint64
	had := 0
	for w.r.Object(); ; {
		key, more := w.r.Key()
		if !more {
			break
		}
		i, ok := n.members[string(key)]
		switch {
		case !ok && n.rest != nil:
			w.value(n.rest)
			continue
		case !ok:
			w.added(n, key)
			continue
		case seen[i/64]&(1<<(i%64)) != 0:
			w.wrong(n.path, "%s stands there twice", key)
		case n.list[i].required:
			had++
			n.list[i].had++
		}
		seen[i/64] |= 1 << (i % 64)
		w.value(n.list[i].n)
	}
	if had == n.required || w.r.Err() != nil {
		return
	}
	for i := range n.list {
		m := &n.list[i]
		if !m.required || seen[i/64]&(1<<(i%64)) != 0 {
			continue
		}
		if m.lacked++; m.lacked == 1 {
			m.first = w.line
		}
	}
}

// added passes over a member that the schema does not name. One that differs from a
// name in case alone would be that member to encoding/json, and another to the rest.
func (w *walk) added(n *node, key []byte) {
	for i := range n.list {
		if strings.EqualFold(n.list[i].name, string(key)) {
			w.wrong(n.path, "%s is %s but for its case", key, n.list[i].name)
		}
	}
	w.r.Skip()
}

// wants names the kinds that a value may be.
func (n *node) wants() string {
	var names []string
	for k, ok := range n.kinds {
		switch {
		case !ok:
		case scan.Kind(k) == scan.Number && n.integer:
			names = append(names, "integer")
		default:
			names = append(names, scan.Kind(k).String())
		}
	}
	return strings.Join(names, " or ")
}
