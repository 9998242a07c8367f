// Package jail opens the files of other processes as these see them, in their containers
// too, without being led out of there. A device, a socket or a FIFO is never opened, and
// no file is read further than the caller says. Names and contents are other people's.
package jail

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/omnitap/omnitap/probes/host"
	"github.com/omnitap/omnitap/probes/host/internal/null"
)

// Jail opens files as a process sees them: its root is "/", and no link leads out of it.
type Jail struct {
	dir *os.File
	// old is used where the kernel has no openat2. It refuses absolute links.
	old *os.Root
	// chroot is what the mappings have in front of names where the process shares our
	// mounts and has another root.
	chroot string
}

var errNotRegular = errors.New("is no regular file")

// Open opens a process's root.
func Open(root host.Root, pid int) (*Jail, error) {
	path := root.Path("proc/" + strconv.Itoa(pid) + "/root")
	j := &Jail{}
	var err error
	if j.dir, err = openDir(path); err != nil {
		return nil, err
	}
	if link, err := os.Readlink(path); err == nil && filepath.IsAbs(link) && root.Real() {
		j.chroot = strings.TrimSuffix(link, "/")
	}
	if file, err := j.beneath(".", true); err == nil {
		_ = file.Close()
	} else if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EPERM) {
		// An old kernel, or an old container engine's filter.
		if j.old, err = os.OpenRoot(path); err != nil {
			_ = j.dir.Close()
			return nil, err
		}
	}
	return j, nil
}

// Close closes it.
func (j *Jail) Close() {
	_ = j.dir.Close()
	if j.old != nil {
		_ = j.old.Close()
	}
}

// Name is a mapped file's name inside of the jail.
func (j *Jail) Name(mapped string) string {
	if rest, ok := strings.CutPrefix(mapped, j.chroot+"/"); ok && j.chroot != "" {
		return "/" + rest
	}
	return mapped
}

// open opens a regular file, or a folder. A device or a FIFO is never opened: that alone
// may do something.
func (j *Jail) open(name string, folder bool) (*os.File, error) {
	file, err := j.openAny(strings.TrimLeft(filepath.Clean("/"+name), "/"), folder)
	if err != nil {
		if path, ok := errors.AsType[*os.PathError](err); ok {
			err = path.Err
		}
		return nil, &os.PathError{Op: "open", Path: null.Text(name), Err: err}
	}
	return file, nil
}

func (j *Jail) openAny(name string, folder bool) (*os.File, error) {
	if name == "" {
		name = "."
	}
	if j.old == nil {
		return j.beneath(name, folder)
	}
	info, err := j.old.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir() != folder || !folder && !info.Mode().IsRegular():
		return nil, errNotRegular
	}
	return j.old.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// Head reads at most limit bytes from the start of a file.
func (j *Jail) Head(name string, limit int64) ([]byte, error) {
	file, err := j.open(name, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, limit))
}

// Whole reads a file of at most limit bytes; a longer one is host.ErrTooLong.
func (j *Jail) Whole(name string, limit int64) ([]byte, error) {
	b, err := j.Head(name, limit+1)
	if err == nil && int64(len(b)) > limit {
		return nil, fmt.Errorf("%s: %w: %d bytes", null.Text(name), host.ErrTooLong, limit)
	}
	return b, err
}

// Folder is what a folder holds.
type Folder struct {
	ID    ID
	Names []string
	// Cut says that there are more names than were read.
	Cut bool
}

// ID tells a file from others, whatever it is called.
type ID struct{ dev, inode uint64 }

// List reads the names in a folder, at most limit.
func (j *Jail) List(name string, limit int) (f Folder, err error) {
	file, err := j.open(name, true)
	if err != nil {
		return f, err
	}
	defer func() { _ = file.Close() }()
	if f.ID, _, err = idOf(file); err != nil {
		return f, err
	}
	f.Names, err = file.Readdirnames(limit + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return f, err
	}
	if len(f.Names) > limit {
		f.Names, f.Cut = f.Names[:limit], true
	}
	return f, nil
}

// Changed is when a folder's inode last changed; the zero time where the system does not
// say.
func (j *Jail) Changed(name string) (time.Time, error) {
	file, err := j.open(name, true)
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = file.Close() }()
	_, at, err := idOf(file)
	return at, err
}

// OpenFile opens a regular file.
func (j *Jail) OpenFile(name string) (*os.File, error) { return j.open(name, false) }

// idOf is a file's identity and when it last changed, on the wall clock.
func idOf(file *os.File) (ID, time.Time, error) {
	info, err := file.Stat()
	if err != nil {
		return ID{}, time.Time{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ID{}, time.Time{}, errors.ErrUnsupported
	}
	return ID{uint64(st.Dev), st.Ino}, changed(st), nil //nolint:unconvert // not everywhere the same type
}
