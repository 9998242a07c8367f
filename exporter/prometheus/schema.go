package prometheus

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind is what a metric is to Prometheus.
type Kind string

// The kinds of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric describes one metric: the code makes it from this, README tells it, and a test
// holds the two together.
type Metric struct {
	// Name is the whole name. Its unit is a base unit.
	Name   string
	Kind   Kind
	Labels []string
	// Of says which records feed it.
	Of Of
	// Help is one sentence without a full stop.
	Help string
	// Buckets are the upper bounds of a histogram.
	Buckets []float64
}

// Of is what feeds a metric.
type Of string

// What feeds metrics.
const (
	// Success is initial attempts that succeeded: a retry's time is none that a client
	// waited.
	Success Of = "success"
	// Every is records however they ended.
	Every Of = "every record"
	// Now is events, when they happen.
	Now Of = "event"
	// End is ends of WebSocket sessions.
	End Of = "session"
	// Scrape is asked for when metrics are scraped.
	Scrape Of = "scrape"
)

// Labels of several metrics.
var (
	byModel = []string{"flow", "model"}
	byZero  = []string{"flow", "model", "t_in_source"}
	byPace  = []string{"flow", "model", "t_in_source", "paced"}
	byEdge  = []string{"from", "to", "transport"}
	byProbe = []string{"family"}
)

// schema is every metric, in README's order.
var schema = []Metric{
	{"omnitap_requests_total", Counter, []string{"flow", "dialect", "state", "quality", "attempt"}, Every, "Requests and turns by how they ended", nil},
	{"omnitap_ttft_seconds", Histogram, byZero, Success, "Time from t_in to the first text", toFirst},
	{"omnitap_ttfa_seconds", Histogram, byZero, Success, "Time from t_in to the first playable audio", toFirst},
	{"omnitap_ttfaudible_seconds", Histogram, byZero, Success, "Time from t_in to the first audible audio", toFirst},
	{"omnitap_jct_seconds", Histogram, byPace, Success, "Time from t_in to the complete output; of paced turns it measures the pacer", toEnd},
	{"omnitap_rtf_ratio", Histogram, byPace, Success, "Time to the complete output over seconds of audio", factors},
	{"omnitap_audio_gap_max_seconds", Histogram, byPace, Success, "Longest gap between two audio chunks of a request", gaps},
	{"omnitap_audio_seconds_total", Counter, byModel, Every, "Seconds of audio that came", nil},
	{"omnitap_audio_samples_total", Counter, byModel, Every, "Sample frames that came", nil},
	{"omnitap_audio_missing_samples_total", Counter, byModel, Every, "Sample frames that a server declared and that did not come", nil},
	{"omnitap_playbacks_total", Counter, []string{"flow", "model", "stalled"}, Every, "Streams that a player without prebuffer was simulated for, by whether it ran dry", nil},
	{"omnitap_playback_underruns_total", Counter, byModel, Every, "Times that the simulated player ran dry", nil},
	{"omnitap_playback_stall_seconds_total", Counter, byModel, Every, "Seconds that the simulated player stood still", nil},
	{"omnitap_quality_failures_total", Counter, []string{"check"}, Every, "Checks on the sound that failed", nil},
	{"omnitap_own_delay_p50_seconds", Histogram, nil, Every, "Median over a request's chunks of the delay that omnitap itself added", brief},
	{"omnitap_own_delay_max_seconds", Histogram, nil, Every, "Largest delay of a request's chunks that omnitap itself added", brief},
	{"omnitap_relayed_bytes_total", Counter, []string{"flow", "direction"}, Every, "Bytes on the wire of finished requests, up to the server and down to the client", nil},
	{"omnitap_stage_wait_seconds", Histogram, []string{"stage"}, Success, "Time from a stage's input lying ready to its being taken up", work},
	{"omnitap_stage_service_seconds", Histogram, []string{"stage"}, Success, "Time from a stage's taking its input up to its last output", work},
	{"omnitap_transfer_seconds", Histogram, byEdge, Success, "Time of a hand-over between two stages, from its first byte written to its last one read", brief},
	{"omnitap_transfer_bytes_total", Counter, byEdge, Every, "Bytes of hand-overs that state them", nil},
	{"omnitap_transfers_unread_total", Counter, byEdge, Every, "Hand-overs that were made and never received", nil},
	{"omnitap_analyses_total", Counter, []string{"analysis"}, Every, "Records by how much of them could be analysed", nil},
	{"omnitap_alarms_total", Counter, []string{"event"}, Now, "Deadlines passed and sound that stayed away, when it happened", nil},
	{"omnitap_sessions_total", Counter, []string{"flow", "by"}, End, "WebSocket sessions that ended, by who closed first", nil},
	{"omnitap_unattributed_samples_total", Counter, []string{"flow"}, End, "Sample frames of sessions that belong to no turn", nil},
	{"omnitap_label_overflow_total", Counter, []string{"label"}, Every, "Values told as other, since a label has its bounded number of them or they are no names", nil},

	{"omnitap_open_connections", Gauge, nil, Scrape, "Client connections that are open", nil},
	{"omnitap_in_flight_connections", Gauge, nil, Scrape, "Connections with a request or turn under way", nil},
	{"omnitap_oldest_in_flight_seconds", Gauge, nil, Scrape, "Age of the oldest request under way; absent without one", nil},
	{"omnitap_records_waiting", Gauge, nil, Scrape, "Records that wait for what their stages did", nil},
	{"omnitap_analysis_queued_bytes", Gauge, nil, Scrape, "Bytes that wait for analysis", nil},
	{"omnitap_analysis_dropped_bytes_total", Counter, nil, Scrape, "Bytes that were forwarded and not analysed, since the analysis fell behind", nil},
	{"omnitap_reader_faults_total", Counter, nil, Scrape, "Faults of a reader of the copied bytes", nil},
	{"omnitap_clock_steps_total", Counter, nil, Scrape, "Steps of the wall clock that were noticed", nil},
	{"omnitap_exporter_dropped_total", Counter, []string{"exporter"}, Scrape, "Items that an exporter could not keep up with", nil},
	{"omnitap_exporter_queued", Gauge, []string{"exporter"}, Scrape, "Items that wait in an exporter", nil},
	{"omnitap_probe_state", Gauge, []string{"family", "state"}, Scrape, "1 for the state that a family of probes is in", nil},
	{"omnitap_probe_hits_total", Counter, byProbe, Scrape, "Runs of a family's programs", nil},
	{"omnitap_probe_lost_events_total", Counter, byProbe, Scrape, "Kernel events that a ring had no room for", nil},
	{"omnitap_probe_skipped_total", Counter, byProbe, Scrape, "Runs that the kernel left out", nil},
	{"omnitap_probe_hit_cost_seconds", Gauge, byProbe, Scrape, "What one hit costs the process that is hit; absent until measured", nil},
	{"omnitap_probe_cores", Gauge, byProbe, Scrape, "Share of a core that a family takes of the dearest stage; absent until measured", nil},
	{"omnitap_probe_trims_total", Counter, nil, Scrape, "Times that a family of probes was taken away for its cost", nil},
	{"omnitap_foreign_cores", Gauge, nil, Scrape, "Cores that processes take which nobody watches; absent until measured", nil},
	{"omnitap_build_info", Gauge, []string{"version", "revision", "goversion"}, Scrape, "1, with what was built", nil},
}

// Schema is every metric of this package. The registry has those of the Go runtime and of
// the process beside them.
func Schema() []Metric { return slices.Clone(schema) }

// Table is the schema as README has it.
func Table() string {
	var b strings.Builder
	b.WriteString("| metric | kind | labels | of | meaning |\n| --- | --- | --- | --- | --- |\n")
	for i := range schema {
		m := &schema[i]
		labels := "–"
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		kind := string(m.Kind)
		if n := len(m.Buckets); n > 0 {
			kind += fmt.Sprintf(", %s to %s", decimal(m.Buckets[0]), decimal(m.Buckets[n-1]))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", m.Name, kind, labels, m.Of, m.Help)
	}
	return b.String()
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// described finds a metric by its name behind the prefix.
func described(name string) (Metric, bool) {
	i := slices.IndexFunc(schema, func(m Metric) bool { return m.Name == "omnitap_"+name })
	if i < 0 {
		return Metric{}, false
	}
	return schema[i], true
}
