package foreign

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"github.com/omnitap/omnitap/probes/host"
)

// Bounds of what is read, and how often the dear parts are read again.
const (
	maxCPUStat  = 4 << 20 // the interrupts of a large machine stand in it, too
	maxProcStat = 4 << 10
	maxStatus   = 64 << 10
	maxThreads  = 8192 // of one process
	// allEvery and mayEvery are in samples. A process that is nobody's is looked at
	// again only then, since it becomes somebody's only by being adopted; where threads
	// may run is looked at when their process is new, and then.
	allEvery = 16
	mayEvery = 60
)

// identity is what is kept of every process.
type identity struct {
	ppid  int
	start uint64
}

// collector reads samples. It keeps what need not be read twice.
type collector struct {
	root   host.Root
	clocks host.Clocks
	// seen has every process, joined those of a group, with the process's start.
	seen   map[int]identity
	joined map[int]member
	may    [groups]host.CPUs
	count  int
	buf    []byte
	// cpuTime reads a process's clock, nanoseconds.
	cpuTime func(pid int) (int64, error)
}

// member says whose a process is.
type member struct {
	start uint64
	group group
}

func newCollector(root host.Root, clocks host.Clocks) *collector {
	c := &collector{root: root, clocks: clocks, seen: map[int]identity{}, joined: map[int]member{}, cpuTime: cpuTime}
	if !root.Real() { // the pids of a fixture are not the kernel's
		c.cpuTime = func(int) (int64, error) { return 0, errors.ErrUnsupported }
	}
	return c
}

// sample reads all that a sample holds. It always returns one; what is missing is said
// in it.
func (c *collector) sample(g Groups) *sample {
	begin := c.clocks.Mono()
	s := &sample{boot: c.clocks.Boot(), procs: map[int]process{}}
	if err := c.list(); err != nil {
		s.missing = "listing the processes: " + host.Reason(err)
	}
	fresh := c.assign(g)
	for _, p := range g.Server {
		if _, ok := c.joined[p.PID]; !ok {
			s.absent++
		}
	}
	for pid, m := range c.joined {
		if p, ok := c.process(pid, m); ok {
			s.procs[pid] = p
		} else {
			delete(c.seen, pid) // gone, or another one's number by now
		}
	}
	c.allowed(s.procs, fresh)
	s.may = c.may
	c.count++
	c.cpus(s)
	s.took = c.clocks.Mono() - begin
	return s
}

// list looks which processes there are, and reads the new ones.
func (c *collector) list() error {
	dir, err := os.Open(c.root.Path("proc"))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	all := c.count%allEvery == 0
	here := make(map[int]identity, len(names))
	for _, name := range names {
		pid, ok := number(name)
		if !ok {
			continue
		}
		if id, known := c.seen[pid]; known && !all {
			here[pid] = id
		} else if st, err := c.stat(pid); err == nil {
			here[pid] = identity{st.ppid, st.start}
		}
	}
	c.seen = here
	return nil
}

// number reads a pid as the kernel writes it.
func number(name string) (int, bool) {
	if name == "" || name[0] < '1' || name[0] > '9' {
		return 0, false
	}
	n, err := strconv.Atoi(name)
	return n, err == nil
}

func (c *collector) stat(pid int) (s stat, err error) {
	c.buf, err = c.root.Append(c.buf[:0], "proc/"+strconv.Itoa(pid)+"/stat", maxProcStat)
	if err != nil {
		return s, err
	}
	return parseStat(c.buf)
}

// assign says whose each process is: the nearest ancestor decides that the caller named,
// or that was somebody's before. Who is somebody's stays it, whatever becomes of its
// parent. It returns who is new.
func (c *collector) assign(g Groups) (fresh []int) {
	next := make(map[int]member, len(c.joined))
	named := g.named()
	for pid, m := range c.joined {
		if id, ok := c.seen[pid]; ok && id.start == m.start {
			next[pid] = m
		}
	}
	for pid, n := range named {
		if id, ok := c.seen[pid]; ok && (n.start == 0 || n.start == id.start) {
			next[pid] = member{id.start, n.group}
		}
	}
	for pid := range c.seen {
		c.follow(pid, next)
	}
	for pid, m := range next {
		if c.joined[pid] != m {
			fresh = append(fresh, pid)
		}
	}
	c.joined = next
	return fresh
}

// follow climbs from a process to one that is somebody's, and gives it the way there.
func (c *collector) follow(pid int, next map[int]member) {
	var way []int
	for at, steps := pid, 0; at > 0 && steps < 1024; steps++ {
		if m, ok := next[at]; ok {
			for _, p := range way {
				next[p] = member{c.seen[p].start, m.group}
			}
			return
		}
		id, ok := c.seen[at]
		if !ok {
			return
		}
		way = append(way, at)
		at = id.ppid
	}
}

// process reads one process of a group. One that ended meanwhile is not there.
func (c *collector) process(pid int, m member) (process, bool) {
	st, err := c.stat(pid)
	if err != nil || st.start != m.start {
		return process{}, false
	}
	c.seen[pid] = identity{st.ppid, st.start}
	p := process{start: st.start, ppid: st.ppid, group: m.group, reaped: int64(st.reaped) * tickNS}
	if p.own, err = c.cpuTime(pid); err != nil {
		p.own, p.coarse = int64(st.own)*tickNS, true
	}
	return p, true
}

// cpus reads the CPUs, and stamps the sample with when it did.
func (c *collector) cpus(s *sample) {
	before := c.clocks.Mono()
	var err error
	c.buf, err = c.root.Append(c.buf[:0], "proc/stat", maxCPUStat)
	after := c.clocks.Mono()
	s.mono = before + (after-before)/2
	if err == nil {
		s.all, s.cpus, s.online, err = parseCPUs(c.buf)
	}
	if err != nil && s.missing == "" {
		s.missing = host.Reason(err)
	}
}

// allowed reads where the threads of each group may run: of the new processes, and of
// all from time to time. A group without processes keeps what is known of it: what it
// took before it ended belongs there.
func (c *collector) allowed(procs map[int]process, fresh []int) {
	if c.count%mayEvery != 0 {
		for _, pid := range fresh {
			if p, ok := procs[pid]; ok {
				c.may[p.group] = c.threads(pid, c.may[p.group])
			}
		}
		return
	}
	var may [groups]host.CPUs
	for pid, p := range procs {
		may[p.group] = c.threads(pid, may[p.group])
	}
	for g := range groups {
		if len(may[g]) > 0 {
			c.may[g] = may[g]
		}
	}
}

// threads adds where the threads of a process may run. Most have the same CPUs as the
// one before.
func (c *collector) threads(pid int, may host.CPUs) host.CPUs {
	name := "proc/" + strconv.Itoa(pid) + "/task"
	dir, err := os.Open(c.root.Path(name))
	if err != nil {
		return may
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(maxThreads) // an error only says that it has no more
	last := ""
	for _, tid := range names {
		c.buf, err = c.root.Append(c.buf[:0], name+"/"+tid+"/status", maxStatus)
		if err != nil {
			continue
		}
		cpus, err := parseAllowed(c.buf)
		if list := cpus.String(); err == nil && list != last {
			may, last = may.Union(cpus), list
		}
	}
	return may
}

// preflight says why the machine cannot be measured, if it cannot.
func preflight(root host.Root) error {
	b, err := root.Read("proc/self/mountinfo", maxCPUStat)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not this kernel's own, or a fixture without it
	}
	if err != nil {
		return err
	}
	if covered(b) {
		return fmt.Errorf("/proc/stat is covered by another file system (lxcfs?), which shows the container instead of the CPUs: %w", syscall.ENOTSUP)
	}
	return nil
}
