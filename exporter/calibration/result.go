package calibration

import (
	"fmt"
	"slices"
)

// Result is what is known after a number of blocks.
type Result struct {
	Verdict Verdict `json:"verdict"`
	// Pairs of blocks it is from, and the level of each interval.
	Pairs   int      `json:"pairs"`
	Level   float64  `json:"level"`
	Metrics []Metric `json:"metrics"`
	// MoreBlocks would settle the verdict, nil where it is settled or cannot be told.
	MoreBlocks *int `json:"more_blocks"`
	// Why, if not empty, says why nothing is known, or what makes the verdict doubtful.
	Why []string `json:"why,omitempty"`
}

// Judge holds blocks in the order of Attached to the budget.
func Judge(blocks []Block, c Config) Result {
	c = c.WithDefaults()
	r := Result{Verdict: Inconclusive, Level: c.level()}
	list, err := pairs(blocks)
	if err != nil {
		r.Why = append(r.Why, err.Error())
		return r
	}
	r.Pairs = len(list)
	whole := blocks[:2*len(list)]
	for _, m := range measures(whole) {
		r.Metrics = append(r.Metrics, m.judge(whole, list, c))
	}
	var unfit bool
	r.Why, unfit = doubts(whole)
	if r.decide(); unfit {
		r.Verdict, r.MoreBlocks = Inconclusive, nil
	}
	return r
}

// doubts are what makes a comparison of the blocks doubtful; unfit says that there is
// none.
func doubts(blocks []Block) (why []string, unfit bool) {
	failed := [2]int{}
	for i := range blocks {
		b := &blocks[i]
		if !b.Attached && b.Detached != Verified {
			why = append(why, fmt.Sprintf("block %d: that no probe was there is not sure: %s", i, b.Detached))
			unfit = true
		}
		if b.Attached && len(b.Probes) == 0 {
			unfit = true
			why = append(why, fmt.Sprintf("block %d: no probe was attached: nothing was measured of their cost", i))
		}
		if len(b.Trimmed) > 0 {
			unfit = true
			why = append(why, fmt.Sprintf("block %d: probes were taken away for their cost while it ran", i))
		}
		side := 0
		if b.Attached {
			side = 1
		}
		failed[side] += b.Attempts - b.Success
	}
	if failed[0]+failed[1] > 0 {
		why = append(why, fmt.Sprintf("%d requests without and %d with the probes did not succeed, and are in no latency", failed[0], failed[1]))
	}
	return why, unfit
}

// decide makes the verdict of all from those of the metrics that decide.
func (r *Result) decide() {
	var within, open int
	for i := range r.Metrics {
		m := &r.Metrics[i]
		if !m.Decides {
			continue
		}
		switch m.Verdict {
		case Over:
			r.Verdict, r.MoreBlocks = Over, nil
			return
		case Within:
			within++
		case Inconclusive:
			if open++; m.MoreBlocks != nil && (r.MoreBlocks == nil || *m.MoreBlocks > *r.MoreBlocks) {
				r.MoreBlocks = m.MoreBlocks
			}
		case NotMeasured:
		}
	}
	switch {
	case within+open == 0:
		r.Why = append(r.Why, "no request succeeded: there is nothing to compare")
	case open == 0:
		r.Verdict = Within
	}
}

// Settled says whether no further block is needed: the verdict stands, or the limit is
// reached, or no number of blocks would help.
func (r *Result) Settled(c Config) bool {
	return r.Verdict != Inconclusive || r.Pairs >= c.WithDefaults().MaxPairs
}

// Due says whether after so many blocks it is time to look.
func (c Config) Due(blocks int) bool {
	return blocks%2 == 0 && slices.Contains(c.Looks(), blocks/2)
}

// Costliest is the family that took most of its dearest stage in the blocks, empty
// where none was measured.
func Costliest(blocks []Block) string {
	sum := map[string]float64{}
	for i := range blocks {
		for name, v := range blocks[i].Cores {
			sum[name] += v
		}
	}
	best := ""
	for name, v := range sum {
		if v > 0 && (best == "" || v > sum[best] || v == sum[best] && name < best) {
			best = name
		}
	}
	return best
}
