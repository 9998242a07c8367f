package verify

import (
	"cmp"
	"slices"
)

// span is a length of time in milliseconds, null where an end of it was not seen or
// where it would go back in time.
func span(from, to *int64) *float64 {
	if from == nil || to == nil || *to < *from {
		return nil
	}
	ms := float64(*to-*from) / 1e6
	return &ms
}

// moments are the events of a stage that a request has one of each.
type moments [nKinds]*event

// stages holds what the stages did to their events (contract section 6); works and
// handovers are what only newer events tell.
func (j *judge) stages(works map[name]*work, handovers map[int64]*handover) {
	all := map[name]*moments{}
	for _, e := range j.stage {
		if e.kind < enqueue || e.kind > computeEnd {
			continue
		}
		m := all[e.stage]
		if m == nil {
			m = &moments{}
			all[e.stage] = m
		}
		if p := &m[e.kind]; *p == nil {
			*p = e
		} else {
			j.sayAt(e, KindOrder, "a second %s of %s, the first is line %d", words[e.kind], clip(j.v.names.text(e.stage)), (*p).line)
		}
	}
	for i := range j.rec.Stages {
		s := &j.rec.Stages[i]
		n := j.v.names.number([]byte(s.Stage))
		m := all[n]
		if m == nil {
			m = &moments{}
		}
		delete(all, n)
		j.oneStage(s, m)
		if j.whole() {
			j.workOf(s, works[n], m, handovers)
		}
	}
	for _, e := range j.stage { // in the order of the file
		if m := all[e.stage]; m != nil {
			delete(all, e.stage)
			j.sayAt(e, KindOrphan, "%s of the stage %q, which the record does not have", words[e.kind], clip(j.v.names.text(e.stage)))
		}
	}
}

// at is the moment of an event, nil for none.
func at(e *event) *int64 {
	if e == nil {
		return nil
	}
	return &e.mono
}

func (j *judge) oneStage(s *stage, m *moments) {
	queued, ready, formed := at(m[enqueue]), at(m[schedulable]), at(m[batchFormed])
	start, finish := at(m[computeStart]), at(m[computeEnd])
	j.int("stages[].ready_ns", s.ReadyNS, ready)
	j.int("stages[].start_ns", s.StartNS, start)
	j.int("stages[].finish_ns", s.FinishNS, finish)
	j.float("stages[].wait_ms", s.WaitMS, span(ready, start), rounded)
	j.float("stages[].service_ms", s.ServiceMS, span(start, finish), rounded)
	if m[enqueue] != nil && j.v.names.text(m[enqueue].status) == byMessage {
		queued = nil // its scheduler told no time
	}
	if s.QueueMS != nil || j.whole() { // null: an older enqueue event may not be its scheduler's own word
		from := queued
		if queued != nil && ready != nil {
			from = new(max(*queued, *ready))
		}
		j.float("stages[].queue_ms", s.QueueMS, span(from, formed), rounded)
	}
	j.fork(s)
}

// fork reckons what the transfers say of the places where a request's way divides or
// comes together. The transfers are held to their events by themselves.
func (j *judge) fork(s *stage) {
	const api = "api"
	var to []string
	copied, counted := int64(0), true
	had := map[string]int64{}
	for i := range j.rec.Transfers {
		t := &j.rec.Transfers[i]
		if t.From == s.Stage && t.To != "" && t.To != api && !t.Unread {
			at := slices.Index(to, t.To)
			if at < 0 {
				at = len(to)
				to = append(to, t.To)
			}
			if at > 0 {
				counted = counted && t.Bytes != nil
				copied += *cmp.Or(t.Bytes, new(int64))
			}
		}
		if t.To == s.Stage && t.From != "" && t.From != api && t.EndNS != nil {
			if first, ok := had[t.From]; !ok || *t.EndNS < first {
				had[t.From] = *t.EndNS
			}
		}
	}
	var fanOut, bytes *int64
	if len(to) > 0 {
		fanOut = new(int64(len(to)))
	}
	if len(to) > 1 && counted {
		bytes = &copied
	}
	var first, last *int64
	for _, at := range had {
		if first == nil || at < *first {
			first = new(at)
		}
		if last == nil || at > *last {
			last = new(at)
		}
	}
	if len(had) < 2 {
		first = nil
	}
	j.int("stages[].fan_out", s.FanOut, fanOut)
	j.int("stages[].copied_bytes", s.CopiedBytes, bytes)
	j.float("stages[].join_wait_ms", s.JoinWaitMS, span(first, last), rounded)
}
