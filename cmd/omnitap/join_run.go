package main

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/exporter/join"
	"github.com/omnitap/omnitap/exporter/nodes"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// partsJoin writes a run anew, with the stages of its parts. Records and events come in
// the order in which the run has them.
type partsJoin struct {
	parts  *parts
	out    *rundir.Writer
	joiner *join.Joiner
	sent   []sentRequest // by time
	why    []string      // why parts are left out

	ends   map[string][]*timeline.Event // terminal events that wait for their records
	faults []error
}

type sentRequest struct {
	at   int64
	flow string
}

func newPartsJoin(p *parts, out *rundir.Writer) *partsJoin {
	j := &partsJoin{parts: p, out: out, ends: map[string][]*timeline.Event{}, why: p.unknown()}
	j.joiner = join.New(join.Config{Requests: 1 << 16, Segments: 1 << 18, Each: 1 << 16, Held: 1 << 20})
	j.joiner.Processes(p.all)
	return j
}

// errOwnStages is a run that cannot be joined again: what its own probes saw is not in it.
var errOwnStages = errors.New("the run has stages of its own node, whose events it does not hold: " +
	"run the relay with --probes off and an agent beside it")

// run reads the run twice: first for when requests were sent, which all others of the flow
// are matched against, then to join them.
func (j *partsJoin) run(run *rundir.Run) error {
	for r, err := range run.Records() {
		if err != nil {
			continue // the second reading names it
		}
		if len(r.Stages) > 0 {
			return errOwnStages
		}
		if r.Points.TUp != nil {
			j.sent = append(j.sent, sentRequest{*r.Points.TUp, r.Flow})
		}
	}
	slices.SortFunc(j.sent, func(a, b sentRequest) int { return int(min(max(a.at-b.at, -1), 1)) })
	next, stop := iter.Pull2(run.Events())
	defer stop()
	for r, err := range run.Records() {
		if !j.readable(err) {
			continue
		}
		j.until(next, r)
		j.one(r)
	}
	for { // of requests whose records are damaged or were never written
		e, err, ok := next()
		if !ok {
			break
		}
		if j.readable(err) {
			j.out.Event(e)
		}
	}
	for _, list := range j.ends {
		for _, e := range list {
			j.out.Event(e)
		}
	}
	for q, err := range run.Quality() {
		if j.readable(err) {
			j.out.Quality(q)
		}
	}
	for s, err := range run.Sessions() {
		if j.readable(err) {
			j.out.Session(s)
		}
	}
	return nil
}

// readable says that there was no error; one is kept for the end.
func (j *partsJoin) readable(err error) bool {
	if err != nil && len(j.faults) < maxComplaints {
		j.faults = append(j.faults, err)
	}
	return err == nil
}

// complaints are what could not be read.
func (j *partsJoin) complaints() error {
	errs := slices.Clone(j.faults)
	for _, r := range j.parts.list {
		errs = append(errs, r.damaged...)
	}
	if err := incomplete(j.joiner.Stats()); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// until hands on events until a record's terminal event has come; those of others wait.
func (j *partsJoin) until(next func() (*timeline.Event, error, bool), r *timeline.Record) {
	for len(j.ends[r.RequestID]) == 0 {
		e, err, ok := next()
		if !ok {
			return
		}
		if !j.readable(err) {
			continue
		}
		if e.Event == "terminal" {
			j.ends[e.RequestID] = append(j.ends[e.RequestID], e)
			continue
		}
		j.out.Event(e)
	}
}

// one joins a request and writes it.
func (j *partsJoin) one(r *timeline.Record) {
	end := int64(0)
	for _, p := range []*int64{r.Points.TTerm, r.Points.TClose} {
		if p != nil {
			end = max(end, *p)
		}
	}
	upTo := end + quiesce + settle
	j.parts.feed(j.joiner, upTo)
	for len(j.sent) > 0 && j.sent[0].at <= upTo {
		j.joiner.Sent(j.sent[0].flow, j.sent[0].at)
		j.sent = j.sent[1:]
	}
	j.joiner.Flush(end + quiesce)
	x := j.joiner.Request(join.AskOf(r))
	if x.Request != "" {
		j.joiner.Forget(x.Request)
	}
	if len(j.why) > 0 && len(x.Stages) == 0 {
		all := strings.Join(j.why, "; ")
		x.Why, x.PathWhy, x.QuiesceWhy = all, all, all
	}
	x.Apply(r)
	x.Judge(r)
	j.place(r)
	for _, why := range append(j.parts.unsure(r), j.why...) {
		r.Warnings = append(r.Warnings, "stages: "+why)
	}
	j.ending(r, &x)
	j.out.Record(r)
}

// place says of each stage where it ran, with the process's number there.
func (j *partsJoin) place(r *timeline.Record) {
	for i := range r.Stages {
		s := &r.Stages[i]
		if n := j.parts.node(s.PID); n != r.Node {
			s.Node = n
		}
		_, s.PID = nodes.Own(s.PID)
	}
}

// ending writes the events of the stages and the one of the end.
func (j *partsJoin) ending(r *timeline.Record, x *join.Joined) {
	list := j.ends[r.RequestID]
	if len(list) == 0 {
		j.faults = append(j.faults, fmt.Errorf("request %s has no terminal event", r.RequestID))
		return
	}
	e := list[0]
	if j.ends[r.RequestID] = list[1:]; len(list) == 1 {
		delete(j.ends, r.RequestID)
	}
	where := map[string]string{}
	for i := range r.Stages {
		where[r.Stages[i].Stage] = r.Stages[i].Node
	}
	for _, s := range x.Events(eventOf(e), wallOf(e)) {
		if n := where[string(s.Stage)]; n != "" {
			s.Node = timeline.Text(n)
		}
		j.out.Event(&s)
	}
	e.Status = timeline.Text(r.Terminal.State)
	j.out.Event(e)
}
