package compare

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/omnitap/omnitap/exporter/stats"
)

// Options say how runs are compared. The zero value is the usual way.
type Options struct {
	// Flow, if not empty, compares this flow alone.
	Flow string
	// Seed of the draws.
	Seed uint64
}

// Errors of Compare.
var (
	// ErrSame is for a run that is given twice.
	ErrSame = errors.New("a run is given twice")
	// ErrNoFlow is for a flow that no run has.
	ErrNoFlow = errors.New("no run has the flow")
	// ErrNoRuns is for a side without runs.
	ErrNoRuns = errors.New("a side has no runs")
)

// comparison is what all flows share. Its runs are in the order of their start.
type comparison struct {
	a, b  []placed
	order Order
	opts  Options
	slo   slo
	out   *Result
}

// Compare compares the runs of b with those of a. It is pure. The errors are ErrNoRuns,
// ErrSame and ErrNoFlow; a comparison that can be made and says nothing has
// Result.Unusable set.
func Compare(a, b []*Run, opts Options) (*Result, error) {
	if len(a) == 0 || len(b) == 0 {
		return nil, ErrNoRuns
	}
	runs := slices.Concat(a, b)
	if err := once(runs); err != nil {
		return nil, err
	}
	c := &comparison{opts: opts, slo: commonSLO(runs)}
	c.a, c.b, c.order = arrange(a, b)
	c.out = &Result{
		Schema: resultSchema, PercentileMethod: stats.QuantileMethod, Level: level, Order: c.order, SLO: c.slo.String(), NoSLO: c.slo.why,
		Runs: c.runs(), Settings: differing(a, b), Primary: primary(runs), Flows: []Flow{}, Notes: []string{},
	}
	if err := c.flows(); err != nil {
		return nil, err
	}
	c.notes()
	c.verdict()
	return c.out, nil
}

// once refuses runs that are the same one.
func once(runs []*Run) error {
	seen := map[string]string{}
	for _, r := range runs {
		key := fmt.Sprintf("%s %s %d", r.meta.RunID, r.meta.Node, r.meta.Start.WallNS)
		if other, ok := seen[key]; ok {
			return fmt.Errorf("%w: %s and %s are run %s", ErrSame, clean(other), clean(r.Dir), clean(r.meta.RunID))
		}
		seen[key] = r.Dir
	}
	return nil
}

// flows compares group by group.
func (c *comparison) flows() error {
	groups := map[group]bool{}
	var found []string
	for _, p := range slices.Concat(c.a, c.b) {
		for g := range p.groups {
			found = append(found, g.flow)
			if c.opts.Flow == "" || g.flow == c.opts.Flow {
				groups[g] = true
			}
		}
	}
	if len(groups) == 0 {
		slices.Sort(found)
		return fmt.Errorf("%w %q; there are %v", ErrNoFlow, clean(c.opts.Flow), slices.Compact(found))
	}
	for _, g := range slices.SortedFunc(maps.Keys(groups), group.compare) {
		c.out.Flows = append(c.out.Flows, c.flow(g))
	}
	return nil
}

// flow is one group under comparison.
type flow struct {
	c      *comparison
	a, b   []*digest // by run, in the order of c.a and c.b
	paired paired
	doubts doubts
	unfit  string // why no figure of it says anything
	empty  string // why none but the success rate does
	out    *Flow

	succeeded Figure
}

func (c *comparison) flow(g group) Flow {
	out := Flow{Name: g.flow, TIn: g.tIn, Notes: []string{}, Figures: []Figure{}}
	f := &flow{c: c, a: digests(c.a, g), b: digests(c.b, g), out: &out}
	f.paired = pair(slices.Concat(f.a, f.b))
	out.Pairing = f.paired.Pairing
	out.Counts = [2]Counts{counts(f.a), counts(f.b)}
	out.Checks = checks(f.a, f.b)
	f.fitness()
	f.success()
	f.alike()
	f.figures()
	f.stages()
	f.headline()
	f.oddities()
	out.flow = f
	return out
}

// digests are the group's by run; a run without it did nothing in it.
func digests(runs []placed, g group) []*digest {
	out := make([]*digest, len(runs))
	for i, p := range runs {
		if out[i] = p.groups[g]; out[i] == nil {
			out[i] = newDigest()
		}
	}
	return out
}

// fitness says what makes every figure worthless.
func (f *flow) fitness() {
	for _, p := range slices.Concat(f.c.a, f.c.b) {
		if p.unfit != "" {
			f.unfit = fmt.Sprintf("%s is %s; leave it out", clean(p.Dir), p.unfit)
			return
		}
	}
	for i, d := range slices.Concat(f.a, f.b) {
		if d.success == 0 {
			f.empty = fmt.Sprintf("%s has no success", clean(slices.Concat(f.c.a, f.c.b)[i].Dir))
			return
		}
	}
}

// figures fills in the table of performance.
func (f *flow) figures() {
	for m := range latencies {
		some := false
		for _, v := range f.paired.values[m] {
			some = some || len(v) > 0
		}
		for _, p := range percentiles {
			if some {
				f.out.Figures = append(f.out.Figures, f.latency(m, p))
			}
		}
	}
	f.out.Figures = append(f.out.Figures, f.throughput())
	if f.c.slo.why == "" {
		f.out.Figures = append(f.out.Figures, f.goodput())
	}
	f.out.Figures = append(f.out.Figures, f.succeeded)
}

// latency is a percentile of a metric of requests.
func (f *flow) latency(m int, p float64) Figure {
	v, n := f.paired.values[m], len(f.a)
	l := &latencies[m]
	out := Figure{Name: fmt.Sprintf("%s_p%.0f", l.name, 100*p), Label: fmt.Sprintf("%s p%.0f", l.label, 100*p)}
	out.N = [2]int{total(v[:n]), total(v[n:])}
	out.Delta = f.c.relative(sides{a: v[:n], b: v[n:], s: stats.Quantile(p), unit: l.unit})
	f.judge(&out.Delta, judged{up: Slower, down: Faster, gain: -1, scope: l.scope})
	return out
}

func total(v stats.Blocks) (n int) {
	for _, block := range v {
		n += len(block)
	}
	return n
}

// notes tells of the runs and their order.
func (c *comparison) notes() {
	note := func(format string, a ...any) { c.out.Notes = append(c.out.Notes, fmt.Sprintf(format, a...)) }
	switch c.order.Kind {
	case OrderSeparate:
		note("The runs came as %s: what drifted meanwhile (heat, caches, neighbours) is confounded with what was changed. Alternate them: A B B A.", c.order.Pattern)
	case OrderUnknown:
		note("Some runs do not say when they began: that they alternated, and drift, cannot be told.")
	}
	if c.order.Overlap {
		note("Some runs ran at the same time: they may have disturbed each other.")
	}
	for _, p := range slices.Concat(c.a, c.b) {
		for _, n := range p.notes {
			note("%s: %s.", clean(p.Dir), n)
		}
		if p.leftOut > 0 {
			note("%s: %s of other phases than the measured one left out.", clean(p.Dir), plural(p.leftOut, "record"))
		}
		if p.unfit != "" {
			note("%s is %s.", clean(p.Dir), p.unfit)
		}
	}
}

// verdict says whether anything was compared at all.
func (c *comparison) verdict() {
	why := ""
	for i := range c.out.Flows {
		f := c.out.Flows[i].flow
		if f.unfit == "" && f.empty == "" {
			return
		}
		why = cmp.Or(why, f.unfit, f.empty)
	}
	c.out.Unusable = why
}
