package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	compareschema "github.com/omnitap/omnitap/exporter/compare/schema"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// chatRun writes a sealed run of chats whose first audio comes after so many ms.
func chatRun(t testing.TB, dir string, seed uint64, ttfa float64) string {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	id := fmt.Sprintf("run-%d", seed)
	w, err := rundir.Create(dir, rundir.Meta{RunID: id, Node: "n", Args: []string{"omnitap", "serve", "--out", dir}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		first := ttfa * (1 + 0.1*rng.Float64())
		jct, audio, text, in := first+300, 2.0, int64(80), int64(1e9+i*1e8)
		term := in + int64(jct*1e6)
		w.Record(&timeline.Record{
			Schema: timeline.Schema, RunID: id, RequestID: fmt.Sprint("q", i), RequestIDSource: "client", Attempt: 1, Flow: "chat", TTFAMS: &first, JCTMS: &jct, AudioS: &audio,
			TextBytes: &text, Points: timeline.Points{TIn: &in, TTerm: &term}, Terminal: timeline.Terminal{State: timeline.Success}, Unmeasured: map[string]string{},
		})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := rundir.Seal(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) }) // for its removal
	return dir
}

// chatRuns writes runs in the order A B B A A B B A.
func chatRuns(t testing.TB, a, b float64) (as, bs []string) {
	t.Helper()
	root := t.TempDir()
	for i, side := range "ABBAABBA" {
		dir := filepath.Join(root, fmt.Sprint("r", i))
		if side == 'A' {
			as = append(as, chatRun(t, dir, uint64(i), a))
		} else {
			bs = append(bs, chatRun(t, dir, uint64(i), b))
		}
	}
	return as, bs
}

func compareArgs(as, bs []string, flags ...string) []string {
	return append(append(append([]string{"compare"}, flags...), as...), append([]string{"--"}, bs...)...)
}

func TestCompareGates(t *testing.T) {
	t.Parallel()
	as, bs := chatRuns(t, 100, 120)
	junit := filepath.Join(t.TempDir(), "gates.xml")
	for _, test := range []struct {
		flags []string
		code  int
		out   []string
		err   string
	}{
		{nil, 0, []string{"chat: TTFA +2", "slower", "A B B A A B B A (alternating)", "compared in pairs"}, ""},
		{[]string{"--gate", "ttfa_p95 <= +30%", "--gate", "success_rate >= -5pp"}, 0, []string{"held         chat: ttfa_p95 <= +30%", "held         chat: success_rate >= -5pp"}, ""},
		{[]string{"--gate", "ttfa_p95 <= +5%", "--gate", "jct_p50 <= +50ms"}, 1, []string{"broken       chat: ttfa_p95 <= +5%", "1 of 2 gates failed."}, "gates that failed: 1 of 2"},
		{[]string{"--gate", "chat: ttfa_p95 <= +30%"}, 0, []string{"held         chat: ttfa_p95 <= +30%"}, ""},
		{[]string{"--gate", "speech: ttfa_p95 <= +30%"}, 1, []string{"cannot tell  speech: ttfa_p95 <= +30%  there is no flow speech, but chat"}, "gates that failed: 1 of 1"},
		{[]string{"--gate", "goodput >= -5%"}, 1, []string{"cannot tell  goodput >= -5%"}, "gates that failed: 1 of 1"},
		{[]string{"--gate", "goodput >= -5%", "--allow-cannot-tell"}, 0, []string{"cannot tell  goodput >= -5%"}, ""},
		{[]string{"--gate", "ttfa_p95 <= +5%", "--github", "--junit", junit}, 1, []string{"::error title=omnitap compare%3A broken::chat: ttfa_p95 <= +5%25  +"}, "gates that failed"},
		{[]string{"--gate", "throughput >= -5%", "--github"}, 0, []string{"::notice title=omnitap compare%3A held::chat: throughput >= -5%25"}, ""},
	} {
		code, out, errOut := runApp(t, compareArgs(as, bs, test.flags...)...)
		if code != test.code || test.err == "" && errOut != "" || !strings.Contains(errOut, test.err) {
			t.Errorf("%q = %d, want %d\n%s", test.flags, code, test.code, errOut)
		}
		for _, want := range test.out {
			if !strings.Contains(out, want) {
				t.Errorf("%q does not print %q:\n%s", test.flags, want, out)
			}
		}
	}
	var suites struct {
		Failures int `xml:"failures,attr"`
		Suite    struct {
			Cases []struct {
				Name    string    `xml:"name,attr"`
				Failure *struct{} `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(readFile(t, junit)), &suites); err != nil || suites.Failures != 1 || len(suites.Suite.Cases) != 1 || suites.Suite.Cases[0].Failure == nil {
		t.Errorf("%v: %+v", err, suites)
	}
}

func TestCompareJSON(t *testing.T) {
	t.Parallel()
	as, bs := chatRuns(t, 100, 120)
	args := compareArgs(as, bs, "--json", "--gate", "ttfa_p50 <= +30%")
	out := mustRun(t, args...)
	var r struct {
		Unusable string
		Runs     []struct{ Sealed bool }
		Gates    []struct{ Verdict string }
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Unusable != "" || len(r.Runs) != 8 || !r.Runs[0].Sealed || len(r.Gates) != 1 || r.Gates[0].Verdict != "held" {
		t.Errorf("%v: %+v", err, r)
	}
	if again := mustRun(t, args...); again != out {
		t.Error("the same runs give another comparison")
	}
	wantLinesOf(t, compareschema.Comparison, oneLine(t, out))
}

// oneLine is a JSON text as a line.
func oneLine(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return b.String() + "\n"
}

// TestCompareRefuses: what cannot be compared gives one line and no number.
func TestCompareRefuses(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	a, b := chatRun(t, filepath.Join(root, "a"), 1, 100), chatRun(t, filepath.Join(root, "b"), 2, 100)
	edited := chatRun(t, filepath.Join(root, "edited"), 3, 100)
	if err := os.Chmod(edited, 0o700); err != nil {
		t.Fatal(err)
	}
	requests := filepath.Join(edited, rundir.RequestsFile)
	if err := os.Chmod(requests, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(requests, []byte(strings.Replace(readFile(t, requests), `"ttfa_ms":1`, `"ttfa_ms":2`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"compare"}, 2, "-- must stand between"},
		{[]string{"compare", a, b}, 2, "-- must stand between"},
		{[]string{"compare", a, "--"}, 2, "one of B"},
		{[]string{"compare", "--", b}, 2, "a run of A"},
		{[]string{"compare", a, "--", b, "--json"}, 2, "--json stands behind --"},
		{[]string{"compare", a, "--", a}, 2, "a run is given twice"},
		{[]string{"compare", a, "--", filepath.Join(root, "none")}, 2, "no run directory"},
		{[]string{"compare", a, "--", root}, 2, "no run directory"},
		{[]string{"compare", "--flow", "speech", a, "--", b}, 2, `no run has the flow "speech"; there are [chat]`},
		{[]string{"compare", "--gate", "ttfa <= 5", a, "--", b}, 2, "say which figure"},
		{[]string{"compare", "--junit", "x", a, "--", b}, 2, "give a --gate"},
		{[]string{"compare", "--json", "--github", "--gate", "ttfa_p50 <= +5%", a, "--", b}, 2, "both write to standard output"},
		{[]string{"compare", "--gate", "ttfa_p50 <= +5%", "--junit", filepath.Join(root, "no", "dir"), a, "--", b}, 3, "creating a file"},
		{[]string{"compare", a, "--", edited}, 1, "requests.jsonl: its hash is"},
	} {
		code, out, errOut := runApp(t, test.args...)
		if code != test.code || !strings.Contains(errOut, test.want) || strings.Count(strings.TrimSpace(errOut), "\n") > 0 || out != "" {
			t.Errorf("%q = %d, want %d\n%s%s", test.args, code, test.code, errOut, out)
		}
	}
	// one run a side is shown, and is no evidence
	if out := mustRun(t, "compare", a, "--", b); !strings.Contains(out, "one run a side: how far runs differ is not known") || strings.Contains(out, "no difference seen") {
		t.Error(out)
	}
}

// TestCompareDemos: runs of the demo, read from what it writes.
func TestCompareDemos(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	var dirs []string
	for i := range 4 {
		dir := filepath.Join(root, fmt.Sprint("d", i))
		mustRun(t, "demo", "--probes", "off", "--requests", "2", "--out", dir)
		dirs = append(dirs, dir)
	}
	out := mustRun(t, "compare", dirs[0], dirs[3], "--", dirs[1], dirs[2])
	for _, want := range []string{"A B B A (alternating)", "speech: TTFA ", "paired by request_sha256", "not sealed", "duplex (unasked)"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "semantic change") || strings.Contains(out, "NaN") {
		t.Error(out)
	}
	one := mustRun(t, "compare", "--flow", "chat", dirs[0], "--", dirs[1])
	if strings.Contains(one, "speech") || !strings.Contains(one, "no evidence of a difference between builds") {
		t.Error(one)
	}
}
