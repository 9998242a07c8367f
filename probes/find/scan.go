package find

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// entry is what a scan knows of one process, from this scan and earlier ones.
type entry struct {
	Snapshot
	seen uint64 // the number of the last scan that saw it
	// watch says until when its command line is read at every scan: a title comes
	// after the exec, or after the fork.
	watch time.Time
	// environ says that the environment was read, environErr and mapsErr why it or the
	// maps could not be.
	environ             bool
	environErr, mapsErr string
	mapped              time.Time
}

// Times between readings that cost.
const (
	// mapsEvery is how often the maps of a process that has libzmq are read again.
	mapsEvery = 30 * time.Second
	// watchFor is how long the title of a new process is waited for; its name
	// (/proc/PID/stat) tells of a later one.
	watchFor = 3 * time.Second
)

// collect reads /proc and returns the processes that matter.
func (f *Finder) collect(now time.Time) ([]Snapshot, error) {
	pids, err := f.proc.pids()
	if err != nil {
		return nil, err
	}
	f.round++
	for _, pid := range pids {
		f.look(pid, now)
	}
	for pid, e := range f.known {
		if e.seen != f.round {
			delete(f.known, pid)
		}
	}
	want := f.candidates()
	owners := f.owners(want)
	out := make([]Snapshot, 0, len(want))
	for _, pid := range want {
		e := f.known[pid]
		f.detail(e, owners, now)
		out = append(out, e.Snapshot)
	}
	return out, nil
}

// look reads the cheap part of one process.
func (f *Finder) look(pid int, now time.Time) {
	id, err := f.proc.stat(pid, f.buf)
	if err != nil || id.gone {
		return
	}
	e := f.known[pid]
	if e == nil || e.StartTicks != id.start {
		e = &entry{watch: now.Add(watchFor)}
		e.PID, e.StartTicks = pid, id.start
		f.known[pid] = e
	}
	e.seen = f.round
	changed := e.Comm != id.comm
	e.PPID, e.Comm = id.ppid, id.comm
	if changed {
		e.watch = now.Add(watchFor) // a name may change before the title does
	}
	fresh := now.Before(e.watch)
	if fresh {
		if args, err := f.proc.args(pid); err == nil {
			e.Args = args
		}
	}
	if env := f.atExec[execKey{pid, id.start}]; env != nil {
		e.Env, e.environ = env, true
		return
	}
	if (fresh || !e.environ) && (f.rulesEnv || f.cheap(e)) {
		f.readEnviron(e)
	}
}

// readEnviron reads the environment of a process that was not caught at its exec. A
// title may have cleared it since: what was read before stays.
func (f *Finder) readEnviron(e *entry) {
	env, err := f.proc.environ(e.PID, f.keep)
	e.environErr = ""
	if err != nil && !isGone(err) {
		e.environErr = reason("environ", err)
	}
	e.environ = true
	if merged := maps.Clone(e.Env); merged != nil {
		maps.Copy(merged, env)
		env = merged
	}
	e.Env = env
}

// words are in the name or the command line of what may belong to a server.
var words = []string{"vllm", "sglang", "sgl-omni", "StageEngineCoreProc", "multiprocessing.spawn", "multiprocessing.forkserver", "--omni"}

// cheap says from name and command line alone whether a process may belong to a
// server.
func (f *Finder) cheap(e *entry) bool {
	if strings.HasPrefix(e.Comm, "VLLM::") {
		return true
	}
	for i, a := range e.Args {
		if i >= 8 {
			break
		}
		for _, w := range words {
			if strings.Contains(a, w) {
				return true
			}
		}
	}
	if len(e.Args) == 1 && strings.Contains(e.Args[0], "::") {
		return true
	}
	if e.Env[envLoggingPrefix] != "" {
		return true
	}
	return f.byRules(&e.Snapshot)
}

// byRules says whether a rule's cheap conditions hold.
func (f *Finder) byRules(s *Snapshot) bool {
	for i := range f.rules {
		r := f.rules[i]
		if r.Title == nil && r.Cmdline == nil && r.Env == nil {
			continue // sockets only: see owners
		}
		r.Listen = nil
		if _, _, ok := r.match(s); ok {
			return true
		}
	}
	return false
}

// candidates are the processes that cheap takes, with their ancestors and all that
// descends from them.
func (f *Finder) candidates() []int {
	want := map[int]bool{}
	for pid, e := range f.known {
		if f.cheap(e) || f.held[execKey{pid, e.StartTicks}] {
			want[pid] = true
		}
	}
	f.family(want)
	return slices.Sorted(maps.Keys(want))
}

// family adds descendants, then ancestors: a server is above its stages, and what is
// above a server is nothing's descendant that matters.
func (f *Finder) family(want map[int]bool) {
	for pid := range f.known {
		if f.descends(pid, want) {
			want[pid] = true
		}
	}
	for _, pid := range slices.Collect(maps.Keys(want)) {
		for range maxAncestors {
			e := f.known[pid]
			if e == nil || e.PPID == 0 || f.known[e.PPID] == nil {
				break
			}
			pid = e.PPID
			want[pid] = true
		}
	}
}

// descends says whether an ancestor of a process is wanted.
func (f *Finder) descends(pid int, want map[int]bool) bool {
	for range maxAncestors {
		e := f.known[pid]
		if e == nil {
			return false
		}
		pid = e.PPID
		if pid > 1 && want[pid] {
			return true
		}
	}
	return false
}

// detail reads the dear part of a candidate.
func (f *Finder) detail(e *entry, owners *owners, now time.Time) {
	pid := e.PID
	e.Missing = nil
	if !e.environ {
		f.readEnviron(e)
	}
	o := owners.of(pid)
	e.Unix, e.TCP = o.unix, o.tcp
	e.FIFOs, e.Pipes = o.links.fifos, o.links.pipes
	if o.err != nil && !isGone(o.err) {
		e.Missing = append(e.Missing, reason("fd", o.err))
	}
	e.NetNS = o.netns
	e.MountNS, e.PIDNS = f.proc.namespace(pid, "mnt"), f.proc.namespace(pid, "pid")
	if !e.mapsZMQ() || now.Sub(e.mapped) >= mapsEvery {
		libs, err := f.proc.libs(pid)
		e.mapped, e.mapsErr = now, ""
		if err == nil {
			e.Libs = libs
		} else if !isGone(err) {
			e.mapsErr = reason("maps", err)
		}
	}
	for _, m := range []string{e.mapsErr, e.environErr} {
		if m != "" {
			e.Missing = append(e.Missing, m)
		}
	}
}
