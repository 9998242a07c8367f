package schema_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/rundir/schema"
	"github.com/omnitap/omnitap/proxy/timeline"
)

func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema.Requests))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("requests.schema.json", document); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("requests.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func validate(t *testing.T, s *jsonschema.Schema, line string) error {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(value)
}

// fill gives every part of a value something other than its zero.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(t, field)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(t, value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), value)
	case reflect.Interface:
		v.Set(reflect.ValueOf("anything"))
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Uint64:
		v.SetUint(1)
	default:
		v.SetInt(1)
	}
}

func line(t *testing.T, r *timeline.Record) string {
	t.Helper()
	text, err := rundir.AppendRecord(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A record with nothing measured and one with everything: between them every
// field is there as a value and, where it can be, as null.
func TestRecordsFitTheSchema(t *testing.T) {
	s := compile(t)
	var full timeline.Record
	fill(t, reflect.ValueOf(&full).Elem())
	full.Schema, full.Terminal.State = timeline.Schema, timeline.Success
	empty := timeline.Record{Schema: timeline.Schema, Terminal: timeline.Terminal{State: timeline.WorkerLost}}
	for name, r := range map[string]*timeline.Record{"full": &full, "empty": &empty} {
		if err := validate(t, s, line(t, r)); err != nil {
			t.Errorf("%s record: %v", name, err)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	s := compile(t)
	good := timeline.Record{Schema: timeline.Schema, Terminal: timeline.Terminal{State: timeline.Success}}
	cases := map[string]func(map[string]any){
		"other schema":     func(m map[string]any) { m["schema"] = 2 },
		"missing point":    func(m map[string]any) { delete(m["points"].(map[string]any), "t_in") },
		"missing jct_ms":   func(m map[string]any) { delete(m, "jct_ms") },
		"null request_id":  func(m map[string]any) { m["request_id"] = nil },
		"text for a float": func(m map[string]any) { m["ttft_ms"] = "12" },
		"fractional ns":    func(m map[string]any) { m["t_in_wall_ns"] = 1.5 },
		"unknown state":    func(m map[string]any) { m["terminal"].(map[string]any)["state"] = "melted" },
	}
	for name, spoil := range cases {
		t.Run(name, func(t *testing.T) {
			var m map[string]any
			if err := json.Unmarshal([]byte(line(t, &good)), &m); err != nil {
				t.Fatal(err)
			}
			m["added_later"] = true // is allowed
			before, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if err := validate(t, s, string(before)); err != nil {
				t.Fatalf("before: %v", err)
			}
			spoil(m)
			after, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if err := validate(t, s, string(after)); err == nil {
				t.Errorf("the schema accepts %s", after)
			}
		})
	}
}
