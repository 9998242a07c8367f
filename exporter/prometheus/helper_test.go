package prometheus

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// speech is a success with everything measured.
func speech() *timeline.Record {
	return &timeline.Record{
		Schema: 1, RequestID: "client-id-1", ServerRequestID: new("speech-0a1b2c"), Attempt: 1, Flow: timeline.FlowSpeech, Dialect: "vllm-omni",
		Path: new("/v1/audio/speech"), Model: new("Qwen/Qwen2.5-Omni-7B"), TInSource: new("request"),
		TTFTMS: new(120.0), TTFAMS: new(350.0), TTFAudibleMS: new(410.0), JCTMS: new(2500.0), RTF: new(0.5), AudioS: new(5.0),
		Audio: &timeline.Audio{Samples: new(int64(120000)), DeclaredSamples: new(int64(120000))}, AudioGapMS: &timeline.Gap{Max: 90, N: 40},
		Playback: &timeline.Playback{}, Terminal: timeline.Terminal{State: timeline.Success}, Quality: timeline.Quality{Verdict: "passed"},
		Analysis: "full", OwnDelayUS: &timeline.Delay{P50: 40, P99: 300, Max: 900, N: 41}, BytesUp: 400, BytesDown: 240000,
		Stages: []timeline.Stage{
			{Stage: "thinker", WaitMS: new(2.0), ServiceMS: new(200.0)},
			{Stage: "talker", WaitMS: new(5.0), ServiceMS: new(900.0)},
			{Stage: "code2wav", WaitMS: new(1.0), ServiceMS: new(1200.0)},
		},
		Transfers: []timeline.Transfer{
			{From: "thinker", To: "talker", Transport: "shm", Bytes: new(int64(1 << 20)), StartNS: 1_000, EndNS: new(int64(2_001_000))},
			{From: "talker", To: "code2wav", Transport: "shm", Bytes: new(int64(4096)), StartNS: 1_000, EndNS: new(int64(401_000))},
		},
	}
}

// failed is a record as failures are: nothing of it was measured.
func failed(state timeline.State) *timeline.Record {
	return &timeline.Record{
		Schema: 1, RequestID: "client-id-2", Attempt: 1, Flow: timeline.FlowSpeech, Dialect: "vllm-omni", Model: new("Qwen/Qwen2.5-Omni-7B"), TInSource: new("request"),
		Terminal: timeline.Terminal{State: state}, Quality: timeline.Quality{Verdict: "not_measured"}, Analysis: "full",
	}
}

func sinkOf(t testing.TB, c Config, d Deps) *Sink {
	t.Helper()
	s, err := New(c, d)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// scrape asks for the metrics in a format, an Accept header.
func scrape(t testing.TB, s *Sink, accept string) string {
	t.Helper()
	q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	q.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, q)
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

const openMetrics = "application/openmetrics-text; version=1.0.0"

// series maps the series of omnitap itself, as the text format writes them, to values.
func series(t testing.TB, s *Sink) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for in := bufio.NewScanner(strings.NewReader(scrape(t, s, "text/plain"))); in.Scan(); {
		line := in.Text()
		if !strings.HasPrefix(line, "omnitap_") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out[line[:at]] = v
	}
	return out
}

// want compares some series.
func want(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		if g, ok := got[name]; !ok || g < v-1e-9 || g > v+1e-9 {
			t.Errorf("%s = %v (there: %v), want %v", name, g, ok, v)
		}
	}
}

// absent says that no series has a name.
func absent(t *testing.T, got map[string]float64, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for name := range got {
		if re.MatchString(name) {
			t.Errorf("%s is there", name)
		}
	}
}

// fixed is a Source that tells always the same.
type fixed State

func (f fixed) State() State { return State(f) }

// busy is a State with everything known.
func busy() fixed {
	return fixed{
		OpenConnections: 7, InFlight: 3, OldestInFlightS: new(12.5), RecordsWaiting: 2, AnalysisQueued: 4096, AnalysisDropped: 1 << 20, ReaderFaults: 1, ClockSteps: 2,
		Exporters: []Exporter{{Name: "otlp", Dropped: 9, Queued: new(5)}, {Name: "rundir"}},
		Probes:    []Probe{{Family: "shm", State: "attached", Hits: 1000, Lost: 3, Skipped: 1, CostNS: new(850.0), Cores: new(0.004)}, {Family: "zmq", State: "trimmed"}},
		Trims:     1, ForeignCores: new(0.25),
	}
}

func model(i int) *string { return new(fmt.Sprintf("org/model-%d", i)) }
