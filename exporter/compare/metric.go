package compare

import (
	"math"

	"github.com/omnitap/omnitap/exporter/compare/gate"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// latency is a metric that requests have. scope says which doubts are about it, pacer
// that a server which paces its output to real time settles it.
type latency struct {
	name, label, unit string
	scope             scope
	pacer             bool
	value             func(*timeline.Record) *float64
}

// nLatencies is how many there are.
const nLatencies = 5

// latencies are in the order of gate.Metrics.
var latencies = [nLatencies]latency{
	{"ttft", "TTFT", "ms", aboutFirst, false, func(r *timeline.Record) *float64 { return r.TTFTMS }},
	{"ttfa", "TTFA", "ms", aboutFirst, false, func(r *timeline.Record) *float64 { return r.TTFAMS }},
	{"ttfaudible", "first audible", "ms", aboutFirst, false, func(r *timeline.Record) *float64 { return r.TTFAudibleMS }},
	{"jct", "JCT", "ms", aboutWhole, true, func(r *timeline.Record) *float64 { return r.JCTMS }},
	{"rtf", "RTF", "s/s", aboutRTF, true, func(r *timeline.Record) *float64 { return r.RTF }},
}

// Places in latencies.
const (
	atTTFT = 0
	atTTFA = 1
	atJCT  = 3
)

// Names of the figures that a run has one of.
const (
	throughput  = "throughput"
	goodput     = "goodput"
	successRate = "success_rate"
)

// percentiles are those of the tables.
var percentiles = [...]float64{0.50, 0.90, 0.95, 0.99}

// values are a record's latencies, NaN for what was not measured and for what the
// server's pacer settled.
func values(r *timeline.Record, paced bool) (v [nLatencies]float64) {
	for i := range latencies {
		v[i] = math.NaN()
		if p := latencies[i].value(r); p != nil && !math.IsInf(*p, 0) && (!paced || !latencies[i].pacer) {
			v[i] = *p
		}
	}
	return v
}

// latencyOf is the place of a gate's metric in latencies, −1 for a figure of a run.
func latencyOf(m gate.Metric) int {
	for i := range latencies {
		if latencies[i].name == m.Name {
			return i
		}
	}
	return -1
}

// finite returns v for JSON, nil where it is no finite number.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// orNaN is what a pointer holds.
func orNaN(p *float64) float64 {
	if p == nil {
		return math.NaN()
	}
	return *p
}
