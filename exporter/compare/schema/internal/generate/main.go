// Command generate writes the JSON Schema of a comparison, or of calibration.json, to a
// file.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/omnitap/omnitap/exporter/calibration"
	"github.com/omnitap/omnitap/exporter/compare"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) != 2 || forms[args[0]].of == nil {
		fmt.Fprintln(os.Stderr, "usage: generate compare|calibration FILE")
		return 2
	}
	text, err := generate(forms[args[0]])
	if err == nil {
		err = os.WriteFile(args[1], text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generating the schema:", err)
		return 1
	}
	return 0
}

// form is what has a schema.
type form struct {
	title string
	of    reflect.Type
}

var forms = map[string]form{
	"compare":     {"omnitap compare --json", reflect.TypeFor[compare.Result]()},
	"calibration": {"omnitap calibration.json", reflect.TypeFor[calibration.File]()},
}

// version is that of both forms: their member schema.
const version = 1

// generate returns a schema as it is committed.
func generate(f form) ([]byte, error) {
	s := reflected(f.of)
	s.Title = f.title
	s.Description = "A number that is not known is null, and what stands beside it says why."
	seen := map[string]reflect.Type{}
	for _, t := range structs(f.of, nil) {
		if other, twice := seen[t.Name()]; twice {
			return nil, fmt.Errorf("two types have one name: %v and %v", other, t)
		}
		seen[t.Name()] = t
		definition, ok := s.Definitions[t.Name()]
		if !ok {
			definition = reflected(t).Definitions[t.Name()]
			s.Definitions[t.Name()] = definition
		}
		allowNull(definition, t)
	}
	if property, ok := s.Definitions[f.of.Name()].Properties.Get("schema"); ok {
		property.Const = version
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

func reflected(t reflect.Type) *jsonschema.Schema {
	r := jsonschema.Reflector{
		Anonymous:                 true, // no $id: nothing is served at an address
		AllowAdditionalProperties: true, // fields may be added within `schema: 1`
		Mapper:                    written,
	}
	return r.ReflectFromType(t)
}

// written names the definition of a type that writes itself in another form.
func written(t reflect.Type) *jsonschema.Schema {
	if w, ok := wire[t]; ok {
		return &jsonschema.Schema{Ref: "#/$defs/" + w.Name()}
	}
	return nil
}

// structs lists the struct types that t is written with, itself first and each once. What
// is embedded is no type of its own in JSON.
func structs(t reflect.Type, found []reflect.Type) []reflect.Type {
	if w, ok := wire[t]; ok {
		t = w
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return structs(t.Elem(), found)
	case reflect.Struct:
	default:
		return found
	}
	if slices.Contains(found, t) {
		return found
	}
	found = append(found, t)
	for _, field := range reflect.VisibleFields(t) {
		if member(t, field) {
			found = structs(field.Type, found)
		}
	}
	return found
}

// member says whether a field is one of t's own members in JSON.
func member(t reflect.Type, f reflect.StructField) bool {
	if !f.IsExported() || f.Anonymous || memberName(f) == "-" {
		return false
	}
	got, ok := t.FieldByName(f.Name) // not what another one hides
	return ok && len(got.Index) == len(f.Index)
}

// allowNull lets the members and items be null that encoding/json can write as null, which
// the reflector leaves out. Who is left out where it is empty is never null.
func allowNull(definition *jsonschema.Schema, t reflect.Type) {
	for _, field := range reflect.VisibleFields(t) {
		property, ok := definition.Properties.Get(memberName(field))
		if !ok || !member(t, field) {
			continue
		}
		if field.Type.Kind() == reflect.Slice && nilable(field.Type.Elem()) {
			property.Items = orNull(property.Items)
		}
		if nilable(field.Type) && !strings.Contains(field.Tag.Get("json"), ",omitempty") {
			definition.Properties.Set(memberName(field), orNull(property))
		}
	}
}

func nilable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return true
	default:
		return false
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
