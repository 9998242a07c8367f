package telemetry

import (
	"net"
	"testing"
)

// TestOffByDefault holds what the environment must say.
func TestOffByDefault(t *testing.T) {
	both, traces, measures := Asked{true, true}, Asked{Traces: true}, Asked{Metrics: true}
	for _, c := range []struct {
		name string
		env  map[string]string
		want Asked
	}{
		{"nothing", nil, Asked{}},
		{"what does not ask", map[string]string{"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://x"}, Asked{}},
		{"endpoint", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, both},
		{"endpoint of traces", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, traces},
		{"endpoint of metrics", map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, measures},
		{"exporter of traces", map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, traces},
		{"exporter of metrics", map[string]string{"OTEL_METRICS_EXPORTER": "console"}, measures},
		{"none", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_METRICS_EXPORTER": "none"}, traces},
		{"disabled", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "TRUE"}, Asked{}},
		{"not disabled", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "no"}, both},
	} {
		if got := Ask(func(k string) string { return c.env[k] }); got != c.want || got.Any() != (c.want != Asked{}) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestNothingIsDialledBeforeARecord makes an Exporter whose collector would notice.
func TestNothingIsDialledBeforeARecord(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		environ(t, "http://"+l.Addr().String(), protocol)
		start(t, Config{}, Asked{Traces: true})
		own, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		first, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := first.RemoteAddr().String(), own.LocalAddr().String(); got != want {
			t.Errorf("%s: %s dialled before %s", protocol, got, want)
		}
		own.Close()
		first.Close()
		l.Close()
	}
}

// TestNonsenseFails names what cannot be meant.
func TestNonsenseFails(t *testing.T) {
	for k, v := range map[string]string{"OTEL_TRACES_EXPORTER": "carrier-pigeon", "OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"} {
		t.Run(k, func(t *testing.T) {
			t.Setenv(k, v)
			if _, err := New(t.Context(), Config{}, Asked{Traces: true}); err == nil {
				t.Errorf("%s=%s is taken", k, v)
			}
		})
	}
}
