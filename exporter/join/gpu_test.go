package join

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/probes/event"
)

// gpuLine is a line of the recorded request on a GPU: a driver call's entry (ret 0) or
// return (ret 1), or a step as the server's own model runner had it.
type gpuLine struct {
	NS     int64  `json:"t_ns"`
	EndNS  int64  `json:"end_ns"`
	PID    int32  `json:"pid"`
	TID    int32  `json:"tid"`
	Stage  string `json:"stage"`
	Sym    string `json:"sym"`
	Ret    int    `json:"ret"`
	Truth  string `json:"truth"`
	Tokens int    `json:"tokens"`
	Graphs int    `json:"replays"`
}

// gpuSet is the recorded request: the driver's calls as events, and the true steps.
type gpuSet struct {
	events []event.Event
	pids   map[string]int32
	steps  map[string][]gpuLine
}

const gpuShift = 1_000_000_000 // the record's zero is the request

func readGPU(t testing.TB) *gpuSet {
	t.Helper()
	f, err := os.Open("../../testdata/stages/gpu/request-events.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	g := &gpuSet{pids: map[string]int32{}, steps: map[string][]gpuLine{}}
	type caller struct {
		tid int32
		sym string
	}
	open := map[caller]int{}
	sc := bufio.NewScanner(z)
	for sc.Scan() {
		var l gpuLine
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		l.NS, l.EndNS = l.NS+gpuShift, l.EndNS+gpuShift
		switch k := (caller{l.TID, l.Sym}); {
		case l.Truth == "execute_model" && l.Tokens > 0:
			g.steps[l.Stage] = append(g.steps[l.Stage], l)
		case l.Sym == "":
		case l.Ret == 0:
			g.pids[l.Stage] = l.PID
			open[k] = len(g.events)
			g.events = append(g.events, event.Event{Probe: event.CUDACall, PID: l.PID, TID: l.TID, EnterNS: l.NS, MonoNS: l.NS, Path: l.Sym})
		default:
			g.events[open[k]].MonoNS = l.NS
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(g.events, func(a, b event.Event) int { return int(a.MonoNS - b.MonoNS) })
	return g
}

// TestGPUSteps: the driver's calls give as many steps and chunks as the server's own
// model runners had, each at its time.
func TestGPUSteps(t *testing.T) {
	g := readGPU(t)
	j := New(Config{})
	j.Processes([]event.Process{
		{PID: int(g.pids["stage0"]), Stage: "thinker", StageID: new(0), Role: "stage"},
		{PID: int(g.pids["stage1"]), Stage: "talker", StageID: new(1), Role: "stage"},
		{PID: int(g.pids["stage2"]), Stage: "code2wav", StageID: new(2), Role: "stage"},
	})
	for i := range g.events {
		j.Add(&g.events[i])
	}
	j.Flush(Everything)
	for stage, want := range map[string]struct{ steps, graphs int }{"stage0": {27, 26}, "stage1": {95, 188}, "stage2": {5, 5}} {
		p := j.procs[g.pids[stage]]
		var calls []call
		for _, c := range p.calls.all() {
			calls = append(calls, c)
		}
		got, truth := steps(calls, p.pid), g.steps[stage]
		if len(got) != want.steps || len(truth) != want.steps {
			t.Fatalf("%s: %d steps, the server had %d, want %d", stage, len(got), len(truth), want.steps)
		}
		for i := range got {
			next := int64(1 << 62)
			if i+1 < len(truth) {
				next = truth[i+1].EndNS
			}
			// The wait for a step returns after its model call began, before the next
			// one's is over: with asynchronous scheduling that one may have begun.
			if got[i].EndNS < truth[i].NS || got[i].EndNS > next {
				t.Errorf("%s step %d ends at %d, the server's model call was %d to %d", stage, i, got[i].EndNS, truth[i].NS, truth[i].EndNS)
			}
			if truth[i].Graphs > 0 && (got[i].StartNS < truth[i].NS || got[i].StartNS > truth[i].EndNS) {
				t.Errorf("%s step %d starts at %d, the server's model call was %d to %d", stage, i, got[i].StartNS, truth[i].NS, truth[i].EndNS)
			}
			if got[i].Graphs != truth[i].Graphs {
				t.Errorf("%s step %d has %d graphs, the server's had %d", stage, i, got[i].Graphs, truth[i].Graphs)
			}
		}
		w := p.work(0, 1<<62)
		if w.Steps != want.steps || w.GraphLaunches != int64(want.graphs) {
			t.Errorf("%s: %d steps and %d graph launches, want %+v", stage, w.Steps, w.GraphLaunches, want)
		}
		syncs := 0
		for i := range g.events {
			if e := &g.events[i]; e.PID == p.pid && strings.HasPrefix(e.Path, "cu") && !strings.HasPrefix(e.Path, "cuda") && strings.HasSuffix(e.Path, "Synchronize") {
				syncs++
			}
		}
		if w.Syncs != int64(syncs) || w.SyncNS <= 0 {
			t.Errorf("%s: %d syncs of %d ns, want %d", stage, w.Syncs, w.SyncNS, syncs)
		}
	}
}

// TestGPUCounts: calls that the kernel counted, copies with bytes, and what lies
// outside the time.
func TestGPUCounts(t *testing.T) {
	j := New(Config{})
	j.Processes(madeProcesses())
	at := func(probe event.Probe, fn string, from, to, n, size int64) {
		j.Add(&event.Event{Probe: probe, PID: thinkerPID, TID: thinkerPID, EnterNS: from, MonoNS: to, Path: fn, Count: n, Size: size})
	}
	at(event.CUDACount, "cuLaunchKernel", 100, 900, 40, 0) // begins before
	at(event.CUDACall, "cuMemcpyHtoDAsync_v2", 1000, 1010, 0, 4096)
	at(event.CUDACall, "cuMemcpyDtoHAsync_v2", 1020, 1030, 0, 100)
	at(event.CUDACall, "cuMemcpyDtoDAsync_v2", 1040, 1050, 0, 7)
	at(event.CUDACall, "cudaMemcpyAsync", 1050, 1051, 0, 4096) // the runtime's own is the same call
	at(event.CUDACount, "cuLaunchKernelEx", 1000, 1100, 12, 0)
	at(event.CUDACall, "cuStreamSynchronize", 1100, 1160, 0, 0)
	at(event.CUDACall, "cuMemcpyHtoDAsync_v2", 5000, 5010, 0, 1)
	j.Flush(Everything)
	got := j.procs[thinkerPID].work(500, 2000)
	want := &GPU{
		Steps: 1, Launches: 12, Syncs: 1, LaunchesAtLeast: true, SyncNS: 60,
		ToDevice: Copies{1, 4096}, ToHost: Copies{1, 100}, OnDevice: Copies{1, 7},
	}
	if *got != *want {
		t.Errorf("got %+v, want %+v", *got, *want)
	}
	if g := j.procs[talkerPID].work(0, 1<<62); g != nil {
		t.Errorf("a process without calls has %+v, want nil", g)
	}
}
