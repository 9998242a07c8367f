package otlptest

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

func send(t *testing.T, s *Store, path string, body []byte, zipped bool) int {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	if zipped {
		r.Header.Set("Content-Encoding", "gzip")
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code
}

func TestStore(t *testing.T) {
	traces, err := proto.Marshal(&collectortrace.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{
		Spans: []*tracepb.Span{{
			Attributes: []*common.KeyValue{
				{Key: "text", Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: "v"}}},
				{Key: "number", Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: 1}}},
				{Key: "nothing"},
			},
			Name: "chat", TraceId: []byte{1, 2}, ParentSpanId: []byte{3}, StartTimeUnixNano: 5, EndTimeUnixNano: 9, Events: make([]*tracepb.Span_Event, 2),
		}},
	}}}}})
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := proto.Marshal(&collectormetrics.ExportMetricsServiceRequest{ResourceMetrics: []*metricspb.ResourceMetrics{{ScopeMetrics: []*metricspb.ScopeMetrics{{
		Metrics: []*metricspb.Metric{{Name: "a"}},
	}}}}})
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(traces)
	_ = z.Close()

	var s Store
	if s.Metric("a") || len(s.Spans()) != 0 {
		t.Error("an empty store holds something")
	}
	for i, code := range []int{
		send(t, &s, "/v1/traces", traces, false), send(t, &s, "/v1/traces", zipped.Bytes(), true), send(t, &s, "/v1/metrics", metrics, false),
	} {
		if code != http.StatusOK {
			t.Errorf("request %d: %d", i, code)
		}
	}
	one := Span{Name: "chat", TraceID: "0102", ParentID: "03", StartNS: 5, EndNS: 9, Events: 2, Attributes: map[string]string{"text": "v"}}
	if d := cmp.Diff([]Span{one, one}, s.Spans()); d != "" || !s.Metric("a") || s.Metric("b") {
		t.Error(d)
	}
	for path, body := range map[string]string{"/v1/traces": "\xff", "/v1/metrics": "\xff", "/v1/logs": ""} {
		if code := send(t, &s, path, []byte(body), false); code != http.StatusBadRequest {
			t.Errorf("%s: %d", path, code)
		}
	}
	if code := send(t, &s, "/v1/traces", traces, true); code != http.StatusBadRequest {
		t.Errorf("what is no gzip: %d", code)
	}
	if len(s.Spans()) != 2 {
		t.Error("something of a bad request was kept")
	}
}
