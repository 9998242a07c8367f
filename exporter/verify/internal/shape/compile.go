// Package shape holds lines of JSON to a JSON Schema, twenty times faster than the
// library that the tests compare it with, and counts which members were there.
//
//	c, err := shape.Compile(schema.Requests)
//	err = c.Check(line, 1)     // a *shape.Error, or nil
//	c.Present("stages[].cpu_ms")
//	c.Lacking()                // required members that were not there
//
// That a required member is missing is no error of its line: fields may be added
// within a schema version, and the lines of an older program lack them all alike.
// Lacking tells of each how often it was there and how often not.
//
// It knows as much of JSON Schema as the schemas in exporter/rundir/schema need, and
// Compile refuses the rest, so that no rule is passed over in silence: type,
// properties, required, items, additionalProperties, enum and const of scalars, $ref
// into $defs, and anyOf with null. A Checker is not safe for concurrent use.
//
// It is stricter than JSON Schema in one thing: a member that a schema names may not
// occur twice, nor beside it one whose name differs in case alone.
package shape

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/exporter/verify/internal/scan"
)

// Checker holds lines to one schema.
type Checker struct {
	root  *node
	nodes []*node
}

// node is what a schema says of one place in a line.
type node struct {
	path     string
	kinds    [scan.Object + 1]bool // that the value may be
	integer  bool                  // a number must be one
	members  map[string]int        // into list
	list     []member
	required int   // how many members are
	rest     *node // of members that are not named; nil for anything
	items    *node // nil for anything
	only     []string
	present  int64 // how often there was a value other than null
}

type member struct {
	name     string
	n        *node
	required bool

	had, lacked int64
	first       int // the line that lacked it first
}

// maxMembers bounds the members of an object that a schema names.
const maxMembers = 128

// maxDepth bounds how schemas refer to each other: a record does not hold itself.
const maxDepth = 16

// raw is a schema as it is written.
type raw map[string]json.RawMessage

// known are the keywords that are understood, and those that say nothing.
var known = []string{
	"$schema", "$ref", "$defs", "type", "properties", "required", "items", "additionalProperties", "enum", "const", "anyOf",
	"title", "description", "format",
}

// Compile reads a schema.
func Compile(text []byte) (*Checker, error) {
	var root raw
	if err := json.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("reading a schema: %w", err)
	}
	c := &compiler{}
	if d, ok := root["$defs"]; ok {
		if err := json.Unmarshal(d, &c.defs); err != nil {
			return nil, fmt.Errorf("reading $defs: %w", err)
		}
	}
	out := &Checker{root: c.node(root, "", 0), nodes: c.nodes}
	if c.err != nil {
		return nil, fmt.Errorf("reading a schema: %w", c.err)
	}
	return out, nil
}

type compiler struct {
	defs  map[string]raw
	nodes []*node
	err   error
}

func (c *compiler) fail(path, format string, a ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%s: %s", path, fmt.Sprintf(format, a...))
	}
}

// get decodes a keyword's value where it is there.
func get[T any](c *compiler, s raw, name, path string) (v T, there bool) {
	text, there := s[name]
	if !there || c.err != nil {
		return v, false
	}
	if err := json.Unmarshal(text, &v); err != nil {
		c.fail(path, "%s: %v", name, err)
		return v, false
	}
	return v, true
}

func (c *compiler) node(s raw, path string, depth int) *node {
	n := &node{path: path}
	if depth > maxDepth {
		c.fail(path, "schemas that hold themselves are not read")
		return n
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if !slices.Contains(known, name) {
			c.fail(path, "the keyword %q is not understood", name)
		}
	}
	if ref, ok := get[string](c, s, "$ref", path); ok {
		def, there := c.defs[strings.TrimPrefix(ref, "#/$defs/")]
		if !there {
			c.fail(path, "%s is not there", ref)
		}
		return c.node(def, path, depth+1)
	}
	if choices, ok := get[[]raw](c, s, "anyOf", path); ok {
		return c.orNull(choices, path, depth)
	}
	c.nodes = append(c.nodes, n)
	c.kinds(n, s)
	c.object(n, s, depth)
	if items, ok := get[raw](c, s, "items", path); ok {
		n.items = c.node(items, path+"[]", depth+1)
	}
	c.values(n, s)
	return n
}

// orNull takes a choice between something and null.
func (c *compiler) orNull(choices []raw, path string, depth int) *node {
	if len(choices) != 2 || string(choices[1]["type"]) != `"null"` {
		c.fail(path, "anyOf is understood as something or null alone")
		return &node{}
	}
	n := c.node(choices[0], path, depth+1)
	n.kinds[scan.Null] = true
	return n
}

// kinds takes the type, a name or a list of names.
func (c *compiler) kinds(n *node, s raw) {
	var names []string
	switch text := s["type"]; {
	case text == nil:
		for k := range n.kinds {
			n.kinds[k] = scan.Kind(k) != scan.None
		}
		return
	case text[0] == '"':
		name, _ := get[string](c, s, "type", n.path)
		names = []string{name}
	default:
		names, _ = get[[]string](c, s, "type", n.path)
	}
	for _, name := range names {
		if name == "integer" {
			n.integer, n.kinds[scan.Number] = true, true
			continue
		}
		found := false
		for k := scan.Null; k <= scan.Object; k++ {
			if k.String() == name {
				n.kinds[k], found = true, true
			}
		}
		if !found {
			c.fail(n.path, "the type %q is not understood", name)
		}
	}
}

func (c *compiler) object(n *node, s raw, depth int) {
	properties, _ := get[map[string]raw](c, s, "properties", n.path)
	required, _ := get[[]string](c, s, "required", n.path)
	n.members = map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		n.members[name] = len(n.list)
		child := c.node(properties[name], strings.TrimPrefix(n.path+"."+name, "."), depth+1)
		n.list = append(n.list, member{name: name, n: child, required: slices.Contains(required, name)})
	}
	for _, name := range required {
		if _, ok := n.members[name]; !ok {
			c.fail(n.path, "%s is required and no property", name)
		}
		n.required++
	}
	if len(n.list) > maxMembers {
		c.fail(n.path, "over %d properties", maxMembers)
	}
	switch text := s["additionalProperties"]; string(text) {
	case "", "true":
	case "false":
		c.fail(n.path, "additionalProperties: false is not understood: fields may be added")
	default:
		rest, _ := get[raw](c, s, "additionalProperties", n.path)
		n.rest = c.node(rest, n.path+".*", depth+1)
	}
}

// values takes the scalars that a value must be one of, as they are written.
func (c *compiler) values(n *node, s raw) {
	list, _ := get[[]json.RawMessage](c, s, "enum", n.path)
	if one, ok := s["const"]; ok {
		list = append(list, one)
	}
	for _, v := range list {
		switch scan.New(v).Peek() {
		case scan.String:
			var text string
			_ = json.Unmarshal(v, &text) // it was read once already
			n.only = append(n.only, text)
		case scan.Number:
			n.only = append(n.only, string(v))
		case scan.None, scan.Null, scan.Bool, scan.Array, scan.Object:
			c.fail(n.path, "a choice of %s is not understood", v)
		}
	}
}
