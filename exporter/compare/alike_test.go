package compare

import (
	"math"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/stats"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// alikeLine finds a line of the check.
func alikeLine(t *testing.T, r *Result, name string) *Alike {
	t.Helper()
	for i := range r.Flows[0].Alike {
		if a := &r.Flows[0].Alike[i]; a.Name == name {
			return a
		}
	}
	return nil
}

func TestAlike(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change        func(side int, r *timeline.Record)
		line, verdict string
		// what ttfa_p50, jct_p50 and rtf_p50 say, after a gain of 40 ms in all of them
		ttfa, jct, rtf Verdict
		reason         string
	}{
		"alike": {func(int, *timeline.Record) {}, "audio", alike, Faster, Faster, Faster, ""},
		"text less": {
			func(side int, r *timeline.Record) { *r.TextBytes -= int64(40 * side) }, "text", less, SemanticChange, SemanticChange, SemanticChange,
			"the output is shorter: text -19.7 %",
		},
		"tokens more": {
			func(side int, r *timeline.Record) { r.DeclaredTokens = new(int64(50 + 10*side)) }, "declared tokens", more, Faster, Faster, SemanticChange,
			"the output is longer: declared tokens +20.0 %",
		},
		"half a per cent is none": {func(side int, r *timeline.Record) { *r.TextBytes -= int64(side) }, "text", alike, Faster, Faster, Faster, ""},
		"audio gone": {func(side int, r *timeline.Record) {
			if side == 1 {
				r.AudioS, r.AudibleS, r.RTF, r.Audio = nil, nil, nil, nil
			}
		}, "audio", differs, CannotTell, CannotTell, "", "audio was measured in 100 % of A's successes and 0 % of B's"},
		"half without text": {func(side int, r *timeline.Record) {
			if side == 1 && r.RequestID[len(r.RequestID)-1]%2 == 0 {
				r.TextBytes = new(int64(0))
			}
		}, "with text", differs, SemanticChange, SemanticChange, SemanticChange, "the output is shorter: text -50"},
		"streams": {
			func(side int, r *timeline.Record) { *r.Stream = side == 0 }, "asked for a stream", differs, CannotTell, CannotTell, CannotTell,
			"asked for a stream 100 % of A and 0 % of B",
		},
		"rates assumed": {func(side int, r *timeline.Record) {
			if side == 1 {
				r.Flags = []string{"rate_assumed"}
			}
		}, "sample rate assumed", differs, Faster, Faster, CannotTell, "sample rate assumed 0 % of A and 100 % of B"},
		"inputs": {
			func(side int, r *timeline.Record) { r.Input = &timeline.Input{AudioS: 3 + 0.5*float64(side)} }, "input audio", more, CannotTell, CannotTell, CannotTell,
			"the inputs are not alike: input audio +16.7 %",
		},
		"requests, as nothing else of the input is known": {
			func(side int, r *timeline.Record) { r.BytesUp += int64(100 * side) }, "request bytes", more, CannotTell, CannotTell, CannotTell,
			"the inputs are not alike: request bytes +20.0 %",
		},
		"requests, where characters are known": {func(side int, r *timeline.Record) { r.BytesUp += int64(100 * side); r.InputChars = new(int64(9)) }, "input characters", alike, Faster, Faster, Faster, ""},
	} {
		w := usual()
		w.change = func(side int, r *timeline.Record) {
			if side == 1 {
				*r.TTFAMS -= 40
				*r.JCTMS -= 40
				*r.RTF = *r.JCTMS / 1e3 / *r.AudioS
			}
			test.change(side, r)
		}
		a, b := w.seeded(5).series("ABBAABBA")
		r := compared(t, a, b, Options{})
		if line := alikeLine(t, r, test.line); line == nil || line.Verdict != test.verdict {
			t.Errorf("%s: %+v, want %s", name, line, test.verdict)
		}
		for figure, want := range map[string]Verdict{"ttfa_p50": test.ttfa, "jct_p50": test.jct, "rtf_p50": test.rtf} {
			if want == "" {
				continue
			}
			f := r.figure(t, figure)
			if f.Verdict != want || want != Faster && !strings.Contains(f.Reason, test.reason) {
				t.Errorf("%s: %s is %s (%s), want %s (%s)", name, figure, f.Verdict, f.Reason, want, test.reason)
			}
		}
	}
}

// Where nothing else of the output is measured, its bytes are looked at: images.
func TestFallbackLengths(t *testing.T) {
	t.Parallel()
	w := usual()
	w.change = func(side int, r *timeline.Record) {
		r.TextBytes, r.AudioS, r.AudibleS, r.Audio, r.TTFAMS, r.TTFTMS, r.TTFAudibleMS, r.RTF = new(int64(0)), nil, nil, nil, nil, nil, nil, nil
		if side == 1 {
			r.BytesDown = 7000
			*r.JCTMS *= 0.8
		}
	}
	a, b := w.seeded(5).series("ABBAABBA")
	r := compared(t, a, b, Options{})
	if f := r.figure(t, "jct_p50"); f.Verdict != SemanticChange || !strings.Contains(f.Reason, "response bytes -22.2 %") {
		t.Errorf("%s (%s)", f.Verdict, f.Reason)
	}
	if alikeLine(t, r, "text") != nil {
		t.Error("a line for text that nobody has")
	}
	if !strings.HasPrefix(r.Flows[0].Headline, "JCT ") {
		t.Error(r.Flows[0].Headline)
	}
}

func TestAlikeVerdict(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for _, test := range []struct {
		change, lo, hi float64
		want           string
	}{
		{0, nan, nan, alike},
		{-0.2, nan, nan, less}, // all runs of a side are the same to the last digit
		{math.Inf(1), nan, nan, more},
		{nan, nan, nan, unlike},
		{0.001, -0.02, 0.03, alike},
		{0.001, -0.02, 0.06, unlike},
		{0.02, -0.02, 0.06, unlike},
		{0.02, 0.01, 0.03, more},
		{0.005, 0.001, 0.009, alike},
		{-0.05, -0.2, -0.01, less},
	} {
		if got := alikeVerdict(test.change, stats.Interval{Lo: test.lo, Hi: test.hi}); got != test.want {
			t.Errorf("%v from %v to %v: %s, want %s", test.change, test.lo, test.hi, got, test.want)
		}
	}
}

// The load differs as a whole, or in one part, which a change may be the cause of.
func TestLoadIsTold(t *testing.T) {
	t.Parallel()
	w := usual()
	w.change = func(side int, r *timeline.Record) {
		if side == 1 { // twice as fast after one another, for the same time each: twice the load
			span := *r.Points.TTerm - *r.Points.TIn
			*r.Points.TIn = 1e12 + (*r.Points.TIn-1e12)/2
			*r.Points.TTerm = *r.Points.TIn + span
		}
	}
	a, b := w.seeded(5).series("ABBA")
	r := compared(t, a, b, Options{})
	if notes := strings.Join(r.Flows[0].Notes, "\n"); !strings.Contains(notes, "the load differs: +9") && !strings.Contains(notes, "the load differs: +1") {
		t.Errorf("%q", notes)
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 100)
	for text, want := range map[string]string{
		"plain words": "plain words", "": "", "\x1b[31m": "\ufffd[31m", "a\nb": "a\ufffdb", "\u202eabc": "\ufffdabc", "\xff": "\ufffd", long: strings.Repeat("ä", 80) + "…",
	} {
		if got := clean(text); got != want {
			t.Errorf("clean(%q) = %q", text, got)
		}
	}
	for v, want := range map[float64]string{0.04: "+0.0", -0.04: "+0.0", -0.06: "-0.1", 1: "+1.0", math.Inf(1): "-"} {
		if got := signed(v, 1); got != want {
			t.Errorf("signed(%v) = %q", v, got)
		}
	}
	if got := signed(math.NaN(), 1); got != "-" {
		t.Error(got)
	}
}
