// Package gate reads conditions on a comparison of runs, such as
//
//	ttfa_p99 <= +5%
//
// holds an interval to them, and writes what became of them for people (Outcome.Line),
// for CI systems that read JUnit (WriteJUnit) and for GitHub (WriteGitHub).
//
//	g, err := gate.Parse("ttfa_p99 <= +5%")
//	v := g.Judge(lo, hi) // Held, Broken or CannotTell
//
// A condition is METRIC[_pNN] OP LIMIT. OP is <=, <, >= or >. What the limit is about
// is told by its sign: +5% is the change from A to B as a share of A, +20ms the same in
// the metric's own unit, and 300ms, without a sign, B's own figure.
//
//	ttft ttfa ttfaudible jct   need a percentile, _p1 to _p99; ms or s
//	rtf                        needs one too; a number without a unit
//	throughput goodput         /s
//	success_rate               99% is B's own share, -1% a relative change, -1pp a change in points
//
// Where runs hold several flows a condition is about each that has the metric, or about the
// one that it begins with: `chat: ttfa_p99 <= +5%`.
//
// A gate is held, or broken, only when the whole interval says so.
//
// Out of scope: reckoning intervals, and what else makes a comparison worthless
// (exporter/compare does both).
package gate
