package prometheus

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/omnitap/omnitap/proxy/timeline"
)

const speechOf = `flow="speech",model="Qwen/Qwen2.5-Omni-7B"`

func TestRecord(t *testing.T) {
	s := sinkOf(t, Config{}, Deps{Version: "v1.2.3", Revision: "abc"})
	s.Record(speech())
	bad := speech()
	bad.Terminal.State, bad.Quality = timeline.QualityFailed, timeline.Quality{Verdict: "failed", Failed: []string{"dropout", "declared_total"}}
	bad.Audio.Samples, bad.Playback = new(int64(119000)), &timeline.Playback{Underruns: 3, StallMS: 250}
	bad.Transfers[1].Unread, bad.Transfers[1].EndNS = true, nil
	s.Record(bad)
	got := series(t, s)
	want(t, got, map[string]float64{
		`omnitap_requests_total{attempt="first",dialect="vllm-omni",flow="speech",quality="passed",state="success"}`:        1,
		`omnitap_requests_total{attempt="first",dialect="vllm-omni",flow="speech",quality="failed",state="quality-failed"}`: 1,

		`omnitap_ttft_seconds_sum{` + speechOf + `,t_in_source="request"}`:                         0.12,
		`omnitap_ttfa_seconds_sum{` + speechOf + `,t_in_source="request"}`:                         0.35,
		`omnitap_ttfa_seconds_count{` + speechOf + `,t_in_source="request"}`:                       1,
		`omnitap_ttfaudible_seconds_sum{` + speechOf + `,t_in_source="request"}`:                   0.41,
		`omnitap_jct_seconds_sum{` + speechOf + `,paced="false",t_in_source="request"}`:            2.5,
		`omnitap_rtf_ratio_sum{` + speechOf + `,paced="false",t_in_source="request"}`:              0.5,
		`omnitap_audio_gap_max_seconds_sum{` + speechOf + `,paced="false",t_in_source="request"}`:  0.09,
		`omnitap_audio_seconds_total{` + speechOf + `}`:                                            10,
		`omnitap_audio_samples_total{` + speechOf + `}`:                                            239000,
		`omnitap_audio_missing_samples_total{` + speechOf + `}`:                                    1000,
		`omnitap_playbacks_total{` + speechOf + `,stalled="false"}`:                                1,
		`omnitap_playbacks_total{` + speechOf + `,stalled="true"}`:                                 1,
		`omnitap_playback_underruns_total{` + speechOf + `}`:                                       3,
		`omnitap_playback_stall_seconds_total{` + speechOf + `}`:                                   0.25,
		`omnitap_quality_failures_total{check="dropout"}`:                                          1,
		`omnitap_own_delay_p50_seconds_sum`:                                                        0.00008,
		`omnitap_own_delay_max_seconds_count`:                                                      2,
		`omnitap_relayed_bytes_total{direction="up",flow="speech"}`:                                800,
		`omnitap_relayed_bytes_total{direction="down",flow="speech"}`:                              480000,
		`omnitap_stage_wait_seconds_sum{stage="talker"}`:                                           0.005,
		`omnitap_stage_service_seconds_sum{stage="code2wav"}`:                                      1.2,
		`omnitap_stage_service_seconds_count{stage="code2wav"}`:                                    1,
		`omnitap_transfer_seconds_sum{from="thinker",to="talker",transport="shm"}`:                 0.002,
		`omnitap_transfer_bytes_total{from="thinker",to="talker",transport="shm"}`:                 2 << 20,
		`omnitap_transfers_unread_total{from="talker",to="code2wav",transport="shm"}`:              1,
		`omnitap_analyses_total{analysis="full"}`:                                                  2,
		`omnitap_build_info{goversion="` + goVersion() + `",revision="abc",version="v1.2.3"}`:      1,
		`omnitap_ttfa_seconds_bucket{` + speechOf + `,t_in_source="request",le="0.3311"}`:          0,
		`omnitap_ttfa_seconds_bucket{` + speechOf + `,t_in_source="request",le="0.3631"}`:          1,
		`omnitap_jct_seconds_bucket{` + speechOf + `,paced="false",t_in_source="request",le="30"}`: 1,
	})
}

// TestC37FailuresInThePercentiles: failures are counted by state, and enter no latency,
// neither as what a failure may have measured nor as 0.
func TestC37FailuresInThePercentiles(t *testing.T) {
	s := sinkOf(t, Config{}, Deps{})
	for i := range 6 {
		r := failed(timeline.InvalidOutput)
		if i%2 == 0 { // an end comes early where nothing does
			r.JCTMS, r.TTFTMS = new(3.0), new(0.0)
		}
		s.Record(r)
	}
	for _, ms := range []float64{120, 130, 150, 160} {
		r := failed(timeline.Success)
		r.TTFTMS, r.JCTMS = new(ms), new(10*ms)
		s.Record(r)
	}
	got := series(t, s)
	base := speechOf + `,t_in_source="request"`
	want(t, got, map[string]float64{
		`omnitap_requests_total{attempt="first",dialect="vllm-omni",flow="speech",quality="not_measured",state="success"}`:        4,
		`omnitap_requests_total{attempt="first",dialect="vllm-omni",flow="speech",quality="not_measured",state="invalid-output"}`: 6,
		`omnitap_ttft_seconds_count{` + base + `}`:                                                4,
		`omnitap_ttft_seconds_sum{` + base + `}`:                                                  0.56,
		`omnitap_ttft_seconds_bucket{` + base + `,le="0.1"}`:                                      0,
		`omnitap_jct_seconds_count{` + speechOf + `,paced="false",t_in_source="request"}`:         4,
		`omnitap_jct_seconds_bucket{` + speechOf + `,paced="false",t_in_source="request",le="1"}`: 0,
	})
	absent(t, got, `ttfa|rtf|gap|own_delay`)            // not measured of any
	absent(t, got, `(ttft|jct)_seconds.*model="other"`) // nor of a model that only a failure named
}

// TestOnlyMeasuredValues: what cannot have been measured makes no series at all.
func TestOnlyMeasuredValues(t *testing.T) {
	for _, v := range []*float64{nil, new(-1.0), new(math.NaN()), new(math.Inf(1))} {
		s := sinkOf(t, Config{}, Deps{})
		r := speech()
		r.TTFTMS, r.TTFAMS, r.TTFAudibleMS, r.JCTMS, r.RTF, r.AudioS = v, v, v, v, v, v
		r.OwnDelayUS, r.AudioGapMS, r.Stages, r.Transfers = nil, nil, nil, nil
		s.Record(r)
		got := series(t, s)
		absent(t, got, `_bucket|_sum|_count`)
		want(t, got, map[string]float64{`omnitap_audio_seconds_total{` + speechOf + `}`: 0})
	}
}

// TestRetry: a retry's success is none, and its time is none that a client waited.
func TestRetry(t *testing.T) {
	s := sinkOf(t, Config{}, Deps{})
	second, third := speech(), speech()
	second.Attempt, third.RetryOf = 2, new("client-id-1")
	s.Record(second)
	s.Record(third)
	got := series(t, s)
	want(t, got, map[string]float64{`omnitap_requests_total{attempt="retry",dialect="vllm-omni",flow="speech",quality="passed",state="success"}`: 2})
	absent(t, got, `attempt="first"|ttfa_seconds|stage_wait|transfer_seconds`)
}

// TestTurns: turns that count from other events, and paced ones, are kept apart.
func TestTurns(t *testing.T) {
	s := sinkOf(t, Config{}, Deps{})
	for _, of := range []*string{new("server_vad"), new("commit"), nil} {
		r := speech()
		r.Flow, r.Turn, r.TInSource, r.Flags = timeline.FlowRealtime, new(0), of, []string{"burst_delivery", "paced"}
		s.Record(r)
	}
	for _, of := range []string{"server_vad", "commit", "unasked"} {
		want(t, series(t, s), map[string]float64{
			`omnitap_ttfa_seconds_count{flow="realtime",model="Qwen/Qwen2.5-Omni-7B",t_in_source="` + of + `"}`:             1,
			`omnitap_jct_seconds_count{flow="realtime",model="Qwen/Qwen2.5-Omni-7B",paced="true",t_in_source="` + of + `"}`: 1,
		})
	}
}

func TestEventsAndSessions(t *testing.T) {
	s := sinkOf(t, Config{}, Deps{})
	for _, name := range []string{"deadline", "audio_stall", "audio_stall", "output_chunk", "terminal"} {
		s.Event(&timeline.Event{Event: name})
	}
	s.Session(&timeline.Session{Flow: timeline.FlowRealtime, Close: timeline.Close{By: "server"}, UnattributedSamples: 480})
	s.Session(&timeline.Session{Flow: "made-up", Close: timeline.Close{By: "nobody"}})
	got := series(t, s)
	want(t, got, map[string]float64{
		`omnitap_alarms_total{event="deadline"}`:              1,
		`omnitap_alarms_total{event="audio_stall"}`:           2,
		`omnitap_sessions_total{by="server",flow="realtime"}`: 1,
		`omnitap_sessions_total{by="unknown",flow="other"}`:   1,
		`omnitap_unattributed_samples_total{flow="realtime"}`: 480,
	})
	absent(t, got, `output_chunk|terminal|event="other"`)
}

func TestState(t *testing.T) {
	source := busy()
	source.Probes = append(source.Probes, Probe{Family: "shm", State: "dead"}) // told twice: the scrape must stay whole
	source.Exporters = append(source.Exporters, Exporter{Name: "otlp"}, Exporter{Name: "no name", Dropped: 4})
	s := sinkOf(t, Config{}, Deps{Source: source})
	got := series(t, s)
	if text := scrape(t, s, "text/plain"); !strings.Contains(text, "promhttp_metric_handler_errors_total{cause=\"gathering\"} 0\n") {
		t.Error("something could not be gathered")
	}
	want(t, got, map[string]float64{
		`omnitap_open_connections`:                           7,
		`omnitap_in_flight_connections`:                      3,
		`omnitap_oldest_in_flight_seconds`:                   12.5,
		`omnitap_records_waiting`:                            2,
		`omnitap_analysis_queued_bytes`:                      4096,
		`omnitap_analysis_dropped_bytes_total`:               1 << 20,
		`omnitap_reader_faults_total`:                        1,
		`omnitap_clock_steps_total`:                          2,
		`omnitap_exporter_dropped_total{exporter="otlp"}`:    9,
		`omnitap_exporter_dropped_total{exporter="other"}`:   4,
		`omnitap_exporter_queued{exporter="otlp"}`:           5,
		`omnitap_probe_state{family="shm",state="attached"}`: 1,
		`omnitap_probe_state{family="zmq",state="trimmed"}`:  1,
		`omnitap_probe_hits_total{family="shm"}`:             1000,
		`omnitap_probe_lost_events_total{family="shm"}`:      3,
		`omnitap_probe_skipped_total{family="shm"}`:          1,
		`omnitap_probe_hit_cost_seconds{family="shm"}`:       850e-9,
		`omnitap_probe_cores{family="shm"}`:                  0.004,
		`omnitap_probe_trims_total`:                          1,
		`omnitap_foreign_cores`:                              0.25,
	})
	absent(t, got, `queued{exporter="rundir"}|hit_cost_seconds{family="zmq"}|cores{family="zmq"}`)
	absent(t, series(t, sinkOf(t, Config{}, Deps{Source: fixed{}})), `oldest|foreign|probe_(state|hits)|exporter`) // not known is absent, not 0
	absent(t, series(t, sinkOf(t, Config{}, Deps{})), `open_connections|probe|exporter`)
}

func TestExemplars(t *testing.T) {
	const id = "0af7651916cd43dd8448eb211c80319c"
	for _, tc := range []struct {
		id   string
		want int // TTFT, TTFA, first audible, JCT
	}{{id, 4}, {"", 0}, {strings.Repeat("0", 32), 0}, {strings.ToUpper(id), 0}, {id[:31], 0}, {id[:31] + "\"", 0}} {
		s := sinkOf(t, Config{}, Deps{TraceID: func(*timeline.Record) string { return tc.id }})
		s.Record(speech())
		s.Record(failed(timeline.ServerError))
		if n := strings.Count(scrape(t, s, openMetrics), ` # {trace_id="`); n != tc.want {
			t.Errorf("trace id %q: %d exemplars, want %d", tc.id, n, tc.want)
		}
		if text := scrape(t, s, "text/plain"); strings.Contains(text, "trace_id") {
			t.Errorf("trace id %q: the text format has exemplars", tc.id)
		}
	}
	s := sinkOf(t, Config{}, Deps{})
	s.Record(speech())
	if text := scrape(t, s, openMetrics); strings.Contains(text, "trace_id") || !strings.HasSuffix(text, "# EOF\n") {
		t.Error("without trace ids: exemplars, or no OpenMetrics")
	}
}

// TestRecordAllocatesNothing: what was seen before is found again.
func TestRecordAllocatesNothing(t *testing.T) {
	s, r := sinkOf(t, Config{}, Deps{}), speech()
	if n := testing.AllocsPerRun(100, func() { s.Record(r) }); n != 0 {
		t.Errorf("%v allocations a record", n)
	}
}

// TestGate: of many exemplars some pass, the slow ones among them.
func TestGate(t *testing.T) {
	var g gate
	for i, tc := range []struct {
		ms   int64
		v    float64
		want bool
	}{{1000, 5, true}, {1010, 5, false}, {1020, 4, false}, {1030, 6, true}, {1040, 5, false}, {1130, 1, true}, {1140, 1, false}, {1150, 2, true}, {1250, 2, true}} {
		if got := g.open(tc.ms*1e6, tc.v); got != tc.want {
			t.Errorf("%d: open(%d ms, %v) = %v", i, tc.ms, tc.v, got)
		}
	}
}

// TestConcurrent: nothing is lost or counted twice while all begin at once.
func TestConcurrent(t *testing.T) {
	const writers, each = 8, 200
	s := sinkOf(t, Config{Native: true}, Deps{Source: busy()})
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				r := speech()
				r.Model = model((w + i) % 12)
				s.Record(r)
			}
		})
	}
	all.Go(func() {
		for range 5 {
			scrape(t, s, openMetrics)
		}
	})
	all.Wait()
	n, kept := 0.0, 0
	for name, v := range series(t, s) {
		if strings.HasPrefix(name, "omnitap_ttfa_seconds_count") {
			n += v
			kept++
		}
	}
	if n != writers*each || kept != 9 {
		t.Errorf("%v values of %d models, want %d of 8 and other", n, kept, writers*each)
	}
}

func TestConfig(t *testing.T) {
	for _, n := range []int{-1, maxModels + 1} {
		if _, err := New(Config{Models: n}, Deps{}); err == nil || !strings.Contains(err.Error(), fmt.Sprint(n)) {
			t.Errorf("models: %d: %v", n, err)
		}
	}
}
