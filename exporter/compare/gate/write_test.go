package gate_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/exporter/compare/gate"
)

func must(t *testing.T, text string) gate.Gate {
	t.Helper()
	g, err := gate.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func outcomes(t *testing.T) []gate.Outcome {
	t.Helper()
	return []gate.Outcome{
		{Gate: must(t, "ttfa_p99 <= +5%"), Flow: "chat", Verdict: gate.Held, Estimate: 0.012, Lo: -0.01, Hi: 0.034},
		{Gate: must(t, "jct_p50 <= +20ms"), Flow: "chat", Verdict: gate.Broken, Estimate: 40, Lo: 30.5, Hi: 50},
		{Gate: must(t, "throughput >= 5/s"), Flow: "speech_ws (input.done)", Verdict: gate.CannotTell, Estimate: math.NaN(), Lo: math.NaN(), Hi: math.NaN(), Reason: "one run a side: 50%, a,b\r\n<&>\"\x01"},
		{Gate: must(t, "success_rate >= 99%"), Verdict: gate.CannotTell, Allowed: true, Estimate: 1, Lo: 0.98, Hi: 1, Reason: "x"},
		{Gate: must(t, "success_rate >= -1pp"), Verdict: gate.Held, Estimate: 0, Lo: -0.002, Hi: 0.002},
		{Gate: must(t, "rtf_p90 < 1"), Verdict: gate.Held, Estimate: 0.25, Lo: 0.2, Hi: 0.3},
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	var got []string
	for _, o := range outcomes(t) {
		got = append(got, o.Line())
	}
	want := []string{
		"held         chat: ttfa_p99 <= +5%  +1.2 % (-1.0 % to +3.4 %)",
		"broken       chat: jct_p50 <= +20ms  +40.00 ms (+30.50 ms to +50.00 ms)",
		"cannot tell  speech_ws (input.done): throughput >= 5/s  one run a side: 50%, a,b\r\n<&>\"\x01",
		"cannot tell  success_rate >= 99%  100.00 % (98.00 % to 100.00 %): x",
		"held         success_rate >= -1pp  +0.00 pp (-0.20 pp to +0.20 pp)",
		"held         rtf_p90 < 1  0.2500 (0.2000 to 0.3000)",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if n := gate.Failures(outcomes(t)); n != 2 {
		t.Errorf("%d failures, want 2", n)
	}
}

// TestGitHub: a runner that decodes as actions/runner does sees what was meant, and
// nothing in a message begins a command of its own.
func TestGitHub(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := gate.WriteGitHub(&b, outcomes(t)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != len(outcomes(t)) {
		t.Fatalf("%d lines:\n%s", len(lines), b.String())
	}
	decode := strings.NewReplacer("%0D", "\r", "%0A", "\n", "%3A", ":", "%2C", ",", "%25", "%")
	levels := []string{"notice", "error", "error", "warning", "notice", "notice"}
	for i, l := range lines {
		head, message, ok := strings.Cut(strings.TrimPrefix(l, "::"), "::")
		level, title, _ := strings.Cut(head, " title=")
		if !ok || level != levels[i] || strings.ContainsAny(title, ":,") {
			t.Errorf("line %d: %q", i, l)
		}
		o := outcomes(t)[i]
		if got := decode.Replace(message); got != strings.TrimPrefix(o.Line(), string(o.Verdict)+strings.Repeat(" ", 13-len(o.Verdict))) {
			t.Errorf("line %d reads %q, not %q", i, got, o.Line())
		}
		if decode.Replace(title) != "omnitap compare: "+string(o.Verdict) {
			t.Errorf("line %d has the title %q", i, title)
		}
	}
}

// TestJUnit holds the file to the shape of Jenkins' junit-10.xsd: which elements stand
// where, which attributes they need and may have, and sums that come out.
func TestJUnit(t *testing.T) {
	t.Parallel()
	for _, all := range [][]gate.Outcome{outcomes(t), nil} {
		var b bytes.Buffer
		if err := gate.WriteJUnit(&b, all); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(b.String(), `<?xml version="1.0" encoding="UTF-8"?>`) {
			t.Errorf("no XML declaration: %.60q", b.String())
		}
		counts := elements(t, b.Bytes())
		if counts["testcase"] != len(all) || counts["failure"] != gate.Failures(all) {
			t.Errorf("%v of %d outcomes", counts, len(all))
		}
	}
}

// shape is what junit-10.xsd says of an element.
type shape struct{ parents, needs, may []string }

var shapes = map[string]shape{
	"testsuites": {[]string{""}, nil, []string{"name", "time", "tests", "failures", "errors"}},
	"testsuite":  {[]string{"testsuites"}, []string{"name", "tests", "failures", "errors"}, []string{"skipped", "time", "timestamp", "hostname"}},
	"testcase":   {[]string{"testsuite"}, []string{"name"}, []string{"classname", "time", "group"}},
	"failure":    {[]string{"testcase"}, nil, []string{"type", "message"}},
	"skipped":    {[]string{"testcase"}, nil, []string{"type", "message"}},
	"system-out": {[]string{"testcase"}, nil, nil},
}

func elements(t *testing.T, text []byte) map[string]int {
	t.Helper()
	counts, declared, path := map[string]int{}, map[string]int{}, []string{""}
	d := xml.NewDecoder(bytes.NewReader(text))
	for {
		token, err := d.Token()
		if token == nil {
			if err != nil && err.Error() != "EOF" {
				t.Fatal(err)
			}
			break
		}
		switch e := token.(type) {
		case xml.StartElement:
			name := e.Name.Local
			counts[name]++
			s, ok := shapes[name]
			if !ok || !slices.Contains(s.parents, path[len(path)-1]) {
				t.Errorf("<%s> in <%s>", name, path[len(path)-1])
			}
			var have []string
			for _, a := range e.Attr {
				have = append(have, a.Name.Local)
				if !slices.Contains(s.needs, a.Name.Local) && !slices.Contains(s.may, a.Name.Local) {
					t.Errorf("<%s %s>", name, a.Name.Local)
				}
				if n, err := strconv.Atoi(a.Value); err == nil && name == "testsuite" {
					declared[a.Name.Local] = n
				}
			}
			for _, need := range s.needs {
				if !slices.Contains(have, need) {
					t.Errorf("<%s> without %s", name, need)
				}
			}
			path = append(path, name)
		case xml.EndElement:
			path = path[:len(path)-1]
		}
	}
	if declared["tests"] != counts["testcase"] || declared["failures"] != counts["failure"] || declared["skipped"] != counts["skipped"] || counts["testsuites"] != 1 {
		t.Errorf("declared %v, counted %v", declared, counts)
	}
	return counts
}

func TestOutcomeJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(outcomes(t)[2])
	if err != nil {
		t.Fatal(err)
	}
	want := `{"gate":"throughput \u003e= 5/s","flow":"speech_ws (input.done)","verdict":"cannot tell","allowed":false,"failed":true,"limit":5,"estimate":null,"lo":null,"hi":null,"reason":"one run a side: 50%, a,b\r\n\u003c\u0026\u003e\"\u0001"}`
	if string(text) != want {
		t.Errorf("%s", text)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no room") }

func TestWritersSayWhatFails(t *testing.T) {
	t.Parallel()
	for _, err := range []error{gate.WriteJUnit(broken{}, nil), gate.WriteGitHub(broken{}, outcomes(t))} {
		if err == nil || !strings.HasSuffix(err.Error(), "no room") {
			t.Errorf("%v", err)
		}
	}
}
