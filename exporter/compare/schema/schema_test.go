package schema

import (
	"bytes"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestSchema: the schema takes a comparison as it is printed, and refuses what is none.
// That it is what the types give now is held by the generator's tests.
func TestSchema(t *testing.T) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(Comparison))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../testdata/shorter.json")
	if err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func(map[string]any){
		"":          func(map[string]any) {},
		"no schema": func(m map[string]any) { delete(m, "schema") },
		"a word":    func(m map[string]any) { m["schema"] = "one" },
		"no order":  func(m map[string]any) { delete(m, "order") },
	} {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		change(value.(map[string]any))
		if err := s.Validate(value); (err == nil) != (says == "") {
			t.Errorf("%q: %v", says, err)
		}
	}
}
