package convert

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// Format is what runs are written as.
type Format string

// The formats.
const (
	// Perfetto is a file, a trace in Perfetto's protobuf form.
	Perfetto Format = "perfetto"
	// Parquet and CSV are a folder with a file a table.
	Parquet Format = "parquet"
	CSV     Format = "csv"
)

// Errors of what was asked for; nothing is written then.
var (
	// ErrInput is for what is no run directory, or cannot be asked for.
	ErrInput = errors.New("cannot be converted")
	// ErrExists is for an output that is there already.
	ErrExists = errors.New("it is there already")
)

// Options is what to write, and where.
type Options struct {
	Format Format
	// Out is the file or folder to write. Default: DefaultOut.
	Out string
	// Force replaces an output of an earlier conversion.
	Force bool
	// Note is told what could not be used, and what is worth knowing. Default: none.
	Note func(Note)
	// Progress is told before each run is read, with its number from 0. Default: none.
	Progress func(run int, dir string)
}

// Note is a word about a run that is read.
type Note struct {
	Dir, Text string
	// Lost says that something of the run could not be used.
	Lost bool
}

// Result is what was written.
type Result struct {
	// Out is the file or folder, Bytes its size.
	Out   string
	Bytes int64
	// Counts of what was read.
	Runs, Requests, Sessions, Events, Quality int64
	// Lost counts what could not be used: lines, and files as a whole.
	Lost int64
}

// sink is one format.
type sink interface {
	run(*source) error
	// The number is the line's in its file, from 0.
	record(number int64, r *timeline.Record) error
	session(number int64, s *timeline.Session) error
	event(number int64, e *timeline.Event) error
	quality(number int64, q *timeline.QualityLine) error
	close() error
}

// Convert writes the runs in dirs. An error that is ErrInput or ErrExists is of what was
// asked for, one that is the context's of an interrupt, any other of the disk; then
// nothing is left behind.
func Convert(ctx context.Context, dirs []string, o Options) (*Result, error) {
	c := &conversion{o: o, res: &Result{}}
	if err := c.open(dirs); err != nil {
		return nil, err
	}
	out := o.Out
	if out == "" {
		out = DefaultOut(dirs, o.Format)
	}
	target, err := newTarget(out, dirs, o)
	if err != nil {
		return nil, err
	}
	if err := c.write(ctx, target); err != nil {
		return nil, errors.Join(err, target.discard())
	}
	c.res.Out = target.path
	c.res.Bytes, err = target.commit()
	return c.res, err
}

// DefaultOut is where a conversion goes that is not told: in the working directory, by the
// name of the run where there is one.
func DefaultOut(dirs []string, f Format) string {
	name := "runs"
	if len(dirs) == 1 {
		if abs, err := filepath.Abs(dirs[0]); err == nil {
			name = filepath.Base(abs)
		}
	}
	if f == Perfetto {
		return name + ".pftrace"
	}
	return name + "." + string(f)
}

// conversion is one call of Convert.
type conversion struct {
	o    Options
	res  *Result
	runs []*source
}

// open looks at every directory before anything is written.
func (c *conversion) open(dirs []string) error {
	if len(dirs) == 0 {
		return fmt.Errorf("%w: no run directory is given", ErrInput)
	}
	switch c.o.Format {
	case Perfetto, Parquet, CSV:
	default:
		return fmt.Errorf("%w: format %q is none of perfetto, parquet, csv", ErrInput, c.o.Format)
	}
	var seen []os.FileInfo
	for _, dir := range dirs {
		s, err := openSource(dir, c.note)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrInput, dir, err)
		}
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrInput, dir, err)
		}
		for i, other := range seen {
			if os.SameFile(info, other) {
				return fmt.Errorf("%w: %s and %s are one directory", ErrInput, dirs[i], dir)
			}
		}
		seen = append(seen, info)
		c.runs = append(c.runs, s)
	}
	return nil
}

// note tells what could not be used, and counts it.
func (c *conversion) note(n Note) {
	if n.Lost {
		c.res.Lost++
	}
	if c.o.Note != nil {
		c.o.Note(n)
	}
}

func (c *conversion) write(ctx context.Context, t *target) error {
	s, err := c.sink(t)
	if err != nil {
		return err
	}
	for i, src := range c.runs {
		if c.o.Progress != nil {
			c.o.Progress(i, src.dir)
		}
		if err := c.copyRun(ctx, s, src); err != nil {
			return err // the files are closed with the target: what is buffered is given up
		}
	}
	return s.close()
}

func (c *conversion) sink(t *target) (sink, error) {
	if c.o.Format == Perfetto {
		return newTrace(t, c)
	}
	return newTables(t, c.o.Format)
}

// copyRun reads a run: sessions ahead of their turns, records ahead of their events.
func (c *conversion) copyRun(ctx context.Context, s sink, src *source) error {
	c.res.Runs++
	for _, part := range []func() error{
		func() error { return s.run(src) },
		func() error { return each(ctx, src, src.sessions(), &c.res.Sessions, s.session) },
		func() error { return each(ctx, src, src.records(), &c.res.Requests, s.record) },
		func() error { return each(ctx, src, src.quality(), &c.res.Quality, s.quality) },
		func() error { return each(ctx, src, src.events(), &c.res.Events, s.event) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// inside reports whether path is dir or lies in it.
func inside(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}
