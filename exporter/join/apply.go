package join

import (
	"cmp"
	"math"
	"slices"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// flagPartial says that events of the stages were lost while a request was in flight.
const flagPartial = "stages_partial"

// Apply writes what the stages did into the record of the request: stages,
// transfers, critical path and cancel_quiesce_ms, with the reason for each that is
// not known. Nothing else of the record changes, but for the flag stages_partial and
// its warning.
func (x *Joined) Apply(r *timeline.Record) {
	if r.Unmeasured == nil {
		r.Unmeasured = map[string]string{}
	}
	r.Stages, r.Transfers, r.CriticalPath, r.CancelQuiesceMS = nil, nil, nil, nil
	for i := range x.Stages {
		r.Stages = append(r.Stages, x.Stages[i].record(x.Unwatched))
	}
	for i := range x.Transfers {
		r.Transfers = append(r.Transfers, x.Transfers[i].record(x.Confidence))
	}
	for _, g := range x.Path {
		r.CriticalPath = append(r.CriticalPath, timeline.PathStep{Gap: g.Name, MS: ms(g.NS)})
	}
	if x.QuiesceNS >= 0 {
		v := ms(x.QuiesceNS)
		r.CancelQuiesceMS = &v
	}
	put := func(name string, null bool, why string) {
		delete(r.Unmeasured, name)
		if null {
			r.Unmeasured[name] = cmp.Or(why, "the stages show none")
		}
	}
	none := x.Why
	put("stages", r.Stages == nil, cmp.Or(none, "no stage was seen at work for it"))
	put("transfers", r.Transfers == nil, cmp.Or(none, x.Unwatched["shm"], "no transfer was seen"))
	put("critical_path", r.CriticalPath == nil, x.PathWhy)
	put("cancel_quiesce_ms", r.CancelQuiesceMS == nil, x.QuiesceWhy)
	if len(x.Partial) == 0 {
		return
	}
	for _, why := range x.Partial {
		r.Warnings = append(r.Warnings, "stages: "+why)
	}
	if i, ok := slices.BinarySearch(r.Flags, flagPartial); !ok {
		r.Flags = slices.Insert(slices.Clone(r.Flags), i, flagPartial)
	}
}

// ms are milliseconds.
func ms(ns int64) float64 { return float64(ns) / 1e6 }

// msOf is a length of time, nil for -1.
func msOf(ns int64) *float64 {
	if ns < 0 {
		return nil
	}
	v := ms(ns)
	return &v
}

// stampPtr is a stamp, nil for 0.
func stampPtr(ns int64) *int64 {
	if ns == 0 {
		return nil
	}
	return &ns
}

// countPtr is a count, nil for -1.
func countPtr(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// record is the stage as the record has it; off are the families that do not watch it.
func (s *Stage) record(off map[string]string) timeline.Stage {
	o := timeline.Stage{
		Stage: s.Stage, PID: int(s.PID), Match: s.Match, Confidence: round(s.Confidence),
		WaitMS: msOf(s.WaitNS()), ServiceMS: msOf(s.ServiceNS()),
		ReadyNS: stampPtr(s.ReadyNS), StartNS: stampPtr(s.StartNS), FinishNS: stampPtr(s.FinishNS),
		QueueMS: msOf(s.QueueNS()), StarvedMS: msOf(s.StarvedNS), Unmeasured: map[string]string{},
	}
	if s.Steps >= 0 {
		o.Steps = &s.Steps
	}
	if s.FanOut > 0 {
		o.FanOut = &s.FanOut
	}
	o.CopiedBytes, o.JoinWaitMS = countPtr(s.Copied), msOf(s.JoinWaitNS)
	if s.BatchMax > 0 {
		o.Batch = &timeline.Batch{Mean: s.BatchMean, Max: s.BatchMax}
	}
	if u := s.Usage; u != nil {
		o.CPUMS, o.RunqMS, o.BlockedMS, o.CPUBoundMS = msOf(u.RunNS), msOf(u.RunnableNS), msOf(u.BlockedNS), msOf(u.BoundNS)
	}
	if s.GPU != nil {
		o.GPU = s.GPU.fields(s.GPUShared)
	}
	s.reasons(&o, off)
	return o
}

// reasons says why a value of a stage is null.
func (s *Stage) reasons(o *timeline.Stage, off map[string]string) {
	put := func(name string, null bool, why string) {
		if null {
			o.Unmeasured[name] = why
		}
	}
	put("ready_ns", o.ReadyNS == nil, "its first input was not seen")
	put("start_ns", o.StartNS == nil, "it was not seen to begin")
	put("finish_ns", o.FinishNS == nil, "it was not seen to end, or events were lost")
	put("wait_ms", o.WaitMS == nil, "one end of it was not seen")
	put("service_ms", o.ServiceMS == nil, "one end of it was not seen")
	put("queue_ms", o.QueueMS == nil, "its scheduler told no times")
	put("starved_ms", o.StarvedMS == nil, cmp.Or(off["shm"], "it was not seen to poll for input"))
	noSched := cmp.Or(off["sched"], "fewer than two samples of the scheduler lie in its time")
	put("cpu_ms", o.CPUMS == nil, noSched)
	put("runq_ms", o.RunqMS == nil, noSched)
	put("blocked_ms", o.BlockedMS == nil, noSched)
	put("cpu_bound_ms", o.CPUBoundMS == nil, cmp.Or(off["sched"], "no sample of the scheduler lies outside its time"))
	put("gpu", o.GPU == nil, cmp.Or(off["cuda"], "no call of the driver was seen in its time"))
	put("steps", o.Steps == nil, "it tells no steps")
	put("batch", o.Batch == nil, "it tells no batch")
	put("fan_out", o.FanOut == nil, "it handed nothing on that was seen")
	put("copied_bytes", o.CopiedBytes == nil, "it handed on to one stage at most, or not all of it states its bytes")
	put("join_wait_ms", o.JoinWaitMS == nil, "one stage at most feeds it")
}

// fields are the keys of a stage's gpu. All of it is matched by time: the confidence
// is lower where others were at work there too.
func (g *GPU) fields(shared bool) map[string]any {
	confidence := Alone
	if shared {
		confidence = Shared
	}
	m := map[string]any{
		"graph_launches": g.GraphLaunches, "launches": g.Launches, "syncs": g.Syncs, "sync_ms": ms(g.SyncNS), "steps": g.Steps,
		"match": ByWindow, "confidence": confidence,
	}
	if g.LaunchesAtLeast {
		m["at_least"] = true
	}
	if g.StepNS > 0 {
		m["step_ms"] = ms(g.StepNS)
	}
	for name, c := range map[string]Copies{"to_device": g.ToDevice, "to_host": g.ToHost, "on_device": g.OnDevice, "copies": g.Untold} {
		if c.N > 0 {
			m[name] = map[string]any{"n": c.N, "bytes": c.Bytes}
		}
	}
	return m
}

// record is the transfer as the record has it. It is no surer than the request is.
func (t *Transfer) record(confidence float64) timeline.Transfer {
	o := timeline.Transfer{
		From: t.From, To: t.To, Transport: t.Transport, Bytes: countPtr(t.Bytes), StartNS: t.Start(), Match: t.Match,
		Confidence: round(min(t.Confidence, confidence)), Chunk: countPtr(t.Chunk), Misses: countPtr(t.Misses), EmptyPolls: countPtr(t.Empty), Unread: t.Unread,
		WriteMS: msOf(span(t.TxStart, t.TxEnd)), InFlightMS: msOf(t.InFlightNS()), ReadMS: msOf(t.ReadNS()),
		WaitMS: msOf(span(t.WaitStart, t.RxStart)),
	}
	if t.Received() > 0 {
		o.EndNS = stampPtr(t.End())
	}
	if path := cmp.Or(t.Key, t.Object); path != "" {
		o.Path = &path
	}
	return o
}

// InFlightNS is from the end of the sender's part to the beginning of the receiver's,
// -1 where one was not seen.
func (t *Transfer) InFlightNS() int64 {
	if n := span(cmp.Or(t.TxEnd, t.Announced), cmp.Or(t.RxStart, t.Heard)); t.Transport != "tcp" && t.Transport != "mooncake" {
		return n
	}
	return -1 // the receiver asks before the sender begins
}

// ReadNS is the receiver's copying, -1 where it was not seen.
func (t *Transfer) ReadNS() int64 {
	if t.RxStart < t.TxStart {
		return -1 // it is from its asking on
	}
	return span(t.RxStart, t.RxEnd)
}

func round(v float64) float64 { return math.Round(v*1000) / 1000 }
