package verify_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/verify"
)

// one takes the lines of a file of the demo's run that hold a text.
func one(tb testing.TB, dir, name, holds string) []byte {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		tb.Fatal(err)
	}
	var out []string
	for l := range strings.SplitAfterSeq(string(text), "\n") {
		if strings.Contains(l, holds) {
			out = append(out, l)
		}
	}
	return []byte(strings.Join(out, ""))
}

// Whatever the files hold, they are read to the end, and twice the same is found.
func FuzzVerify(f *testing.F) {
	dir := demo(f)
	for i, l := range strings.SplitAfter(string(one(f, dir, rundir.RequestsFile, `"request_id"`)), "\n")[:12] {
		id := l[strings.Index(l, `"request_id":`):strings.Index(l, `,"request_id_source"`)]
		events, quality := one(f, dir, rundir.EventsFile, id), one(f, dir, rundir.QualityFile, id)
		f.Add([]byte(l), events, quality, []byte(nil))
		f.Add([]byte(l), events, quality, []byte(`{"schema":1,"event_form":2}`))
		f.Add([]byte(strings.Replace(l, "2", "8", 3+i)), events[len(events)/2:], quality, []byte(`{"schema":1,"event_form":2}`))
		f.Add([]byte(strings.Replace(l, "1", "9", 2+i)), events[:len(events)/2], quality, []byte(`{"schema":1,"end":{},"files":{}}`))
	}
	f.Fuzz(func(t *testing.T, requests, events, quality, metadata []byte) {
		dir := t.TempDir()
		var errs []error
		for name, text := range map[string][]byte{
			rundir.RequestsFile: requests, rundir.EventsFile: events, rundir.QualityFile: quality, rundir.MetadataFile: metadata,
		} {
			errs = append(errs, os.WriteFile(filepath.Join(dir, name), text, 0o600))
		}
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		first, again := mustVerify(t, dir, verify.Options{}), mustVerify(t, dir, verify.Options{})
		if first.OK() || list(first) != list(again) || first.Errors != again.Errors {
			t.Errorf("first:%s\nagain:%s", list(first), list(again))
		}
	})
}
