package main

import (
	"sync"
	"time"

	"github.com/omnitap/omnitap/exporter/experiment"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// The phases of a run, in every record.
const (
	phaseWarmup   = "warmup"
	phaseMeasured = "measured"
)

// phases tags each record with the phase that its request began in, and says when a stop
// condition holds.
type phases struct {
	next timeline.Sink
	// warmup is what begins a run: so many requests, or so long from the first one's
	// beginning; 0 and 0 for none.
	requests int
	lasts    time.Duration
	// progress is told whenever a request of the measured phase has ended; nil for nobody.
	progress func(experiment.Progress)

	mu       sync.Mutex // protects what follows
	begun    int
	first    int64 // t_in of the first request
	switched int64 // when the measured phase began, 0 for not yet
	last     int64
	so       experiment.Progress
	of       map[string][]string // phases of requests under way, by id
}

func newPhases(requests int, lasts time.Duration) *phases {
	return &phases{requests: requests, lasts: lasts, of: map[string][]string{}}
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
	if p.begun++; p.first == 0 || mono < p.first {
		p.first = mono
	}
	warm := p.begun <= p.requests || p.lasts > 0 && mono < p.first+p.lasts.Nanoseconds()
	if warm {
		return phaseWarmup
	}
	if p.switched == 0 || mono < p.switched {
		p.switched = mono
	}
	return phaseMeasured
}

// Record is part of timeline.Sink.
func (p *phases) Record(r *timeline.Record) {
	c := *r
	p.mu.Lock()
	c.RunPhase = phaseMeasured // a record without a beginning, of a connection that was no request
	if list := p.of[r.RequestID]; len(list) > 0 {
		c.RunPhase = list[0]
		if p.of[r.RequestID] = list[1:]; len(list) == 1 {
			delete(p.of, r.RequestID)
		}
	}
	if c.Points.TTerm != nil {
		p.last = max(p.last, *c.Points.TTerm)
	}
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
	if p.switched > 0 {
		so.Elapsed = time.Duration(now - p.switched)
	}
	return so
}

// Session is part of timeline.Sink.
func (p *phases) Session(s *timeline.Session) { p.next.Session(s) }

// spans are the phases as metadata.json has them.
func (p *phases) spans() (list []rundir.RunPhase) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == 0 {
		return nil
	}
	if p.switched == 0 {
		return []rundir.RunPhase{{Name: phaseWarmup, StartNS: p.first, EndNS: p.last}}
	}
	if p.first < p.switched {
		list = append(list, rundir.RunPhase{Name: phaseWarmup, StartNS: p.first, EndNS: p.switched})
	}
	return append(list, rundir.RunPhase{Name: phaseMeasured, StartNS: p.switched, EndNS: p.last})
}
