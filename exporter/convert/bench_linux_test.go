package convert

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
)

// maxMiB is what converting a million events may take, beside nothing else.
const maxMiB = 500

// BenchmarkMillionEvents converts a run of a million events, of 10,000 requests with a
// chat's stages and hand-overs each, and reports the peak of the process's memory.
func BenchmarkMillionEvents(b *testing.B) {
	dir := million(b)
	for _, f := range []Format{Perfetto, Parquet, CSV} {
		b.Run(string(f), func(b *testing.B) {
			debug.FreeOSMemory()
			if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o600); err != nil { // the peak begins anew
				b.Fatal(err)
			}
			var size int64
			for b.Loop() {
				out := filepath.Join(b.TempDir(), "out")
				res, err := Convert(b.Context(), []string{dir}, Options{Format: f, Out: out})
				if err != nil || res.Events != 1_000_000 || res.Lost != 0 {
					b.Fatalf("%+v, %v", res, err)
				}
				size = res.Bytes
			}
			peak := peakMiB(b)
			b.ReportMetric(peak, "peak-MiB")
			b.ReportMetric(float64(size)/(1<<20), "out-MiB")
			if peak > maxMiB {
				b.Errorf("the peak was %.0f MiB, over %d", peak, maxMiB)
			}
		})
	}
}

func peakMiB(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	if err != nil {
		b.Fatal(err)
	}
	return kib / 1024
}

// million writes the run: the first request of the made one, again and again.
func million(b *testing.B) string {
	b.Helper()
	const id = "ot7awb48exz1z"
	dir := copyRun(b)
	edit(b, dir, "metadata.json", uncounted)
	record := linesWith(b, "requests.jsonl", id)[:1]
	repeat(b, filepath.Join(dir, "requests.jsonl"), record, id, 1)
	repeat(b, filepath.Join(dir, "events.jsonl"), linesWith(b, "events.jsonl", id), id, 100)
	return dir
}

func linesWith(b *testing.B, name, id string) (lines []string) {
	b.Helper()
	text, err := os.ReadFile(filepath.Join(made, name))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, id) {
			lines = append(lines, line)
		}
	}
	return lines
}

// repeat writes so many lines for each of 10,000 requests.
func repeat(b *testing.B, path string, lines []string, id string, each int) {
	b.Helper()
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for r := range 10_000 {
		fresh := "request-" + strconv.Itoa(r)
		for i := range each {
			_, _ = strings.NewReplacer(id, fresh).WriteString(w, lines[i%len(lines)])
		}
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		b.Fatal(err)
	}
}
