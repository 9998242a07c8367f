package telemetry

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// collector is an OTLP receiver in this process, by HTTP and by gRPC.
type collector struct {
	collectortrace.UnimplementedTraceServiceServer

	mu      sync.Mutex // protects what follows
	answer  answer
	traces  []*tracepb.ResourceSpans
	metrics []*metricspb.ResourceMetrics
	header  http.Header
	calls   int
	called  chan struct{} // gets one for each call, as long as there is room
}

// answer is how a collector treats a batch of traces: it may wait for ctx. status is
// HTTP's, 200 for good; refused is the spans that a good answer refuses.
type answer func(ctx context.Context) (status int, refused int64)

func good(context.Context) (status int, refused int64) { return http.StatusOK, 0 }

func hang(ctx context.Context) (status int, refused int64) {
	<-ctx.Done()
	return http.StatusGatewayTimeout, 0
}

func always(status int) answer {
	return func(context.Context) (int, int64) { return status, 0 }
}

func newCollector(a answer) *collector {
	return &collector{answer: a, called: make(chan struct{}, 1<<16)}
}

func (c *collector) set(a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = a
}

// judge counts a call and has it answered.
func (c *collector) judge(ctx context.Context) (status int, refused int64) {
	c.mu.Lock()
	a := c.answer
	c.calls++
	c.mu.Unlock()
	select {
	case c.called <- struct{}{}:
	default:
	}
	return a(ctx)
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c.mu.Lock()
	c.header = r.Header.Clone()
	c.mu.Unlock()
	code, refused := c.judge(r.Context())
	var out proto.Message = &collectormetrics.ExportMetricsServiceResponse{}
	if r.URL.Path == "/v1/traces" {
		t := &collectortrace.ExportTraceServiceResponse{}
		if refused > 0 {
			t.PartialSuccess = &collectortrace.ExportTracePartialSuccess{RejectedSpans: refused, ErrorMessage: "too old"}
		}
		out = t
	}
	if code == http.StatusOK {
		c.keep(r.URL.Path, body)
	}
	b, _ := proto.Marshal(out)
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.WriteHeader(code)
	_, _ = w.Write(b)
}

func (c *collector) keep(path string, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch path {
	case "/v1/traces":
		var in collectortrace.ExportTraceServiceRequest
		if proto.Unmarshal(body, &in) == nil {
			c.traces = append(c.traces, in.ResourceSpans...)
		}
	case "/v1/metrics":
		var in collectormetrics.ExportMetricsServiceRequest
		if proto.Unmarshal(body, &in) == nil {
			c.metrics = in.ResourceMetrics
		}
	}
}

// Export is part of the gRPC service of traces.
func (c *collector) Export(ctx context.Context, in *collectortrace.ExportTraceServiceRequest) (*collectortrace.ExportTraceServiceResponse, error) {
	switch code, refused := c.judge(ctx); code {
	case http.StatusOK:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.traces = append(c.traces, in.ResourceSpans...)
		return &collectortrace.ExportTraceServiceResponse{PartialSuccess: &collectortrace.ExportTracePartialSuccess{RejectedSpans: refused}}, nil
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return nil, status.Error(codes.Unavailable, "busy")
	case http.StatusGatewayTimeout:
		return nil, status.FromContextError(ctx.Err()).Err()
	default:
		return nil, status.Error(codes.InvalidArgument, "no")
	}
}

// grpcMetrics is the gRPC service of metrics.
type grpcMetrics struct {
	collectormetrics.UnimplementedMetricsServiceServer

	c *collector
}

func (g grpcMetrics) Export(ctx context.Context, in *collectormetrics.ExportMetricsServiceRequest) (*collectormetrics.ExportMetricsServiceResponse, error) {
	if code, _ := g.c.judge(ctx); code != http.StatusOK {
		return nil, status.Error(codes.Unavailable, "busy")
	}
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	g.c.metrics = in.ResourceMetrics
	return &collectormetrics.ExportMetricsServiceResponse{}, nil
}

// spans are all that came.
func (c *collector) spans() (out []*tracepb.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.traces {
		for _, s := range r.ScopeSpans {
			out = append(out, s.Spans...)
		}
	}
	return out
}

// records counts the spans of records.
func (c *collector) records() (n int64) {
	for _, s := range c.spans() {
		if s.Kind == tracepb.Span_SPAN_KIND_SERVER {
			n++
		}
	}
	return n
}

// metric finds one of the last export.
func (c *collector) metric(name string) *metricspb.Metric {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.metrics {
		for _, s := range r.ScopeMetrics {
			for _, m := range s.Metrics {
				if m.Name == name {
					return m
				}
			}
		}
	}
	return nil
}

// byHTTP serves c by HTTP and returns its address as OTLP's endpoint.
func (c *collector) byHTTP(t testing.TB) string {
	t.Helper()
	s := httptest.NewServer(c)
	t.Cleanup(func() {
		s.CloseClientConnections() // hanging ones
		s.Close()
	})
	return s.URL
}

// byTLS serves c with a certificate that nobody trusts.
func (c *collector) byTLS(t testing.TB) string {
	t.Helper()
	s := httptest.NewUnstartedServer(c)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

// byGRPC serves c by gRPC.
func (c *collector) byGRPC(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	collectortrace.RegisterTraceServiceServer(s, c)
	collectormetrics.RegisterMetricsServiceServer(s, grpcMetrics{c: c})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return "http://" + l.Addr().String()
}

// free is an address that nobody listens on.
func free(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// environ sets OTEL_* for a collector, with times that suit a test.
func environ(t testing.TB, endpoint, protocol string) {
	t.Helper()
	for k, v := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
		"OTEL_BSP_EXPORT_TIMEOUT": "60000", "OTEL_EXPORTER_OTLP_TIMEOUT": "60000", "OTEL_BSP_SCHEDULE_DELAY": "60000",
		"OTEL_METRIC_EXPORT_INTERVAL": "600000",
	} {
		setenv(t, k, v)
	}
}

func setenv(t testing.TB, k, v string) {
	t.Helper()
	t.(interface{ Setenv(k, v string) }).Setenv(k, v)
}

// start makes an Exporter as a program does, from the environment. Its log is in said.
func start(t testing.TB, cfg Config, asked Asked) (x *Exporter, said *lines) {
	t.Helper()
	said = &lines{}
	cfg.Log = slog.New(slog.NewTextHandler(said, nil))
	x, err := New(t.Context(), cfg, asked)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_ = x.Shutdown(ctx)
	})
	return x, said
}

// lines is a log.
type lines struct {
	mu sync.Mutex // protects b
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// count is how many lines hold a text.
func (l *lines) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// flush has everything exported, however that goes.
func flush(t testing.TB, x *Exporter) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	if err := x.Flush(ctx); err != nil && x.metrics == nil {
		t.Fatal(err)
	}
}

// balanced checks that nothing is missing from the counts.
func balanced(t testing.TB, s Stats, offered int64) {
	t.Helper()
	for name, b := range map[string]Balance{"records": s.Records, "spans": s.Spans} {
		if b.Pending != 0 {
			t.Errorf("%s: %d pending of %+v", name, b.Pending, b)
		}
		if b.Offered != b.Unsampled+b.Exported+b.Lost() {
			t.Errorf("%s do not add up: %+v", name, b)
		}
	}
	if s.Records.Offered != offered {
		t.Errorf("%d records offered, want %d", s.Records.Offered, offered)
	}
}
