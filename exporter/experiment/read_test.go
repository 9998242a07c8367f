package experiment

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/omnitap/omnitap/exporter/calibration"
	"github.com/omnitap/omnitap/exporter/compare/gate"
)

const least = "question: q\nprimary: ttfa_p95\nworkload: {reference: r}\n"

var ignoreSource = cmpopts.IgnoreUnexported(Experiment{})

func TestDefaults(t *testing.T) {
	e, err := Read(strings.NewReader(least))
	if err != nil {
		t.Fatal(err)
	}
	want := Experiment{
		Question: "q", Primary: "ttfa_p95", Workload: Workload{Reference: "r", Concurrency: 4}, ForeignCoresLimit: 2, Runs: 4, Stop: Stop{After: 20},
		Calibration: Calibration{Budget: 0.01, OnOver: "stop", Blocks: 32, Requests: 32},
	}
	if d := cmp.Diff(want, e, ignoreSource); d != "" {
		t.Error(d)
	}
	if got, want := e.Exploratory(), []string{"invariants", "allowed_failure_rate", "slo", "stop"}; !slices.Equal(got, want) {
		t.Errorf("exploratory %v, want %v", got, want)
	}
	if d := Default(); d.Validate() == nil || d.SHA256() != "" || d.Source() != nil || len(d.Exploratory()) != 7 {
		t.Errorf("the default asks something: %+v", d)
	}
	// A null is a key without a value.
	e, err = Parse([]byte(least + "calibration:\nslo: ~\ninvariants: null\nforeign_cores_limit:\ndeadline: ~\n"))
	if d := cmp.Diff(want, e, ignoreSource); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
}

const full = `
question: "is it faster?"
primary: jct_p99
invariants: [finite, twin_length]
allowed_failure_rate: 0.02
slo: {ttft_ms: 1, ttfa_ms: 2, ttfaudible_ms: 3, jct_ms: 4, rtf: 0.5, tpot_ms: 6, audio_gap_ms: 7, underruns: 0, stall_ms: 0}
stop: {requests: 10, duration: 5m, failure_rate: 0, after: 5, worker_lost: true, contaminated: true}
workload:
  reference: a file
  sha256: ` + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" + `
  captures: [a, b/c]
  times: [0s, 10ms, 10ms]
  seed: 18446744073709551615
  timeout: 1m30s
warmup: {requests: 3, duration: 1s}
measured: {requests: 4, duration: 2s}
deadline: 500ms
foreign_cores_limit: 0.5
calibration: {off: true, budget: 0.5, on_over: report, max_duration: 1m, blocks: 8, requests: 1}
variants:
  - {name: a, command: [serve, --max-tokens, "8"]}
  - {name: b.2, env: {N: 4}}
runs: 2
`

func TestEveryKey(t *testing.T) {
	e, err := Read(iotest.OneByteReader(strings.NewReader(full)))
	if err != nil {
		t.Fatal(err)
	}
	f := func(v float64) *float64 { return &v }
	want := Experiment{
		Question: "is it faster?", Primary: "jct_p99", Invariants: []string{"finite", "twin_length"}, AllowedFailureRate: 0.02,
		SLO:  SLO{f(1), f(2), f(3), f(4), f(0.5), f(6), f(7), new(0), f(0)},
		Stop: Stop{10, 5 * time.Minute, f(0), 5, true, true},
		Workload: Workload{
			Reference: "a file", SHA256: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", Captures: []string{"a", "b/c"},
			Times: []time.Duration{0, 10 * time.Millisecond, 10 * time.Millisecond}, Seed: math.MaxUint64, Timeout: 90 * time.Second,
		},
		Warmup: Phase{3, time.Second}, Measured: Phase{4, 2 * time.Second}, Deadline: 500 * time.Millisecond, ForeignCoresLimit: 0.5,
		Calibration: Calibration{true, 0.5, "report", time.Minute, 8, 1},
		Variants:    []Variant{{Name: "a", Command: []string{"serve", "--max-tokens", "8"}}, {Name: "b.2", Env: map[string]string{"N": "4"}}}, Runs: 2,
	}
	if d := cmp.Diff(want, e, ignoreSource); d != "" {
		t.Error(d)
	}
	for _, key := range keysOf(reflect.TypeFor[Experiment](), "") { // the test is of every key
		if v := valueOf(reflect.ValueOf(e), key); v.IsZero() && key != "workload.concurrency" && key != "workload.rate" {
			t.Errorf("%s is not tried", key)
		}
	}
	if len(e.Exploratory()) != 0 {
		t.Errorf("exploratory: %v", e.Exploratory())
	}
	sum := sha256.Sum256([]byte(full))
	if e.SHA256() != hex.EncodeToString(sum[:]) || string(e.Source()) != full {
		t.Errorf("hash %s of %q", e.SHA256(), e.Source())
	}
	if other, err := Parse([]byte(full + "# a comment\n")); err != nil || other.SHA256() == e.SHA256() {
		t.Errorf("a changed file has the same hash (%v)", err)
	}
}

// keysOf lists the keys of a struct with dots; those of a list's elements as of a struct.
func keysOf(t reflect.Type, prefix string) (keys []string) {
	for f := range t.Fields() {
		key, ok := f.Tag.Lookup("yaml")
		if !ok {
			continue
		}
		if key = prefix + key; f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct {
			keys = append(append(keys, key), keysOf(f.Type.Elem(), key+".")...)
		} else if f.Type.Kind() == reflect.Struct {
			keys = append(keys, keysOf(f.Type, key+".")...)
		} else {
			keys = append(keys, key)
		}
	}
	return keys
}

// valueOf is a key's value, of a list the first that has one.
func valueOf(v reflect.Value, key string) reflect.Value {
	for name := range strings.SplitSeq(key, ".") {
		if v.Kind() == reflect.Slice {
			var found reflect.Value
			for i := range v.Len() {
				if found = valueOf(v.Index(i), name); !found.IsZero() {
					break
				}
			}
			return found
		}
		for f := range v.Type().Fields() {
			if f.Tag.Get("yaml") == name {
				v = v.FieldByIndex(f.Index)
				break
			}
		}
	}
	return v
}

// TestReadme: the table has every key, and no other.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		if cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok && strings.HasPrefix(line, "| `") {
			for _, m := range regexp.MustCompile("`([a-z0-9_.]+)`").FindAllStringSubmatch(cell, -1) {
				got = append(got, m[1])
			}
		}
	}
	want := keysOf(reflect.TypeFor[Experiment](), "")
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-code +README)\n%s", d)
	}
}

// TestRefused: each with the line where it stands.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "empty"},
		{"# nothing\n", "empty"},
		{"---\n", "want keys and values"},
		{"- a\n", "line 1: want keys and values"},
		{"hello\n", "line 1: want keys and values"},
		{least + "---\nquestion: r\n", "second document"},
		{least + "priority: 1\n", "line 4: unknown key priority"},
		{least + "slo:\n  ttfa: 3\n", "line 5: unknown key ttfa"},
		{least + "slo: {ttfa_ms: 3}\nstop: {bad: 1, worse: 2}\n", "line 5: unknown key bad; line 5: unknown key worse"},
		{least + "a: 1\nb: 1\nc: 1\nd: 1\ne: 1\nf: 1\ng: 1\n", "line 8: unknown key e; and 2 more"},
		{least + "question: again\n", "line 4: mapping key"},
		{least + "slo: {ttfa_ms: fast}\n", "line 4: cannot unmarshal"},
		{least + "deadline: 10\n", "line 4: cannot unmarshal"}, // nanoseconds, by chance
		{least + "slo: {underruns: 1.5}\n", "line 4: want a whole number, not 1.5"},
		{least + "runs: 2.9\nstop: {after: 1e1}\n", "line 4: want a whole number, not 2.9; line 5: want a whole number, not 1e1"},
		{"question: &q 2.5\nprimary: ttfa_p95\nworkload: {reference: r}\nruns: *q\n", "want a whole number"},
		{"question: q\nprimary: ttfa_p95\nworkload: {reference: r, seed: 1.5}\n", "line 3: want a whole number"},
		{least + "a: [\n", "line 4"},
		{"\tquestion: q\n", "cannot start any token"},
		{least + "runs: &a [*a]\n", "line 4"},

		{"primary: ttfa_p95\nworkload: {reference: r}\n", "question is missing"},
		{"question: ' '\nprimary: ttfa_p95\nworkload: {reference: r}\n", "line 1: question is missing"},
		{"question: q\nprimary: ttfa_p95\n", "workload.reference is missing"},
		{"question: q\nprimary: ttfa_p95\nworkload:\n  seed: 1\n", "line 3: workload.reference is missing"},
		{"question: q\nworkload: {reference: r}\n", `primary is ""`},
		{"question: q\nprimary: ttfa\nworkload: {reference: r}\n", "line 2: primary is \"ttfa\": want ttfa_p50"},
		{"question: q\nprimary: ttfa_p42\nworkload: {reference: r}\n", "line 2: primary"},
		{"question: q\nprimary: ttfa_mean\nworkload: {reference: r}\n", "line 2: primary"},
		{"question: q\nprimary: tpot_p50\nworkload: {reference: r}\n", "line 2: primary"},
		{"question: q\nprimary: throughput_p50\nworkload: {reference: r}\n", "has no percentiles"},
		{"question: q\nprimary: goodput\nworkload: {reference: r}\n", "needs an slo"},
		{least + "invariants: [loud]\n", `line 4: invariants has "loud", which is no check`},
		{least + "invariants: [finite, finite]\n", `"finite" twice`},
		{least + "allowed_failure_rate: 1.1\n", "line 4: allowed_failure_rate"},
		{least + "allowed_failure_rate: -0.1\n", "allowed_failure_rate"},
		{least + "allowed_failure_rate: .nan\n", "allowed_failure_rate"},
		{least + "deadline: -1s\n", "deadline"},
		{least + "foreign_cores_limit: 0\n", "foreign_cores_limit"},
		{least + "foreign_cores_limit: .inf\n", "foreign_cores_limit"},
		{least + "slo:\n  rtf: 1\n  ttfa_ms: 0\n", "line 6: slo.ttfa_ms"},
		{least + "slo: {rtf: .nan}\n", "slo.rtf"},
		{least + "slo: {jct_ms: .inf}\n", "slo.jct_ms"},
		{least + "slo: {underruns: -1}\n", "slo.underruns"},
		{least + "slo: {stall_ms: -1}\n", "slo.stall_ms"},
		{least + "stop: {requests: -1}\n", "stop.requests"},
		{least + "stop: {duration: -1s}\n", "stop.duration"},
		{least + "stop: {failure_rate: 2}\n", "stop.failure_rate"},
		{least + "stop: {failure_rate: .nan}\n", "stop.failure_rate"},
		{least + "stop: {after: 0}\n", "stop.after"},
		{least + "warmup: {requests: -1}\n", "warmup.requests"},
		{least + "measured: {duration: -1ns}\n", "measured.duration"},
		{least + "calibration: {budget: 0}\n", "calibration.budget"},
		{least + "calibration: {budget: .nan}\n", "calibration.budget"},
		{least + "calibration: {budget: 1}\n", "calibration.budget"},
		{least + "calibration: {on_over: pray}\n", "calibration.on_over"},
		{least + "calibration: {max_duration: -1s}\n", "calibration.max_duration"},
		{least + "calibration: {blocks: 9}\n", "calibration.blocks"},
		{least + "calibration: {blocks: 6}\n", "calibration.blocks"},
		{least + "calibration: {requests: 0}\n", "calibration.requests"},
		{least + "runs: 0\n", "runs must"},
		{least + "variants: [{name: a, env: {A: b}}]\n", "one alone"},
		{least + "variants: [{name: a, env: {A: b}}, {name: a, env: {A: b}}]\n", `two that are called "a"`},
		{least + "variants: [{name: a, env: {A: b}}, {name: a/b, env: {A: b}}]\n", "a name of other than"},
		{least + "variants: [{name: a, env: {A: b}}, {name: b}]\n", "neither command nor env"},
		{least + "variants: [{name: a, env: {A: b}}, {name: b, env: {'A=': b}}]\n", "that cannot be"},
	} {
		e, err := Parse([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want something about %q", c.text, err, c.want)
		}
		if d := cmp.Diff(Experiment{}, e, ignoreSource); d != "" {
			t.Errorf("%q: something is left: %s", c.text, d)
		}
	}
	work := func(keys string) string {
		return "question: q\nprimary: ttfa_p95\nworkload: {reference: r, " + keys + "}\n"
	}
	for keys, want := range map[string]string{
		"concurrency: -1": "workload.concurrency", "concurrency: 5000": "workload.concurrency", "rate: -1": "workload.rate", "rate: .nan": "workload.rate",
		"rate: .inf": "workload.rate", "concurrency: 1, rate: 1": "exactly one", "times: [1s, 0s]": "ascending", "times: [-1s]": "ascending", "timeout: -1s": "workload.timeout",
		"sha256: ABC": "workload.sha256", "captures: ['']": "workload.captures", "seed: -1": "cannot unmarshal",
	} {
		if _, err := Parse([]byte(work(keys))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want something about %q", keys, err, want)
		}
	}
	if _, err := Parse([]byte(least + strings.Repeat("# filler\n", maxFile/8))); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("long: %v", err)
	}
	if _, err := Read(iotest.ErrReader(errors.New("disk"))); err == nil || !strings.Contains(err.Error(), "disk") {
		t.Errorf("unreadable: %v", err)
	}
}

// TestAllComplaints: a user sees them at once.
func TestAllComplaints(t *testing.T) {
	_, err := Parse([]byte(least + "runs: 0\nforeign_cores_limit: -1\n"))
	if err == nil || len(strings.Split(err.Error(), "\n")) != 2 {
		t.Errorf("%v", err)
	}
}

// TestSecretsAreRefused, and not repeated: the file is stored with the run.
func TestSecretsAreRefused(t *testing.T) {
	for _, keys := range []string{
		"variants: [{name: a, command: [serve, --api-key, sk-0123456789]}, {name: b, command: [serve]}]",
		"variants: [{name: a, command: [serve, '--api-key=sk-0123456789']}, {name: b, command: [serve]}]",
		"variants: [{name: a, env: {HF_TOKEN: sk-0123456789}}, {name: b, command: [serve]}]",
		"variants: [{name: a, env: {PROXY: 'http://u:sk-0123456789@h'}}, {name: b, command: [serve]}]",
	} {
		if _, err := Parse([]byte(least + keys)); err == nil || !strings.Contains(err.Error(), "line 4: variants") || !strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sk-") {
			t.Errorf("%s: %v", keys, err)
		}
	}
	if _, err := Parse([]byte(strings.Replace(least, "reference: r", "reference: 'curl -H \"Authorization: Bearer sk-0123456789\"'", 1))); err == nil || !strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sk-") {
		t.Errorf("reference: %v", err)
	}
	if _, err := Parse([]byte(least + "variants: [{name: a, env: {TOKENIZER: x}}, {name: b, command: [serve, --max-tokens, '8', --port, '1']}]")); err != nil {
		t.Errorf("no secret: %v", err)
	}
}

func TestOrder(t *testing.T) {
	e := Experiment{Runs: 3, Variants: make([]Variant, 2)}
	if got, want := e.Order(), []int{0, 1, 1, 0, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := (Experiment{Runs: 3}).Order(); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

// TestMetricsAreTheGates: an experiment's answer is something that compare can hold a gate
// to.
func TestMetricsAreTheGates(t *testing.T) {
	var requests, runs []string
	for _, m := range gate.Metrics() {
		if m.Requests {
			requests = append(requests, m.Name)
		} else {
			runs = append(runs, m.Name)
		}
	}
	if d := cmp.Diff(requests, requestMetrics) + cmp.Diff(runs, runMetrics); d != "" {
		t.Errorf("(-gates +experiment)\n%s", d)
	}
	for text, want := range map[string]Metric{"ttfa_p95": {"ttfa", 0.95}, "rtf_p50": {"rtf", 0.5}, "ttfaudible_p90": {"ttfaudible", 0.9}, "throughput": {"throughput", 0}, "success_rate": {"success_rate", 0}} {
		if got, err := ParseMetric(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "_", "_p50", "ttfa_", "ttfa_p50_p50", "TTFA_p50", "ttfa p50", "success_rate_p50", "success"} {
		if got, err := ParseMetric(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// TestCalibrationTakesIt: what passes here passes there.
func TestCalibrationTakesIt(t *testing.T) {
	for _, blocks := range []int{leastBlocks, DefaultBlocks, mostBlocks} {
		if err := (calibration.Config{Budget: DefaultBudget, MinPairs: leastBlocks / 2, MaxPairs: blocks / 2}).Validate(); err != nil {
			t.Error(err)
		}
	}
	if (calibration.Config{MinPairs: leastBlocks/2 - 1}).Validate() == nil {
		t.Error("calibration takes fewer pairs")
	}
}

// TestExamples: each is a whole experiment, and says how it is run.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../configs/experiments/*.yaml")
	if err != nil || len(files) != 3 {
		t.Fatalf("%v %v", files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		e, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if left := e.Exploratory(); len(left) > 0 || e.ForeignCoresLimit != 2 || e.SLO.Empty() || len(e.Invariants) == 0 {
			t.Errorf("%s leaves %v to be explored: %+v", name, left, e)
		}
		for _, say := range []string{"omnitap run ", "--experiment configs/experiments/" + filepath.Base(name), "omnitap compare ", " -- "} {
			if !strings.Contains(string(text), say) {
				t.Errorf("%s does not say %q", name, say)
			}
		}
		for _, v := range e.Variants {
			if !strings.Contains(string(text), "runs/"+v.Name+"-*") {
				t.Errorf("%s does not compare %s", name, v.Name)
			}
		}
	}
}

// FuzzRead: no text makes it fall, and what it takes is valid and is hashed.
func FuzzRead(f *testing.F) {
	f.Add([]byte(least))
	f.Add([]byte(full))
	f.Add([]byte("a: &a [*a]\n<<: *a\n"))
	f.Add([]byte("question: [q]\nprimary: {a: b}\nvariants: [{}, {name: 1}]\nslo: {rtf: 1e999}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := Parse(text)
		if err != nil {
			return
		}
		if err := e.Validate(); err != nil {
			t.Errorf("it was taken: %v", err)
		}
		if string(e.Source()) != string(text) || len(e.SHA256()) != 64 {
			t.Error("its source is lost")
		}
		if len(e.Order()) != e.Runs*len(e.Variants) {
			t.Error("order")
		}
	})
}
