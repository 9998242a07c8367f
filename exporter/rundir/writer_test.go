package rundir

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/omnitap/omnitap/proxy/timeline"
)

func mustCreate(tb testing.TB, dir string, meta Meta, open opener) *Writer {
	tb.Helper()
	w, err := create(dir, meta, open)
	if err != nil {
		tb.Fatalf("create: %v", err)
	}
	return w
}

func event(i int) *timeline.Event {
	return &timeline.Event{RequestID: fmt.Sprintf("request-%06d", i), ChunkID: timeline.N(int64(i)), Event: "output_chunk"}
}

// ids returns the request ids of whole lines and fails on a line that is none.
func ids(t *testing.T, run *Run) []string {
	t.Helper()
	var out []string
	for e, err := range run.Events() {
		if err != nil {
			t.Errorf("Events: %v", err)
			continue
		}
		out = append(out, e.RequestID)
	}
	return out
}

func TestWriterRoundTrip(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w := mustCreate(t, dir, Meta{RunID: "r1"}, openExclusive)
	const goroutines, each = 8, 500
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				w.Event(event(g*each + i))
				if i%10 == 0 {
					w.Record(&timeline.Record{Schema: 1, RequestID: fmt.Sprintf("%d-%d", g, i)})
				}
			}
		})
	}
	wg.Wait()
	if err := w.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	run, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, id := range ids(t, run) {
		seen[id] = true
	}
	records := 0
	for _, err := range run.Records() {
		if err != nil {
			t.Errorf("Records: %v", err)
		}
		records++
	}
	if len(seen) != goroutines*each || records != goroutines*each/10 {
		t.Errorf("read %d events, %d records, want %d and %d", len(seen), records, goroutines*each, goroutines*each/10)
	}
	stats := w.Stats()
	if stats.Events.Lines != goroutines*each || stats.Events.LostLines != 0 || stats.Requests.Lines != int64(records) {
		t.Errorf("Stats = %+v", stats)
	}
	if !run.Closed || run.Sealed || run.Metadata.Files == nil || *run.Metadata.Files != stats {
		t.Errorf("closed %t, sealed %t, files %+v, want closed with %+v", run.Closed, run.Sealed, run.Metadata.Files, stats)
	}
	for name, want := range map[string]os.FileMode{"": os.ModeDir | 0o700, RequestsFile: 0o600, MetadataFile: 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("mode of %q = %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, EventsFile)); err != nil || info.Size() != stats.Events.Bytes {
		t.Errorf("size of events.jsonl = %v, %v, want the %d bytes counted", info.Size(), err, stats.Events.Bytes)
	}
}

// A kill loses at most the last 100 ms, and an idle writer sets no timer.
func TestWriterFlushesInTime(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(1 << 20)
		w := mustCreate(t, dir, Meta{}, d.open)
		time.Sleep(time.Hour) // would not return early; nothing waits meanwhile

		w.Event(event(1))
		time.Sleep(40 * time.Millisecond)
		w.Record(&timeline.Record{RequestID: "r"}) // restarts the delay, once
		time.Sleep(60 * time.Millisecond)
		synctest.Wait()
		if d.text(EventsFile) == "" || d.text(RequestsFile) == "" {
			t.Errorf("after 100 ms: events %q, requests %q, want both written", d.text(EventsFile), d.text(RequestsFile))
		}
		if err := w.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestWriterFullDisk(t *testing.T) {
	for _, most := range []int{0, 1, 7} {
		t.Run(fmt.Sprintf("most=%d", most), func(t *testing.T) {
			dir := t.TempDir()
			var log bytes.Buffer
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(555) // two lines and a half
				w := mustCreate(t, dir, Meta{Logger: slog.New(slog.NewTextHandler(&log, nil))}, d.open)
				for i := range 100 {
					w.Event(event(i))
					time.Sleep(20 * time.Millisecond)
				}
				d.mu.Lock()
				d.most = most
				d.mu.Unlock()
				before := w.Stats().Events
				if before.Lines != 2 || before.Bytes != 555 || before.LostLines != 0 {
					t.Errorf("Stats on a full disk = %+v, want 2 lines in 555 bytes and nothing lost yet", before)
				}
				d.grow(1 << 20)
				if most == 0 {
					time.Sleep(time.Second)
				} else { // every attempt takes a few bytes only
					time.Sleep(20000 * time.Second)
				}
				if err := w.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				checkLines(t, d.text(EventsFile), 100)
			})
			if got := strings.Count(log.String(), "not writable"); got != 1 {
				t.Errorf("failure logged %d times, want once:\n%s", got, log.String())
			}
			if got := strings.Count(log.String(), "writable again"); got != 1 {
				t.Errorf("recovery logged %d times, want once:\n%s", got, log.String())
			}
		})
	}
}

// checkLines wants events 0 to n-1, each on a whole line.
func checkLines(t *testing.T, text string, n int) {
	t.Helper()
	lines := strings.SplitAfter(text, "\n")
	if last := len(lines) - 1; lines[last] != "" || last != n {
		t.Fatalf("%d lines, last one %q, want %d whole ones", last, lines[last], n)
	}
	for i, line := range lines[:n] {
		if want := reference(t, event(i)) + "\n"; line != want {
			t.Fatalf("line %d = %q, want %q", i, line, want)
		}
	}
}

// The disk stays full until Close: the half line is cut, the rest is counted.
func TestWriterFullDiskAtClose(t *testing.T) {
	dir := t.TempDir()
	d := newDisk(555)
	w := mustCreate(t, dir, Meta{}, d.open)
	total := 0
	for i := range 10 {
		total += len(reference(t, event(i))) + 1
		w.Event(event(i))
	}
	err := w.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Close = %v, want ENOSPC", err)
	}
	if again := w.Close(); !errors.Is(again, syscall.ENOSPC) {
		t.Errorf("second Close = %v, want the same", again)
	}
	checkLines(t, d.text(EventsFile), 2)
	got := w.Stats().Events
	want := Counts{Lines: 2, Bytes: int64(len(d.text(EventsFile))), LostLines: 8}
	want.LostBytes = int64(total) - want.Bytes
	if got != want {
		t.Errorf("Stats = %+v, want %+v", got, want)
	}
	w.Event(event(10))
	if lost := w.Stats().Events.LostLines; lost != 9 {
		t.Errorf("lost lines after an event behind Close = %d, want 9", lost)
	}
}

func TestWriterBound(t *testing.T) {
	const bound = 8 << 10
	dir := t.TempDir()
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(0)
		w := mustCreate(t, dir, Meta{BufferBytes: bound, Logger: slog.New(slog.NewTextHandler(&log, nil))}, d.open)
		for i := range 1000 {
			w.Event(event(i))
			w.Event(event(i)) // in one bubble instant: no flush in between
			time.Sleep(time.Millisecond)
		}
		w.requests.mu.Lock()
		w.requests.limit = 64
		w.requests.mu.Unlock()
		w.Record(&timeline.Record{})
		held, lost := w.events.held, w.Stats().Events.LostLines
		if held > bound || lost == 0 {
			t.Errorf("%d bytes held, %d lines lost, want at most %d held and some lost", held, lost, bound)
		}
		synctest.Wait() // the flusher's fields may be read now
		if n := len(w.events.queue) + len(w.events.pending); n > 2 {
			t.Errorf("%d blocks hold %d bytes, want the room of the bound and no block an attempt", n, held)
		}
		d.grow(1 << 20)
		time.Sleep(time.Second)
		if err := w.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		stats := w.Stats()
		if stats.Events.Lines+stats.Events.LostLines != 2000 || w.events.held != 0 {
			t.Errorf("Stats = %+v with %d bytes held, want written and lost to be 2000", stats.Events, w.events.held)
		}
		if stats.Requests.LostLines != 1 {
			t.Errorf("lost records = %d, want 1", stats.Requests.LostLines)
		}
	})
	for _, message := range []string{"losing lines", "not writable", "writable again"} {
		n := 0
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, message) && strings.Contains(line, "file="+EventsFile) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%q is logged %d times, want once:\n%s", message, n, log.String())
		}
	}
}

func TestWriterLongLinesAndBadRecords(t *testing.T) {
	dir := t.TempDir()
	w := mustCreate(t, dir, Meta{}, openExclusive)
	long := strings.Repeat("x", 2*blockBytes)
	w.Record(&timeline.Record{RequestID: long})
	w.Record(&timeline.Record{RequestID: "short"})
	nan := math.NaN()
	w.Record(&timeline.Record{RTF: &nan})
	w.Event(&timeline.Event{RequestID: long})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	run, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for r, err := range run.Records() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.RequestID)
	}
	if len(got) != 2 || got[0] != long || got[1] != "short" {
		t.Errorf("%d records read, want the long one and the short one", len(got))
	}
	if lost := w.Stats().Requests.LostLines; lost != 1 {
		t.Errorf("lost records = %d, want 1", lost)
	}
}

func TestWriterEventDoesNotAllocate(t *testing.T) {
	w := mustCreate(t, t.TempDir(), Meta{}, openExclusive)
	defer w.Close()
	e := chunkEvent()
	w.Event(&e)
	// The blocks come from a pool: one in about a thousand events takes a new one.
	if got := testing.AllocsPerRun(10000, func() { w.Event(&e) }); got != 0 {
		t.Errorf("Event allocates %v times, want 0", got)
	}
}

type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) Truncate(int64) error        { return nil }
func (nowhere) Sync() error                 { return nil }
func (nowhere) Close() error                { return nil }

func BenchmarkWriterEvent(b *testing.B) {
	w := mustCreate(b, b.TempDir(), Meta{BufferBytes: 1 << 30}, func(string) (file, error) { return nowhere{}, nil })
	defer w.Close()
	e := chunkEvent()
	b.ReportAllocs()
	for b.Loop() {
		w.Event(&e)
	}
	b.ReportMetric(float64(w.Stats().Events.LostLines), "lost")
}

func BenchmarkWriterEventParallel(b *testing.B) {
	w := mustCreate(b, b.TempDir(), Meta{BufferBytes: 1 << 30}, func(string) (file, error) { return nowhere{}, nil })
	defer w.Close()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		e := chunkEvent()
		for pb.Next() {
			w.Event(&e)
		}
	})
}

var (
	_ file      = (*diskFile)(nil)
	_ io.Writer = nowhere{}
)
