// Package energy derives from samples of cards what energy a run took: in all, per
// successful request and per second of audio (contract section 3). It is pure.
//
//	r := energy.Of(energy.Input{Devices: devices, IntervalNS: 1e8, Idle: before, Load: run, Successes: 480, AudioS: &seconds})
//
// Energy over a window is told twice where the card allows it, and both are kept: as the
// difference of its energy counter (preferred: nothing between two samples is missed), and
// as the integral of its power by trapezoids. Between samples both are taken as straight
// lines, also at the window's edges.
//
// The idle baseline is the mean power in a window that the caller states, by the same
// sensor: with it, the energy of the load is ∫(P − P_idle)dt. It includes everything that
// the cards did then: a loaded model, an idle server, and other programs. Only cards are
// in these figures, no CPU, memory or fan; Result.Includes says so.
//
// Out of scope: one request's energy. The contract knows no rule that shares a card's power
// out among requests that overlap, and a made-up one would look like a measurement.
//
// A figure that cannot be had is nil with a reason, never 0; a sum over cards of which one
// is not measured is nil. Percentiles and comparisons are not its job.
package energy
