//go:build linux && amd64

package probes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/probes/cuda"
	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/probes/find"
	"github.com/omnitap/omnitap/probes/kernel"
)

// Set is the probes of one server. Open makes it, Run drives it; Status may be called
// from anywhere.
type Set struct {
	cfg    Config
	source Source
	sink   Sink
	log    *slog.Logger

	watch    *kernel.Watch
	families []*family
	procs    map[int]event.Process
	stages   map[string]uint32 // stage → its number in the table
	bound    []event.Endpoint  // ZMQ sockets that were bound
	batch    kernel.Batch
	maps     mapped
	budget   budget
	beat     heartbeat

	mu     sync.Mutex // protects what follows
	status Status
}

// Open attaches the families that need no process, and finds what there is. An error
// says what is missing and what grants it; nothing is attached then.
func Open(ctx context.Context, c Config, source Source, sink Sink, log *slog.Logger) (*Set, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	w, err := kernel.NewWatch()
	if err != nil {
		return nil, err
	}
	s := &Set{cfg: c.WithDefaults(), source: source, sink: sink, log: log, watch: w, procs: map[int]event.Process{}, stages: map[string]uint32{}}
	s.families = newFamilies(&s.cfg, w)
	s.budget = newBudget(s.cfg.Budget)
	if err := s.first(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	price(s.families)
	if err := w.AddSelf(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.budget.calibrate(ctx, s.log)
	found, err := source.Scan()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("looking for stage processes: %w", err), s.close())
	}
	s.take(&found)
	return s, nil
}

// first attaches what every server needs. That none of it can be is an error.
func (s *Set) first() error {
	var errs []error
	for _, f := range s.families {
		if !f.always || f.cfg.Use == Off {
			continue
		}
		if err := f.load(s.watch, wish{}); err != nil {
			errs = append(errs, err)
			continue
		}
		return s.firstRest()
	}
	return errors.Join(errs...)
}

// firstRest attaches the other families that are always used; what fails is told by
// the status.
func (s *Set) firstRest() error {
	for _, f := range s.families {
		if f.always && f.cfg.Use != Off && f.kernel == nil && f.err == nil {
			_ = f.load(s.watch, wish{}) // kept in f.err
		}
	}
	return nil
}

// How often the rings are read: an event waits for at most that long. Nobody is woken
// for an event, since waking up is itself work on the server's CPUs.
const (
	pollBusy = 5 * time.Millisecond
	pollIdle = 50 * time.Millisecond
)

// Run reads the rings until ctx ends, then detaches everything.
func (s *Set) Run(ctx context.Context) error {
	tick := time.NewTimer(0)
	defer tick.Stop()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	scans := make(chan find.Result)
	var looking sync.WaitGroup
	look, stop := context.WithCancel(ctx)
	looking.Go(func() { s.look(look, scans) })
	defer looking.Wait()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			s.poll() // what happened up to now
			return s.close()
		case <-second.C:
			s.maintain()
		case found := <-scans:
			s.poll() // what was told before it
			s.take(&found)
		case <-tick.C:
			n := s.poll()
			next := pollIdle
			if n > 0 {
				next = pollBusy
			}
			tick.Reset(next)
		}
	}
}

// look scans in a goroutine of its own: a scan takes milliseconds.
func (s *Set) look(ctx context.Context, scans chan<- find.Result) {
	err := s.source.Run(ctx, s.cfg.Scan, func(r find.Result) {
		select {
		case scans <- r:
		case <-ctx.Done():
		}
	})
	if err != nil && ctx.Err() == nil {
		s.log.Error("looking for stage processes", "error", err)
	}
}

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail with this clock
	return t.Nano()
}

// poll hands on what lies in the rings, in order of time, and returns how much.
func (s *Set) poll() int {
	now := monotonic()
	s.batch.Reset()
	for _, f := range s.families {
		if f.kernel == nil {
			continue
		}
		if err := f.kernel.Drain(&s.batch); err != nil {
			s.log.Error("reading probes", "error", err)
		}
		s.losses(f, now)
	}
	slices.SortStableFunc(s.batch.Events, func(a, b event.Event) int { return cmp.Compare(a.MonoNS, b.MonoNS) })
	n := 0
	for i := range s.batch.Events {
		e := &s.batch.Events[i]
		if e.Probe != event.SchedSample {
			n++
		}
		s.heed(e)
	}
	s.sink.Events(s.batch.Events, now)
	return n
}

// losses adds an event for what a ring had no room for since the last look.
func (s *Set) losses(f *family, now int64) {
	c, err := f.kernel.Counts()
	if err != nil || c.Lost <= f.counts.Lost {
		return
	}
	s.batch.Events = append(s.batch.Events, event.Event{
		Probe: event.Loss, MonoNS: now, EnterNS: f.seen, Path: f.name, Count: int64(c.Lost - f.counts.Lost),
	})
	f.counts = c
}

// heed takes from an event what the set itself needs.
func (s *Set) heed(e *event.Event) {
	switch e.Probe {
	case event.Exec:
		s.source.Exec(int(e.PID))
	case event.Fork:
		s.source.Fork(int(e.Args[0]), int(e.Args[2]))
	case event.Exit:
		s.source.Exit(int(e.Args[0]))
	case event.CUDACall:
		cuda.Name(e)
	case event.ZMQBind:
		if len(s.bound) < 4096 {
			s.bound = append(s.bound, event.Endpoint{PID: int(e.PID), Addr: e.Path})
			s.tell()
		}
	}
}

// take brings the table of watched processes up to date and attaches to what is new.
func (s *Set) take(r *find.Result) {
	changed := false
	missing := slices.Clone(r.Missing)
	fresh := map[int]event.Process{}
	for i := range r.Processes {
		p := r.Processes[i]
		fresh[p.PID] = p
		old, there := s.procs[p.PID]
		if there && old.StartTicks == p.StartTicks && old.Stage == p.Stage && old.Role == p.Role {
			continue
		}
		changed = true
		if there { // the same number, another process or stage
			_ = s.watch.Remove(p.PID)
		}
		if err := s.watch.Add(p.PID, s.index(p.Stage)); err != nil {
			missing = append(missing, err.Error())
		}
	}
	for pid := range s.procs {
		if _, there := fresh[pid]; !there {
			changed = true
			_ = s.watch.Remove(pid) // its end was told
		}
	}
	s.procs = fresh
	s.mu.Lock()
	s.status.Why, s.status.Missing, s.status.Doubts = r.Why, missing, nil
	for _, d := range r.Doubts {
		s.status.Doubts = append(s.status.Doubts, fmt.Sprintf("process %d, %q: %s", d.PID, d.Title, d.Reason))
	}
	s.mu.Unlock()
	if changed {
		s.tell()
	}
	s.attach(r.Processes)
	s.report()
}

func (s *Set) index(stage string) uint32 {
	i, ok := s.stages[stage]
	if !ok {
		i = uint32(len(s.stages))
		s.stages[stage] = i
	}
	return i
}

// tell gives the sink the table of processes.
func (s *Set) tell() {
	var t event.Processes
	for _, p := range s.procs {
		t.Processes = append(t.Processes, p)
	}
	slices.SortFunc(t.Processes, func(a, b event.Process) int { return cmp.Compare(a.PID, b.PID) })
	t.ZMQBind = slices.Clone(s.bound)
	s.sink.Processes(t)
}

// maintain is what is done once a second: heartbeats, costs, counts of the kernel's.
func (s *Set) maintain() {
	s.beat.check(s.families, &s.maps)
	for _, f := range s.families {
		if f.name == "cuda" && f.kernel != nil {
			counted, err := cuda.Counted(f.kernel)
			if err != nil {
				s.log.Error("reading probes", "error", err)
			}
			if len(counted) > 0 {
				s.sink.Events(counted, monotonic())
			}
		}
	}
	if trim := s.budget.look(s.families, s.watch, s.procs); trim != "" {
		s.mu.Lock()
		s.status.Trims = append(s.status.Trims, trim)
		s.mu.Unlock()
		s.log.Warn("a probe was taken away for its cost", "what", trim)
	}
	s.report()
}

// report brings the status up to date.
func (s *Set) report() {
	var list []FamilyStatus
	var lost uint64
	for _, f := range s.families {
		st := f.status()
		lost += st.Lost
		list = append(list, st)
	}
	var procs []event.Process
	for _, p := range s.procs {
		procs = append(procs, p)
	}
	slices.SortFunc(procs, func(a, b event.Process) int { return cmp.Compare(a.PID, b.PID) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Families, s.status.Processes, s.status.Lost = list, procs, lost
}

// Status returns what is known of the probes.
func (s *Set) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.status
	st.Trims, st.Missing, st.Doubts = slices.Clone(st.Trims), slices.Clone(st.Missing), slices.Clone(st.Doubts)
	return st
}

// Close detaches everything of a set that was never run.
func (s *Set) Close() error { return s.close() }

func (s *Set) close() error {
	var errs []error
	for _, f := range s.families {
		errs = append(errs, f.close())
	}
	s.budget.close()
	errs = append(errs, s.watch.Close())
	s.report()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("detaching the probes: %w", err)
	}
	return nil
}
