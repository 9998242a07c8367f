package foreign

import (
	"math"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/probes/host"
)

const second = int64(1e9)

// machine is two samples of n CPUs, a second apart, that the tests change.
type machine struct{ before, after *sample }

func newMachine(n int) machine {
	m := machine{&sample{mono: 10 * second, boot: 110 * second}, &sample{mono: 11 * second, boot: 111 * second}}
	for _, s := range []*sample{m.before, m.after} {
		s.procs, s.cpus = map[int]process{}, map[int]cpuTimes{}
		for i := range n {
			s.online = append(s.online, i)
			s.cpus[i] = cpuTimes{}
		}
		s.may[server] = s.online
		s.may[omnitap] = s.online
		s.may[load] = s.online
	}
	m.idle(1)
	return m
}

// idle sets how much of the second each CPU was idle.
func (m machine) idle(part ...float64) {
	m.after.all = cpuTimes{}
	for i := range m.after.online {
		idle := uint64(100 * part[min(i, len(part)-1)])
		m.after.cpus[i] = cpuTimes{idle: idle}
		m.after.all.idle += idle
	}
}

func (m machine) window() Window { return between(m.before, m.after, second) }

func near(t *testing.T, name string, got *float64, want float64) {
	t.Helper()
	if got == nil || math.Abs(*got-want) > 1e-9 {
		t.Errorf("%s is %v, want %v", name, show(got), want)
	}
}

func show(v *float64) any {
	if v == nil {
		return "null"
	}
	return *v
}

const (
	old  = uint64(500)   // a start long before
	late = uint64(11050) // a start in the window: boot is 110 s before it
)

func TestForeignIsTheRest(t *testing.T) {
	m := newMachine(4)
	m.idle(0, 0, 0.5, 1) // 2.5 cores busy
	m.before.procs[1] = process{start: old, group: server, own: 5 * second}
	m.after.procs[1] = process{start: old, group: server, own: 5*second + second/2}
	m.before.procs[2] = process{start: old, group: omnitap, own: second}
	m.after.procs[2] = process{start: old, group: omnitap, own: second + second/4}
	m.before.procs[3] = process{start: old, group: load}
	m.after.procs[3] = process{start: old, group: load, own: second}
	m.after.all.irq, m.after.all.softirq, m.after.all.steal = 2, 3, 5
	w := m.window()
	near(t, "busy", w.BusyCores, 2.5)
	near(t, "irq", w.IRQCores, 0.05)
	near(t, "steal", w.StealCores, 0.05)
	near(t, "server", w.ServerCores, 0.5)
	near(t, "omnitap", w.OmnitapCores, 0.25)
	near(t, "load", w.LoadCores, 1)
	near(t, "foreign", w.ForeignCores, 2.5-0.1-1.75)
	if *w.ForeignLowCores >= *w.ForeignCores || *w.ForeignHighCores <= *w.ForeignCores+0.1 {
		t.Errorf("from %v to %v: interrupts and stolen time may be in the processes' own", *w.ForeignLowCores, *w.ForeignHighCores)
	}
	if w.CPUSet != "0-3" || w.CPUs != 4 || w.Processes != 3 || w.Ended != 0 || len(w.Unmeasured) != 0 || len(w.Notes) != 0 {
		t.Errorf("%+v", w)
	}
}

// Children: each case has 1 core busy, and says how much of it is the server's.
func TestProcessesThatComeAndGo(t *testing.T) {
	parent := process{start: old, ppid: 1, group: server, own: second, reaped: 7 * second}
	grown := func(reaped int64) process { p := parent; p.reaped += reaped; return p }
	for _, test := range []struct {
		name          string
		before, after map[int]process
		want          float64
		ended         int
	}{
		{
			"born in the window: all its time",
			map[int]process{10: parent},
			map[int]process{10: parent, 11: {start: late, ppid: 10, group: server, own: second / 4, reaped: second / 8}},
			0.375, 0,
		},
		{
			"found late: only what is seen from then on",
			map[int]process{10: parent},
			map[int]process{10: parent, 11: {start: old, ppid: 10, group: server, own: 900 * second, reaped: 3 * second}},
			0, 0,
		},
		{
			"born and reaped in the window",
			map[int]process{10: parent},
			map[int]process{10: grown(second / 2)},
			0.5, 0,
		},
		{
			"reaped: what was counted before counts once",
			map[int]process{10: parent, 11: {start: old, ppid: 10, group: server, own: 60 * second, reaped: 4 * second}},
			map[int]process{10: grown(64*second + second/2)},
			0.5, 1,
		},
		{
			"nobody waited for it: its last slice is lost, and no more",
			map[int]process{10: parent, 11: {start: old, ppid: 10, group: server, own: 60 * second}},
			map[int]process{10: parent},
			0, 1,
		},
		{
			"reaped by its parent, which was reaped itself",
			map[int]process{
				10: parent,
				11: {start: old, ppid: 10, group: server, own: 5 * second, reaped: second},
				12: {start: old, ppid: 11, group: server, own: 3 * second},
			},
			map[int]process{10: grown(9*second + second/2)},
			0.5, 2,
		},
		{
			"reaped by somebody who is not of the group",
			map[int]process{10: parent, 11: {start: old, ppid: 1, group: server, own: 60 * second}},
			map[int]process{10: grown(second / 2)},
			0.5, 1,
		},
		{
			"another process with the number of one that ended",
			map[int]process{10: parent, 11: {start: old, ppid: 10, group: server, own: 60 * second}},
			map[int]process{10: grown(60 * second), 11: {start: late, ppid: 10, group: server, own: second / 5}},
			0.2, 1,
		},
		{
			"a clock that went backwards",
			map[int]process{10: parent},
			map[int]process{10: {start: old, ppid: 1, group: server, own: second / 2, reaped: second}},
			0, 0,
		},
		{
			"a circle of parents",
			map[int]process{11: {start: old, ppid: 12, group: server}, 12: {start: old, ppid: 11, group: server}},
			map[int]process{},
			0, 2,
		},
	} {
		m := newMachine(2)
		m.idle(0, 1)
		m.before.procs, m.after.procs = test.before, test.after
		w := m.window()
		near(t, test.name+": server", w.ServerCores, test.want)
		near(t, test.name+": foreign", w.ForeignCores, 1-test.want)
		if w.Ended != test.ended {
			t.Errorf("%s: %d ended, want %d", test.name, w.Ended, test.ended)
		}
	}
}

// The server has CPUs 0 and 1 of 4. What others do on 2 and 3 is nobody's business.
func TestCPUSets(t *testing.T) {
	for _, test := range []struct {
		name            string
		may             host.CPUs
		used            int64
		best, low, high float64
		notes           int
	}{
		{"omnitap inside", host.CPUs{1}, second / 2, 0.5, 0.5, 0.5, 0},
		{"omnitap elsewhere", host.CPUs{2, 3}, second / 2, 1, 1, 1, 0},
		{"omnitap anywhere", host.CPUs{0, 1, 2, 3}, second / 2, 0.75, 0.5, 1, 1},
		{"omnitap on CPUs that are not there", host.CPUs{1, 77}, second / 2, 0.5, 0.5, 0.5, 0},
		{"omnitap nobody knows where", nil, second / 2, 1, 0.5, 1, 1},
		{"omnitap idle", host.CPUs{0, 1, 2, 3}, 0, 1, 1, 1, 0},
	} {
		m := newMachine(4)
		m.idle(0, 1, 0, 0)
		for _, s := range []*sample{m.before, m.after} {
			s.may[server], s.may[omnitap] = host.CPUs{0, 1}, test.may
		}
		m.before.procs[9] = process{start: old, group: omnitap}
		m.after.procs[9] = process{start: old, group: omnitap, own: test.used}
		w := m.window()
		near(t, test.name+": busy", w.BusyCores, 1)
		near(t, test.name, w.ForeignCores, test.best)
		unsure := 3 * 0.01 * math.Sqrt(3.0/6) // one moved column, two CPUs
		near(t, test.name+": low", w.ForeignLowCores, test.low-unsure)
		near(t, test.name+": high", w.ForeignHighCores, test.high+unsure)
		if len(w.Notes) != test.notes || w.CPUSet != "0-1" {
			t.Errorf("%s: %q on %s", test.name, w.Notes, w.CPUSet)
		}
	}
}

func TestUncertaintyGrows(t *testing.T) {
	wide := func(change func(machine)) float64 {
		m := newMachine(2)
		m.idle(0, 1)
		m.before.procs[1] = process{start: old, group: server}
		m.after.procs[1] = process{start: old, group: server, own: second / 2}
		change(m)
		w := m.window()
		return *w.ForeignHighCores - *w.ForeignLowCores
	}
	plain := wide(func(machine) {})
	for name, change := range map[string]func(machine){
		"a sample that took long": func(m machine) { m.after.took = second / 10 },
		"a clock of ticks":        func(m machine) { m.after.procs[1] = process{start: old, group: server, own: second / 2, coarse: true} },
		"a reaped child":          func(m machine) { m.after.procs[1] = process{start: old, group: server, own: second / 2, reaped: 1e7} },
	} {
		if got := wide(change); got <= plain {
			t.Errorf("%s: %v wide, without it %v", name, got, plain)
		}
	}
}

// What cannot be measured is null with a reason, never 0.
func TestUnmeasured(t *testing.T) {
	all := []string{"busy_cores", "server_cores", "foreign_cores", "foreign_low_cores", "foreign_high_cores", "load_cores"}
	for _, test := range []struct {
		name   string
		change func(machine)
		reason string
		nulls  []string
	}{
		{"no time between", func(m machine) { m.after.mono = m.before.mono }, "clock", all},
		{"time backwards", func(m machine) { m.after.mono = 1 }, "clock", all},
		{"not read", func(m machine) { m.after.missing = "denied" }, "denied", all},
		{"not read before", func(m machine) { m.before.missing = "denied" }, "denied", all},
		{"no server", func(m machine) { m.before.may[server], m.after.may[server] = nil, nil }, "no process of the server", all},
		{"a CPU set that is off", func(m machine) { m.before.may[server], m.after.may[server] = host.CPUs{8}, host.CPUs{8} }, "no process of the server", all},
		{"idle backwards", func(m machine) { m.before.all.idle = 1000 }, "backwards", all},
		{"steal backwards", func(m machine) { m.before.all.steal = 1 }, "backwards", all},
		{"more idle than time", func(m machine) { m.idle(1.5) }, "not this machine's", all[2:5]},
		{"more own than busy", func(m machine) {
			m.before.procs[1] = process{start: old, group: server}
			m.after.procs[1] = process{start: old, group: server, own: second}
		}, "ran elsewhere", all[2:5]},
	} {
		m := newMachine(2)
		test.change(m)
		w := m.window()
		for _, name := range test.nulls {
			if !strings.Contains(w.Unmeasured[name], test.reason) {
				t.Errorf("%s: %s is unmeasured for %q, want %q", test.name, name, w.Unmeasured[name], test.reason)
			}
		}
		if w.ForeignCores != nil || w.ForeignLowCores != nil || w.ForeignHighCores != nil {
			t.Errorf("%s: %v cores", test.name, show(w.ForeignCores))
		}
		if has := w.ServerCores != nil; has != (len(test.nulls) == 3) {
			t.Errorf("%s: server %v", test.name, show(w.ServerCores))
		}
	}
}

// Rounding of the tables makes no negative time, and no window of its own unmeasured.
func TestRoundingIsNotBelowZero(t *testing.T) {
	m := newMachine(2)
	m.idle(1, 0.98)
	m.before.procs[1] = process{start: old, group: server}
	m.after.procs[1] = process{start: old, group: server, own: 3e7}
	w := m.window()
	near(t, "foreign", w.ForeignCores, 0)
	near(t, "low", w.ForeignLowCores, 0)
	if w.ForeignHighCores == nil || *w.ForeignHighCores <= 0 {
		t.Errorf("high is %v", show(w.ForeignHighCores))
	}
	m.idle(1.01, 1)
	m.after.procs = m.before.procs
	w = m.window()
	near(t, "busy", w.BusyCores, 0)
	near(t, "foreign of nothing", w.ForeignCores, 0)
}

// A CPU that goes off in the window is not part of it.
func TestHotplug(t *testing.T) {
	m := newMachine(3)
	m.idle(0.5, 0.5, 0)
	m.after.online = m.after.online[:2]
	delete(m.after.cpus, 2)
	w := m.window()
	near(t, "busy", w.BusyCores, 1)
	if w.CPUSet != "0-1" {
		t.Errorf("CPUs %s", w.CPUSet)
	}
}
