package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/omnitap/omnitap/exporter/calibration"
	calibrations "github.com/omnitap/omnitap/exporter/calibration/schema"
	"github.com/omnitap/omnitap/exporter/compare"
	"github.com/omnitap/omnitap/exporter/compare/gate"
	"github.com/omnitap/omnitap/exporter/compare/schema"
	"github.com/omnitap/omnitap/exporter/stats"
)

var committed = map[string][]byte{"compare": schema.Comparison, "calibration": calibrations.Calibration}

// The committed schemas are those that the types give now.
func TestCommittedSchemas(t *testing.T) {
	for name, text := range committed {
		got, err := generate(forms[name])
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(text), string(got)); d != "" {
			t.Errorf("the schema of %s is old, `make schema` renews it (-committed +types):\n%s", name, d)
		}
	}
}

func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.json")
	if rc := run([]string{"calibration", file}); rc != 0 {
		t.Errorf("run = %d", rc)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != string(calibrations.Calibration) {
		t.Errorf("the file is another than the committed one, %v", err)
	}
	for want, args := range map[int][]string{1: {"compare", filepath.Join(file, "below")}, 2: {"verify", file}} {
		if rc := run(args); rc != want {
			t.Errorf("run %q = %d, want %d", args, rc, want)
		}
	}
}

// compiled is a schema, with unknown members refused where it is strict.
func compiled(t *testing.T, text []byte, strict bool) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if strict {
		for _, d := range document.(map[string]any)["$defs"].(map[string]any) {
			d.(map[string]any)["additionalProperties"] = false
		}
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("x.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := compiler.Compile("x.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(t *testing.T, s *jsonschema.Schema, v any) error {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(value)
}

// fill gives every exported part of a value something other than its zero; a number that
// can be unknown is so.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(t, v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0)) // the other is empty
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(t, value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), value)
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Uint64:
		v.SetUint(1)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	default:
		t.Fatalf("nothing fills a %v", v.Type())
	}
}

// What the types write fits the schemas, with everything there and with nothing: no member
// is missing, and none is there that the schema does not name.
func TestWrittenFormsFit(t *testing.T) {
	unknown := stats.Change{Estimate: math.NaN(), Interval: stats.Interval{Lo: math.NaN(), Hi: math.Inf(1)}}
	var full compare.Result
	fill(t, reflect.ValueOf(&full).Elem())
	full.Flows[0].Figures[0].Change = unknown
	full.Gates = append(full.Gates, gate.Outcome{Estimate: math.NaN(), Lo: math.NaN(), Hi: math.NaN()})
	full.Schema = version
	s := compiled(t, schema.Comparison, true)
	for name, r := range map[string]*compare.Result{"full": &full, "empty": {Schema: version}} {
		if err := validate(t, s, r); err != nil {
			t.Errorf("%s comparison: %v", name, err)
		}
	}
	var file calibration.File
	fill(t, reflect.ValueOf(&file).Elem())
	file.Schema, file.Result.Metrics[0].NoiseFloor = version, unknown
	file.Attempts[0].Blocks[0].Lag = stats.Summarize(nil)
	s = compiled(t, calibrations.Calibration, true)
	for name, f := range map[string]*calibration.File{"full": &file, "empty": {Schema: version}} {
		if err := validate(t, s, f); err != nil {
			t.Errorf("%s calibration: %v", name, err)
		}
	}
}

func TestSchemasRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		schema []byte
		value  map[string]any
		spoil  func(map[string]any)
	}{
		"another version":    {schema.Comparison, plain(t, compare.Result{Schema: version}), func(m map[string]any) { m["schema"] = 2 }},
		"no runs":            {schema.Comparison, plain(t, compare.Result{Schema: version}), func(m map[string]any) { delete(m, "runs") }},
		"a gate of null":     {schema.Comparison, plain(t, compare.Result{Schema: version}), func(m map[string]any) { m["gates"] = nil }},
		"no verdict":         {calibrations.Calibration, plain(t, calibration.File{Schema: version}), func(m map[string]any) { delete(m["result"].(map[string]any), "verdict") }},
		"a budget in words":  {calibrations.Calibration, plain(t, calibration.File{Schema: version}), func(m map[string]any) { m["config"].(map[string]any)["budget"] = "1%" }},
		"a block of nothing": {calibrations.Calibration, plain(t, calibration.File{Schema: version}), func(m map[string]any) { m["attempts"] = []any{nil} }},
	} {
		s := compiled(t, c.schema, false)
		c.value["added_later"] = true // is allowed
		if err := validate(t, s, c.value); err != nil {
			t.Errorf("%s: before: %v", name, err)
		}
		if c.spoil(c.value); validate(t, s, c.value) == nil {
			t.Errorf("%s: the schema accepts %v", name, c.value)
		}
	}
}

// plain is a value as JSON has it.
func plain(t *testing.T, v any) (m map[string]any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}
