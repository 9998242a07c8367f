package convert

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/exporter/rundir"
)

// What is whole is written; what is not is named.
func TestDamage(t *testing.T) {
	cases := []struct {
		name     string
		damage   func(t *testing.T, dir string)
		notes    []string // each within a note, in order
		lost     int64
		requests int64
	}{
		{"whole", func(*testing.T, string) {}, nil, 0, 7},
		{
			"unfinished last line", func(t *testing.T, dir string) {
				t.Helper()
				edit(t, dir, rundir.RequestsFile, func(s string) string { return s[:len(s)-100] })
			}, []string{"requests.jsonl: line 7 (byte"}, 1, 6,
		},
		{
			"cut between lines", func(t *testing.T, dir string) {
				t.Helper()
				edit(t, dir, rundir.RequestsFile, func(s string) string { return s[:strings.LastIndex(s[:len(s)-1], "\n")+1] })
			}, []string{"requests.jsonl: 6 lines are there, and metadata.json counts 7"}, 1, 6,
		},
		{
			"zeros amid", func(t *testing.T, dir string) {
				t.Helper()
				edit(t, dir, rundir.RequestsFile, func(s string) string { return strings.Replace(s, `{"schema":1`, "{\x00\x00\x00", 2) })
			}, []string{"line 1 (byte 0) is damaged", "line 2 (byte"}, 2, 5,
		},
		{
			"many bad lines", func(t *testing.T, dir string) {
				t.Helper()
				edit(t, dir, rundir.EventsFile, func(s string) string { return strings.ReplaceAll(s, `"mono_ns":`, `"mono_ns":x`) })
			}, []string{"line 1 ", "line 2 ", "line 3 ", "line 4 ", "line 5 ", "186 lines cannot be used; the first 5 are named"}, 186, 7,
		},
		{
			"JSON that is no record", func(t *testing.T, dir string) {
				t.Helper()
				edit(t, dir, rundir.RequestsFile, func(s string) string { return `{"hello":"world"}` + "\n" + s })
			}, []string{"line 1 (byte 0) is damaged: its schema is 0, not 1"}, 1, 7,
		},
		{
			"newer lines", func(t *testing.T, dir string) {
				t.Helper()
				edit(t, dir, rundir.SessionsFile, func(s string) string { return strings.Replace(s, `"schema":1`, `"schema":2`, 1) })
			}, []string{"sessions.jsonl: line 1 (byte 0) is damaged: its schema is 2, not 1"}, 1, 7,
		},
		{
			"newer run", func(t *testing.T, dir string) {
				t.Helper()
				edit(t, dir, rundir.MetadataFile, func(s string) string { return strings.Replace(s, `"schema": 1`, `"schema": 2`, 1) })
			}, []string{"schema 2 is newer than this program's 1: its lines are not read"}, 1, 0,
		},
		{
			"no metadata", func(t *testing.T, dir string) {
				t.Helper()
				if err := os.Remove(filepath.Join(dir, rundir.MetadataFile)); err != nil {
					t.Fatal(err)
				}
			}, []string{"reading metadata.json: open"}, 1, 7,
		},
		{
			"not closed", func(t *testing.T, dir string) {
				t.Helper()
				edit(t, dir, rundir.MetadataFile, func(s string) string {
					from, to := strings.Index(s, `"end": {`), strings.Index(s, `"files":`)
					return s[:from] + `"end": null, ` + s[to:]
				})
			}, []string{"the run was not closed"}, 0, 7,
		},
		{
			"older", func(t *testing.T, dir string) {
				t.Helper()
				for _, name := range []string{rundir.QualityFile, rundir.SessionsFile} {
					if err := os.Remove(filepath.Join(dir, name)); err != nil {
						t.Fatal(err)
					}
				}
				edit(t, dir, rundir.MetadataFile, uncounted)
			}, []string{"there is no sessions.jsonl", "there is no quality.jsonl"}, 0, 7,
		},
		{
			"a pipe for a file", func(t *testing.T, dir string) {
				t.Helper()
				path := filepath.Join(dir, rundir.EventsFile)
				if err := errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)); err != nil {
					t.Fatal(err)
				}
			}, []string{"events.jsonl is no file"}, 1, 7,
		},
	}
	for _, c := range cases {
		for _, f := range []Format{Perfetto, Parquet, CSV} {
			t.Run(c.name+"/"+string(f), func(t *testing.T) {
				dir := copyRun(t)
				c.damage(t, dir)
				res, notes := export(t, f, dir)
				if res.Lost != c.lost || res.Requests != c.requests {
					t.Errorf("lost %d, requests %d, want %d and %d: %v", res.Lost, res.Requests, c.lost, c.requests, notes)
				}
				var texts []string
				for _, n := range notes {
					if n.Text != "" {
						texts = append(texts, n.Text)
					}
				}
				if len(texts) != len(c.notes) {
					t.Fatalf("notes %q, want %q", texts, c.notes)
				}
				for i := range texts {
					if !strings.Contains(texts[i], c.notes[i]) {
						t.Errorf("note %q, want one with %q", texts[i], c.notes[i])
					}
				}
			})
		}
	}
}

func TestRefused(t *testing.T) {
	run := copyRun(t)
	pipe := copyRun(t)
	path := filepath.Join(pipe, rundir.RequestsFile)
	if err := errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(run, link); err != nil {
		t.Fatal(err)
	}
	taken := filepath.Join(t.TempDir(), "taken")
	if err := os.WriteFile(taken, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "thesis.txt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	for name, c := range map[string]struct {
		dirs []string
		o    Options
		want error
		says string
	}{
		"nothing":               {nil, Options{Format: CSV, Out: out}, ErrInput, "no run directory is given"},
		"format":                {[]string{run}, Options{Format: "xml", Out: out}, ErrInput, `format "xml"`},
		"no directory":          {[]string{run, out + "x"}, Options{Format: CSV, Out: out}, ErrInput, "out" + "x"},
		"foreign directory":     {[]string{full}, Options{Format: CSV, Out: out}, ErrInput, "requests.jsonl"},
		"a file":                {[]string{taken}, Options{Format: CSV, Out: out}, ErrInput, "taken"},
		"a pipe":                {[]string{pipe}, Options{Format: CSV, Out: out}, ErrInput, "requests.jsonl is no file"},
		"twice":                 {[]string{run, link}, Options{Format: CSV, Out: out}, ErrInput, "are one directory"},
		"into the run":          {[]string{run}, Options{Format: Perfetto, Out: filepath.Join(run, "x")}, ErrInput, "lies in the run"},
		"into the run, by link": {[]string{run}, Options{Format: CSV, Out: filepath.Join(link, "x")}, ErrInput, "lies in the run"},
		"the run itself":        {[]string{run}, Options{Format: CSV, Out: run, Force: true}, ErrInput, "lies in the run"},
		"no such folder":        {[]string{run}, Options{Format: CSV, Out: filepath.Join(out, "a", "b")}, ErrInput, "no such file"},
		"there":                 {[]string{run}, Options{Format: Perfetto, Out: taken}, ErrExists, "taken"},
		"folder over a file":    {[]string{run}, Options{Format: CSV, Out: taken, Force: true}, ErrExists, "is no folder"},
		"file over a folder":    {[]string{run}, Options{Format: Perfetto, Out: full, Force: true}, ErrExists, "is no file"},
		"a folder of others":    {[]string{run}, Options{Format: CSV, Out: full, Force: true}, ErrExists, "holds thesis.txt"},
	} {
		_, err := Convert(t.Context(), c.dirs, c.o)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v that says %q", name, err, c.want, c.says)
		}
	}
	if text, err := os.ReadFile(taken); err != nil || string(text) != "mine" {
		t.Errorf("the file that was there: %q, %v", text, err)
	}
	for _, dir := range []string{run, full, filepath.Dir(out), filepath.Dir(taken)} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".partial") || e.Name() == "out" || e.Name() == "x" {
				t.Errorf("%s was left in %s", e.Name(), dir)
			}
		}
	}
}

func TestForce(t *testing.T) {
	for _, f := range []Format{Perfetto, CSV} {
		out := filepath.Join(t.TempDir(), "out")
		o := Options{Format: f, Out: out, Force: true}
		if _, err := Convert(t.Context(), []string{demo(t)}, o); err != nil {
			t.Fatal(err)
		}
		first := contents(t, out)
		if _, err := Convert(t.Context(), []string{made}, o); err != nil {
			t.Fatal(err)
		}
		fresh, _ := export(t, f, made)
		if diff := cmp.Diff(string(contents(t, fresh.Out)), string(contents(t, out))); diff != "" || len(first) == 0 {
			t.Errorf("%s: what replaced an earlier one differs from a fresh one:\n%s", f, diff)
		}
		alone(t, out)
	}
}

// alone wants nothing beside the output.
func alone(t *testing.T, out string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(out))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != filepath.Base(out) {
			t.Errorf("%s is left beside the output", e.Name())
		}
	}
}
