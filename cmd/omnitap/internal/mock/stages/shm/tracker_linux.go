package shm

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Tracker is the way to the resource tracker: a pipe that every process of a server
// holds. When the last one has closed it the tracker unlinks what is still registered.
// The nil Tracker tells nobody.
type Tracker struct{ fd int }

// NewTracker takes the writing end of the tracker's pipe.
func NewTracker(fd int) *Tracker { return &Tracker{fd} }

// Register tells the tracker of a segment, when it is made and when one attaches to it.
func (t *Tracker) Register(name string) { t.tell("REGISTER", name) }

// Unregister tells the tracker that a segment was unlinked.
func (t *Tracker) Unregister(name string) { t.tell("UNREGISTER", name) }

// tell writes a line. Python asks for a sign of life before each.
func (t *Tracker) tell(verb, name string) {
	if t == nil {
		return
	}
	t.write("PROBE:0:noop\n")
	t.write(verb + ":/" + name + ":shared_memory\n")
}

// write is one write, so that lines of several processes do not mix. A tracker that is
// gone is no reason to stop a stage.
func (t *Tracker) write(s string) { _, _ = unix.Write(t.fd, []byte(s)) }

// Track is the tracker: it reads lines until everybody has closed the pipe and unlinks
// what was not unregistered. Unlike Python's it removes the lock files as well.
func Track(r io.Reader) error {
	left := map[string]bool{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		verb, rest, _ := strings.Cut(lines.Text(), ":/")
		name, ok := strings.CutSuffix(rest, ":shared_memory")
		if !ok || name == "" || strings.Contains(name, "/") {
			continue
		}
		switch verb {
		case "REGISTER":
			left[name] = true
		case "UNREGISTER":
			delete(left, name)
		}
	}
	errs := []error{lines.Err()}
	for name := range left {
		errs = append(errs, Discard(name))
	}
	return errors.Join(errs...)
}

// Sweep unlinks every segment and lock in Dir whose engine id is one of ours.
func Sweep(ours func(engineID string) bool) error {
	entries, err := os.ReadDir(Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		key := e.Name()
		if k, ok := strings.CutPrefix(key, "shm_"); ok {
			if k, ok = strings.CutSuffix(k, "_lockfile.lock"); ok {
				key = k
			}
		}
		if id, ok := engineID(key); ok && ours(id) {
			err = errors.Join(err, Discard(key))
		}
	}
	return err
}

// engineID is what stands before the last two numbers of a key.
func engineID(key string) (string, bool) {
	for range 2 {
		i := strings.LastIndexByte(key, '_')
		if i < 1 || i == len(key)-1 || strings.Trim(key[i+1:], "0123456789") != "" {
			return "", false
		}
		key = key[:i]
	}
	return key, true
}
