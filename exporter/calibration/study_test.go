package calibration

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var write = flag.String("write", "", "file to write the study's table to")

// trial calibrates a made server as omnitap does: block by block, until it is settled.
func trial(seed uint64, overhead, block float64, c Config) Result {
	w := newWorld(seed)
	w.block = block
	blocks := w.run(2*c.WithDefaults().MaxPairs, overhead)
	for n := range len(blocks) + 1 {
		if !c.Due(n) {
			continue
		}
		if r := Judge(blocks[:n], c); r.Settled(c) {
			return r
		}
	}
	panic("never settled")
}

// verdictsOf counts the verdicts of trials.
func verdictsOf(overhead, block float64, c Config, trials int) map[Verdict]int {
	n := map[Verdict]int{}
	for i := range trials {
		r := trial(uint64(i)*7919+uint64(overhead*1e6), overhead, block, c)
		n[r.Verdict]++
	}
	return n
}

// overheads are those of the study; 1 % is the budget itself.
var overheads = []float64{0, 0.005, 0.01, 0.02, 0.05}

// wrong is the share of verdicts that the truth contradicts.
func wrong(n map[Verdict]int, overhead, budget float64, trials int) float64 {
	switch {
	case overhead > budget:
		return float64(n[Within]) / float64(trials)
	case overhead < budget:
		return float64(n[Over]) / float64(trials)
	}
	return float64(n[Over]+n[Within]) / float64(trials) // at most that: either may be right by a hair
}

// TestVerdictsAreRight: over made servers of known overhead at most one verdict in twenty
// is wrong, all looks together, and most of what lies clear of the budget is settled.
func TestVerdictsAreRight(t *testing.T) {
	const trials = 300
	c := Config{Budget: 0.01}
	for _, o := range overheads {
		n := verdictsOf(o, 0.01, c, trials)
		if w := wrong(n, o, c.Budget, trials); w > 0.05 {
			t.Errorf("overhead %v: %.1f %% of the verdicts are wrong: %v", o, 100*w, n)
		}
		if o == 0.05 && n[Over] < trials*9/10 {
			t.Errorf("overhead %v: only %d of %d are found", o, n[Over], trials)
		}
	}
}

// TestWriteStudy writes the study's table where -write says so.
func TestWriteStudy(t *testing.T) {
	if *write == "" {
		t.Skip("run by make calibration-study")
	}
	const trials = 2000
	var out strings.Builder
	out.WriteString("# How often a calibration is right\n\nMade by `make calibration-study`; budget 1 %, 16 requests a block, requests spread by 10 % (lognormal), blocks by 1 % and, in the second table, 3 %, a drift of 0.2 % a block; 2000 trials each, up to 16 pairs of blocks, all looks counted together. A verdict is wrong if the truth contradicts it; at an overhead that is the budget itself any verdict but `inconclusive` counts as wrong.\n")
	for _, block := range []float64{0.01, 0.03} {
		fmt.Fprintf(&out, "\nBlocks spread by %.0f %%:\n\n| overhead | within budget | inconclusive | over budget | wrong |\n| --- | --- | --- | --- | --- |\n", 100*block)
		for _, o := range overheads {
			n := verdictsOf(o, block, Config{Budget: 0.01}, trials)
			p := func(v Verdict) float64 { return 100 * float64(n[v]) / trials }
			fmt.Fprintf(&out, "| %.1f %% | %.1f %% | %.1f %% | %.1f %% | %.1f %% |\n", 100*o, p(Within), p(Inconclusive), p(Over), 100*wrong(n, o, 0.01, trials))
		}
	}
	if err := os.WriteFile(*write, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
