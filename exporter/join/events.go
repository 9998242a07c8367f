package join

import (
	"cmp"
	"slices"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// Events are the moments of the request's stages, in order of time, with the words of
// contract section 6. like gives what is the same in all of them: run, request,
// session, attempt, node. wallNS is what is added to a monotonic stamp for the wall
// clock, 0 for not known. A moment that was not seen gives no event. Everything that
// Apply writes into a record, but for descriptions, can be derived from them.
func (x *Joined) Events(like timeline.Event, wallNS int64) []timeline.Event {
	b := eventsOf{like: like, wall: wallNS}
	b.add(timeline.EventSubmitted, x.AddedNS, timeline.Event{Stage: roleAPI, Match: timeline.Text(x.Match)})
	for i := range x.Stages {
		b.stage(&x.Stages[i])
	}
	for i := range x.Transfers {
		b.transfer(&x.Transfers[i], int64(i))
	}
	slices.SortStableFunc(b.list, func(a, b timeline.Event) int { return cmp.Compare(a.MonoNS, b.MonoNS) })
	return b.list
}

// instead is an event with another status where that applies.
func instead(e timeline.Event, applies bool, status timeline.Text) timeline.Event {
	if applies {
		e.Status = status
	}
	return e
}

type eventsOf struct {
	like timeline.Event
	wall int64
	list []timeline.Event
}

func (b *eventsOf) add(word string, at int64, e timeline.Event) {
	if at == 0 {
		return
	}
	l := &b.like
	e.RunID, e.RequestID, e.SessionID, e.Attempt, e.Node, e.Flow = l.RunID, l.RequestID, l.SessionID, l.Attempt, l.Node, l.Flow
	e.Event, e.MonoNS = word, at
	if b.wall != 0 {
		e.WallNS = timeline.N(at + b.wall)
	}
	b.list = append(b.list, e)
}

func (b *eventsOf) stage(s *Stage) {
	e := timeline.Event{Stage: timeline.Text(s.Stage), Match: timeline.Text(s.Match)}
	queued := e
	if s.QueuedNS == 0 { // its scheduler told no time
		queued.Status = "message"
	}
	b.add("enqueue", cmp.Or(s.QueuedNS, s.GotNS), queued)
	b.add("schedulable", s.ReadyNS, e)
	batch := e
	if s.s != nil && len(s.s.outputs) > 0 {
		batch.Batch = timeline.Positive(int64(s.s.outputs[0].batch))
	}
	b.add("batch_formed", s.ScheduledNS, batch)
	b.add("compute_start", s.StartNS, e)
	b.add("compute_end", s.FinishNS, e)
	b.add("cancel", s.AbortedNS, e)
	if s.s != nil {
		b.outputs(s, e)
	}
	b.usage(s, e)
	if s.GPU != nil {
		b.gpu(s)
	}
}

// outputs tells a stage's first output, its first with more than text and when the API
// process had that one, its last, and its steps: a run of steps with as many requests
// in each is one event, at the last of them.
func (b *eventsOf) outputs(s *Stage, e timeline.Event) {
	payload := s.s.firstPayload()
	if payload == nil {
		return
	}
	last := int64(0)
	for i := range s.s.outputs {
		last = max(last, s.s.outputs[i].sent)
	}
	b.add(timeline.EventFirstOutput, s.FirstNS, e)
	if payload.sent != s.FirstNS {
		b.add(timeline.EventFirstPayload, payload.sent, e)
	}
	if last != s.FirstNS && last != payload.sent {
		b.add(timeline.EventLastOutput, last, e)
	}
	got := e
	got.Peer = roleAPI
	b.add(timeline.EventPayloadReceived, payload.got, got)
	if s.Steps >= 0 {
		b.steps(s, e)
	}
}

func (b *eventsOf) steps(s *Stage, e timeline.Event) {
	run, at := e, int64(0)
	n := int64(0)
	for i := range s.s.outputs {
		o := &s.s.outputs[i]
		if o.batch <= 0 {
			continue
		}
		if batch, _ := run.Batch.Get(); n > 0 && batch != int64(o.batch) {
			run.Count = timeline.N(n)
			b.add(timeline.EventSteps, at, run)
			n = 0
		}
		n, at, run.Batch = n+1, cmp.Or(o.sent, o.got, at), timeline.N(int64(o.batch))
	}
	run.Count = timeline.N(n)
	b.add(timeline.EventSteps, at, run)
	if s.s.more > 0 { // beyond the bound: how many were in them is not kept
		run.Batch, run.Count = timeline.Number{}, timeline.N(int64(s.s.more))
		b.add(timeline.EventSteps, at, run)
	}
}

// usage tells the samples of a stage's processor time that its times rest on. Only
// differences between them mean something.
func (b *eventsOf) usage(s *Stage, e timeline.Event) {
	if s.Usage == nil || len(s.samples) == 0 {
		return
	}
	low := s.samples[0]
	for _, p := range s.samples {
		low.run, low.runnable, low.blocked = min(low.run, p.run), min(low.runnable, p.runnable), min(low.blocked, p.blocked)
	}
	for _, p := range s.samples {
		e.CPUNS, e.RunqNS, e.BlockedNS = timeline.N(p.run-low.run), timeline.N(p.runnable-low.runnable), timeline.N(p.blocked-low.blocked)
		b.add(timeline.EventUsage, p.at, e)
	}
}

// gpu tells the calls of the driver within a stage's time, a kind an event, at its end.
func (b *eventsOf) gpu(s *Stage) {
	g := s.GPU
	say := func(kind string, n, bytes, wait timeline.Number) {
		b.add(timeline.EventGPUCalls, s.FinishNS, timeline.Event{
			Stage: timeline.Text(s.Stage), Match: ByWindow, Status: timeline.Text(kind), Count: n, Bytes: bytes, WaitNS: wait,
		})
	}
	none := timeline.Number{}
	say("graph_launches", timeline.N(g.GraphLaunches), none, none)
	say("launches", timeline.N(g.Launches), none, none)
	say("syncs", timeline.N(g.Syncs), none, timeline.N(g.SyncNS))
	say("steps", timeline.N(int64(g.Steps)), none, timeline.Positive(g.StepNS))
	if g.LaunchesAtLeast {
		say("at_least", none, none, none)
	}
	for _, c := range []struct {
		kind string
		Copies
	}{{"to_device", g.ToDevice}, {"to_host", g.ToHost}, {"on_device", g.OnDevice}, {"copies", g.Untold}} {
		if c.N > 0 {
			say(c.kind, timeline.N(c.N), timeline.N(c.Bytes), none)
		}
	}
}

// number is a count, missing for -1.
func number(n int64) timeline.Number {
	if n < 0 {
		return timeline.Number{}
	}
	return timeline.N(n)
}

// transfer tells of a hand-over, the n-th of the record's. The status of an event says
// where its moment is not what its word says but the next best.
func (b *eventsOf) transfer(t *Transfer, n int64) {
	from := timeline.Event{
		Stage: timeline.Text(t.From), Peer: timeline.Text(t.To), ChunkID: number(t.Chunk), Bytes: number(t.Bytes),
		Transport: timeline.Text(t.Transport), Match: timeline.Text(t.Match), Transfer: timeline.N(n),
	}
	if t.Unread {
		from.Status = "unread"
	}
	to := from
	to.Stage, to.Peer = from.Peer, from.Stage
	b.add("transfer_start", cmp.Or(t.TxStart, t.Announced), instead(from, t.TxStart == 0, "announced"))
	b.add("transfer_end", cmp.Or(t.TxEnd, t.Announced), instead(from, t.TxEnd == 0, "announced"))
	b.add(timeline.EventAnnounced, t.Announced, instead(from, t.forwarded, "forwarded"))
	b.add(timeline.EventHeard, t.Heard, to)
	b.add(timeline.EventReceiveStart, t.RxStart, to)
	b.add("received", t.Received(), instead(instead(to, t.RxEnd == 0, "heard"), t.RxEnd == 0 && t.RxStart > 0, "begun"))
	if t.Misses >= 0 || t.Empty >= 0 || t.WaitStart > 0 {
		polls := instead(to, t.WaitStart > 0, "waited")
		polls.Count, polls.EmptyPolls = number(t.Misses), number(t.Empty)
		b.add(timeline.EventPolls, cmp.Or(t.WaitStart, t.Received(), t.Start()), polls)
	}
	// The sender's buffer is free when it has the answer; shared memory is when the
	// receiver unlinks it.
	if t.Acked > 0 {
		b.add("release", t.Acked, from)
	} else if t.EndBy == Syscall {
		b.add("release", t.RxEnd, from)
	}
}
