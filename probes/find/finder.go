package find

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/omnitap/omnitap/probes/event"
)

// Config is what a Finder is told. The zero value finds every known server.
type Config struct {
	// Proc is where the proc filesystem is, "/proc" by default.
	Proc string
	// Port is the upstream's TCP port: of several servers the one that listens on it is
	// taken. 0 takes all; so it is to be where the upstream is another machine.
	Port int
	// Rules tell other servers (ParseRules).
	Rules []Rule
	// Names are the user's own names of stages, by number; they come before all others.
	Names map[int]string
	// Now is the clock, time.Now by default.
	Now func() time.Time
}

// Result is what one scan found.
type Result struct {
	Processes []event.Process
	// Root is the server that was chosen by its port, 0 if none; Why says how.
	Root int
	Why  string
	// Endpoints are the ZMQ endpoints that the processes listen on.
	Endpoints []event.Endpoint
	// Missing is what could not be read, Doubts what was not taken.
	Missing []string
	Doubts  []Doubt
	Diff    Diff
	// Took is how long the scan lasted.
	Took time.Duration
}

// File is the result in the form of processes.json.
func (r *Result) File() event.Processes {
	return event.Processes{Processes: r.Processes, ZMQBind: r.Endpoints}
}

// execKey is a process in one life.
type execKey struct {
	pid   int
	start uint64
}

// Finder finds the processes of servers, again and again. Scan is for one goroutine
// at a time; Exec, Fork, Exit and Snapshot may come from others.
type Finder struct {
	proc     procfs
	self     int
	port     int
	rules    []Rule
	names    map[int]string
	keep     map[string]bool
	rulesEnv bool
	now      func() time.Time
	wake     chan struct{}

	mu      sync.Mutex // protects all below
	buf     []byte
	round   uint64
	known   map[int]*entry
	held    map[execKey]bool // candidates by what they listen on
	orphans map[uint64]bool
	again   bool
	// netns is our network namespace; portOpen says that somebody in it listens on port.
	netns    uint64
	portOpen bool
	config   map[execKey]configured
	atExec   map[execKey]map[string]string
	last     []event.Process
	gone     []event.Process
	members  map[int]bool
	due      []time.Time
}

// New makes a finder; it reads nothing yet.
func New(c Config) *Finder {
	f := &Finder{
		proc: procfs(c.Proc), self: os.Getpid(), port: c.Port, rules: c.Rules, names: c.Names, now: c.Now,
		keep: map[string]bool{envLoggingPrefix: true, envDevices: true, envReplica: true},
		wake: make(chan struct{}, 1), buf: make([]byte, 4096),
		known: map[int]*entry{}, held: map[execKey]bool{}, orphans: map[uint64]bool{},
		config: map[execKey]configured{}, atExec: map[execKey]map[string]string{}, members: map[int]bool{},
	}
	if f.proc == "" {
		f.proc = "/proc"
	}
	if f.now == nil {
		f.now = time.Now
	}
	for _, r := range c.Rules {
		if r.Env != nil {
			f.keep[r.Env.Name] = true
			f.rulesEnv = true
		}
	}
	return f
}

// maxGone bounds the processes that a restart can be told of.
const maxGone = 64

// Scan looks once. An error is of /proc as a whole; what could not be read of single
// processes stands in the result.
func (f *Finder) Scan() (Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	start := f.now()
	snapshots, err := f.collect(start)
	if err != nil {
		return Result{}, err
	}
	if f.again { // an owner of a socket was found among those that were no candidates
		f.again = false
		if snapshots, err = f.collect(start); err != nil {
			return Result{}, err
		}
	}
	var r Result
	found := Classify(snapshots, f.rules, f.stageNames(&r.Missing))
	r.Doubts = found.Doubts
	r.Processes, r.Root, r.Why = Choose(found.Processes, snapshots, f.port, f.netns)
	r.Missing = append(r.Missing, f.missing(found, snapshots)...)
	r.Endpoints = f.endpoints(r.Processes)
	r.Diff = Compare(f.last, r.Processes, f.gone)
	f.remember(&r)
	r.Took = f.now().Sub(start)
	return r, nil
}

// missing gathers what could not be read of the processes that matter, a reason once.
func (f *Finder) missing(found Found, snapshots []Snapshot) []string {
	matters := map[int]bool{}
	for _, p := range found.Processes {
		matters[p.PID] = true
	}
	for _, d := range found.Doubts {
		matters[d.PID] = true
	}
	of := map[string][]int{}
	owned := false
	for i := range snapshots {
		s := &snapshots[i]
		owned = owned || s.listensOn(f.port)
		if !matters[s.PID] {
			continue
		}
		for _, m := range s.Missing {
			of[m] = append(of[m], s.PID)
		}
	}
	var out []string
	for _, m := range slices.Sorted(maps.Keys(of)) {
		out = append(out, fmt.Sprintf("%s (%s)", m, listPIDs(of[m])))
	}
	if f.portOpen && !owned {
		out = append(out, fmt.Sprintf("the process that listens on port %d cannot be seen: CAP_SYS_PTRACE (or root) grants it", f.port))
	}
	return out
}

// listPIDs names some processes.
func listPIDs(pids []int) string {
	const most = 8
	text := "process"
	if len(pids) > 1 {
		text = "processes"
	}
	for i, pid := range pids {
		if i == most {
			return fmt.Sprintf("%s and %d more", text, len(pids)-most)
		}
		if i > 0 {
			text += ","
		}
		text += " " + strconv.Itoa(pid)
	}
	return text
}

// remember keeps what the next scan compares with.
func (f *Finder) remember(r *Result) {
	for _, restart := range r.Diff.Restarted {
		f.gone = slices.DeleteFunc(f.gone, func(p event.Process) bool { return whoOf(p) == whoOf(restart.Old) })
	}
	for _, p := range r.Diff.Gone {
		taken := slices.ContainsFunc(r.Diff.Restarted, func(s Restart) bool { return whoOf(s.Old) == whoOf(p) })
		if !taken {
			f.gone = append(f.gone, p)
		}
	}
	f.gone = slices.Delete(f.gone, 0, max(0, len(f.gone)-maxGone))
	f.last = r.Processes
	clear(f.members)
	for _, p := range r.Processes {
		f.members[p.PID] = true
	}
	alive := func(k execKey) bool { return f.known[k.pid] != nil && f.known[k.pid].StartTicks == k.start }
	maps.DeleteFunc(f.held, func(k execKey, _ bool) bool { return !alive(k) })
	maps.DeleteFunc(f.config, func(k execKey, _ configured) bool { return !alive(k) })
	maps.DeleteFunc(f.atExec, func(k execKey, _ map[string]string) bool { return !alive(k) })
}

// endpoints are the listening sockets of processes, as ZMQ writes them.
func (f *Finder) endpoints(processes []event.Process) []event.Endpoint {
	var out []event.Endpoint
	for _, p := range processes {
		e := f.known[p.PID]
		if e == nil {
			continue
		}
		for _, path := range e.Unix {
			out = append(out, event.Endpoint{PID: p.PID, Addr: "ipc://" + path})
		}
		for _, a := range e.TCP {
			out = append(out, event.Endpoint{PID: p.PID, Addr: "tcp://" + a.String()})
		}
	}
	return out
}

// Snapshot is what the last scan read of a process that it looked at.
func (f *Finder) Snapshot(pid int) (Snapshot, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.known[pid]
	if e == nil || e.mapped.IsZero() {
		return Snapshot{}, false
	}
	return e.Snapshot, true
}

// configured is what a server's configuration said, read once in its life.
type configured struct {
	names  map[int]string
	reason string
}

// stageNames reads the names of a server's stages where its command line says, and
// adds to missing what could not be read.
func (f *Finder) stageNames(missing *[]string) Namer {
	return func(root Snapshot) map[int]string {
		key := execKey{root.PID, root.StartTicks}
		c, ok := f.config[key]
		if !ok {
			c = f.configure(root)
			f.config[key] = c
		}
		if c.reason != "" {
			*missing = append(*missing, c.reason)
		}
		return c.names
	}
}

// maxConfig bounds a configuration file.
const maxConfig = 4 << 20

// configure gathers names, the weakest source first, so that better ones replace
// them.
func (f *Finder) configure(root Snapshot) configured {
	var c configured
	c.names = map[int]string{}
	var bad []error
	model, config := modelOf(root.Args), configOf(root.Args)
	maps.Copy(c.names, ModelStages(config))
	byModel := ModelStages(model)
	if byModel == nil && model != "" {
		if b, err := f.proc.within(root.PID, model+"/config.json", maxConfig); err == nil {
			if what, err := modelConfig(b); err == nil {
				byModel = ModelStages(what)
			}
		}
	}
	maps.Copy(c.names, byModel)
	if config != "" {
		b, err := f.proc.within(root.PID, config, maxConfig)
		if err == nil {
			var names map[int]string
			if names, err = StageNames(b); err == nil {
				maps.Copy(c.names, names)
			}
		}
		if err != nil {
			bad = append(bad, err)
		}
	}
	maps.Copy(c.names, f.names)
	if err := errors.Join(bad...); err != nil {
		c.reason = reason("stage configuration of the command line", err)
	}
	return c
}
