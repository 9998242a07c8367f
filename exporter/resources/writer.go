package resources

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/omnitap/omnitap/probes/gpu"
	"github.com/omnitap/omnitap/probes/host/usage"
)

// Config says how to write. Zero values mean the defaults.
type Config struct {
	// RunID and Node name the run and the host.
	RunID string
	Node  string
	// FlushEvery is how much a crash loses at most. Default 10 s.
	FlushEvery time.Duration
	// MaxRows bounds the rows that wait for the disk. Default 65,536, some 40 MiB.
	MaxRows int
	// Logger gets a line when writing starts to fail and when it works again.
	Logger *slog.Logger
}

// Stats says what became of the rows.
type Stats struct {
	// Written rows are in complete parts, Waiting ones not yet, Lost ones were over the
	// bound or came after Close.
	Written int64 `json:"rows_written"`
	Waiting int64 `json:"rows_waiting"`
	Lost    int64 `json:"rows_lost"`
	// Parts is how many flushes there were, Error why the last one failed.
	Parts int    `json:"parts"`
	Error string `json:"error,omitempty"`
}

// Writer writes resources.parquet into a run directory. Its methods may be called
// concurrently.
type Writer struct {
	dir     string
	config  Config
	convert *converter

	mu     sync.Mutex // protects the fields of this group
	rows   []Row
	spare  []Row // what the last flush gave back
	stats  Stats
	closed bool

	parts   []part // the flusher's own, and after it Close's
	next    int
	mergeAt int
	stop    chan struct{}
	done    chan struct{}
	once    sync.Once
	err     error
}

// Create starts a file in a run directory, which must be there. It fails where there is
// one already, or parts of one.
func Create(dir string, c Config) (*Writer, error) {
	if c.FlushEvery <= 0 {
		c.FlushEvery = 10 * time.Second
	}
	if c.MaxRows <= 0 {
		c.MaxRows = 1 << 16
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if _, err := os.Lstat(filepath.Join(dir, File)); err == nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, File), os.ErrExist)
	}
	if err := os.Mkdir(filepath.Join(dir, PartsDir), 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of parts: %w", err)
	}
	w := &Writer{dir: dir, config: c, convert: newConverter(c.Node), next: 1, mergeAt: mergeAt, stop: make(chan struct{}), done: make(chan struct{})}
	go w.flusher()
	return w, nil
}

// GPU adds the rows of a sample of cards.
func (w *Writer) GPU(s *gpu.Sample) { w.add(w.convert.gpu(s)) }

// Usage adds the rows of a sample of machine and processes.
func (w *Writer) Usage(s *usage.Sample) { w.add(w.convert.usage(s)) }

func (w *Writer) add(rows []Row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	room := w.config.MaxRows - len(w.rows)
	if w.closed {
		room = 0
	}
	n := min(len(rows), max(room, 0))
	w.rows = append(w.rows, rows[:n]...)
	w.stats.Lost += int64(len(rows) - n)
}

// Stats returns the counts so far.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.Waiting = int64(len(w.rows))
	return s
}

// flusher runs until stop closes.
func (w *Writer) flusher() {
	defer close(w.done)
	ticker := time.NewTicker(w.config.FlushEvery)
	defer ticker.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-ticker.C:
			w.note(w.flush())
		}
	}
}

// note logs when the state of the disk changes.
func (w *Writer) note(err error) {
	w.mu.Lock()
	before := w.stats.Error
	w.stats.Error = ""
	if err != nil {
		w.stats.Error = err.Error()
	}
	lost := w.stats.Lost
	w.mu.Unlock()
	switch {
	case err != nil && before == "":
		w.config.Logger.Error("resources are not written, rows wait in memory", "file", File, "error", err)
	case err == nil && before != "":
		w.config.Logger.Info("resources are written again", "file", File, "rows_lost", lost)
	}
}

// flush writes what waits as a part. What the disk refuses waits on.
func (w *Writer) flush() error {
	w.mu.Lock()
	rows := w.rows
	w.rows, w.spare = w.spare[:0], nil
	w.mu.Unlock()
	if len(rows) == 0 {
		w.give(rows, 0)
		return nil
	}
	p := part{w.next, w.next}
	err := replace(filepath.Join(w.dir, PartsDir, p.name()), func(out io.Writer) error { return w.encode(out, rows) })
	if err != nil {
		w.back(rows)
		return fmt.Errorf("writing a part: %w", err)
	}
	w.next++
	w.parts = append(w.parts, p)
	w.give(rows, len(rows))
	return w.compact()
}

// encode writes one row group. A writer for each part costs half a millisecond; one that
// is kept costs the memory of all columns between two flushes.
func (w *Writer) encode(out io.Writer, rows []Row) error {
	p := parquet.NewGenericWriter[Row](out, append(options(),
		parquet.KeyValueMetadata(keyRun, w.config.RunID), parquet.KeyValueMetadata(keyNode, w.config.Node))...)
	if _, err := p.Write(rows); err != nil {
		return errors.Join(err, p.Close())
	}
	return p.Close()
}

// give takes a slice back for the next rows, and counts.
func (w *Writer) give(rows []Row, written int) {
	clear(rows)
	w.mu.Lock()
	w.spare = rows[:0]
	w.stats.Written += int64(written)
	if written > 0 {
		w.stats.Parts++
	}
	w.mu.Unlock()
}

// back puts rows in front again that could not be written. What came meanwhile and is
// over the bound is lost.
func (w *Writer) back(rows []Row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.rows), w.config.MaxRows-len(rows))
	w.stats.Lost += int64(len(w.rows) - n)
	w.rows = append(rows, w.rows[:n]...)
}

// compact merges the parts of one flush each when there are enough of them.
func (w *Writer) compact() error {
	small := len(w.parts)
	for small > 0 && w.parts[small-1].from == w.parts[small-1].to {
		small--
	}
	if len(w.parts)-small < w.mergeAt {
		return nil
	}
	in := filepath.Join(w.dir, PartsDir)
	into, err := merge(in, w.parts[small:])
	if err != nil {
		return err
	}
	for _, p := range w.parts[small:] {
		err = errors.Join(err, os.Remove(filepath.Join(in, p.name())))
	}
	w.parts = append(w.parts[:small], into)
	return err
}

// Close writes what waits, puts resources.parquet together and removes the parts. Rows
// that the disk still refuses are counted as lost, and the error says so. Later calls
// return the same error.
func (w *Writer) Close() error {
	w.once.Do(func() { w.err = w.finish() })
	return w.err
}

func (w *Writer) finish() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	close(w.stop)
	<-w.done
	err := w.flush()
	w.note(err)
	w.mu.Lock()
	w.stats.Lost += int64(len(w.rows))
	w.rows = nil
	w.mu.Unlock()
	r, joined := finish(w.dir, map[string]string{keyRun: w.config.RunID, keyNode: w.config.Node})
	for _, d := range r.Damaged {
		joined = errors.Join(joined, errors.New("a part cannot be read: "+d))
	}
	return errors.Join(err, joined)
}
