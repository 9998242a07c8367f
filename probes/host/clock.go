package host

import (
	"context"
	"sync"
	"time"
)

// Clocks reads the clocks of the node, nanoseconds: CLOCK_REALTIME, CLOCK_MONOTONIC and
// CLOCK_BOOTTIME (the monotonic clock with the time that the machine slept).
type Clocks struct {
	Wall, Mono, Boot func() int64
}

// Reading is one comparison of the clocks. The true offset lies in OffsetNS ±
// UncertaintyNS.
type Reading struct {
	// MonoNS and WallNS are the two clocks at one moment.
	MonoNS int64 `json:"mono_ns"`
	WallNS int64 `json:"wall_ns"`
	// OffsetNS is wall minus monotonic, UncertaintyNS half of the time between the two
	// readings of the monotonic clock that the wall clock was read between.
	OffsetNS      int64 `json:"offset_ns"`
	UncertaintyNS int64 `json:"uncertainty_ns"`
	// SleptNS is how long the machine was suspended since it was booted.
	SleptNS int64 `json:"slept_ns"`
}

// Step is one sudden change of the wall clock, seen at ByNS and not there yet at
// AfterNS (CLOCK_MONOTONIC).
type Step struct {
	AfterNS int64 `json:"after_mono_ns"`
	ByNS    int64 `json:"by_mono_ns"`
	// StepNS is by how much the wall clock moved: positive is forward. It is known to
	// UncertaintyNS.
	StepNS        int64 `json:"step_ns"`
	UncertaintyNS int64 `json:"uncertainty_ns"`
}

// ClockReport is what a Clock has seen.
type ClockReport struct {
	Start Reading `json:"start"`
	Last  Reading `json:"last"`
	// Steps are the first 64 steps, StepCount all of them.
	Steps     []Step `json:"steps"`
	StepCount int    `json:"step_count"`
	// SleptNS is how long the machine was suspended since the start.
	SleptNS int64 `json:"slept_ns"`
	Checks  int   `json:"checks"`
}

// Clock notices steps of the wall clock during a run, by its offset from the monotonic
// one. The kernel slews both clocks alike, so that the offset is constant but for steps
// (settimeofday, a leap second, a resume): every change beyond the uncertainty of the
// two readings is one. Two steps between checks count as one, and two that cancel out
// as none. Its methods may be called concurrently.
type Clock struct {
	clocks Clocks
	mu     sync.Mutex // protects report
	report ClockReport
}

const (
	maxSteps = 64
	// readings is how many are taken, to keep the tightest.
	readings = 5
	// slack is for the whole nanoseconds that clocks are read in.
	slack = 4
	// leastSleep is the least sleep that is told: the two clocks are not read at once.
	leastSleep = int64(10 * time.Millisecond)
)

// NewClock starts to watch. The clocks are the system's where they are nil.
func NewClock(clocks Clocks) *Clock {
	if clocks.Wall == nil || clocks.Mono == nil || clocks.Boot == nil {
		clocks = SystemClocks()
	}
	c := &Clock{clocks: clocks}
	first := clocks.Reading()
	c.report = ClockReport{Start: first, Last: first, Checks: 1}
	return c
}

// Reading compares the clocks: the tightest of a few tries, since any of them may be
// interrupted.
func (c Clocks) Reading() Reading {
	var best Reading
	for i := range readings {
		before, wall, after := c.Mono(), c.Wall(), c.Mono()
		half := (after - before + 1) / 2
		if i > 0 && half >= best.UncertaintyNS {
			continue
		}
		mono := before + (after-before)/2
		best = Reading{MonoNS: mono, WallNS: wall, OffsetNS: wall - mono, UncertaintyNS: half, SleptNS: c.Boot() - after}
	}
	return best
}

// Check compares the clocks and returns the step since the last check, or nil.
func (c *Clock) Check() *Step {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.report
	last, now := r.Last, c.clocks.Reading()
	r.Last = now
	r.Checks++
	if slept := now.SleptNS - r.Start.SleptNS; slept >= leastSleep {
		r.SleptNS = slept
	}
	moved, unsure := now.OffsetNS-last.OffsetNS, now.UncertaintyNS+last.UncertaintyNS+slack
	if -unsure <= moved && moved <= unsure {
		return nil
	}
	step := Step{AfterNS: last.MonoNS, ByNS: now.MonoNS, StepNS: moved, UncertaintyNS: unsure}
	r.StepCount++
	if len(r.Steps) < maxSteps {
		r.Steps = append(r.Steps, step)
	}
	return &step
}

// Run checks at every interval until the context ends, and once more then. It calls use
// (which may be nil) for each step.
func (c *Clock) Run(ctx context.Context, every time.Duration, use func(Step)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-ticker.C:
		}
		if step := c.Check(); step != nil && use != nil {
			use(*step)
		}
	}
}

// Report is what has been seen so far. The caller may keep it.
func (c *Clock) Report() ClockReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.report
	out.Steps = append([]Step{}, out.Steps...)
	return out
}
