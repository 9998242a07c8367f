package tap

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// Analyzer reads connections beside the relay. Its Handles take what a relay
// hands over without waiting; a few workers look at it a few milliseconds later,
// many bytes at a time: a reader woken for each event would cost more than the
// event.
type Analyzer struct {
	cfg     Config
	sink    timeline.Sink
	workers []*worker
	queued  atomic.Int64 // bytes waiting in all
	dropped atomic.Int64 // bytes that were not looked at
	faults  atomic.Int64 // connections whose reader failed
	log     *slog.Logger
	reels   *Reels // where captures go, nil for none
	slow    func() // test hook: called ahead of each batch
}

// NewAnalyzer returns an Analyzer that sends records and events to sink, from
// several goroutines at once, and faults to log (nil: nowhere). Run starts it.
func NewAnalyzer(cfg Config, sink timeline.Sink, log *slog.Logger) *Analyzer {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	a := &Analyzer{cfg: cfg.WithDefaults(), sink: sink, log: log}
	n := a.cfg.Workers
	if n <= 0 {
		n = min(max(1, runtime.GOMAXPROCS(0)/4), 4)
	}
	for range n {
		a.workers = append(a.workers, newWorker(a))
	}
	return a
}

// Dropped returns how many bytes were not looked at because analysis fell behind.
func (a *Analyzer) Dropped() int64 { return a.dropped.Load() }

// Faults returns on how many connections the reader failed.
func (a *Analyzer) Faults() int64 { return a.faults.Load() }

// Queued returns how many bytes wait for analysis.
func (a *Analyzer) Queued() int64 { return a.queued.Load() }

// Run analyses until ctx ends, then looks at what is still queued and returns.
func (a *Analyzer) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, w := range a.workers {
		wg.Go(func() { w.run(ctx) })
	}
	wg.Wait()
}

// Open returns a Handle for a new connection with that number.
func (a *Analyzer) Open(n uint64, identify Identify) *Handle {
	if a == nil {
		return nil
	}
	w := a.workers[n%uint64(len(a.workers))]
	h := &Handle{w: w, conn: NewConn(&a.cfg, identify, a.sink, &w.reader, false), tape: a.tape(n, identify)}
	h.idle.Store(true)
	w.remember(h)
	return h
}

// Oldest returns when the first byte of the oldest exchange or turn came that is
// not over, as CLOCK_MONOTONIC nanoseconds (0 for none), and on how many connections
// one is under way. What can not be read any more is none.
func (a *Analyzer) Oldest() (mono int64, busy int) {
	for _, w := range a.workers {
		w.allMu.Lock()
		for h := range w.all {
			at := h.oldest.Load()
			if at == 0 {
				continue
			}
			if busy++; mono == 0 || at < mono {
				mono = at
			}
		}
		w.allMu.Unlock()
	}
	return mono, busy
}

// worker analyses a share of the connections. What they hand over between two of
// its looks is one batch, for all of them: it is written from front to back, so
// that little cold memory is touched.
type worker struct {
	a     *Analyzer
	wake  chan struct{}
	hurry chan struct{}
	// reader is shared by the worker's connections: it is used during a call only
	reader dialect.Reader
	order  order // scratch
	dues   dues

	mu     sync.Mutex // protects what follows, and what Handle says
	batch  *batch
	number uint64 // of the batch, from 1
	looked uint64 // the last batch that was looked at to its end
	armed  bool

	// all has its own lock: whoever asks for the oldest exchange holds up no byte.
	allMu sync.Mutex // protects all
	all   map[*Handle]struct{}
}

func newWorker(a *Analyzer) *worker {
	return &worker{a: a, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), batch: &batch{}, number: 1, all: map[*Handle]struct{}{}}
}

func (w *worker) remember(h *Handle) {
	w.allMu.Lock()
	defer w.allMu.Unlock()
	w.all[h] = struct{}{}
}

func (w *worker) forget(h *Handle) {
	w.allMu.Lock()
	defer w.allMu.Unlock()
	delete(w.all, h)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (w *worker) run(ctx context.Context) {
	pause := time.NewTimer(time.Hour)
	pause.Stop()
	alarm := time.NewTimer(time.Hour)
	alarm.Stop()
	spare := &batch{}
	for {
		alarm.Stop()
		if wait, any := w.dues.next(Monotonic()); any {
			alarm.Reset(max(0, wait))
		}
		select {
		case <-w.wake:
		case <-alarm.C: // what came ahead of it is looked at first, as ever
		case <-ctx.Done():
			w.drain(spare)
			return
		}
		for more := true; more; {
			pause.Reset(w.a.cfg.Latency)
			select {
			case <-pause.C:
			case <-w.hurry:
			case <-ctx.Done():
			}
			now := Monotonic()
			spare, more = w.take(spare)
			w.look(spare)
			w.dues.check(now - grace)
		}
	}
}

// take swaps the batch for an empty one. With nothing in it the worker sleeps.
func (w *worker) take(empty *batch) (b *batch, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, w.batch = w.batch, empty
	w.number++
	if len(b.firsts) == 0 {
		w.armed = false
	}
	return b, w.armed
}

// look analyses a batch, connection by connection, and empties it.
func (w *worker) look(b *batch) {
	for _, f := range b.firsts {
		if w.a.slow != nil {
			w.a.slow()
		}
		f.h.look(b, f.item)
	}
	w.a.queued.Add(-b.size)
	b.reset()
	w.mu.Lock()
	w.looked = w.number - 1
	w.mu.Unlock()
}

// drain looks at all that is left.
func (w *worker) drain(spare *batch) {
	for more := true; more; {
		spare, more = w.take(spare)
		w.look(spare)
	}
}
