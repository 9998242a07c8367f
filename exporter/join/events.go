package join

import (
	"cmp"
	"slices"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// Events are the moments of the request's stages, in order of time, with the words of
// contract section 6. like gives what is the same in all of them: run, request,
// session, attempt, node. wallNS is what is added to a monotonic stamp for the wall
// clock, 0 for not known. A moment that was not seen gives no event.
func (x *Joined) Events(like timeline.Event, wallNS int64) []timeline.Event {
	b := eventsOf{like: like, wall: wallNS}
	for i := range x.Stages {
		b.stage(&x.Stages[i])
	}
	for i := range x.Transfers {
		b.transfer(&x.Transfers[i])
	}
	slices.SortStableFunc(b.list, func(a, b timeline.Event) int { return cmp.Compare(a.MonoNS, b.MonoNS) })
	return b.list
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
	o := b.like
	o.Event, o.MonoNS, o.WallNS = word, at, timeline.Number{}
	if b.wall != 0 {
		o.WallNS = timeline.N(at + b.wall)
	}
	o.Stage, o.ChunkID, o.Bytes, o.Batch, o.Status = e.Stage, e.ChunkID, e.Bytes, e.Batch, e.Status
	o.Transport, o.Peer, o.Match = e.Transport, e.Peer, e.Match
	b.list = append(b.list, o)
}

func (b *eventsOf) stage(s *Stage) {
	e := timeline.Event{Stage: timeline.Text(s.Stage), Match: timeline.Text(s.Match)}
	b.add("enqueue", cmp.Or(s.QueuedNS, s.GotNS), e)
	b.add("schedulable", s.ReadyNS, e)
	batch := e
	if s.s != nil && len(s.s.outputs) > 0 {
		batch.Batch = timeline.Positive(int64(s.s.outputs[0].batch))
	}
	b.add("batch_formed", s.ScheduledNS, batch)
	b.add("compute_start", s.StartNS, e)
	b.add("compute_end", s.FinishNS, e)
	b.add("cancel", s.AbortedNS, e)
}

// number is a count, missing for -1.
func number(n int64) timeline.Number {
	if n < 0 {
		return timeline.Number{}
	}
	return timeline.N(n)
}

func (b *eventsOf) transfer(t *Transfer) {
	from := timeline.Event{
		Stage: timeline.Text(t.From), Peer: timeline.Text(t.To), ChunkID: number(t.Chunk), Bytes: number(t.Bytes),
		Transport: timeline.Text(t.Transport), Match: timeline.Text(t.Match),
	}
	if t.Unread {
		from.Status = "unread"
	}
	to := from
	to.Stage, to.Peer = from.Peer, from.Stage
	b.add("transfer_start", cmp.Or(t.TxStart, t.Announced), from)
	b.add("transfer_end", cmp.Or(t.TxEnd, t.Announced), from)
	b.add("received", t.Received(), to)
	// The sender's buffer is free when it has the answer; shared memory is when the
	// receiver unlinks it.
	if t.Acked > 0 {
		b.add("release", t.Acked, from)
	} else if t.EndBy == Syscall {
		b.add("release", t.RxEnd, from)
	}
}
