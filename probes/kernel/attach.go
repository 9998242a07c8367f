//go:build linux && amd64

package kernel

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// attachment is one link: what it is on, and its number in the kernel.
type attachment struct {
	what string
	id   link.ID
}

// Attached lists what the family is attached to, in words.
func (f *Family) Attached() []string {
	var out []string
	for _, a := range f.uses {
		out = append(out, a.what)
	}
	return out
}

func (f *Family) keep(l link.Link, what string) {
	a := attachment{what: what}
	if info, err := l.Info(); err == nil {
		a.id = info.ID
	}
	f.links = append(f.links, l)
	f.uses = append(f.uses, a)
}

// Point is a classic tracepoint with the program that goes to it.
type Point struct{ Group, Name, Program string }

// Tracepoints attaches programs to classic tracepoints. Where no tracefs is mounted a
// private one is, seen by nobody else.
func (f *Family) Tracepoints(points []Point) error {
	return withTracefs(func() error {
		for _, p := range points {
			l, err := link.Tracepoint(p.Group, p.Name, f.coll.Programs[p.Program], nil)
			if err != nil {
				return fmt.Errorf("%s: tracepoint %s/%s: %w", f.name, p.Group, p.Name, cause(err))
			}
			f.keep(l, p.Group+"/"+p.Name)
		}
		return nil
	})
}

// Syscalls are Points of system calls: "enter_openat" goes to sys_enter_openat.
func Syscalls(programs ...string) []Point {
	var out []Point
	for _, p := range programs {
		out = append(out, Point{"syscalls", "sys_" + p, p})
	}
	return out
}

// BTF attaches tracing programs (tp_btf), whose place is in the object.
func (f *Family) BTF(programs ...string) error {
	for _, p := range programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: f.coll.Programs[p]})
		if err != nil {
			return fmt.Errorf("%s: %s: %w", f.name, p, cause(err))
		}
		f.keep(l, "tp_btf "+p)
	}
	return nil
}

// RawTracepoint attaches a raw tracepoint program.
func (f *Family) RawTracepoint(name, prog string) error {
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: f.coll.Programs[prog]})
	if err != nil {
		return fmt.Errorf("%s: raw tracepoint %s: %w", f.name, name, cause(err))
	}
	f.keep(l, "raw_tp "+name)
	return nil
}

// Function is a function of a library with the programs that go to its entry and,
// where one is named, its return.
type Function struct {
	Name string
	Symbol
	Entry, Return string
	Cookie        uint64
}

// Functions attaches to functions of one file (Symbols has checked that it is a
// library), at once where the family was loaded for uprobe_multi.
func (f *Family) Functions(file string, fns []Function) error {
	ex, err := link.OpenExecutable(file)
	if err != nil {
		return fmt.Errorf("%s: opening a library: %w", f.name, cause(err))
	}
	for _, g := range gather(fns) {
		if err := f.attachGroup(ex, g); err != nil {
			return err
		}
	}
	return nil
}

// group is the functions that one program goes to.
type group struct {
	prog           string
	ret            bool
	names          []string
	places, cookie []uint64
}

func gather(fns []Function) (out []*group) {
	at := map[string]*group{}
	add := func(prog string, ret bool, fn *Function) {
		if prog == "" {
			return
		}
		g := at[prog]
		if g == nil {
			g = &group{prog: prog, ret: ret}
			at[prog] = g
			out = append(out, g)
		}
		g.names = append(g.names, fn.Name)
		g.places = append(g.places, fn.Offset+fn.At())
		g.cookie = append(g.cookie, fn.Cookie)
	}
	for i := range fns { // returns first: an entry without its return would hold a table's place
		add(fns[i].Return, true, &fns[i])
	}
	for i := range fns {
		add(fns[i].Entry, false, &fns[i])
	}
	return out
}

// attachGroup attaches by place in the file. A return probe may go behind an endbr64
// as well: the return address still lies on top of the stack there.
func (f *Family) attachGroup(ex *link.Executable, g *group) error {
	if f.multi {
		o := &link.UprobeMultiOptions{Addresses: g.places, Cookies: g.cookie}
		attach := ex.UprobeMulti
		if g.ret {
			attach = ex.UretprobeMulti
		}
		l, err := attach(nil, f.coll.Programs[g.prog], o)
		if err != nil {
			return fmt.Errorf("%s: uprobes of %s: %w", f.name, g.prog, cause(err))
		}
		f.keep(l, fmt.Sprintf("%s %v", g.prog, g.names))
		return nil
	}
	for i, name := range g.names {
		attach := ex.Uprobe
		if g.ret {
			attach = ex.Uretprobe
		}
		l, err := attach(name, f.coll.Programs[g.prog], &link.UprobeOptions{Address: g.places[i], Cookie: g.cookie[i]})
		if err != nil {
			return fmt.Errorf("%s: uprobe %s: %w", f.name, name, cause(err))
		}
		f.keep(l, g.prog+" "+name)
	}
	return nil
}

// withTracefs runs do on a thread that sees a tracefs: the system's, or one that is
// mounted for that thread alone and goes with it.
func withTracefs(do func() error) error {
	if mounted() {
		return do()
	}
	done := make(chan error)
	go private(do, done)
	return <-done
}

func private(do func() error, done chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with its mounts
	if unix.Gettid() == unix.Getpid() {
		// The first thread cannot end, and its mounts are what others take for the
		// process's: held here, so that another one does it.
		defer runtime.UnlockOSThread()
		inner := make(chan error)
		go private(do, inner)
		done <- <-inner
		return
	}
	if err := privateTracefs(); err != nil {
		done <- err
		return
	}
	done <- do()
}

const tracefs = "/sys/kernel/tracing"

func mounted() bool {
	for _, p := range []string{tracefs, "/sys/kernel/debug/tracing"} {
		var s unix.Statfs_t
		if unix.Statfs(p, &s) == nil && s.Type == unix.TRACEFS_MAGIC {
			return true
		}
	}
	return false
}

// ErrNoTracefs is why classic tracepoints cannot be used.
var ErrNoTracefs = errors.New("no tracefs is mounted and none may be: mount -t tracefs tracefs " + tracefs)

func privateTracefs() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("%w (%w)", ErrNoTracefs, err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("%w (%w)", ErrNoTracefs, err)
	}
	if err := unix.Mount("tracefs", tracefs, "tracefs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("%w (%w)", ErrNoTracefs, err)
	}
	return nil
}
