package main

import (
	"bytes"
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
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock"
	"github.com/omnitap/omnitap/exporter/telemetry/otlptest"
)

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
	config := filepath.Join(t.TempDir(), "collector.yaml")
	const text = `receivers: {otlp: {protocols: {http: {endpoint: "${env:OTLP_HTTP}"}, grpc: {endpoint: "${env:OTLP_GRPC}"}}}}
processors: {batch: {timeout: 50ms}}
exporters: {otlp_http: {endpoint: "${env:STORE}"}}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    traces: {receivers: [otlp], processors: [batch], exporters: [otlp_http]}
    metrics: {receivers: [otlp], processors: [batch], exporters: [otlp_http]}
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return collect(t, config, "STORE="+to)
}

// collect starts a Collector by a configuration that takes its addresses from the
// environment.
func collect(t testing.TB, config string, env ...string) (httpAt, grpcAt string) {
	t.Helper()
	httpAt, grpcAt = fmt.Sprintf("127.0.0.1:%d", freePort(t)), fmt.Sprintf("127.0.0.1:%d", freePort(t))
	env = append(env, "OTLP_HTTP="+httpAt, "OTLP_GRPC="+grpcAt)
	startBeside(t, collectorProgram(t), []string{"--config", config}, env, httpAt, grpcAt)
	return httpAt, grpcAt
}

// startBeside starts a program that runs until the test ends, and waits until it listens on
// all of its addresses. What it said is told where the test fails.
func startBeside(t testing.TB, program string, args, env []string, at ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := tool(ctx, program, args...)
	cmd.Env = append(cmd.Env, env...)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s says: %s", filepath.Base(program), log.String())
		}
	})
	for _, a := range at {
		waitCase(t, filepath.Base(program)+" to listen", func() bool {
			c, err := net.Dial("tcp", a)
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		})
	}
}

// TestCollector: a real Collector between omnitap and a store gets every request's span,
// below the client's own, and the metrics, over both of OTLP's forms.
func TestCollector(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(strings.ReplaceAll(protocol, "/", " "), func(t *testing.T) {
			s := &otlptest.Store{}
			behind := httptest.NewServer(s)
			defer behind.Close()
			httpAt, grpcAt := startCollector(t, behind.URL)
			at := map[string]string{"http/protobuf": httpAt, "grpc": grpcAt}[protocol]
			const asked = 20
			h, _ := exportThrough(t, asked, map[string]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + at, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_METRIC_EXPORT_INTERVAL": "500",
			})
			waitCase(t, "all to arrive", func() bool {
				return len(s.Spans()) >= asked && s.Metric("gen_ai.server.time_to_first_token") && s.Metric("omnitap.time_to_first_audio")
			})
			spans := s.Spans()
			if len(spans) != asked {
				t.Errorf("%d spans of %d", len(spans), asked)
			}
			for i, x := range spans {
				if x.Name != "chat" || x.TraceID != traceID || x.ParentID != parentID || x.EndNS <= x.StartNS || x.Events < 2 {
					t.Errorf("span %d: %+v", i, x)
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
// what its health said behind them, and what it printed until its end.
func exportThrough(t testing.TB, asked int, env map[string]string) (h health, said string) {
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
	return h, p.output()
}

// admin is the address of the process's admin listener.
func (p *relayProcess) admin(t testing.TB) (at string) {
	t.Helper()
	waitCase(t, "serve to name its admin listener", func() bool {
		for line := range strings.Lines(p.output()) {
			if a, ok := strings.CutPrefix(strings.TrimSpace(line), "admin on "); ok {
				at = a
			}
		}
		return at != "" || p.over()
	})
	if at == "" {
		t.Fatalf("serve names no admin listener: %s", p.output())
	}
	return at
}

// TestNoCollector: nobody is dialled where the environment asks for nothing.
func TestNoCollector(t *testing.T) {
	if h, _ := exportThrough(t, 1, nil); h.Telemetry != nil {
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
	h, said := exportThrough(t, asked, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + l.Addr().String()})
	if h.Telemetry == nil || h.Telemetry.Records.Offered != asked || h.Telemetry.Records.Exported != 0 {
		t.Errorf("health says %+v", h.Telemetry)
	}
	if !strings.Contains(said, "not all was exported to OpenTelemetry") || !strings.Contains(said, fmt.Sprintf("shutdown %d", asked)) {
		t.Errorf("it does not say that %d were lost: %s", asked, said)
	}
}

// TestRunTelemetry: a run's requests are told, with their phase.
func TestRunTelemetry(t *testing.T) {
	s := &otlptest.Store{}
	behind := httptest.NewServer(s)
	defer behind.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", behind.URL)
	_, base := caseMock(t, mock.Config{Script: fastScript()})
	e := filepath.Join(t.TempDir(), "e.yaml")
	if err := os.WriteFile(e, []byte("question: is it told?\nprimary: ttfa_p50\nworkload: {reference: the built-in chat}\nwarmup: {requests: 2}\nmeasured: {requests: 3}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	startRun(t, &runFlags{}, "--upstream", base, "--probes", "off", "--block", "5", "--experiment", e).wait(0)
	phases := map[string]int{}
	for _, x := range s.Spans() {
		phases[x.Attributes["omnitap.run.phase"]]++
	}
	if d := cmp.Diff(map[string]int{phaseWarmup: 2, phaseMeasured: 3}, phases); d != "" {
		t.Errorf("spans by phase (-want +got)\n%s", d)
	}
	if !s.Metric("omnitap.requests") {
		t.Error("no metrics came")
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
		// a record is counted bit by bit: its latencies come last
		return strings.Contains(text, "omnitap_ttfa_seconds_count") && strings.Contains(text, `omnitap_requests_total{`) && strings.Contains(text, `flow="chat"`)
	})
	for _, want := range []string{"omnitap_open_connections", `omnitap_exporter_dropped_total{exporter="rundir"} 0`, "omnitap_build_info"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	p.stop(t)
}
