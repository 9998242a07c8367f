package compare

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/compare/gate"
	"github.com/omnitap/omnitap/exporter/compare/internal/interval"
	"github.com/omnitap/omnitap/exporter/experiment"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// The whole of a regression is put into one hand-over: the headline names it, its rows
// grew, and nothing else did.
func TestTheHandOverThatGrew(t *testing.T) {
	t.Parallel()
	elsewhere, trials := 0, 40
	for seed := range uint64(trials) {
		w := usual()
		w.gaps = map[string]float64{inFlight: base[inFlight] + 35}
		a, b := w.seeded(seed).series("ABBAABBA")
		r := compared(t, a, b, Options{})
		f := &r.Flows[0]
		if d := r.figure(t, "ttfa_p50"); d.Verdict != Slower || math.Abs(d.Change.Estimate-35/182.7) > 0.03 {
			t.Errorf("seed %d: TTFA p50 %+v", seed, d.Delta)
		}
		if want := regexp.MustCompile(`^TTFA \+3\d\.\d ms \(\+\d+\.\d %, .*\): \+3[4-8]\.\d ms of it in ` + inFlight); !want.MatchString(f.Headline) {
			t.Errorf("seed %d: %s", seed, f.Headline)
		}
		if math.Abs(*f.Path.Residual) > 1e-6 {
			t.Errorf("seed %d: residual %v", seed, *f.Path.Residual)
		}
		share := 0.0
		for _, g := range f.Path.Gaps {
			share += *g.Share
			switch {
			case g.Name == inFlight && g.Verdict != Grew:
				t.Errorf("seed %d: %+v", seed, g)
			case g.Name != inFlight && g.Verdict != NoDifference:
				elsewhere++
			}
		}
		if math.Abs(share-1) > 1e-6 {
			t.Errorf("seed %d: the shares sum to %v", seed, share)
		}
		for _, row := range append(f.Stages, f.Edges...) {
			grew := strings.HasPrefix(row.Name, "thinker->talker")
			if grew && row.Verdict != Grew && !strings.HasSuffix(row.Name, "p99") {
				t.Errorf("seed %d: %+v", seed, row)
			}
			if !grew && (row.Verdict == Grew || row.Verdict == Shrank) {
				elsewhere++
			}
		}
	}
	// three tables of a flow, each wrong in 5 % of experiments
	if elsewhere > trials*3/10 {
		t.Errorf("%d rows of %d experiments changed that were left alone", elsewhere, trials)
	}
}

// Two runs a side are enough to find a hand-over that grew by much, and it alone.
func TestTheHandOverThatGrewInFourRuns(t *testing.T) {
	t.Parallel()
	found, elsewhere, trials := 0, 0, 60
	for seed := range uint64(trials) {
		w := usual()
		w.gaps, w.run = map[string]float64{inFlight: base[inFlight] + 120}, 0.02
		a, b := w.seeded(seed).series("ABBA")
		f := &compared(t, a, b, Options{}).Flows[0]
		for _, g := range f.Path.Gaps {
			switch {
			case g.Name == inFlight && g.Verdict == Grew:
				found++
			case g.Verdict == Grew || g.Verdict == Shrank:
				elsewhere++
			}
		}
	}
	if found < trials/2 || elsewhere > trials/10 {
		t.Errorf("found in %d of %d experiments, and others in %d", found, trials, elsewhere)
	}
}

// A against A: no figure differs in 95 % of the trials and more, whatever the order, the
// pairing, the drift.
func TestNothingChanged(t *testing.T) {
	t.Parallel()
	const trials = 120
	all, of := 0, 0
	for name, test := range map[string]struct {
		pattern string
		change  func(*world)
	}{
		"in pairs":       {"ABBAABBA", func(*world) {}},
		"alternating":    {"ABABAB", func(*world) {}},
		"unpaired":       {"ABBABAAB", func(w *world) { w.client = false }},
		"separate":       {"AAABBB", func(*world) {}},
		"two a side":     {"ABBA", func(*world) {}},
		"drifting":       {"ABBAABBA", func(w *world) { w.drift = 0.02 }},
		"drifting apart": {"AAAABBBB", func(w *world) { w.drift = 0.02 }},
		"noisy runs":     {"ABBAABBA", func(w *world) { w.run = 0.05 }},
		"with failures":  {"ABBAABBA", func(w *world) { w.fail = [2]float64{0.05, 0.05} }},
	} {
		wrong := map[string]int{}
		for seed := range uint64(trials) {
			w := usual()
			w.requests, w.audioSigma = 60, 0.1
			w.change = func(_ int, r *timeline.Record) { r.Stages, r.Transfers = nil, nil }
			test.change(&w)
			a, b := w.seeded(seed).series(test.pattern)
			r := compared(t, a, b, Options{})
			for _, f := range r.Flows[0].Figures {
				if f.Verdict != NoDifference && f.Verdict != CannotTell {
					wrong[f.Name]++
					all++
				}
				of++
			}
		}
		for figure, n := range wrong {
			// of one figure in one world 5 % of 120, and three standard deviations of counting
			if n > 6+8 {
				t.Errorf("%s: %s differs in %d of %d trials", name, figure, n, trials)
			}
		}
	}
	t.Logf("%d of %d figures differ", all, of)
	if float64(all) > 0.05*float64(of) {
		t.Errorf("%d of %d figures differ", all, of)
	}
}

// Shorter sound makes requests end earlier: no speed-up.
func TestShorterAudioIsASemanticChange(t *testing.T) {
	t.Parallel()
	w := usual()
	w.audio, w.audioSigma = [2]float64{4, 3.4}, 0.1
	a, b := w.seeded(1).series("ABBAABBA")
	r := compared(t, a, b, Options{})
	for _, name := range []string{"jct_p50", "jct_p90"} {
		if f := r.figure(t, name); f.Verdict != SemanticChange || !strings.Contains(f.Reason, "the output is shorter: audio -1") {
			t.Errorf("%s: %s (%s)", name, f.Verdict, f.Reason)
		}
	}
	if f := r.figure(t, "ttfa_p50"); f.Verdict != NoDifference {
		t.Errorf("TTFA: %s (%s)", f.Verdict, f.Reason)
	}
	o := r.Judge([]gate.Gate{must(t, "jct_p50 <= +5%"), must(t, "throughput >= -5%")}, false)
	if o[0].Verdict != gate.CannotTell || !strings.Contains(o[0].Reason, "the output is shorter") {
		t.Errorf("%s", o[0].Line())
	}
	// the same gain from the server's own speed
	w.audio, w.perAudio = [2]float64{4, 4}, 100
	w.change = func(side int, r *timeline.Record) {
		if side == 1 {
			*r.JCTMS -= 60
			*r.RTF = *r.JCTMS / 1e3 / *r.AudioS
		}
	}
	a, b = w.seeded(1).series("ABBAABBA")
	r = compared(t, a, b, Options{})
	if f := r.figure(t, "jct_p50"); f.Verdict != Faster {
		t.Errorf("a true gain: %s (%s)", f.Verdict, f.Reason)
	}
	if o := r.Judge([]gate.Gate{must(t, "jct_p50 <= -5%")}, false); o[0].Verdict != gate.Held {
		t.Errorf("%s", o[0].Line())
	}
}

// Longer output explains a loss, and an output whose length is not known to be alike
// leaves a gain open.
func TestLengthsThatMayExplain(t *testing.T) {
	t.Parallel()
	w := usual()
	w.audio, w.audioSigma = [2]float64{4, 4.8}, 0.05
	a, b := w.seeded(2).series("ABBAABBA")
	if f := compared(t, a, b, Options{}).figure(t, "jct_p50"); f.Verdict != SemanticChange || !strings.Contains(f.Reason, "longer") {
		t.Errorf("longer: %s (%s)", f.Verdict, f.Reason)
	}
	w = usual()
	w.requests, w.audioSigma = 20, 1.2 // means of runs differ by a third
	w.change = func(side int, r *timeline.Record) {
		*r.JCTMS = 500 * math.Pow(0.95, float64(side)) * (1 + *r.TTFAMS/1e4)
	}
	a, b = w.seeded(3).series("ABBAABBA")
	if f := compared(t, a, b, Options{}).figure(t, "jct_p50"); f.Verdict != CannotTell || !strings.Contains(f.Reason, "the output may be shorter") {
		t.Errorf("of unknown length: %s (%s)", f.Verdict, f.Reason)
	}
	w = usual()
	w.change = func(side int, r *timeline.Record) { r.InputChars = new(int64(100 + 30*side)) }
	a, b = w.seeded(4).series("ABBAABBA")
	r := compared(t, a, b, Options{})
	for _, f := range r.Flows[0].Figures {
		if f.Name != successRate && (f.Verdict != CannotTell || !strings.Contains(f.Reason, "the inputs are not alike: input characters +30.0 %")) {
			t.Errorf("other inputs: %s %s (%s)", f.Name, f.Verdict, f.Reason)
		}
	}
}

// What drifts more than it gains cannot be told, alternating or not.
func TestDriftLargerThanTheGain(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"AAABBB", "AAAABBBB", "BBBBAAAA", "AABB"} {
		told, wrong := 0, 0
		for seed := range uint64(50) {
			w := usual()
			w.drift, w.run = 0.03, 0.003
			a, b := w.seeded(seed).series(pattern)
			r := compared(t, a, b, Options{})
			f := r.figure(t, "ttfa_p50")
			if f.Verdict == Faster || f.Verdict == Slower {
				told++
			}
			if !strings.Contains(strings.Join(r.Notes, "\n"), "confounded") {
				t.Fatalf("%s: no warning: %q", pattern, r.Notes)
			}
			// what is true of no change: it is not over +3 %, nor under −3 %
			if o := r.Judge([]gate.Gate{must(t, "ttfa_p50 <= +3%"), must(t, "ttfa_p50 <= -3%")}, false); o[0].Verdict == gate.Broken || o[1].Verdict == gate.Held {
				wrong++
			}
		}
		if told > 3 || wrong > 3 { // 2.5 are to be expected
			t.Errorf("%s: drift alone was taken for a change in %d of 50 trials, and for a gate's in %d", pattern, told, wrong)
		}
	}
	// a gain of 4 % in pairs, with 5 % from run to run: sure, and yet smaller than the drift
	w := usual()
	w.drift, w.steps, w.run, w.sigma = 0.05, 2, 0.0005, 0.01
	w.gaps = map[string]float64{}
	for g, v := range base {
		w.gaps[g] = 0.96 * v
	}
	a, b := w.seeded(1).series("ABBAABBA")
	r := compared(t, a, b, Options{})
	f := r.figure(t, "ttfa_p50")
	if f.Change.Interval.Hi >= 0 || f.Verdict != CannotTell || !strings.Contains(f.Reason, "from early to late") {
		t.Errorf("%+v: %s (%s)", f.Change, f.Verdict, f.Reason)
	}
	if o := r.Judge([]gate.Gate{must(t, "ttfa_p50 <= -1%")}, false); o[0].Hi > -0.01 || o[0].Verdict != gate.CannotTell || !strings.Contains(o[0].Reason, "drift by") {
		t.Errorf("%s", o[0].Line())
	}
	for _, g := range r.Flows[0].Path.Gaps {
		if g.Interval.Hi < 0 && (g.Verdict != CannotTell || !strings.Contains(g.Reason, "from early to late")) {
			t.Errorf("%+v", g)
		}
	}
}

// An interval around no change that is wide sees nothing, and says by how many runs it
// would.
func TestTooWideForNoDifference(t *testing.T) {
	t.Parallel()
	w := usual()
	w.run = 0.15
	a, b := w.seeded(1).series("ABBA")
	r := compared(t, a, b, Options{})
	f := r.figure(t, "ttfa_p50")
	if f.Verdict != CannotTell || !strings.Contains(f.Reason, "% is possible; at most") || f.Change.Interval.Lo > 0 {
		t.Errorf("%s (%s), %+v", f.Verdict, f.Reason, f.Change.Interval)
	}
	if row := r.Flows[0].Path.Gaps[3]; row.Verdict != CannotTell || !strings.Contains(row.Reason, "2 runs a side are too few") {
		t.Errorf("%+v", row)
	}
}

// One run a side shows figures, an interval that says what it is of, and no verdict.
func TestOneRunASide(t *testing.T) {
	t.Parallel()
	w := usual()
	w.requests = 600
	w.gaps = map[string]float64{"thinker.decode": 120}
	a, b := w.seeded(1).series("AB")
	r := compared(t, a, b, Options{})
	for _, f := range r.Flows[0].Figures {
		if f.Verdict != CannotTell || f.Reason != interval.OneRun {
			t.Errorf("%s: %s (%s)", f.Name, f.Verdict, f.Reason)
		}
		if !math.IsNaN(f.Change.Interval.Lo) || f.Noise != nil {
			t.Errorf("%s has an interval between runs: %+v", f.Name, f.Change.Interval)
		}
	}
	f := r.figure(t, "ttfa_p50")
	if f.WithinRun == nil || f.WithinRun.Lo > f.Change.Estimate || f.WithinRun.Hi < f.Change.Estimate || !strings.HasSuffix(f.WithinRun.Method, "/within a run") {
		t.Errorf("within the run: %+v of %+v", f.WithinRun, f.Change.Estimate)
	}
	for _, row := range append(r.Flows[0].Stages, r.Flows[0].Path.Gaps...) {
		if row.Verdict != CannotTell || !math.IsNaN(row.Interval.Lo) || row.Noise != nil {
			t.Errorf("%+v", row)
		}
	}
	o := r.Judge([]gate.Gate{must(t, "ttfa_p50 <= +500%"), must(t, "ttfa_p50 <= 10s"), must(t, "success_rate >= 1%")}, false)
	for i := range o {
		if o[i].Verdict != gate.CannotTell || !o[i].Failed() {
			t.Errorf("%s", o[i].Line())
		}
	}
	if r.Unusable != "" {
		t.Errorf("unusable: %s", r.Unusable)
	}
}

// A side that fails more may be left with its easy requests: paired requests tell, others
// do not.
func TestFailuresAndGains(t *testing.T) {
	t.Parallel()
	w := usual()
	w.fail, w.client = [2]float64{0, 0.3}, false
	w.gaps = map[string]float64{"thinker.decode": 20}
	a, b := w.seeded(1).series("ABBAABBA")
	r := compared(t, a, b, Options{})
	if f := r.figure(t, "ttfa_p50"); f.Verdict != CannotTell || !strings.Contains(f.Reason, "may be the easy ones") {
		t.Errorf("unpaired: %s (%s)", f.Verdict, f.Reason)
	}
	if f := r.figure(t, successRate); f.Verdict != Worse || math.Abs(*f.Difference+0.3) > 0.05 {
		t.Errorf("success rate: %s %v", f.Verdict, *f.Difference)
	}
	if !strings.Contains(strings.Join(r.Flows[0].Notes, "\n"), "failed: worker-lost/died 0 % of A and 2") &&
		!strings.Contains(strings.Join(r.Flows[0].Notes, "\n"), "failed: worker-lost/died 0 % of A and 3") {
		t.Errorf("%q", r.Flows[0].Notes)
	}
	w.client, w.fail = true, [2]float64{0, 0.1}
	a, b = w.seeded(1).series("ABBAABBA")
	r = compared(t, a, b, Options{})
	if f := r.figure(t, "ttfa_p50"); f.Verdict != Faster || f.N[0] != f.N[1] || f.N[0] >= 4*120 {
		t.Errorf("paired: %s (%s), %v", f.Verdict, f.Reason, f.N)
	}
	if f := r.figure(t, successRate); f.Verdict != Worse {
		t.Errorf("success rate: %s (%s)", f.Verdict, f.Reason)
	}
}

// No success on a side: nothing can be told but that.
func TestZeroSuccesses(t *testing.T) {
	t.Parallel()
	w := usual()
	w.fail = [2]float64{0, 1}
	a, b := w.seeded(1).series("ABBAABBA")
	r := compared(t, a, b, Options{})
	if !strings.Contains(r.Unusable, "has no success") {
		t.Errorf("unusable: %q", r.Unusable)
	}
	for _, f := range r.Flows[0].Figures {
		want := CannotTell
		if f.Name == successRate {
			want = Worse
		}
		if f.Verdict != want {
			t.Errorf("%s: %s (%s)", f.Name, f.Verdict, f.Reason)
		}
	}
	w.fail = [2]float64{1, 1}
	a, b = w.seeded(1).series("AB")
	if r := compared(t, a, b, Options{}); r.Unusable == "" || !strings.Contains(r.Flows[0].Headline, "has no success") {
		t.Errorf("%q, %q", r.Unusable, r.Flows[0].Headline)
	}
}

// Without a failure the runs do not differ in their success rate; how many requests were
// asked says how much that is worth.
func TestSuccessRateWithoutFailures(t *testing.T) {
	t.Parallel()
	a, b := usual().seeded(1).series("ABBA")
	r := compared(t, a, b, Options{})
	f := r.figure(t, successRate)
	if f.Verdict != NoDifference || f.DifferenceInterval.Lo > -0.01 || f.DifferenceInterval.Lo < -0.03 || f.DifferenceInterval.Hi != -f.DifferenceInterval.Lo {
		t.Errorf("%s (%s) %+v", f.Verdict, f.Reason, f.DifferenceInterval)
	}
	o := r.Judge([]gate.Gate{must(t, "success_rate >= -5pp"), must(t, "success_rate >= -0.1pp"), must(t, "success_rate >= 95%"), must(t, "success_rate >= 99.9%")}, false)
	for i, want := range []gate.Verdict{gate.Held, gate.CannotTell, gate.Held, gate.CannotTell} {
		if o[i].Verdict != want {
			t.Errorf("%s", o[i].Line())
		}
	}
}

func must(t testing.TB, text string) gate.Gate {
	t.Helper()
	g, err := gate.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestGatesOfAFlow: a gate that names a flow is about that one alone, whatever becomes of the
// others.
func TestGatesOfAFlow(t *testing.T) {
	t.Parallel()
	w := usual()
	w.requests, w.slo = 240, slo{why: "no SLO is known"}
	n := 0
	w.change = func(side int, r *timeline.Record) {
		if n++; n%2 == 0 {
			return
		}
		r.Flow = "speech"
		*r.JCTMS *= 1 + 0.3*float64(side)
	}
	a, b := w.seeded(1).series("ABBAABBA")
	r := compared(t, a, b, Options{})
	for text, want := range map[string][]string{
		"jct_p50 <= +10%":              {"held         chat: jct_p50 <= +10%", "broken       speech: jct_p50 <= +10%"},
		"chat: jct_p50 <= +10%":        {"held         chat: jct_p50 <= +10%"},
		"speech: jct_p50 <= +10%":      {"broken       speech: jct_p50 <= +10%"},
		"realtime: jct_p50 <= +10%":    {"cannot tell  realtime: jct_p50 <= +10%  there is no flow realtime, but chat, speech"},
		"chat: goodput >= -1%":         {"cannot tell  chat: goodput >= -1%  no SLO is known"},
		"speech (commit): rtf_p50 < 1": {"cannot tell  speech (commit): rtf_p50 < 1  there is no flow speech (commit), but chat, speech"},
	} {
		o := r.Judge([]gate.Gate{must(t, text)}, false)
		if len(o) != len(want) {
			t.Errorf("%s: %d outcomes, want %d", text, len(o), len(want))
			continue
		}
		for i := range o {
			if got := o[i].Line(); !strings.HasPrefix(got, want[i]) {
				t.Errorf("%q, want %q", got, want[i])
			}
		}
	}
}

func TestGates(t *testing.T) {
	t.Parallel()
	w := usual()
	w.requests, w.slo = 200, slo{SLO: experiment.SLO{TTFAMS: new(210.0)}}
	w.gaps = map[string]float64{inFlight: base[inFlight] + 35} // +19 %
	a, b := w.seeded(1).series("ABBAABBA")
	slow := compared(t, a, b, Options{})
	for text, want := range map[string]gate.Verdict{
		"ttfa_p50 <= +5%": gate.Broken, "ttfa_p50 <= +19%": gate.CannotTell, "ttfa_p50 <= +30%": gate.Held, "ttfa_p50 <= +10ms": gate.Broken,
		"ttfa_p50 <= +60ms": gate.Held, "ttfa_p50 <= 150ms": gate.Broken, "ttfa_p50 <= 300ms": gate.Held, "ttfa_p1 <= +60%": gate.Held,
		"goodput >= -10%": gate.Broken, "throughput >= -5%": gate.Held, "rtf_p50 < 1": gate.Held, "rtf_p50 <= +1": gate.Held, "success_rate >= 90%": gate.Held,
		"goodput > 0.1/s": gate.Held, "throughput <= 1/s": gate.Broken,
	} {
		o := slow.Judge([]gate.Gate{must(t, text)}, false)
		if len(o) != 1 || o[0].Verdict != want || o[0].Flow != "chat" {
			t.Errorf("%s, want %s", o[0].Line(), want)
		}
	}
	w.slo = slo{why: "no SLO is known"}
	w.change = func(_ int, r *timeline.Record) { r.TTFAMS, r.CriticalPath, r.Stages, r.Transfers = nil, nil, nil, nil }
	a, b = w.seeded(1).series("ABBAABBA")
	silent := compared(t, a, b, Options{})
	for text, want := range map[string]string{"ttfa_p50 <= +5%": "no flow has ttfa", "goodput >= -1%": "no SLO is known"} {
		o := silent.Judge([]gate.Gate{must(t, text)}, true)
		if len(o) != 1 || o[0].Verdict != gate.CannotTell || o[0].Reason != want || o[0].Failed() {
			t.Errorf("%s: %s", text, o[0].Line())
		}
	}
	if !strings.HasPrefix(silent.Flows[0].Headline, "TTFT ") {
		t.Error(silent.Flows[0].Headline)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	a, b := usual().seeded(1).series("ABBA")
	for name, test := range map[string]struct {
		a, b []*Run
		opts Options
		want error
	}{
		"no runs":        {a, nil, Options{}, ErrNoRuns},
		"twice":          {a, append(b, a[0]), Options{}, ErrSame},
		"twice a side":   {append(a, a[0]), b, Options{}, ErrSame},
		"no such flow":   {a, b, Options{Flow: "speech"}, ErrNoFlow},
		"the flow is it": {a, b, Options{Flow: "chat"}, nil},
	} {
		if _, err := Compare(test.a, test.b, test.opts); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An unfit run spoils every figure, and says so.
func TestUnfitRuns(t *testing.T) {
	t.Parallel()
	w := usual()
	w.gaps = map[string]float64{inFlight: 60}
	a, b := w.seeded(1).series("ABBAABBA")
	b[1].unfit = "contaminated: others took 3.1 cores"
	r := compared(t, a, b, Options{})
	if want := fmt.Sprintf("%s is contaminated: others took 3.1 cores; leave it out", b[1].Dir); r.Unusable != want {
		t.Errorf("%q, want %q", r.Unusable, want)
	}
	for _, f := range r.Flows[0].Figures {
		if f.Verdict != CannotTell {
			t.Errorf("%s: %s", f.Name, f.Verdict)
		}
	}
	if o := r.Judge([]gate.Gate{must(t, "ttfa_p50 <= 10s"), must(t, "success_rate >= 1%")}, false); o[0].Verdict != gate.CannotTell || o[1].Verdict != gate.CannotTell {
		t.Errorf("%s, %s", o[0].Line(), o[1].Line())
	}
}
