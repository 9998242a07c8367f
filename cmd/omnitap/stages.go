package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/omnitap/omnitap/exporter/join"
	"github.com/omnitap/omnitap/probes"
	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// stages stands between the analysis and the sinks: a record waits there, with its
// terminal event, until everything that the stages did for the request has been read,
// so that what is written says where the time went. It is a timeline.Sink on one side
// and a probes.Sink on the other.
type stages struct {
	next timeline.Sink
	set  *probes.Set
	film *stageFilm // nil where no capture is asked for

	mu     sync.Mutex // protects what follows
	joiner *join.Joiner
	// server is the kind of server that was found, told whoever asked for it; found says
	// that a stage process ever was.
	server string
	found  bool
	told   func(server string)
	// ends holds, by request id, the terminal events that wait for their records.
	ends    map[string][]timeline.Event
	waiting []*waiting
	handing int           // taken out of waiting, and not yet handed on
	over    bool          // no batch will come any more
	empty   chan struct{} // closed once nothing waits, nil while nobody asks
}

// waiting is a record that waits.
type waiting struct {
	record *timeline.Record
	ends   []timeline.Event
	until  int64 // CLOCK_MONOTONIC nanoseconds
}

const (
	// settle is how long after a request's end its stages are asked: the rings are read
	// every few milliseconds, the bytes of other connections within tens.
	settle = 150_000_000
	// quiesce is how long they are watched after the client has left: stages were seen
	// to go on for up to 190 ms.
	quiesce = 600_000_000
	// maxWaiting bounds the records that wait. Beyond it they go on without stages.
	maxWaiting = 16384
)

// localPort is the port of an upstream on this machine: its processes can be seen.
func localPort(ctx context.Context, upstream string) (int, error) {
	u, err := url.Parse(upstream)
	if err != nil {
		return 0, fmt.Errorf("reading the upstream's address: %w", err)
	}
	port, err := strconv.Atoi(cmp.Or(u.Port(), map[string]string{"https": "443"}[u.Scheme], "80"))
	if err != nil {
		return 0, fmt.Errorf("reading the upstream's port: %w", err)
	}
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, u.Hostname())
	if err != nil {
		return 0, fmt.Errorf("looking up the upstream: %w", err)
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return 0, fmt.Errorf("reading this machine's addresses: %w", err)
	}
	for _, ip := range ips {
		mine := func(a net.Addr) bool { n, ok := a.(*net.IPNet); return ok && n.IP.Equal(ip.IP) }
		if ip.IP.IsLoopback() || slices.ContainsFunc(own, mine) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("the upstream %s is another machine: its stages cannot be seen from here", u.Hostname())
}

// openStages attaches the probes; records go to next. The error says what is missing
// and what grants it. capture is a folder for what they see, empty for none.
func openStages(ctx context.Context, c probes.Config, upstream, capture string, next timeline.Sink, log *slog.Logger) (*stages, error) {
	port, err := localPort(ctx, upstream)
	if err != nil {
		return nil, err
	}
	finder, err := probes.NewFinder(c, port)
	if err != nil {
		return nil, err
	}
	s := newStages(next)
	if capture != "" {
		if s.film, err = newStageFilm(capture, log); err != nil {
			return nil, err
		}
	}
	if s.set, err = probes.Open(ctx, c, finder, s, log); err != nil {
		if s.film != nil {
			err = errors.Join(err, s.film.discard())
		}
		return nil, err
	}
	return s, nil
}

// newStages makes what stands between, without probes.
func newStages(next timeline.Sink) *stages {
	return &stages{next: next, joiner: join.New(join.Config{}), ends: map[string][]timeline.Event{}}
}

// run reads the probes until ctx ends; then no record waits any more.
func (s *stages) run(ctx context.Context) error {
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { s.watch(stop) })
	err := s.set.Run(ctx)
	close(stop)
	watching.Wait()
	s.mu.Lock()
	s.over = true
	rest, ends := s.waiting, s.ends
	s.waiting, s.ends = nil, map[string][]timeline.Event{}
	s.joiner.Flush(join.Everything)
	s.mu.Unlock()
	for _, w := range rest {
		s.release(w)
	}
	for _, list := range ends { // of requests whose records come behind the end
		for i := range list {
			s.next.Event(&list[i])
		}
	}
	if s.film != nil {
		err = errors.Join(err, s.film.close())
	}
	return err
}

// overdue is how long a record waits for a reader that says nothing, and unheardOf why
// it has no stages then. A reader that is merely late has seconds of CPU to wait for.
const (
	overdue   = 2_000_000_000
	unheardOf = "the probes' reader has not answered for 2 s"
)

// watch lets records go on that nothing came for, until stop is closed: a reader that
// is stuck must not hold them.
func (s *stages) watch(stop <-chan struct{}) {
	tick := time.NewTicker(overdue / 8)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			due := s.due(tap.Monotonic() - overdue)
			for _, w := range due {
				s.hand(w, &join.Joined{Why: unheardOf, PathWhy: unheardOf, QuiesceNS: -1, QuiesceWhy: unheardOf})
			}
			s.handed(len(due))
			s.emptied()
		}
	}
}

// due takes out what has waited for long enough at a time.
func (s *stages) due(now int64) (due []*waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(w *waiting) bool {
		if w.until > now {
			return false
		}
		due = append(due, w)
		return true
	})
	s.handing += len(due)
	return due
}

// held is how many records wait, or are on their way on.
func (s *stages) held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) + s.handing
}

// handed says that so many due records have gone on.
func (s *stages) handed(n int) {
	s.mu.Lock()
	s.handing -= n
	s.mu.Unlock()
}

// emptied tells whoever drains that nothing waits any more.
func (s *stages) emptied() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.empty != nil && len(s.waiting) == 0 {
		close(s.empty)
		s.empty = nil
	}
}

// drain waits until no record waits any more, or ctx ends.
func (s *stages) drain(ctx context.Context) {
	s.mu.Lock()
	s.empty = make(chan struct{})
	done := s.empty
	if len(s.waiting) == 0 {
		close(done)
		s.empty = nil
	}
	s.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// onServer has told called with the kind of the server, now and when it changes.
func (s *stages) onServer(told func(server string)) {
	s.mu.Lock()
	s.told = told
	server := s.server
	s.mu.Unlock()
	told(server)
}

// Processes is part of probes.Sink.
func (s *stages) Processes(p event.Processes) {
	server := ""
	for i := range p.Processes {
		if p.Processes[i].Role != "api" {
			server = p.Processes[i].Server
		}
	}
	s.mu.Lock()
	s.joiner.Processes(p.Processes)
	s.server, s.found = server, s.found || server != ""
	told := s.told
	s.mu.Unlock()
	if s.film != nil {
		s.film.processes(p)
	}
	if told != nil {
		told(server)
	}
}

// Events is part of probes.Sink.
func (s *stages) Events(batch []event.Event, now int64) {
	if s.film != nil {
		s.film.events(batch)
	}
	s.mu.Lock()
	for i := range batch {
		s.joiner.Add(&batch[i])
	}
	s.joiner.Flush(now - settle/2)
	s.mu.Unlock()
	due := s.due(now)
	for _, w := range due {
		s.release(w)
	}
	s.handed(len(due))
	s.emptied()
}

// Event is part of timeline.Sink.
func (s *stages) Event(e *timeline.Event) {
	switch e.Event {
	case "upstream_sent":
		s.mu.Lock()
		s.joiner.Sent(e.Flow, e.MonoNS)
		s.mu.Unlock()
	case "terminal":
		s.mu.Lock()
		held := !s.over && len(s.ends) < maxWaiting
		if held {
			s.ends[e.RequestID] = append(s.ends[e.RequestID], *e)
		}
		s.mu.Unlock()
		if held {
			return
		}
	}
	s.next.Event(e)
}

// Session is part of timeline.Sink.
func (s *stages) Session(x *timeline.Session) { s.next.Session(x) }

// Record is part of timeline.Sink.
func (s *stages) Record(r *timeline.Record) {
	c := *r // others may still read the record itself
	w := &waiting{record: &c}
	s.mu.Lock()
	if e := s.ends[r.RequestID]; len(e) > 0 { // turns may share an id: first come, first served
		w.ends = e[:1:1]
		if s.ends[r.RequestID] = e[1:]; len(e) == 1 {
			delete(s.ends, r.RequestID)
		}
	}
	found := s.found || s.set == nil
	wait := found && !s.over && len(s.waiting) < maxWaiting && r.Points.TIn != nil
	if wait {
		w.until = s.until(&c)
		s.waiting = append(s.waiting, w)
	}
	s.mu.Unlock()
	switch {
	case wait:
	case !found: // nothing will come
		s.hand(w, &join.Joined{Why: notFound, PathWhy: notFound, QuiesceNS: -1, QuiesceWhy: notFound})
	default:
		s.release(w)
	}
}

// notFound is why a record of a server without stages has none.
const notFound = "no stage process was found"

// until is when everything that the stages did for a request has been read.
func (s *stages) until(r *timeline.Record) int64 {
	now, end := tap.Monotonic(), int64(0)
	for _, p := range []*int64{r.Points.TTerm, r.Points.TClose} {
		if p != nil {
			end = max(end, *p)
		}
	}
	if end == 0 || end > now {
		end = now
	}
	if a := join.AskOf(r); a.CancelNS > 0 {
		return end + quiesce
	}
	return end + settle
}

// release joins a record and hands it on.
func (s *stages) release(w *waiting) {
	s.mu.Lock()
	x := s.joiner.Request(join.AskOf(w.record))
	if s.set != nil {
		x.Unwatched = s.set.Status().Unwatched()
	}
	if x.Request != "" {
		s.joiner.Forget(x.Request)
	}
	s.mu.Unlock()
	s.hand(w, &x)
}

// hand hands a record on, with what its stages did.
func (s *stages) hand(w *waiting, x *join.Joined) {
	r := w.record
	r.Unmeasured = maps.Clone(r.Unmeasured)
	x.Apply(r)
	x.Judge(r)
	if len(w.ends) > 0 {
		for _, e := range x.Events(eventOf(&w.ends[0]), wallOf(&w.ends[0])) {
			s.next.Event(&e)
		}
	}
	for i := range w.ends {
		w.ends[i].Status = timeline.Text(r.Terminal.State)
		s.next.Event(&w.ends[i])
	}
	s.next.Record(r)
}

// eventOf is what all events of a request have in common.
func eventOf(e *timeline.Event) timeline.Event {
	return timeline.Event{RunID: e.RunID, RequestID: e.RequestID, SessionID: e.SessionID, Attempt: e.Attempt, Node: e.Node}
}

func wallOf(e *timeline.Event) int64 {
	if w, ok := e.WallNS.Get(); ok {
		return w - e.MonoNS
	}
	return 0
}
