package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/omnitap/omnitap/proxy/timeline"
)

const (
	// flushDelay is the time from the first line that finds every buffer empty to
	// the write of all that came: at most this is lost with the process.
	flushDelay = 20 * time.Millisecond
	// retryDelay is the time between attempts while the disk refuses and nothing
	// new comes.
	retryDelay = 500 * time.Millisecond
)

// Stats says how many lines of each file are written and lost so far.
type Stats struct {
	Requests Counts `json:"requests"`
	Events   Counts `json:"events"`
	Sessions Counts `json:"sessions"`
	Quality  Counts `json:"quality"`
}

// Writer is an open run directory. All methods may be called concurrently.
type Writer struct {
	dir        string
	log        *slog.Logger
	describing sync.Mutex // protects metadata
	metadata   Metadata
	requests   lane
	events     lane
	sessions   lane
	quality    lane

	wake chan struct{}
	stop chan struct{}
	done chan struct{}

	unencodable sync.Once // logs the first record that JSON cannot hold

	once sync.Once
	err  error
}

func start(dir string, meta Meta, metadata Metadata, files [4]file) *Writer {
	reserved := meta.BufferBytes / 8
	w := &Writer{
		dir:      dir,
		log:      meta.Logger,
		metadata: metadata,
		requests: lane{name: RequestsFile, limit: reserved, file: files[0]},
		events:   lane{name: EventsFile, limit: meta.BufferBytes - 3*reserved, file: files[1]},
		sessions: lane{name: SessionsFile, limit: reserved, file: files[2]},
		quality:  lane{name: QualityFile, limit: reserved, file: files[3]},
		wake:     make(chan struct{}, 1),
		stop:     make(chan struct{}),
		done:     make(chan struct{}),
	}
	go w.flusher()
	return w
}

// Dir returns the directory that was given to Create.
func (w *Writer) Dir() string { return w.dir }

// lanes lists the files of the directory.
func (w *Writer) lanes() [4]*lane { return [4]*lane{&w.requests, &w.events, &w.sessions, &w.quality} }

// Record adds a line to requests.jsonl, and one to quality.jsonl where there was
// sound. A record that JSON cannot hold (NaN, infinity) is counted as lost.
func (w *Writer) Record(r *timeline.Record) {
	if r.Quality.Checks != nil {
		w.line(&w.quality, &timeline.QualityLine{Schema: timeline.Schema, RequestID: r.RequestID, Checks: r.Quality.Checks}, r.RequestID)
	}
	w.line(&w.requests, r, r.RequestID)
}

// Quality adds a line to quality.jsonl, of a record that was read back and holds none.
func (w *Writer) Quality(q *timeline.QualityLine) { w.line(&w.quality, q, q.RequestID) }

// Session adds a line to sessions.jsonl, as Record does.
func (w *Writer) Session(s *timeline.Session) { w.line(&w.sessions, s, s.SessionID) }

func (w *Writer) line(l *lane, v any, id string) {
	buf := encodeBuffers.Get().(*bytes.Buffer)
	buf.Reset()
	if err := encodeLine(buf, v); err != nil {
		l.mu.Lock()
		l.lose(0)
		l.mu.Unlock()
		w.unencodable.Do(func() {
			w.log.Error("record cannot be encoded, this and further ones are lost", "request_id", id, "error", err)
		})
	} else if l.addLine(buf.Bytes()) {
		w.rouse()
	}
	encodeBuffers.Put(buf)
}

// Event adds a line to events.jsonl. It allocates nothing.
func (w *Writer) Event(e *timeline.Event) {
	if w.events.addEvent(e) {
		w.rouse()
	}
}

// Stats returns the counts so far.
func (w *Writer) Stats() Stats {
	return Stats{Requests: w.requests.snapshot(), Events: w.events.snapshot(), Sessions: w.sessions.snapshot(), Quality: w.quality.snapshot()}
}

// Close writes what waits, closes the files and completes metadata.json with the
// end stamps and the counts. Lines that the disk still refuses are counted as
// lost, and the error says so. Later calls return the same error.
func (w *Writer) Close() error {
	w.once.Do(func() { w.err = w.finish() })
	return w.err
}

func (w *Writer) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// flusher runs until stop closes. Its timer runs only while something waits.
func (w *Writer) flusher() {
	defer close(w.done)
	timer := time.NewTimer(flushDelay)
	timer.Stop()
	waiting := false
	for {
		select {
		case <-w.stop:
			return
		case <-w.wake:
			if !waiting {
				waiting = true
				timer.Reset(flushDelay)
			}
		case <-timer.C:
			waiting = false
			var failed error
			for _, l := range w.lanes() {
				failed = errors.Join(failed, w.flush(l))
			}
			if failed != nil { // new lines may still bring it forward
				timer.Reset(retryDelay)
			}
		}
	}
}

// flush writes one lane out and logs when its state changes.
func (w *Writer) flush(l *lane) error {
	err := l.flush()
	counts := l.snapshot()
	switch {
	case err != nil && !l.failing:
		w.log.Error("run directory not writable, lines wait in memory", "file", l.name, "error", err)
	case err == nil && l.failing:
		w.log.Info("run directory writable again", "file", l.name, "lost_lines", counts.LostLines, "lost_bytes", counts.LostBytes)
	}
	l.failing = err != nil
	switch {
	case counts.LostLines > l.lost && !l.losing:
		l.losing = true
		w.log.Warn("losing lines", "file", l.name, "lost_lines", counts.LostLines, "lost_bytes", counts.LostBytes)
	case counts.LostLines == l.lost && err == nil:
		l.losing = false
	}
	l.lost = counts.LostLines
	return err
}

func (w *Writer) finish() error {
	for _, l := range w.lanes() {
		l.shut()
	}
	close(w.stop)
	<-w.done

	var errs []error
	for _, l := range w.lanes() {
		errs = append(errs, w.finishLane(l))
	}
	w.describing.Lock()
	defer w.describing.Unlock()
	w.metadata.end(w.Stats())
	errs = append(errs, writeMetadata(w.dir, w.metadata), syncDir(w.dir))
	return errors.Join(errs...)
}

func (w *Writer) finishLane(l *lane) error {
	var errs []error
	if err := w.flush(l); err != nil {
		errs = append(errs, fmt.Errorf("writing %s: %w", l.name, err))
		if err := l.giveUp(); err != nil {
			errs = append(errs, fmt.Errorf("cutting the last line of %s: %w", l.name, err))
		}
	}
	if err := l.file.Sync(); err != nil {
		errs = append(errs, fmt.Errorf("syncing %s: %w", l.name, err))
	}
	if err := l.file.Close(); err != nil {
		errs = append(errs, fmt.Errorf("closing %s: %w", l.name, err))
	}
	return errors.Join(errs...)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("opening the run directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("syncing the run directory: %w", err)
	}
	return nil
}

var encodeBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func encodeLine(buf *bytes.Buffer, v any) error {
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
