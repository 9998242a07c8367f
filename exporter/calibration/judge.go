package calibration

import (
	"math"

	"github.com/omnitap/omnitap/exporter/stats"
)

// Verdict is what is said of a metric, or of all.
type Verdict string

// The verdicts.
const (
	Within       Verdict = "within budget"
	Over         Verdict = "over budget"
	Inconclusive Verdict = "inconclusive"
	// NotMeasured: no block has a value of it.
	NotMeasured Verdict = "not measured"
)

// Metric is what the probes cost of one metric.
type Metric struct {
	Name string `json:"name"`
	// Statistic is a block's figure: p50 or p99 of its requests, or the one value of the
	// block; Unit that of Without and With.
	Statistic string `json:"statistic"`
	Unit      string `json:"unit"`
	// Decides says that it counts for the verdict of all.
	Decides bool `json:"decides"`
	// Without and With are the geometric means of the blocks' figures; nil for unknown.
	Without *float64 `json:"without"`
	With    *float64 `json:"with"`
	// Change is that of With to Without, NoiseFloor that of A against A.
	Change     stats.Change `json:"change"`
	NoiseFloor stats.Change `json:"noise_floor"`
	Verdict    Verdict      `json:"verdict"`
	// MoreBlocks is how many blocks more would settle it if the estimate and the spread
	// stay as they are, nil where it is settled or cannot be told.
	MoreBlocks *int `json:"more_blocks"`
}

// measure is how a metric is read from a block.
type measure struct {
	name, statistic, unit string
	decides, less         bool // less is worse
	values                func(*Block) []float64
}

func measures(blocks []Block) []measure {
	ttft := func(b *Block) []float64 { return b.TTFT }
	ttfa := func(b *Block) []float64 { return b.TTFA }
	jct := func(b *Block) []float64 { return b.JCT }
	list := []measure{
		{"ttft", "p50", "ms", true, false, ttft},
		{"ttfa", "p50", "ms", true, false, ttfa},
		{"jct", "p50", "ms", true, false, jct},
		{"throughput", "rate", "1/s", true, true, func(b *Block) []float64 { return one(b.throughput(), b.Success > 0) }},
		{"ttft", "p99", "ms", false, false, ttft},
		{"ttfa", "p99", "ms", false, false, ttfa},
		{"jct", "p99", "ms", false, false, jct},
		{"cpu", "per request", "ms", false, false, func(b *Block) []float64 { return one(b.cpu("")) }},
	}
	for _, s := range stagesOf(blocks) {
		list = append(list, measure{"cpu." + s, "per request", "ms", false, false, func(b *Block) []float64 { return one(b.cpu(s)) }})
	}
	return list
}

func one(v float64, ok bool) []float64 {
	if !ok {
		return nil
	}
	return []float64{v}
}

func (m *measure) figure() stats.Statistic {
	switch m.statistic {
	case "p99":
		return stats.Quantile(0.99)
	case "p50":
		return stats.Median
	}
	return stats.Mean
}

// judge reckons one metric over pairs of blocks.
func (m *measure) judge(blocks []Block, list [][2]int, c Config) Metric {
	out := Metric{Name: m.name, Statistic: m.statistic, Unit: m.unit, Decides: m.decides, Verdict: NotMeasured}
	some := false
	for i := range blocks {
		some = some || len(m.values(&blocks[i])) > 0
	}
	d := stats.Design{Paired: true, Level: c.level(), Seed: c.Seed}
	a, b := m.sides(blocks, list)
	out.Change = stats.RelativeChange(a, b, m.figure(), d)
	first, second := m.sides(blocks, floors(list))
	out.NoiseFloor = stats.RelativeChange(first, second, m.figure(), d)
	if !some {
		return out
	}
	out.Without, out.With = center(a, m.figure()), center(b, m.figure())
	out.Verdict, out.MoreBlocks = m.verdict(&out.Change, len(list), c.Budget)
	return out
}

// sides are the values of each pair's two blocks.
func (m *measure) sides(blocks []Block, list [][2]int) (a, b stats.Blocks) {
	for _, p := range list {
		a, b = append(a, m.values(&blocks[p[0]])), append(b, m.values(&blocks[p[1]]))
	}
	return a, b
}

// verdict holds a change's interval to the budget.
func (m *measure) verdict(change *stats.Change, n int, budget float64) (Verdict, *int) {
	lo, hi, at := change.Interval.Lo, change.Interval.Hi, change.Estimate
	if m.less {
		lo, hi, at = -hi, -lo, -at
	}
	switch {
	case change.Why != "" || math.IsNaN(lo) || math.IsNaN(hi):
		return Inconclusive, nil
	case hi <= budget:
		return Within, nil
	case lo > budget:
		return Over, nil
	}
	// Blocks that are needed for the half of the interval on the budget's side.
	half := hi - at
	if at > budget {
		half = at - lo
	}
	pairs := stats.BlocksNeeded(n, half, math.Abs(budget-at))
	if pairs < 0 || pairs > mostPairs {
		return Inconclusive, nil
	}
	more := 2 * max(pairs, 1)
	return Inconclusive, &more
}

// center is the geometric mean of blocks' figures, nil where one has none.
func center(v stats.Blocks, s stats.Statistic) *float64 {
	sum := 0.0
	for _, block := range v {
		f := s(block)
		if !(f > 0) {
			return nil
		}
		sum += math.Log(f)
	}
	if len(v) == 0 {
		return nil
	}
	mean := math.Exp(sum / float64(len(v)))
	return &mean
}
