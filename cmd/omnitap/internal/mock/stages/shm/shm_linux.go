// Package shm moves chunks through /dev/shm with the system calls of vLLM-Omni
// 0.26.0's SharedMemoryConnector and of Python's SharedMemory below it: the same
// calls in the same order, as an strace of the real server shows them, down to the
// lines to the resource tracker. It knows no stages and no content.
package shm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// Dir is where segments lie.
	Dir = "/dev/shm"
	// maxSegment bounds what a reader maps.
	maxSegment = 256 << 20
)

// Key is the name of a chunk's segment.
func Key(engineID string, from, chunk int) string {
	return fmt.Sprintf("%s_%d_%d", engineID, from, chunk)
}

// LockName is the name of the lock file of a segment.
func LockName(key string) string { return "shm_" + key + "_lockfile.lock" }

func path(name string) string { return filepath.Join(Dir, name) }

// Hooks are told when the copy under the lock starts and ends; nil ones are not. A read
// that is refused has a start and no end.
type Hooks struct {
	Start, End func(key string, bytes int)
	// Valid says whether a segment that was read is one that is meant; nil takes all. It
	// is called under the lock.
	Valid func(data []byte) bool
}

func call(f func(string, int), key string, n int) {
	if f != nil {
		f(key, n)
	}
}

// whole is held for reading while a segment and what the tracker knows of it differ.
var whole sync.RWMutex

// Quiesce waits for the calls in progress and lets no other begin: what comes before a
// process ends itself, so that the tracker knows of all that it leaves.
func Quiesce() { whole.Lock() }

// Put writes a segment under its lock. One of the same name is replaced, as the
// server does with what a crash left.
func Put(t *Tracker, key string, data []byte, h Hooks) error {
	whole.RLock()
	defer whole.RUnlock()
	call(h.Start, key, len(data))
	lock, err := open(path(LockName(key)), unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC, 0o666)
	if err != nil {
		return fmt.Errorf("opening the lock of %s: %w", key, err)
	}
	defer closeFD(lock)
	if err := flock(lock, unix.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", key, err)
	}
	err = create(t, key, data)
	if errors.Is(err, unix.EEXIST) {
		if err = remove(t, key); err == nil {
			err = create(t, key, data)
		}
	}
	err = errors.Join(err, flock(lock, unix.LOCK_UN))
	call(h.End, key, len(data))
	if err != nil {
		return fmt.Errorf("writing %s: %w", key, err)
	}
	return nil
}

// create makes a segment and copies the data in.
func create(t *Tracker, key string, data []byte) error {
	fd, err := open(path(key), unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer closeFD(fd)
	if err := unix.Ftruncate(fd, int64(len(data))); err != nil {
		return err
	}
	m, err := mapSegment(fd)
	if err != nil {
		return err
	}
	t.Register(key)
	copy(m.data, data)
	return m.close()
}

// remove is what Python does to replace a segment: it attaches to it, and unlinks it.
func remove(t *Tracker, key string) error {
	fd, err := open(path(key), unix.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer closeFD(fd)
	m, err := mapSegment(fd)
	if err == nil {
		t.Register(key)
		err = m.close()
	} else if errors.Is(err, errEmpty) {
		err = nil
	}
	if err == nil {
		err = unlink(path(key))
	}
	t.Unregister(key)
	return err
}

// State is how a Get ended.
type State int

// The states of a Get. Missing: no such segment. Empty: it was created this moment
// and has no size yet. Refused: it has no lock file, so it is none that a writer of
// now has made, or it is not valid: then a writer has made the lock and is about to
// replace it. The last three are misses.
const (
	Read State = iota
	Missing
	Empty
	Refused
)

// Get reads and removes a segment. Only when the State is Read there are data.
func Get(t *Tracker, key string, h Hooks) ([]byte, State, error) {
	whole.RLock()
	defer whole.RUnlock()
	fd, err := open(path(key), unix.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, Missing, nil
	}
	if err != nil {
		return nil, Missing, fmt.Errorf("opening %s: %w", key, err)
	}
	defer closeFD(fd)
	m, err := mapSegment(fd)
	if errors.Is(err, errEmpty) {
		return nil, Empty, nil
	}
	if err != nil {
		return nil, Missing, fmt.Errorf("mapping %s: %w", key, err)
	}
	t.Register(key)
	data, state, err := take(t, key, len(m.data), h)
	if err = errors.Join(err, m.close()); err != nil {
		return nil, state, fmt.Errorf("reading %s: %w", key, err)
	}
	return data, state, nil
}

// take is the part of a Get under the lock.
func take(t *Tracker, key string, size int, h Hooks) ([]byte, State, error) {
	lock, err := open(path(LockName(key)), unix.O_RDWR, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, Refused, nil
	}
	if err != nil {
		return nil, Refused, err
	}
	call(h.Start, key, size)
	if err := flock(lock, unix.LOCK_EX); err != nil {
		closeFD(lock)
		return nil, Refused, err
	}
	data, err := copyOut(t, key)
	valid := err == nil && (h.Valid == nil || h.Valid(data))
	if valid {
		err = unlink(path(key))
		t.Unregister(key)
	}
	err = errors.Join(err, flock(lock, unix.LOCK_UN))
	closeFD(lock)
	if !valid {
		return nil, Refused, err
	}
	if err == nil {
		err = unlink(path(LockName(key)))
	}
	call(h.End, key, len(data))
	return data, Read, err
}

// copyOut attaches to a segment and copies what is in it.
func copyOut(t *Tracker, key string) ([]byte, error) {
	fd, err := open(path(key), unix.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer closeFD(fd)
	m, err := mapSegment(fd)
	if err != nil {
		return nil, err
	}
	t.Register(key)
	data := append([]byte(nil), m.data...)
	return data, m.close()
}

// Send makes a segment with a random name, as multiprocessing does, and returns the
// name.
func Send(t *Tracker, data []byte) (string, error) {
	whole.RLock()
	defer whole.RUnlock()
	for {
		name := fmt.Sprintf("psm_%08x", rand.Uint32())
		err := create(t, name, data)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("writing %s: %w", name, err)
		}
		return name, nil
	}
}

// Receive reads size bytes of a segment that Send made, and removes it.
func Receive(t *Tracker, name string, size int) ([]byte, error) {
	if filepath.Base(name) != name {
		return nil, fmt.Errorf("%q is no name of a segment", name)
	}
	whole.RLock()
	defer whole.RUnlock()
	data, err := copyOut(t, name)
	if err == nil {
		err = unlink(path(name))
		t.Unregister(name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if size < 0 || size > len(data) {
		return nil, fmt.Errorf("%s has %d bytes, %d were announced", name, len(data), size)
	}
	return data[:size], nil
}

// Leave puts a foreign segment in place, without a lock: what a crash leaves behind.
func Leave(t *Tracker, key string, size int) error {
	if err := create(t, key, make([]byte, size)); err != nil {
		return fmt.Errorf("leaving %s behind: %w", key, err)
	}
	return nil
}

var errEmpty = errors.New("empty segment")

// mapping is a mapped segment. Python's mmap keeps a descriptor of its own.
type mapping struct {
	data []byte
	fd   int
}

func mapSegment(fd int) (*mapping, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Size == 0 {
		return nil, errEmpty
	}
	if st.Size > maxSegment {
		return nil, fmt.Errorf("%d bytes, more than the %d that are read", st.Size, maxSegment)
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	data, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		closeFD(own)
		return nil, err
	}
	return &mapping{data, own}, nil
}

func (m *mapping) close() error {
	err := unix.Munmap(m.data)
	closeFD(m.fd)
	return err
}

func open(name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, mode)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func flock(fd, how int) error {
	for {
		if err := unix.Flock(fd, how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// closeFD closes a descriptor of a file in memory, where close has nothing to say.
func closeFD(fd int) { _ = unix.Close(fd) }

// Discard unlinks a segment and its lock, whichever is there.
func Discard(key string) error {
	var errs []error
	for _, name := range []string{key, LockName(key)} {
		if err := unlink(path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("unlinking %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
