package report

import (
	"math"
	"testing"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// staged gives a success two stages, hand-overs and a way to its first audio.
func withStages(ttfa float64, starved bool, flags ...string) *timeline.Record {
	r := record("chat", timeline.Success, ttfa/2)
	r.TTFAMS, r.Flags = &ttfa, flags
	wait, service, chunk := 2.0, ttfa-20, int64(4000)
	r.Stages = []timeline.Stage{{Stage: "thinker", WaitMS: &wait, ServiceMS: &service}, {Stage: "talker", WaitMS: &wait, ServiceMS: &service, StarvedMS: &wait}}
	start, end, flight := int64(1e9), int64(1e9+3e6), 1.25
	r.Transfers = []timeline.Transfer{
		{From: "thinker", To: "talker", Transport: "shm", Bytes: &chunk, StartNS: start, EndNS: &end, InFlightMS: &flight},
		{From: "thinker", To: "talker", Transport: "shm", Bytes: &chunk, StartNS: start, Unread: true},
	}
	r.CriticalPath = []timeline.PathStep{{Gap: "relay", MS: 1}, {Gap: "thinker.prefill", MS: ttfa - 10}, {Gap: "api_out", MS: 9}}
	if starved {
		r.CriticalPath = []timeline.PathStep{{Gap: "relay", MS: 1}, {Gap: "thinker.prefill", MS: ttfa - 30}, {Gap: "thinker->talker.in_flight", MS: 20}, {Gap: "api_out", MS: 9}}
	}
	return r
}

func stagesReport() Report {
	unseen := record("chat", timeline.Success, 20)
	ttfa := 40.0
	unseen.TTFAMS, unseen.Unmeasured = &ttfa, map[string]string{"critical_path": "two requests could own the work"}
	failed := withStages(9000, false)
	failed.Terminal.State = timeline.WorkerLost
	return Tables(yielding(withStages(100, false), withStages(200, true, "stages_partial"), unseen, failed))
}

// The means of the gaps sum to the mean TTFA, whatever gaps a request has.
func TestMeanPathSumsToTTFA(t *testing.T) {
	p := stagesReport().Paths[0]
	sum := 0.0
	for _, g := range p.Gaps {
		sum += g.MeanMS
	}
	if p.N != 2 || p.Of != 3 || math.Abs(sum-150) > 1e-9 || math.Abs(p.TTFA-150) > 1e-9 {
		t.Errorf("path of %d of %d: gaps sum to %v, TTFA %v, want 150", p.N, p.Of, sum, p.TTFA)
	}
	want := []string{"relay", "thinker.prefill", "thinker->talker.in_flight", "api_out"}
	for i, g := range p.Gaps {
		if g.Gap != want[i] {
			t.Errorf("gap %d is %s, want %s", i, g.Gap, want[i])
		}
	}
}
