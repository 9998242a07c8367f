package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/omnitap/omnitap/probes/event"
)

// stageFilm writes what the probes see into a folder that replay --stages reads
// (records.md section 4). It holds pieces of messages: prompts too.
type stageFilm struct {
	dir  string
	log  *slog.Logger
	file *os.File

	mu   sync.Mutex // protects what follows
	w    *bufio.Writer
	buf  []byte
	seen []event.Process // all that ever were: their events stay in the file
	err  error           // the first one: nothing is written behind it
}

// newStageFilm makes DIR/stages, or DIR/stages-2 and so on where there is one already.
func newStageFilm(in string, log *slog.Logger) (*stageFilm, error) {
	if err := os.MkdirAll(in, 0o700); err != nil {
		return nil, fmt.Errorf("making a folder for stage events: %w", err)
	}
	dir := filepath.Join(in, "stages")
	err := os.Mkdir(dir, 0o700)
	for n := 2; errors.Is(err, os.ErrExist) && n < 10000; n++ {
		dir = filepath.Join(in, fmt.Sprintf("stages-%d", n))
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("making a folder for stage events: %w", err)
	}
	return newStageFilmAt(dir, log)
}

// newStageFilmAt makes the files in a folder that is there.
func newStageFilmAt(dir string, log *slog.Logger) (*stageFilm, error) {
	f, err := os.OpenFile(filepath.Join(dir, "raw.jsonl"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making a file for stage events: %w", err)
	}
	film := &stageFilm{dir: dir, log: log, file: f, w: bufio.NewWriterSize(f, 1<<16)}
	film.processes(event.Processes{})
	return film, film.err
}

// events writes a batch.
func (f *stageFilm) events(batch []event.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return
	}
	for i := range batch {
		f.buf = append(batch[i].AppendJSON(f.buf[:0]), '\n')
		if _, err := f.w.Write(f.buf); err != nil {
			f.fail(err)
			return
		}
	}
	if err := f.w.Flush(); err != nil { // a crash leaves whole lines
		f.fail(err)
	}
}

// processes writes the table anew, by way of another file: a crash leaves the old one.
func (f *stageFilm) processes(p event.Processes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return
	}
	for i := range p.Processes {
		q := &p.Processes[i]
		at := slices.IndexFunc(f.seen, func(s event.Process) bool { return s.PID == q.PID && s.StartTicks == q.StartTicks })
		if at >= 0 {
			f.seen[at] = *q
		} else {
			f.seen = append(f.seen, *q)
		}
	}
	p.Processes = f.seen
	name := filepath.Join(f.dir, "processes.json")
	var b bytes.Buffer
	err := event.WriteProcesses(&b, p)
	if err == nil {
		err = os.WriteFile(name+".new", b.Bytes(), 0o600)
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		f.fail(err)
	}
}

// fail says once that the capture is not whole; the traffic and the join go on.
func (f *stageFilm) fail(err error) {
	f.err = fmt.Errorf("the capture of stage events is not whole: %w", err)
	f.log.Error("capturing stage events", "error", err)
}

func (f *stageFilm) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.err, f.w.Flush(), f.file.Close())
}

// discard removes a capture that nothing was written to.
func (f *stageFilm) discard() error {
	return errors.Join(f.file.Close(), os.RemoveAll(f.dir))
}
