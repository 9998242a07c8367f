package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/omnitap/omnitap/exporter/stats"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// StageGroup is what one stage did for the successes of a flow, milliseconds a
// request.
type StageGroup struct {
	Flow  string `json:"flow"`
	Stage string `json:"stage"`
	N     int    `json:"n"`
	// Wait is from the first input's lying ready to the stage's taking it up, Service
	// from there to its last output, Starved how long it polled for input in between.
	Wait     stats.Summary `json:"wait_ms"`
	Service  stats.Summary `json:"service_ms"`
	Starved  stats.Summary `json:"starved_ms"`
	CPU      stats.Summary `json:"cpu_ms"`
	Runnable stats.Summary `json:"runq_ms"`
}

// Edge is the hand-overs from one stage to another one of all successes.
type Edge struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Transport string `json:"transport"`
	// N were received; Unread were made and never taken, which a stage that ends early
	// is no loss for.
	N      int `json:"n"`
	Unread int `json:"unread"`
	// Bytes is over the transfers that state them, a transfer; Took is from its first
	// byte written to its last one read, InFlight the part in between.
	Bytes    stats.Summary `json:"bytes"`
	Took     stats.Summary `json:"took_ms"`
	InFlight stats.Summary `json:"in_flight_ms"`
}

// CriticalPath is the mean way to the first audio of a flow's successes: the means of
// the gaps sum to the mean TTFA of the requests that have one.
type CriticalPath struct {
	Flow string `json:"flow"`
	// N have a path, of Of successes with a TTFA; Why says why others have none.
	N    int            `json:"n"`
	Of   int            `json:"of"`
	Why  map[string]int `json:"why"`
	TTFA float64        `json:"ttfa_mean_ms"`
	Gaps []GapMean      `json:"gaps"`
}

// GapMean is one gap of the way. MeanMS counts it as 0 for requests without it: N have
// it.
type GapMean struct {
	Gap    string  `json:"gap"`
	N      int     `json:"n"`
	MeanMS float64 `json:"mean_ms"`
	Share  float64 `json:"share"`
}

// staged collects what stages did.
type staged struct {
	stages map[[2]string]*stageValues
	edges  map[[3]string]*edgeValues
	paths  map[string]*pathValues
	// partial counts the requests during which events of the stages were lost.
	partial int
}

type stageValues struct {
	n, at                                 int
	wait, service, starved, cpu, runnable []float64
}

type edgeValues struct {
	n, unread             int
	bytes, took, inFlight []float64
}

type pathValues struct {
	n, of int
	why   map[string]int
	ttfa  float64
	gaps  map[string]*gapSum
}

// gapSum adds a gap up; at is where on the way to the first audio it began, as a share
// of the way, which tells their order.
type gapSum struct {
	n      int
	ms, at float64
}

func newStaged() *staged {
	return &staged{stages: map[[2]string]*stageValues{}, edges: map[[3]string]*edgeValues{}, paths: map[string]*pathValues{}}
}

// add takes one success.
func (s *staged) add(flow string, r *timeline.Record) {
	if slices.Contains(r.Flags, "stages_partial") {
		s.partial++
	}
	for i := range r.Stages {
		s.addStage(flow, i, &r.Stages[i])
	}
	for i := range r.Transfers {
		s.addTransfer(&r.Transfers[i])
	}
	if r.TTFAMS != nil {
		s.addPath(flow, r)
	}
}

// addStage takes one stage, the at-th of its request.
func (s *staged) addStage(flow string, at int, t *timeline.Stage) {
	k := [2]string{flow, t.Stage}
	v := s.stages[k]
	if v == nil {
		v = &stageValues{at: at}
		s.stages[k] = v
	}
	v.n++
	v.at = min(v.at, at)
	for _, one := range []struct {
		to   *[]float64
		from *float64
	}{{&v.wait, t.WaitMS}, {&v.service, t.ServiceMS}, {&v.starved, t.StarvedMS}, {&v.cpu, t.CPUMS}, {&v.runnable, t.RunqMS}} {
		if one.from != nil {
			*one.to = append(*one.to, *one.from)
		}
	}
}

func (s *staged) addTransfer(t *timeline.Transfer) {
	k := [3]string{t.From, t.To, t.Transport}
	v := s.edges[k]
	if v == nil {
		v = &edgeValues{}
		s.edges[k] = v
	}
	if t.Unread {
		v.unread++
		return
	}
	v.n++
	if t.Bytes != nil {
		v.bytes = append(v.bytes, float64(*t.Bytes))
	}
	if t.EndNS != nil && *t.EndNS >= t.StartNS {
		v.took = append(v.took, float64(*t.EndNS-t.StartNS)/1e6)
	}
	if t.InFlightMS != nil {
		v.inFlight = append(v.inFlight, *t.InFlightMS)
	}
}

func (s *staged) addPath(flow string, r *timeline.Record) {
	v := s.paths[flow]
	if v == nil {
		v = &pathValues{why: map[string]int{}, gaps: map[string]*gapSum{}}
		s.paths[flow] = v
	}
	v.of++
	if len(r.CriticalPath) == 0 {
		v.why[cmp.Or(r.Unmeasured["critical_path"], "no reason is told")]++
		return
	}
	v.n++
	v.ttfa += *r.TTFAMS
	at := 0.0
	for _, g := range r.CriticalPath {
		sum := v.gaps[g.Gap]
		if sum == nil {
			sum = &gapSum{}
			v.gaps[g.Gap] = sum
		}
		sum.n++
		sum.ms += g.MS
		sum.at += at / max(*r.TTFAMS, 1e-9)
		at += g.MS
	}
}

// fill puts what was collected into the report.
func (s *staged) fill(r *Report) {
	byPlace := func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(s.stages[a].at, s.stages[b].at), cmp.Compare(a[1], b[1]))
	}
	for _, k := range slices.SortedFunc(maps.Keys(s.stages), byPlace) {
		v := s.stages[k]
		r.Stages = append(r.Stages, StageGroup{
			Flow: k[0], Stage: k[1], N: v.n, Wait: stats.Summarize(v.wait), Service: stats.Summarize(v.service),
			Starved: stats.Summarize(v.starved), CPU: stats.Summarize(v.cpu), Runnable: stats.Summarize(v.runnable),
		})
	}
	for _, k := range slices.SortedFunc(maps.Keys(s.edges), compare3) {
		v := s.edges[k]
		r.Edges = append(r.Edges, Edge{
			From: k[0], To: k[1], Transport: k[2], N: v.n, Unread: v.unread,
			Bytes: stats.Summarize(v.bytes), Took: stats.Summarize(v.took), InFlight: stats.Summarize(v.inFlight),
		})
	}
	for _, flow := range slices.Sorted(maps.Keys(s.paths)) {
		if v := s.paths[flow]; v.n > 0 || len(s.stages) > 0 {
			r.Paths = append(r.Paths, v.mean(flow))
		}
	}
	r.Partial = s.partial
}

func compare3(a, b [3]string) int { return slices.Compare(a[:], b[:]) }

// mean makes the mean path: gaps in the order in which they begin on average.
func (v *pathValues) mean(flow string) CriticalPath {
	p := CriticalPath{Flow: flow, N: v.n, Of: v.of, Why: v.why, Gaps: []GapMean{}}
	if v.n == 0 {
		return p
	}
	n := float64(v.n)
	p.TTFA = v.ttfa / n
	names := slices.SortedFunc(maps.Keys(v.gaps), func(a, b string) int {
		x, y := v.gaps[a], v.gaps[b]
		return cmp.Or(cmp.Compare(x.at/float64(x.n), y.at/float64(y.n)), cmp.Compare(a, b))
	})
	for _, name := range names {
		g := v.gaps[name]
		m := GapMean{Gap: name, N: g.n, MeanMS: g.ms / n}
		if v.ttfa > 0 {
			m.Share = g.ms / v.ttfa
		}
		p.Gaps = append(p.Gaps, m)
	}
	return p
}

// edgeTable is the hand-overs.
func (r Report) edgeTable() string {
	t := newTable(3, "from", "to", "transport", "n", "unread", "bytes p50", "took p50 ms", "p95 ms", "p99 ms", "in flight p50 ms", "p95 ms", "p99 ms")
	for _, e := range r.Edges {
		t.AppendRow(table.Row{
			e.From, e.To, e.Transport, e.N, e.Unread, number(e.Bytes.P50, 0),
			number(e.Took.P50, 2), number(e.Took.P95, 2), number(e.Took.P99, 2),
			number(e.InFlight.P50, 2), number(e.InFlight.P95, 2), number(e.InFlight.P99, 2),
		})
	}
	return t.Render()
}

// stageTable is the stages, milliseconds a request.
func (r Report) stageTable() string {
	t := newTable(2, "flow", "stage", "n", "wait p50 ms", "p95 ms", "service p50 ms", "p95 ms", "starved p50 ms", "CPU p50 ms", "runnable p50 ms")
	for _, s := range r.Stages {
		t.AppendRow(table.Row{
			s.Flow, s.Stage, s.N, number(s.Wait.P50, 2), number(s.Wait.P95, 2), number(s.Service.P50, 2), number(s.Service.P95, 2),
			number(s.Starved.P50, 2), number(s.CPU.P50, 2), number(s.Runnable.P50, 2),
		})
	}
	return t.Render()
}

// pathTable is the mean critical paths.
func (r Report) pathTable() string {
	t := newTable(2, "flow", "way to first audio", "n", "mean ms", "share %")
	for _, p := range r.Paths {
		for _, g := range p.Gaps {
			t.AppendRow(table.Row{p.Flow, g.Gap, g.N, number(g.MeanMS, 2), number(100*g.Share, 1)})
		}
		if p.N > 0 {
			t.AppendRow(table.Row{p.Flow, "= TTFA", p.N, number(p.TTFA, 2), number(100, 1)})
		}
	}
	return t.Render()
}

// stageNotes say what of the stages is missing.
func (r Report) stageNotes() (out []string) {
	if len(r.Edges) > 0 {
		out = append(out, "Stages and hand-overs are over successes; an unread hand-over was made for a stage that had ended: no loss by itself.")
	}
	var none []string
	for _, p := range r.Paths {
		if p.N == 0 {
			none = append(none, p.Flow)
			continue
		}
		for _, why := range slices.Sorted(maps.Keys(p.Why)) {
			out = append(out, fmt.Sprintf("%s: %d of %d successes have no way to first audio: %s.", p.Flow, p.Why[why], p.Of, why))
		}
	}
	if len(none) > 0 {
		out = append(out, "No success has a way to first audio (the records say why): "+strings.Join(none, ", ")+".")
	}
	if r.Partial > 0 {
		out = append(out, fmt.Sprintf("Kernel events were lost during %d successes: their stages' counts are lower bounds.", r.Partial))
	}
	return out
}
