package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/omnitap/omnitap/probes"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// switched stands where stages does, for probes that come and go while requests are
// served: with them records wait for what the stages did, without them they pass.
type switched struct {
	next     timeline.Sink
	upstream string
	capture  string // folder for what the probes see, empty for none
	log      *slog.Logger

	// turn is held while the probes come or go: a relay that fails takes them away on its
	// own, beside whoever switches.
	turn sync.Mutex
	mu   sync.Mutex // protects what follows
	now  *probing   // nil while detached
}

// probing is a set of probes that is attached.
type probing struct {
	st    *stages
	stop  context.CancelFunc
	ended chan error
}

// attach attaches the probes, and returns when they have nothing but their work left to
// do: what they do at the start alone is not their cost. An error says what is missing;
// nothing is attached then.
func (s *switched) attach(ctx context.Context, c probes.Config) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.current() != nil {
		return errors.New("the probes are attached already")
	}
	st, err := openStages(ctx, c, s.upstream, s.capture, s.next, s.log)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &probing{st: st, stop: stop, ended: make(chan error, 1)}
	go func() { p.ended <- st.run(running) }()
	s.mu.Lock()
	s.now = p
	s.mu.Unlock()
	select {
	case <-st.set.Ready():
	case <-ctx.Done(): // whoever detaches is told what became of it
	}
	return nil
}

// detach takes the probes away when the records that wait for them have gone, and
// returns what they saw last. No request may be under way.
func (s *switched) detach(ctx context.Context) (probes.Status, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	p := s.current()
	if p == nil {
		return probes.Status{}, nil
	}
	patience, cancel := context.WithTimeout(ctx, drainLimit)
	p.st.drain(patience)
	cancel()
	p.stop()
	err := <-p.ended
	s.mu.Lock()
	s.now = nil
	s.mu.Unlock()
	return p.st.set.Status(), err
}

func (s *switched) current() *probing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// to is who takes what comes now.
func (s *switched) to() timeline.Sink {
	if p := s.current(); p != nil {
		return p.st
	}
	return s.next
}

// Event is part of timeline.Sink.
func (s *switched) Event(e *timeline.Event) { s.to().Event(e) }

// Session is part of timeline.Sink.
func (s *switched) Session(x *timeline.Session) { s.to().Session(x) }

// Record is part of timeline.Sink.
func (s *switched) Record(r *timeline.Record) { s.to().Record(r) }
