package reconcile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/omnitap/omnitap/exporter/upstream"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// duration is a quantity that has an instant on the wire.
type duration struct {
	quantity Quantity
	server   upstream.Quantity
	// instant is the record's, CLOCK_MONOTONIC nanoseconds; nil where it was not reached.
	instant func(*timeline.Record) *int64
	// counted is what the server takes for it, where that is another.
	counted func(*timeline.Record) *int64
	client  func(*GeneratorRequest) *float64
}

func durations() []duration {
	event := func(r *timeline.Record) *int64 { return r.Points.TAudioEvent }
	none := func(*GeneratorRequest) *float64 { return nil }
	return []duration{
		{TTFT, upstream.TTFT, func(r *timeline.Record) *int64 { return r.Points.TText }, nil, func(c *GeneratorRequest) *float64 { return c.TTFTMS }},
		{TTFA, upstream.TTFA, func(r *timeline.Record) *int64 { return r.Points.TAudio }, event, func(c *GeneratorRequest) *float64 { return c.TTFAMS }},
		{AudioEvent, "", event, nil, none},
		{JCT, upstream.JCT, func(r *timeline.Record) *int64 { return r.Points.TTerm }, nil, func(c *GeneratorRequest) *float64 { return c.JCTMS }},
	}
}

// latencies tells the durations, and explains their differences.
func (w *world) latencies() {
	for _, d := range durations() {
		row := Row{Quantity: d.quantity, All: describe(since(w.records, d.instant)), Server: w.server[d.server].cell(1e3)}
		if w.pairs.how != Summed {
			row.Paired = describe(since(w.paired(), d.instant))
		}
		one := w.oneByOne(d)
		row.Client = w.clientCell(d, one)
		w.row(row)
		switch {
		case row.Client.Mean == nil:
		case w.pairs.how == Summed:
			w.sumsAlone(d, row)
		case len(one) > 0:
			w.clientOneByOne(d, one)
		default:
			w.clientMeans(d, *row.Client.Mean)
		}
		if row.Server.Mean != nil {
			w.serverMeans(d, row)
		}
	}
}

// since are the milliseconds from t_in to an instant, of the records that reached it.
func since(records []*timeline.Record, instant func(*timeline.Record) *int64) []float64 {
	var out []float64
	for _, r := range records {
		if t := instant(r); t != nil && r.Points.TIn != nil {
			out = append(out, ms(*t-*r.Points.TIn))
		}
	}
	return out
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }

// oneByOne are the pairs whose request has its own value of a duration.
func (w *world) oneByOne(d duration) []pair {
	var out []pair
	for _, p := range w.pairs.pairs {
		if d.client(p.client) != nil && p.wire.Points.TIn != nil {
			out = append(out, p)
		}
	}
	return out
}

// clientCell is what the generator says: its own figures where its file has them, else those
// of its requests.
func (w *world) clientCell(d duration, one []pair) Cell {
	g := w.in.Generator
	if g == nil {
		return Cell{}
	}
	var c Cell
	if len(one) > 0 {
		var values []float64
		for _, p := range one {
			values = append(values, *d.client(p.client))
		}
		c = describe(values)
		c.Total = nil
	}
	f, ok := g.Figures[d.quantity]
	if !ok {
		return c
	}
	if c.N == nil {
		c.N = g.Completed
	}
	c.Mean = cmp.Or(f.Mean, c.Mean)
	for p, to := range map[float64]**float64{50: &c.P50, 99: &c.P99} {
		if v, ok := f.Percentiles[p]; ok {
			*to = &v
		}
	}
	return c
}

// sumsAlone says of means that cannot be told one by one whether they differ.
func (w *world) sumsAlone(d duration, row Row) {
	wire := row.All.Mean
	if wire == nil {
		return
	}
	diff := *row.Client.Mean - *wire
	if diff > w.tolerance(*wire) || -diff > w.tolerance(*wire) {
		w.find(Finding{Quantity: d.quantity, A: Client, B: Wire, Cause: NotExplained, Amount: &diff, N: deref(row.Client.N), Evidence: w.pairs.why})
	}
}

// part collects what one cause makes of the difference of means.
type part struct {
	sum      float64
	n        int
	evidence string
}

type parts map[Cause]*part

func (m parts) add(c Cause, v float64, evidence string) {
	p := m[c]
	if p == nil {
		p = &part{evidence: evidence}
		m[c] = p
	}
	p.sum += v
	p.n++
}

func (m parts) n() (n int) {
	for _, p := range m {
		n += p.n
	}
	return n
}

// clientOneByOne explains a duration that each request of the generator has. On one clock
// each difference is the generator's start, its reading, or an instant that lies ahead of
// what it is said to be; on two, an instant that lies ahead of the wire's cannot be the same
// event either: its clock started earlier.
func (w *world) clientOneByOne(d duration, one []pair) {
	parts, without := parts{}, parts{} // without: the wire has no such instant
	groups := w.pairs.reaches(d.instant)
	n, zeros, reached := 0, 0, 0.0
	for _, p := range one {
		got, in := *d.client(p.client), *p.wire.Points.TIn
		t := d.instant(p.wire)
		if got == 0 && w.in.Generator.Reading.ZeroForNone {
			zeros++
			continue
		}
		n++
		reached += got
		start, known := w.start(p)
		if t == nil { // of those it could be exchanged with, too, or who knows
			if groups[p.group].some {
				without.add(NotExplained, 0, "another request started so close that it could be that one's")
				continue
			}
			c, why := w.early(d, p, in+int64(got*1e6), start, known)
			without.add(c, 0, why+"; on the wire there is none")
			continue
		}
		wire := ms(*t - in)
		if !known {
			if got < wire-w.in.Tolerance {
				c, why := w.early(d, p, in+int64(got*1e6), 0, false)
				parts.add(c, got-wire, why)
			} else {
				parts.add(NotExplained, got-wire, "its clock is not this node's")
			}
			continue
		}
		at := start + int64(got*1e6)
		parts.add(GeneratorStart, ms(in-start), "t_in less its start, on one clock")
		if g := groups[p.group]; at < *t-slack && g.all && at < g.first-slack {
			c, why := w.early(d, p, at, start, true)
			parts.add(c, ms(at-*t), why)
		} else {
			parts.add(GeneratorRead, ms(at-*t), "the instant that it read less that of the wire, on one clock")
		}
	}
	w.zeros(d, zeros, n, reached)
	for _, c := range order {
		if p := without[c]; p != nil {
			w.find(Finding{Quantity: d.quantity, A: Client, B: Wire, Cause: c, N: p.n, Evidence: p.evidence})
		}
		p := parts[c]
		if p == nil {
			continue
		}
		mean := p.sum / float64(n-without.n())
		if (c == GeneratorStart || c == GeneratorRead || c == NotExplained) && mean < w.in.Tolerance && -mean < w.in.Tolerance {
			continue // it is told by the means themselves
		}
		w.find(Finding{Quantity: d.quantity, A: Client, B: Wire, Cause: c, Amount: &mean, N: p.n, Evidence: p.evidence})
	}
}

// order is that of the findings of one quantity.
var order = []Cause{
	ReasoningAsToken, AudioAsToken, EmptyEventAsToken, EmptyAudioAsAudio, EndMarkerLeftOut, GeneratorStart, GeneratorRead, QueueAhead, NotExplained,
}

// start is when a request's own clock began, as CLOCK_MONOTONIC; false on another clock.
func (w *world) start(p pair) (int64, bool) {
	at := w.in.Generator.Clock.ingress(p.wire)
	if p.client.StartNS == 0 || at == nil || w.in.Generator.Clock == NoClock {
		return 0, false
	}
	ahead := *at - p.client.StartNS
	if ahead < -slack || ahead > maxDelay {
		return 0, false
	}
	return *p.wire.Points.TIn - ahead, true
}

// early names what a generator took for an event that had not come by then: the last one on
// the wire that had. Without a common clock `at` is the latest that it can have been.
func (w *world) early(d duration, p pair, at, start int64, known bool) (Cause, string) {
	r := p.wire
	if d.quantity == JCT {
		return EndMarkerLeftOut, "its end lies ahead of the end marker on the wire"
	}
	if d.quantity == TTFA {
		if e := r.Points.TAudioEvent; e != nil && *e <= at+slack {
			return EmptyAudioAsAudio, "it lies ahead of the first playable audio, and not ahead of the first audio event"
		}
		return NotExplained, "it lies ahead of the first audio event"
	}
	type event struct {
		at    int64
		cause Cause
		why   string
	}
	var seen []event
	if x := r.Reasoning; x != nil && x.FirstMS != nil {
		seen = append(seen, event{*r.Points.TIn + int64(*x.FirstMS*1e6), ReasoningAsToken, "it lies ahead of the first text, and not ahead of the first reasoning"})
	}
	if e := r.Points.TAudioEvent; e != nil && w.in.Generator.Reading.AudioAsText {
		seen = append(seen, event{*e, AudioAsToken, "it lies ahead of the first text, and not ahead of the first audio event"})
	}
	if h := r.Points.THdr; h != nil {
		seen = append(seen, event{*h, EmptyEventAsToken, "it lies behind the answer's head, and ahead of the first text"})
	}
	seen = slices.DeleteFunc(seen, func(e event) bool { return e.at > at+slack })
	if len(seen) == 0 || (known && start > at) {
		return NotExplained, "it lies ahead of the answer"
	}
	last := slices.MaxFunc(seen, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	return last.cause, last.why
}

// zeros tells what zeros do to a mean: with them it is sum/(n+zeros).
func (w *world) zeros(d duration, zeros, n int, sum float64) {
	if zeros == 0 {
		return
	}
	f := Finding{Quantity: d.quantity, A: Client, B: Wire, Cause: ZeroForNone, N: zeros, Evidence: fmt.Sprintf("%d of its %d values are 0", zeros, n+zeros)}
	if n > 0 {
		f.Amount = new(sum/float64(n+zeros) - sum/float64(n))
	}
	w.find(f)
}

func deref(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}
