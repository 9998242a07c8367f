package reconcile

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

func TestReadGenerator(t *testing.T) {
	g := readFile(t, "testdata/vllm-omni/bench.json")
	if g.Tool != "vllm bench serve" || g.Backend != "openai-chat-omni" || *g.Completed != 6 || *g.Failed != 0 || len(g.Requests) != 6 || g.Clock != Monotonic {
		t.Errorf("the result is %+v", g)
	}
	if x := g.Requests[0]; x.StartNS != 3654874989681 || !near(*x.TTFTMS, 123.477) {
		t.Errorf("its first request is %+v", x)
	}
	if f := g.Figures[TTFA]; !near(*f.Mean, 895.745) || !near(f.Percentiles[50], 870.086) || !near(f.Percentiles[99], 1232.649) {
		t.Errorf("its AUDIO_TTFP is %+v", f)
	}
	if f := g.Figures[AudioS]; !near(*f.Total, 16.82125) {
		t.Errorf("its sound is %+v", f)
	}
	if g := readFile(t, "testdata/vllm-plain/bench.json"); len(g.Problems) != 1 || !g.Reading.FirstEvent || len(g.Figures) != 2 {
		t.Errorf("the plain client is %+v", g)
	}
}

func TestReadGeneratorBad(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":         {"", "EOF"},
		"text":          {"Serving Benchmark Result", "invalid character"},
		"another":       {`{"a":1}`, ErrUnknownFile.Error()},
		"cut short":     {`{"completed":1,"duration":1`, "EOF"},
		"two results":   {`{"completed":1,"duration":1}` + "\n" + `{"completed":1,"duration":1}`, "several results"},
		"other types":   {`{"completed":"six","duration":1}`, "cannot unmarshal"},
		"only warm-up":  {`{"metadata":{"benchmark_phase":"warmup"},"metrics":{}}`, "none of the measured phase"},
		"an array":      {`[1]`, "cannot unmarshal"},
		"finite inside": {`{"a":"NaN"}`, ErrUnknownFile.Error()},
	} {
		if _, err := ReadGenerator(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	g, err := ReadGenerator(strings.NewReader(`{"completed":2,"duration":1,"failed":1,"mean_ttft_ms":NaN,"mean_e2el_ms":-Infinity,"start_times":[1,2],"ttfts":[1],"errors":["",""]}`))
	if err != nil || len(g.Requests) != 0 || len(g.Problems) != 1 || g.Figures[TTFT].Mean != nil {
		t.Errorf("lists of different lengths: %+v, %v", g, err)
	}
	g, err = ReadGenerator(strings.NewReader(`{"metadata":{"x_request_id":"a","benchmark_phase":"profiling"},"metrics":{"time_to_first_token":{"value":5,"unit":"parsec"},"request_latency":{"value":2000000,"unit":"ns"}}}` +
		"\n\n{cut\n" + `{"metadata":{"x_request_id":"b","benchmark_phase":"profiling"},"metrics":{},"error":{"code":500}}`))
	if err != nil || len(g.Requests) != 2 || g.Requests[0].TTFTMS != nil || *g.Requests[0].JCTMS != 2 || *g.Failed != 1 || len(g.Problems) != 1 {
		t.Errorf("records with faults: %+v, %v", g, err)
	}
	if _, err := ReadGenerator(failingReader{}); !errors.Is(err, errRead) {
		t.Errorf("a reader's error becomes %v", err)
	}
}

var errRead = errors.New("no disk")

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errRead }

func TestFinite(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":NaN,"b":[-Infinity,Infinity,1]}`: `{"a":null,"b":[null,null,1]}`,
		`{"a":"NaN \" Infinity","b":NaN}`:      `{"a":"NaN \" Infinity","b":null}`,
		`{"a":"\\","b":NaN}`:                   `{"a":"\\","b":null}`,
		`{"NaN":1}`:                            `{"NaN":1}`,
	} {
		if got := string(finite([]byte(in))); got != want {
			t.Errorf("finite(%s) = %s, want %s", in, got, want)
		}
	}
}

// FuzzReadGenerator: whatever it is, it is refused or gives a table.
func FuzzReadGenerator(f *testing.F) {
	for _, name := range []string{"vllm-omni/bench.json", "vllm-plain/bench.json"} {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"metadata":{"x_request_id":"r1","request_start_ns":1000000011000000000,"benchmark_phase":"profiling"},"metrics":{"time_to_first_token":{"value":3,"unit":"ms"},"request_latency":{"value":9,"unit":"ms"}}}`))
	f.Add([]byte(`{"request_count":{"avg":3},"request_latency":{"unit":"ms","avg":3,"p99":4,"":1}}`))
	records := wireOf(many(3, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := ReadGenerator(bytes.NewReader(data))
		if err != nil {
			return
		}
		r := Table(Input{Records: records, Generator: g})
		var b bytes.Buffer
		if err := r.WriteJSON(&b); err != nil || !json.Valid(b.Bytes()) {
			t.Fatalf("the table cannot be written: %v", err)
		}
		if err := r.Render(&b); err != nil {
			t.Fatal(err)
		}
	})
}
