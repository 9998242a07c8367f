package find

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Bounds of what is read of one process.
const (
	maxCommand = 64 << 10
	maxEnviron = 1 << 20
	maxEnvLen  = 1024
	maxMaps    = 16 << 20
	maxFDs     = 65536
	maxLibs    = 2048
)

// procfs reads /proc, or a folder of the same shape.
type procfs string

func (f procfs) path(pid int, names ...string) string {
	return filepath.Join(append([]string{string(f), strconv.Itoa(pid)}, names...)...)
}

// pids lists the processes.
func (f procfs) pids() ([]int, error) {
	dir, err := os.Open(string(f))
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if n := number(name); n != nil && *n > 0 {
			pids = append(pids, *n)
		}
	}
	return pids, nil
}

// read reads at most limit bytes of a file of a process.
func (f procfs) read(pid int, limit int, names ...string) ([]byte, error) {
	fd, err := openRaw(f.path(pid, names...))
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	out := make([]byte, 0, 4096)
	for len(out) < limit {
		if len(out) == cap(out) {
			// The kernel makes large tables anew for each read: few reads are cheap.
			out = slices.Grow(out, min(15*len(out), 1<<20))
		}
		n, err := readRaw(fd, out[len(out):min(cap(out), limit)])
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		out = out[:len(out)+n]
	}
	return out, nil
}

// openRaw opens without the runtime's poller, which costs three more system calls a
// file: a scan opens one for every process.
func openRaw(path string) (int, error) {
	for {
		fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if !errors.Is(err, syscall.EINTR) {
			return fd, err
		}
	}
}

func readRaw(fd int, b []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, b)
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// identity is what stat says.
type identity struct {
	ppid  int
	start uint64
	comm  string
	gone  bool // a zombie, or dead
}

// stat reads /proc/PID/stat, in one read: it is the only file that every scan reads
// of every process.
func (f procfs) stat(pid int, buf []byte) (identity, error) {
	fd, err := openRaw(f.path(pid, "stat"))
	if err != nil {
		return identity{}, err
	}
	defer syscall.Close(fd)
	n, err := readRaw(fd, buf)
	if err != nil {
		return identity{}, err
	}
	return parseStat(buf[:n])
}

// parseStat reads a line of stat. The name in it may hold anything, also ")".
func parseStat(b []byte) (identity, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return identity{}, errors.New("stat has no name")
	}
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 20 {
		return identity{}, errors.New("stat is short")
	}
	ppid, err := strconv.Atoi(fields[1])
	if err != nil {
		return identity{}, errors.New("stat has no parent")
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return identity{}, errors.New("stat has no start")
	}
	state := fields[0]
	return identity{
		ppid: ppid, start: start, comm: string(b[open+1 : end]),
		gone: state == "Z" || state == "X" || state == "x",
	}, nil
}

// args reads the command line.
func (f procfs) args(pid int) ([]string, error) {
	b, err := f.read(pid, maxCommand, "cmdline")
	if err != nil {
		return nil, err
	}
	return splitArgs(b), nil
}

// splitArgs splits a command line. A title leaves zeros behind it.
func splitArgs(b []byte) []string {
	b = bytes.TrimRight(b, "\x00")
	if len(b) == 0 {
		return nil
	}
	return strings.Split(string(b), "\x00")
}

// environ reads the variables that are asked for. What the process has overwritten
// (see setproctitle) is not in it.
func (f procfs) environ(pid int, keep map[string]bool) (map[string]string, error) {
	b, err := f.read(pid, maxEnviron, "environ")
	if err != nil {
		return nil, err
	}
	return parseEnviron(b, keep), nil
}

func parseEnviron(b []byte, keep map[string]bool) map[string]string {
	var out map[string]string
	for one := range bytes.SplitSeq(b, []byte{0}) {
		name, value, ok := bytes.Cut(one, []byte{'='})
		if !ok || !keep[string(name)] {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[string(name)] = string(value[:min(len(value), maxEnvLen)])
	}
	return out
}

// links is what the descriptors of a process are.
type links struct {
	fifos   []string
	pipes   []uint64
	sockets []uint64
}

// descriptors reads the links of a process's descriptors.
func (f procfs) descriptors(pid int) (links, error) {
	var out links
	dir, err := os.Open(f.path(pid, "fd"))
	if err != nil {
		return out, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxFDs)
	if err != nil && !errors.Is(err, io.EOF) {
		return out, err
	}
	seen := map[uint64]bool{}
	var denied error
	for _, name := range names {
		link, err := os.Readlink(f.path(pid, "fd", name))
		if err != nil {
			if errors.Is(err, fs.ErrPermission) {
				denied = err
			}
			continue
		}
		out.add(link, seen)
	}
	return out, denied
}

func (l *links) add(link string, seen map[uint64]bool) {
	if strings.HasPrefix(link, "/dev/shm/omni_shm_wake_") {
		l.fifos = append(l.fifos, link)
		return
	}
	if inode, ok := inodeOf(link, "pipe"); ok && !seen[inode] {
		seen[inode] = true
		l.pipes = append(l.pipes, inode)
	}
	if inode, ok := inodeOf(link, "socket"); ok {
		l.sockets = append(l.sockets, inode)
	}
}

// inodeOf reads "socket:[123]".
func inodeOf(link, kind string) (uint64, bool) {
	rest, ok := strings.CutPrefix(link, kind+":[")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(rest, "]"), 10, 64)
	return n, err == nil
}

// namespace is the inode of one of a process's namespaces, 0 where it cannot be read.
func (f procfs) namespace(pid int, kind string) uint64 {
	link, err := os.Readlink(f.path(pid, "ns", kind))
	if err != nil {
		return 0
	}
	n, _ := inodeOf(link, kind)
	return n
}

// libs reads the files that a process maps with an executable part.
func (f procfs) libs(pid int) ([]Lib, error) {
	b, err := f.read(pid, maxMaps, "maps")
	if err != nil {
		return nil, err
	}
	return parseMaps(b), nil
}

// parseMaps reads /proc/PID/maps: each file once, by device and inode.
func parseMaps(b []byte) []Lib {
	type key struct {
		dev   string
		inode uint64
	}
	seen := map[key]bool{}
	var out []Lib
	for line := range bytes.Lines(b) {
		lib, ok := parseMap(strings.TrimSuffix(string(line), "\n"))
		k := key{lib.Dev, lib.Inode}
		if !ok || seen[k] || len(out) >= maxLibs {
			continue
		}
		seen[k] = true
		out = append(out, lib)
	}
	return out
}

// parseMap reads "START-END PERMS OFFSET DEV INODE PATH"; ok only for a file that is
// mapped executable.
func parseMap(line string) (Lib, bool) {
	var field [5]string
	for i := range field {
		line = strings.TrimLeft(line, " ")
		field[i], line, _ = strings.Cut(line, " ")
	}
	name := strings.TrimLeft(line, " ")
	if len(field[1]) < 3 || field[1][2] != 'x' || !strings.HasPrefix(name, "/") {
		return Lib{}, false
	}
	inode, err := strconv.ParseUint(field[4], 10, 64)
	if err != nil || inode == 0 {
		return Lib{}, false
	}
	name, deleted := strings.CutSuffix(name, " (deleted)")
	return Lib{Path: name, Dev: field[3], Inode: inode, Deleted: deleted}, true
}

// within reads a regular file as a process sees it, relative names below its working
// directory. It never leaves the process's root, whatever links stand there, and
// does not wait for a FIFO.
func (f procfs) within(pid int, name string, limit int64) ([]byte, error) {
	if !filepath.IsAbs(name) {
		cwd, err := os.Readlink(f.path(pid, "cwd"))
		if err != nil {
			return nil, err
		}
		name = filepath.Join(cwd, name)
	}
	root, err := os.OpenRoot(f.path(pid, "root"))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	name = strings.TrimPrefix(filepath.Clean(name), "/")
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%q is no regular file", name)
	case info.Size() > limit:
		return nil, fmt.Errorf("%q has more than %d bytes", name, limit)
	}
	return io.ReadAll(io.LimitReader(file, limit))
}

// reason says in words why something of a process could not be read.
func reason(what string, err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return what + ": permission denied; CAP_SYS_PTRACE (or root) grants it"
	}
	return what + ": " + err.Error()
}

// isGone says that an error only means that the process ended.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}
