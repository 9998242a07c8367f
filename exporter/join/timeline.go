package join

import (
	"cmp"
	"fmt"
	"slices"
)

// Joined is what the stages did for a request of the relay.
type Joined struct {
	// Request is the engine's id of it, empty where none was found: Why says the reason.
	Request    string
	Match      string
	Confidence float64
	Why        string
	// Partial are the reasons why something of it may be missing, none for nothing.
	Partial []string
	// Unwatched says, by the name of a family of probes that is not attached, why; it is
	// the reader's to fill in.
	Unwatched map[string]string
	Stages    []Stage
	Transfers []Transfer
	// Path are the gaps on the way to the first audio, in order: they sum to t_audio −
	// t_in exactly. PathWhy says why there is none.
	Path    []Gap
	PathWhy string
	// QuiesceNS is from the client's end to the last that a stage did for it, -1 where
	// that is not known, QuiesceWhy then says why.
	QuiesceNS  int64
	QuiesceWhy string
	// Fates are the processes of its server that ended, or were told to, while it was
	// in flight.
	Fates []Fate
	// AddedNS is when the API process sent it to the first stage, AbortedNS when it told
	// the stages to stop, 0 for not seen.
	AddedNS, AbortedNS int64
}

// Stage is what one stage did for a request. Times are CLOCK_MONOTONIC nanoseconds, 0
// where they were not seen.
type Stage struct {
	Stage   string
	ID      int // -1 where the stage has no number
	PID     int32
	Replica int
	// ReadyNS is when its first input lay ready: the request's own message for the
	// first stage, else the first transfer's. StartNS is when it was scheduled, as its
	// scheduler says, else when it took that input. FinishNS is its last output, or the
	// last byte that it handed on.
	ReadyNS, StartNS, FinishNS int64
	// QueuedNS and ScheduledNS are the scheduler's own times.
	QueuedNS, ScheduledNS int64
	// GotNS is when it was told of the request, FirstNS when its first output was sent.
	GotNS, FirstNS int64
	// Steps is the number of its outputs, -1 where it tells none a step.
	Steps int
	// StarvedNS is how long it polled for input that was not there, -1 where its polls
	// are not seen.
	StarvedNS int64
	// BatchMean and BatchMax are the requests in one of its outputs, 0 for not told.
	BatchMean  float64
	BatchMax   int
	Usage      *Usage
	samples    []cpuPoint // that Usage rests on
	GPU        *GPU
	GPUShared  bool // others were at work there in the same time
	AbortedNS  int64
	Match      string
	Confidence float64
	Fork

	s *stage
}

// WaitNS is contract section 6's W_s, -1 where an end of it was not seen.
func (s *Stage) WaitNS() int64 { return span(s.ReadyNS, s.StartNS) }

// ServiceNS is S_s, -1 where an end of it was not seen.
func (s *Stage) ServiceNS() int64 { return span(s.StartNS, s.FinishNS) }

// QueueNS is the scheduler's queue alone, without the wait for a first input, -1
// where it tells none.
func (s *Stage) QueueNS() int64 {
	if s.QueuedNS == 0 {
		return -1
	}
	return span(max(s.QueuedNS, s.ReadyNS), s.ScheduledNS)
}

func span(from, to int64) int64 {
	if from == 0 || to == 0 || to < from {
		return -1
	}
	return to - from
}

// Request joins what is known of a request. Events that are still held to bring them
// into order are not in it: ask when Flush has gone past the request's end. It may be
// called again; what comes later is then in it.
func (j *Joiner) Request(a Ask) Joined {
	f := j.match(&a)
	out := Joined{Why: f.why, QuiesceNS: -1}
	out.Fates = j.fatesOf(&a, f.r)
	if f.r == nil {
		out.PathWhy, out.QuiesceWhy = f.why, f.why
		return out
	}
	r := f.r
	out.Request, out.Match, out.Confidence = r.engine, f.match, f.confidence
	out.AddedNS, out.AbortedNS = r.added, r.aborted
	out.Partial = j.partial(&a, r)
	if len(out.Partial) > 0 {
		out.Confidence = min(out.Confidence, Contradicted)
	}
	for _, t := range r.transfers {
		out.Transfers = append(out.Transfers, *t)
	}
	slices.SortStableFunc(out.Transfers, ByStart)
	pairOutputs(r)
	out.Stages = j.stages(r, &out)
	out.Path, out.PathWhy = criticalPath(&a, r, &out)
	out.QuiesceNS, out.QuiesceWhy = quiesce(&a, r, &out)
	return out
}

// partial are the reasons why something of a request may be missing.
func (j *Joiner) partial(a *Ask, r *request) []string {
	from, to := r.first, max(r.last, deref(a.Points.TTerm))
	if a.from() > 0 {
		from = min(from, a.from())
	}
	var why []string
	lost := map[string]int64{}
	var names []string
	for _, l := range j.losses.all() {
		if l.to < from || l.from > to {
			continue
		}
		if lost[l.family] == 0 {
			names = append(names, l.family)
		}
		lost[l.family] += l.n
	}
	for _, n := range names {
		why = append(why, fmt.Sprintf("%d events of %s were lost while it was in flight", lost[n], cmp.Or(n, "a probe")))
	}
	if r.dropped {
		why = append(why, "it has more transfers or outputs than are kept")
	}
	return why
}

// fatesOf are the fates of processes while a request was in flight. Without stages of
// its own all of the server count.
func (j *Joiner) fatesOf(a *Ask, r *request) []Fate {
	from, to := a.from(), a.to()
	if from == 0 && r != nil {
		from = r.first
	}
	var out []Fate
	for _, f := range j.fates.all() {
		if f.AtNS >= from && f.AtNS <= to {
			out = append(out, f)
		}
	}
	return out
}

// stages makes the stages of a request, in their order.
func (j *Joiner) stages(r *request, out *Joined) []Stage {
	for i := range out.Transfers { // a stage may show by its transfers alone
		t := &out.Transfers[i]
		for _, end := range [...]struct {
			name string
			pid  int32
		}{{t.From, t.FromPID}, {t.To, t.ToPID}} {
			p := j.procs[end.pid]
			if end.name == "" || end.name == roleAPI || end.pid == 0 || p == nil || p.role == roleAPI {
				continue
			}
			r.stage(end.name, p)
		}
	}
	list := make([]Stage, 0, len(r.stages))
	for _, s := range r.stages {
		if s.name == roleAPI || s.proc != nil && s.proc.role == roleAPI {
			continue
		}
		list = append(list, j.stageOf(r, s, out))
	}
	slices.SortStableFunc(list, func(a, b Stage) int {
		return cmp.Or(cmp.Compare(uint(a.ID), uint(b.ID)), cmp.Compare(a.ReadyNS, b.ReadyNS), cmp.Compare(a.Stage, b.Stage))
	})
	return list
}

func (j *Joiner) stageOf(r *request, s *stage, out *Joined) Stage {
	o := Stage{
		Stage: s.name, ID: s.id, PID: s.pid, GotNS: s.got, QueuedNS: s.queued, ScheduledNS: s.scheduled,
		Steps: -1, StarvedNS: -1, AbortedNS: s.aborted, Match: out.Match, Confidence: out.Confidence, s: s,
	}
	if s.proc != nil {
		o.Replica = s.proc.replica
	}
	o.times(r, out)
	o.Fork = forkOf(s.name, out.Transfers)
	o.batches()
	if o.StartNS > 0 && o.FinishNS > o.StartNS && s.proc != nil {
		o.Usage, o.samples = s.proc.curve.between(o.StartNS, o.FinishNS), s.proc.curve.around(o.StartNS, o.FinishNS)
		o.GPU = j.gpuOf(s.proc, o.StartNS, o.FinishNS)
		o.GPUShared = o.BatchMax > 1 || j.busy(r, s, o.StartNS, o.FinishNS)
	}
	return o
}

// times finds the moments of a stage in its messages and its transfers.
func (s *Stage) times(r *request, out *Joined) {
	in := s.inputs(out)
	if s.StarvedNS = in.starved; in.n == 0 {
		s.ReadyNS, in.taken = s.s.got, s.s.got
		if s.s.scheduled == 0 {
			s.ReadyNS = r.added // it took it when it got it
		}
	}
	s.StartNS = in.taken
	if s.s.scheduled > 0 && s.s.scheduled >= in.taken {
		s.StartNS = s.s.scheduled
	}
	last := in.handed
	for i := range s.s.outputs {
		last = max(last, s.s.outputs[i].sent)
	}
	if len(s.s.outputs) > 0 {
		s.FirstNS = s.s.outputs[0].sent
	}
	// Where events were lost the last one seen need not be the last there was.
	if len(out.Partial) == 0 || s.s.finished > 0 {
		s.FinishNS = max(last, s.s.finished)
	}
	if len(s.s.outputs) == 0 && in.n == 0 && last == 0 {
		s.StartNS, s.FinishNS = 0, 0 // it was told, and did nothing
	}
}

// inputs is what a stage's transfers say of it: how many it received, when it took the
// first, how long it polled for them (-1 where polls are not seen), and when it handed
// on the last of its own.
type inputs struct {
	n                      int
	taken, starved, handed int64
}

// inputs goes through a stage's transfers; ReadyNS becomes the first one's.
func (s *Stage) inputs(out *Joined) inputs {
	in := inputs{starved: -1}
	for i := range out.Transfers {
		t := &out.Transfers[i]
		if t.From == s.Stage && t.FromPID == s.PID {
			in.handed = max(in.handed, t.TxEnd, t.Announced)
		}
		if t.To != s.Stage || t.Received() == 0 {
			continue
		}
		in.n++
		if ready := cmp.Or(t.TxEnd, t.Announced, t.Received()); s.ReadyNS == 0 || ready < s.ReadyNS {
			s.ReadyNS = ready
		}
		if took := cmp.Or(t.RxStart, t.Heard); took > 0 && (in.taken == 0 || took < in.taken) {
			in.taken = took
		}
		if t.Misses >= 0 {
			in.starved = max(in.starved, 0)
		}
		if t.WaitStart > 0 && t.RxStart > t.WaitStart {
			in.starved = max(in.starved, 0) + t.RxStart - t.WaitStart
		}
	}
	return in
}

// batches counts its steps, and the requests in them.
func (s *Stage) batches() {
	var sum, n int
	for i := range s.s.outputs {
		if b := int(s.s.outputs[i].batch); b > 0 {
			sum, n = sum+b, n+1
			s.BatchMax = max(s.BatchMax, b)
		}
	}
	if n > 0 {
		s.BatchMean = float64(sum) / float64(n)
		s.Steps = n + s.s.more
	}
}

// gpuOf sums the calls of a stage's process, or of its workers where it has some.
func (j *Joiner) gpuOf(p *process, from, to int64) *GPU {
	if g := p.work(from, to); g != nil {
		return g
	}
	// Tensor parallel workers do the same at once: the first rank stands for all.
	var first *process
	for _, w := range j.procs {
		if w.role == roleWorker && w != p && w.sameStage(p) && w.calls.len()+w.tally.len() > 0 && (first == nil || w.before(first)) {
			first = w
		}
	}
	if first == nil {
		return nil
	}
	return first.work(from, to)
}

// busy says whether another request had answers of a stage within a time.
func (j *Joiner) busy(r *request, s *stage, from, to int64) bool {
	for o := range j.requests.all() {
		if o == r || o.last < from || o.first > to {
			continue
		}
		for _, st := range o.stages {
			if st.proc == s.proc && st.during(from, to) {
				return true
			}
		}
	}
	return false
}

func (s *stage) during(from, to int64) bool {
	for i := range s.outputs {
		if at := s.outputs[i].sent; at >= from && at <= to {
			return true
		}
	}
	return false
}

// pairOutputs finds for each of vLLM's outputs when the API process had it. The
// message there names no stage, but a socket carries those of one stage, in order and
// of the same size: the stage is the one whose outputs fit the socket's best.
func pairOutputs(r *request) {
	bySock := map[uint64][]receipt{}
	var socks []uint64
	for _, g := range r.got {
		if bySock[g.sock] == nil {
			socks = append(socks, g.sock)
		}
		bySock[g.sock] = append(bySock[g.sock], g)
	}
	free := slices.Clone(r.stages)
	for _, sock := range socks {
		best, fits, delay := -1, 0, int64(0)
		for i, s := range free {
			n, d := pair(s, bySock[sock], false)
			if n > fits || n == fits && n > 0 && d < delay {
				best, fits, delay = i, n, d
			}
		}
		if best >= 0 {
			pair(free[best], bySock[sock], true)
			free = slices.Delete(free, best, best+1)
		}
	}
}

// pair goes through outputs and receipts in order. n is how many fit, delay their sum.
func pair(s *stage, got []receipt, set bool) (n int, delay int64) {
	i := 0
	for k := range s.outputs {
		o := &s.outputs[k]
		if o.bytes == unknownBytes {
			continue
		}
		for i < len(got) && (got[i].bytes != o.bytes || got[i].at < o.sent) {
			i++
		}
		if i == len(got) {
			break
		}
		if set {
			o.got = got[i].at
		}
		n, delay = n+1, delay+got[i].at-o.sent
		i++
	}
	return n, delay
}

// quiesce is from the client's end to the last that a stage did.
func quiesce(a *Ask, r *request, out *Joined) (int64, string) {
	switch {
	case a.CancelNS == 0:
		return -1, "the client did not cancel"
	case len(out.Partial) > 0:
		return -1, out.Partial[0]
	}
	last := int64(0)
	for _, s := range r.stages {
		for i := range s.outputs {
			last = max(last, s.outputs[i].sent)
		}
	}
	for _, t := range r.transfers {
		if !t.forwarded { // else it is the API process that sends
			last = max(last, t.TxEnd, t.Announced)
		}
		if t.To != roleAPI {
			last = max(last, t.RxEnd)
		}
	}
	if last == 0 {
		return -1, "no stage was seen at work for it"
	}
	return max(last-a.CancelNS, 0), ""
}
