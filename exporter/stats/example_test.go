package stats_test

import (
	"fmt"

	"github.com/omnitap/omnitap/exporter/stats"
)

// Four blocks without probes and four with them, in pairs: does the median of TTFA
// rise, and how many more pairs would tell it to one per cent?
func ExampleRelativeChange() {
	detached := stats.Blocks{{101, 99, 104}, {120, 118, 125}, {98, 97, 99}, {110, 107, 111}}
	attached := stats.Blocks{{102, 101, 103}, {121, 117, 126}, {101, 96, 103}, {110, 109, 114}}
	c := stats.RelativeChange(detached, attached, stats.Median, stats.Design{Paired: true})
	if c.Why != "" {
		fmt.Println("not known:", c.Why)
		return
	}
	fmt.Printf("%+.1f %% (%+.1f to %+.1f %%, %s)\n", 100*c.Estimate, 100*c.Interval.Lo, 100*c.Interval.Hi, c.Interval.Method)
	fmt.Println(stats.BlocksNeeded(c.Blocks, (c.Interval.Hi-c.Interval.Lo)/2, 0.01), "more pairs")
	// Output:
	// +1.2 % (-0.8 to +3.3 %, student-t)
	// 14 more pairs
}

func ExampleHistogram() {
	var total stats.Histogram
	for _, run := range [][]float64{{12.5, 14.1}, {13.2}, {90}} {
		var h stats.Histogram
		h.Add(run...)
		if err := total.Merge(&h); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Printf("%d values, median %.1f, max %.0f\n", total.N(), total.Quantile(0.5), total.Summary().Max)
	// Output: 4 values, median 13.7, max 90
}
