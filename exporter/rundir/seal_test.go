package rundir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// closedRun makes a small run that ended in order.
func closedRun(tb testing.TB) string {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "run")
	w := mustCreate(tb, dir, Meta{RunID: "r1"}, openExclusive)
	for i := range 100 {
		w.Event(event(i))
	}
	w.Record(&timeline.Record{Schema: 1, RequestID: "a"})
	if err := w.Topology(map[string]any{"schema": 1}); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	return dir
}

func sealedRun(tb testing.TB) string {
	tb.Helper()
	dir := closedRun(tb)
	if err := Seal(dir); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// open lets the owner write again, as somebody would who edits a sealed run.
func open(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return path
}

// shut gives the modes of a seal back.
func shut(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			if err := os.Chmod(filepath.Join(dir, e.Name()), sealedFile); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chmod(dir, sealedDir); err != nil {
		t.Fatal(err)
	}
}

func mustCheck(t *testing.T, dir string) *SealState {
	t.Helper()
	s, err := CheckSeal(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSeal(t *testing.T) {
	dir := closedRun(t)
	before, err := os.ReadFile(filepath.Join(dir, MetadataFile))
	if err != nil {
		t.Fatal(err)
	}
	if s := mustCheck(t, dir); s.OK() || !strings.Contains(s.Why, "never sealed") {
		t.Errorf("ahead of Seal: %+v, want unsealed", s)
	}
	if err := Seal(dir); err != nil {
		t.Fatal(err)
	}
	s := mustCheck(t, dir)
	if !s.OK() || s.Files != 6 || len(s.Digest) != 64 {
		t.Errorf("CheckSeal = %+v, want 6 files and no problem", s)
	}
	run, err := Read(dir)
	if err != nil || !run.Sealed || !run.Closed {
		t.Errorf("Read = %+v, %v, want a sealed run", run, err)
	}
	after, err := os.ReadFile(filepath.Join(dir, MetadataFile))
	if err != nil || !bytes.Equal(bytes.Replace(before, []byte(`"sealed": false`), []byte(`"sealed": true`), 1), after) {
		t.Errorf("metadata.json changed by more than one word (%v)", err)
	}
	for name, want := range map[string]fs.FileMode{".": 0o500, SumsFile: 0o400, EventsFile: 0o400, MetadataFile: 0o400} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("mode of %s = %v, %v, want %04o", name, info.Mode(), err, want)
		}
	}
}

// The form is coreutils': anybody can check a run without this program.
func TestSealIsWhatSha256sumReads(t *testing.T) {
	dir := sealedRun(t)
	check := func() error {
		cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "--quiet", SumsFile)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		t.Logf("sha256sum: %s", out)
		return err
	}
	if err := check(); err != nil {
		t.Errorf("sha256sum refuses the seal: %v", err)
	}
	if err := os.WriteFile(open(t, dir, EventsFile), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := check(); err == nil {
		t.Error("sha256sum accepts a changed file")
	}
}

func TestSealRefuses(t *testing.T) {
	cases := map[string]struct {
		spoil func(dir string) error
		want  error
		text  string
	}{
		"sealed twice": {Seal, ErrSealed, "sealed already"},
		"a foreign file": {
			func(dir string) error { return os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600) }, ErrForeign, "notes.txt (a file)",
		},
		"a directory": {func(dir string) error { return os.Mkdir(filepath.Join(dir, "plots"), 0o700) }, ErrForeign, "plots (a directory)"},
		"a link": {
			func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "stdout.log")) }, ErrForeign, "stdout.log (a symbolic link)",
		},
		"not closed": {
			func(dir string) error {
				return os.WriteFile(filepath.Join(dir, MetadataFile), []byte(`{"end":null}`), 0o600)
			}, ErrNotClosed, "not closed",
		},
		"edited metadata": {
			func(dir string) error {
				return os.WriteFile(filepath.Join(dir, MetadataFile), []byte(`{"end":{"wall_ns":1}}`), 0o600)
			}, nil, "was edited",
		},
		"no metadata": {func(dir string) error { return os.Remove(filepath.Join(dir, MetadataFile)) }, fs.ErrNotExist, MetadataFile},
		"no run":      {func(dir string) error { return os.Remove(filepath.Join(dir, RequestsFile)) }, fs.ErrNotExist, RequestsFile},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := closedRun(t)
			if err := c.spoil(dir); err != nil {
				t.Fatal(err)
			}
			before := mustCheck(t, dir)
			err := Seal(dir)
			if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("Seal = %v, want %v with %q", err, c.want, c.text)
			}
			if after := mustCheck(t, dir); after.Sealed != before.Sealed {
				t.Error("the refused seal left something behind")
			}
		})
	}
}

func TestCreateInSealedDirectory(t *testing.T) {
	dir := sealedRun(t)
	if _, err := Create(dir, Meta{}); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "sealed") {
		t.Errorf("Create in it = %v, want ErrExists that says sealed", err)
	}
	if s := mustCheck(t, dir); !s.OK() {
		t.Errorf("and left %+v", s)
	}
}

// Whatever moment a seal dies at, the run says unsealed and can be sealed.
func TestSealAfterACrash(t *testing.T) {
	whole := sealedRun(t)
	text := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(whole, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	steps := map[string]func(dir string) error{
		"metadata half written": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, nextFile), []byte("{"), 0o600)
		},
		"metadata written": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, MetadataFile), text(MetadataFile), 0o600)
		},
		"files read-only, sums half written": func(dir string) error {
			err := os.WriteFile(filepath.Join(dir, MetadataFile), text(MetadataFile), 0o600)
			for _, name := range []string{MetadataFile, EventsFile, RequestsFile} {
				err = errors.Join(err, os.Chmod(filepath.Join(dir, name), sealedFile))
			}
			return errors.Join(err, os.WriteFile(filepath.Join(dir, nextSums), text(SumsFile)[:100], 0o600))
		},
	}
	for name, crash := range steps {
		t.Run(name, func(t *testing.T) {
			dir := closedRun(t)
			if err := crash(dir); err != nil {
				t.Fatal(err)
			}
			s := mustCheck(t, dir)
			run, err := Read(dir)
			if s.OK() || !strings.HasPrefix(s.Why, "unsealed") || len(s.Problems) != 0 || err != nil || run.Sealed {
				t.Errorf("after the crash: %+v, %+v, %v, want unsealed", s, run, err)
			}
			if err := Seal(dir); err != nil {
				t.Fatal(err)
			}
			if s := mustCheck(t, dir); !s.OK() {
				t.Errorf("sealed anew: %+v", s)
			}
		})
	}
}

// rewrite changes a file of a sealed run, or makes it.
func rewrite(name string, change func(text string) string) func(dir string) error {
	return func(dir string) error {
		path := filepath.Join(dir, name)
		text, _ := os.ReadFile(path) // none is an empty one
		return errors.Join(os.Chmod(dir, 0o700), os.RemoveAll(path), os.WriteFile(path, []byte(change(string(text))), 0o600))
	}
}

func to(text string) func(string) string { return func(string) string { return text } }

func TestCheckSealFinds(t *testing.T) {
	cases := map[string]struct {
		spoil func(dir string) error
		kind  SealKind
		file  string
	}{
		"changed": {rewrite(EventsFile, to("{}\n")), SealChanged, EventsFile},
		"missing": {func(dir string) error {
			return errors.Join(os.Chmod(dir, 0o700), os.Remove(filepath.Join(dir, QualityFile)))
		}, SealMissing, QualityFile},
		"foreign": {rewrite("events.jsonl.gz", to("x")), SealForeign, "events.jsonl.gz"},
		"link": {func(dir string) error {
			path := filepath.Join(dir, EventsFile)
			return errors.Join(os.Chmod(dir, 0o700), os.Rename(path, path+"x"), os.Symlink(path+"x", path))
		}, SealLink, EventsFile},
		"a hash edited":    {rewrite(SumsFile, func(s string) string { return strings.Repeat("0", 64) + s[64:] }), SealChanged, EventsFile},
		"a hash taken out": {rewrite(SumsFile, func(s string) string { return s[strings.Index(s, "\n")+1:] }), SealForeign, EventsFile},
		"a line twice":     {rewrite(SumsFile, func(s string) string { return s + s }), SealSums, SumsFile},
		"a line cut":       {rewrite(SumsFile, func(s string) string { return s[:len(s)-5] }), SealSums, SumsFile},
		"a path":           {rewrite(SumsFile, func(s string) string { return s[:66] + "../x\n" + s }), SealSums, SumsFile},
		"empty":            {rewrite(SumsFile, to("")), SealSums, SumsFile},
		"says unsealed":    {rewrite(MetadataFile, to(`{"end":{"wall_ns":1}}`)), SealChanged, MetadataFile},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := sealedRun(t)
			if err := c.spoil(dir); err != nil {
				t.Fatal(err)
			}
			shut(t, dir)
			s := mustCheck(t, dir)
			has := func(p SealProblem) bool { return p.Kind == c.kind && p.File == c.file && p.Detail != "" }
			if s.OK() || !slices.ContainsFunc(s.Problems, has) {
				t.Errorf("problems %v, want %s of %s", s.Problems, c.kind, c.file)
			}
		})
	}
	t.Run("modes", func(t *testing.T) {
		dir := sealedRun(t)
		open(t, dir, EventsFile)
		s := mustCheck(t, dir)
		if len(s.Problems) != 2 || s.Problems[0].Kind != SealMode || s.Problems[1].Kind != SealMode || s.OK() {
			t.Errorf("problems %v, want two of mode", s.Problems)
		}
	})
}

func TestCheckSealOfUnsealedNames(t *testing.T) {
	dir := closedRun(t)
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "x"), 0o700), os.Symlink(RequestsFile, filepath.Join(dir, "stderr.log"))); err != nil {
		t.Fatal(err)
	}
	s := mustCheck(t, dir)
	if got := fmt.Sprint(s.Problems); len(s.Problems) != 2 || !strings.Contains(got, "x: a directory") || !strings.Contains(got, "stderr.log: a symbolic link") {
		t.Errorf("problems %v, want the directory and the link", s.Problems)
	}
	for name, want := range map[string]string{
		t.TempDir():                         "no whole run",
		filepath.Join(t.TempDir(), "other"): "",
	} {
		s, err := CheckSeal(name)
		if want == "" != (err != nil) || want != "" && !strings.Contains(s.Why, want) {
			t.Errorf("CheckSeal(%s) = %+v, %v, want %q", name, s, err, want)
		}
	}
}

func FuzzParseSums(f *testing.F) {
	f.Add([]byte(strings.Repeat("a", 64) + "  events.jsonl\n"))
	f.Add([]byte("zz  ../../etc/passwd"))
	f.Add([]byte{0, '\n', 0xff, ' ', ' '})
	f.Fuzz(func(t *testing.T, text []byte) {
		names, faults := parseSums(text)
		if len(names) == 0 && faults == nil {
			t.Error("a list without a name has no fault")
		}
		for name, hash := range names {
			if len(hash) != 64 || filepath.Base(name) != name || name == SumsFile {
				t.Errorf("%q has hash %q", name, hash)
			}
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	const size = 100 << 20
	block := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	for b.Loop() {
		b.StopTimer()
		dir := closedRun(b)
		f, err := os.OpenFile(filepath.Join(dir, EventsFile), os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			b.Fatal(err)
		}
		for range size / len(block) {
			if _, err := f.Write(block); err != nil {
				b.Fatal(err)
			}
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := Seal(dir); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(size)
}
