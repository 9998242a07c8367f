package prometheus

import (
	"math"
	"slices"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// Sink keeps the metrics. It is safe for concurrent use, and changes no record.
type Sink struct {
	*metrics
	registry *prom.Registry
	traceID  func(*timeline.Record) string
}

// New makes a Sink. It starts nothing.
func New(c Config, d Deps) (*Sink, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.WithDefaults()
	b := &builder{registry: prom.NewRegistry(), native: c.Native}
	s := &Sink{registry: b.registry, traceID: d.TraceID, metrics: newMetrics(b, c)}
	register(b, "build_info", Gauge, func(m Metric) prom.Gauge { return newBuild(m, &d) })
	if d.Source != nil {
		b.join(b.registry.Register(newState(d.Source)))
	}
	b.join(b.registry.Register(collectors.NewGoCollector()))
	b.join(b.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
	return s, b.err
}

// Event counts what a person who watches wants to know at once.
func (s *Sink) Event(e *timeline.Event) {
	if e.Alarm() {
		s.alarms.of(s.events.of(e.Event, other)).Inc()
	}
}

// Session counts a session's end.
func (s *Sink) Session(x *timeline.Session) {
	flow := s.flows.of(x.Flow, other)
	s.metrics.sessions.of(ending{flow, s.closers.of(x.Close.By, unknown)}).Inc()
	if n := x.UnattributedSamples; n > 0 {
		s.strays.of(flow).Add(float64(n))
	}
}

// Record counts a record, and keeps its latencies where it is an initial attempt that
// succeeded.
func (s *Sink) Record(r *timeline.Record) {
	flow, state := s.flows.of(r.Flow, other), s.states.of(string(r.Terminal.State), unknown)
	first := r.Attempt <= 1 && r.RetryOf == nil
	attempt := "first"
	if !first {
		attempt = "retry"
	}
	s.requests.of(outcome{flow, s.dialects.of(r.Dialect, unknown), state, s.verdicts.of(r.Quality.Verdict, "not_measured"), attempt}).Inc()
	s.analysed.of(s.analyses.of(r.Analysis, unknown)).Inc()
	w := s.wires.of(flow)
	add(w.up, float64(r.BytesUp))
	add(w.down, float64(r.BytesDown))
	for _, check := range r.Quality.Failed {
		s.failures.of(s.checks.of(check, true)).Inc()
	}
	if d := r.OwnDelayUS; d != nil {
		s.delayP50.observe(&d.P50, 1e-6)
		s.delayMax.observe(&d.Max, 1e-6)
	}
	success := r.Terminal.State == timeline.Success
	model := unknown
	if r.Model != nil {
		model = s.models.of(*r.Model, success)
	}
	if r.Audio != nil {
		s.sound(r, s.sounds.of(sound{flow, model}))
	}
	if success && first {
		s.latency(r, flow, model)
	}
	s.stage(r, success && first)
}

// latency keeps the latencies of a success.
func (s *Sink) latency(r *timeline.Record, flow, model string) {
	zero := "unasked" // a turn that nothing asked for
	if r.TInSource != nil {
		zero = s.sources.of(*r.TInSource, true)
	}
	paced := "false"
	if slices.Contains(r.Flags, "paced") {
		paced = "true"
	}
	l := s.latencies.of(group{flow, model, zero, paced})
	trace := s.exemplar(r)
	l.ttft.traced(r.TTFTMS, trace)
	l.ttfa.traced(r.TTFAMS, trace)
	l.audible.traced(r.TTFAudibleMS, trace)
	l.jct.traced(r.JCTMS, trace)
	l.rtf.observe(r.RTF, 1)
	if g := r.AudioGapMS; g != nil && g.N > 0 {
		l.gap.observe(&g.Max, 1e-3)
	}
}

// sound keeps how much sound came, and how it would have played.
func (s *Sink) sound(r *timeline.Record, to *sounds) {
	if r.AudioS != nil {
		add(to.seconds, *r.AudioS)
	}
	a := r.Audio
	if a.Samples != nil {
		add(to.samples, float64(*a.Samples))
		if a.DeclaredSamples != nil {
			add(to.missing, float64(*a.DeclaredSamples-*a.Samples))
		}
	}
	p := r.Playback
	switch {
	case p == nil:
	case p.Underruns > 0:
		to.stalled.Inc()
		add(to.underruns, float64(p.Underruns))
		add(to.stalls, p.StallMS/1e3)
	default:
		to.whole.Inc()
	}
}

// add adds to a counter, which takes nothing below 0.
func add(c prom.Counter, v float64) {
	if v > 0 && !math.IsInf(v, 0) {
		c.Add(v)
	}
}

var _ timeline.Sink = (*Sink)(nil)
