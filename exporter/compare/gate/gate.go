package gate

import (
	"math"
	"strconv"
)

// Kind is what a metric's figures are: it settles the units that a limit may have.
type Kind int

// The kinds.
const (
	// Time is milliseconds.
	Time Kind = iota
	// Ratio is a number without a unit.
	Ratio
	// Rate is a number a second.
	Rate
	// Share is a part of a whole, 0 to 1.
	Share
)

// Metric is what a condition may be about.
type Metric struct {
	Name string
	Kind Kind
	// Requests says that a run has a distribution of it, over its requests, so that a
	// percentile must be named; else it is one figure a run.
	Requests bool
}

// Metrics lists them in the order of the tables.
func Metrics() []Metric {
	return []Metric{
		{"ttft", Time, true},
		{"ttfa", Time, true},
		{"ttfaudible", Time, true},
		{"jct", Time, true},
		{"rtf", Ratio, true},
		{"throughput", Rate, false},
		{"goodput", Rate, false},
		{"success_rate", Share, false},
	}
}

// Op is a comparison.
type Op string

// The comparisons.
const (
	AtMost  Op = "<="
	Below   Op = "<"
	AtLeast Op = ">="
	Above   Op = ">"
)

// About is what a limit is held against.
type About int

// What a limit may be about.
const (
	// Change is (B − A)/A, a share.
	Change About = iota
	// Difference is B − A in the metric's unit.
	Difference
	// Figure is B's own figure in the metric's unit.
	Figure
)

// Gate is one condition. Its fields are what was written; Limit is what that means.
type Gate struct {
	// Flow is the flow that it is about alone, empty for every flow that has the metric.
	Flow   string
	Metric Metric
	// Percentile is 1 to 99, 0 for a metric that has none.
	Percentile int
	Op         Op
	About      About
	// Value and Unit are the limit as it was written, without its spaces.
	Value float64
	Unit  string
}

// Name is the figure that the gate is about: ttfa_p99.
func (g Gate) Name() string {
	if g.Percentile == 0 {
		return g.Metric.Name
	}
	return g.Metric.Name + "_p" + strconv.Itoa(g.Percentile)
}

// Quantile is the percentile as a share, NaN for a metric that has none.
func (g Gate) Quantile() float64 {
	if g.Percentile == 0 {
		return math.NaN()
	}
	return float64(g.Percentile) / 100
}

// Limit is the number that an interval is held to: a share for a Change and for a
// Share, else in the metric's unit (milliseconds, a second, none).
func (g Gate) Limit() float64 {
	switch g.Unit {
	case "%", "pp":
		return g.Value / 100
	case "s":
		return g.Value * 1000
	}
	return g.Value
}

// String is the gate in the form that Parse reads: the same gate has the same text.
func (g Gate) String() string {
	if g.Flow == "" {
		return g.condition()
	}
	return g.Flow + ": " + g.condition()
}

// condition is the gate without its flow.
func (g Gate) condition() string {
	sign := ""
	if g.About != Figure && !math.Signbit(g.Value) {
		sign = "+"
	}
	return g.Name() + " " + string(g.Op) + " " + sign + strconv.FormatFloat(g.Value, 'f', -1, 64) + g.Unit
}

// Verdict is what became of a gate.
type Verdict string

// The verdicts.
const (
	Held       Verdict = "held"
	Broken     Verdict = "broken"
	CannotTell Verdict = "cannot tell"
)

// Judge holds an interval to the gate: held where all of it fits, broken where none of
// it does, else, and for bounds that are no numbers, it cannot be told.
func (g Gate) Judge(lo, hi float64) Verdict {
	limit := g.Limit()
	if math.IsNaN(lo) || math.IsNaN(hi) || lo > hi {
		return CannotTell
	}
	var all, none bool
	switch g.Op {
	case AtMost:
		all, none = hi <= limit, lo > limit
	case Below:
		all, none = hi < limit, lo >= limit
	case AtLeast:
		all, none = lo >= limit, hi < limit
	case Above:
		all, none = lo > limit, hi <= limit
	}
	switch {
	case all:
		return Held
	case none:
		return Broken
	}
	return CannotTell
}
