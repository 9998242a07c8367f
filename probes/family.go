//go:build linux && amd64

package probes

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/omnitap/omnitap/probes/cuda"
	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/probes/kernel"
	"github.com/omnitap/omnitap/probes/pipe"
	"github.com/omnitap/omnitap/probes/proc"
	"github.com/omnitap/omnitap/probes/sched"
	"github.com/omnitap/omnitap/probes/shm"
	"github.com/omnitap/omnitap/probes/socket"
	"github.com/omnitap/omnitap/probes/zmq"
)

// family is one probe family with what has become of it.
type family struct {
	name string
	cfg  *Family
	// always says that it is used whatever the processes look like.
	always bool
	btf    bool // its programs are on BTF tracepoints
	// open loads and attaches it.
	open func(w *kernel.Watch, want wish) (*kernel.Family, error)
	// library says which mapped files it is attached to, nil for a family of
	// tracepoints; attach does it.
	library func(path string) bool
	attach  func(f *kernel.Family, file string) (map[string]kernel.Symbol, error)

	// kernel is nil while the family is not attached. The control goroutine alone sets
	// it, with mu held; the reader looks at it with mu held.
	mu     sync.Mutex
	kernel *kernel.Family
	want   wish // what it was loaded for
	libs   map[inode]*library
	err    error         // why it is not attached
	off    string        // why it was taken away
	dead   string        // why it is taken for dead
	last   kernel.Counts // when it was detached
	lost   uint64        // losses that were told; the reader's, with mu held
	seen   int64         // when the reader looked last, CLOCK_MONOTONIC nanoseconds
	cost   *float64
	cores  *float64

	skipped uint64 // skipped runs that were told
}

// wish is what there is for the socket family to see.
type wish struct{ zmtp, mooncake bool }

// inode tells one file from another.
type inode struct {
	dev string
	ino uint64
}

// library is a file that a family is attached to, or could not be.
type library struct {
	path    string
	symbols map[string]kernel.Symbol
	err     error
}

func newFamilies(c *Config) []*family {
	ring := func(f *Family) int { return f.RingKiB << 10 }
	own := "omnitap runs in a pid namespace of its own, where the scheduler's numbers mean nothing (needed: the host's, hostPID)"
	inHost := func(load func(*kernel.Watch, int) (*kernel.Family, error), f *Family) func(*kernel.Watch, wish) (*kernel.Family, error) {
		return func(w *kernel.Watch, _ wish) (*kernel.Family, error) {
			if w.Namespaced() {
				return nil, errors.New(own)
			}
			return load(w, ring(f))
		}
	}
	return []*family{
		{name: "shm", cfg: &c.SHM, always: true, open: func(w *kernel.Watch, _ wish) (*kernel.Family, error) { return shm.Load(w, ring(&c.SHM)) }},
		{name: "proc", cfg: &c.Proc, always: true, btf: true, open: inHost(proc.Load, &c.Proc)},
		{name: "sched", cfg: &c.Sched, always: true, btf: true, open: inHost(sched.Load, &c.Sched)},
		{
			name: "zmq", cfg: &c.ZMQ, library: isZMQ, attach: zmq.Attach,
			open: func(w *kernel.Watch, _ wish) (*kernel.Family, error) {
				return eitherWay(func(multi bool) (*kernel.Family, error) { return zmq.Load(w, ring(&c.ZMQ), multi) })
			},
		},
		{
			name: "cuda", cfg: &c.CUDA, library: isCUDA,
			attach: func(f *kernel.Family, file string) (map[string]kernel.Symbol, error) {
				return cuda.Attach(f, file, c.Launches)
			},
			open: func(w *kernel.Watch, _ wish) (*kernel.Family, error) {
				return eitherWay(func(multi bool) (*kernel.Family, error) {
					return cuda.Load(w, cuda.Config{Launches: c.Launches, LeastCopy: c.LeastCopy, RingBytes: ring(&c.CUDA), Multi: multi})
				})
			},
		},
		{name: "pipe", cfg: &c.Pipe, open: func(w *kernel.Watch, _ wish) (*kernel.Family, error) { return pipe.Load(w, ring(&c.Pipe)) }},
		{name: "socket", cfg: &c.Socket, open: func(w *kernel.Watch, want wish) (*kernel.Family, error) {
			return socket.Load(w, socket.Config{ZMTP: want.zmtp, Mooncake: want.mooncake, RingBytes: ring(&c.Socket)})
		}},
	}
}

// eitherWay prefers uprobe_multi, which needs less and costs less, to plain uprobes.
func eitherWay(load func(multi bool) (*kernel.Family, error)) (*kernel.Family, error) {
	f, err := load(true)
	if err == nil {
		return f, nil
	}
	if f, plain := load(false); plain == nil {
		return f, nil
	}
	return nil, err
}

func isZMQ(p string) bool {
	b := path.Base(p)
	return strings.HasPrefix(b, "libzmq") && strings.Contains(b, ".so")
}

func isCUDA(p string) bool { return strings.HasPrefix(path.Base(p), "libcuda.so") }

// isMooncake tells the wheel's extension and the library by its name.
func isMooncake(p string) bool {
	return strings.HasSuffix(p, "mooncake/engine.so") || strings.Contains(path.Base(p), "mooncake") || strings.Contains(path.Base(p), "transfer_engine")
}

// load attaches the family, unless it is or must not be.
func (f *family) load(w *kernel.Watch, want wish) error {
	if f.off != "" || f.err != nil && f.kernel == nil && f.want == want {
		return f.err // retried on demand only, not at every scan
	}
	if f.kernel != nil {
		if f.want == want {
			return nil
		}
		if err := f.close(); err != nil {
			return err
		}
	}
	k, err := f.open(w, want) // may take long: the reader goes on
	f.mu.Lock()
	defer f.mu.Unlock()
	f.want, f.last, f.lost, f.seen, f.skipped = want, kernel.Counts{}, 0, monotonic(), 0
	f.kernel, f.err = k, err
	f.libs = map[inode]*library{}
	return f.err
}

// close detaches the family. What still lies in its ring is given up: whoever asks for
// it does so because nobody is to be watched any more, or it costs too much.
func (f *family) close() error {
	f.mu.Lock()
	k := f.kernel
	f.kernel = nil
	f.mu.Unlock()
	if k == nil {
		return nil
	}
	f.last, _ = k.Counts() // as far as they can be read
	f.dead = ""
	return k.Close() // takes long: the kernel waits for every CPU
}

// drain adds what lies in the family's ring to a batch, and what it could not tell. It
// returns false where an event is not filled in yet.
func (f *family) drain(b *kernel.Batch, now int64) (all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kernel == nil {
		return true
	}
	all = f.kernel.Drain(b)
	if lost, err := f.kernel.Lost(); err == nil && lost > f.lost {
		b.Events = append(b.Events, f.loss(f.seen, now, lost-f.lost))
		f.lost = lost
	}
	f.seen = now
	return all
}

// skips tells of program runs that the kernel left out. Asking is a system call a
// program, so that it is done once a second.
func (f *family) skips(now int64) (out []event.Event) {
	if f.kernel == nil {
		return nil
	}
	c, err := f.kernel.Counts()
	if err != nil || c.Skipped <= f.skipped { // an error is told by the heartbeat
		return nil
	}
	out = append(out, f.loss(now-int64(time.Second), now, c.Skipped-f.skipped))
	f.skipped = c.Skipped
	return out
}

func (f *family) loss(from, to int64, n uint64) event.Event {
	return event.Event{Probe: event.Loss, MonoNS: to, EnterNS: from, Path: f.name, Count: int64(n)}
}

// trim takes the family away for good.
func (f *family) trim(why string) error {
	f.off = why
	return f.close()
}

// attachTo attaches a family of library functions to what a process maps, each file
// once whatever its paths.
func (f *family) attachTo(pid int, maps []kernel.Mapping) {
	for i := range maps {
		m := &maps[i]
		if !f.library(m.Path) {
			continue
		}
		key := inode{m.Dev, m.Inode}
		if f.libs[key] != nil {
			continue
		}
		l := &library{path: m.Path}
		f.libs[key] = l
		if l.symbols, l.err = f.attachFile(pid, m); l.err != nil {
			f.err = l.err
		}
	}
}

// attachFile attaches to a library, and never to the program that a process runs: a
// return probe there could kill it, if Go or an interpreter is what it is.
func (f *family) attachFile(pid int, m *kernel.Mapping) (map[string]kernel.Symbol, error) {
	file, err := m.Open(pid)
	if err != nil {
		return nil, err
	}
	program, err := kernel.IsProgram(pid, file)
	if err != nil {
		return nil, err
	}
	if program {
		return nil, fmt.Errorf("%s: %w", m.Path, &kernel.NotLibraryError{Why: "it is the program itself"})
	}
	return f.attach(f.kernel, file)
}

// sees says whether a mapped library is one that the family is attached to.
func (f *family) sees(m kernel.Mapping) bool {
	l := f.libs[inode{m.Dev, m.Inode}]
	return f.kernel != nil && l != nil && l.err == nil
}

// seesSomething says whether any library of the family is attached.
func (f *family) seesSomething() bool {
	for _, l := range f.libs {
		if l.err == nil {
			return true
		}
	}
	return false
}

// attach looks at what the processes map and open, and attaches what sees it.
func (s *Set) attach(found []event.Process) {
	s.maps.refresh(found)
	s.rest(len(found) == 0)
	for _, f := range s.families {
		if f.library == nil || f.cfg.Use == Off || !s.maps.has(f.library) || f.load(s.watch, wish{}) != nil {
			continue
		}
		for i := range found {
			f.attachTo(found[i].PID, s.maps.of(found[i].PID))
		}
	}
	s.attachSockets(found)
	s.attachPipes(found)
}

// attachSockets watches sockets while there is something to see for them alone.
func (s *Set) attachSockets(found []event.Process) {
	f := s.family("socket")
	want := wish{zmtp: s.blind(found), mooncake: s.maps.has(isMooncake)}
	switch {
	case f.cfg.Use == Off || len(found) == 0:
	case f.cfg.Use == On || want != wish{}:
		_ = f.load(s.watch, want) // kept in f.err
	default: // a stage that had no libzmq yet has it now
		if err := f.close(); err != nil {
			s.log.Error("detaching", "error", err)
		}
	}
}

// rest takes tracepoints away while there is nobody to watch: they cost every process
// of the machine some nanoseconds a call. What tells of new processes stays.
func (s *Set) rest(idle bool) {
	for _, f := range s.families {
		switch {
		case f.name == "proc" || f.cfg.Use == Off || f.library != nil:
		case idle:
			if err := f.close(); err != nil {
				s.log.Error("detaching", "error", err)
			}
		case f.always:
			_ = f.load(s.watch, wish{}) // kept in f.err
		}
	}
}

// blind says whether stages speak ZMTP without a libzmq that is probed: then the
// sockets are read instead.
func (s *Set) blind(found []event.Process) bool {
	z := s.family("zmq")
	if z.cfg.Use == Off {
		return false
	}
	for i := range found {
		if found[i].Role == "api" {
			continue
		}
		if !slices.ContainsFunc(s.maps.of(found[i].PID), z.sees) {
			return true
		}
	}
	return false
}

// attachPipes watches the pipes that two processes of the server share.
func (s *Set) attachPipes(found []event.Process) {
	f := s.family("pipe")
	if f.cfg.Use == Off || f.cfg.Use == Auto && !usesQueues(found) {
		return
	}
	shared := sharedPipes(found)
	if len(shared) == 0 {
		return
	}
	if f.load(s.watch, wish{}) == nil {
		if err := pipe.Watch(f.kernel, shared); err != nil {
			f.err = err
		}
	}
}

func (s *Set) family(name string) *family {
	for _, f := range s.families {
		if f.name == name {
			return f
		}
	}
	panic(fmt.Sprintf("no family %q", name))
}

// status says what is known of the family.
func (f *family) status() FamilyStatus {
	st := FamilyStatus{Name: f.name, State: Unused, CostNS: f.cost, Cores: f.cores}
	c := f.last
	switch {
	case f.cfg.Use == Off:
		st.State = Disabled
	case f.off != "":
		st.State, st.Reason = Trimmed, f.off
	case f.kernel == nil && f.err != nil:
		st.State, st.Reason = Failed, f.err.Error()
	case f.kernel != nil && f.library != nil && !f.seesSomething():
		st.State = Failed
		if f.err != nil {
			st.Reason = f.err.Error()
		}
	case f.dead != "":
		st.State, st.Reason = Dead, f.dead
	case f.kernel != nil:
		st.State = Attached
		if f.err != nil {
			st.Reason = f.err.Error()
		}
	}
	if f.kernel != nil {
		st.Points = f.kernel.Attached()
		for _, l := range slices.SortedFunc(maps.Values(f.libs), func(a, b *library) int { return strings.Compare(a.path, b.path) }) {
			st.Points = append(st.Points, path.Base(l.path))
		}
		if now, err := f.kernel.Counts(); err == nil {
			c = now
		}
	}
	st.Hits, st.Sent, st.Lost, st.Skipped = c.Hits, c.Sent, c.Lost, c.Skipped
	return st
}
