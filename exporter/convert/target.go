package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// target is what is written, under another name until it is whole.
type target struct {
	path, temp string
	folder     bool
	force      bool
	files      []*os.File
}

// newTarget refuses an output that is there, or that lies in a run: a run holds its own
// files alone.
func newTarget(out string, dirs []string, o Options) (*target, error) {
	t := &target{path: filepath.Clean(out), folder: o.Format != Perfetto, force: o.Force}
	for _, dir := range dirs {
		in, err := liesIn(t.path, dir)
		if err == nil && in {
			err = fmt.Errorf("%w: %s lies in the run %s, which holds its own files alone", ErrInput, out, dir)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := t.free(); err != nil {
		return nil, err
	}
	var err error
	pattern := "." + filepath.Base(t.path) + ".*.partial"
	if t.folder {
		t.temp, err = os.MkdirTemp(filepath.Dir(t.path), pattern)
	} else if f, e := os.CreateTemp(filepath.Dir(t.path), pattern); e == nil {
		t.temp = f.Name()
		t.files = append(t.files, f)
	} else {
		err = e
	}
	if err != nil {
		return nil, fmt.Errorf("creating %s: %w", out, err)
	}
	return t, nil
}

// liesIn follows links: of the output that is not there yet, its folder's.
func liesIn(path, dir string) (bool, error) {
	within, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrInput, err)
	}
	within, err = filepath.Abs(within)
	if err != nil {
		return false, err
	}
	run, err := filepath.EvalSymlinks(dir)
	if err == nil {
		run, err = filepath.Abs(run)
	}
	return err == nil && inside(filepath.Join(within, filepath.Base(path)), run), err
}

// free reports what stands in the way of the output.
func (t *target) free() error {
	info, err := os.Lstat(t.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("looking at %s: %w", t.path, err)
	case !t.force:
		return fmt.Errorf("%s: %w", t.path, ErrExists)
	case t.folder && !info.IsDir():
		return fmt.Errorf("%s: %w, and is no folder", t.path, ErrExists)
	case !t.folder && !info.Mode().IsRegular():
		return fmt.Errorf("%s: %w, and is no file", t.path, ErrExists)
	case t.folder:
		return t.ours()
	}
	return nil
}

// ours refuses to replace a folder that holds more than tables.
func (t *target) ours() error {
	entries, err := os.ReadDir(t.path)
	if err != nil {
		return fmt.Errorf("looking at %s: %w", t.path, err)
	}
	for _, e := range entries {
		name, _, _ := strings.Cut(e.Name(), ".")
		if !e.Type().IsRegular() || !slices.Contains(tableNames, name) {
			return fmt.Errorf("%s: %w, and holds %s, which is no table of an export", t.path, ErrExists, e.Name())
		}
	}
	return nil
}

// create makes a file of a folder.
func (t *target) create(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(t.temp, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating %s: %w", name, err)
	}
	t.files = append(t.files, f)
	return f, nil
}

// discard takes away what was written.
func (t *target) discard() error {
	for _, f := range t.files {
		_ = f.Close()
	}
	return os.RemoveAll(t.temp)
}

// commit gives the output its name, and returns its size.
func (t *target) commit() (int64, error) {
	size, err := t.settle()
	if err == nil {
		err = t.free() // it may have come up meanwhile
	}
	if err == nil {
		err = t.rename()
	}
	if err != nil {
		return 0, errors.Join(err, t.discard())
	}
	return size, nil
}

// settle has everything on the disk.
func (t *target) settle() (size int64, err error) {
	for _, f := range t.files {
		info, e := f.Stat()
		if e == nil {
			size += info.Size()
			e = f.Sync()
		}
		err = errors.Join(err, e, f.Close())
	}
	if err != nil {
		return 0, fmt.Errorf("writing %s: %w", t.path, err)
	}
	return size, nil
}

// rename puts the output in its place, and an earlier folder out of the way first.
func (t *target) rename() error {
	old := t.temp + ".old"
	_, err := os.Lstat(t.path)
	swap := t.folder && err == nil
	if swap {
		if err := os.Rename(t.path, old); err != nil {
			return fmt.Errorf("replacing %s: %w", t.path, err)
		}
	}
	if err := os.Rename(t.temp, t.path); err != nil {
		if swap {
			err = errors.Join(err, os.Rename(old, t.path))
		}
		return fmt.Errorf("putting %s in place: %w", t.path, err)
	}
	if swap {
		return os.RemoveAll(old)
	}
	return nil
}
