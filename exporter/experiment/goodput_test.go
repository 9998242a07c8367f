package experiment

import (
	"encoding/json"
	"errors"
	"iter"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// success is a request with sound that began at a time.
func success(tIn int64, change func(*timeline.Record)) *timeline.Record {
	r := &timeline.Record{
		Points: timeline.Points{TIn: &tIn}, Terminal: timeline.Terminal{State: timeline.Success}, Attempt: 1, Unmeasured: map[string]string{},
		TTFTMS: new(100.0), TTFAMS: new(200.0), TTFAudibleMS: new(250.0), JCTMS: new(1000.0), RTF: new(0.5), TPOTMS: new(10.0),
		AudioGapMS: &timeline.Gap{Max: 80, N: 9}, Playback: &timeline.Playback{Underruns: 1, StallMS: 30},
	}
	if change != nil {
		change(r)
	}
	return r
}

func TestMet(t *testing.T) {
	all := SLO{new(100.0), new(200.0), new(250.0), new(1000.0), new(0.5), new(10.0), new(80.0), new(1), new(30.0)}
	paced := func(r *timeline.Record) { r.Flags = []string{"paced"} }
	for _, c := range []struct {
		name          string
		slo           SLO
		change        func(*timeline.Record)
		met, measured bool
		why           string
	}{
		{"every limit is itself kept", all, nil, true, true, ""},
		{"ttft", SLO{TTFTMS: new(99.9)}, nil, false, true, "ttft_ms is 100, above 99.9"},
		{"ttfa", SLO{TTFAMS: new(199.0)}, nil, false, true, "ttfa_ms is 200, above 199"},
		{"ttfaudible", SLO{TTFAudibleMS: new(249.0)}, nil, false, true, "ttfaudible_ms is 250, above 249"},
		{"jct", SLO{JCTMS: new(999.0)}, nil, false, true, "jct_ms is 1000, above 999"},
		{"rtf", SLO{RTF: new(0.4)}, nil, false, true, "rtf is 0.5, above 0.4"},
		{"tpot", SLO{TPOTMS: new(9.0)}, nil, false, true, "tpot_ms is 10, above 9"},
		{"gap", SLO{AudioGapMS: new(79.0)}, nil, false, true, "audio_gap_ms is 80, above 79"},
		{"underruns", SLO{Underruns: new(0)}, nil, false, true, "underruns is 1, above 0"},
		{"stall", SLO{StallMS: new(0.0)}, nil, false, true, "stall_ms is 30, above 0"},
		{"two", SLO{TTFTMS: new(1.0), RTF: new(0.1)}, nil, false, true, "ttft_ms is 100, above 1; rtf is 0.5, above 0.1"},
		{"no limit", SLO{}, nil, false, false, "the SLO has no limit"},
		{"a failure", all, func(r *timeline.Record) { r.Terminal.State = timeline.OOM }, false, true, "it ended as oom"},
		{"bad sound", all, func(r *timeline.Record) { r.Terminal.State = timeline.QualityFailed }, false, true, "it ended as quality-failed"},
		{"no state", all, func(r *timeline.Record) { r.Terminal.State = "" }, false, true, "it ended as unknown"},
		{"null", SLO{TTFTMS: new(100.0), TTFAMS: new(200.0)}, func(r *timeline.Record) { r.TTFAMS, r.Unmeasured["ttfa_ms"] = nil, "no audio came" }, false, false, "ttfa_ms was not measured: no audio came"},
		{"null that is not asked for", SLO{TTFTMS: new(100.0)}, func(r *timeline.Record) { r.TTFAMS = nil }, true, true, ""},
		{"null, and another limit is broken", SLO{TTFTMS: new(1.0), TTFAMS: new(200.0)}, func(r *timeline.Record) { r.TTFAMS = nil }, false, true, "ttft_ms is 100, above 1"},
		{"no reason", SLO{RTF: new(1.0)}, func(r *timeline.Record) { r.RTF, r.Unmeasured = nil, nil }, false, false, "rtf was not measured: no reason is given"},
		{"no number", SLO{RTF: new(1.0)}, func(r *timeline.Record) { r.RTF = new(math.NaN()) }, false, false, "rtf was not measured: no reason is given"},
		{"infinite", SLO{RTF: new(1.0)}, func(r *timeline.Record) { r.RTF = new(math.Inf(-1)) }, false, false, "rtf was not measured: no reason is given"},
		{"no player", SLO{Underruns: new(5)}, func(r *timeline.Record) { r.Playback, r.Unmeasured["playback"] = nil, "one chunk" }, false, false, "underruns was not measured: one chunk"},
		{"no stall", SLO{StallMS: new(5.0)}, func(r *timeline.Record) { r.Playback, r.Unmeasured["playback"] = nil, "one chunk" }, false, false, "stall_ms was not measured: one chunk"},
		{"no gap", SLO{AudioGapMS: new(100.0)}, func(r *timeline.Record) { r.AudioGapMS.N = 0 }, false, false, "audio_gap_ms was not measured: no reason is given"},
		{"no gaps", SLO{AudioGapMS: new(100.0)}, func(r *timeline.Record) { r.AudioGapMS = nil }, false, false, "audio_gap_ms was not measured: no reason is given"},
		{"paced", SLO{RTF: new(1.0)}, paced, false, false, "rtf is the pacer's: the server paces its output to real time"},
		{"paced, but not that", SLO{TTFAMS: new(200.0), Underruns: new(1)}, paced, true, true, ""},
	} {
		met, measured, why := c.slo.Met(success(1, c.change))
		if met != c.met || measured != c.measured || why != c.why {
			t.Errorf("%s: %v, %v, %q; want %v, %v, %q", c.name, met, measured, why, c.met, c.measured, c.why)
		}
	}
}

func list(records ...*timeline.Record) iter.Seq2[*timeline.Record, error] {
	return func(yield func(*timeline.Record, error) bool) {
		for _, r := range records {
			var err error
			if r == nil {
				err = errors.New("damaged")
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

func TestGoodput(t *testing.T) {
	slow := func(r *timeline.Record) { r.TTFAMS = new(900.0) }
	mute := func(r *timeline.Record) { r.TTFAMS, r.RTF = nil, nil }
	records := []*timeline.Record{
		success(9, nil), // warm-up
		success(10, nil), success(11, nil), success(11, nil), success(2e9, nil),
		success(12, slow), success(13, mute), nil,
		success(14, func(r *timeline.Record) { r.Terminal.State = timeline.ServerError }),
		success(15, func(r *timeline.Record) { r.Attempt = 2 }),
		success(15, func(r *timeline.Record) { r.RetryOf = new("x") }),
		success(0, func(r *timeline.Record) { r.Points.TIn = nil }), // nothing asked for it
		success(4e9+10, nil), success(4e9+11, nil), // the last moment, and behind it
	}
	s := SLO{TTFAMS: new(200.0), RTF: new(1.0)}
	got := s.Goodput(list(records...), 10, 4e9+10)
	want := Goodput{
		SLO: s, Attempts: 11, Requests: 9, Failed: 1, Met: 6, Missed: 1, NotMeasured: 1, Outside: 2, Unreadable: 1,
		MissedBy: map[string]int{"ttfa_ms": 1}, NotMeasuredBy: map[string]int{"ttfa_ms": 1, "rtf": 1},
		Share: new(6.0 / 9), RatePerS: new(1.5), ThroughputPerS: new(2.0), Unmeasured: map[string]string{},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestGoodputOfNothing: what cannot be said is null, with the reason.
func TestGoodputOfNothing(t *testing.T) {
	s := SLO{TTFAMS: new(200.0)}
	one := list(success(5, nil))
	for _, c := range []struct {
		name                    string
		got                     Goodput
		share, rate, throughput string
	}{
		{"no record", s.Goodput(list(), 1, 10), "no request began in the window", "no request began in the window", "no request began in the window"},
		{"no time", s.Goodput(one, 5, 5), "", "the window has no length", "the window has no length"},
		{"time runs back", s.Goodput(one, 6, 5), "no request began in the window", "no request began in the window", "no request began in the window"},
		{"no limit", SLO{}.Goodput(one, 1, 10), "the SLO has no limit", "the SLO has no limit", ""},
		{"one", s.Goodput(one, 1, 10), "", "", ""},
	} {
		for name, v := range map[string]struct {
			got *float64
			why string
		}{"share": {c.got.Share, c.share}, "rate_per_s": {c.got.RatePerS, c.rate}, "throughput_per_s": {c.got.ThroughputPerS, c.throughput}} {
			if (v.got == nil) != (v.why != "") || c.got.Unmeasured[name] != v.why {
				t.Errorf("%s: %s is %v, %q; want %q", c.name, name, v.got, c.got.Unmeasured[name], v.why)
			}
		}
		if _, err := json.Marshal(c.got); err != nil {
			t.Error(err)
		}
	}
	if g := (SLO{}).Goodput(one, 1, 10); g.NotMeasured != 1 || g.Met != 0 {
		t.Errorf("without a limit: %+v", g)
	}
	// A run in which everything failed has a goodput: none.
	g := s.Goodput(list(success(5, func(r *timeline.Record) { r.Terminal.State = timeline.OOM })), 1, 10)
	if g.Share == nil || *g.Share != 0 || *g.ThroughputPerS != 0 {
		t.Errorf("all failed: %+v", g)
	}
}

func TestAllows(t *testing.T) {
	for _, c := range []struct {
		allowed          float64
		failed, requests int
		why              string
	}{
		{0, 0, 5, ""},
		{0, 1, 1000, "1 of 1000 failed, more than 0 %"},
		{0.01, 10, 1000, ""},
		{0.01, 11, 1000, "11 of 1000 failed, more than 1 %"},
		{1, 5, 5, ""},
		{1, 0, 0, "no request was measured"},
	} {
		why, ok := Experiment{AllowedFailureRate: c.allowed}.Allows(Goodput{Failed: c.failed, Requests: c.requests})
		if why != c.why || ok != (c.why == "") {
			t.Errorf("%+v: %q, %v", c, why, ok)
		}
	}
}

func TestReached(t *testing.T) {
	for _, c := range []struct {
		name string
		stop Stop
		at   Progress
		want string
	}{
		{"nothing is set", Stop{After: 1}, Progress{Ended: 1e6, Failed: 1e6, WorkerLost: 5, Elapsed: time.Hour, ForeignCores: new(50.0)}, ""},
		{"not yet", Stop{Requests: 10, Duration: time.Minute, FailureRate: new(0.5), After: 2}, Progress{Ended: 9, Failed: 4, Elapsed: 59 * time.Second}, ""},
		{"requests", Stop{Requests: 10}, Progress{Ended: 10}, "10 requests were measured"},
		{"duration", Stop{Duration: time.Minute}, Progress{Elapsed: time.Minute}, "it had lasted for 1m0s"},
		{"a rate needs so many", Stop{FailureRate: new(0.1), After: 20}, Progress{Ended: 19, Failed: 19}, ""},
		{"a rate", Stop{FailureRate: new(0.1), After: 20}, Progress{Ended: 20, Failed: 3}, "3 of 20 failed, more than 10 %"},
		{"a rate itself is kept", Stop{FailureRate: new(0.1), After: 20}, Progress{Ended: 20, Failed: 2}, ""},
		{"none may fail", Stop{FailureRate: new(0.0), After: 1}, Progress{Ended: 1, Failed: 1}, "1 of 1 failed, more than 0 %"},
		{"none has ended", Stop{FailureRate: new(0.0)}, Progress{}, ""},
		{"a worker", Stop{WorkerLost: true}, Progress{Ended: 1, Failed: 1, WorkerLost: 1}, "a stage's process was lost"},
		{"others", Stop{Contaminated: true}, Progress{ForeignCores: new(2.5)}, "other processes used 2.50 cores, more than 2"},
		{"the limit itself is kept", Stop{Contaminated: true}, Progress{ForeignCores: new(2.0)}, ""},
		{"others are not known", Stop{Contaminated: true}, Progress{}, ""},
	} {
		e := Default()
		e.Stop = c.stop
		why, stop := e.Reached(c.at)
		if why != c.want || stop != (c.want != "") || strings.Contains(why, "NaN") {
			t.Errorf("%s: %q, %v; want %q", c.name, why, stop, c.want)
		}
	}
}
