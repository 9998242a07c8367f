// Package stats describes samples and says how sure their figures are: counts,
// percentiles and extremes (Summarize), intervals of a figure and of its change
// over blocks (Bootstrap, RelativeChange), a permutation test, and histograms
// that add up across runs.
//
//	s := stats.Summarize(values)
//	s.N, s.P50, s.P99
//
//	c := stats.RelativeChange(detached, attached, stats.Quantile(0.5), stats.Design{Paired: true})
//	if c.Why != "" { // nothing is known, and this is why
//	}
//	c.Estimate, c.Interval.Lo, c.Interval.Hi
//
// Every function is pure, keeps no reference to its argument and leaves it as it
// was; the same input with the same Design.Seed gives the same figures to the
// last bit. Where nothing can be said (one block, no values, values that are no
// numbers, a base of zero) the reason stands in the place of the figure.
//
// # Blocks
//
// Requests of one run are not independent of each other: they share the machine's
// state, the clock speed, the neighbours. A block (a run, or a stretch of a run) is
// therefore the unit; how far blocks differ is what the intervals are made of, and
// a thousand requests in one block are one block.
//
// # Why Student's t, and not the percentile bootstrap
//
// Resampling four to twelve blocks and taking percentiles of the results covers
// far too seldom: the results know of no spread beyond the few blocks. Of 4000
// experiments (pairs of blocks of 64 lognormal values, σ 0.3, with an effect of the
// pair, σ 0.1, and of the block, σ 0.05; the change of the mean; 999 resamples) so
// many per cent of 95 % intervals held the truth, with this mean half width:
//
//	pairs   percentile     BCa            bootstrap-t    Student t of log ratios
//	4       79.6 ±0.072    79.2 ±0.074    95.0 > ±1      95.3 ±0.138
//	6       85.8 ±0.064    85.8 ±0.066    94.8 ±0.126    95.1 ±0.094
//	8       89.3 ±0.058    89.1 ±0.059    95.2 ±0.085    95.5 ±0.075
//	12      90.5 ±0.049    90.0 ±0.050    94.1 ±0.060    94.9 ±0.058
//
// TestMethodsCompared repeats a part of it and fails when another would do better.
//
// So one rule serves all: the standard error that resampling whole blocks gives,
// times the quantile of Student's t for that many blocks, on the logarithm where
// the figures are positive. For a mean of block figures the resampling has a closed
// form (s/√n) and nothing is drawn. BCa, which needs no shape but many blocks,
// takes over in Bootstrap from fifty blocks on.
//
// Out of scope: deciding which requests belong in a sample or a block, and what a
// change is worth. The quantile is written here and not imported because gonum's
// closest kind (stat.LinInterp) interpolates the empirical distribution, not the
// closest ranks: its median of 1, 2, 3, 4 is 2, not 2.5. gonum has no bootstrap.
package stats
