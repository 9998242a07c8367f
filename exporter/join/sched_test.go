package join

import (
	"testing"

	"github.com/omnitap/omnitap/probes/event"
)

func switched(at int64, from, to int32, prevState int64) event.Event {
	return event.Event{Probe: event.SchedSwitch, MonoNS: at, Flags: prevState, Args: [5]int64{0, int64(from), int64(from), int64(to), int64(to)}}
}

func woken(at int64, tid int32) event.Event {
	return event.Event{Probe: event.SchedWakeup, MonoNS: at, Args: [5]int64{int64(tid), int64(tid)}}
}

// TestSwitches: run, runnable and blocked of a thread are what its switches say.
func TestSwitches(t *testing.T) {
	const ms = 1_000_000
	j := New(Config{})
	j.Processes(madeProcesses())
	for _, e := range []event.Event{
		switched(10*ms, 0, thinkerPID, 0),    // runs from here
		switched(14*ms, thinkerPID, 0, 1),    // sleeps: 4 ran
		woken(20*ms, thinkerPID),             // 6 blocked
		switched(23*ms, 0, thinkerPID, 0),    // 3 waited
		switched(30*ms, thinkerPID, 9, 0),    // preempted: 7 ran
		switched(32*ms, 9, thinkerPID, 0),    // 2 waited
		woken(33*ms, thinkerPID),             // woken while it runs: nothing
		switched(40*ms, thinkerPID, 0, 0x02), // sleeps: 8 ran
		woken(41*ms, 5),                      // no process of ours
	} {
		j.Add(&e)
	}
	j.Flush(Everything)
	c := &j.procs[thinkerPID].curve
	for _, tt := range []struct {
		from, to int64
		want     *Usage
	}{
		{10 * ms, 40 * ms, &Usage{19 * ms, 5 * ms, 6 * ms, 0}},
		{10 * ms, 30 * ms, &Usage{11 * ms, 3 * ms, 6 * ms, 0}},
		// No sample at the borders: those inside count, and the bound says what more
		// there may be.
		{12 * ms, 35 * ms, &Usage{7 * ms, 5 * ms, 6 * ms, 12 * ms}},
		{5 * ms, 40 * ms, &Usage{19 * ms, 5 * ms, 6 * ms, -1}},
		{10 * ms, 50 * ms, &Usage{19 * ms, 5 * ms, 6 * ms, -1}},
		{15 * ms, 19 * ms, nil},
		{50 * ms, 60 * ms, nil},
	} {
		got := c.between(tt.from, tt.to)
		if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%d to %d ms: got %+v, want %+v", tt.from/ms, tt.to/ms, got, tt.want)
		}
	}
}

// TestSamples: sums from the kernel are taken as they are; a sum that goes back is no
// usage.
func TestSamples(t *testing.T) {
	const ms = 1_000_000
	j := New(Config{})
	j.Processes(madeProcesses())
	for i := range int64(10) {
		j.Add(&event.Event{Probe: event.SchedSample, PID: talkerPID, MonoNS: (10 + 10*i) * ms, Args: [5]int64{i * 3 * ms, i * ms, i * 6 * ms}})
	}
	j.Add(&event.Event{Probe: event.SchedSample, PID: talkerPID, MonoNS: 200 * ms})
	j.Flush(Everything)
	c := &j.procs[talkerPID].curve
	if got, want := c.between(15*ms, 55*ms), (Usage{9 * ms, 3 * ms, 18 * ms, 6 * ms}); got == nil || *got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := c.between(50*ms, 250*ms); got != nil {
		t.Errorf("over a new start: %+v", got)
	}
}

// TestCurveBounded: points stay within their bound, and the sums right.
func TestCurveBounded(t *testing.T) {
	c := curve{limit: 64}
	for i := range int64(100_000) {
		c.add(cpuPoint{at: i * 700_000, run: i * 500_000})
		if len(c.points) > c.limit {
			t.Fatalf("%d points", len(c.points))
		}
	}
	last := c.points[len(c.points)-1].at
	u := c.between(last-300_000_000, last)
	if u == nil || u.BoundNS < 0 || u.RunNS < 150_000_000 || u.RunNS+u.BoundNS > 230_000_000 {
		t.Errorf("usage %+v", u)
	}
}
