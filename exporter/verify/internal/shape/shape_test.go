package shape_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/rundir/schema"
	"github.com/omnitap/omnitap/exporter/verify/internal/shape"
	"github.com/omnitap/omnitap/proxy/timeline"
)

func compile(tb testing.TB, text []byte) *shape.Checker {
	tb.Helper()
	c, err := shape.Compile(text)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// library compiles a schema with the library that everybody uses.
func library(tb testing.TB, text []byte) *jsonschema.Schema {
	tb.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		tb.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("x.json", document); err != nil {
		tb.Fatal(err)
	}
	s, err := c.Compile("x.json")
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func record(tb testing.TB) []byte {
	tb.Helper()
	one, text := int64(7), "x"
	r := timeline.Record{
		Schema: 1, RequestID: "a", Points: timeline.Points{TIn: &one}, Audio: &timeline.Audio{Container: &text}, Model: &text,
		Terminal: timeline.Terminal{State: timeline.Success, Evidence: map[string]any{"status": 200}},
		Stages:   []timeline.Stage{{Stage: "thinker", GPU: map[string]any{"syncs": 1}}, {Stage: "talker"}},
		Playback: &timeline.Playback{Continuity: map[string]bool{"0": true}}, Unmeasured: map[string]string{"turn": "none"},
	}
	line, err := rundir.AppendRecord(nil, &r)
	if err != nil {
		tb.Fatal(err)
	}
	return line
}

func TestSchemasCompile(t *testing.T) {
	for name, text := range map[string][]byte{"requests": schema.Requests, "sessions": schema.Sessions, "quality": schema.Quality} {
		if paths := compile(t, text).Paths(); len(paths) < 5 {
			t.Errorf("%s has the places %v", name, paths)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"object","minProperties":1}`:                     `"minProperties" is not understood`,
		`{"$ref":"#/$defs/A","$defs":{"A":{"$ref":"#/$defs/A"}}}`: "hold themselves",
		`{"$ref":"#/$defs/B"}`:                                    "is not there",
		`{"type":"text"}`:                                         `type "text"`,
		`{"type":7}`:                                              "type",
		`{"anyOf":[{"type":"string"},{"type":"number"}]}`:         "something or null",
		`{"enum":[{}]}`:                                           "a choice of {}",
		`{"additionalProperties":false}`:                          "fields may be added",
		`{"properties":{"a":true}}`:                               "properties",
		`{"required":["a"]}`:                                      "no property",
		`{`:                                                       "reading a schema",
		`{"properties":{"a":{"properties":{"b":{"maximum":1}}}}}`: `a.b: the keyword "maximum"`,
		`{"properties":{` + many(130) + `}}`:                      "over 128",
	} {
		if _, err := shape.Compile([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Compile(%.60s) = %v, want %q", text, err, want)
		}
	}
}

func many(n int) string {
	var out []string
	for i := range n {
		out = append(out, `"`+strings.Repeat("x", i+1)+`":{}`)
	}
	return strings.Join(out, ",")
}

func TestCheck(t *testing.T) {
	good := string(record(t))
	cases := map[string]struct{ from, to, path, text string }{
		"good":              {"", "", "", ""},
		"added":             {`{"schema":1`, `{"new":[{"x":1}],"schema":1`, "", ""},
		"another schema":    {`"schema":1`, `"schema":2`, "schema", "2, want 1"},
		"twice":             {`"request_id":"a",`, `"request_id":"a","request_id":"b",`, "", "request_id stands there twice"},
		"another case":      {`"request_id":"a",`, `"request_id":"a","Request_ID":"b",`, "", "Request_ID is request_id but for its case"},
		"text for a number": {`"t_in":7`, `"t_in":"7"`, "points.t_in", "string, want null or integer"},
		"a fraction":        {`"t_in":7`, `"t_in":7.5`, "points.t_in", "7.5, want an integer"},
		"a whole float":     {`"t_in":7`, `"t_in":7.0e0`, "", ""},
		"unknown state":     {`"state":"success"`, `"state":"melted"`, "terminal.state", "melted, want success or"},
		"in a list":         {`"stage":"talker"`, `"stage":null`, "stages[].stage", "null, want string"},
		"in a map":          {`"turn":"none"`, `"turn":1`, "unmeasured.*", "number, want string"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			line := strings.Replace(good, c.from, c.to, 1)
			if line == good && c.from != "" {
				t.Fatal("the case changes nothing")
			}
			err := compile(t, schema.Requests).Check([]byte(line), 1)
			bad, _ := errors.AsType[*shape.Error](err)
			if c.text == "" && err != nil || c.text != "" && (bad == nil || bad.Path != c.path || !strings.Contains(bad.Text, c.text)) {
				t.Errorf("Check = %v, want %s: %s", err, c.path, c.text)
			}
		})
	}
	if err := compile(t, schema.Requests).Check([]byte(good[:len(good)-1]), 1); err == nil || errors.As(err, new(*shape.Error)) {
		t.Errorf("Check of a cut line = %v, want an error of the text", err)
	}
}

func TestPresent(t *testing.T) {
	c := compile(t, schema.Requests)
	for range 3 {
		if err := c.Check(record(t), 1); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]int64{
		"points.t_in": 3, "points.t_hdr": 0, "offsets.t_in": 0, "stages[].stage": 6, "stages[].cpu_ms": 0, "model": 3, "no.such": 0,
		"unmeasured.*": 3,
	} {
		if got := c.Present(path); got != want {
			t.Errorf("Present(%s) = %d, want %d", path, got, want)
		}
	}
}

func lacked(c *shape.Checker) (n int64) {
	for _, l := range c.Lacking() {
		n += l.Lacked
	}
	return n
}

// A member that no line has was added later; one that some have was taken out.
func TestLacking(t *testing.T) {
	c := compile(t, schema.Requests)
	good := string(record(t))
	for n, line := range []string{
		good,
		strings.Replace(good, `"request_id":"a",`, ``, 1),
		strings.Replace(strings.Replace(good, `"t_hdr":null,`, ``, 2), `"request_id":"a",`, ``, 1),
	} {
		if err := c.Check([]byte(line), n+1); err != nil {
			t.Fatal(err)
		}
	}
	want := []shape.Lack{{"request_id", 1, 2, 2}, {"points.t_hdr", 2, 1, 3}, {"offsets.t_hdr", 2, 1, 3}}
	sort := cmpopts.SortSlices(func(a, b shape.Lack) bool { return a.Path < b.Path })
	if d := cmp.Diff(want, c.Lacking(), sort); d != "" {
		t.Error(d)
	}
}

// huge is an exponent that the library reckons with for ever.
var huge = regexp.MustCompile(`[eE][+-]?\d{4}`)

// Whatever the bytes, the verdict is the library's.
func FuzzAgreesWithTheLibrary(f *testing.F) {
	f.Add(record(f))
	f.Add([]byte(`{"schema":1.0,"request_id":null}`))
	f.Add([]byte(`[]`))
	lib, own := library(f, schema.Requests), compile(f, schema.Requests)
	f.Fuzz(func(t *testing.T, line []byte) {
		if huge.Match(line) {
			t.Skip("a number that the library reads with other limits")
		}
		before := lacked(own)
		got := own.Check(line, 1)
		if got == nil && lacked(own) > before {
			got = errors.New("a member is missing")
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
		if err != nil {
			if got == nil {
				t.Errorf("%q is no JSON for the library: %v", line, err)
			}
			return
		}
		if got != nil && (strings.Contains(got.Error(), "stands there twice") || strings.Contains(got.Error(), "but for its case") || !json.Valid(line)) {
			return
		}
		if want := lib.Validate(value); (got == nil) != (want == nil) {
			t.Errorf("%q: %v, the library says %v", line, got, want)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	line, c := record(b), compile(b, schema.Requests)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if err := c.Check(line, 1); err != nil {
			b.Fatal(err)
		}
	}
}
