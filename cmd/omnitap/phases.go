package main

import (
	"cmp"
	"sync"
	"time"

	"github.com/omnitap/omnitap/exporter/experiment"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// The phases of a run, in every record. Those that were under way when the load was told
// to end are cut off by us, not by the server: they are in no figure.
const (
	phaseWarmup   = "warmup"
	phaseMeasured = "measured"
	phaseCooldown = "cooldown"
)

// phases tags each record with the phase that its request began in, and says when a stop
// condition holds.
type phases struct {
	next timeline.Sink
	// The warm-up is what begins a run: so many requests, or so long from the first one's
	// beginning, whichever is over first; 0 and 0 for none.
	requests int
	lasts    time.Duration
	// progress is told whenever a request of the measured phase has ended; nil for nobody.
	progress func(experiment.Progress)

	mu      sync.Mutex // protects what follows
	begun   int
	first   int64 // t_in of the first request
	stopped int64 // when the load was told to end, 0 for not yet
	// span is each phase from the first beginning to the last end of its requests. With
	// several at once phases may overlap: requests are not heard of in the order of t_in.
	span map[string]rundir.RunPhase
	so   experiment.Progress
	of   map[string][]string // phases of requests under way, by id
}

func newPhases(requests int, lasts time.Duration) *phases {
	return &phases{requests: requests, lasts: lasts, span: map[string]rundir.RunPhase{}, of: map[string][]string{}}
}

// Event is part of timeline.Sink: a request's first event says when it began.
func (p *phases) Event(e *timeline.Event) {
	if e.Event == "ingress" {
		p.mu.Lock()
		p.of[e.RequestID] = append(p.of[e.RequestID], p.at(e.MonoNS))
		p.mu.Unlock()
	}
	p.next.Event(e)
}

// at is the phase of a request that begins at a time.
func (p *phases) at(mono int64) string {
	if p.begun++; p.begun == 1 || mono < p.first {
		p.first = mono
	}
	phase := phaseMeasured
	switch {
	case p.warm(mono):
		phase = phaseWarmup
	case p.stopped > 0 && mono > p.stopped:
		phase = phaseCooldown
	}
	p.widen(phase, mono, mono)
	return phase
}

// widen has a phase reach from a beginning to an end.
func (p *phases) widen(name string, start, end int64) {
	s, ok := p.span[name]
	if !ok {
		s = rundir.RunPhase{Name: name, StartNS: start, EndNS: end}
	}
	s.StartNS, s.EndNS = min(s.StartNS, start), max(s.EndNS, end)
	p.span[name] = s
}

// warm says whether the request that began last is of the warm-up, at a time.
func (p *phases) warm(mono int64) bool {
	if p.requests == 0 && p.lasts == 0 {
		return false
	}
	return (p.requests == 0 || p.begun <= p.requests) && (p.lasts == 0 || mono < p.first+p.lasts.Nanoseconds())
}

// stop notes when the load was told to end, the first time.
func (p *phases) stop(mono int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped == 0 {
		p.stopped = mono
	}
}

// phaseOf is the phase of a request that has ended. What had no beginning, a connection
// that was no request or a turn that nothing asked for, is of the phase that it ended in.
func (p *phases) phaseOf(r *timeline.Record) string {
	ended := cmp.Or(r.Points.TTerm, r.Points.TClose, &p.first)
	phase := phaseMeasured
	if list := p.of[r.RequestID]; len(list) > 0 {
		phase = list[0]
		if p.of[r.RequestID] = list[1:]; len(list) == 1 {
			delete(p.of, r.RequestID)
		}
	} else if p.warm(*ended) {
		phase = phaseWarmup
	}
	if phase == phaseMeasured && p.stopped > 0 && *ended > p.stopped {
		phase = phaseCooldown
	}
	p.widen(phase, *cmp.Or(r.Points.TIn, ended), *ended)
	return phase
}

// Record is part of timeline.Sink.
func (p *phases) Record(r *timeline.Record) {
	c := *r
	p.mu.Lock()
	c.RunPhase = p.phaseOf(r)
	tell := c.RunPhase == phaseMeasured && p.progress != nil
	if c.RunPhase == phaseMeasured {
		p.so.Ended++
		if c.Terminal.State != timeline.Success {
			p.so.Failed++
		}
		if c.Terminal.State == timeline.WorkerLost {
			p.so.WorkerLost++
		}
	}
	p.mu.Unlock()
	p.next.Record(&c)
	if tell {
		p.progress(p.far(tap.Monotonic()))
	}
}

// far is how far the measured phase has come at a time.
func (p *phases) far(now int64) experiment.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	so := p.so
	if s, ok := p.span[phaseMeasured]; ok {
		so.Elapsed = time.Duration(now - s.StartNS)
	}
	return so
}

// Session is part of timeline.Sink.
func (p *phases) Session(s *timeline.Session) { p.next.Session(s) }

// spans are the phases as metadata.json has them. The warm-up ends where what is measured
// begins.
func (p *phases) spans() (list []rundir.RunPhase) {
	p.mu.Lock()
	defer p.mu.Unlock()
	measured, ok := p.span[phaseMeasured]
	for _, name := range []string{phaseWarmup, phaseMeasured, phaseCooldown} {
		s, there := p.span[name]
		if name == phaseWarmup && ok {
			s.EndNS = max(s.StartNS, measured.StartNS)
		}
		if there {
			list = append(list, s)
		}
	}
	return list
}
