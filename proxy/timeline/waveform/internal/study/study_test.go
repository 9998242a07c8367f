package study

import (
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

var (
	write  = flag.String("write", "", "run the whole study and write its report to this file")
	counts = flag.String("counts", "", "write the counts to this file")
)

// corpusDir is the corpus that OMNITAP_QUALITY_CORPUS names. Where REQUIRE_QUALITY
// is set, a missing one is a failure.
func corpusDir(t *testing.T) fs.FS {
	t.Helper()
	dir := os.Getenv("OMNITAP_QUALITY_CORPUS")
	if _, err := os.Stat(filepath.Join(dir, "manifest.tsv")); dir != "" && err == nil {
		return os.DirFS(dir)
	}
	if os.Getenv("REQUIRE_QUALITY") != "" {
		t.Fatalf("OMNITAP_QUALITY_CORPUS=%q holds no corpus: run make test-quality", dir)
	}
	t.Skip("no corpus of sound: make test-quality makes one and runs this test on it")
	return nil
}

func run(t *testing.T, cfg Config) *Result {
	t.Helper()
	r, err := Run(corpusDir(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if *counts != "" {
		save(t, *counts, func() ([]byte, error) { return json.MarshalIndent(r, "", " ") })
	}
	return r
}

func save(t *testing.T, path string, make func() ([]byte, error)) {
	t.Helper()
	b, err := make()
	if err == nil {
		err = os.WriteFile(path, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestWrite writes STUDY.md; make quality-study runs it.
func TestWrite(t *testing.T) {
	if *write == "" {
		t.Skip("the report is written by make quality-study")
	}
	r := run(t, Config{Seed: 1, Streams: 120, Amounts: Amounts(), Workers: runtime.GOMAXPROCS(0)})
	save(t, *write, func() ([]byte, error) { return []byte(r.Markdown()), nil })
}

// The margins that the checks are held to. Raise them when a check gets better;
// lowering one needs a reason in the commit.
const (
	// hourlyMost bounds the streams that a check fails an hour of whole sound of
	// any one kind, hourlyMostAll those of all kinds together.
	hourlyMost    = 1
	hourlyMostAll = 0.5
)

var least = []struct {
	fault   string
	amount  int
	hop     bool
	kind    string // "" for all kinds of speech
	percent int
}{
	{"lost-borders", 10, false, "", 85},
	{"lost-borders", 100, false, "", 88},
	{"lost-borders", 555, false, "", 87},
	{"lost-borders", 555, true, "", 87},
	{"lost-borders", 555, false, "music-chords", 90},
	{"lost-border", 10, false, "", 45},
	{"lost-border", 100, false, "", 52},
	{"lost-border", 555, false, "", 50},
	{"lost-border", 10, true, "", 82},
	{"lost-border", 555, true, "", 82},
	{"lost-inside", 100, true, "", 72},
	{"again-inside", 100, true, "", 72},
	{"again-borders", 10, false, "", 95},
	{"again-borders", 555, false, "", 97},
	{"again-borders", 10, false, "noise-white", 75},
	{"again-border", 10, false, "", 72},
	{"again-border", 100, false, "", 84},
	{"again-border", 555, false, "", 92},
	{"again-border", 10, true, "", 90},
	{"chunk-again", 0, false, "", 90},
	{"zeros-borders", 10, false, "", 90},
	{"zeros-borders", 555, false, "", 88},
	{"zeros-border", 555, false, "", 28},
	{"zeros-border", 555, true, "", 85},
}

// TestMargins holds the checks to what they can do: on the whole corpus for false
// alarms, on some streams of each kind for faults.
func TestMargins(t *testing.T) {
	r := run(t, Config{Seed: 2, Streams: 30, Amounts: []int{10, 100, 555}, Workers: runtime.GOMAXPROCS(0)})
	for _, check := range r.Checks() {
		for _, kind := range append(r.kinds(), "all") {
			most := float64(hourlyMost)
			if kind == "all" {
				most = hourlyMostAll
			}
			n, hours := r.Hourly(func(a Alarm) bool { return a.Check == check && (kind == "all" || a.Kind == kind) })
			if n > most {
				t.Errorf("%s on %s: %.2f streams failed an hour of whole sound, %g at most (%.1f hours)", check, kind, n, most, hours)
			}
		}
	}
	for _, m := range least {
		found, streams := r.Rate(func(d Detection) bool {
			return d.Fault == m.fault && d.Amount == m.amount && d.Hop == m.hop && d.Heard && (d.Kind == m.kind || m.kind == "" && Speech(d.Kind))
		})
		t.Logf("%s of %d samples, hop known %t, kind %q: found in %d of %d streams", m.fault, m.amount, m.hop, m.kind, found, streams)
		if streams < 15 || 100*found < m.percent*streams {
			t.Errorf("that is %d of %d, want %d %% of at least 15", found, streams, m.percent)
		}
	}
}
