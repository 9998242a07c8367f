package verify

import (
	"cmp"

	"github.com/omnitap/omnitap/exporter/rundir"
)

// The statuses of a stage's event whose moment is the next best of what its word says.
const (
	byAnnouncement = "announced"
	byForwarding   = "forwarded"
	byBeginning    = "begun"
	byHearing      = "heard"
	byMessage      = "message"
	ofNobody       = "unread"
	inVain         = "waited"
)

// handover is what the events tell of one transfer; nil for what was not seen.
type handover struct {
	any               *event // one of its events: all name the same stages and bytes
	from, to          name
	txStart, txEnd    *int64
	announced, heard  *int64
	rxStart, rxEnd    *int64
	waited            *int64
	misses, empty     *int64
	unread, forwarded bool
}

// number is a value of an event, nil for none.
func number(v int64) *int64 {
	if v == absent {
		return nil
	}
	return &v
}

// handovers gathers the events of transfers by their numbers.
func (j *judge) handovers() map[int64]*handover {
	all := map[int64]*handover{}
	for _, e := range j.stage {
		if e.transfer == absent {
			continue
		}
		h := all[e.transfer]
		if h == nil {
			h = &handover{any: e, from: e.stage, to: e.peer}
			if toReceiver(e.kind) {
				h.from, h.to = h.to, h.from
			}
			all[e.transfer] = h
		}
		j.partOf(h, e)
	}
	return all
}

// toReceiver reports whether a transfer's event is the receiver's.
func toReceiver(k kind) bool { return k == received || k == heard || k == receiveStart || k == polls }

func (j *judge) partOf(h *handover, e *event) {
	from, to := e.stage, e.peer
	if toReceiver(e.kind) {
		from, to = to, from
	}
	if from != h.from || to != h.to || e.transport != h.any.transport || e.chunk != h.any.chunk || e.bytes != h.any.bytes {
		j.sayAt(e, KindValue, "%s of transfer %d does not name what line %d does", words[e.kind], e.transfer, h.any.line)
	}
	status := j.v.names.text(e.status)
	h.unread = h.unread || status == ofNobody
	switch e.kind {
	case announced:
		h.forwarded = status == byForwarding
	case polls:
		h.misses, h.empty = number(e.count), number(e.empty)
	default:
	}
	p := h.moment(e.kind)
	switch {
	case p == nil, nextBest(status), e.kind == polls && status != inVain:
	case *p != nil:
		j.sayAt(e, KindOrder, "a second %s of transfer %d", words[e.kind], e.transfer)
	default:
		*p = &e.mono
	}
}

// moment is where the moment of an event is kept, nil for one that no record needs.
func (h *handover) moment(k kind) **int64 {
	switch k {
	case transferStart:
		return &h.txStart
	case transferEnd:
		return &h.txEnd
	case announced:
		return &h.announced
	case heard:
		return &h.heard
	case receiveStart:
		return &h.rxStart
	case received:
		return &h.rxEnd
	case polls:
		return &h.waited
	default:
		return nil // its release
	}
}

// nextBest reports whether a status says that an event's moment is another one's.
func nextBest(status string) bool {
	return status == byAnnouncement || status == byBeginning || status == byHearing
}

// got is when the receiver had it, nil for never.
func (h *handover) got() *int64 { return cmp.Or(h.rxEnd, h.rxStart, h.heard) }

// start is when it began, as far as was seen.
func (h *handover) start() *int64 {
	return cmp.Or(h.txStart, h.announced, h.heard, h.rxStart, h.txEnd, h.rxEnd)
}

// read is the receiver's copying. One that asks ahead of the sender's beginning does
// not copy from there on.
func (h *handover) read() *float64 {
	if h.rxStart == nil || h.txStart != nil && *h.rxStart < *h.txStart {
		return nil
	}
	return span(h.rxStart, h.rxEnd)
}

// inFlight is from the sender's end to the receiver's beginning, which there is none of
// where the receiver asks first.
func (h *handover) inFlight(transport string) *float64 {
	if transport == "tcp" || transport == "mooncake" {
		return nil
	}
	return span(cmp.Or(h.txEnd, h.announced), cmp.Or(h.rxStart, h.heard))
}

// numberedTransfers holds each hand-over to the events of its number.
func (j *judge) numberedTransfers(all map[int64]*handover) {
	for i := range j.rec.Transfers {
		t, h := &j.rec.Transfers[i], all[int64(i)]
		j.lengths(t)
		if h == nil {
			j.say(KindOrder, "transfers[].start_ns", "no event of transfer %d, %s to %s, is there", i, clip(t.From), clip(t.To))
			continue
		}
		j.handover(t, h)
	}
	for _, e := range j.stage {
		if e.transfer >= int64(len(j.rec.Transfers)) {
			j.sayAt(e, KindOrphan, "%s of transfer %d: %s has no such transfer", words[e.kind], e.transfer, rundir.RequestsFile)
			return
		}
	}
}

func (j *judge) handover(t *transfer, h *handover) {
	n := j.v.names
	j.word("transfers[].from", t.From, n.text(h.from))
	j.word("transfers[].to", t.To, n.text(h.to))
	j.word("transfers[].transport", t.Transport, n.text(h.any.transport))
	j.int("transfers[].bytes", t.Bytes, number(h.any.bytes))
	j.int("transfers[].chunk", t.Chunk, number(h.any.chunk))
	j.int("transfers[].start_ns", &t.StartNS, h.start())
	j.int("transfers[].end_ns", t.EndNS, h.got())
	j.float("transfers[].write_ms", t.WriteMS, span(h.txStart, h.txEnd), rounded)
	j.float("transfers[].in_flight_ms", t.InFlightMS, h.inFlight(t.Transport), rounded)
	j.float("transfers[].read_ms", t.ReadMS, h.read(), rounded)
	j.float("transfers[].wait_ms", t.WaitMS, span(h.waited, h.rxStart), rounded)
	j.int("transfers[].misses", t.Misses, h.misses)
	j.int("transfers[].empty_polls", t.EmptyPolls, h.empty)
	if !h.forwarded { // else its status says something else
		j.bool("transfers[].unread", t.Unread, h.unread)
	}
}
