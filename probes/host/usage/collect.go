package usage

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strconv"
	"syscall"

	"github.com/omnitap/omnitap/probes/host"
)

// Bounds of what is read.
const (
	maxStat      = 4 << 10
	maxCPUStat   = 4 << 20 // the interrupts of a large machine stand in it, too
	maxMeminfo   = 64 << 10
	maxSmaps     = 64 << 10
	maxNet       = 4 << 20 // a host of many containers has thousands of interfaces
	maxProcesses = 512
	// pssEvery is the least time between readings of a process's PSS; pssShare is by how
	// much longer than a reading took the time to the next one is.
	pssEvery = int64(10e9)
	pssShare = 100
)

// watched is one process that the caller named.
type watched struct {
	start     uint64
	stage     string
	namespace string
	// pssAt is when PSS is read next, ended that its last sample was told.
	pssAt int64
	ended bool
	last  int64
	why   map[string]string // why the namespace is not known
}

// collector reads samples. It keeps what need not be read twice.
type collector struct {
	root    host.Root
	clocks  host.Clocks
	page    int64
	own     string // the network namespace of this process
	seen    map[int]*watched
	cpuTime func(pid int) (int64, error)
	buf     []byte
}

func newCollector(root host.Root, clocks host.Clocks) *collector {
	c := &collector{root: root, clocks: clocks, page: int64(os.Getpagesize()), seen: map[int]*watched{}, cpuTime: cpuTime}
	if !root.Real() { // the pids of a fixture are not the kernel's
		c.cpuTime = func(int) (int64, error) { return 0, errors.ErrUnsupported }
	}
	c.own, _ = c.namespace("self") // "" where it is not known
	return c
}

func (c *collector) sample(named []Process) *Sample {
	s := &Sample{MonoNS: c.clocks.Mono(), WallNS: c.clocks.Wall()}
	cpu, measured := threadTime()
	s.Machine = c.machine()
	here := map[int]bool{}
	for i, p := range named {
		if i == maxProcesses {
			s.Left = len(named) - maxProcesses
			break
		}
		if p.PID <= 0 || here[p.PID] {
			continue
		}
		here[p.PID] = true
		s.Processes = c.process(s.Processes, p)
	}
	for pid, w := range c.seen {
		if !here[pid] {
			if !w.ended {
				s.Processes = append(s.Processes, c.last(pid, w, "it is not watched any more"))
			}
			delete(c.seen, pid)
		}
	}
	s.Networks = c.networks()
	s.TookNS = c.clocks.Mono() - s.MonoNS
	if after, ok := threadTime(); ok && measured {
		s.CPUNS = new(after - cpu)
	}
	return s
}

// value is a pointer to what was read, or nil with the reason put down.
func value(why map[string]string, name string, v int64, err error) *int64 {
	if err != nil {
		why[name] = host.Reason(err)
		return nil
	}
	return &v
}

func (c *collector) file(name string, limit int) (err error) {
	c.buf, err = c.root.Append(c.buf[:0], name, limit)
	return err
}

func (c *collector) machine() Machine {
	m := Machine{Unmeasured: map[string]string{}}
	busy, idle, err := int64(0), int64(0), c.file("proc/stat", maxCPUStat)
	if err == nil {
		busy, idle, err = parseCPU(c.buf)
	}
	m.BusyNS, m.IdleNS = value(m.Unmeasured, fieldBusy, busy, err), value(m.Unmeasured, fieldIdle, idle, err)
	unread := c.file("proc/meminfo", maxMeminfo)
	memory := func(field, line string) *int64 {
		v, err := int64(0), unread
		if err == nil {
			v, err = parseKB(c.buf, line)
		}
		return value(m.Unmeasured, field, v, err)
	}
	m.MemoryTotalBytes, m.MemoryAvailableBytes = memory(fieldTotal, "MemTotal"), memory(fieldAvailable, "MemAvailable")
	return m
}

// process appends the sample of a process. One whose last sample was told has none.
func (c *collector) process(to []Use, p Process) []Use {
	w := c.seen[p.PID]
	if w != nil && p.StartTicks != 0 && w.start != p.StartTicks {
		if !w.ended {
			to = append(to, c.last(p.PID, w, "another process has its number by now"))
		}
		w = nil
	}
	if w != nil && w.ended {
		return to
	}
	st, err := c.stat(p.PID)
	if w == nil {
		w = &watched{start: p.StartTicks, stage: p.Stage, why: map[string]string{}}
		if err == nil && p.StartTicks == 0 {
			w.start = st.start
		}
		c.seen[p.PID] = w
		gone := err
		if err == nil && st.start == w.start {
			w.namespace, gone = c.namespace(strconv.Itoa(p.PID))
		}
		if gone != nil {
			w.why[fieldNamespace] = host.Reason(gone)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH):
		return append(to, c.last(p.PID, w, "the process ended"))
	case err == nil && st.start != w.start:
		return append(to, c.last(p.PID, w, "the process ended: another one has its number by now"))
	}
	u := c.use(p.PID, w, st, err)
	if err == nil && (st.state == 'Z' || st.state == 'X') {
		u.Ended, w.ended = "the process ended: its parent has not waited for it yet", true
		u.RSSBytes, u.PSSBytes, u.Threads = nil, nil, nil
		for _, name := range []string{fieldRSS, fieldPSS, fieldThreads} {
			u.Unmeasured[name] = u.Ended
		}
	}
	return append(to, u)
}

// last is the sample that says why there is no other one.
func (c *collector) last(pid int, w *watched, why string) Use {
	w.ended = true
	if w.last != 0 {
		why += fmt.Sprintf(", after %d (CLOCK_MONOTONIC)", w.last)
	}
	u := Use{
		PID: pid, StartTicks: w.start, Stage: w.stage, MonoNS: c.clocks.Mono(), WallNS: c.clocks.Wall(),
		Namespace: w.namespace, Ended: why, Unmeasured: map[string]string{},
	}
	for _, name := range []string{fieldCPU, fieldRSS, fieldPSS, fieldThreads} {
		u.Unmeasured[name] = why
	}
	if w.namespace == "" {
		u.Unmeasured[fieldNamespace] = why
	}
	return u
}

func (c *collector) stat(pid int) (s stat, err error) {
	if err = c.file("proc/"+strconv.Itoa(pid)+"/stat", maxStat); err != nil {
		return s, err
	}
	return parseStat(c.buf)
}

// use is a process that is there; err is why its stat could not be read.
func (c *collector) use(pid int, w *watched, st stat, err error) Use {
	u := Use{
		PID: pid, StartTicks: w.start, Stage: w.stage, MonoNS: c.clocks.Mono(), WallNS: c.clocks.Wall(), Namespace: w.namespace,
		Unmeasured: map[string]string{},
	}
	w.last = u.MonoNS
	maps.Copy(u.Unmeasured, w.why)
	u.RSSBytes = value(u.Unmeasured, fieldRSS, st.residentPG*c.page, err)
	u.Threads = value(u.Unmeasured, fieldThreads, st.threads, err)
	cpu, clock := c.cpuTime(pid)
	if clock != nil {
		cpu, u.CPUCoarse, clock = int64(st.ownTicks)*tickNS, true, err
	}
	if u.CPUNS = value(u.Unmeasured, fieldCPU, cpu, clock); u.CPUNS == nil {
		u.CPUCoarse = false
	}
	c.pss(&u, w)
	return u
}

const notRead = "not read in this sample: PSS is dear"

// pss reads the shared-out memory where its time has come.
func (c *collector) pss(u *Use, w *watched) {
	begin := c.clocks.Mono()
	if begin < w.pssAt {
		u.Unmeasured[fieldPSS] = notRead
		return
	}
	err := c.file("proc/"+strconv.Itoa(u.PID)+"/smaps_rollup", maxSmaps)
	w.pssAt = begin + max(pssEvery, pssShare*(c.clocks.Mono()-begin))
	v := int64(0)
	if err == nil {
		v, err = parseKB(c.buf, "Pss")
	}
	u.PSSBytes = value(u.Unmeasured, fieldPSS, v, err)
}

// namespace is the number of a process's network namespace.
func (c *collector) namespace(pid string) (string, error) {
	link, err := os.Readlink(c.root.Path("proc/" + pid + "/ns/net"))
	if err != nil {
		return "", err
	}
	var n uint64
	if _, err := fmt.Sscanf(link, "net:[%d]", &n); err != nil {
		return "", fmt.Errorf("%q is no network namespace", link)
	}
	return strconv.FormatUint(n, 10), nil
}

// networks reads omnitap's own namespace, and each other one that a process is in.
func (c *collector) networks() []Network {
	out := []Network{c.network(c.own, true, "proc/net/dev")}
	done := map[string]bool{c.own: true, "": true}
	for pid, w := range c.seen {
		if !w.ended && !done[w.namespace] {
			done[w.namespace] = true
			out = append(out, c.network(w.namespace, false, "proc/"+strconv.Itoa(pid)+"/net/dev"))
		}
	}
	return out
}

func (c *collector) network(namespace string, own bool, file string) Network {
	n := Network{Namespace: namespace, Own: own, Unmeasured: map[string]string{}}
	var t traffic
	err := c.file(file, maxNet)
	if err == nil {
		t, err = parseNet(c.buf)
	}
	n.ReceivedBytes = value(n.Unmeasured, fieldReceived, t.received, err)
	n.SentBytes = value(n.Unmeasured, fieldSent, t.sent, err)
	n.LoopbackBytes = value(n.Unmeasured, fieldLoopback, t.loopback, err)
	return n
}
