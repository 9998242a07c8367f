package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/omnitap/omnitap/exporter/join"
	"github.com/omnitap/omnitap/exporter/nodes"
	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// parts are what agents saw, read side by side in the time of one node.
type parts struct {
	list []*partReader
	all  []event.Process
}

// partReader reads one agent's events.
type partReader struct {
	part  *nodes.Part
	index int // in the process table of all parts
	clock *nodes.Clock
	sure  int64  // its worst uncertainty over the part, nanoseconds
	why   string // where the clock is not known: nothing of it is joined

	file    *os.File
	in      *event.Reader
	next    event.Event
	more    bool
	good    int
	damaged []error
}

// openParts opens the folders of agents for a run of a node.
func openParts(node string, dirs []string) (*parts, error) {
	if len(dirs) >= nodes.MaxParts {
		return nil, fmt.Errorf("%d parts are more than can be told apart (%d)", len(dirs), nodes.MaxParts-1)
	}
	p := &parts{}
	for i, dir := range dirs {
		part, err := nodes.ReadPart(dir)
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		if slices.ContainsFunc(p.list, func(o *partReader) bool {
			return o.part.Agent.Node == part.Agent.Node && o.part.Agent.BootID == part.Agent.BootID
		}) {
			return nil, errors.Join(fmt.Errorf("%s: there is a part of node %s already", dir, part.Agent.Node), p.close())
		}
		r := &partReader{part: part, index: i + 1}
		if r.clock, err = part.ClockTo(node); err != nil {
			r.why = fmt.Sprintf("the clock of node %s is not known: %v", part.Agent.Node, err)
		} else if err := r.open(); err != nil {
			return nil, errors.Join(err, p.close())
		} else {
			a := &part.Agent
			r.sure = r.clock.Worst(a.Start.MonoNS, cmp.Or(a.End, &a.Start).MonoNS)
		}
		p.list = append(p.list, r)
		p.all = append(p.all, r.processes()...)
	}
	return p, nil
}

// processes are the part's in the table of all parts. One without a clock has none.
func (r *partReader) processes() (list []event.Process) {
	if r.clock == nil {
		return nil
	}
	offset, _, _ := r.clock.At(r.middle())
	for _, q := range r.part.Processes {
		q.PID, q.Root, q.ClockNS = nodes.PID(r.index, q.PID), nodes.PID(r.index, q.Root), offset
		if q.PPID != nil {
			q.PPID = new(nodes.PID(r.index, *q.PPID))
		}
		list = append(list, q)
	}
	return list
}

// middle is a moment of the part's clock, for what is told once for all of it.
func (r *partReader) middle() int64 {
	a := &r.part.Agent
	if a.End == nil {
		return a.Start.MonoNS
	}
	return a.Start.MonoNS/2 + a.End.MonoNS/2
}

func (r *partReader) open() (err error) {
	if r.file, err = openRaw(r.part.Dir); err != nil {
		return err
	}
	r.in = event.NewReader(r.file)
	r.read()
	return nil
}

// read reads the next event, shifted. Damaged lines are named, and the rest is used.
func (r *partReader) read() {
	for {
		ok, err := r.in.Next(&r.next)
		if _, isLine := errors.AsType[*event.LineError](err); isLine {
			r.complain(err)
			continue
		}
		if err != nil {
			r.complain(err)
		}
		r.more = ok
		if !ok {
			return
		}
		r.good++
		offset, _, _ := r.clock.At(r.next.MonoNS)
		nodes.Shift(&r.next, r.index, offset)
		return
	}
}

func (r *partReader) complain(err error) {
	if len(r.damaged) < maxComplaints {
		r.damaged = append(r.damaged, fmt.Errorf("%s: %w", r.part.Dir, err))
	}
}

// feed gives a joiner all events up to a moment of the run's clock.
func (p *parts) feed(j *join.Joiner, upTo int64) {
	for {
		var first *partReader
		for _, r := range p.list {
			if r.more && r.next.MonoNS <= upTo && (first == nil || r.next.MonoNS < first.next.MonoNS) {
				first = r
			}
		}
		if first == nil {
			return
		}
		j.Add(&first.next)
		first.read()
	}
}

// unknown are the reasons why parts are left out.
func (p *parts) unknown() (why []string) {
	for _, r := range p.list {
		if r.why != "" {
			why = append(why, r.why)
		}
	}
	return why
}

// unsure says how far times of a request's stages may be off, for each machine whose clock
// is another one.
func (p *parts) unsure(r *timeline.Record) (why []string) {
	for _, part := range p.list {
		at := slices.IndexFunc(r.Stages, func(s timeline.Stage) bool {
			return cmp.Or(s.Node, r.Node) == part.part.Agent.Node
		})
		if at < 0 {
			continue
		}
		if part.sure > 0 {
			why = append(why, fmt.Sprintf("times of node %s are sure within %.3f ms", part.part.Agent.Node, float64(part.sure)/1e6))
		}
	}
	return why
}

// node is the machine of a process in the table of all parts, empty for none.
func (p *parts) node(pid int) string {
	i, _ := nodes.Own(pid)
	for _, r := range p.list {
		if r.index == i {
			return r.part.Agent.Node
		}
	}
	return ""
}

// partState is what topology.json says of a part.
type partState struct {
	Node   string `json:"node"`
	BootID string `json:"boot_id"`
	// OffsetNS is added to the node's monotonic clock for the run's, in the middle of the
	// part; UncertaintyNS is the worst over the part. Both null where it is not known.
	OffsetNS      *int64 `json:"clock_offset_ns"`
	UncertaintyNS *int64 `json:"clock_uncertainty_ns"`
	Why           string `json:"clock_why,omitempty"`
	Exchanges     int    `json:"clock_exchanges"`
	Events        int    `json:"events"`
	Lost          string `json:"lost,omitempty"`
	Open          bool   `json:"not_closed,omitempty"`
}

func (r *partReader) state() partState {
	a := &r.part.Agent
	s := partState{Node: a.Node, BootID: a.BootID, Why: r.why, Exchanges: len(r.part.Samples), Events: r.good, Lost: a.Lost, Open: a.End == nil}
	if r.clock == nil {
		return s
	}
	offset, _, _ := r.clock.At(r.middle())
	s.OffsetNS, s.UncertaintyNS = &offset, &r.sure
	return s
}

// partsTopology is topology.json of a joined run.
type partsTopology struct {
	Schema    int             `json:"schema"`
	Parts     []partState     `json:"parts"`
	Processes []event.Process `json:"processes"`
}

func (p *parts) topology() partsTopology {
	t := partsTopology{Schema: 1}
	for _, r := range p.list {
		t.Parts = append(t.Parts, r.state())
		t.Processes = append(t.Processes, r.part.Processes...)
	}
	return t
}

// says is what a reader is told of the parts.
func (p *parts) says() (lines []string) {
	for _, r := range p.list {
		s := r.state()
		switch {
		case s.OffsetNS == nil:
			lines = append(lines, s.Why+": its stages are left out")
		case *s.UncertaintyNS == 0:
			lines = append(lines, fmt.Sprintf("node %s shares its clock with the relay", s.Node))
		default:
			lines = append(lines, fmt.Sprintf("node %s: clock offset %.3f ms, sure within %.3f ms", s.Node, float64(*s.OffsetNS)/1e6, float64(*s.UncertaintyNS)/1e6))
		}
		if s.Open {
			lines = append(lines, fmt.Sprintf("the agent of node %s did not end in order", s.Node))
		}
		if s.Lost != "" {
			lines = append(lines, fmt.Sprintf("node %s: %s", s.Node, s.Lost))
		}
	}
	return lines
}

func (p *parts) close() error {
	var errs []error
	for _, r := range p.list {
		if r.file != nil {
			errs = append(errs, r.file.Close())
			r.file = nil
		}
	}
	return errors.Join(errs...)
}
