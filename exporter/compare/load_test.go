package compare

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// written writes a run directory with the records of the next run of a world.
func (s *sim) written(t testing.TB, side int, seal bool, change func(*rundir.RunInfo)) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	records := s.records(side)
	w, err := rundir.Create(dir, rundir.Meta{RunID: records[0].RunID, Node: "n", Args: []string{"omnitap", "serve", "--out", dir}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		w.Record(r)
	}
	if change != nil {
		w.SetRun(change)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if seal {
		if err := rundir.Seal(dir); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(dir, 0o700) }) // for its removal
	}
	return dir
}

func TestLoad(t *testing.T) {
	t.Parallel()
	s := usual().seeded(1)
	dir := s.written(t, 0, true, nil)
	r, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	d := r.groups[group{flow: "chat"}]
	if !r.sealed || len(r.notes) != 0 || d == nil || d.success != 120 || d.work.onPath.n != 120 {
		t.Errorf("%+v, %+v", r, d)
	}
	if strings.Contains(r.settings["command_line"], "run") || r.settings["command_line"] != "omnitap serve" {
		t.Errorf("command line %q", r.settings["command_line"])
	}
	loose, err := Load(s.written(t, 0, false, nil))
	if err != nil || loose.sealed || len(loose.notes) != 1 || !strings.Contains(loose.notes[0], "not sealed") {
		t.Errorf("%+v, %v", loose, err)
	}
	for name := range r.settings {
		if v := loose.settings[name]; v != r.settings[name] {
			t.Errorf("%s differs between two runs of one program: %q, %q", name, r.settings[name], v)
		}
	}
}

// What is wrong with a directory is said, and no run comes of it.
func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	edit := func(name, from, to string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			path := filepath.Join(dir, name)
			text, err := os.ReadFile(path)
			if err != nil || !bytes.Contains(text, []byte(from)) {
				t.Fatalf("%v, or no %q in %s", err, from, name)
			}
			if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, bytes.Replace(text, []byte(from), []byte(to), 1), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, test := range map[string]struct {
		seal   bool
		change func(*testing.T, string)
		want   string
		noRun  bool
	}{
		"no directory":    {false, func(t *testing.T, dir string) { t.Helper(); os.RemoveAll(dir) }, "no run directory", true},
		"an empty one":    {false, func(t *testing.T, dir string) { t.Helper(); os.Remove(filepath.Join(dir, rundir.RequestsFile)) }, "no run directory", true},
		"no metadata":     {false, func(t *testing.T, dir string) { t.Helper(); os.Remove(filepath.Join(dir, rundir.MetadataFile)) }, "metadata.json", false},
		"not closed":      {false, edit(rundir.MetadataFile, `"end": {`, `"ending": {`), "was not closed", false},
		"its schema":      {false, edit(rundir.MetadataFile, `"schema": 1`, `"schema": 2`), "metadata.json has schema 2, this program reads 1", false},
		"a line's schema": {false, edit(rundir.RequestsFile, `{"schema":1,`, `{"schema":2,`), "line 1 has schema 2, this program reads 1", false},
		"no schema":       {false, edit(rundir.RequestsFile, `{"schema":1,`, `{`), "line 1 has schema 0", false},
		"another run":     {false, edit(rundir.RequestsFile, `"run_id":"r0"`, `"run_id":"rX"`), `line 1 is of run "rX", the directory of "r0"`, false},
		"a damaged line":  {false, edit(rundir.RequestsFile, `{"schema":1,`, `{"schema":1,,`), "line 1 (byte 0) is damaged", false},
		"a cut line":      {false, cut1(rundir.RequestsFile, 10), "is unfinished", false},
		"a line less":     {false, dropLine(rundir.RequestsFile), "has 119 lines, metadata.json says 120: it was cut or edited", false},
		"edited":          {true, edit(rundir.RequestsFile, `"ttft_ms":`, `"ttft_ms":1`), "requests.jsonl: its hash is", false},
		"foreign":         {false, add("notes.txt"), "notes.txt: a file that is no part of a run", false},
		"foreign, sealed": {true, add("notes.txt"), "notes.txt: a file that SHA256SUMS does not name", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := usual().seeded(1).written(t, 0, test.seal, nil)
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			test.change(t, dir)
			r, err := Load(dir)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") || errors.Is(err, ErrNoRun) != test.noRun {
				t.Errorf("%v, %v; want %q", r, err, test.want)
			}
		})
	}
}

func cut1(name string, by int64) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err == nil {
			err = os.Truncate(path, info.Size()-by)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func dropLine(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, text[bytes.IndexByte(text, '\n')+1:], 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func add(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Records of a warm-up, and of no phase in a run that has phases, are left out.
func TestPhases(t *testing.T) {
	t.Parallel()
	s := usual().seeded(1)
	s.change = func(_ int, r *timeline.Record) {
		switch {
		case r.RequestID < "q2":
			r.RunPhase = "warmup"
			*r.TTFAMS = 1e6
		case r.RequestID < "q3":
		default:
			r.RunPhase = "measured"
		}
	}
	r, err := Load(s.written(t, 0, false, nil))
	if err != nil {
		t.Fatal(err)
	}
	d := r.groups[group{flow: "chat"}]
	if d.attempts+r.leftOut != 120 || r.leftOut < 20 || d.work.ttfa.mean > 1e5 {
		t.Errorf("%d attempts, %d left out", d.attempts, r.leftOut)
	}
	s.change = func(_ int, r *timeline.Record) { r.RunPhase = "warmup" }
	if _, err := Load(s.written(t, 0, false, nil)); err == nil || !strings.Contains(err.Error(), "holds no record that was measured") {
		t.Errorf("%v", err)
	}
}

// What `omnitap run` says of a run is heeded.
func TestRunInfo(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*rundir.RunInfo)
		unfit  string
		note   string
	}{
		"complete": {func(i *rundir.RunInfo) { i.State, i.Contamination = "complete", "clean" }, "", "not sealed"},
		"contaminated": {func(i *rundir.RunInfo) {
			i.State, i.Contamination, i.ContaminationWhy = "complete", "contaminated", "3.1 cores"
		}, "contaminated: 3.1 cores", "not sealed"},
		"not measured": {func(i *rundir.RunInfo) { i.State, i.Contamination = "complete", "not_measured" }, "", "was not measured"},
		"interrupted":  {func(i *rundir.RunInfo) { i.State, i.Contamination = "interrupted", "clean" }, "", "interrupted: it ended before"},
		"failed":       {func(i *rundir.RunInfo) { i.State, i.Reason = "failed", "the child ended with 3" }, "the run failed: the child ended with 3", ""},
	} {
		r, err := Load(usual().seeded(1).written(t, 0, false, test.change))
		if err != nil {
			t.Fatal(err)
		}
		if r.unfit != test.unfit || !strings.Contains(strings.Join(r.notes, "\n"), test.note) {
			t.Errorf("%s: unfit %q, notes %q", name, r.unfit, r.notes)
		}
	}
	s := usual().seeded(1)
	s.change = func(_ int, r *timeline.Record) {
		if strings.HasPrefix(r.RequestID, "q1") {
			r.Terminal = timeline.Terminal{State: timeline.HarnessError, Reason: "no_port"}
		}
	}
	if r, err := Load(s.written(t, 0, false, nil)); err != nil || !strings.HasPrefix(r.unfit, "invalid: 31 of 120 attempts failed by our own fault") {
		t.Errorf("%v, %v", r.unfit, err)
	}
}

func TestSLOOfExperiments(t *testing.T) {
	t.Parallel()
	const rest = "question: q\nprimary: ttfa_p95\nworkload: {reference: made up}\n"
	for text, want := range map[string]string{
		rest + "slo: {ttfa_ms: 500, rtf: 0.8}": "ttfa_ms <= 500, rtf <= 0.8",
		rest:                                   "!experiment.yaml has no SLO",
		rest + "slo: fast":                     "!experiment.yaml: the experiment",
		rest + "slo: {ttfa: 500}":              "!unknown key ttfa",
		"":                                     "!is empty",
	} {
		got := sloOf([]byte(text))
		why, refused := strings.CutPrefix(want, "!")
		if refused && !strings.Contains(got.why, why) || !refused && (got.String() != want || got.why != "") {
			t.Errorf("%q: %q, %q", text, got, got.why)
		}
	}
	one, two := sloOf([]byte(rest+"slo: {ttfa_ms: 500}")), sloOf([]byte(rest+"slo: {ttfa_ms: 600}"))
	if got := commonSLO([]*Run{{slo: one}, {slo: one}}); got.why != "" || got.String() != "ttfa_ms <= 500" {
		t.Errorf("%+v", got)
	}
	if got := commonSLO([]*Run{{slo: one}, {slo: two}}); !strings.Contains(got.why, "different SLOs: ttfa_ms <= 500, and ttfa_ms <= 600") {
		t.Errorf("%+v", got)
	}
	if got := commonSLO([]*Run{{slo: one}, {slo: sloOf(nil)}}); !strings.Contains(got.why, "no experiment") {
		t.Errorf("%+v", got)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	text := `{"schema":1,"run_id":"x","pid":7,"start":{"wall_ns":5},"host":{"cpu_model":"c\u001b[31m","cpus":2,"hostname":null},
		"config":{"out":"a","tap":{"workers":1},"list":["a","b"]},"command_line":["omnitap","serve","--out","d","--capture=e","--listen",":1"],
		"run":{"ledger":{"processes":[{"pid":8,"python":"3.12","start_ns":4,"unmeasured":{"x":"y"}}]},"phases":[{"name":"measured"}],"experiment":{"sha256":"s"}}}`
	got, err := settings([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"schema": "1", "host.cpu_model": "c\ufffd[31m", "host.cpus": "2", "config.tap.workers": "1", "config.list": "a b",
		"command_line": "omnitap serve --listen :1", "run.ledger.processes.0.python": "3.12", "run.experiment.sha256": "s",
	}
	a, _ := json.Marshal(want)
	b, _ := json.Marshal(got)
	if !bytes.Equal(a, b) {
		t.Errorf("%s\nwant %s", b, a)
	}
	for _, bad := range []string{"", "[]", "{", `"x"`} {
		if _, err := settings([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	runs := func(values ...string) (out []*Run) {
		for _, v := range values {
			r := &Run{settings: map[string]string{"same": "1"}}
			if v != "" {
				r.settings["x"] = v
			}
			out = append(out, r)
		}
		return out
	}
	for _, test := range []struct {
		a, b   []*Run
		n      int
		within bool
	}{
		{runs("1", "1"), runs("1"), 0, false},
		{runs("1", "1"), runs("2"), 1, false},
		{runs("1", "2"), runs("2"), 1, true},
		{runs("1", "1"), runs(""), 1, false},
		{runs("", ""), runs(""), 0, false},
	} {
		if got := differing(test.a, test.b); len(got) != test.n || test.n > 0 && got[0].Within != test.within {
			t.Errorf("%+v", got)
		}
	}
}

// FuzzSettings: whatever metadata.json holds, no name and no value of it can move a
// terminal's cursor.
func FuzzSettings(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":{"b":[1,"x",{"c":null}]},"\u001b":"\u202e"}`, `{"command_line":["--out"]}`, `{"a":1e999}`, "{\"\":\"\xff\"}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := settings(text)
		if err != nil {
			return
		}
		for name, v := range got {
			if strings.IndexFunc(name, hostile) >= 0 || strings.IndexFunc(v, hostile) >= 0 {
				t.Errorf("%q: %q", name, v)
			}
		}
	})
}
