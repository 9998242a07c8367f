package stats

import (
	"fmt"
	"math"
)

// Blocks are figures of several runs or blocks: each inner slice has one block's
// values, in any order. Blocks are independent of each other, the values inside
// need not be. A block of one value is a figure that was reckoned elsewhere (a
// throughput).
type Blocks [][]float64

// count is the number of values in all blocks.
func (v Blocks) count() int {
	n := 0
	for _, block := range v {
		n += len(block)
	}
	return n
}

// fault says why nothing can be told from the blocks of the named group, or "".
func (v Blocks) fault(name string) string {
	for i, block := range v {
		if len(block) == 0 {
			return fmt.Sprintf("block %d of %s is empty", i+1, name)
		}
		bad := 0
		for _, x := range block {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				bad++
			}
		}
		if bad > 0 {
			return fmt.Sprintf("block %d of %s: %d of its %d values are no finite numbers", i+1, name, bad, len(block))
		}
	}
	switch len(v) {
	case 0:
		return name + " has no blocks"
	case 1:
		return fmt.Sprintf("%s is a single block: how far blocks differ is not known from one", name)
	}
	return ""
}

// Tails: how many values a quantile needs beyond it.
const (
	// poolTail is what Bootstrap asks for beyond the figure, on either side: with
	// fewer the figure is read off a handful of extremes, and resampling them
	// cannot know what lies beyond (two values past a p99: 85 % held the truth).
	poolTail = 5
	// blockTail is what RelativeChange asks for in a block on the average. Below it
	// the p99 of a block is the block's maximum by another name.
	blockTail = 0.5
	// middle is the share on the smaller side from which on a figure counts as one
	// of the middle, which needs no tail.
	middle = 0.25
)

// thin says that a figure of so many values rests on too few of them, or "".
func thin(s Statistic, values int, least float64) string {
	p, ok := aim(s)
	side := min(p, 1-p)
	if !ok || side > middle || float64(values)*side >= least-1e-9 {
		return ""
	}
	if side < 1e-9 {
		return "an extreme has no interval: what was not seen lies beyond it"
	}
	return fmt.Sprintf("the %.4g-quantile of %d values rests on its largest or smallest few: %d values are needed",
		p, values, int(math.Ceil(least/side-1e-9)))
}

// thinBlocks is thin for the smallest block, where blocks are more than figures.
func thinBlocks(s Statistic, groups ...Blocks) string {
	least, most := math.MaxInt, 0
	for _, g := range groups {
		for _, block := range g {
			least, most = min(least, len(block)), max(most, len(block))
		}
	}
	if most == 1 {
		return ""
	}
	if why := thin(s, least, blockTail); why != "" {
		return "in a block, " + why
	}
	return ""
}
