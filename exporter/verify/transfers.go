package verify

import (
	"math"
	"slices"

	"github.com/omnitap/omnitap/exporter/rundir"
)

// edge is what the events of one transfer have in common.
type edge struct {
	from, to, transport name
	chunk, bytes        int64
	unread              bool
}

// ends are the moments of the transfers of an edge that no record has claimed yet.
type ends struct{ started, sent, received []*event }

// edges gathers the transfers' events.
func (j *judge) edges() map[edge]*ends {
	all := map[edge]*ends{}
	for _, e := range j.stage {
		k := edge{e.stage, e.peer, e.transport, e.chunk, e.bytes, j.v.names.text(e.status) == "unread"}
		if e.kind == received {
			k.from, k.to = k.to, k.from
		}
		if e.kind != transferStart && e.kind != transferEnd && e.kind != received {
			continue
		}
		x := all[k]
		if x == nil {
			x = &ends{}
			all[k] = x
		}
		switch e.kind {
		case transferStart:
			x.started = append(x.started, e)
		case transferEnd:
			x.sent = append(x.sent, e)
		default:
			x.received = append(x.received, e)
		}
	}
	return all
}

// claim takes the event of a moment out of a list.
func claim(list *[]*event, mono int64) bool {
	i := slices.IndexFunc(*list, func(e *event) bool { return e.mono == mono })
	if i < 0 {
		return false
	}
	*list = slices.Delete(*list, i, i+1)
	return true
}

// transfers holds the hand-overs between stages to their events.
func (j *judge) transfers() {
	all := j.edges()
	var odd []int
	for i := range j.rec.Transfers {
		t := &j.rec.Transfers[i]
		j.lengths(t)
		if !j.transfer(t, all[j.edgeOf(t)]) {
			odd = append(odd, i)
		}
	}
	for _, i := range odd {
		t := &j.rec.Transfers[i]
		x := all[j.edgeOf(t)]
		if x == nil || len(x.started) == 0 {
			j.v.lacks("transfers[].start_ns", "no event tells when the sender began: its part was not seen")
			continue
		}
		j.differs("transfers[].start_ns", t.StartNS, x.started[0].mono, exact)
		x.started = x.started[1:]
	}
	j.unclaimed(all)
}

func (j *judge) edgeOf(t *transfer) edge {
	n := j.v.names
	k := edge{n.number([]byte(t.From)), n.number([]byte(t.To)), n.number([]byte(t.Transport)), absent, absent, t.Unread}
	if t.Chunk != nil {
		k.chunk = *t.Chunk
	}
	if t.Bytes != nil {
		k.bytes = *t.Bytes
	}
	return k
}

// transfer compares one transfer and reports whether an event tells its start.
func (j *judge) transfer(t *transfer, x *ends) bool {
	if x == nil {
		x = &ends{}
	}
	if t.EndNS != nil {
		j.v.res.Compared["transfers[].end_ns"]++
		if !claim(&x.received, *t.EndNS) {
			var got any
			if len(x.received) > 0 {
				got = x.received[0].mono
				x.received = x.received[1:]
			}
			j.differs("transfers[].end_ns", *t.EndNS, got, exact)
		}
	}
	if t.WriteMS != nil {
		j.v.res.Compared["transfers[].write_ms"]++
		if !claim(&x.sent, t.StartNS+ns(*t.WriteMS)) {
			j.say(KindValue, "transfers[].write_ms", "%v ms from %d ns on, and no transfer_end event is there", *t.WriteMS, t.StartNS)
		}
	}
	if t.WriteMS != nil && t.InFlightMS != nil && t.ReadMS != nil && t.EndNS != nil {
		j.count("transfers[].in_flight_ms + read_ms", ns(*t.WriteMS)+ns(*t.InFlightMS)+ns(*t.ReadMS), *t.EndNS-t.StartNS)
	}
	if !claim(&x.started, t.StartNS) {
		return false
	}
	j.v.res.Compared["transfers[].start_ns"]++
	return true
}

// ns is a length of time in whole nanoseconds, as it was before it was divided.
func ns(ms float64) int64 { return int64(math.Round(ms * 1e6)) }

// lengths wants no time that goes backwards.
func (j *judge) lengths(t *transfer) {
	if t.EndNS != nil && *t.EndNS < t.StartNS {
		j.say(KindConservation, "transfers[].end_ns", "%s->%s ends at %d ns, ahead of its start at %d", clip(t.From), clip(t.To), *t.EndNS, t.StartNS)
	}
	for _, l := range []struct {
		field string
		ms    *float64
	}{{"write_ms", t.WriteMS}, {"in_flight_ms", t.InFlightMS}, {"read_ms", t.ReadMS}, {"wait_ms", t.WaitMS}} {
		if l.ms != nil && *l.ms < 0 {
			j.say(KindConservation, "transfers[]."+l.field, "%v ms, a time is not below 0", *l.ms)
		}
	}
}

// unclaimed tells of events of transfers that the record does not have.
func (j *judge) unclaimed(all map[edge]*ends) {
	var left []*event
	for _, x := range all {
		left = append(append(left, x.started...), x.received...)
	}
	if len(left) == 0 {
		return
	}
	first := slices.MinFunc(left, func(a, b *event) int { return int(a.line - b.line) })
	n := j.v.names
	j.sayAt(first, KindOrphan, "%s of %s to %s, and %d more: %s has no such transfer", words[first.kind],
		clip(n.text(first.stage)), clip(n.text(first.peer)), len(left)-1, rundir.RequestsFile)
}
