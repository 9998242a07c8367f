package reconcile

import (
	"math"

	"github.com/omnitap/omnitap/exporter/stats"
	"github.com/omnitap/omnitap/exporter/upstream"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// Quantity is a row of the table.
type Quantity string

// The rows.
const (
	Requests      Quantity = "requests"
	Failures      Quantity = "failures"
	TTFT          Quantity = "ttft"
	TTFA          Quantity = "ttfa"
	AudioEvent    Quantity = "first_audio_event"
	JCT           Quantity = "jct"
	AudioS        Quantity = "audio"
	TransferBytes Quantity = "transfer_bytes"
)

// units are what the figures of a quantity are in.
var units = map[Quantity]string{
	Requests: "requests", Failures: "requests", TTFT: "ms", TTFA: "ms", AudioEvent: "ms", JCT: "ms", AudioS: "s", TransferBytes: "bytes",
}

// View is one side of the table.
type View string

// The views.
const (
	Client View = "client"
	Wire   View = "wire"
	Server View = "server"
)

// Input is one run in three views; Generator and Server may be nil.
type Input struct {
	// Records are all of the run's, in any order.
	Records   []*timeline.Record
	Generator *Generator
	Server    *upstream.Difference
	// Tolerance is by how many milliseconds two means may differ without being a
	// difference, 2 by default; and by TolerancePart of the wire's, 0.01 by default.
	Tolerance, TolerancePart float64
}

// Cell is what one view says of a quantity. Nil is what it does not.
type Cell struct {
	N     *int     `json:"n"`
	Mean  *float64 `json:"mean"`
	P50   *float64 `json:"p50"`
	P99   *float64 `json:"p99"`
	Total *float64 `json:"total"`
	// P50In and P99In bound a percentile where there are buckets alone; the upper bound may
	// be missing.
	P50In []float64 `json:"p50_in,omitempty"`
	P99In []float64 `json:"p99_in,omitempty"`
	// Source is the name that the figure has there.
	Source string `json:"source,omitempty"`
}

// Row is one quantity in all views. Paired is the wire's over the generator's requests alone,
// All over the whole run.
type Row struct {
	Quantity Quantity `json:"quantity"`
	Unit     string   `json:"unit"`
	Client   Cell     `json:"client"`
	Paired   Cell     `json:"wire_same_requests"`
	All      Cell     `json:"wire"`
	Server   Cell     `json:"server"`
}

// Finding is one difference, or a part of one: what A says less what B says.
type Finding struct {
	Quantity Quantity `json:"quantity"`
	A        View     `json:"a"`
	B        View     `json:"b"`
	Cause    Cause    `json:"cause"`
	// Amount is how much of the difference it is, in Unit (of the mean, where the quantity
	// is a duration); nil where there is no number for it.
	Amount *float64 `json:"amount"`
	Unit   string   `json:"unit"`
	// N is how many requests it concerns, Evidence what shows it.
	N        int    `json:"n"`
	Evidence string `json:"evidence"`
}

// Result is the table.
type Result struct {
	PercentileMethod string    `json:"percentile_method"`
	Generator        string    `json:"generator,omitempty"`
	Pairing          Pairing   `json:"pairing"`
	PairingNote      string    `json:"pairing_note,omitempty"`
	Rows             []Row     `json:"rows"`
	Findings         []Finding `json:"findings"`
	// Notes say what a view lacks.
	Notes []string `json:"notes"`
}

// Table puts the views together.
func Table(in Input) Result {
	w := newWorld(in)
	w.counts()
	w.latencies()
	w.sound()
	w.transfers()
	w.percentiles()
	w.notes()
	return w.result
}

// world is what the parts of Table share.
type world struct {
	in      Input
	records []*timeline.Record // those that count
	pairs   pairs
	server  serverView
	result  Result
}

func newWorld(in Input) *world {
	if in.Tolerance <= 0 {
		in.Tolerance = 2
	}
	if in.TolerancePart <= 0 {
		in.TolerancePart = 0.01
	}
	w := &world{in: in}
	for _, r := range in.Records {
		if r != nil && loads(r) {
			w.records = append(w.records, r)
		}
	}
	w.pairs = match(in.Generator, w.records)
	w.server = readServer(in.Server)
	w.result = Result{PercentileMethod: stats.Method, Pairing: w.pairs.how, PairingNote: w.pairs.why, Rows: []Row{}, Findings: []Finding{}, Notes: []string{}}
	if in.Generator != nil {
		w.result.Generator = in.Generator.Tool
	}
	return w
}

// tolerance is what a difference must pass to be one.
func (w *world) tolerance(wire float64) float64 {
	return math.Max(w.in.Tolerance, w.in.TolerancePart*math.Abs(wire))
}

func (w *world) find(f Finding) {
	if f.Unit == "" {
		f.Unit = units[f.Quantity]
	}
	w.result.Findings = append(w.result.Findings, f)
}

// row adds a row, unless no view has anything to say.
func (w *world) row(r Row) {
	r.Unit = units[r.Quantity]
	for _, c := range []Cell{r.Client, r.Paired, r.All, r.Server} {
		if c.N != nil || c.Mean != nil || c.Total != nil {
			w.result.Rows = append(w.result.Rows, r)
			return
		}
	}
}

// paired are the records of the generator's requests.
func (w *world) paired() []*timeline.Record {
	out := make([]*timeline.Record, 0, len(w.pairs.pairs))
	for _, p := range w.pairs.pairs {
		out = append(out, p.wire)
	}
	return out
}

// describe is a cell of values; an empty one where there are none.
func describe(values []float64) Cell {
	if len(values) == 0 {
		return Cell{}
	}
	s := stats.Summarize(values)
	total := 0.0
	for _, v := range values {
		total += v
	}
	return Cell{N: &s.N, Mean: &s.Mean, P50: &s.P50, P99: &s.P99, Total: &total}
}

func count(n int) Cell { return Cell{N: &n} }
