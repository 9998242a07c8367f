package join

import (
	"testing"

	"github.com/omnitap/omnitap/proxy/timeline"
)

func judged(state timeline.State, reason string, fates ...Fate) timeline.Terminal {
	r := &timeline.Record{Terminal: timeline.Terminal{State: state, Reason: reason, By: "unknown", Evidence: map[string]any{"status": 200}}}
	x := Joined{Fates: fates}
	x.Judge(r)
	return r.Terminal
}

// Contract section 5's precedence: what the server said and a client that left first
// stand; a stage that was seen to end comes ahead of deadline, transport and output.
func TestJudge(t *testing.T) {
	signal := Fate{Stage: "talker", PID: 7, AtNS: 10, Signal: 9}
	exit := Fate{Stage: "talker", PID: 7, AtNS: 11, Exited: true}
	oom := Fate{Stage: "talker", PID: 7, AtNS: 9, OOM: true}
	front := Fate{Stage: roleAPI, PID: 1, AtNS: 5, Exited: true}
	term := Fate{Stage: "talker", PID: 7, AtNS: 6, Signal: 15}
	for _, c := range []struct {
		name           string
		state          timeline.State
		fates          []Fate
		want           timeline.State
		reason         string
		worker, outOfB bool
	}{
		{"nothing seen", timeline.DeadlineExceeded, nil, timeline.DeadlineExceeded, "as before", false, false},
		{"a signal alone may be caught", timeline.DeadlineExceeded, []Fate{signal}, timeline.DeadlineExceeded, "as before", false, false},
		{"killed, front silent", timeline.DeadlineExceeded, []Fate{signal, exit}, timeline.WorkerLost, "stage_killed", true, false},
		{"ended by itself", timeline.InvalidOutput, []Fate{exit}, timeline.WorkerLost, "stage_exited", true, false},
		{"an error of no known cause", timeline.ServerError, []Fate{exit}, timeline.WorkerLost, "stage_exited", true, false},
		{"for want of memory", timeline.TransportError, []Fate{oom, signal, exit}, timeline.OOM, "oom_kill", true, true},
		{"the server said so, the kernel says why", timeline.WorkerLost, []Fate{oom, signal, exit}, timeline.OOM, "oom_kill", true, true},
		{"the server said so", timeline.WorkerLost, []Fate{signal, exit}, timeline.WorkerLost, "as before", true, false},
		{"a success stands", timeline.Success, []Fate{signal, exit}, timeline.Success, "as before", true, false},
		{"the client left first", timeline.ClientCancelled, []Fate{signal, exit}, timeline.ClientCancelled, "as before", true, false},
		{"the front went first, its stages with it", timeline.TransportError, []Fate{front, term, exit}, timeline.TransportError, "as before", false, false},
		{"the front went after its stage", timeline.TransportError, []Fate{oom, signal, exit, {Stage: roleAPI, PID: 1, AtNS: 50, Exited: true}}, timeline.OOM, "oom_kill", true, true},
	} {
		got := judged(c.state, "as before", c.fates...)
		_, worker := got.Evidence["worker"]
		if got.State != c.want || got.Reason != c.reason || worker != c.worker || (got.Evidence["evidence"] == "oob") != c.outOfB {
			t.Errorf("%s: %s (%s), evidence %v", c.name, got.State, got.Reason, got.Evidence)
		}
		if changed := got.State != c.state; changed != (got.Evidence["seen_as"] != nil) {
			t.Errorf("%s: seen as %v", c.name, got.Evidence["seen_as"])
		}
	}
}
