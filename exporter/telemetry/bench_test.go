package telemetry

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// nowhere takes every batch at once.
type nowhere struct{}

func (nowhere) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (nowhere) Shutdown(context.Context) error                             { return nil }

// toNowhere is an exporter of traces, and of metrics if asked, that reaches nobody.
func toNowhere(t testing.TB, metrics bool) *Exporter {
	t.Helper()
	x, err := New(t.Context(), Config{Queue: 1 << 30}, Asked{})
	if err != nil {
		t.Fatal(err)
	}
	x.route(Config{Queue: 1 << 30}, resource.Empty(), nowhere{})
	if metrics {
		if err := x.collect(Config{}, resource.Empty(), sdkmetric.NewManualReader(), true); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := x.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return x
}

// floor is in the heap of serve (cmd/omnitap's heapFloor), which is collected less often
// for it.
func floor(b *testing.B) {
	b.Helper()
	held := make([]byte, 48<<20)
	b.Cleanup(func() { runtime.KeepAlive(held) })
}

// BenchmarkTree is a record to its spans in the queue, and out of it.
func BenchmarkTree(b *testing.B) {
	floor(b)
	for _, c := range []struct {
		name           string
		points, stages int
	}{
		{"bare", 0, 0},
		{"events", 3, 0},
		{"stages3edges2", 3, 3},
	} {
		b.Run(c.name, func(b *testing.B) {
			x := toNowhere(b, false)
			s := &spanner{tracer: x.spans.tracer, ids: x.spans.ids, limits: x.spans.limits, parents: told{}, ledger: newLedger()}
			s.queue = newQueue(1 << 20) // nobody feeds from it
			r := sample(c.points, c.stages)
			b.ReportAllocs()
			for b.Loop() {
				s.record(r)
				s.queue.take()
			}
		})
	}
}

// BenchmarkWhole is a record all the way through the SDK's batcher to an exporter that
// takes it.
func BenchmarkWhole(b *testing.B) {
	floor(b)
	x := toNowhere(b, false)
	r := sample(3, 3)
	b.ReportAllocs()
	for b.Loop() {
		x.Record(r)
		if x.spans.queue.room() != "" {
			b.Fatal("full")
		}
	}
	if err := x.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkUnsampled is a record that the sampler leaves out.
func BenchmarkUnsampled(b *testing.B) {
	b.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	b.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.01")
	for _, turn := range []bool{false, true} {
		b.Run(fmt.Sprintf("turn=%t", turn), func(b *testing.B) {
			x := toNowhere(b, false)
			r := sample(3, 3)
			if turn {
				r.SessionID, r.Turn = new("session"), new(0)
			}
			b.ReportAllocs()
			for b.Loop() {
				if turn {
					*r.Turn++ // a session is sampled or not as a whole: of many turns each is another session's
					r.ConnectionID++
				}
				x.Record(r)
			}
		})
	}
}

// BenchmarkFull is a record that there is no room for.
func BenchmarkFull(b *testing.B) {
	x := toNowhere(b, false)
	x.spans.queue.mu.Lock()
	x.spans.queue.limit = 0
	x.spans.queue.mu.Unlock()
	r := sample(3, 3)
	b.ReportAllocs()
	for b.Loop() {
		x.Record(r)
	}
}

// BenchmarkMetrics is a record to all its metrics.
func BenchmarkMetrics(b *testing.B) {
	for _, c := range []struct {
		name           string
		points, stages int
	}{{"plain", 3, 0}, {"stages3edges2", 3, 3}} {
		b.Run(c.name, func(b *testing.B) {
			x := toNowhere(b, true)
			r := sample(c.points, c.stages)
			b.ReportAllocs()
			for b.Loop() {
				x.meters.record(context.Background(), r)
			}
		})
	}
}

// sample is a record of a chat with sound, with so many of its events, and stages with
// edges between them.
func sample(points, stages int) *timeline.Record {
	const in, ms = int64(5e9), int64(1e6)
	at := func(after int64) *int64 { return new(in + after*ms) }
	r := &timeline.Record{
		RequestID: "chat-1", ServerRequestID: new("chatcmpl-0123456789abcdef"), ConnectionID: 7, Attempt: 1,
		Flow: timeline.FlowChat, Dialect: "vllm-omni", DialectVariant: new("sse"), Method: new("POST"), Path: new("/v1/chat/completions"),
		Status: new(200), Model: new("Qwen/Qwen3-Omni-30B-A3B-Instruct"), Stream: new(true),
		TInWallNS: new(int64(1.7e18)), TInSource: new("request"), TextUnits: new(int64(20)), TextUnit: new("delta"),
		TTFTMS: new(120.0), JCTMS: new(2000.0), TPOTMS: new(30.0),
		OwnDelayUS: &timeline.Delay{P50: 20, P99: 60, Max: 90, N: 40},
		Terminal:   timeline.Terminal{State: timeline.Success, Reason: "done", Phase: "done", By: "server"},
		Quality:    timeline.Quality{Verdict: "passed"}, Analysis: "full",
		Unmeasured: map[string]string{},
	}
	r.Points.TIn, r.Points.TTerm = at(0), at(2000)
	for i, p := range []**int64{&r.Points.TText, &r.Points.TAudio, &r.Points.TAudible} {
		if i < points {
			*p = at(int64(100 + 100*i))
		}
	}
	if points > 1 {
		r.AudioS, r.RTF, r.TTFAMS, r.TTFAudibleMS = new(4.0), new(0.5), new(200.0), new(300.0)
		r.Audio = &timeline.Audio{Samples: new(int64(96000)), SampleRate: new(int64(24000)), Chunks: 40}
		r.AudioGapMS = &timeline.Gap{P50: 40, P95: 80, P99: 90, Max: 120, N: 39}
		r.Playback = &timeline.Playback{}
	}
	names := []string{"thinker", "talker", "code2wav"}
	for i := range stages {
		r.Stages = append(r.Stages, timeline.Stage{
			Stage: names[i%3], PID: 100 + i, WaitMS: new(2.0), ServiceMS: new(500.0), CPUMS: new(80.0),
			Match: "id", Confidence: 1, StartNS: at(int64(20 + i)), FinishNS: at(int64(900 + i)),
		})
		if i > 0 {
			r.Transfers = append(r.Transfers, timeline.Transfer{
				From: names[(i-1)%3], To: names[i%3], Transport: "shm", Bytes: new(int64(65536)), StartNS: *at(60), EndNS: at(61), Match: "id", Confidence: 1,
			})
		}
	}
	return r
}
