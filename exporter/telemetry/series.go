package telemetry

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// How many names an attribute of metrics may have beside other.
const (
	maxModels = 16
	maxStages = 32
	maxEdges  = 64
	maxWords  = 32 // flows, dialects, sources, states, transports, phases: theirs are few
)

// maxSeries is how many series an instrument has at most; more are gathered in the SDK's
// own, which otel.metric.overflow marks.
const maxSeries = 1000

// maxCached bounds the sets of attributes that are kept made up.
const maxCached = 2000

// where is what a record's series have in common.
type where struct{ flow, dialect, model, phase, zero string }

// label is one more attribute of a series, or two.
type label struct{ key, value, key2, value2 string }

// kind is which of the common attributes a series has.
type kind uint8

const (
	ofRequest kind = iota
	ofZero
	ofGen
	ofFlow
	ofEnd // flow and dialect
)

// series makes and keeps sets of attributes: making one takes as long as ten measurements.
type series struct {
	models, stages, words *names
	pairs                 pairs

	mu   sync.RWMutex // protects kept
	kept map[seriesKey]option
}

type seriesKey struct {
	kind  kind
	where where
	extra label
}

// option is a set of attributes as instruments take it, each kind its own slice.
type option struct {
	record []metric.RecordOption
	add    []metric.AddOption
}

func newSeries() *series {
	return &series{
		models: newNames(maxModels), stages: newNames(maxStages), words: newNames(maxWords * 6),
		kept: map[seriesKey]option{}, pairs: pairs{kept: map[[2]string]string{}},
	}
}

// where finds a record's place.
func (s *series) where(r *timeline.Record) where {
	w := where{flow: s.words.of(r.Flow, true), dialect: s.words.of(r.Dialect, true)}
	if r.Model != nil && *r.Model != "" {
		w.model = s.models.of(*r.Model, r.Terminal.State == timeline.Success)
	}
	if r.RunPhase != "" {
		w.phase = s.words.of(r.RunPhase, true)
	}
	if r.TInSource != nil {
		w.zero = s.words.of(*r.TInSource, true)
	}
	return w
}

// of returns the attributes of a series.
func (s *series) of(k kind, w where, extra label) option {
	switch k {
	case ofRequest:
		w.zero = ""
	case ofFlow:
		w = where{flow: w.flow}
	case ofEnd:
		w = where{flow: w.flow, dialect: w.dialect}
	case ofZero, ofGen:
	}
	key := seriesKey{k, w, extra}
	s.mu.RLock()
	o, ok := s.kept[key]
	s.mu.RUnlock()
	if ok {
		return o
	}
	o = compose(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) < maxCached {
		s.kept[key] = o
	}
	return o
}

// compose makes up a set of attributes.
func compose(k seriesKey) option {
	a := make(set, 0, 8)
	a.text(keyFlow, k.where.flow)
	if k.kind == ofGen {
		a.text(semconv.GenAIOperationNameKey, operation(k.where.flow))
		a.text(semconv.GenAIProviderNameKey, k.where.dialect)
	} else {
		a.text(keyDialect, k.where.dialect)
	}
	a.text(semconv.GenAIRequestModelKey, k.where.model)
	a.text(keyPhase, k.where.phase)
	a.text(keyZero, k.where.zero)
	a.extra(k.extra.key, k.extra.value)
	a.extra(k.extra.key2, k.extra.value2)
	o := metric.WithAttributeSet(attribute.NewSet(a...))
	return option{record: []metric.RecordOption{o}, add: []metric.AddOption{o}}
}

// edge names a hand-over's edge. Both its stages are names of their own first, so that an
// edge of unheard-of stages is one.
func (s *series) edge(from, to string) string {
	from, to = s.stages.of(from, true), s.stages.of(to, true)
	if from == other || to == other {
		return other
	}
	return s.pairs.of(from, to)
}

// extra adds an attribute; that of a paced answer is a truth value.
func (s *set) extra(k, v string) {
	switch {
	case k == "":
	case k == string(keyPaced):
		*s = append(*s, keyPaced.Bool(true))
	default:
		s.text(attribute.Key(k), v)
	}
}
