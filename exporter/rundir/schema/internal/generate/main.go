// Command generate writes the JSON Schemas of requests.jsonl, sessions.jsonl,
// quality.jsonl and events.jsonl to the files that it is given.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/omnitap/omnitap/proxy/timeline"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) != len(lines) {
		fmt.Fprintln(os.Stderr, "usage: generate REQUESTS SESSIONS QUALITY EVENTS")
		return 2
	}
	for i, l := range lines {
		text, err := generate(l)
		if err == nil {
			err = os.WriteFile(args[i], text, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "generating the schema:", err)
			return 1
		}
	}
	return 0
}

// line is one file of lines: its name and the type of a line.
type line struct {
	file string
	of   reflect.Type
}

var lines = []line{
	{"requests.jsonl", reflect.TypeFor[timeline.Record]()},
	{"sessions.jsonl", reflect.TypeFor[timeline.Session]()},
	{"quality.jsonl", reflect.TypeFor[timeline.QualityLine]()},
	{"events.jsonl", reflect.TypeFor[timeline.Event]()},
}

// generate returns a schema as it is committed.
func generate(l line) ([]byte, error) {
	record := l.of
	reflector := jsonschema.Reflector{
		Anonymous:                 true, // no $id: nothing is served at an address
		AllowAdditionalProperties: true, // fields may be added within `schema: 1`
		Mapper:                    enumerate,
	}
	s := reflector.ReflectFromType(record)
	s.Title = "omnitap " + l.file + ", one line"
	s.Description = "A value that was not measured is null, and its dotted name is a key of unmeasured with the reason."
	if record == reflect.TypeFor[timeline.Event]() {
		s.Description = "What does not apply to an event is null, or left out. The words of event, and which keys each has, stand in README.md."
	}
	for _, t := range structs(record, nil) {
		definition, ok := s.Definitions[t.Name()]
		if scalar(t) {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("type %s has no definition", t.Name())
		}
		allowNull(definition, t)
	}
	if version, ok := s.Definitions[record.Name()].Properties.Get("schema"); ok {
		version.Const = timeline.Schema
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

// scalar reports whether a struct type is one value in JSON.
func scalar(t reflect.Type) bool { return t == reflect.TypeFor[timeline.Number]() }

// enumerate gives the types that have a fixed set of values, and those that write
// themselves.
func enumerate(t reflect.Type) *jsonschema.Schema {
	switch {
	case scalar(t):
		return orNull(&jsonschema.Schema{Type: "integer"})
	case t == reflect.TypeFor[timeline.Text]():
		return orNull(&jsonschema.Schema{Type: "string"})
	}
	if t != reflect.TypeFor[timeline.State]() {
		return nil
	}
	s := &jsonschema.Schema{Type: "string"}
	for _, state := range timeline.States() {
		s.Enum = append(s.Enum, state)
	}
	return s
}

// structs lists t's struct types, itself first and each once.
func structs(t reflect.Type, found []reflect.Type) []reflect.Type {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return structs(t.Elem(), found)
	case reflect.Struct:
	default:
		return found
	}
	if slices.Contains(found, t) {
		return found
	}
	found = append(found, t)
	for field := range t.Fields() {
		if memberName(field) != "-" {
			found = structs(field.Type, found)
		}
	}
	return found
}

// allowNull lets the members be null that encoding/json can write as null, which
// the reflector leaves out.
func allowNull(definition *jsonschema.Schema, t reflect.Type) {
	for field := range t.Fields() {
		switch field.Type.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			name := memberName(field)
			if property, ok := definition.Properties.Get(name); ok {
				definition.Properties.Set(name, orNull(property))
			}
		default:
		}
	}
}

func orNull(s *jsonschema.Schema) *jsonschema.Schema {
	if s.Type == "" {
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{s, {Type: "null"}}}
	}
	// The library's Type holds one name only.
	s.Extras = map[string]any{"type": []string{s.Type, "null"}}
	s.Type = ""
	return s
}

// memberName is the name that encoding/json gives a field.
func memberName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" {
		return f.Name
	}
	return name
}
