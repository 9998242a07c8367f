package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/exporter/stats"
	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/timeline/waveform"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// record makes a record; figures of failures are there to be left out.
func record(flow string, state timeline.State, ttft float64) *timeline.Record {
	jct := 10 * ttft
	return &timeline.Record{
		Flow: flow, Attempt: 1, Terminal: timeline.Terminal{State: state}, TTFTMS: &ttft, JCTMS: &jct,
	}
}

func speech(state timeline.State, ttfa float64, flags ...string) *timeline.Record {
	r := record("speech", state, 0)
	audible, jct, rtf := ttfa+30, 4*ttfa, ttfa/400
	r.TTFTMS, r.TTFAMS, r.TTFAudibleMS, r.JCTMS, r.RTF = nil, &ttfa, &audible, &jct, &rtf
	r.AudioGapMS = &timeline.Gap{P50: 1, P95: ttfa / 2, P99: 1e6, Max: ttfa / 1.5, N: 9}
	r.Flags = flags
	return r
}

// yielding makes an iterator of records and errors.
func yielding(items ...any) iter.Seq2[*timeline.Record, error] {
	return func(yield func(*timeline.Record, error) bool) {
		for _, item := range items {
			r, _ := item.(*timeline.Record)
			err, _ := item.(error)
			if !yield(r, err) {
				return
			}
		}
	}
}

// Six empty answers and four good ones (case C37; vllm-project/vllm#5895 reports
// a median TTFT of 0.00 for the like): the empty ones count, and are no zeros.
func failuresInThePercentiles() Report {
	var items []any
	for range 6 {
		empty := record("chat", timeline.InvalidOutput, 0)
		items = append(items, empty)
	}
	for _, ttft := range []float64{120, 130, 150, 160} {
		items = append(items, record("chat", timeline.Success, ttft))
	}
	return Tables(yielding(items...))
}

func mixed() Report {
	retryOf := "r1"
	retry := record("chat", timeline.Success, 999)
	retry.Attempt, retry.RetryOf = 2, &retryOf
	noFirstText := record("chat", timeline.Success, 0)
	noFirstText.TTFTMS = nil
	oneChunk := speech(timeline.Success, 90)
	oneChunk.AudioGapMS = nil
	report := Tables(yielding(
		record("chat", timeline.Success, 100), record("chat", timeline.Success, 110), noFirstText,
		record("chat", timeline.WorkerLost, 5), retry,
		errors.New("requests.jsonl: line 6 (byte 900) is damaged: x"),
		speech(timeline.Success, 80, "paced"), oneChunk, speech(timeline.Success, 100, "rate_assumed"),
		speech(timeline.QualityFailed, 1), speech(timeline.ClientCancelled, 1),
		record("", "", 1), record("speech", "melted", 1),
		errors.New("requests.jsonl: line 13 (byte 1900) is unfinished"),
	))
	report.AddQuality(func(yield func(*timeline.QualityLine, error) bool) {
		finding := func(name string, v waveform.Verdict, reason string) waveform.Finding {
			return waveform.Finding{Name: name, Verdict: v, Reason: reason}
		}
		_ = yield(&timeline.QualityLine{RequestID: "r1", Checks: []waveform.Finding{
			finding("clipping", waveform.Passed, ""), finding("border_overlap", waveform.Failed, "1 of 4 chunks begins with it"),
		}}, nil) && yield(nil, errors.New("quality.jsonl: line 2 (byte 70) is damaged: x")) &&
			yield(&timeline.QualityLine{RequestID: "r2", Checks: []waveform.Finding{
				finding("clipping", waveform.NotMeasured, "no samples"), finding("border_overlap", waveform.Failed, "another"), finding("finite", "", ""),
			}}, nil)
	})
	return report
}

// turns is a run of WebSocket sessions: turns that count from different kinds of
// events are not pooled.
func turns() Report {
	turn := func(flow, source string, ttfa float64, flags ...string) *timeline.Record {
		r := speech(timeline.Success, ttfa, flags...)
		r.Flow, r.Turn = flow, new(int)
		if source != "" {
			r.TInSource = &source
		} else {
			r.TTFAMS = nil
		}
		return r
	}
	report := Tables(yielding(
		turn("realtime", "commit", 900), turn("realtime", "server_vad", 100), turn("realtime", "server_vad", 120),
		turn("duplex", "", 50, "paced"), record("chat", timeline.Success, 10),
	))
	rtt, heard := 1.5, 2.25
	sessions := []*timeline.Session{
		{Flow: "realtime", Turns: 3, DurationMS: 4000, IdleMS: 700, Close: timeline.Close{By: "client"}, PingRTTMS: &rtt, InputAudioS: &heard},
		{Flow: "realtime", DurationMS: 2000, Close: timeline.Close{By: "server"}, InputAudioS: &heard, UnattributedChunks: 2},
		{Flow: "duplex", Turns: 1, DurationMS: 100, Close: timeline.Close{By: "unknown"}, Flags: []string{"no_close_frame"}},
	}
	report.AddSessions(func(yield func(*timeline.Session, error) bool) {
		for _, s := range sessions {
			if !yield(s, nil) {
				return
			}
		}
		yield(nil, errors.New("sessions.jsonl: line 4 (byte 90) is damaged: x"))
	})
	return report
}

func TestGolden(t *testing.T) {
	for name, report := range map[string]Report{
		"c37": failuresInThePercentiles(), "mixed": mixed(), "empty": Tables(yielding()), "turns": turns(), "stages": stagesReport(),
	} {
		for ext, write := range map[string]func(io.Writer) error{".txt": report.Render, ".json": report.WriteJSON} {
			t.Run(name+ext, func(t *testing.T) {
				var got bytes.Buffer
				if err := write(&got); err != nil {
					t.Fatal(err)
				}
				golden := filepath.Join("testdata", name+ext)
				if *update {
					if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), got.String()); diff != "" {
					t.Errorf("%s (-want +got), -update rewrites it:\n%s", golden, diff)
				}
			})
		}
	}
}

func TestFailuresInThePercentiles(t *testing.T) {
	report := failuresInThePercentiles()
	chat := report.Flows[0]
	if chat.Attempts != 10 || chat.Requests != 10 || chat.Success != 4 || *chat.SuccessRate != 0.4 {
		t.Errorf("outcome = %+v, want 4 successes of 10", chat.Outcome)
	}
	if got := chat.state(timeline.InvalidOutput); got.N != 6 || *got.Rate != 0.6 {
		t.Errorf("invalid-output = %d at %v, want 6 at 0.6", got.N, *got.Rate)
	}
	want := stats.Summarize([]float64{120, 130, 150, 160})
	if ttft := chat.Metrics[0]; ttft.Name != "ttft" || ttft.Of != 4 || ttft.Over != want {
		t.Errorf("TTFT = %+v, want %+v", ttft, want)
	}
	if want.P50 != 140 || want.Min != 120 {
		t.Errorf("p50 %v, min %v, want 140 and 120: no zero", want.P50, want.Min)
	}
}

// Every attempt is in exactly one count.
func TestOutcomesAddUp(t *testing.T) {
	report := mixed()
	sum := report.Total
	for _, f := range report.Flows {
		n := f.Success + f.RetrySuccess
		for _, s := range f.States {
			n += s.N
		}
		if n != f.Attempts {
			t.Errorf("%s: counts add up to %d of %d attempts", f.Name, n, f.Attempts)
		}
		sum.Attempts -= f.Attempts
		sum.Requests -= f.Requests
		sum.Success -= f.Success
	}
	if sum.Attempts != 0 || sum.Requests != 0 || sum.Success != 0 {
		t.Errorf("the total differs from the flows by %+v", sum)
	}
	if report.Unreadable != 3 || len(report.Problems) != 3 {
		t.Errorf("unreadable %d, problems %v, want 3", report.Unreadable, report.Problems)
	}
}

// Gaps are one value a request, and one chunk alone has none.
func TestGapsAreOverRequests(t *testing.T) {
	for _, f := range mixed().Flows {
		if f.Name != "speech" {
			continue
		}
		want := map[string]stats.Summary{
			"audio_gap_p95": stats.Summarize([]float64{40, 50}),
			"audio_gap_max": stats.Summarize([]float64{80 / 1.5, 100 / 1.5}),
		}
		for _, m := range f.Metrics {
			if w, ok := want[m.Name]; ok && (m.Over != w || m.Of != 3) {
				t.Errorf("%s = %+v of %d, want %+v of 3", m.Name, m.Over, m.Of, w)
			}
		}
	}
}

func TestProblemsAreBounded(t *testing.T) {
	var items []any
	for range 100 {
		items = append(items, errors.New("bad"))
	}
	report := Tables(yielding(items...))
	if report.Unreadable != 100 || len(report.Problems) != maxProblems || report.Total.Attempts != 0 {
		t.Errorf("unreadable %d with %d problems, %d attempts", report.Unreadable, len(report.Problems), report.Total.Attempts)
	}
}

func TestJSONReadsBack(t *testing.T) {
	var buf bytes.Buffer
	if err := mixed().WriteJSON(&buf); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(buf.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	var first, second strings.Builder
	if err := errors.Join(mixed().Render(&first), back.Render(&second)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.String(), second.String()); diff != "" {
		t.Errorf("tables from JSON (-direct +read):\n%s", diff)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestWriteErrors(t *testing.T) {
	report := mixed()
	for _, err := range []error{report.Render(broken{}), report.WriteJSON(broken{})} {
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("got %v, want io.ErrClosedPipe", err)
		}
	}
}
