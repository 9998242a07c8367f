package foreign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/omnitap/omnitap/probes/host"
)

// DefaultWindow is how long a window is.
const DefaultWindow = time.Second

// leastNS is the shortest rest of a run that is a window: the tables count in ticks.
const leastNS = 2 * tickNS

// Process names a process. StartTicks, its start in clock ticks since boot, tells it
// from a later one of the same number; 0 takes whoever has the number.
type Process struct {
	PID        int
	StartTicks uint64
}

// Groups are the processes whose time is not foreign. Their descendants need not be
// named; of two named ancestors the nearer one counts.
type Groups struct {
	// Server are the processes of the server, Load those of the load generator.
	Server, Load []Process
	// Omnitap is omnitap itself. Nil is this process.
	Omnitap []Process
}

// Config says what to measure. Groups and Sink are needed.
type Config struct {
	// Groups is asked before each sample, since stages come and go.
	Groups func() Groups
	// Sink gets each window, in order, from the goroutine that runs Run.
	Sink func(Window)
	// Window is how long a window is, at least 100 ms. Default 1 s.
	Window time.Duration
	// Root is where the files of /proc lie; Clocks are the clocks. Tests set them.
	Root   host.Root
	Clocks host.Clocks
}

// Sampler measures windows until its context ends.
type Sampler struct {
	config Config
	read   func(Groups) *sample
	mu     sync.Mutex // protects sum
	sum    Summary
}

// New checks a configuration. It reads and starts nothing.
func New(c Config) (*Sampler, error) {
	if c.Groups == nil || c.Sink == nil {
		return nil, errors.New("foreign: Groups and Sink are needed")
	}
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.Window < 100*time.Millisecond {
		return nil, fmt.Errorf("foreign: a window must be at least 100ms, not %v: the times of the kernel are counted in 10 ms", c.Window)
	}
	if c.Clocks.Mono == nil {
		c.Clocks = host.SystemClocks()
	}
	return &Sampler{config: c, read: newCollector(c.Root, c.Clocks).sample}, nil
}

// Run takes a sample at once, one at the end of each window and a last one when the
// context ends. It returns an error only where the machine cannot be measured at all;
// the summary then says so, too.
func (s *Sampler) Run(ctx context.Context) error {
	if err := preflight(s.config.Root); err != nil {
		s.mu.Lock()
		s.sum.Reason = err.Error()
		s.mu.Unlock()
		return fmt.Errorf("foreign CPU use: %w", err)
	}
	ticker := time.NewTicker(s.config.Window)
	defer ticker.Stop()
	last := s.read(s.config.Groups())
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-ticker.C:
		}
		next := s.read(s.config.Groups())
		if ended && next.mono-last.mono < leastNS {
			break
		}
		s.use(between(last, next, int64(s.config.Window)))
		last = next
	}
	return nil
}

func (s *Sampler) use(w Window) {
	s.mu.Lock()
	s.sum.add(&w)
	s.mu.Unlock()
	s.config.Sink(w)
}

// Summary is what was measured so far. It may be called while Run runs.
func (s *Sampler) Summary() Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sum.copy()
}

// named are the processes that the caller named. Where one is in two groups, the server
// comes first.
func (g Groups) named() map[int]member {
	own := g.Omnitap
	if own == nil {
		own = []Process{{PID: os.Getpid()}}
	}
	out := map[int]member{}
	for of, list := range [groups][]Process{load: g.Load, omnitap: own, server: g.Server} {
		for _, p := range list {
			if m, ok := out[p.PID]; p.PID > 0 && (!ok || group(of) < m.group) {
				out[p.PID] = member{p.StartTicks, group(of)}
			}
		}
	}
	return out
}
