package timeline

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// pacer lets chunks of sound out in real time, at most lead seconds ahead, each
// late by itself by up to jitter seconds (the scheduler, the network): no chunk's
// lateness moves the next one's time.
func pacer(seconds, chunk, lead, jitter float64, r *rand.Rand) []arrival {
	var in []arrival
	for sent := 0.0; sent < seconds-1e-9; sent += chunk {
		at := max(0, sent+chunk-lead) + jitter*r.Float64()
		in = append(in, arrival{ms: 1e3 * at, seconds: min(chunk, seconds-sent)})
	}
	return in
}

// model makes a chunk after the other, each in rtf times its length, which wavers
// by cv: lateness adds up.
func model(seconds, chunk, rtf, cv float64, r *rand.Rand) []arrival {
	var in []arrival
	at := 0.0
	for made := 0.0; made < seconds-1e-9; made += chunk {
		in = append(in, arrival{ms: 1e3 * at, seconds: min(chunk, seconds-made)})
		at += chunk * rtf * max(.1, 1+cv*r.NormFloat64())
	}
	return in
}

// share is how often make's arrivals are taken for a pacer's.
func share(n int, arrivals func(*rand.Rand) []arrival) float64 {
	r := rand.New(rand.NewPCG(7, 11))
	hits := 0
	for range n {
		if paced(arrivals(r)) {
			hits++
		}
	}
	return float64(hits) / float64(n)
}

func TestPacersAreTold(t *testing.T) {
	for _, v := range []struct {
		name                         string
		seconds, chunk, lead, jitter float64
	}{
		{"80 ms units", 10, .08, 0, .01},
		{"80 ms units, a lead of 1 s", 10, .08, 1, .03},
		{"units of 1 s", 10, 1, 0, .05},
		{"units of 1 s, a lead of 1 s", 10, 1, 1, .05},
		{"200 ms, loaded", 20, .2, .5, .15},
		{"an hour", 3600, .08, 1, .05},
	} {
		if got := share(200, func(r *rand.Rand) []arrival { return pacer(v.seconds, v.chunk, v.lead, v.jitter, r) }); got < .99 {
			t.Errorf("%s: told of %.0f %%", v.name, 100*got)
		}
	}
}

// TestShortPacedReplies: SGLang-Omni joins a paced reply into chunks of up to 1 s
// (wire/sglang-omni.md section 6b); most replies are no longer than a few. Their
// JCT is the pacer's all the same (contract section 3).
func TestShortPacedReplies(t *testing.T) {
	for _, seconds := range []float64{4, 5, 6} {
		if got := share(100, func(r *rand.Rand) []arrival { return pacer(seconds, 1, 1, .03, r) }); got < .95 {
			t.Errorf("%v s in chunks of 1 s: told of %.0f %%", seconds, 100*got)
		}
	}
}

func TestModelsAreNoPacers(t *testing.T) {
	for _, v := range []struct {
		name                    string
		seconds, chunk, rtf, cv float64
	}{
		{"a burst", 10, .4, .01, .1},
		{"fast", 10, .4, .2, .1},
		{"half of real time", 4, .4, .5, .1},
		{"slow", 10, .4, 1.5, .1},
		{"near real time, long", 20, .4, .9, .05},
		{"real time, wavering", 40, .4, 1, .3},
	} {
		if got := share(200, func(r *rand.Rand) []arrival { return model(v.seconds, v.chunk, v.rtf, v.cv, r) }); got > .02 {
			t.Errorf("%s: %.0f %% are taken for a pacer's", v.name, 100*got)
		}
	}
}

// TestSteadyModelsNearRealTime: a steady model that is an eighth off real time drifts
// out of the threshold in three seconds. Nearer ones (TestPacedTable) cannot be told
// from a pacer by so little sound.
func TestSteadyModelsNearRealTime(t *testing.T) {
	for _, seconds := range []float64{2.5, 3, 5} {
		for _, rtf := range []float64{.8, .88, 1.12, 1.2} {
			if seconds < 3 && (rtf == .88 || rtf == 1.12) {
				continue
			}
			if got := share(200, func(r *rand.Rand) []arrival { return model(seconds, .2, rtf, .05, r) }); got > .05 {
				t.Errorf("%v s at RTF %v: %.0f %% are taken for a pacer's", seconds, rtf, 100*got)
			}
		}
	}
}

// TestPacedOfNothing: too little tells nothing.
func TestPacedOfNothing(t *testing.T) {
	for name, in := range map[string][]arrival{
		"nothing":        nil,
		"one":            {{0, 5}},
		"three":          {{0, 1}, {1000, 1}, {2000, 1}},
		"no sound":       {{0, 0}, {1000, 0}, {2000, 0}, {3000, 0}, {4000, 0}, {5000, 0}, {6000, 0}, {7000, 0}},
		"short":          {{0, .1}, {100, .1}, {200, .1}, {300, .1}, {400, .1}, {500, .1}, {600, .1}, {700, .1}},
		"all in a burst": {{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}},
	} {
		if paced(in) {
			t.Errorf("%s: paced", name)
		}
	}
	// exactly enough: four chunks of which the first is left out
	if !paced([]arrival{{0, 1}, {1000, 1}, {2000, 1}, {3000, 1}}) {
		t.Error("four seconds in real time are not paced")
	}
}

// TestPacedTable prints how the threshold tells, with -v.
func TestPacedTable(t *testing.T) {
	if !testing.Verbose() {
		t.Skip("prints a table with -v")
	}
	for _, seconds := range []float64{2.2, 3, 5, 10, 20} {
		row := fmt.Sprintf("%4.1f s, chunks of 0.2 s, cv 0.1: RTF", seconds)
		for _, rtf := range []float64{.5, .7, .8, .85, .9, .95, 1, 1.05, 1.1, 1.2, 1.5} {
			row += fmt.Sprintf("  %.2f: %3.0f %%", rtf, 100*share(400, func(r *rand.Rand) []arrival { return model(seconds, .2, rtf, .1, r) }))
		}
		t.Log(row)
	}
	for _, seconds := range []float64{3, 4, 6, 10} {
		row := fmt.Sprintf("%4.1f s, chunks of 1 s, cv 0.1: RTF", seconds)
		for _, rtf := range []float64{.5, .7, .8, .85, .9, .95, 1, 1.05, 1.1, 1.2, 1.5} {
			row += fmt.Sprintf("  %.2f: %3.0f %%", rtf, 100*share(400, func(r *rand.Rand) []arrival { return model(seconds, 1, rtf, .1, r) }))
		}
		t.Log(row)
	}
	for _, chunk := range []float64{.08, .2, .5, 1} {
		row := fmt.Sprintf("pacer, chunks of %.2f s, lead 1 s, jitter 50 ms: seconds", chunk)
		for _, seconds := range []float64{2, 3, 4, 5, 6, 7, 8, 10} {
			row += fmt.Sprintf("  %.0f: %3.0f %%", seconds, 100*share(200, func(r *rand.Rand) []arrival { return pacer(seconds, chunk, 1, .05, r) }))
		}
		t.Log(row)
	}
}
