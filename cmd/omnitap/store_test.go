//go:build store

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// jaegerSpan is a span as Jaeger's query answers with it.
type jaegerSpan struct {
	SpanID, OperationName string
	StartTime, Duration   int64 // microseconds
	References            []struct{ RefType, TraceID, SpanID string }
	Tags                  []struct {
		Key   string
		Value any
	}
	Logs []struct {
		Timestamp int64
		Fields    []struct {
			Key   string
			Value any
		}
	}
}

// startJaeger starts a Jaeger that keeps spans in memory.
func startJaeger(t *testing.T) (otlp, query string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../../testdata/jaeger/install.sh", "--path").Output()
	if err != nil {
		t.Fatalf("Jaeger is not built: run `make test-store` (%v)", err)
	}
	at := map[string]string{}
	var args []string
	for _, port := range []string{
		"admin.http", "collector.grpc-server", "collector.http-server", "collector.otlp.grpc", "collector.otlp.http",
		"query.grpc-server", "query.http-server",
	} {
		at[port] = fmt.Sprintf("127.0.0.1:%d", freePort(t))
		args = append(args, "--"+port+".host-port="+at[port])
	}
	startBeside(t, strings.TrimSpace(string(out)), args, nil, at["collector.otlp.http"], at["query.http-server"])
	return "http://" + at["collector.otlp.http"], "http://" + at["query.http-server"]
}

// TestJaeger: omnitap, the Collector by the configuration that is shipped, Jaeger: what is
// asked for by the client's own trace id is the request's span, with its points, below the
// client's span, and its stages and hand-overs below that.
func TestJaeger(t *testing.T) {
	requireProbes(t)
	otlp, query := startJaeger(t)
	httpAt, _ := collect(t, "../../configs/collector/jaeger.yaml", "JAEGER_OTLP="+otlp)
	server := startStagedServer(t, stagedConfig{})
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+httpAt)
	t.Setenv("OTEL_METRICS_EXPORTER", "none")
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("stages: {budget: 0.9, names: {0: thinker, 1: talker, 2: code2wav}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startServe(t, os.Args[0], server.base, "--probes", "require", "--config", config)
	askAt(t, "http://"+p.addr+"/v1/chat/completions", fmt.Sprintf(stagedChat, 6), "Traceparent: 00-"+traceID+"-"+parentID+"-01", "X-Request-Id: in-jaeger")
	spans := map[string]*jaegerSpan{}
	waitCase(t, "the trace to be in Jaeger", func() bool {
		clear(spans)
		for _, x := range jaegerTrace(t, query) {
			spans[x.OperationName] = x
		}
		return spans["chat"] != nil
	})
	own := spans["chat"]
	if own.parent() != parentID || own.tag("omnitap.request.id") != "in-jaeger" || own.tag("omnitap.terminal.state") != "success" || own.tag("span.kind") != "server" {
		t.Errorf("%+v", own)
	}
	for _, name := range []string{"omnitap.first_text", "omnitap.first_audio", "omnitap.first_audible"} {
		if !own.logged(name) {
			t.Errorf("no event %s in %+v", name, own.Logs)
		}
	}
	for _, name := range []string{"stage thinker", "stage talker", "stage code2wav", "transfer thinker → talker", "transfer talker → code2wav"} {
		x := spans[name]
		if x == nil {
			t.Errorf("no span %q", name)
			continue
		}
		if x.parent() != own.SpanID || x.StartTime < own.StartTime || x.StartTime+x.Duration > own.StartTime+own.Duration+50e3 || x.Duration <= 0 {
			t.Errorf("%+v, below %+v", x, own)
		}
	}
	p.stop(t)
}

func jaegerTrace(t *testing.T, query string) []*jaegerSpan {
	t.Helper()
	resp, err := http.Get(query + "/api/traces/" + traceID)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Data []struct{ Spans []*jaegerSpan }
	}
	if resp.StatusCode == http.StatusNotFound || json.NewDecoder(resp.Body).Decode(&answer) != nil || len(answer.Data) != 1 {
		return nil
	}
	return answer.Data[0].Spans
}

func (x *jaegerSpan) parent() string {
	for _, r := range x.References {
		if r.RefType == "CHILD_OF" {
			return r.SpanID
		}
	}
	return ""
}

func (x *jaegerSpan) tag(key string) any {
	for _, t := range x.Tags {
		if t.Key == key {
			return t.Value
		}
	}
	return nil
}

// logged reports whether a span has an event.
func (x *jaegerSpan) logged(event string) bool {
	for _, l := range x.Logs {
		for _, f := range l.Fields {
			if f.Key == "event" && f.Value == event {
				return true
			}
		}
	}
	return false
}
