package calibration

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// world makes blocks of a server whose probes cost a known share.
type world struct {
	rng *rand.Rand
	// noise is the spread of requests, block that of blocks, drift the change from block
	// to block, as shares.
	noise, block, drift float64
	requests            int
}

func newWorld(seed uint64) *world {
	return &world{rng: rand.New(rand.NewPCG(seed, 7)), noise: 0.1, block: 0.01, drift: 0.002, requests: 16}
}

// run makes so many blocks, whose latencies grow by overhead where the probes are there.
func (w *world) run(n int, overhead float64) []Block {
	var blocks []Block
	for i := range n {
		b := Block{Index: i, Attached: Attached(i), Attempts: w.requests, Success: w.requests, StartNS: 1, CPU: map[string]float64{}}
		factor := math.Exp(w.block*w.rng.NormFloat64() + w.drift*float64(i))
		if b.Attached {
			factor *= 1 + overhead
			b.Probes = []string{"sched", "shm"}
			b.Cores = map[string]float64{"sched": 0.006, "shm": 0.002}
		} else {
			b.Detached = Verified
		}
		sum := 0.0
		for range w.requests {
			v := math.Exp(w.noise * w.rng.NormFloat64())
			b.TTFT = append(b.TTFT, 50*factor*v)
			b.TTFA = append(b.TTFA, 120*factor*v)
			b.JCT = append(b.JCT, 400*factor*v)
			sum += 400 * factor * v
		}
		b.CPU["thinker"], b.CPU["talker"] = 3*sum, 5*sum
		b.EndNS = b.StartNS + int64(sum*1e6)
		blocks = append(blocks, b)
	}
	return blocks
}

func metric(t *testing.T, r *Result, name, statistic string) *Metric {
	t.Helper()
	for i := range r.Metrics {
		if m := &r.Metrics[i]; m.Name == name && m.Statistic == statistic {
			return m
		}
	}
	t.Fatalf("no %s %s in %+v", name, statistic, r.Metrics)
	return nil
}

// TestOrder: blocks come as A B B A, pairs are neighbours, and each pair's A is found.
func TestOrder(t *testing.T) {
	var got strings.Builder
	for i := range 12 {
		got.WriteByte("AB"[map[bool]int{true: 1}[Attached(i)]])
	}
	if got.String() != "ABBAABBAABBA" {
		t.Errorf("order %s", got.String())
	}
	list, err := pairs(newWorld(1).run(9, 0))
	if want := [][2]int{{0, 1}, {3, 2}, {4, 5}, {7, 6}}; err != nil || !slices.Equal(list, want) {
		t.Errorf("pairs %v (%v), want %v", list, err, want)
	}
	if got, want := floors(list), [][2]int{{0, 3}, {7, 4}}; !slices.Equal(got, want) {
		t.Errorf("noise floor %v, want %v", got, want)
	}
	blocks := newWorld(1).run(8, 0)
	blocks[3].Attached = true
	if r := Judge(blocks, Config{}); r.Verdict != Inconclusive || len(r.Why) != 1 || len(r.Metrics) != 0 {
		t.Errorf("wrong order: %+v", r)
	}
}

// TestLooks: the first look is at the fewest pairs, each later one at twice as many, and
// all of them share the error.
func TestLooks(t *testing.T) {
	for _, c := range []struct {
		c     Config
		looks []int
		level float64
	}{
		{Config{}, []int{4, 8, 16}, 1 - 0.05/3},
		{Config{MinPairs: 4, MaxPairs: 4}, []int{4}, 0.95},
		{Config{MinPairs: 6, MaxPairs: 20, Level: 0.9}, []int{6, 12, 20}, 1 - 0.1/3},
	} {
		if got := c.c.Looks(); !slices.Equal(got, c.looks) || math.Abs(c.c.level()-c.level) > 1e-12 {
			t.Errorf("%+v: looks %v at %v, want %v at %v", c.c, got, c.c.level(), c.looks, c.level)
		}
		for n := range 100 {
			if got, want := c.c.Due(n), n%2 == 0 && slices.Contains(c.looks, n/2); got != want {
				t.Errorf("%+v: due after %d blocks: %v", c.c, n, got)
			}
		}
	}
	for _, c := range []Config{{Budget: -1}, {Budget: 1}, {Budget: math.NaN()}, {Level: 1}, {Level: 0.1}, {MinPairs: 3}, {MinPairs: 8, MaxPairs: 7}, {MaxPairs: 5000}} {
		if c.Validate() == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

// TestVerdicts: a cost far below the budget is within it, one far above is over it, on the
// metric that has it; less throughput is for the worse.
func TestVerdicts(t *testing.T) {
	quiet := func(overhead float64) Result {
		w := newWorld(3)
		w.noise, w.block = 0.01, 0.002
		return Judge(w.run(16, overhead), Config{Budget: 0.02})
	}
	r := quiet(0)
	if r.Verdict != Within || r.MoreBlocks != nil || r.Pairs != 8 || len(r.Why) != 0 {
		t.Errorf("nothing: %+v", r)
	}
	r = quiet(0.05)
	if r.Verdict != Over {
		t.Errorf("5 %%: %+v", r)
	}
	for _, name := range []string{"ttft", "ttfa", "jct"} {
		m := metric(t, &r, name, "p50")
		if m.Verdict != Over || math.Abs(m.Change.Estimate-0.05) > 0.01 || math.Abs(*m.With / *m.Without - 1.05) > 0.01 {
			t.Errorf("5 %%: %+v", m)
		}
		if math.Abs(m.NoiseFloor.Estimate) > 0.01 || m.NoiseFloor.Blocks != 4 {
			t.Errorf("noise floor: %+v", m.NoiseFloor)
		}
	}
	if m := metric(t, &r, "throughput", "rate"); m.Verdict != Over || m.Change.Estimate > -0.04 {
		t.Errorf("throughput: %+v", m)
	}
	if m := metric(t, &r, "cpu.talker", "per request"); m.Decides || math.Abs(m.Change.Estimate-0.05) > 0.01 {
		t.Errorf("cpu: %+v", m)
	}
	if m := metric(t, &r, "ttft", "p99"); m.Change.Why == "" || m.Verdict != Inconclusive {
		t.Errorf("a p99 of 16 requests: %+v", m)
	}
	if r = quiet(-0.05); r.Verdict != Within {
		t.Errorf("a gain: %+v", r)
	}
}

// TestInconclusive: where the budget lies within the interval it is said how many blocks
// more would settle it, and with so many more it is settled.
func TestInconclusive(t *testing.T) {
	w := newWorld(11)
	w.block = 0.02
	blocks := w.run(400, 0)
	c := Config{Budget: 0.02, MaxPairs: 200}
	r := Judge(blocks[:8], c)
	if r.Verdict != Inconclusive || r.MoreBlocks == nil || *r.MoreBlocks < 2 || *r.MoreBlocks%2 != 0 {
		t.Fatalf("%+v", r)
	}
	if r := Judge(blocks, c); r.Verdict != Within {
		t.Errorf("after 200 pairs: %s, %+v", r.Verdict, metric(t, &r, "ttfa", "p50"))
	}
}

// TestUnfit: probes that may still be there, or that went in the middle of a block, leave
// nothing to be said; failed requests are told.
func TestUnfit(t *testing.T) {
	for what, spoil := range map[string]func([]Block){
		"not sure":   func(b []Block) { b[4].Detached = "2 traps are left" },
		"no probe":   func(b []Block) { b[6].Probes = nil },
		"taken away": func(b []Block) { b[5].Trimmed = map[string]string{"sched": "1.3 % of a core"} },
		"no success": func(b []Block) {
			for i := range b {
				b[i].Success, b[i].TTFT, b[i].TTFA, b[i].JCT = 0, nil, nil, nil
			}
		},
		"one block": func(b []Block) { b[2].TTFA = nil },
	} {
		w := newWorld(5)
		w.noise, w.block = 0.01, 0.001
		blocks := w.run(16, 0)
		spoil(blocks)
		r := Judge(blocks, Config{Budget: 0.05})
		if r.Verdict != Inconclusive {
			t.Errorf("%s: %s", what, r.Verdict)
		}
		if len(r.Why) == 0 && metric(t, &r, "ttfa", "p50").Change.Why == "" {
			t.Errorf("%s: no reason", what)
		}
	}
	w := newWorld(5)
	w.noise, w.block = 0.01, 0.001
	blocks := w.run(16, 0)
	blocks[3].Success--
	if r := Judge(blocks, Config{Budget: 0.05}); r.Verdict != Within || len(r.Why) != 1 || !strings.Contains(r.Why[0], "1 requests without and 0 with") {
		t.Errorf("one failure: %s %v", r.Verdict, r.Why)
	}
	for n := range 4 {
		if r := Judge(blocks[:n], Config{}); r.Verdict != Inconclusive {
			t.Errorf("%d blocks: %s", n, r.Verdict)
		}
	}
}

// TestNotMeasured: a metric that no request has decides nothing, and its null is one.
func TestNotMeasured(t *testing.T) {
	w := newWorld(5)
	w.noise, w.block = 0.01, 0.001
	blocks := w.run(16, 0)
	for i := range blocks {
		blocks[i].TTFT, blocks[i].CPU = nil, nil
	}
	r := Judge(blocks, Config{Budget: 0.05})
	if m := metric(t, &r, "ttft", "p50"); r.Verdict != Within || m.Verdict != NotMeasured || m.Without != nil || m.Change.Why == "" {
		t.Errorf("%s: %+v", r.Verdict, m)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Result
	if err := json.Unmarshal(b, &back); err != nil || back.Verdict != Within || len(back.Metrics) != len(r.Metrics) {
		t.Errorf("read back: %+v, %v", back, err)
	}
	if strings.Contains(string(b), "NaN") {
		t.Errorf("%s", b)
	}
}

// TestCostliest: the family with the most CPU over all blocks is the one to go first.
func TestCostliest(t *testing.T) {
	if got := Costliest(newWorld(1).run(8, 0)); got != "sched" {
		t.Errorf("got %q", got)
	}
	if got := Costliest([]Block{{}}); got != "" {
		t.Errorf("got %q of nothing", got)
	}
}

// TestRender: the table has a line a metric, and tells why nothing is known of some.
func TestRender(t *testing.T) {
	w := newWorld(3)
	w.noise, w.block = 0.01, 0.002
	f := File{Config: Config{Budget: 0.02}.WithDefaults(), Source: "a made server", Result: Judge(w.run(16, 0), Config{Budget: 0.02}), Trimmed: []Trim{{"sched", "its own budget"}}}
	var out strings.Builder
	if err := f.Render(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"probe overhead: within budget (budget 2 %, 8 pairs of blocks; a made server)\n", "without sched: its own budget\n", "│ ttfa        │ p50         │",
		"98.3 % INTERVAL", "(inconclusive)", "ttft p99, ttfa p99, jct p99: in a block, the 0.99-quantile of 16 values",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "NaN") {
		t.Errorf("a number that is none:\n%s", out.String())
	}
}
