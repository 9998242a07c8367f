package verify

import (
	"encoding/json"
	"maps"
	"slices"
)

// work is what the events tell of a stage beside its moments.
type work struct {
	steps []*event
	usage []*event
	calls map[string]*event // of the driver, by kind
	last  int64             // of its outputs
}

// works gathers what the stages did.
func (j *judge) works() map[name]*work {
	all := map[name]*work{}
	for _, e := range j.stage {
		if e.kind < firstOutput || e.kind > gpuCalls || e.kind == payloadReceived {
			continue
		}
		w := all[e.stage]
		if w == nil {
			w = &work{calls: map[string]*event{}}
			all[e.stage] = w
		}
		switch e.kind {
		case steps:
			w.steps = append(w.steps, e)
		case cpuUsage:
			w.usage = append(w.usage, e)
		case gpuCalls:
			w.calls[j.v.names.text(e.status)] = e
		default:
			w.last = max(w.last, e.mono)
		}
	}
	return all
}

// workOf compares what a stage did; w is nil for nothing.
func (j *judge) workOf(s *stage, w *work, m *moments, all map[int64]*handover) {
	if w == nil {
		w = &work{}
	}
	j.float("stages[].starved_ms", s.StarvedMS, starved(j.v.names.number([]byte(s.Stage)), all), rounded)
	j.stepsOf(s, w.steps)
	j.usageOf(s, w.usage, at(m[computeStart]), at(m[computeEnd]))
	j.gpuOf(s, w.calls)
}

// starved is how long a stage polled for input that was not there, of all transfers
// that it received; nil where no polls were seen.
func starved(stage name, all map[int64]*handover) *float64 {
	sum, seen := int64(0), false
	for _, h := range all {
		if h.to != stage || h.got() == nil {
			continue
		}
		seen = seen || h.misses != nil
		if h.waited != nil && h.rxStart != nil && *h.rxStart > *h.waited {
			sum, seen = sum+*h.rxStart-*h.waited, true
		}
	}
	if !seen {
		return nil
	}
	return new(float64(sum) / 1e6)
}

// stepsOf counts a stage's steps and the requests in them; those that are not told of
// are steps all the same.
func (j *judge) stepsOf(s *stage, list []*event) {
	var n, known, sum, most int64
	for _, e := range list {
		n += max(e.count, 0)
		if e.batch > 0 {
			known += max(e.count, 0)
			sum += max(e.count, 0) * int64(e.batch)
			most = max(most, int64(e.batch))
		}
	}
	if known == 0 {
		j.int("stages[].steps", s.Steps, nil)
		j.bool("stages[].batch", s.Batch != nil, false)
		return
	}
	j.int("stages[].steps", s.Steps, &n)
	if s.Batch == nil {
		j.differs("stages[].batch", nil, itoa(n)+" steps", exact)
		return
	}
	j.number("stages[].batch.mean", s.Batch.Mean, float64(sum)/float64(known), rounded)
	j.count("stages[].batch.max", s.Batch.Max, most)
}

// usageOf reckons processor time from the first to the last sample within a stage's
// time, and how much more it may be by the nearest samples outside.
func (j *judge) usageOf(s *stage, list []*event, from, to *int64) {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b *event) int { return int(a.mono - b.mono) })
	var first, last, before, after *event
	n := 0
	for _, e := range list {
		switch {
		case from == nil || to == nil:
		case e.mono < *from:
			before = e
		case e.mono <= *to:
			if n++; first == nil {
				first = e
			}
			last = e
		case after == nil:
			after = e
		}
	}
	var cpu, runq, blocked, bound *float64
	if n > 1 {
		ms := func(of func(*event) int64) *float64 { return new(float64(of(last)-of(first)) / 1e6) }
		cpu = ms(func(e *event) int64 { return e.cpu })
		runq = ms(func(e *event) int64 { return e.runq })
		blocked = ms(func(e *event) int64 { return e.blocked })
		if first.mono == *from {
			before = first
		}
		if last.mono == *to {
			after = last
		}
		if before != nil && after != nil {
			bound = new(float64(max(after.cpu-before.cpu-(last.cpu-first.cpu), 0)) / 1e6)
		}
	}
	j.float("stages[].cpu_ms", s.CPUMS, cpu, rounded)
	j.float("stages[].runq_ms", s.RunqMS, runq, rounded)
	j.float("stages[].blocked_ms", s.BlockedMS, blocked, rounded)
	j.float("stages[].cpu_bound_ms", s.CPUBoundMS, bound, rounded)
}

// gpuOf holds a stage's calls of the driver to their events: all but how they were tied
// to it, which is told.
func (j *judge) gpuOf(s *stage, calls map[string]*event) {
	if s.GPU == nil || len(calls) == 0 {
		j.bool("stages[].gpu", s.GPU != nil, len(calls) > 0)
		return
	}
	derived := map[string]any{}
	for kind, e := range calls {
		switch kind {
		case "at_least":
			derived[kind] = true
		case "to_device", "to_host", "on_device", "copies":
			derived[kind] = map[string]any{"n": float64(e.count), "bytes": float64(e.bytes)}
		default:
			derived[kind] = float64(e.count)
		}
		if kind == "syncs" {
			derived["sync_ms"] = float64(max(e.wait, 0)) / 1e6
		}
		if kind == "steps" && e.wait > 0 {
			derived["step_ms"] = float64(e.wait) / 1e6
		}
	}
	recorded := maps.Clone(s.GPU)
	delete(recorded, "match")
	delete(recorded, "confidence")
	j.word("stages[].gpu", asJSON(recorded), asJSON(derived))
}

// asJSON is a value as JSON, members in order.
func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// flagPartial says that events of the stages were lost.
const flagPartial = "stages_partial"

// quiesce reckons how long the stages worked on after the client had left: up to their
// last output, and the last of their own transfers.
func (j *judge) quiesce(works map[name]*work, all map[int64]*handover) {
	var left *int64
	switch {
	case j.rec.Cancel != nil && j.cut != nil:
		left = &j.cut.mono
	case j.rec.Cancel == nil && j.term != nil && j.v.names.text(j.term.status) == "client-cancelled" && j.at[pClose] != nil:
		left = &j.term.mono
	}
	last := int64(0)
	for _, w := range works {
		last = max(last, w.last)
	}
	api := j.v.names.number([]byte("api"))
	for _, h := range all {
		ends := []*int64{h.txEnd, h.announced, h.rxEnd}
		if h.forwarded {
			ends[0], ends[1] = nil, nil // the API process sends it
		}
		if h.to == api {
			ends[2] = nil
		}
		for _, at := range ends {
			if at != nil {
				last = max(last, *at)
			}
		}
	}
	var ms *float64
	if left != nil && last > 0 && !slices.Contains(j.rec.Flags, flagPartial) {
		ms = new(float64(max(last-*left, 0)) / 1e6)
	}
	j.float("cancel_quiesce_ms", j.rec.QuiesceMS, ms, rounded)
}
