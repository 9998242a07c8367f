package rundir

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Errors of Seal.
var (
	// ErrSealed is for a run that carries its hashes already.
	ErrSealed = errors.New("the run is sealed already")
	// ErrNotClosed is for a run that is still written to, or whose process died.
	ErrNotClosed = errors.New("the run was not closed: it is still being written, or its process died")
	// ErrForeign is for a directory that holds what is no part of a run.
	ErrForeign = errors.New("the directory holds what is no part of a run")
)

// Modes of a sealed run: nobody writes. They keep mistakes out, not root, nor an
// owner who sets the mode back; SHA256SUMS shows what either of them did.
const (
	sealedFile fs.FileMode = 0o400
	sealedDir  fs.FileMode = 0o500
)

// parts are the names of contract section 8, sorted, SHA256SUMS left out.
var parts = []string{
	CalibrationFile, EventsFile, ExperimentFile, MetadataFile, QualityFile, RequestsFile,
	"resources.parquet", SessionsFile, StderrFile, StdoutFile, TopologyFile, "upstream_metrics.jsonl",
}

// nextSums becomes SHA256SUMS by a rename.
const nextSums = "." + SumsFile + ".next"

// leftovers are what an interrupted write leaves beside the files: no part of the run.
var leftovers = []string{nextFile, nextSums, "." + TopologyFile + ".next", "." + CalibrationFile + ".next"}

// IsPart reports whether a run directory may hold a file of that name (contract
// section 8), SHA256SUMS included.
func IsPart(name string) bool { return name == SumsFile || slices.Contains(parts, name) }

// Seal closes a run for good: it says so in metadata.json, writes the hashes of
// every file into SHA256SUMS, in the form of coreutils' sha256sum, and makes the
// files (0400) and the directory (0500) read-only, which does not stop root.
//
// The run must be closed (Writer.Close) and hold nothing but its own regular files.
// SHA256SUMS appears in one step, once all that it speaks of is on the disk: a
// crash ahead of that leaves a run that is unsealed, which CheckSeal says, and which
// may be sealed again. A sealed run returns ErrSealed.
func Seal(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, SumsFile)); err == nil {
		return fmt.Errorf("sealing %s: %w", dir, ErrSealed)
	}
	if err := seal(dir); err != nil {
		return fmt.Errorf("sealing %s: %w", dir, err)
	}
	return nil
}

func seal(dir string) error {
	run, err := Read(dir)
	switch {
	case err != nil:
		return err
	case run.MetadataErr != nil:
		return run.MetadataErr
	case !run.Closed:
		return ErrNotClosed
	}
	names, err := sealable(dir)
	if err != nil {
		return err
	}
	if err := saySealed(dir); err != nil {
		return err
	}
	sums, err := freeze(dir, names)
	if err != nil {
		return err
	}
	next := filepath.Join(dir, nextSums)
	if err := overwrite(next, sums); err != nil {
		return fmt.Errorf("writing %s: %w", SumsFile, err)
	}
	if err := os.Chmod(next, sealedFile); err != nil {
		return fmt.Errorf("making %s read-only: %w", SumsFile, err)
	}
	if err := os.Rename(next, filepath.Join(dir, SumsFile)); err != nil {
		return fmt.Errorf("putting %s in place: %w", SumsFile, err)
	}
	if err := os.Chmod(dir, sealedDir); err != nil {
		return fmt.Errorf("making the directory read-only: %w", err)
	}
	return syncDir(dir)
}

// sealable lists the files to be sealed, sorted, and takes leftovers away.
func sealable(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the directory: %w", err)
	}
	var names, foreign []string
	for _, e := range entries {
		switch {
		case slices.Contains(leftovers, e.Name()) && e.Type().IsRegular():
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, fmt.Errorf("removing a leftover: %w", err)
			}
		case slices.Contains(parts, e.Name()) && e.Type().IsRegular():
			names = append(names, e.Name())
		default:
			foreign = append(foreign, fmt.Sprintf("%s (%s)", e.Name(), kindOf(e.Type())))
		}
	}
	if foreign != nil {
		return nil, fmt.Errorf("%w: %s", ErrForeign, strings.Join(foreign, ", "))
	}
	return names, nil
}

// kindOf names what an entry of a directory is.
func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "a file"
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	default:
		return "not a regular file"
	}
}

// saySealed changes one word of metadata.json, and no other byte: fields that this
// program does not know stay as they are.
func saySealed(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, MetadataFile))
	if err != nil {
		return fmt.Errorf("reading %s: %w", MetadataFile, err)
	}
	open, done := []byte("\n  \"sealed\": false"), []byte("\n  \"sealed\": true")
	switch {
	case bytes.Count(text, done) == 1 && !bytes.Contains(text, open):
		return nil // a seal that did not get to its end
	case bytes.Count(text, open) != 1:
		return fmt.Errorf("%s does not say once whether the run is sealed: it was edited", MetadataFile)
	}
	next := filepath.Join(dir, nextFile)
	if err := overwrite(next, bytes.Replace(text, open, done, 1)); err != nil {
		return fmt.Errorf("writing %s: %w", MetadataFile, err)
	}
	if err := os.Rename(next, filepath.Join(dir, MetadataFile)); err != nil {
		return fmt.Errorf("replacing %s: %w", MetadataFile, err)
	}
	return syncDir(dir)
}

// freeze makes the files read-only and returns the text of SHA256SUMS.
func freeze(dir string, names []string) ([]byte, error) {
	var sums []byte
	for _, name := range names {
		if err := os.Chmod(filepath.Join(dir, name), sealedFile); err != nil {
			return nil, fmt.Errorf("making %s read-only: %w", name, err)
		}
		s, err := sumFile(dir, name, true)
		if err != nil {
			return nil, err
		}
		sums = fmt.Appendf(sums, "%s  %s\n", s.hash, name)
	}
	return sums, nil
}

// sum is the hash of a file, in hex, with its size in bytes.
type sum struct {
	hash  string
	bytes int64
}

// sumFile hashes a regular file that does not change meanwhile; settle has it on
// the disk first.
func sumFile(dir, name string, settle bool) (sum, error) {
	path := filepath.Join(dir, name)
	named, err := os.Lstat(path)
	if err != nil {
		return sum{}, fmt.Errorf("looking at %s: %w", name, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return sum{}, fmt.Errorf("opening %s: %w", name, err)
	}
	defer f.Close()
	before, err := f.Stat()
	if err == nil && (!named.Mode().IsRegular() || !os.SameFile(named, before)) {
		err = fmt.Errorf("it is %s", kindOf(named.Mode().Type()))
	}
	if err == nil && settle {
		err = f.Sync()
	}
	h := sha256.New()
	if err == nil {
		_, err = io.CopyBuffer(h, onlyReader{f}, make([]byte, 1<<20))
	}
	if err != nil {
		return sum{}, fmt.Errorf("hashing %s: %w", name, err)
	}
	after, err := f.Stat()
	if err != nil {
		return sum{}, fmt.Errorf("looking at %s: %w", name, err)
	}
	if after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return sum{}, fmt.Errorf("hashing %s: it changed meanwhile", name)
	}
	return sum{fmt.Sprintf("%x", h.Sum(nil)), after.Size()}, nil
}

// onlyReader hides *os.File's WriteTo, which would bring a buffer of 32 KiB.
type onlyReader struct{ io.Reader }
