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
	"github.com/omnitap/omnitap/probes/sched"
)

// Set is the probes of one server. Open makes it, Run drives it; Status may be called
// from anywhere. Two goroutines share the work: one reads the rings and does nothing
// that takes long, since rings fill up within tenths of a second; the other one looks
// for processes, attaches, detaches and measures, which can take as long.
type Set struct {
	cfg    Config
	source Source
	sink   Sink
	log    *slog.Logger

	watch    *kernel.Watch
	families []*family
	procs    map[int]event.Process
	stages   map[string]uint32 // stage → its number in the table
	batch    kernel.Batch      // the reader's
	upTo     int64             // the reader's: everything before it has been handed over
	counter  cuda.Counter
	maps     mapped
	budget   budget
	beat     heartbeat
	others   others
	ready    chan struct{} // closed by control

	mu     sync.Mutex // protects what follows
	status Status
	bound  []event.Endpoint // ZMQ sockets that were bound
	news   bool             // bound has grown
	extra  []event.Event    // what the kernel counted, for the next batch
}

// Open attaches the families that need no process, and finds what there is. An error
// says what is missing and what grants it; nothing is attached then.
func Open(ctx context.Context, c Config, source Source, sink Sink, log *slog.Logger) (*Set, error) {
	if err := errors.Join(ctx.Err(), c.Validate()); err != nil {
		return nil, err
	}
	w, err := kernel.NewWatch()
	if err != nil {
		return nil, err
	}
	s := &Set{cfg: c.WithDefaults(), source: source, sink: sink, log: log, watch: w, procs: map[int]event.Process{}, stages: map[string]uint32{}, ready: make(chan struct{})}
	s.families = newFamilies(&s.cfg)
	s.budget = newBudget(s.cfg.Budget)
	if err := s.first(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.budget.price(s.families)
	if err := w.AddSelf(); err != nil {
		return nil, errors.Join(err, s.close())
	}
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
	if len(errs) == 0 {
		return nil
	}
	return errs[0] // the others say the same of their families
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
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	var reader sync.WaitGroup
	reader.Go(func() { s.read(reading) })
	s.control(ctx)
	stop()
	reader.Wait()
	s.counted()
	s.poll() // what happened up to now
	return s.close()
}

// Ready is closed once Run has done what it does at its start alone: it measures what
// traps cost on this host, on programs of its own that take most of a CPU for a second.
// Whoever compares a server with probes and without waits for it.
func (s *Set) Ready() <-chan struct{} { return s.ready }

// read is the reader's loop.
func (s *Set) read(ctx context.Context) {
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			next := pollIdle
			if s.poll() > 0 {
				next = pollBusy
			}
			tick.Reset(next)
		}
	}
}

// control is the loop of everything else.
func (s *Set) control(ctx context.Context) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	scans := make(chan find.Result)
	measured := make(chan ways)
	var looking sync.WaitGroup
	looking.Go(func() { s.look(ctx, scans) })
	looking.Go(func() { s.measure(ctx, measured) })
	defer looking.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case found := <-scans:
			s.take(&found)
		case s.budget.ways = <-measured:
			close(s.ready)
		case <-second.C:
			s.maintain()
		}
	}
}

// measure measures the host in a goroutine of its own: it takes a second.
func (s *Set) measure(ctx context.Context, to chan<- ways) {
	select {
	case to <- calibrate(ctx, s.log):
	case <-ctx.Done():
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
	all := true
	for _, f := range s.families {
		// an event has its time behind its place in the ring: one that is not filled
		// in yet may be of any time since
		all = f.drain(&s.batch, now) && all
	}
	if all {
		s.upTo = now
	}
	s.mu.Lock()
	s.batch.Events = append(s.batch.Events, s.extra...)
	s.extra = s.extra[:0]
	s.mu.Unlock()
	slices.SortStableFunc(s.batch.Events, func(a, b event.Event) int { return cmp.Compare(a.MonoNS, b.MonoNS) })
	n := 0
	for i := range s.batch.Events {
		e := &s.batch.Events[i]
		if e.Probe != event.SchedSample {
			n++
		}
		s.heed(e)
	}
	s.sink.Events(s.batch.Events, s.upTo)
	return n
}

// maxBound bounds the ZMQ endpoints that are kept.
const maxBound = 4096

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
		s.mu.Lock()
		if len(s.bound) < maxBound {
			s.bound = append(s.bound, event.Endpoint{PID: int(e.PID), Addr: e.Path})
			s.news = true
		}
		s.mu.Unlock()
	default: // the sink's alone
	}
}

// take brings the table of watched processes up to date and attaches to what is new.
// The sink hears of a process before the kernel tells of it.
func (s *Set) take(r *find.Result) {
	fresh, added, gone := s.changes(r)
	s.procs = fresh
	if len(added)+len(gone) > 0 {
		s.tell()
	}
	missing := slices.Clone(r.Missing)
	for _, pid := range gone {
		_ = s.watch.Remove(pid) // its end was told
	}
	for _, p := range added {
		if err := s.watch.Add(p.PID, s.index(p.Stage)); err != nil {
			missing = append(missing, err.Error())
		}
	}
	s.mu.Lock()
	s.status.Why, s.status.Missing, s.status.Doubts = r.Why, missing, nil
	for _, d := range r.Doubts {
		s.status.Doubts = append(s.status.Doubts, fmt.Sprintf("process %d, %q: %s", d.PID, d.Title, d.Reason))
	}
	s.mu.Unlock()
	s.attach(r.Processes)
	s.report()
}

// changes compares a scan with what is known. A number that now belongs to another
// process, or stage, is gone and added.
func (s *Set) changes(r *find.Result) (fresh map[int]event.Process, added []event.Process, gone []int) {
	fresh = map[int]event.Process{}
	for i := range r.Processes {
		p := r.Processes[i]
		fresh[p.PID] = p
		old, there := s.procs[p.PID]
		if there && old.StartTicks == p.StartTicks && old.Stage == p.Stage && old.Role == p.Role {
			continue
		}
		if there {
			gone = append(gone, p.PID)
		}
		added = append(added, p)
	}
	for pid := range s.procs {
		if _, there := fresh[pid]; !there {
			gone = append(gone, pid)
		}
	}
	return fresh, added, gone
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
	s.mu.Lock()
	t.ZMQBind, s.news = slices.Clone(s.bound), false
	s.mu.Unlock()
	s.sink.Processes(t)
}

// maintain is what is done once a second: heartbeats, costs, counts of the kernel's.
func (s *Set) maintain() {
	s.mu.Lock()
	news := s.news
	s.mu.Unlock()
	if news {
		s.tell()
	}
	s.beat.check(s.families, &s.maps)
	s.counted()
	if trim := s.budget.look(s.families, s.watch, s.procs); trim != "" {
		s.mu.Lock()
		s.status.Trims = append(s.status.Trims, trim)
		s.mu.Unlock()
		s.log.Warn("a probe was taken away for its cost", "what", trim)
	}
	s.foreign()
	s.report()
}

// foreign measures what others took of the CPUs since the last second.
func (s *Set) foreign() {
	now := monotonic()
	f := s.family("sched")
	if f.kernel == nil {
		s.others = others{}
		return
	}
	ns, err := sched.Foreign(f.kernel)
	if err != nil {
		s.log.Error("reading probes", "error", err)
		return
	}
	old := s.others
	s.others = others{ns: ns, at: now}
	if old.at == 0 || now <= old.at || ns < old.ns {
		return
	}
	cores := float64(ns-old.ns) / float64(now-old.at)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.ForeignCores = &cores
	if s.status.ForeignPeak == nil || cores > *s.status.ForeignPeak {
		s.status.ForeignPeak = &cores
	}
}

// others is the time that processes which nobody watches ran, nanoseconds of all CPUs,
// and when it was read.
type others struct {
	ns uint64
	at int64
}

// counted takes what the kernel counts instead of telling it, for the next batch.
func (s *Set) counted() {
	var out []event.Event
	now := monotonic()
	for _, f := range s.families {
		out = append(out, f.skips(now)...)
	}
	if f := s.family("cuda"); f.kernel != nil {
		calls, err := s.counter.Take(f.kernel)
		if err != nil {
			s.log.Error("reading probes", "error", err)
		}
		out = append(out, calls...)
	}
	s.mu.Lock()
	s.extra = append(s.extra, out...)
	s.mu.Unlock()
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
	s.report() // the last word: what was attached, and what it saw
	put := s.footprint()
	var errs []error
	for _, f := range s.families {
		errs = append(errs, f.close())
	}
	left := put.check()
	s.mu.Lock()
	s.status.Detached = &left
	s.mu.Unlock()
	s.budget.close()
	errs = append(errs, s.watch.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("detaching the probes: %w", err)
	}
	return nil
}
