package verify_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/verify"
)

// demo unpacks the demo's run, which is closed and not sealed.
func demo(tb testing.TB) string {
	tb.Helper()
	return unpack(tb, "demo")
}

// unpack unpacks a run of testdata.
func unpack(tb testing.TB, name string) string {
	tb.Helper()
	f, err := os.Open("testdata/" + name + ".tar.gz")
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	dir := filepath.Join(tb.TempDir(), "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	for in := tar.NewReader(unzipped); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			tb.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(in)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(h.Name)), text, 0o600)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

func sealed(tb testing.TB) string {
	tb.Helper()
	dir := demo(tb)
	seal(tb, dir)
	return dir
}

func seal(tb testing.TB, dir string) {
	tb.Helper()
	if err := rundir.Seal(dir); err != nil {
		tb.Fatal(err)
	}
}

func mustVerify(tb testing.TB, dir string, o verify.Options) *verify.Result {
	tb.Helper()
	res, err := verify.Verify(dir, o)
	if err != nil {
		tb.Fatal(err)
	}
	return res
}

// edit changes a file of a run, sealed or not.
func edit(tb testing.TB, dir, name string, change func(text string) string) {
	tb.Helper()
	path := filepath.Join(dir, name)
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	changed := change(string(text))
	if changed == string(text) {
		tb.Fatalf("the edit changes nothing in %s", name)
	}
	mode := os.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode()
	}
	err = errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, []byte(changed), 0o600), os.Chmod(path, mode))
	if err != nil {
		tb.Fatal(err)
	}
}

// recount makes metadata.json count what there is now, as a careful forger would.
func recount(tb testing.TB, dir string) {
	tb.Helper()
	for name, key := range map[string]string{
		rundir.RequestsFile: "requests", rundir.EventsFile: "events", rundir.SessionsFile: "sessions", rundir.QualityFile: "quality",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			tb.Fatal(err)
		}
		lines := strings.Count(string(text), "\n")
		if len(text) > 0 && text[len(text)-1] != '\n' {
			lines++
		}
		path := filepath.Join(dir, rundir.MetadataFile)
		meta, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		counts := regexp.MustCompile(`(?s)("` + key + `": \{\s*"lines": )\d+(,\s*"bytes": )\d+`)
		if !counts.Match(meta) {
			tb.Fatalf("metadata.json counts no %s", key)
		}
		meta = counts.ReplaceAll(meta, fmt.Appendf(nil, "${1}%d${2}%d", lines, len(text)))
		if err := os.WriteFile(path, meta, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
}

// find returns the first finding that a test wants, nil for none.
func find(res *verify.Result, fits func(f *verify.Finding) bool) *verify.Finding {
	for i := range res.Findings {
		if fits(&res.Findings[i]) {
			return &res.Findings[i]
		}
	}
	return nil
}

// list is what a test shows of a result.
func list(res *verify.Result) string {
	var b strings.Builder
	for i := range res.Findings {
		if b.WriteString("\n  " + res.Findings[i].String()); i == 20 {
			b.WriteString("\n  …")
			break
		}
	}
	return b.String()
}
