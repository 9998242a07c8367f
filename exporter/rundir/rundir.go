// Package rundir writes and reads run directories: metadata.json, requests.jsonl,
// events.jsonl, sessions.jsonl and quality.jsonl.
//
// Typical use:
//
//	w, err := rundir.Create(dir, rundir.Meta{Upstream: upstream, Config: cfg})
//	...
//	w.Event(&event)   // any goroutine, never waits for the disk
//	w.Record(record)
//	...
//	err = w.Close()
//
// and later rundir.Read(dir), which also reads what a crash left.
//
// Record and Event copy what they are given into a bounded buffer before they
// return; the caller keeps its value. Lines of one file keep the order in which
// the calls took the lock. One goroutine, started by Create and ended by Close,
// writes the buffer out. A killed process loses at most its last 100 ms; nothing
// is promised about a machine that loses power before Close.
//
// Out of scope: the package derives no metric, does not seal (SHA256SUMS is
// written when every other file of the run is there), and looks at no process
// but its own.
package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// Names of the files in a run directory.
const (
	MetadataFile = "metadata.json"
	RequestsFile = "requests.jsonl"
	EventsFile   = "events.jsonl"
	SessionsFile = "sessions.jsonl"
	QualityFile  = "quality.jsonl"
	TopologyFile = "topology.json"
	// SumsFile is there once the directory is sealed.
	SumsFile = "SHA256SUMS"
)

// ErrExists is what Create returns for a directory that already holds a run.
var ErrExists = errors.New("directory already holds a run")

// DefaultBufferBytes bounds what waits for the disk.
const DefaultBufferBytes = 64 << 20

// Meta is what Create is told about the run. Zero values mean the defaults.
type Meta struct {
	// RunID and Node name the run and the host. Node defaults to the host name.
	RunID string
	Node  string
	// Args is the command line, redacted before it is written. Default os.Args.
	Args []string
	// Upstream is the server's URL, written without credentials.
	Upstream string
	// Config is written as JSON with the values of secret-looking keys redacted.
	Config any
	// Run and Experiment are of `omnitap run`: what is known ahead of the first request,
	// and the bytes of experiment.yaml. Nil elsewhere.
	Run        *RunInfo
	Experiment []byte
	// EventForm is what the events tell, where they are not this program's own: 1 for
	// those of a run whose metadata says none. Default timeline.EventForm.
	EventForm int

	// BufferBytes bounds the lines that wait for the disk; an eighth of it each is
	// kept for requests.jsonl, sessions.jsonl and quality.jsonl, so that events
	// cannot crowd records out. Lines over the bound are dropped and counted.
	// Default 64 MiB.
	BufferBytes int
	// Logger gets a line when writing starts to fail and when it works again.
	// Default: none.
	Logger *slog.Logger
}

func (m Meta) withDefaults() Meta {
	if m.Node == "" {
		// On failure the node stays empty and metadata.json says why.
		m.Node, _ = os.Hostname()
	}
	if m.Args == nil {
		m.Args = os.Args
	}
	if m.BufferBytes <= 0 {
		m.BufferBytes = DefaultBufferBytes
	}
	if m.Logger == nil {
		m.Logger = slog.New(slog.DiscardHandler)
	}
	return m
}

// Create makes dir with mode 0700 where it is missing and starts a run in it. It
// fails with ErrExists when dir holds a run already, whether that one was closed
// or not.
func Create(dir string, meta Meta) (*Writer, error) {
	return create(dir, meta, openExclusive)
}

// opener makes a file that must not be there yet. Tests put disks that fill up here.
type opener func(path string) (file, error)

func openExclusive(path string) (file, error) {
	// O_EXCL makes two processes that want the same directory disagree here and
	// not in each other's lines. O_APPEND keeps writes at the end after Truncate.
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
}

func create(dir string, meta Meta, open opener) (*Writer, error) {
	meta = meta.withDefaults()
	metadata, err := newMetadata(meta)
	if err != nil {
		return nil, fmt.Errorf("describing the run: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the run directory: %w", err)
	}
	files, err := openAll(dir, open)
	if err != nil {
		return nil, err
	}
	if meta.Experiment != nil && metadata.Run != nil && metadata.Run.Experiment != nil {
		metadata.Run.Experiment.SHA256, err = writeExperiment(dir, meta.Experiment)
	}
	room := int64(growth)
	if metadata.Run != nil {
		room = runGrowth
	}
	if err == nil {
		err = writeMetadata(dir, metadata)
	}
	if err == nil {
		err = reserveMetadata(dir, room)
	}
	if err != nil {
		return nil, errors.Join(err, closeAll(files))
	}
	return start(dir, meta, metadata, files), nil
}

// openAll makes the files of lines.
func openAll(dir string, open opener) (files [4]file, err error) {
	for i, name := range []string{RequestsFile, EventsFile, SessionsFile, QualityFile} {
		files[i], err = open(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrExist) && i == 0:
			return files, fmt.Errorf("%w: %s (%s)", ErrExists, dir, describe(dir))
		case err != nil:
			files[i] = nil
			return files, errors.Join(fmt.Errorf("creating %s: %w", name, err), closeAll(files))
		}
	}
	return files, nil
}

func closeAll(files [4]file) error {
	var err error
	for _, f := range files {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// describe says what state the run in dir is in, for the error that refuses it.
func describe(dir string) string {
	run, err := Read(dir)
	switch {
	case err != nil || run.MetadataErr != nil:
		return "damaged"
	case run.Sealed:
		return "sealed"
	case run.Closed:
		return "closed"
	default:
		return "unfinished: still running, or it crashed"
	}
}
