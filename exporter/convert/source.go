package convert

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// namedLines is how many lines of a file are named that cannot be used; all are counted.
const namedLines = 5

// checkEvery is how many lines are read between two looks at the context.
const checkEvery = 1024

// source is a run that is read.
type source struct {
	dir  string
	run  *rundir.Run
	note func(Note)
	// broken are files that are there and cannot be read as files.
	broken map[string]bool
}

// openSource opens a run, and tells what its files say of themselves. Its error is for a
// directory that holds no run.
func openSource(dir string, note func(Note)) (*source, error) {
	if info, err := os.Stat(filepath.Join(dir, rundir.RequestsFile)); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", rundir.RequestsFile)
	}
	run, err := rundir.Read(dir)
	if err != nil {
		return nil, err
	}
	s := &source{dir: filepath.Clean(dir), run: run, note: note, broken: map[string]bool{}}
	switch {
	case run.MetadataErr != nil:
		s.tell(true, "%v: which run this is, and when it began, is not known", run.MetadataErr)
	case run.Metadata.Schema > timeline.Schema:
		s.tell(true, "schema %d is newer than this program's %d: its lines are not read", run.Metadata.Schema, timeline.Schema)
	case !run.Closed:
		s.tell(false, "the run was not closed: it may be running, or a crash ended it")
	}
	for _, name := range []string{rundir.EventsFile, rundir.SessionsFile, rundir.QualityFile} {
		s.look(name)
	}
	return s, nil
}

func (s *source) tell(lost bool, format string, a ...any) {
	s.note(Note{Dir: s.dir, Text: fmt.Sprintf(format, a...), Lost: lost})
}

// look tells of a file that is missing, or none.
func (s *source) look(name string) {
	info, err := os.Stat(filepath.Join(s.dir, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.tell(false, "there is no %s: its table has no row of this run", name)
	case err == nil && !info.Mode().IsRegular():
		s.broken[name] = true
		s.tell(true, "%s is no file", name)
	}
}

// lines are the lines of one file.
type lines[T any] struct {
	name string
	seq  iter.Seq2[*T, error]
	// stated is how many metadata.json counts, -1 where it does not.
	stated int64
	// schema of a line; nil for lines without one.
	schema func(*T) int
}

func (s *source) records() lines[timeline.Record] {
	return lines[timeline.Record]{rundir.RequestsFile, s.run.Records(), s.stated(func(f *rundir.Stats) int64 { return f.Requests.Lines }), func(r *timeline.Record) int { return r.Schema }}
}

func (s *source) sessions() lines[timeline.Session] {
	return lines[timeline.Session]{rundir.SessionsFile, s.run.Sessions(), s.stated(func(f *rundir.Stats) int64 { return f.Sessions.Lines }), func(v *timeline.Session) int { return v.Schema }}
}

func (s *source) events() lines[timeline.Event] {
	return lines[timeline.Event]{rundir.EventsFile, s.run.Events(), s.stated(func(f *rundir.Stats) int64 { return f.Events.Lines }), nil}
}

func (s *source) quality() lines[timeline.QualityLine] {
	return lines[timeline.QualityLine]{rundir.QualityFile, s.run.Quality(), s.stated(func(f *rundir.Stats) int64 { return f.Quality.Lines }), func(q *timeline.QualityLine) int { return q.Schema }}
}

func (s *source) stated(of func(*rundir.Stats) int64) int64 {
	if f := s.run.Metadata.Files; f != nil {
		return of(f)
	}
	return -1
}

// each hands on every whole line with its number from 0, counts it, and tells what is not
// whole. Its error is the context's, or of handing on.
func each[T any](ctx context.Context, s *source, l lines[T], count *int64, use func(int64, *T) error) error {
	if s.broken[l.name] || s.run.Metadata.Schema > timeline.Schema {
		return nil
	}
	number, bad := int64(-1), int64(0)
	for v, err := range l.seq {
		number++
		if number%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			err = usable(&l, number, v)
		}
		if err != nil {
			if bad++; bad <= namedLines {
				s.tell(true, "%v", err)
			} else {
				s.note(Note{Dir: s.dir, Lost: true})
			}
			continue
		}
		*count++
		if err := use(number, v); err != nil {
			return err
		}
	}
	if bad > namedLines {
		s.tell(false, "%s: %d lines cannot be used; the first %d are named", l.name, bad, namedLines)
	}
	if l.stated > number+1 {
		s.tell(true, "%s: %d lines are there, and %s counts %d", l.name, number+1, rundir.MetadataFile, l.stated)
	}
	return nil
}

// usable refuses what is JSON and no line of this form.
func usable[T any](l *lines[T], number int64, v *T) error {
	switch {
	case l.schema == nil:
		return nil
	case l.schema(v) != timeline.Schema:
		return &rundir.LineError{File: l.name, Line: int(number) + 1, Err: fmt.Errorf("its schema is %d, not %d", l.schema(v), timeline.Schema)}
	}
	return nil
}
