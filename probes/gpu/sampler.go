package gpu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/omnitap/omnitap/probes/host"
)

// DefaultInterval is the time between samples: 10 Hz.
const DefaultInterval = 100 * time.Millisecond

// Config says how to sample. Sink is needed.
type Config struct {
	// Interval is the time between samples, at least 10 ms. Default 100 ms.
	Interval time.Duration
	// ProcessInterval is the time between lists of processes, which may cost milliseconds.
	// Default 1 s.
	ProcessInterval time.Duration
	// Sink gets each sample, in order, from a goroutine of the sampler, and not after
	// Run returned. It may keep the sample.
	Sink func(*Sample)
	// Clocks are the system's where they are nil.
	Clocks host.Clocks
	// Logger gets a line when the library or a card comes or goes. Default: none.
	Logger *slog.Logger
}

// ErrStuck is what Run returns where a call of the library did not come back.
var ErrStuck = errors.New("a call of NVML does not return")

const (
	// slow is the time after which what was refused, and lost cards, are tried again.
	slow = time.Minute
	// retryFirst doubles up to retryMost between tries to open the library; after
	// maxTries it is left alone. A library that worked for retryMost counts anew.
	retryFirst = 10 * time.Second
	retryMost  = 10 * time.Minute
	maxTries   = 20
	// grace is how long Run waits for a call to return after its context ended.
	grace = 2 * time.Second
)

// Sampler samples until its context ends. Status may be called at any time.
type Sampler struct {
	config Config
	lib    library
	log    *slog.Logger

	mu     sync.Mutex // protects the fields below
	status Status
	over   bool // Run returned: nobody takes samples any more
}

// New checks a configuration. It opens nothing.
func New(c Config) (*Sampler, error) { return newSampler(c, newLibrary()) }

func newSampler(c Config, lib library) (*Sampler, error) {
	if c.Sink == nil {
		return nil, errors.New("gpu: Sink is needed")
	}
	if c.Interval == 0 {
		c.Interval = DefaultInterval
	}
	if c.Interval < 10*time.Millisecond {
		return nil, fmt.Errorf("gpu: an interval must be at least 10ms, not %v: the cards measure no faster", c.Interval)
	}
	if c.ProcessInterval == 0 {
		c.ProcessInterval = time.Second
	}
	if c.Clocks.Mono == nil || c.Clocks.Wall == nil {
		c.Clocks = host.SystemClocks()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Sampler{config: c, lib: lib, log: c.Logger}
	s.status = Status{State: StateStarting, IntervalNS: int64(c.Interval)}
	return s, nil
}

// Run samples until the context ends. It fails only where a call of the library is still
// under way two seconds later: that call's thread is then left behind.
func (s *Sampler) Run(ctx context.Context) error {
	done := make(chan struct{})
	go s.work(ctx, done)
	select {
	case <-done:
		<-ctx.Done() // it was given up: the status says so until the end
		return nil
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		s.mu.Lock()
		s.over = true
		s.status.State, s.status.Reason = StateStuck, ErrStuck.Error()
		s.mu.Unlock()
		return ErrStuck
	}
}

// work opens the library, samples while it works, and tries again when it does not.
func (s *Sampler) work(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	runtime.LockOSThread() // the cost of a sample is its thread's; it ends with the goroutine
	wait, tries := retryFirst, 0
	for ctx.Err() == nil {
		began := s.config.Clocks.Mono()
		err := s.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if s.config.Clocks.Mono()-began >= int64(retryMost) {
			wait, tries = retryFirst, 0
		}
		tries++
		s.unavailable(err, tries)
		if tries == maxTries {
			return
		}
		pause(ctx, wait)
		wait = min(2*wait, retryMost)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// session is one time that the library is open. It returns why it ended.
func (s *Sampler) session(ctx context.Context) error {
	version, err := s.lib.open()
	if err != nil {
		return fmt.Errorf("starting NVML: %w", err)
	}
	defer s.lib.close()
	cards, err := s.lib.cards()
	if err != nil {
		return fmt.Errorf("listing the cards: %w", err)
	}
	if len(cards) == 0 {
		return errors.New("NVML lists no card")
	}
	l := &loop{s: s, last: map[string]bool{}}
	for _, c := range cards {
		l.readers = append(l.readers, newReader(c, s.config.Clocks))
	}
	s.available(version, l.readers)
	return l.run(ctx)
}

// loop is the state of a session.
type loop struct {
	s                    *Sampler
	readers              []*reader
	last                 map[string]bool // who was lost at the last sample
	processes, refreshed int64           // when they were last asked for
}

func (l *loop) run(ctx context.Context) error {
	ticker := time.NewTicker(l.s.config.Interval)
	defer ticker.Stop()
	l.refreshed = l.s.config.Clocks.Mono()
	l.processes = l.refreshed - int64(l.s.config.ProcessInterval)
	for {
		if err := l.sample(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// sample reads all devices once. It fails where no device can be asked any more.
func (l *loop) sample() error {
	cpu, measured := threadTime()
	begin := l.s.config.Clocks.Mono()
	l.s.busy(begin)
	if begin-l.refreshed >= int64(slow) {
		l.refreshed = begin
		for _, r := range l.readers {
			r.again()
		}
	}
	// A ticker is never exact: half an interval early is on time.
	processes := begin-l.processes >= int64(l.s.config.ProcessInterval-l.s.config.Interval/2)
	if processes {
		l.processes = begin
		l.errors()
	}
	out := &Sample{Devices: make([]Device, 0, len(l.readers))}
	var broken error
	for _, r := range l.readers {
		out.Devices = append(out.Devices, r.device(processes))
		if r.gone != nil && dead(r.gone) {
			broken = r.gone
		}
	}
	out.TookNS = l.s.config.Clocks.Mono() - begin
	if after, ok := threadTime(); ok && measured {
		out.CPUNS = new(after - cpu)
	}
	l.tell(out)
	if l.s.took(out) {
		l.s.config.Sink(out)
	}
	if broken != nil {
		return fmt.Errorf("NVML broke off: %w", broken)
	}
	return nil
}

// fallen is the XID of a card that has fallen off the bus. Others are named and the card
// is asked on: it says itself whether it still answers.
const fallen = 79

// errors takes the critical errors that the driver told.
func (l *loop) errors() {
	list, _ := l.s.lib.xids() // where there are none to be had, the cards' answers tell
	for _, x := range list {
		for _, r := range l.readers {
			if r.id.uuid != x.uuid {
				continue
			}
			r.xid = new(x.code)
			if x.code == fallen {
				r.lost = "XID 79: it has fallen off the bus"
			}
			l.s.log.Warn("the driver tells a critical error of a GPU", "device", r.name(), "xid", x.code)
		}
	}
}

// tell logs which cards went or came back.
func (l *loop) tell(out *Sample) {
	for i := range out.Devices {
		d := &out.Devices[i]
		switch {
		case d.Lost != "" && !l.last[d.Name]:
			l.s.log.Warn("GPU is lost; the others are sampled on", "device", d.Name, "reason", d.Lost)
		case d.Lost == "" && l.last[d.Name]:
			l.s.log.Info("GPU answers again", "device", d.Name)
		}
		l.last[d.Name] = d.Lost != ""
	}
}
