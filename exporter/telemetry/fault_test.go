package telemetry

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

var tracesOnly = Asked{Traces: true}

// TestFaultsAreCountedAndNamedOnce has each fault drop every record for its reason, and
// one line of the log tell it, however many batches there are.
func TestFaultsAreCountedAndNamedOnce(t *testing.T) {
	const records = 10
	busy := always(http.StatusTooManyRequests)
	byHTTP, byGRPC, byTLS := server((*collector).byHTTP), server((*collector).byGRPC), server((*collector).byTLS)
	for _, c := range []struct {
		name, protocol string
		answer         answer
		serve          func(testing.TB, *collector) string
		want           Reason
	}{
		{"refusing", "http/protobuf", nil, nowhereAt, Unreachable},
		{"refusing", "grpc", nil, nowhereAt, Unreachable},
		{"hanging", "http/protobuf", hang, byHTTP, Timeout},
		{"hanging", "grpc", hang, byGRPC, Timeout},
		{"429", "http/protobuf", busy, byHTTP, Busy},
		{"busy", "grpc", busy, byGRPC, Busy},
		{"400", "http/protobuf", always(http.StatusBadRequest), byHTTP, Failed},
		{"400", "grpc", always(http.StatusBadRequest), byGRPC, Failed},
		{"untrusted", "http/protobuf", good, byTLS, TLS},
		{"untrusted", "grpc", good, byTLS, TLS},
		{"no TLS", "http/protobuf", good, secure(byHTTP), TLS},
		{"no TLS", "grpc", good, secure(byGRPC), TLS},
	} {
		t.Run(c.name+" "+c.protocol, func(t *testing.T) {
			environ(t, c.serve(t, newCollector(c.answer)), c.protocol)
			hasty(t)
			x, said := start(t, Config{}, tracesOnly)
			for range 2 { // batches
				for range records / 2 {
					x.Record(sample(3, 0))
				}
				flush(t, x)
			}
			s := x.Stats()
			balanced(t, s, records)
			if got := s.Records.Dropped[c.want]; got != records {
				t.Errorf("dropped %v, want all %d for %s\n%s", s.Records.Dropped, records, c.want, said)
			}
			if n := said.count("traces cannot be exported"); n != 1 || s.Failing != c.want {
				t.Errorf("%d lines tell it and failing is %q, want one and %q:\n%s", n, s.Failing, c.want, said)
			}
		})
	}
}

// nowhereAt serves nothing.
func nowhereAt(t testing.TB, _ *collector) string {
	t.Helper()
	return "http://" + free(t)
}

// server turns a method of collector into a function of a test.
func server(serve func(*collector, testing.TB) string) func(testing.TB, *collector) string {
	return func(t testing.TB, c *collector) string {
		t.Helper()
		return serve(c, t)
	}
}

// secure asks for TLS where there is none.
func secure(serve func(testing.TB, *collector) string) func(testing.TB, *collector) string {
	return func(t testing.TB, c *collector) string {
		t.Helper()
		return strings.Replace(serve(t, c), "http:", "https:", 1)
	}
}

// hasty gives up on a batch soon: for faults that end by time alone. It is still long
// enough for a handshake on a machine at work.
func hasty(t testing.TB) {
	t.Helper()
	setenv(t, "OTEL_EXPORTER_OTLP_TIMEOUT", "2000")
	setenv(t, "OTEL_BSP_EXPORT_TIMEOUT", "2500")
}

// TestPartOfABatchRefused counts what a collector refuses of a batch that it takes.
func TestPartOfABatchRefused(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			c := newCollector(func(context.Context) (int, int64) { return http.StatusOK, 3 })
			endpoint := c.byHTTP(t)
			if protocol == "grpc" {
				endpoint = c.byGRPC(t)
			}
			environ(t, endpoint, protocol)
			x, _ := start(t, Config{}, tracesOnly)
			for range 10 {
				x.Record(sample(3, 0))
			}
			flush(t, x)
			s := x.Stats()
			balanced(t, s, 10)
			if s.Spans.Dropped[Rejected] != 3 || s.Spans.Exported != 7 || s.Records.Dropped[Rejected] != 3 {
				t.Errorf("spans %+v, records %+v, want 3 rejected and 7 exported", s.Spans, s.Records)
			}
		})
	}
}

// TestResumesAfterAnOutage has a collector that is down from the start, comes, goes and
// comes again.
func TestResumesAfterAnOutage(t *testing.T) {
	addr := free(t)
	environ(t, "http://"+addr, "http/protobuf")
	hasty(t)
	x, said := start(t, Config{}, tracesOnly)
	send := func() {
		x.Record(sample(3, 0))
		flush(t, x)
	}
	c := newCollector(good)
	up := func() *httptest.Server {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(c)
		s.Listener.Close()
		s.Listener = l
		s.Start()
		return s
	}
	send() // down
	s := up()
	send()
	c.set(hang)
	send()
	c.set(good)
	send()
	s.CloseClientConnections()
	s.Close()
	send() // down
	s = up()
	defer s.Close()
	send()
	got := x.Stats()
	balanced(t, got, 6)
	if got.Records.Exported != 3 || got.Records.Dropped[Unreachable] != 2 || got.Records.Dropped[Timeout] != 1 || c.records() != 3 || got.Failing != "" {
		t.Errorf("%+v, %d arrived, want 3 exported, 2 unreachable and 1 timeout", got, c.records())
	}
	if n, m := said.count("traces cannot be exported"), said.count("traces are exported again"); n != 3 || m != 3 {
		t.Errorf("%d outages and %d ends of them told, want 3 and 3:\n%s", n, m, said)
	}
}

// TestSlowCollector is case C75: 20,000 requests come while a collector is slower than
// they are. None waits; what has no room is counted; the rest arrives.
func TestSlowCollector(t *testing.T) {
	const records = 20000
	gate := make(chan struct{})
	c := newCollector(func(ctx context.Context) (int, int64) {
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return http.StatusOK, 0
	})
	environ(t, c.byHTTP(t), "http/protobuf")
	x, _ := start(t, Config{Queue: 1000}, tracesOnly)
	r := sample(3, 0)
	for range records { // the gate is shut: a Record that waits for it never ends
		x.Record(r)
	}
	full := x.Stats().Records.Dropped[QueueFull]
	if full == 0 {
		t.Error("nothing was dropped with a shut collector")
	}
	close(gate)
	flush(t, x)
	s := x.Stats()
	balanced(t, s, records)
	// The queue, the batcher's, a batch that is made and one on its way.
	if s.Records.Dropped[QueueFull] != full || s.Records.Exported != records-full || s.Records.Exported > 1000+2048+2*512+1 {
		t.Errorf("%+v with %d dropped while it was shut", s.Records, full)
	}
	if got := c.records(); got != s.Records.Exported {
		t.Errorf("%d records arrived, %d were counted as exported", got, s.Records.Exported)
	}
}

// TestHangingCollectorBoundsMemoryAndShutdown is case C77: a collector accepts and never
// answers. 20,000 records with stages leave no more memory than the queues hold, Shutdown
// ends in its bound, and every record is counted.
func TestHangingCollectorBoundsMemoryAndShutdown(t *testing.T) {
	const records = 20000
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			c := newCollector(hang)
			endpoint := c.byHTTP(t)
			if protocol == "grpc" {
				endpoint = c.byGRPC(t)
			}
			environ(t, endpoint, protocol)
			setenv(t, "OTEL_EXPORTER_OTLP_TIMEOUT", "600000")
			setenv(t, "OTEL_BSP_EXPORT_TIMEOUT", "600000")
			x, _ := start(t, Config{}, Asked{Traces: true, Metrics: true})
			before := heap()
			r := sample(3, 3)
			for i := range records {
				r.ConnectionID = uint64(i)
				x.Record(r)
			}
			const bound = 40 << 20
			grown := heap() - before
			if grown > bound {
				t.Errorf("%d MiB more after %d records, bound %d", grown>>20, records, bound>>20)
			}
			<-c.called // a batch is on its way
			begun := time.Now()
			err := x.Shutdown(t.Context())
			if took := time.Since(begun); took > ShutdownBound {
				t.Errorf("shutdown took %s, bound %s", took, ShutdownBound)
			}
			t.Logf("%d KiB more after %d records, shutdown in %s", grown>>10, records, time.Since(begun))
			if err == nil {
				t.Error("shutdown says nothing of what was lost")
			}
			x.Record(r)
			s := x.Stats()
			balanced(t, s, records+1)
			if s.Records.Dropped[Shutdown] == 0 || s.Records.Dropped[QueueFull] == 0 || s.Records.Dropped[Closed] != 1 || s.Records.Exported != 0 || s.Failures[Metrics] != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestShutdownExportsWhatWaits loses nothing with a collector that answers.
func TestShutdownExportsWhatWaits(t *testing.T) {
	c := newCollector(good)
	environ(t, c.byHTTP(t), "http/protobuf")
	x, _ := start(t, Config{}, Asked{Traces: true, Metrics: true})
	for range 1000 {
		x.Record(sample(3, 3))
	}
	if err := x.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := x.Stats()
	balanced(t, s, 1000)
	if s.Records.Exported != 1000 || s.Spans.Exported != 6000 || c.records() != 1000 {
		t.Errorf("%+v, %d arrived", s, c.records())
	}
	// Metrics go last: they have the last counts.
	if m := c.metric("omnitap.export.records"); m == nil || m.GetSum().DataPoints[0].GetAsInt() != 1000 {
		t.Errorf("exported records told as %v", m)
	}
}

// TestFailedMetricsAreCountedAndToldOnce has exports of metrics fail.
func TestFailedMetricsAreCountedAndToldOnce(t *testing.T) {
	c := newCollector(always(http.StatusBadRequest))
	environ(t, c.byHTTP(t), "http/protobuf")
	setenv(t, "OTEL_METRIC_EXPORT_INTERVAL", "5")
	x, said := start(t, Config{}, Asked{Metrics: true})
	x.Record(sample(3, 0))
	for x.Stats().Failures[Metrics] < 3 {
		<-c.called
	}
	if n := said.count("metrics cannot be exported"); n != 1 {
		t.Errorf("%d lines tell it:\n%s", n, said)
	}
}
