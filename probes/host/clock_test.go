package host

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// made are clocks that the test sets. Each reading takes cost.
type made struct{ now, wall, slept, cost int64 }

func (m *made) clocks() Clocks {
	tick := func() int64 { m.now += m.cost; return m.now }
	return Clocks{
		Mono: tick,
		Wall: func() int64 { return tick() + m.wall },
		Boot: func() int64 { return m.now + m.slept },
	}
}

func TestReading(t *testing.T) {
	m := &made{now: 1000, wall: 5e9, slept: 77, cost: 10}
	got := m.clocks().Reading()
	if want := (Reading{MonoNS: 1020, WallNS: 5e9 + 1020, OffsetNS: 5e9, UncertaintyNS: 10, SleptNS: 77}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	// One of the tries is not interrupted.
	n := 0
	c := m.clocks()
	slow := c.Mono
	c.Mono = func() int64 {
		if n++; n != 6 { // the second reading of the third try
			m.now += 1e6
		}
		return slow()
	}
	if got := c.Reading(); got.UncertaintyNS != 10 || got.OffsetNS != 5e9 {
		t.Errorf("the tightest is %+v", got)
	}
}

func TestSteps(t *testing.T) {
	m := &made{now: 1e9, wall: 1e18, cost: 30}
	c := NewClock(m.clocks())
	check := func(name string, want int64) {
		t.Helper()
		m.now += 1e9
		step := c.Check()
		switch {
		case step == nil && want != 0:
			t.Errorf("%s: no step, want %d", name, want)
		case step != nil && (step.StepNS < want-step.UncertaintyNS || step.StepNS > want+step.UncertaintyNS || want == 0):
			t.Errorf("%s: %+v, want %d", name, step, want)
		case step != nil && (step.ByNS-step.AfterNS < 1e9 || step.ByNS > m.now):
			t.Errorf("%s: from %d to %d, it is %d", name, step.AfterNS, step.ByNS, m.now)
		}
	}
	check("nothing", 0)
	m.wall += 3600e9
	check("an hour forward", 3600e9)
	check("it stays", 0)
	m.wall -= 1000
	check("a microsecond back", -1000)
	m.wall += 40
	check("less than can be told", 0)
	m.wall += 5e9
	m.wall -= 5e9
	check("two that cancel out", 0)
	r := c.Report()
	if r.StepCount != 2 || len(r.Steps) != 2 || r.Checks != 7 || r.Last.OffsetNS-r.Start.OffsetNS != 3600e9-1000+40 || r.SleptNS != 0 {
		t.Errorf("%+v", r)
	}
	r.Steps[0].StepNS = 0
	if c.Report().Steps[0].StepNS == 0 {
		t.Error("the report is not the caller's")
	}
}

func TestStepsAreBounded(t *testing.T) {
	m := &made{cost: 1}
	c := NewClock(m.clocks())
	for range maxSteps + 10 {
		m.wall += 1e9
		c.Check()
	}
	if r := c.Report(); r.StepCount != maxSteps+10 || len(r.Steps) != maxSteps || r.Steps[0].StepNS != 1e9 {
		t.Errorf("%d steps, %d kept", r.StepCount, len(r.Steps))
	}
}

// A resume moves the wall clock and the boot clock alike; the monotonic one stood still.
func TestSleep(t *testing.T) {
	m := &made{cost: 1, slept: 3e9}
	c := NewClock(m.clocks())
	m.now += 1e9
	m.slept += 1e6 // the three clocks are not read at once
	if c.Check(); c.Report().SleptNS != 0 {
		t.Errorf("slept %d", c.Report().SleptNS)
	}
	m.slept, m.wall = 3e9+600e9, m.wall+600e9
	step := c.Check()
	if r := c.Report(); r.SleptNS != 600e9 || step == nil || step.StepNS != 600e9 {
		t.Errorf("%+v, step %+v", r, step)
	}
}

func TestClockRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &made{cost: 1}
		clocks := m.clocks()
		start := time.Now()
		inner := clocks.Wall
		clocks.Wall = func() int64 { // steps at 2.5 s, and again at 4.2 s
			wall := inner()
			if time.Since(start) >= 2500*time.Millisecond {
				wall += 7e9
			}
			if time.Since(start) >= 4200*time.Millisecond {
				wall -= 2e9
			}
			return wall
		}
		c := NewClock(clocks)
		ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer cancel()
		var at []string
		c.Run(ctx, time.Second, func(s Step) {
			at = append(at, time.Since(start).String()+" "+time.Duration(s.StepNS).Round(time.Second).String())
		})
		if diff := cmp.Diff([]string{"3s 7s", "4.5s -2s"}, at); diff != "" {
			t.Error(diff)
		}
		if n := c.Report().Checks; n != 6 {
			t.Errorf("%d checks", n)
		}
		c.Run(ctx, time.Second, nil)
	})
}

// The machine's own clocks: the offset is what it is, however often it is read.
func TestSystemClocks(t *testing.T) {
	c := NewClock(Clocks{})
	for range 1000 {
		if s := c.Check(); s != nil {
			t.Fatalf("a step of %d ± %d ns; does somebody set the clock?", s.StepNS, s.UncertaintyNS)
		}
	}
	r := c.Report()
	if d := time.Now().UnixNano() - r.Last.WallNS; d < 0 || d > int64(time.Minute) {
		t.Errorf("the wall clock is %d ns off", d)
	}
	if r.Last.MonoNS <= r.Start.MonoNS || r.Start.SleptNS < 0 || r.Last.UncertaintyNS > int64(time.Millisecond) {
		t.Errorf("%+v", r)
	}
}

func BenchmarkCheck(b *testing.B) {
	c := NewClock(Clocks{})
	for b.Loop() {
		c.Check()
	}
}
