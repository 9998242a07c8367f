package verify_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/verify"
)

var connections = regexp.MustCompile(`"connection_id":(\d+)`)

// large makes a run of about that many events: the demo's again and again, with other
// ids and connections each time.
func large(tb testing.TB, atLeast int) (dir string, events int64) {
	tb.Helper()
	dir = demo(tb)
	first, err := os.ReadFile(filepath.Join(dir, rundir.EventsFile))
	if err != nil {
		tb.Fatal(err)
	}
	each := bytes.Count(first, []byte{'\n'})
	times := (atLeast + each - 1) / each
	id := string(regexp.MustCompile(`"request_id":"(\w{9})`).FindSubmatch(first)[1])
	for _, name := range []string{rundir.RequestsFile, rundir.EventsFile, rundir.SessionsFile, rundir.QualityFile} {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		f, err := os.Create(path)
		if err != nil {
			tb.Fatal(err)
		}
		w := bufio.NewWriterSize(f, 1<<20)
		for i := range times {
			again := strings.ReplaceAll(string(text), id, fmt.Sprintf("x%08d", i))
			again = connections.ReplaceAllStringFunc(again, func(s string) string {
				n, _ := strconv.Atoi(s[len(`"connection_id":`):])
				return fmt.Sprintf(`"connection_id":%d`, 1000*i+n)
			})
			if _, err := w.WriteString(again); err != nil {
				tb.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			tb.Fatal(err)
		}
		if err := f.Close(); err != nil {
			tb.Fatal(err)
		}
	}
	recount(tb, dir)
	seal(tb, dir)
	return dir, int64(each * times)
}

// peak returns the most memory that the process has had since it was asked last.
func peak(tb testing.TB) float64 {
	tb.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		tb.Fatal(err)
	}
	kib, err := strconv.ParseFloat(regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(string(text))[1], 64)
	if err != nil {
		tb.Fatal(err)
	}
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		tb.Logf("the peak is that of the whole process: %v", err)
	}
	return kib / 1024
}

// BenchmarkVerify verifies a sealed run of a million events and 38 thousand requests;
// with -short, of fifty thousand.
func BenchmarkVerify(b *testing.B) {
	atLeast := 1_000_000
	if testing.Short() {
		atLeast = 50_000
	}
	dir, events := large(b, atLeast)
	runtime.GC()
	peak(b)
	for b.Loop() {
		res := mustVerify(b, dir, verify.Options{})
		if !res.OK() || res.Counts.Events != events {
			b.Fatalf("%d events, want %d, findings:%s", res.Counts.Events, events, list(res))
		}
	}
	b.ReportMetric(peak(b), "peak-MiB")
	b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
