package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/probes"
	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/probes/host"
	"github.com/omnitap/omnitap/probes/host/foreign"
	"github.com/omnitap/omnitap/probes/host/ledger"
)

// surroundings is what a run is measured among: the server's processes, the machine,
// what else runs there, and the clocks.
type surroundings struct {
	finder probes.Source

	mu    sync.Mutex // protects what follows
	why   string     // how the server's processes were found, or why not
	sure  bool       // they are known to be this server's
	procs []event.Process
	at    time.Time
	child int

	windows []foreign.Window
	sampler *foreign.Sampler
	clock   *host.Clock
}

// rescan is how often the server's processes are looked for again while it is measured.
const rescan = 10 * time.Second

func newSurroundings(ctx context.Context, c probes.Config, upstream string) *surroundings {
	s := &surroundings{clock: host.NewClock(host.Clocks{})}
	port, err := localPort(ctx, upstream)
	if err == nil {
		s.finder, err = probes.NewFinder(c, port)
	}
	if err != nil {
		s.why = err.Error()
	}
	s.scan()
	return s
}

// scan looks for the server's processes, at most every 10 s.
func (s *surroundings) scan() []event.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finder == nil || !s.at.IsZero() && time.Since(s.at) < rescan {
		return s.procs
	}
	s.at = time.Now()
	if found, err := s.finder.Scan(); err != nil {
		s.why = err.Error()
	} else {
		s.procs, s.why, s.sure = found.Processes, found.Why, found.Root != 0
	}
	return s.procs
}

// ledger is metadata.json's: what was found in the server's processes and of the machine.
func (s *surroundings) ledger(ctx context.Context) (json.RawMessage, error) {
	var targets []ledger.Target
	for _, p := range s.scan() {
		targets = append(targets, ledger.Target{PID: p.PID, Role: p.Role, Stage: p.Stage, StartTicks: p.StartTicks})
	}
	l, err := ledger.Read(ctx, ledger.Config{Targets: targets, Redact: rundir.RedactArgs})
	if err != nil {
		return nil, fmt.Errorf("reading the ledger: %w", err)
	}
	return json.Marshal(l)
}

// watch measures foreign CPU use and the clocks until ctx ends.
func (s *surroundings) watch(ctx context.Context) error {
	sampler, err := foreign.New(foreign.Config{
		Groups: s.groups,
		Sink:   func(w foreign.Window) { s.mu.Lock(); s.windows = append(s.windows, w); s.mu.Unlock() },
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.sampler = sampler
	s.mu.Unlock()
	var clocks sync.WaitGroup
	clocks.Go(func() { s.clock.Run(ctx, time.Second, func(host.Step) {}) })
	defer clocks.Wait()
	return sampler.Run(ctx)
}

// groups are whose time is not foreign.
func (s *surroundings) groups() (g foreign.Groups) {
	for _, p := range s.scan() {
		g.Server = append(g.Server, foreign.Process{PID: p.PID, StartTicks: p.StartTicks})
	}
	g.Omnitap = []foreign.Process{{PID: os.Getpid()}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child > 0 {
		g.Load = []foreign.Process{{PID: s.child}}
	}
	return g
}

// peak is how many cores others have taken at most so far, nil where that is not known.
func (s *surroundings) peak() *float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sampler == nil {
		return nil
	}
	if p := s.sampler.Summary().Peak; p != nil {
		return &p.Cores
	}
	return nil
}

// loadBy names the process that makes the load.
func (s *surroundings) loadBy(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.child = pid
}

// account is what metadata.json says of what else ran, and of the clocks.
func (s *surroundings) account(r *rundir.RunInfo, limit float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.ServerFound = s.why
	r.Contamination, r.ContaminationWhy = string(foreign.NotMeasured), "nothing was sampled"
	if s.sampler == nil {
		return
	}
	sum := s.sampler.Summary()
	verdict, why := sum.Judge(limit)
	if len(s.procs) == 0 && verdict == foreign.Clean {
		verdict, why = foreign.NotMeasured, "the server's processes were not found: "+s.why
	} else if len(s.procs) > 0 && !s.sure {
		why += "; but " + s.why
	}
	r.Contamination, r.ContaminationWhy = string(verdict), why
	r.ForeignCPU, _ = json.Marshal(struct {
		Limit   float64          `json:"limit_cores"`
		Summary foreign.Summary  `json:"summary"`
		Windows []foreign.Window `json:"windows"`
	}{limit, sum, lastOf(s.windows)})
	r.Clock, _ = json.Marshal(s.clock.Report())
}

// maxWindows bounds the windows that metadata.json holds; resources.parquet is for more.
const maxWindows = 300

// lastOf are the last windows.
func lastOf(w []foreign.Window) []foreign.Window {
	return w[max(0, len(w)-maxWindows):]
}
