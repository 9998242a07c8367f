// Package otlptest is where tests have OpenTelemetry's data sent to: OTLP over HTTP, kept
// in memory. It answers well and at once; faults are exporter/telemetry's own tests'.
package otlptest

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"sync"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
)

// Span is what tests ask of a span. Times are nanoseconds of wall time, ids lower-case hex.
type Span struct {
	Name, TraceID, ParentID string
	StartNS, EndNS          uint64
	Events                  int
	// Attributes are those that are texts.
	Attributes map[string]string
}

// Store is an http.Handler that keeps what it is sent. The zero value is ready.
type Store struct {
	mu      sync.Mutex // protects what follows
	spans   []Span
	metrics map[string]bool
}

// Spans returns all that came.
func (s *Store) Spans() []Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Span(nil), s.spans...)
}

// Metric says that a metric of that name came.
func (s *Store) Metric(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.metrics[name]
}

// ServeHTTP takes a request of OTLP over HTTP, protobuf, plain or gzip.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.read(r); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (s *Store) read(r *http.Request) error {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return fmt.Errorf("reading OTLP: %w", err)
		}
		body = z
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("reading OTLP: %w", err)
	}
	switch r.URL.Path {
	case "/v1/traces":
		return s.traces(text)
	case "/v1/metrics":
		return s.measurements(text)
	}
	return fmt.Errorf("OTLP has no path %s", r.URL.Path)
}

func (s *Store) traces(text []byte) error {
	var in collectortrace.ExportTraceServiceRequest
	if err := proto.Unmarshal(text, &in); err != nil {
		return fmt.Errorf("reading spans: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range in.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, x := range scope.Spans {
				texts := map[string]string{}
				for _, a := range x.Attributes {
					if v, ok := a.Value.GetValue().(*common.AnyValue_StringValue); ok {
						texts[a.Key] = v.StringValue
					}
				}
				s.spans = append(s.spans, Span{
					Attributes: texts, Name: x.Name, TraceID: hex.EncodeToString(x.TraceId), ParentID: hex.EncodeToString(x.ParentSpanId),
					StartNS: x.StartTimeUnixNano, EndNS: x.EndTimeUnixNano, Events: len(x.Events),
				})
			}
		}
	}
	return nil
}

func (s *Store) measurements(text []byte) error {
	var in collectormetrics.ExportMetricsServiceRequest
	if err := proto.Unmarshal(text, &in); err != nil {
		return fmt.Errorf("reading metrics: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.metrics == nil {
		s.metrics = map[string]bool{}
	}
	for _, resource := range in.ResourceMetrics {
		for _, scope := range resource.ScopeMetrics {
			for _, m := range scope.Metrics {
				s.metrics[m.Name] = true
			}
		}
	}
	return nil
}
