// Package report turns the records of a run into tables: first what the checks on
// the sound said, then how the attempts ended, then the latencies of those that
// succeeded.
//
//	run, err := rundir.Read(dir)
//	...
//	err = report.Tables(run.Records()).Render(os.Stdout)
//
// Tables is pure and reads each record once. Only successes feed the latencies,
// and only with values that were measured: a failure, or a value that is null,
// never enters as 0. What could not be read is named, and nothing is left out of
// the attempts.
//
// Out of scope: deriving a metric (the records hold them), comparing runs,
// ranking, and judging what is good.
package report

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/omnitap/omnitap/exporter/stats"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// Report is the content of the tables.
type Report struct {
	// PercentileMethod names how every percentile was reckoned.
	PercentileMethod string `json:"percentile_method"`
	// Total is over all flows. Latencies of different flows are never pooled.
	Total Outcome `json:"total"`
	Flows []Flow  `json:"flows"`
	// Sessions is what the WebSocket sessions were, by flow, where they were told.
	Sessions []SessionGroup `json:"sessions"`
	// Checks is what the checks on the sound said, where it was told.
	Checks []Check `json:"checks"`
	// Alike compares the lengths of sound among requests with the same body.
	Alike []Alike `json:"alike"`
	// Incidents are bursts of failures.
	Incidents []Incident `json:"incidents"`
	// Stages, Edges and Paths are what the stages did, where probes saw them; Partial is
	// the number of successes during which kernel events were lost.
	Stages  []StageGroup   `json:"stages"`
	Edges   []Edge         `json:"edges"`
	Paths   []CriticalPath `json:"critical_paths"`
	Partial int            `json:"stages_partial"`
	// Invalid says why the run says nothing of the server, empty where it does: too
	// many attempts failed by our own fault (case C61).
	Invalid string `json:"invalid"`
	// Unreadable is the number of lines that could not be used and so are in no
	// other figure, and Problems the texts of the first few.
	Unreadable int      `json:"unreadable"`
	Problems   []string `json:"problems"`
}

// Flow is what happened in one flow. Turns of a WebSocket flow whose t_in are
// different kinds of events are flows of their own: their latencies mean
// different things.
type Flow struct {
	Name string `json:"flow"`
	// TIn is what t_in was of the flow's turns: a word of t_in_source, or unasked
	// where nothing asked for them; empty for requests.
	TIn string `json:"t_in_source"`
	Outcome
	// Paced is how many of the successes the server paced to real time: their
	// JCT, RTF and gaps measure the pacer.
	Paced int `json:"paced"`
	// RateAssumed is how many of the successes have a sample rate that the wire
	// did not say, hence an assumed length of audio.
	RateAssumed int      `json:"rate_assumed"`
	Metrics     []Metric `json:"metrics"`
}

// Outcome counts attempts by how they ended: Attempts is Success, RetrySuccess
// and every state's N together.
type Outcome struct {
	// Attempts is every record, Requests the initial ones: a retry adds an
	// attempt to its request's group.
	Attempts int `json:"attempts"`
	Requests int `json:"requests"`
	// Success counts requests whose initial attempt succeeded. RetrySuccess
	// counts retries that did: a cost, never a success (contract section 3).
	Success      int `json:"success"`
	RetrySuccess int `json:"retry_success"`
	// SuccessRate is Success over Requests, null without requests.
	SuccessRate *float64 `json:"success_rate"`
	// States holds every other terminal state, also those that did not occur.
	States []StateCount `json:"states"`
}

// StateCount is how many attempts ended in a state. Rate is over all attempts.
type StateCount struct {
	State timeline.State `json:"state"`
	N     int            `json:"n"`
	Rate  *float64       `json:"rate"`
}

// Metric is the distribution of one metric over a flow's successes. Of is the
// number of successes; the summary's n is how many of them had it measured.
type Metric struct {
	Name string        `json:"metric"`
	Unit string        `json:"unit"`
	Of   int           `json:"of"`
	Over stats.Summary `json:"summary"`
}

// maxProblems bounds the texts that a report repeats.
const maxProblems = 5

// metric says how to get a value from a record; nil is not measured.
type metric struct {
	name, label, unit string
	value             func(*timeline.Record) *float64
}

// A gap metric is one value a request: percentiles of per-request p99s would be
// percentiles of nothing.
var metrics = []metric{
	{"ttft", "TTFT", "ms", func(r *timeline.Record) *float64 { return r.TTFTMS }},
	{"ttfa", "TTFA", "ms", func(r *timeline.Record) *float64 { return r.TTFAMS }},
	{"ttfaudible", "first audible", "ms", func(r *timeline.Record) *float64 { return r.TTFAudibleMS }},
	{"jct", "JCT", "ms", func(r *timeline.Record) *float64 { return r.JCTMS }},
	{"audio_gap_p95", "request's gap p95", "ms", func(r *timeline.Record) *float64 { return gap(r, gapP95) }},
	{"audio_gap_max", "request's gap max", "ms", func(r *timeline.Record) *float64 { return gap(r, gapMax) }},
	{"rtf", "RTF", "s/s", func(r *timeline.Record) *float64 { return r.RTF }},
	{"rtf_audible", "RTF of what is heard", "s/s", func(r *timeline.Record) *float64 { return r.RTFAudible }},
}

func gapP95(g *timeline.Gap) *float64 { return &g.P95 }
func gapMax(g *timeline.Gap) *float64 { return &g.Max }

func gap(r *timeline.Record, of func(*timeline.Gap) *float64) *float64 {
	if r.AudioGapMS == nil || r.AudioGapMS.N == 0 {
		return nil
	}
	return of(r.AudioGapMS)
}

// tally collects one flow.
type tally struct {
	attempts, requests, success, retrySuccess int

	paced, rateAssumed int
	states             map[timeline.State]int
	values             [][]float64 // by index of metrics
}

// Tables aggregates records by flow. An error that the iterator yields counts as
// an unreadable line.
func Tables(records iter.Seq2[*timeline.Record, error]) Report {
	report := Report{PercentileMethod: stats.Method, Flows: []Flow{}, Sessions: []SessionGroup{}, Problems: []string{}, Stages: []StageGroup{}, Edges: []Edge{}, Paths: []CriticalPath{}}
	tallies := map[group]*tally{}
	var same lengths
	var failed []failure
	work := newStaged()
	for r, err := range records {
		if err != nil {
			report.Unreadable++
			if len(report.Problems) < maxProblems {
				report.Problems = append(report.Problems, err.Error())
			}
			continue
		}
		g := groupOf(r)
		if tallies[g] == nil {
			tallies[g] = &tally{states: map[timeline.State]int{}, values: make([][]float64, len(metrics))}
		}
		tallies[g].add(r)
		same.add(r)
		if r.Terminal.State == timeline.Success {
			work.add(g.label(), r)
		}
		if f, ok := failureOf(r); ok && len(failed) < maxFailures {
			failed = append(failed, f)
		}
	}
	report.Alike, report.Incidents = same.groups(), incidents(failed)
	total := tally{states: map[timeline.State]int{}}
	for _, g := range slices.SortedFunc(maps.Keys(tallies), group.compare) {
		t := tallies[g]
		total.merge(t)
		report.Flows = append(report.Flows, t.flow(g))
	}
	work.fill(&report)
	report.Total = total.outcome()
	report.Invalid = invalid(report.Total)
	return report
}

// group is what is told together.
type group struct{ flow, tIn string }

func groupOf(r *timeline.Record) group {
	g := group{flow: cmp.Or(r.Flow, "unknown")}
	switch {
	case r.Turn == nil:
	case r.TInSource == nil:
		g.tIn = "unasked"
	default:
		g.tIn = *r.TInSource
	}
	return g
}

// label names the group in tables.
func (g group) label() string { return Flow{Name: g.flow, TIn: g.tIn}.label() }

func (g group) compare(o group) int {
	return cmp.Or(cmp.Compare(g.flow, o.flow), cmp.Compare(g.tIn, o.tIn))
}

func (t *tally) add(r *timeline.Record) {
	retry := r.Attempt > 1 || r.RetryOf != nil
	t.attempts++
	if !retry {
		t.requests++
	}
	switch {
	case r.Terminal.State != timeline.Success:
		t.states[cmp.Or(r.Terminal.State, "unknown")]++
	case retry:
		t.retrySuccess++
	default:
		t.success++
		t.measure(r)
	}
}

func (t *tally) measure(r *timeline.Record) {
	for i, m := range metrics {
		if v := m.value(r); v != nil {
			t.values[i] = append(t.values[i], *v)
		}
	}
	if slices.Contains(r.Flags, "paced") {
		t.paced++
	}
	if slices.Contains(r.Flags, "rate_assumed") {
		t.rateAssumed++
	}
}

func (t *tally) merge(o *tally) {
	t.attempts += o.attempts
	t.requests += o.requests
	t.success += o.success
	t.retrySuccess += o.retrySuccess
	for state, n := range o.states {
		t.states[state] += n
	}
}

func (t *tally) flow(g group) Flow {
	f := Flow{Name: g.flow, TIn: g.tIn, Outcome: t.outcome(), Paced: t.paced, RateAssumed: t.rateAssumed}
	for i, m := range metrics {
		f.Metrics = append(f.Metrics, Metric{Name: m.name, Unit: m.unit, Of: t.success, Over: stats.Summarize(t.values[i])})
	}
	return f
}

func (t *tally) outcome() Outcome {
	o := Outcome{
		Attempts: t.attempts, Requests: t.requests, Success: t.success, RetrySuccess: t.retrySuccess,
		SuccessRate: ratio(t.success, t.requests),
	}
	states := timeline.States()
	for _, s := range slices.Sorted(maps.Keys(t.states)) {
		if !slices.Contains(states, s) {
			states = append(states, s) // of a newer writer, or a damaged record
		}
	}
	for _, s := range states {
		if s != timeline.Success {
			o.States = append(o.States, StateCount{State: s, N: t.states[s], Rate: ratio(t.states[s], t.attempts)})
		}
	}
	return o
}

// harnessShare is the share of attempts that may fail by our own fault.
const harnessShare = 0.01

// invalid says why a run is.
func invalid(o Outcome) string {
	n := o.state(timeline.HarnessError).N
	if float64(n) <= harnessShare*float64(o.Attempts) {
		return ""
	}
	return fmt.Sprintf("%d of %d attempts failed by our own fault (harness-error), more than %g %%", n, o.Attempts, 100*harnessShare)
}

// ratio is nil, not 0, when there is nothing to divide by.
func ratio(part, whole int) *float64 {
	if whole == 0 {
		return nil
	}
	r := float64(part) / float64(whole)
	return &r
}
