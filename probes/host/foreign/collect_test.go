package foreign

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/probes/host"
	"github.com/omnitap/omnitap/probes/host/internal/hosttest"
)

// fixture is a folder of the shape of /proc.
type fixture struct {
	*hosttest.Tree
	t   *testing.T
	now int64
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{hosttest.New(t), t, second}
	f.Write("proc/stat", "cpu  0 0 0 100 0 0 0 0\ncpu0 0 0 0 50 0 0 0 0\ncpu1 0 0 0 50 0 0 0 0\n")
	f.Write("proc/sys/ignored", "")
	f.Write("proc/self/stat", "no process of a number")
	return f
}

// process makes one, with a thread a CPU list.
func (f *fixture) process(pid, ppid int, start uint64, ticks int, threads ...string) {
	f.t.Helper()
	f.Write(fmt.Sprintf("proc/%d/stat", pid), fmt.Sprintf("%d (a b) S %d 1 1 0 -1 0 0 0 0 0 %d %d 7 1 20 0 1 0 %d 0 0\n", pid, ppid, ticks, ticks, start))
	for i, list := range threads {
		f.Write(fmt.Sprintf("proc/%d/task/%d/status", pid, pid+i), "Name:\tx\nCpus_allowed_list:\t"+list+"\n")
	}
}

func (f *fixture) remove(pid int) {
	f.t.Helper()
	if err := os.RemoveAll(filepath.Join(f.Dir, "proc", fmt.Sprint(pid))); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) collector() *collector {
	tick := func() int64 { f.now += 1000; return f.now }
	return newCollector(f.Root(), host.Clocks{Mono: tick, Boot: tick})
}

// brief names whose each process is.
func brief(s *sample) string {
	var out []string
	for pid := range 1000 {
		if p, ok := s.procs[pid]; ok {
			out = append(out, fmt.Sprintf("%d=%d", pid, p.group))
		}
	}
	return strings.Join(out, " ")
}

func TestCollectorFollowsFamilies(t *testing.T) {
	f := newFixture(t)
	f.process(1, 0, 1, 0, "0-1")
	f.process(10, 1, 5, 10, "0-1")  // omnitap
	f.process(20, 10, 6, 11, "0")   // its child, the load
	f.process(21, 20, 7, 12, "0")   // the load's child
	f.process(22, 10, 7, 12, "0-1") // another child of omnitap
	f.process(30, 1, 8, 13, "0", "1")
	f.process(31, 30, 9, 14, "1")
	f.process(32, 31, 9, 14, "7") // a CPU that is not there
	f.process(40, 1, 9, 99, "0-1")
	g := Groups{Server: []Process{{PID: 30}, {PID: 99}}, Omnitap: []Process{{PID: 10}}, Load: []Process{{PID: 20}}}
	c := f.collector()
	s := c.sample(g)
	if got, want := brief(s), "10=1 20=2 21=2 22=1 30=0 31=0 32=0"; got != want || s.missing != "" || s.absent != 1 {
		t.Errorf("%s, want %s; missing %q, absent %d", got, want, s.missing, s.absent)
	}
	want := process{start: 9, ppid: 30, group: server, own: 280e6, reaped: 80e6, coarse: true}
	if diff := cmp.Diff(want, s.procs[31], cmp.AllowUnexported(process{})); diff != "" {
		t.Error(diff)
	}
	if got := fmt.Sprint(s.may, s.online, s.cpus[1].idle, s.all.idle); got != "[0-1,7 0-1 0] 0-1 50 100" {
		t.Errorf("%s", got)
	}
	if s.took <= 0 || s.mono <= s.boot {
		t.Errorf("mono %d, boot %d, took %d", s.mono, s.boot, s.took)
	}

	// 31's parent ends and 1 adopts it; 40 is adopted by the server, which nobody sees yet.
	f.process(31, 1, 9, 20, "1")
	f.process(40, 30, 9, 99, "0-1")
	f.remove(21)
	f.process(33, 31, 50, 1, "0")
	if got, want := brief(c.sample(g)), "10=1 20=2 22=1 30=0 31=0 32=0 33=0"; got != want {
		t.Errorf("then %s, want %s", got, want)
	}
	// The number of 33 is another's now; that one is found a sample later.
	f.process(33, 30, 60, 1, "0")
	if got, want := brief(c.sample(g)), "10=1 20=2 22=1 30=0 31=0 32=0"; got != want {
		t.Errorf("then %s, want %s", got, want)
	}
	if got, want := brief(c.sample(g)), "10=1 20=2 22=1 30=0 31=0 32=0 33=0"; got != want {
		t.Errorf("then %s, want %s", got, want)
	}
	for range allEvery {
		s = c.sample(g)
	}
	if got, want := brief(s), "10=1 20=2 22=1 30=0 31=0 32=0 33=0 40=0"; got != want {
		t.Errorf("at last %s, want %s", got, want)
	}
}

func TestCollectorKnowsStarts(t *testing.T) {
	f := newFixture(t)
	f.process(30, 1, 8, 13, "0")
	c := f.collector()
	if got := brief(c.sample(Groups{Server: []Process{{30, 7}}})); got != "" {
		t.Errorf("a later process of the same number: %s", got)
	}
	if got := brief(c.sample(Groups{Server: []Process{{30, 8}}})); got != "30=0" {
		t.Errorf("%s", got)
	}
}

// A server that has ended leaves its CPUs: what others do there is still foreign.
func TestCollectorKeepsCPUsOfTheDead(t *testing.T) {
	f := newFixture(t)
	f.process(30, 1, 8, 13, "0")
	c := f.collector()
	g := Groups{Server: []Process{{PID: 30}}}
	first := c.sample(g)
	f.remove(30)
	for range mayEvery {
		if s := c.sample(g); s.may[server].String() != "0" {
			t.Fatalf("CPUs %q", s.may[server])
		}
	}
	w := between(first, c.sample(g), second)
	if w.Ended != 1 || w.CPUSet != "0" || len(w.Notes) != 1 {
		t.Errorf("%+v", w)
	}
}

func TestCollectorWithoutFiles(t *testing.T) {
	f := newFixture(t)
	f.process(30, 1, 8, 13, "0")
	f.Write("proc/30/stat", "nonsense")
	f.Write("proc/stat", "nonsense")
	c := f.collector()
	if s := c.sample(Groups{Server: []Process{{PID: 30}}}); len(s.procs) != 0 || !strings.Contains(s.missing, "/proc/stat") {
		t.Errorf("%+v", s)
	}
	c.root = host.Root(filepath.Join(f.Dir, "none"))
	if s := c.sample(Groups{}); !strings.Contains(s.missing, "listing the processes") {
		t.Errorf("missing %q", s.missing)
	}
}

func TestPreflight(t *testing.T) {
	f := newFixture(t)
	if err := preflight(f.Root()); err != nil {
		t.Errorf("without mounts: %v", err)
	}
	f.Write("proc/self/mountinfo", "22 27 0:21 / /proc rw - proc proc rw\n")
	if err := preflight(f.Root()); err != nil {
		t.Errorf("a plain /proc: %v", err)
	}
	f.Write("proc/self/mountinfo", "22 27 0:21 / /proc rw - proc proc rw\n23 22 0:44 /proc/stat /proc/stat rw - fuse.lxcfs lxcfs rw\n")
	if err := preflight(f.Root()); err == nil || !strings.Contains(err.Error(), "lxcfs") {
		t.Errorf("lxcfs: %v", err)
	}
}
