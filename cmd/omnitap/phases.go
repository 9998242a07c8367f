package main

import (
	"cmp"
	"sync"
	"time"

	"github.com/omnitap/omnitap/exporter/energy"
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
	count   int        // requests that have begun
	first   int64      // t_in of the first request
	stopped int64      // when the load was told to end, 0 for not yet
	// span is each phase from the first beginning to the last end of its requests. With
	// several at once phases may overlap: requests are not heard of in the order of t_in.
	span map[string]rundir.RunPhase
	so   experiment.Progress
	// audio is the seconds of sound of the measured phase's successes.
	audio float64
	of    map[string][]begun // requests under way, by id
}

// begun is a request that has begun: which one it is, counted from 1, and its phase.
type begun struct {
	number int
	phase  string
}

func newPhases(requests int, lasts time.Duration) *phases {
	return &phases{requests: requests, lasts: lasts, span: map[string]rundir.RunPhase{}, of: map[string][]begun{}}
}

// Event is part of timeline.Sink: a request's first event says when it began.
func (p *phases) Event(e *timeline.Event) {
	if e.Event == "ingress" {
		p.mu.Lock()
		b, opened := p.take(string(e.SessionID)) // by a request that has no record of its own
		if !opened {
			p.count++
			b.number = p.count
		}
		if p.count == 1 || e.MonoNS < p.first {
			p.first = e.MonoNS
		}
		b.phase = p.late(p.at(b.number, e.MonoNS), e.MonoNS)
		p.widen(b.phase, e.MonoNS, e.MonoNS)
		p.of[e.RequestID] = append(p.of[e.RequestID], b)
		p.mu.Unlock()
	}
	p.next.Event(e)
}

// take takes out the request of an id that began first.
func (p *phases) take(id string) (b begun, ok bool) {
	list := p.of[id]
	if len(list) == 0 {
		return begun{}, false
	}
	if p.of[id] = list[1:]; len(list) == 1 {
		delete(p.of, id)
	}
	return list[0], true
}

// at is the phase of the request of a number at a time.
func (p *phases) at(number int, mono int64) string {
	over := p.lasts > 0 && p.count > 0 && mono >= p.first+p.lasts.Nanoseconds()
	if p.requests == 0 && p.lasts == 0 || p.requests > 0 && number > p.requests || over {
		return phaseMeasured
	}
	return phaseWarmup
}

// late is the phase of what reaches to a time: the end that we made is nobody's.
func (p *phases) late(phase string, mono int64) string {
	if phase == phaseMeasured && p.stopped > 0 && mono > p.stopped {
		return phaseCooldown
	}
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
	b, ok := p.take(r.RequestID)
	if !ok {
		session := ""
		if r.SessionID != nil {
			session = *r.SessionID
		}
		if b, ok = p.take(session); !ok {
			b.number = p.count
		}
		b.phase = p.at(b.number, *ended)
	}
	b.phase = p.late(b.phase, *ended)
	p.widen(b.phase, *cmp.Or(r.Points.TIn, ended), *ended)
	return b.phase
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
		} else if c.AudioS != nil {
			p.audio += *c.AudioS
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

// spent is the measured phase, its successes, and the seconds of sound that they brought,
// nil for none.
func (p *phases) spent() (w energy.Window, successes int, audio *float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.span[phaseMeasured]
	if p.audio > 0 {
		audio = new(p.audio)
	}
	return energy.Window{FromNS: s.StartNS, ToNS: s.EndNS}, p.so.Ended - p.so.Failed, audio
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

// Session is part of timeline.Sink. A session without a turn has no record.
func (p *phases) Session(s *timeline.Session) {
	p.mu.Lock()
	p.take(s.SessionID)
	p.mu.Unlock()
	p.next.Session(s)
}

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
