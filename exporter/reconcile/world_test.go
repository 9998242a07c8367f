package reconcile

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/upstream"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// A built world: what happened is known, and each view is derived from it by the fault that
// is built in.

const second = int64(1_000_000_000)

// truth is one request; times are milliseconds behind t_in, 0 where it never came to that.
type truth struct {
	start              float64 // the generator's clock ahead of t_in
	hdr, text          float64
	event, audio, term float64
	reasoning          float64
	seconds            float64
	state              timeline.State
	status             int
	phase              string
	body               string
}

func usual() truth {
	return truth{start: 1, hdr: 5, text: 100, event: 300, audio: 300, term: 1000, seconds: 2, state: timeline.Success, status: 200, phase: "measured"}
}

// many are n requests, one a second, each changed by f.
func many(n int, f func(i int, x *truth)) []truth {
	var out []truth
	for i := range n {
		x := usual()
		x.text += float64(i)
		if f != nil {
			f(i, &x)
		}
		out = append(out, x)
	}
	return out
}

func wireOf(truths []truth) []*timeline.Record {
	var out []*timeline.Record
	for i, x := range truths {
		in := second * int64(10+i)
		at := func(v float64) *int64 {
			if v == 0 {
				return nil
			}
			return new(in + int64(v*1e6))
		}
		r := &timeline.Record{RequestID: fmt.Sprintf("r%d", i), Flow: "chat", Status: &x.status, RunPhase: x.phase, TInWallNS: new(in + 1e18), Terminal: timeline.Terminal{State: x.state}}
		r.Points = timeline.Points{TIn: &in, THdr: at(x.hdr), TText: at(x.text), TAudioEvent: at(x.event), TAudio: at(x.audio), TTerm: at(x.term)}
		if x.reasoning > 0 {
			r.Reasoning = &timeline.Reasoning{FirstMS: &x.reasoning, Units: 1}
		}
		if x.seconds > 0 {
			r.AudioS = &x.seconds
		}
		if x.body != "" {
			r.RequestSHA256 = &x.body
		}
		out = append(out, r)
	}
	return out
}

// bench is the JSON that vllm bench serve writes of what it saw, milliseconds behind its start.
type bench struct {
	backend           string
	starts, ttfts     []float64 // seconds
	errors            []string
	ttfp, e2el, sound []float64 // milliseconds; seconds
	percentiles       string
}

// client sees every request of truths by its clock: ttft, ttfp and end are what it takes for
// them, behind t_in.
func (b *bench) client(i int, x truth, ttft, ttfp, end float64) {
	b.starts = append(b.starts, float64(10+i)-x.start/1e3)
	see := func(v float64) float64 {
		if v == 0 {
			return 0
		}
		return v + x.start
	}
	b.ttfts = append(b.ttfts, see(ttft)/1e3)
	b.errors = append(b.errors, "")
	b.ttfp, b.e2el, b.sound = append(b.ttfp, see(ttfp)), append(b.e2el, see(end)), append(b.sound, x.seconds)
}

func mean(v []float64) float64 {
	s := 0.0
	for _, x := range v {
		s += x / float64(len(v))
	}
	return s
}

func (b *bench) read(t testing.TB) *Generator {
	t.Helper()
	list := func(v []float64) string {
		var s []string
		for _, x := range v {
			s = append(s, fmt.Sprintf("%.9f", x))
		}
		return strings.Join(s, ",")
	}
	failed := 0
	var errs []string
	for _, e := range b.errors {
		if e != "" {
			failed++
		}
		errs = append(errs, fmt.Sprintf("%q", e))
	}
	total := 0.0
	for _, s := range b.sound {
		total += s
	}
	g, err := ReadGenerator(strings.NewReader(fmt.Sprintf(`{"backend":%q,"duration":1.0,"completed":%d,"failed":%d,"rtfx":NaN,"start_times":[%s],"ttfts":[%s],"errors":[%s],
 "mean_ttft_ms":%.6f,"mean_audio_ttfp_ms":%.6f,"mean_e2el_ms":%.6f,"total_audio_duration_s":%.6f%s}`,
		b.backend, len(b.starts)-failed, failed, list(b.starts), list(b.ttfts), strings.Join(errs, ","), mean(b.ttfts)*1e3, mean(b.ttfp), mean(b.e2el), total, b.percentiles)))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// want is a finding that must be there; amount is not looked at where it is NaN.
type want struct {
	q      Quantity
	a      View
	cause  Cause
	n      int
	amount float64
}

// expect holds the findings to exactly those that are known to be built in.
func expect(t *testing.T, r Result, wants ...want) {
	t.Helper()
	left := map[string]Finding{}
	for _, f := range r.Findings {
		left[fmt.Sprint(f.Quantity, f.A, f.Cause)] = f
	}
	if len(left) != len(r.Findings) {
		t.Errorf("a finding is told twice: %+v", r.Findings)
	}
	for _, w := range wants {
		key := fmt.Sprint(w.q, w.a, w.cause)
		f, ok := left[key]
		delete(left, key)
		switch {
		case !ok:
			t.Errorf("not found: %s of the %s, %s; there are %+v", w.q, w.a, w.cause, r.Findings)
		case f.N != w.n:
			t.Errorf("%s of the %s, %s: n is %d, want %d", w.q, w.a, w.cause, f.N, w.n)
		case math.IsNaN(w.amount) != (f.Amount == nil), f.Amount != nil && math.Abs(*f.Amount-w.amount) > 0.05:
			t.Errorf("%s of the %s, %s: amount is %v, want %v", w.q, w.a, w.cause, show(f.Amount), w.amount)
		case f.Evidence == "":
			t.Errorf("%s of the %s, %s: nothing shows it", w.q, w.a, w.cause)
		}
	}
	for _, f := range left {
		t.Errorf("nobody built in: %+v", f)
	}
}

var nan = math.NaN()

func TestClientAgrees(t *testing.T) {
	truths := many(8, nil)
	b := bench{backend: "openai-chat-omni"}
	for i, x := range truths {
		b.client(i, x, x.text, x.audio, x.term)
	}
	r := Table(Input{Records: wireOf(truths), Generator: b.read(t)})
	expect(t, r)
	if r.Pairing != ByStart || len(r.Rows) < 5 {
		t.Errorf("paired by %s, %d rows", r.Pairing, len(r.Rows))
	}
}

func TestClientDelays(t *testing.T) {
	truths := many(8, func(_ int, x *truth) { x.start = 40 })
	b := bench{backend: "openai-chat-omni"}
	for i, x := range truths {
		b.client(i, x, x.text+25, x.audio+10, x.term+30)
	}
	expect(t, Table(Input{Records: wireOf(truths), Generator: b.read(t)}),
		want{TTFT, Client, GeneratorStart, 8, 40}, want{TTFT, Client, GeneratorRead, 8, 25},
		want{TTFA, Client, GeneratorStart, 8, 40}, want{TTFA, Client, GeneratorRead, 8, 10},
		want{JCT, Client, GeneratorStart, 8, 40}, want{JCT, Client, GeneratorRead, 8, 30})
}

// TestFirstToken: what a generator took for the first token lies ahead of the first text.
func TestFirstToken(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(i int, x *truth)
		ttft    func(x truth) float64
		cause   Cause
		n       int
		amount  float64
		without bool
	}{
		{"role-only event", nil, func(truth) float64 { return 6 }, EmptyEventAsToken, 8, -97.5, false},
		{"reasoning", func(_ int, x *truth) { x.reasoning = 50 }, func(truth) float64 { return 51 }, ReasoningAsToken, 8, -52.5, false},
		{"audio", func(_ int, x *truth) { x.text = 500 }, func(truth) float64 { return 301 }, AudioAsToken, 8, -199, false},
		{"no text at all", func(_ int, x *truth) { x.text = 0 }, func(truth) float64 { return 80 }, EmptyEventAsToken, 8, nan, true},
		{"ahead of the answer", nil, func(truth) float64 { return 3 }, NotExplained, 8, -100.5, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			truths := many(8, c.change)
			b := bench{backend: "openai-chat"}
			for i, x := range truths {
				b.client(i, x, c.ttft(x), 0, x.term)
			}
			expect(t, Table(Input{Records: wireOf(truths), Generator: b.read(t)}), want{TTFT, Client, c.cause, c.n, c.amount})
		})
	}
}

// TestZeros: requests without a token, or without sound, are 0 in the generator's means.
func TestZeros(t *testing.T) {
	truths := many(10, func(i int, x *truth) {
		if i < 6 {
			x.text, x.event, x.audio, x.seconds, x.state = 0, 0, 0, 0, timeline.InvalidOutput
		}
	})
	b := bench{backend: "openai-chat-omni"}
	for i, x := range truths {
		b.client(i, x, x.text, x.audio, x.term)
	}
	text := (106 + 107 + 108 + 109) / 4.0
	expect(t, Table(Input{Records: wireOf(truths), Generator: b.read(t)}),
		want{Failures, Client, FailureAsSuccess, 6, -6},
		want{TTFT, Client, ZeroForNone, 6, -0.6 * (text + 1)},
		want{TTFA, Client, ZeroForNone, 6, -0.6 * 301})
}

// TestEmptyAudioEvent: the first audio event has no samples.
func TestEmptyAudioEvent(t *testing.T) {
	truths := many(8, func(_ int, x *truth) { x.event, x.audio = 200, 300 })
	b := bench{backend: "openai-chat-omni"}
	for i, x := range truths {
		b.client(i, x, x.text, x.event, x.term)
	}
	expect(t, Table(Input{Records: wireOf(truths), Generator: b.read(t)}), want{TTFA, Client, EmptyAudioAsAudio, 8, -100})
}

func TestEndMarker(t *testing.T) {
	truths := many(8, nil)
	b := bench{backend: "openai-chat-omni"}
	for i, x := range truths {
		b.client(i, x, x.text, x.audio, x.term-50)
	}
	expect(t, Table(Input{Records: wireOf(truths), Generator: b.read(t)}), want{JCT, Client, EndMarkerLeftOut, 8, -50})
}

func TestCounts(t *testing.T) {
	truths := many(12, func(i int, x *truth) {
		switch {
		case i < 3:
			x.phase = "warmup"
		case i == 6:
			x.state, x.body, x.text, x.audio, x.event, x.seconds = timeline.TransportError, "same", 0, 0, 0, 0
		case i == 7:
			x.body = "same"
		}
	})
	b := bench{backend: "openai-chat-omni"}
	for i, x := range truths {
		if i >= 3 && i != 6 {
			b.client(i, x, x.text, x.audio, x.term)
		}
	}
	b.client(40, usual(), 0, 0, 0) // nobody listened
	b.errors[len(b.errors)-1] = "Connection refused"
	b.ttfp, b.e2el, b.sound = b.ttfp[:8], b.e2el[:8], b.sound[:8]
	expect(t, Table(Input{Records: wireOf(truths), Generator: b.read(t)}),
		want{Requests, Client, WarmupIncluded, 3, -3}, want{Requests, Client, Retried, 1, -1}, want{Requests, Client, NeverSent, 1, 1},
		want{Failures, Client, NeverSent, 1, 1})
}

// TestUnexplained: a difference that nothing shows is called that.
func TestUnexplained(t *testing.T) {
	truths := many(8, nil)
	b := bench{backend: "openai-chat-omni"}
	for i, x := range truths[:6] { // two records amid the run are nobody's
		b.client(i, x, x.text, x.audio, x.term)
	}
	b.ttfp[0] -= 600 // 100 ms of the mean, ahead of any audio event
	b.sound[0] += 5
	expect(t, Table(Input{Records: wireOf(truths), Generator: b.read(t)}),
		want{Requests, Client, NotExplained, 2, -2}, want{TTFA, Client, NotExplained, 6, -100}, want{AudioS, Client, NotExplained, 6, 5})

	// A file whose end alone overlaps is of another run.
	for i := range b.starts {
		b.starts[i] += 6
	}
	if r := Table(Input{Records: wireOf(truths), Generator: b.read(t)}); r.Pairing != Summed || has(r, TTFT, Client, EmptyEventAsToken) {
		t.Errorf("another run: paired by %s: %+v", r.Pairing, r.Findings)
	}
	// Start times of another clock pair nothing.
	for i := range b.starts {
		b.starts[i] += 1e6
	}
	if r := Table(Input{Records: wireOf(truths), Generator: b.read(t)}); r.Pairing != Summed || r.PairingNote == "" || !has(r, TTFA, Client, NotExplained) {
		t.Errorf("another clock: paired by %s: %+v", r.Pairing, r.Findings)
	}
}

// TestExchangeable: requests that start together can be paired the wrong way round; nothing
// is told of one of them that would be false for the other.
func TestExchangeable(t *testing.T) {
	truths := many(2, func(i int, x *truth) { x.text = 100 + 200*float64(i) })
	records := wireOf(truths)
	for i, r := range records { // both came at 10 s, within a millisecond
		for _, p := range []**int64{&r.Points.TIn, &r.Points.THdr, &r.Points.TText, &r.Points.TAudio, &r.Points.TAudioEvent, &r.Points.TTerm} {
			*p = new(**p - int64(i)*second)
		}
	}
	*records[0].Points.TIn += 500_000
	b := bench{backend: "openai-chat"}
	b.client(0, truths[0], truths[1].text, 0, 1000) // the other way round
	b.client(0, truths[0], truths[0].text, 0, 1000)
	b.starts[1] += 0.0003
	g := b.read(t)
	r := Table(Input{Records: records, Generator: g})
	expect(t, r)
	records[1].Points.TText = nil // which of the two had no text cannot be told
	if r := Table(Input{Records: records, Generator: g}); has(r, TTFT, Client, EmptyEventAsToken) || !has(r, TTFT, Client, NotExplained) {
		t.Errorf("one without text: %+v", r.Findings)
	}
	if r.Pairing != ByStart || !strings.Contains(strings.Join(r.Notes, "\n"), "2 pairs started so close") {
		t.Errorf("paired by %s, notes %q", r.Pairing, r.Notes)
	}
}

func TestPercentileMethod(t *testing.T) {
	truths := many(10, nil)
	for _, c := range []struct {
		p99   float64
		wants []want
	}{
		{109.91, nil}, // linear: 100 to 109, a start of 1 ahead
		{110, []want{{TTFT, Client, OtherPercentiles, 10, 110 - 109.91}}}, // nearest rank
		{123, []want{{TTFT, Client, NotExplained, 10, 123 - 109.91}}},
	} {
		b := bench{backend: "openai-chat-omni", percentiles: fmt.Sprintf(`,"p99_ttft_ms":%v`, c.p99)}
		for i, x := range truths {
			b.client(i, x, x.text, x.audio, x.term)
		}
		r := Table(Input{Records: wireOf(truths), Generator: b.read(t)})
		expect(t, r, c.wants...)
		if c.p99 == 110 && !strings.Contains(r.Findings[0].Evidence, "nearest rank") {
			t.Errorf("the method is %s", r.Findings[0].Evidence)
		}
	}
}

func TestNothing(t *testing.T) {
	r := Table(Input{})
	expect(t, r)
	if len(r.Notes) != 2 {
		t.Errorf("notes are %q", r.Notes)
	}
	unknown := &upstream.Difference{Scrapes: 2, Deltas: []upstream.Delta{{Name: "other:requests_total", Type: upstream.Counter, Increase: new(upstream.Number(5))}}}
	r = Table(Input{Records: wireOf(many(2, nil)), Server: unknown})
	expect(t, r)
	if !strings.Contains(strings.Join(r.Notes, "\n"), "none of its 1 series has a known meaning") {
		t.Errorf("notes are %q", r.Notes)
	}
}
