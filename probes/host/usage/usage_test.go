package usage

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/omnitap/omnitap/probes/host"
	"github.com/omnitap/omnitap/probes/host/internal/hosttest"
)

func statLine(pid int, state string, start uint64) string {
	return fmt.Sprintf("%d (a) S) b) %s 1 1 1 0 -1 4194560 0 0 0 0 150 50 0 0 20 0 7 0 %d 999424 300 18446744073709551615 1 1 0", pid, state, start)
}

func tree(t *testing.T) *hosttest.Tree {
	t.Helper()
	f := hosttest.New(t)
	f.Write("proc/stat", "cpu  100 5 50 1000 20 3 2 1 0 0\ncpu0 1 2 3 4\n")
	f.Write("proc/meminfo", "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    400 kB\n")
	const titles = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n"
	f.Write("proc/net/dev", titles+"    lo: 500 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n  eth0: 70 1 0 0 0 0 0 0 30 1 0 0 0 0 0 0\neth1:7 1 0 0 0 0 0 0 3 1 0 0 0 0 0 0\n")
	f.Link("net:[1]", "proc/self/ns/net")
	f.Write("proc/10/stat", statLine(10, "S", 1000))
	f.Write("proc/10/smaps_rollup", "7f-7f ---p [rollup]\nRss:  1200 kB\nPss:   640 kB\nPss_Anon: 5 kB\n")
	f.Link("net:[1]", "proc/10/ns/net")
	f.Write("proc/11/stat", statLine(11, "R", 1100))
	f.Link("net:[2]", "proc/11/ns/net")
	f.Write("proc/11/net/dev", titles+"  eth0: 9 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n")
	return f
}

// ticking is a clock that a test sets.
func ticking(now *int64) host.Clocks {
	read := func() int64 { return *now }
	return host.Clocks{Mono: read, Wall: read, Boot: read}
}

func holds(t *testing.T, s *Sample) {
	t.Helper()
	check := func(what string, why map[string]string, values map[string]bool) {
		t.Helper()
		for name, there := range values {
			if there == (why[name] != "") {
				t.Errorf("%s: %s is there: %v, with the reason %q", what, name, there, why[name])
			}
		}
	}
	m := s.Machine
	check("machine", m.Unmeasured, map[string]bool{fieldBusy: m.BusyNS != nil, fieldIdle: m.IdleNS != nil, fieldTotal: m.MemoryTotalBytes != nil, fieldAvailable: m.MemoryAvailableBytes != nil})
	for _, n := range s.Networks {
		check("network "+n.Namespace, n.Unmeasured, map[string]bool{fieldReceived: n.ReceivedBytes != nil, fieldSent: n.SentBytes != nil, fieldLoopback: n.LoopbackBytes != nil})
	}
	for _, u := range s.Processes {
		check(fmt.Sprint("process ", u.PID), u.Unmeasured, map[string]bool{
			fieldCPU: u.CPUNS != nil, fieldRSS: u.RSSBytes != nil, fieldPSS: u.PSSBytes != nil, fieldThreads: u.Threads != nil, fieldNamespace: u.Namespace != "",
		})
	}
}

func TestSample(t *testing.T) {
	now := int64(5e9)
	c := newCollector(tree(t).Root(), ticking(&now))
	s := c.sample([]Process{{10, 1000, "thinker"}, {11, 0, "talker"}, {10, 1000, "thinker"}})
	holds(t, s)
	if m := s.Machine; *m.BusyNS != 161*tickNS || *m.IdleNS != 1020*tickNS || *m.MemoryTotalBytes != 1000<<10 || *m.MemoryAvailableBytes != 400<<10 {
		t.Errorf("%+v", m)
	}
	if len(s.Processes) != 2 || len(s.Networks) != 2 {
		t.Fatalf("%+v", s)
	}
	if u := s.Processes[0]; *u.CPUNS != 200*tickNS || !u.CPUCoarse || *u.RSSBytes != 300*int64(os.Getpagesize()) || *u.PSSBytes != 640<<10 || *u.Threads != 7 ||
		u.Stage != "thinker" || u.Namespace != "1" || u.MonoNS != 5e9 {
		t.Errorf("%+v", u)
	}
	if u := s.Processes[1]; u.PSSBytes != nil || u.StartTicks != 1100 || u.Namespace != "2" {
		t.Errorf("%+v", u)
	}
	if n := s.Networks[0]; !n.Own || n.Namespace != "1" || *n.ReceivedBytes != 77 || *n.SentBytes != 33 || *n.LoopbackBytes != 500 {
		t.Errorf("%+v", n)
	}
	if n := s.Networks[1]; n.Own || n.Namespace != "2" || *n.ReceivedBytes != 9 || *n.SentBytes != 8 || *n.LoopbackBytes != 0 {
		t.Errorf("%+v", n)
	}
	// PSS is not read again before its time.
	now += 9e9
	if s = c.sample([]Process{{10, 1000, "thinker"}}); s.Processes[0].PSSBytes != nil || s.Processes[0].Unmeasured[fieldPSS] != notRead {
		t.Errorf("%+v", s.Processes[0])
	}
	now += 1e9
	if s = c.sample([]Process{{10, 1000, "thinker"}}); s.Processes[0].PSSBytes == nil {
		t.Errorf("%+v", s.Processes[0])
	}
}

// A reading that takes long makes the next one rarer: a hundredth of a core at most.
func TestPSSIsBounded(t *testing.T) {
	now, step := int64(0), int64(0)
	clocks := ticking(&now)
	clocks.Mono = func() int64 { now += step; return now }
	c := newCollector(tree(t).Root(), clocks)
	w := &watched{}
	step = 500e6 // a reading takes half a second
	c.pss(&Use{PID: 10, Unmeasured: map[string]string{}}, w)
	if w.pssAt < 50e9 {
		t.Errorf("read again at %d", w.pssAt)
	}
}

// What ended has a last sample with a reason, once; a pid that another process has is not
// taken for it.
func TestEnd(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*hosttest.Tree)
		named  []Process
		says   string
		after  int // samples of the process later
		cpu    bool
	}{
		"gone":        {change: func(f *hosttest.Tree) { _ = os.RemoveAll(f.Path("proc/10")) }, named: []Process{{10, 1000, "s"}}, says: "the process ended, after 7"},
		"reused":      {change: func(f *hosttest.Tree) { f.Write("proc/10/stat", statLine(10, "S", 2000)) }, named: []Process{{10, 1000, "s"}}, says: "another one has its number by now, after 7"},
		"not named":   {named: nil, says: "it is not watched any more, after 7"},
		"zombie":      {change: func(f *hosttest.Tree) { f.Write("proc/10/stat", statLine(10, "Z", 1000)) }, named: []Process{{10, 1000, "s"}}, says: "its parent has not waited", cpu: true},
		"replaced":    {change: func(f *hosttest.Tree) { f.Write("proc/10/stat", statLine(10, "S", 2000)) }, named: []Process{{10, 2000, "s"}}, says: "another process has its number by now, after 7", after: 1},
		"reused, 0":   {change: func(f *hosttest.Tree) { f.Write("proc/10/stat", statLine(10, "S", 2000)) }, named: []Process{{10, 0, "s"}}, says: "another one has its number by now, after 7"},
		"never there": {named: []Process{{10, 1000, "s"}, {99, 5, "x"}}, says: "the process ended", after: 1},
	} {
		t.Run(name, func(t *testing.T) {
			f, now := tree(t), int64(7)
			col := newCollector(f.Root(), ticking(&now))
			start := uint64(1000)
			if name == "reused, 0" {
				start = 0
			}
			if s := col.sample([]Process{{10, start, "s"}}); len(s.Processes) != 1 || s.Processes[0].Ended != "" {
				t.Fatalf("%+v", s.Processes)
			}
			if c.change != nil {
				c.change(f)
			}
			now = 8
			s := col.sample(c.named)
			holds(t, s)
			ended := 0
			for _, u := range s.Processes {
				if u.Ended == "" {
					continue
				}
				ended++
				if !strings.Contains(u.Ended, c.says) || u.RSSBytes != nil || (u.CPUNS != nil) != c.cpu || u.MonoNS != 8 {
					t.Errorf("%+v", u)
				}
			}
			if ended != 1 {
				t.Errorf("%d ended: %+v", ended, s.Processes)
			}
			if s = col.sample(c.named); len(s.Processes) != c.after {
				t.Errorf("told again: %+v", s.Processes)
			}
		})
	}
}

// What cannot be read is null with the reason.
func TestUnreadable(t *testing.T) {
	f, now := hosttest.New(t), int64(1)
	f.Write("proc/10/stat", "10 (x) S 1")
	f.Write("proc/net/dev", "eth0: 1 2\n")
	f.Write("proc/stat", "intr 5\n")
	f.Write("proc/meminfo", "MemTotal: many kB\n")
	s := newCollector(f.Root(), ticking(&now)).sample([]Process{{10, 5, "s"}})
	holds(t, s)
	if len(s.Processes) != 1 || s.Processes[0].Ended != "" || s.Processes[0].RSSBytes != nil || s.Machine.BusyNS != nil || s.Networks[0].SentBytes != nil {
		t.Errorf("%+v", s)
	}
	many := make([]Process, maxProcesses+3)
	for i := range many {
		many[i] = Process{PID: i + 1, StartTicks: 1}
	}
	if s = newCollector(f.Root(), ticking(&now)).sample(many); s.Left != 3 || len(s.Processes) != maxProcesses {
		t.Errorf("%d processes, %d left", len(s.Processes), s.Left)
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []*Sample
		s, err := New(Config{
			Processes: func() []Process { return []Process{{10, 1000, "s"}} }, Sink: func(s *Sample) { got = append(got, s) }, Root: tree(t).Root(),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		time.Sleep(2500 * time.Millisecond)
		cancel()
		<-done
		if st := s.Status(); len(got) != 4 || st.Samples != 4 || st.IntervalNS != 1e9 || st.TookNS <= 0 || (runtime.GOOS == "linux" && *st.CPUNS <= 0) {
			t.Errorf("%d samples, %+v", len(got), st)
		}
	})
	if _, err := New(Config{}); err == nil {
		t.Error("nothing given")
	}
	if _, err := New(Config{Processes: func() []Process { return nil }, Sink: func(*Sample) {}, Interval: 1}); err == nil {
		t.Error("1 ns")
	}
}
