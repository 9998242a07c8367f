package join

import (
	"fmt"
	"maps"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// Judge brings the record's terminal state in line with what became of the stage
// processes while the request was in flight (contract section 5): one that ended
// explains a deadline, a broken transport, an answer that stops and an error of no
// known cause; where the kernel killed it for want of memory, that is the cause. What
// the server said in so many words, a client that left first and a success stand, with
// the process's end as evidence beside them. It reports whether the state changed.
func (x *Joined) Judge(r *timeline.Record) bool {
	f := x.fate()
	if f == nil {
		return false
	}
	r.Terminal.Evidence = maps.Clone(r.Terminal.Evidence)
	if r.Terminal.Evidence == nil {
		r.Terminal.Evidence = map[string]any{}
	}
	r.Terminal.Evidence["worker"] = f.evidence()
	switch r.Terminal.State {
	case timeline.DeadlineExceeded, timeline.TransportError, timeline.InvalidOutput, timeline.ServerError:
	case timeline.WorkerLost:
		if !f.OOM {
			return false // the server said so
		}
	case timeline.Success, timeline.QualityFailed, timeline.ClientCancelled, timeline.AdmissionRejected, timeline.OOM,
		timeline.HarnessError, timeline.InvalidRequest:
		return false
	}
	r.Terminal.Evidence["seen_as"] = fmt.Sprintf("%s (%s)", r.Terminal.State, r.Terminal.Reason)
	r.Terminal.State, r.Terminal.Reason, r.Terminal.By = timeline.WorkerLost, "stage_exited", "server"
	if f.Signal != 0 {
		r.Terminal.Reason = "stage_killed"
	}
	if f.OOM {
		r.Terminal.State, r.Terminal.Reason = timeline.OOM, "oom_kill"
		r.Terminal.Evidence["evidence"] = "oob" // out of band: it is not on the wire
	}
	return true
}

// fate puts together what is known of the first stage that ended: a signal and the
// kernel's choice come ahead of the end itself. nil where none was seen to end, and where
// the API process went first: its stages end with it, and it is the transport that broke.
func (x *Joined) fate() *Fate {
	var out *Fate
	if x.frontWentFirst() {
		return nil
	}
	for i := range x.Fates {
		if f := &x.Fates[i]; f.Stage != roleAPI && (f.Exited || f.OOM) {
			c := *f
			out = &c
			break
		}
	}
	if out == nil {
		return nil // a signal alone may be caught
	}
	for i := range x.Fates {
		if f := &x.Fates[i]; f.PID == out.PID {
			out.OOM, out.Exited = out.OOM || f.OOM, out.Exited || f.Exited
			if f.Signal != 0 {
				out.Signal = f.Signal
			}
		}
	}
	return out
}

// frontWentFirst says whether the API process ended, and what ended it came ahead of
// whatever became of a stage.
func (x *Joined) frontWentFirst() bool {
	front, stage := int64(0), int64(0)
	ended := false
	for i := range x.Fates {
		f := &x.Fates[i]
		switch {
		case f.Stage == roleAPI:
			ended = ended || f.Exited || f.OOM
			if front == 0 || f.AtNS < front {
				front = f.AtNS
			}
		case stage == 0 || f.AtNS < stage:
			stage = f.AtNS
		}
	}
	return ended && (stage == 0 || front < stage)
}

func (f *Fate) evidence() map[string]any {
	m := map[string]any{"stage": f.Stage, "pid": f.PID, "at_ns": f.AtNS}
	if f.Signal != 0 {
		m["signal"] = f.Signal
	}
	if f.OOM {
		m["oom_kill"] = true
	}
	return m
}
