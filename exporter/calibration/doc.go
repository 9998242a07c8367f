// Package calibration says what the probes cost, from blocks of the same requests with
// the probes detached and attached in turns (contract section 7). It is pure: blocks in,
// a result out. Who sends the requests and who attaches is cmd/omnitap's business.
//
// # Design
//
// Blocks come as A B B A A B B A…: A without probes, B with them. Two neighbours are a
// pair, so that what drifts slowly cancels in it, and every second pair is the other way
// round. The change of a metric is that of its figure in B to that in A, pair by pair;
// its interval is that of exporter/stats for whole pairs. The noise floor is the same
// done with A blocks alone, neighbour against neighbour.
//
// # Looks
//
// The result is judged after 4 pairs, and where it is not settled after 8, 16, 32, up to
// the limit. Each look is a chance to be wrong, so each has its share of the error: with
// k looks the level of an interval is 1 − (1 − level)/k. `make calibration-study` shows
// how often verdicts are right.
//
// # Verdicts
//
// Overhead is a change for the worse: more milliseconds, less throughput. Within budget:
// the whole interval lies under the budget. Over budget: the whole of it lies above.
// Otherwise inconclusive, with the blocks that would settle it if the estimate stays.
// ttft, ttfa, jct and throughput decide; p99 and CPU stand beside them: a block of tens
// of requests has no p99 worth the name, and the probes' CPU is what the budget of each
// probe is for. A metric that no block has is not measured, and decides nothing.
package calibration
