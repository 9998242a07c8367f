package prometheus

import (
	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// metrics are the metrics that records feed, each behind a table of its sets of labels:
// a record then costs some look-ups and no hashing of label names.
type metrics struct {
	flows, states, verdicts, dialects, analyses, closers, events words
	models, sources, stages, transports, checks                  *names

	requests  *table[outcome, counter]
	latencies *table[group, latencies]
	sounds    *table[sound, sounds]
	wires     *table[string, wires]
	analysed  *table[string, counter]
	alarms    *table[string, counter]
	failures  *table[string, counter]
	sessions  *table[ending, counter]
	strays    *table[string, counter]
	work      *table[string, stageWork]
	edges     *table[edge, handOver]

	delayP50, delayMax lazy
}

// counter is a counter behind a pointer of our own.
type counter struct{ prom.Counter }

// The keys of tables: bounded label values alone.
type (
	outcome struct{ flow, dialect, state, quality, attempt string }
	group   struct{ flow, model, zero, paced string }
	sound   struct{ flow, model string }
	ending  struct{ flow, by string }
	edge    struct{ from, to, transport string }
)

type latencies struct{ ttft, ttfa, audible, jct, rtf, gap lazy }

type sounds struct {
	seconds, samples, missing, underruns, stalls prom.Counter
	whole, stalled                               prom.Counter
}

type wires struct{ up, down prom.Counter }

type stageWork struct{ wait, service lazy }

type handOver struct {
	took          lazy
	bytes, unread prom.Counter
}

// Bounds on what is no word of the contract. Models are bounded by the configuration.
const (
	maxSources    = 24
	maxStages     = 32
	maxTransports = 16
	maxChecks     = 64
	maxGroups     = 512
	maxEdges      = 64
)

func newMetrics(b *builder, c Config) *metrics {
	overflow := b.counter("label_overflow_total")
	over := func(label string) func() { return overflow.WithLabelValues(label).Inc }
	m := &metrics{
		flows: known(timeline.Flows()...), states: known(timeline.States()...), verdicts: known("passed", "failed", "not_measured"),
		dialects: known("vllm-omni", "sglang-omni", "openai"), closers: known("client", "server", "relay"),
		analyses: known("full", "truncated", "lost", "unsupported_encoding", "off"), events: known("deadline", "audio_stall"),

		models: newNames(c.Models, over("model")), sources: newNames(maxSources, over("t_in_source")), stages: newNames(maxStages, over("stage")),
		transports: newNames(maxTransports, over("transport")), checks: newNames(maxChecks, over("check")),
	}
	m.outcomes(b)
	m.timed(b, over("group"))
	m.heard(b)
	m.staged(b, over("edge"))
	return m
}

// outcomes makes what counts records and sessions.
func (m *metrics) outcomes(b *builder) {
	requests, analysed, alarms := b.counter("requests_total"), b.counter("analyses_total"), b.counter("alarms_total")
	sessions, strays, bytes := b.counter("sessions_total"), b.counter("unattributed_samples_total"), b.counter("relayed_bytes_total")
	m.requests = newTable(func(k outcome) *counter {
		return &counter{requests.WithLabelValues(k.flow, k.dialect, k.state, k.quality, k.attempt)}
	})
	m.analysed = newTable(func(k string) *counter { return &counter{analysed.WithLabelValues(k)} })
	m.alarms = newTable(func(k string) *counter { return &counter{alarms.WithLabelValues(k)} })
	m.sessions = newTable(func(k ending) *counter { return &counter{sessions.WithLabelValues(k.flow, k.by)} })
	m.strays = newTable(func(k string) *counter { return &counter{strays.WithLabelValues(k)} })
	m.wires = newTable(func(k string) *wires {
		return &wires{up: bytes.WithLabelValues(k, "up"), down: bytes.WithLabelValues(k, "down")}
	})
}

// timed makes the latencies.
func (m *metrics) timed(b *builder, over func()) {
	ttft, ttfa, audible := b.histogram("ttft_seconds"), b.histogram("ttfa_seconds"), b.histogram("ttfaudible_seconds")
	jct, rtf, gap := b.histogram("jct_seconds"), b.histogram("rtf_ratio"), b.histogram("audio_gap_max_seconds")
	m.latencies = newTable(func(k group) *latencies {
		zero, pace := []string{k.flow, k.model, k.zero}, []string{k.flow, k.model, k.zero, k.paced}
		return &latencies{
			ttft: lazy{vec: ttft, labels: zero}, ttfa: lazy{vec: ttfa, labels: zero}, audible: lazy{vec: audible, labels: zero},
			jct: lazy{vec: jct, labels: pace}, rtf: lazy{vec: rtf, labels: pace}, gap: lazy{vec: gap, labels: pace},
		}
	}).bounded(maxGroups, group{other, other, other, "false"}, over)
	m.delayP50, m.delayMax = lazy{vec: b.histogram("own_delay_p50_seconds")}, lazy{vec: b.histogram("own_delay_max_seconds")}
}

// heard makes what tells of the sound.
func (m *metrics) heard(b *builder) {
	seconds, samples, missing := b.counter("audio_seconds_total"), b.counter("audio_samples_total"), b.counter("audio_missing_samples_total")
	underruns, stalls, played := b.counter("playback_underruns_total"), b.counter("playback_stall_seconds_total"), b.counter("playbacks_total")
	failures := b.counter("quality_failures_total")
	m.sounds = newTable(func(k sound) *sounds {
		return &sounds{
			seconds: seconds.WithLabelValues(k.flow, k.model), samples: samples.WithLabelValues(k.flow, k.model), missing: missing.WithLabelValues(k.flow, k.model),
			underruns: underruns.WithLabelValues(k.flow, k.model), stalls: stalls.WithLabelValues(k.flow, k.model),
			whole: played.WithLabelValues(k.flow, k.model, "false"), stalled: played.WithLabelValues(k.flow, k.model, "true"),
		}
	})
	m.failures = newTable(func(k string) *counter { return &counter{failures.WithLabelValues(k)} })
}

// staged makes what tells of the stages.
func (m *metrics) staged(b *builder, over func()) {
	wait, service := b.histogram("stage_wait_seconds"), b.histogram("stage_service_seconds")
	m.work = newTable(func(k string) *stageWork {
		return &stageWork{wait: lazy{vec: wait, labels: []string{k}}, service: lazy{vec: service, labels: []string{k}}}
	})
	took, bytes, unread := b.histogram("transfer_seconds"), b.counter("transfer_bytes_total"), b.counter("transfers_unread_total")
	m.edges = newTable(func(k edge) *handOver {
		return &handOver{
			took:  lazy{vec: took, labels: []string{k.from, k.to, k.transport}},
			bytes: bytes.WithLabelValues(k.from, k.to, k.transport), unread: unread.WithLabelValues(k.from, k.to, k.transport),
		}
	}).bounded(maxEdges, edge{other, other, other}, over)
}
