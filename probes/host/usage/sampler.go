package usage

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/omnitap/omnitap/probes/host"
)

// DefaultInterval is the time between samples.
const DefaultInterval = time.Second

// Process names a process to watch.
type Process struct {
	PID int
	// StartTicks, its start in clock ticks since boot, tells it from a later one of the
	// same number; 0 takes who has the number at the first sample, and holds to that.
	StartTicks uint64
	// Stage is what the caller calls it.
	Stage string
}

// Config says what to sample. Processes and Sink are needed.
type Config struct {
	// Processes is asked before each sample, since stages come and go. More than 512
	// are counted and not looked at.
	Processes func() []Process
	// Sink gets each sample, in order, from the goroutine that runs Run. It may keep it.
	Sink func(*Sample)
	// Interval is the time between samples, at least 100 ms. Default 1 s.
	Interval time.Duration
	// Root is where the files of /proc lie; Clocks are the clocks. Tests set them.
	Root   host.Root
	Clocks host.Clocks
}

// Status is what the sampling costs.
type Status struct {
	IntervalNS int64 `json:"interval_ns"`
	Samples    int64 `json:"samples"`
	// Overruns are samples that took longer than the interval.
	Overruns int64 `json:"overruns"`
	// TookNS is how long samples took in all, TookMaxNS the longest; CPUNS the CPU time
	// in them, nil where threads have no clock.
	TookNS    int64  `json:"took_ns"`
	TookMaxNS int64  `json:"took_max_ns"`
	CPUNS     *int64 `json:"cpu_ns"`
	// Left are the processes over the bound at the last sample.
	Left int `json:"left"`
}

// Sampler samples until its context ends.
type Sampler struct {
	config Config
	read   *collector
	mu     sync.Mutex // protects status
	status Status
}

// New checks a configuration. It starts nothing.
func New(c Config) (*Sampler, error) {
	if c.Processes == nil || c.Sink == nil {
		return nil, errors.New("usage: Processes and Sink are needed")
	}
	if c.Interval == 0 {
		c.Interval = DefaultInterval
	}
	if c.Interval < 100*time.Millisecond {
		return nil, fmt.Errorf("usage: an interval must be at least 100ms, not %v", c.Interval)
	}
	if c.Clocks.Mono == nil || c.Clocks.Wall == nil {
		c.Clocks = host.SystemClocks()
	}
	return &Sampler{config: c, read: newCollector(c.Root, c.Clocks), status: Status{IntervalNS: int64(c.Interval)}}, nil
}

// Run takes a sample at once, one at each interval, and a last one when the context ends.
func (s *Sampler) Run(ctx context.Context) {
	runtime.LockOSThread() // the cost of a sample is its thread's
	defer runtime.UnlockOSThread()
	ticker := time.NewTicker(s.config.Interval)
	defer ticker.Stop()
	s.sample()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-ticker.C:
		}
		s.sample()
	}
}

func (s *Sampler) sample() {
	out := s.read.sample(s.config.Processes())
	s.mu.Lock()
	t := &s.status
	t.Samples++
	t.TookNS += out.TookNS
	t.TookMaxNS = max(t.TookMaxNS, out.TookNS)
	t.Left = out.Left
	if out.TookNS > t.IntervalNS {
		t.Overruns++
	}
	if out.CPUNS != nil {
		if t.CPUNS == nil {
			t.CPUNS = new(int64(0))
		}
		*t.CPUNS += *out.CPUNS
	}
	s.mu.Unlock()
	s.config.Sink(out)
}

// Status returns what it cost so far. The caller may keep it.
func (s *Sampler) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.status
	if out.CPUNS != nil {
		out.CPUNS = new(*out.CPUNS)
	}
	return out
}
