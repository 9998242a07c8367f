package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/calibration"
	calibrationschema "github.com/omnitap/omnitap/exporter/calibration/schema"
)

// requireProbes skips a test that attaches probes where nobody may, unless it must not be
// skipped: then it fails of itself.
func requireProbes(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 && os.Getenv("REQUIRE_KERNEL") != "1" {
		t.Skip("attaching probes needs root")
	}
}

// wantBlocks checks what must hold of any calibration: the order, the proof that nothing
// was attached in blocks without probes, and figures in every block.
func wantBlocks(t testing.TB, a *calibration.Attempt, requests int) {
	t.Helper()
	for i := range a.Blocks {
		b := &a.Blocks[i]
		if b.Index != i || b.Attached != calibration.Attached(i) || b.EndNS <= b.StartNS || i > 0 && b.StartNS < a.Blocks[i-1].EndNS {
			t.Errorf("block %d: %+v", i, b)
		}
		if b.Attempts != requests || b.Success != requests || len(b.JCT) != requests || len(b.TTFA) != requests {
			t.Errorf("block %d: %d of %d requests succeeded, %d have a TTFA; %v", i, b.Success, b.Attempts, len(b.TTFA), b.Failed)
		}
		if b.Attached != (len(b.Probes) > 0) || b.Attached != (b.Detached == "") || !b.Attached && b.Detached != calibration.Verified {
			t.Errorf("block %d: attached %v, probes %v, detached %q", i, b.Attached, b.Probes, b.Detached)
		}
		for _, stage := range []string{"thinker", "talker", "code2wav"} {
			if b.CPU[stage] <= 0 {
				t.Errorf("block %d: CPU %v (%s)", i, b.CPU, b.CPUWhy)
			}
		}
	}
}

func calibrationOf(t testing.TB, text string) (f calibration.File) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return f
}

// TestCalibrateDemo: the fake server is calibrated with the built-in requests; what is
// written is what is printed.
func TestCalibrateDemo(t *testing.T) {
	requireProbes(t)
	dir := t.TempDir()
	code, out, errOut := runApp(t, "calibrate", "--demo", "--json", "--block", "8", "--min-pairs", "4", "--max-pairs", "4", "--budget", "99%", "--on-over", "report", "--out", dir)
	f := calibrationOf(t, out)
	if want := map[bool]int{false: exitUnusable}[f.Result.Verdict == calibration.Within]; code != want { // the machine may be busy
		t.Fatalf("%s: exit %d: %s", f.Result.Verdict, code, errOut)
	}
	if f.OnOver != "report" || f.Result.Pairs != 4 || len(f.Attempts) != 1 || len(f.Attempts[0].Blocks) != 8 || len(f.Trimmed) != 0 {
		t.Errorf("%+v", f.Result)
	}
	wantBlocks(t, &f.Attempts[0], 8)
	if got := readFile(t, filepath.Join(dir, calibrationFile)); got != out {
		t.Errorf("%s holds something else than was printed", calibrationFile)
	}
	wantLinesOf(t, calibrationschema.Calibration, oneLine(t, out))
	wantMode(t, filepath.Join(dir, calibrationFile), 0o600)
	if code, _, errOut := runApp(t, "calibrate", "--demo", "--out", dir); code != exitUsage || !strings.Contains(errOut, "is there already") {
		t.Errorf("a second one into the same folder: exit %d, %s", code, errOut)
	}
}

// TestCalibrateTrims: a family that its own budget takes away is off from the next block
// on, and all begins anew; the user's command makes the load.
func TestCalibrateTrims(t *testing.T) {
	requireProbes(t)
	config := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(config, []byte("stages: {budget: 0.0005, shm: {use: \"off\"}, socket: {use: \"off\"}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const ask = `curl -sf -o /dev/null "$OPENAI_BASE_URL/chat/completions" -H 'Content-Type: application/json' ` +
		`-d '{"model":"m","stream":true,"modalities":["text","audio"],"messages":[{"role":"user","content":"hi"}]}'`
	script := `for i in 1 2 3 4 5 6 7; do ` + ask + ` & ` + ask + ` || exit 7; wait $! || exit 7; done`
	code, out, errOut := runApp(t, "calibrate", "--demo", "--config", config, "--json", "--min-pairs", "4", "--max-pairs", "4", "--", "sh", "-c", script)
	if code != exitUnusable && code != 0 {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	f := calibrationOf(t, out)
	if len(f.Attempts) < 2 || len(f.Trimmed) == 0 || f.Source != "the command sh" {
		t.Fatalf("%d attempts, trimmed %v, source %q: %s", len(f.Attempts), f.Trimmed, f.Source, errOut)
	}
	last := &f.Attempts[len(f.Attempts)-1]
	wantBlocks(t, last, 14)
	for i := range last.Blocks {
		for _, gone := range last.Off {
			if slices.Contains(last.Blocks[i].Probes, gone) {
				t.Errorf("block %d has the %s probes, which are off", i, gone)
			}
		}
	}
	for i := range f.Attempts[:len(f.Attempts)-1] {
		a := &f.Attempts[i]
		if n := len(a.Blocks); n == 0 || len(a.Blocks[n-1].Trimmed) == 0 || a.Result.Verdict != calibration.Inconclusive {
			t.Errorf("attempt %d ended without cause: %+v", i, a.Result)
		}
	}
}

// TestCalibrateRefuses: what cannot be asked is a usage error, what cannot be measured one
// of the environment; a command that fails is named.
func TestCalibrateRefuses(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"calibrate"},
		{"calibrate", "--upstream", "http://127.0.0.1:1", "--budget", "much"},
		{"calibrate", "--upstream", "http://127.0.0.1:1", "--budget", "100%"},
		{"calibrate", "--upstream", "http://127.0.0.1:1", "--on-over", "cry"},
		{"calibrate", "--upstream", "http://127.0.0.1:1", "--block", "0"},
		{"calibrate", "--upstream", "http://127.0.0.1:1", "--min-pairs", "2"},
		{"calibrate", "--upstream", "http://127.0.0.1:1", "--rate", "3", "--", "true"},
		{"calibrate", "--upstream", "http://127.0.0.1:1", "--requests-from", filepath.Join(t.TempDir(), "none")},
		{"calibrate", "--upstream", "http://127.0.0.1:1", "--demo"},
	} {
		if code, out, errOut := runApp(t, args...); code != exitUsage || out != "" || errOut == "" {
			t.Errorf("%v: exit %d, %q, %q", args, code, out, errOut)
		}
	}
	if code, out, errOut := runApp(t, "calibrate", "--upstream", "http://192.0.2.1:80"); code != exitEnvironment || out != "" || !strings.Contains(errOut, "is another machine") {
		t.Errorf("another machine: exit %d, %q, %.500q", code, out, errOut)
	}
	for text, want := range map[string]float64{"1%": 0.01, "0.01": 0.01, "2.5 %": 0.025} {
		if got, err := share(text); err != nil || got != want {
			t.Errorf("share %q is %v, %v", text, got, err)
		}
	}
}
