package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock"
)

// store is where a Collector sends what it was sent: OTLP over HTTP.
type store struct {
	mu      sync.Mutex // protects what follows
	spans   []*tracepb.Span
	metrics map[string]bool
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = z
	}
	text, err := io.ReadAll(body)
	if err == nil {
		err = s.take(r.URL.Path, text)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (s *store) take(path string, text []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch path {
	case "/v1/traces":
		var x collectortrace.ExportTraceServiceRequest
		if err := proto.Unmarshal(text, &x); err != nil {
			return err
		}
		for _, rs := range x.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				s.spans = append(s.spans, ss.Spans...)
			}
		}
	case "/v1/metrics":
		var x collectormetrics.ExportMetricsServiceRequest
		if err := proto.Unmarshal(text, &x); err != nil {
			return err
		}
		for _, rm := range x.ResourceMetrics {
			for _, sm := range rm.ScopeMetrics {
				for _, m := range sm.Metrics {
					s.metrics[m.Name] = true
				}
			}
		}
	}
	return nil
}

// collectorProgram is the real Collector.
func collectorProgram(t testing.TB) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../../testdata/collector/install.sh", "--path").Output()
	if err != nil {
		t.Fatalf("the Collector is not built: run `make collector` (%v)", err)
	}
	return strings.TrimSpace(string(out))
}

// freePort is a port that nobody listens on now.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// startCollector starts a Collector that batches and sends on to a store.
func startCollector(t testing.TB, to string) (httpAt, grpcAt string) {
	t.Helper()
	httpAt, grpcAt = fmt.Sprintf("127.0.0.1:%d", freePort(t)), fmt.Sprintf("127.0.0.1:%d", freePort(t))
	config := filepath.Join(t.TempDir(), "collector.yaml")
	text := fmt.Sprintf(`receivers: {otlp: {protocols: {http: {endpoint: %q}, grpc: {endpoint: %q}}}}
processors: {batch: {timeout: 50ms}}
exporters: {otlp_http: {endpoint: %q}}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    traces: {receivers: [otlp], processors: [batch], exporters: [otlp_http]}
    metrics: {receivers: [otlp], processors: [batch], exporters: [otlp_http]}
`, httpAt, grpcAt, to)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := tool(ctx, collectorProgram(t), "--config", config)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the Collector says: %s", log.String())
		}
	})
	for _, at := range []string{httpAt, grpcAt} {
		waitCase(t, "the Collector to listen", func() bool {
			c, err := net.Dial("tcp", at)
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		})
	}
	return httpAt, grpcAt
}

// TestCollector: a real Collector between omnitap and a store gets every request's span,
// below the client's own, and the metrics, over both of OTLP's forms.
func TestCollector(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(strings.ReplaceAll(protocol, "/", " "), func(t *testing.T) {
			s := &store{metrics: map[string]bool{}}
			behind := httptest.NewServer(s)
			defer behind.Close()
			httpAt, grpcAt := startCollector(t, behind.URL)
			at := map[string]string{"http/protobuf": httpAt, "grpc": grpcAt}[protocol]
			const asked = 20
			h := exportThrough(t, asked, map[string]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + at, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_METRIC_EXPORT_INTERVAL": "500",
			})
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%d spans, metrics %v; health %+v", len(s.spans), s.metrics, h.Telemetry)
				}
			})
			waitCase(t, "all to arrive", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return len(s.spans) >= asked && s.metrics["gen_ai.server.time_to_first_token"] && s.metrics["omnitap.time_to_first_audio"]
			})
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.spans) != asked {
				t.Errorf("%d spans of %d", len(s.spans), asked)
			}
			for i, x := range s.spans {
				if x.Name != "chat" || fmt.Sprintf("%x", x.TraceId) != traceID || fmt.Sprintf("%x", x.ParentSpanId) != parentID ||
					x.EndTimeUnixNano <= x.StartTimeUnixNano || len(x.Events) < 2 {
					t.Errorf("span %d: %v", i, x)
				}
			}
			if h.Telemetry == nil || h.Telemetry.Records.Offered != asked {
				t.Errorf("health says %+v", h.Telemetry)
			}
		})
	}
}

const (
	traceID  = "0af7651916cd43dd8448eb211c80319c"
	parentID = "b7ad6b7169203331"
)

// exportThrough has so many chats relayed by a process with that environment, and returns
// what its health said behind them.
func exportThrough(t testing.TB, asked int, env map[string]string) (h health) {
	t.Helper()
	_, base := caseMock(t, mock.Config{Seed: 1})
	for name, value := range env {
		t.Setenv(name, value)
	}
	p := startServe(t, os.Args[0], base)
	for range asked {
		askAt(t, "http://"+p.addr+"/v1/chat/completions", fmt.Sprintf(stagedChat, 3), "Traceparent: 00-"+traceID+"-"+parentID+"-01")
	}
	waitCase(t, "the records", func() bool {
		resp, err := http.Get(p.admin(t) + "/healthz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		h = health{}
		return json.NewDecoder(resp.Body).Decode(&h) == nil && (h.Telemetry == nil || h.Telemetry.Records.Offered >= int64(asked))
	})
	p.stop(t)
	return h
}

// admin is the address of the process's admin listener.
func (p *relayProcess) admin(t testing.TB) string {
	t.Helper()
	for line := range strings.Lines(p.output()) {
		if at, ok := strings.CutPrefix(strings.TrimSpace(line), "admin on "); ok {
			return at
		}
	}
	t.Fatalf("serve names no admin listener: %s", p.output())
	return ""
}

// TestNoCollector: nobody is dialled where the environment asks for nothing.
func TestNoCollector(t *testing.T) {
	if h := exportThrough(t, 1, nil); h.Telemetry != nil {
		t.Errorf("health says %+v", h.Telemetry)
	}
}

// TestC77DeadCollector: with nobody there requests are served, the process ends within its
// bound, and says how many were lost.
func TestC77DeadCollector(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const asked = 5
	h := exportThrough(t, asked, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + l.Addr().String()})
	if h.Telemetry == nil || h.Telemetry.Records.Offered != asked || h.Telemetry.Records.Exported != 0 {
		t.Errorf("health says %+v", h.Telemetry)
	}
}

// TestMetricsEndpoint: the admin listener answers Prometheus with what was relayed.
func TestMetricsEndpoint(t *testing.T) {
	_, base := caseMock(t, mock.Config{Seed: 1})
	p := startServe(t, os.Args[0], base, "--out", filepath.Join(t.TempDir(), "run"))
	askAt(t, "http://"+p.addr+"/v1/chat/completions", fmt.Sprintf(stagedChat, 3))
	var text string
	waitCase(t, "the metrics", func() bool {
		resp, err := http.Get(p.admin(t) + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		text = string(b)
		return strings.Contains(text, `omnitap_requests_total{attempt="initial",dialect="vllm-omni",flow="chat"`) ||
			strings.Contains(text, `omnitap_requests_total{`) && strings.Contains(text, `flow="chat"`)
	})
	for _, want := range []string{"omnitap_open_connections", "omnitap_ttfa_seconds_count", `omnitap_exporter_dropped_total{exporter="rundir"} 0`, "omnitap_build_info"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	p.stop(t)
}
