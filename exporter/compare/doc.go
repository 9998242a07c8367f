// Package compare compares two groups of runs, A (before) and B (after), and says what
// is known of the difference and what is not (contract section 9).
//
//	a, err := compare.Load(dir)           // one *Run for each directory
//	...
//	res, err := compare.Compare(as, bs, compare.Options{})
//	out := res.Judge(gates)
//	err = res.Render(os.Stdout)
//
// Load reads a directory as a stream and keeps some figures a request; Compare is pure,
// and the same runs give the same result to the last bit.
//
// # Runs are the unit
//
// Requests of one run are not independent, so each run gives one figure (its p99, say),
// and how far runs of one side differ is what the intervals are made of. With one run a
// side there is no such thing: what resampling stretches of the run gives is shown, named
// so, and is never evidence of a difference between builds.
//
// Requests are paired across runs by the id that the client gave them, else by the hash
// of their body, where most of them are in every run: latencies are then over those that
// succeeded in all runs, so that no run gains by failing the slow ones.
//
// Runs are paired too, in the order of their start, where sides alternate in it (A B A B,
// A B B A) and there are four pairs or more: with fewer, the degrees of freedom that
// pairing costs outweigh the drift that it takes away. Which it is follows from the order
// alone, never from the figures.
//
// # Noise
//
// The A/A noise of a figure is the change from the earlier half of the A runs to the
// later one, or the same of B, whichever is larger. Like the error of the change from A
// to B it falls with the root of the number of runs, where nothing drifts. A drift that
// the runs of each side show is also carried over to the time between the two sides;
// A A B B has much of it, A B B A none. A change that is not larger than the noise, or
// than twice that drift, cannot be told from it.
//
// # Verdicts
//
// Intervals are of 95 %, each for itself: of twenty verdicts one is wrong by chance. What
// gates name beforehand is evidence, the rest is exploratory. The tables of the way to
// first audio, stages and hand-overs ask which of many rows grew; there all intervals of
// a flow's table hold together (Bonferroni). With two runs a side only what is twenty
// times the noise shows in them.
//
// A gain with a shorter output is a semantic change and no speed-up; a gain beside more
// failures, other inputs or other modalities cannot be told. See Verdict.
//
// Out of scope: deriving metrics (exporter/verify does, from events.jsonl), choosing
// what to run, and more than two groups.
package compare
