//go:build linux

package kernel

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mapping is an executable part of a file that a process maps.
type Mapping struct {
	Start, End, Offset uint64
	Dev                string
	Inode              uint64
	// Path is the file in the process's own mount namespace, Deleted says that it was
	// unlinked or replaced since.
	Path    string
	Deleted bool
}

// Mapped returns the executable mappings of a process whose path the filter takes.
func Mapped(pid int, match func(path string) bool) ([]Mapping, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, fmt.Errorf("reading what process %d maps: %w", pid, err)
	}
	defer func() { _ = f.Close() }()
	return parseMaps(f, match)
}

// deletedMark is what the kernel puts behind the name of a file that is gone.
const deletedMark = " (deleted)"

// parseMaps reads the form of proc_pid_maps(5).
func parseMaps(r io.Reader, match func(path string) bool) (out []Mapping, err error) {
	s := bufio.NewScanner(r)
	for s.Scan() {
		f := strings.Fields(s.Text())
		if len(f) < 6 || len(f[1]) < 3 || f[1][2] != 'x' || f[4] == "0" {
			continue
		}
		at := strings.IndexByte(s.Text(), '/') // no other field has one
		if at < 0 {
			continue
		}
		m := Mapping{Dev: f[3], Path: s.Text()[at:]}
		m.Path, m.Deleted = strings.CutSuffix(m.Path, deletedMark)
		if !match(m.Path) {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		var errs [4]error
		m.Start, errs[0] = strconv.ParseUint(from, 16, 64)
		m.End, errs[1] = strconv.ParseUint(to, 16, 64)
		m.Offset, errs[2] = strconv.ParseUint(f[2], 16, 64)
		m.Inode, errs[3] = strconv.ParseUint(f[4], 10, 64)
		for _, e := range errs {
			if e != nil {
				return nil, fmt.Errorf("reading mappings: %w", e)
			}
		}
		out = append(out, m)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("reading mappings: %w", err)
	}
	return out, nil
}

// IsProgram says whether a file is the program that a process runs. Where that cannot
// be told it says so, and the file is better left alone.
func IsProgram(pid int, file string) (bool, error) {
	exe, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false, fmt.Errorf("looking at the program of process %d: %w", pid, err)
	}
	lib, err := os.Stat(file)
	if err != nil {
		return false, fmt.Errorf("looking at a library: %w", err)
	}
	return os.SameFile(exe, lib), nil
}

// Open returns a path by which omnitap can open the mapped file itself, whatever the
// mount namespace of the process, and also after it was replaced.
func (m *Mapping) Open(pid int) (string, error) {
	p := fmt.Sprintf("/proc/%d/root%s", pid, m.Path)
	var st unix.Stat_t
	if !m.Deleted && unix.Stat(p, &st) == nil && st.Ino == m.Inode {
		return p, nil
	}
	p = fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, m.Start, m.End)
	if err := unix.Stat(p, &st); err != nil {
		return "", fmt.Errorf("%s was replaced while mapped, and its mapping cannot be opened (needed: CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE): %w", m.Path, err)
	}
	return p, nil
}
