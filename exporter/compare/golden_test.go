package compare

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/exporter/compare/gate"
	"github.com/omnitap/omnitap/exporter/experiment"
	"github.com/omnitap/omnitap/proxy/timeline"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// regression is a hand-over that grew by 35 ms, in pairs of runs.
func regression(t testing.TB) *Result {
	t.Helper()
	w := usual()
	w.gaps, w.slo = map[string]float64{inFlight: base[inFlight] + 35}, slo{SLO: experiment.SLO{TTFAMS: new(200.0)}}
	a, b := w.seeded(1).series("ABBAABBA")
	a[0].settings = map[string]string{"program.version": "v1", "config.listen": ":1", "host.cpu_model": "x"}
	for i, r := range append(a[1:], b...) {
		r.settings = map[string]string{"program.version": "v1", "config.listen": ":1", "host.cpu_model": "x"}
		if i >= 3 {
			r.settings["program.version"] = "v2"
		}
		if i == 5 {
			r.settings["config.listen"] = ":2"
		}
	}
	r := compared(t, a, b, Options{})
	r.Judge([]gate.Gate{must(t, "ttfa_p95 <= +5%"), must(t, "success_rate >= -1pp"), must(t, "throughput >= -5%"), must(t, "ttfa_p99 <= +40%")}, false)
	return r
}

// shorter is a gain that comes from less sound, with failures and a failed check.
func shorter(t testing.TB) *Result {
	t.Helper()
	w := usual()
	w.audio, w.audioSigma, w.fail = [2]float64{4, 3.4}, 0.05, [2]float64{0.02, 0.02}
	w.change = func(side int, r *timeline.Record) {
		if side == 1 && r.RequestID == "q7" {
			r.Terminal = timeline.Terminal{State: timeline.QualityFailed, Reason: "chunk_hops"}
			r.Quality = timeline.Quality{Verdict: "failed", Failed: []string{"chunk_hops"}}
		}
		r.CriticalPath, r.Stages, r.Transfers = nil, nil, nil
	}
	a, b := w.seeded(2).series("AAABBB")
	b[2].leftOut, b[1].sealed = 12, false
	b[1].notes = []string{"not sealed: nothing shows that its files are as they were written"}
	return compared(t, a, b, Options{})
}

// single is one run a side.
func single(t testing.TB) *Result {
	t.Helper()
	w := usual()
	w.client = false
	a, b := w.seeded(3).series("AB")
	r := compared(t, a, b, Options{})
	r.Judge([]gate.Gate{must(t, "ttfa_p99 <= +5%")}, true)
	return r
}

// TestGolden holds the text and the JSON of comparisons to files.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(testing.TB) *Result{"regression": regression, "shorter": shorter, "single": single} {
		var text, wire bytes.Buffer
		r := make(t)
		if err := errors.Join(r.Render(&text), r.WriteJSON(&wire)); err != nil {
			t.Fatal(err)
		}
		for ext, got := range map[string]string{".txt": text.String(), ".json": wire.String()} {
			if ext == ".json" && name != "shorter" {
				continue
			}
			path := filepath.Join("testdata", name+ext)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("%s (-want +got):\n%s", path, d)
			}
		}
		again := make(t)
		var second bytes.Buffer
		if err := again.WriteJSON(&second); err != nil || second.String() != wire.String() {
			t.Errorf("%s: the same runs give another result: %v", name, err)
		}
		if !json.Valid(wire.Bytes()) || strings.Contains(wire.String(), "NaN") || strings.Contains(text.String(), "NaN") || strings.Contains(text.String(), "Inf") {
			t.Errorf("%s: a number that is none", name)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no room") }

func TestWritersSayWhatFails(t *testing.T) {
	t.Parallel()
	r := single(t)
	for _, err := range []error{r.Render(broken{}), r.WriteJSON(io.Writer(broken{}))} {
		if err == nil || !strings.HasSuffix(err.Error(), "no room") {
			t.Errorf("%v", err)
		}
	}
}
