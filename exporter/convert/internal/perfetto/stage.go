package perfetto

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// stages draws what each stage did for a request, and what they handed on.
func (t *Trace) stages(number int64, r *timeline.Record) error {
	t.work = t.work[:0]
	for i := range r.Stages {
		s := &r.Stages[i]
		uuid, err := t.stage(s.Stage, s.PID, number)
		if err != nil {
			return err
		}
		if err := t.worked(uuid, r, s); err != nil {
			return err
		}
	}
	for i := range r.Transfers {
		if err := t.transfer(number, i, r); err != nil {
			return err
		}
	}
	return nil
}

// stage is the track of one request's work in a stage process. The tracks of a process
// have one name: a reader lays them into as few rows as do not overlap.
func (t *Trace) stage(name string, pid int, number int64) (uint64, error) {
	process := t.id("stage", name, strconv.Itoa(pid))
	title := fmt.Sprintf("%s (pid %d)", name, pid)
	if pid == 0 {
		title = name + " (pid not known)"
	}
	if err := t.once(track{uuid: process, parent: t.id("run"), name: title, rank: rankStages}); err != nil {
		return 0, err
	}
	uuid := t.id("work", name, strconv.Itoa(pid), strconv.FormatInt(number, 10))
	if slices.Contains(t.work, uuid) {
		return uuid, nil
	}
	t.work = append(t.work, uuid)
	return uuid, t.e.describe(track{uuid: uuid, parent: process, name: name})
}

func (t *Trace) worked(uuid uint64, r *timeline.Record, s *timeline.Stage) error {
	if s.ReadyNS != nil && s.StartNS != nil {
		args := []arg{{"request_id", r.RequestID}, {"ms", s.WaitMS}, {"queue_ms", s.QueueMS}, {"match", s.Match}}
		if err := t.slice(mark{track: uuid, at: *s.ReadyNS, name: "wait", args: args}, *s.StartNS); err != nil {
			return err
		}
	}
	if s.StartNS == nil || s.FinishNS == nil {
		return nil
	}
	args := []arg{
		{"request_id", r.RequestID},
		{"ms", s.ServiceMS},
		{"cpu_ms", s.CPUMS},
		{"runq_ms", s.RunqMS},
		{"blocked_ms", s.BlockedMS},
		{"starved_ms", s.StarvedMS},
		{"steps", s.Steps},
		{"match", s.Match},
		{"confidence", s.Confidence},
	}
	if s.Batch != nil {
		args = append(args, arg{"batch_mean", s.Batch.Mean})
	}
	return t.slice(mark{track: uuid, at: *s.StartNS, name: "service", args: args}, *s.FinishNS)
}

// transfer draws a hand-over as two marks with an arrow between them.
func (t *Trace) transfer(number int64, i int, r *timeline.Record) error {
	x := &r.Transfers[i]
	from, err := t.stage(x.From, pidOf(r, x.From), number)
	if err != nil {
		return err
	}
	args := []arg{
		{"request_id", r.RequestID},
		{"transport", x.Transport},
		{"bytes", x.Bytes},
		{"chunk", x.Chunk},
		{"write_ms", x.WriteMS},
		{"in_flight_ms", x.InFlightMS},
		{"read_ms", x.ReadMS},
		{"wait_ms", x.WaitMS},
		{"match", x.Match},
		{"unread", x.Unread},
	}
	sent := mark{kind: typeInstant, track: from, at: x.StartNS, name: "to " + x.To, args: args}
	if x.EndNS == nil {
		return t.e.mark(sent)
	}
	if *x.EndNS >= x.StartNS { // an arrow that ends ahead of its begin is dropped by readers
		sent.flow = t.id("flow", strconv.FormatInt(number, 10), strconv.Itoa(i))
	}
	if err := t.e.mark(sent); err != nil {
		return err
	}
	to, err := t.stage(x.To, pidOf(r, x.To), number)
	if err != nil {
		return err
	}
	return t.e.mark(mark{
		kind: typeInstant, track: to, at: *x.EndNS, name: "from " + x.From,
		flow: sent.flow, last: true, args: []arg{{"request_id", r.RequestID}, {"bytes", x.Bytes}},
	})
}

// pidOf is the process of a stage that worked on the request, 0 for none that is known.
func pidOf(r *timeline.Record, stage string) int {
	for i := range r.Stages {
		if r.Stages[i].Stage == stage {
			return r.Stages[i].PID
		}
	}
	return 0
}
