package gate_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/exporter/compare/gate"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text, name string
		op         gate.Op
		about      gate.About
		limit      float64
		canonical  string
	}{
		{"ttfa_p99 <= +5%", "ttfa_p99", gate.AtMost, gate.Change, 0.05, "ttfa_p99 <= +5%"},
		{"ttfa_p99<=+5 %", "ttfa_p99", gate.AtMost, gate.Change, 0.05, "ttfa_p99 <= +5%"},
		{"  ttft_p50   <   -12.5%  ", "ttft_p50", gate.Below, gate.Change, -0.125, "ttft_p50 < -12.5%"},
		{"ttfa_p95 <= +20 ms", "ttfa_p95", gate.AtMost, gate.Difference, 20, "ttfa_p95 <= +20ms"},
		{"jct_p90 <= +0.5s", "jct_p90", gate.AtMost, gate.Difference, 500, "jct_p90 <= +0.5s"},
		{"ttfaudible_p1 <= 300 ms", "ttfaudible_p1", gate.AtMost, gate.Figure, 300, "ttfaudible_p1 <= 300ms"},
		{"rtf_p99 < 1", "rtf_p99", gate.Below, gate.Figure, 1, "rtf_p99 < 1"},
		{"rtf_p99 <= +0.05", "rtf_p99", gate.AtMost, gate.Difference, 0.05, "rtf_p99 <= +0.05"},
		{"throughput >= -3%", "throughput", gate.AtLeast, gate.Change, -0.03, "throughput >= -3%"},
		{"goodput > 12.5/s", "goodput", gate.Above, gate.Figure, 12.5, "goodput > 12.5/s"},
		{"throughput >= -1 /s", "throughput", gate.AtLeast, gate.Difference, -1, "throughput >= -1/s"},
		{"success_rate >= 99.5%", "success_rate", gate.AtLeast, gate.Figure, 0.995, "success_rate >= 99.5%"},
		{"success_rate >= -1%", "success_rate", gate.AtLeast, gate.Change, -0.01, "success_rate >= -1%"},
		{"success_rate >= -0.5pp", "success_rate", gate.AtLeast, gate.Difference, -0.005, "success_rate >= -0.5pp"},
		{"jct_p99 <= +0%", "jct_p99", gate.AtMost, gate.Change, 0, "jct_p99 <= +0%"},
		{" chat :ttfa_p99<=+5%", "ttfa_p99", gate.AtMost, gate.Change, 0.05, "chat: ttfa_p99 <= +5%"},
		{"realtime (commit): throughput >= -3%", "throughput", gate.AtLeast, gate.Change, -0.03, "realtime (commit): throughput >= -3%"},
	} {
		g, err := gate.Parse(test.text)
		if err != nil {
			t.Errorf("Parse(%q): %v", test.text, err)
			continue
		}
		if g.Name() != test.name || g.Op != test.op || g.About != test.about || math.Abs(g.Limit()-test.limit) > 1e-12 || g.String() != test.canonical {
			t.Errorf("Parse(%q) = %s %s %v %v, %q", test.text, g.Name(), g.Op, g.About, g.Limit(), g.String())
		}
	}
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "one of <=, <, >= and >",
		"ttfa_p99":                      "one of <=, <, >= and >",
		"ttfa_p99 = +5%":                "one of <=, <, >= and >",
		"ttfa_p99 == +5%":               "one of <=, <, >= and >",
		"ttfa_p99 =< +5%":               "one of <=, <, >= and >",
		"<= +5%":                        "the metric is missing",
		": ttfa_p99 <= +5%":             "a flow's name must stand ahead of the colon",
		"chat: <= +5%":                  "the metric is missing",
		"chat: speech: ttfa_p99 <= +5%": "no metric",
		"ch\nat: ttfa_p99 <= +5%":       "a flow's name must stand ahead of the colon",
		"ttfa_p99 <= +5%: chat":         "a flow's name must stand ahead of the colon",
		"ttfa_p99 <=":                   "the limit is missing",
		"ttfa <= +5%":                   "say which figure of it, as in ttfa_p95",
		"TTFA_p99 <= +5%":               `no metric "TTFA"; there are ttft, ttfa,`,
		"ttfa_p99 p <= +5%":             "no metric",
		"ttfa_p0 <= +5%":                "_p1 to _p99",
		"ttfa_p05 <= +5%":               "_p1 to _p99",
		"ttfa_p100 <= +5%":              "_p1 to _p99",
		"ttfa_p999999999999 <= +5%":     "_p1 to _p99",
		"ttfa_p99.9 <= +5%":             "no metric",
		"throughput_p50 >= -1%":         "has no percentiles",
		"success_rate_p50 >= -1%":       "has no percentiles",
		"ttfa_p99 <= 5%":                "a change needs its sign: +5%",
		"ttfa_p99 <= +5":                "the unit of ttfa is % or ms or s",
		"ttfa_p99 <= 300":               "the unit of ttfa is ms or s",
		"ttfa_p99 <= 300us":             "the unit of ttfa is ms or s",
		"ttfa_p99 <= +5%%":              "the unit of ttfa",
		"ttfa_p99 <= +5% and more":      "the unit of ttfa",
		"rtf_p99 <= 1ms":                "the unit of rtf is none",
		"throughput >= 5":               "the unit of throughput is /s",
		"success_rate >= 99":            "the unit of success_rate is %",
		"success_rate >= 199%":          "from 0 to 100%",
		"success_rate >= -199pp":        "from 0 to 100%",
		"ttfa_p99 <= -100%":             "nothing falls by all of it",
		"ttfa_p99 <= ++5%":              "is no limit",
		"ttfa_p99 <= +-5%":              "is no limit",
		"ttfa_p99 <= + 5%":              "is no limit",
		"ttfa_p99 <= .5s":               "is no limit",
		"ttfa_p99 <= 5.s":               "is no limit",
		"ttfa_p99 <= 1.2.3s":            "is no limit",
		"ttfa_p99 <= 1e3ms":             "the unit of ttfa",
		"ttfa_p99 <= NaNms":             "is no limit",
		"ttfa_p99 <= 0x10ms":            "the unit of ttfa",
		"ttfa_p99 <= \u22125%":          "is no limit",
		"ttfa_p99 <= 9999999999999ms":   "out of range",
		"ttfa_p99 <= 1\nms":             "the unit of ttfa",
		strings.Repeat("ttfa", 100):     "are no condition",
		"ttfa_p99 <= +5% <= +6%":        "the unit of ttfa",
		"ttfa_p99 <= 0." + zeros + "1s": "out of range",
	} {
		if g, err := gate.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, %v; want an error with %q", text, g, err, want)
		}
	}
}

const zeros = "0000000000000000000000"

func TestJudge(t *testing.T) {
	t.Parallel()
	nan, inf := math.NaN(), math.Inf(1)
	for _, test := range []struct {
		gate   string
		lo, hi float64
		want   gate.Verdict
	}{
		{"ttfa_p99 <= +5%", 0, 0.05, gate.Held},
		{"ttfa_p99 <= +5%", 0.05, 0.06, gate.CannotTell},
		{"ttfa_p99 <= +5%", 0.0501, 0.06, gate.Broken},
		{"ttfa_p99 < +5%", 0, 0.05, gate.CannotTell},
		{"ttfa_p99 < +5%", 0.05, 0.06, gate.Broken},
		{"throughput >= -3%", -0.03, 0.1, gate.Held},
		{"throughput >= -3%", -0.04, -0.03, gate.CannotTell},
		{"throughput >= -3%", -0.04, -0.031, gate.Broken},
		{"throughput > -3%", -0.03, 0, gate.CannotTell},
		{"throughput > -3%", -0.04, -0.03, gate.Broken},
		{"ttfa_p99 <= 300ms", 100, 299, gate.Held},
		{"ttfa_p99 <= +5%", nan, nan, gate.CannotTell},
		{"ttfa_p99 <= +5%", nan, 0, gate.CannotTell},
		{"ttfa_p99 <= +5%", 0.04, 0.01, gate.CannotTell},
		{"ttfa_p99 <= +5%", -inf, inf, gate.CannotTell},
	} {
		g, err := gate.Parse(test.gate)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Judge(test.lo, test.hi); got != test.want {
			t.Errorf("%s of %v to %v: %s, want %s", test.gate, test.lo, test.hi, got, test.want)
		}
	}
}

// FuzzParse: whatever comes, there is a gate whose own text gives the same gate, or an
// error of one line.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"ttfa_p99 <= +5%", "ttft_p1<-12.5 %", "jct_p90 <= +0.5s", "rtf_p99 < 1", "throughput >= -3%", "goodput > 12.5/s",
		"success_rate >= 99.5%", "success_rate >= -0.5pp", "ttfa_p99 <= -0ms", "a_p <= 1", "_p1<1", "chat: ttfa_p99 <= +5%", "a (b): jct_p9<1s", "ttfa_p99 <= 0.00000000000000001s", "\x00<=\xff",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		g, err := gate.Parse(text)
		if err != nil {
			if msg := err.Error(); strings.ContainsAny(msg, "\n\r") || len(msg) > 1000 {
				t.Errorf("Parse(%q): %q", text, msg)
			}
			return
		}
		again, err := gate.Parse(g.String())
		if err != nil {
			t.Fatalf("Parse(%q) = %q, which cannot be parsed: %v", text, g, err)
		}
		if d := cmp.Diff(g, again); d != "" || g.String() != again.String() {
			t.Errorf("Parse(%q) = %q: %s", text, g, d)
		}
		if math.IsNaN(g.Limit()) || math.IsInf(g.Limit(), 0) {
			t.Errorf("Parse(%q): limit %v", text, g.Limit())
		}
		if l := g.Limit(); g.Judge(l, l) == gate.CannotTell {
			t.Errorf("%s of its own limit cannot be told", g)
		}
	})
}
