package telemetry

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// metered is an exporter whose metrics can be read, without traces.
func metered(t *testing.T) (x *Exporter, read func() map[string]metricdata.Aggregation) {
	t.Helper()
	x, err := New(t.Context(), Config{}, Asked{})
	if err != nil {
		t.Fatal(err)
	}
	r := sdkmetric.NewManualReader()
	if err := x.collect(Config{}, resource.Empty(), r, true); err != nil {
		t.Fatal(err)
	}
	return x, func() map[string]metricdata.Aggregation {
		t.Helper()
		var rm metricdata.ResourceMetrics
		if err := r.Collect(t.Context(), &rm); err != nil {
			t.Fatal(err)
		}
		out := map[string]metricdata.Aggregation{}
		for _, s := range rm.ScopeMetrics {
			for _, m := range s.Metrics {
				out[m.Name] = m.Data
			}
		}
		return out
	}
}

// TestFailuresAreNoZeros is case C37: of 10 requests 6 are answered by nothing.
func TestFailuresAreNoZeros(t *testing.T) {
	x, read := metered(t)
	for i := range 10 {
		r := sample(3, 3)
		r.TTFTMS = new(120 + 10*float64(i))
		if i >= 4 { // tokenless 200s
			r.Terminal.State, r.TTFTMS, r.TTFAMS, r.AudioS, r.Audio = timeline.InvalidOutput, nil, nil, nil, nil
		}
		x.Record(r)
	}
	got := read()
	requests := map[string]int64{}
	for _, p := range got["omnitap.requests"].(metricdata.Sum[int64]).DataPoints {
		state, _ := p.Attributes.Value(keyState)
		requests[state.AsString()] = p.Value
	}
	if requests["success"] != 4 || requests["invalid-output"] != 6 {
		t.Errorf("requests %v, want 4 and 6", requests)
	}
	for i := range metrics {
		if metrics[i].Of != Success || metrics[i].Kind != Histogram {
			continue
		}
		n, lowest := uint64(0), math.Inf(1)
		for _, p := range got[metrics[i].Name].(metricdata.Histogram[float64]).DataPoints {
			n += p.Count
			if v, ok := p.Min.Value(); ok {
				lowest = min(lowest, v)
			}
		}
		per := uint64(4)
		switch i {
		case mWait, mService:
			per *= 3
		case mTransfer:
			per *= 2
		}
		if n != per || lowest == 0 && i != mStall {
			t.Errorf("%s holds %d values down to %g, want %d of successes and no zero", metrics[i].Name, n, lowest, per)
		}
	}
}

// TestBucketsResolvePercentiles is case C78: first text at 0.05 to 2 s and whole requests
// of 1 to 300 s, p95 from the buckets against that of the values.
func TestBucketsResolvePercentiles(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, draw := range map[string]func(lo, hi float64) float64{
		"even":  func(lo, hi float64) float64 { return lo + (hi-lo)*rnd.Float64() },
		"log":   func(lo, hi float64) float64 { return lo * math.Pow(hi/lo, rnd.Float64()) },
		"tight": func(lo, hi float64) float64 { return min(hi, lo*math.Exp(1+0.05*rnd.NormFloat64())) },
		"long":  func(lo, hi float64) float64 { return min(hi, lo*math.Exp(math.Abs(rnd.NormFloat64()))) },
	} {
		x, read := metered(t)
		var first, whole []float64
		for range 2000 {
			r := sample(3, 0)
			r.TTFTMS, r.JCTMS = new(1e3*draw(0.05, 2)), new(1e3*draw(1, 300))
			first, whole = append(first, *r.TTFTMS/1e3), append(whole, *r.JCTMS/1e3)
			x.Record(r)
		}
		got := read()
		for metric, values := range map[string][]float64{"omnitap.time_to_first_text": first, "omnitap.request.duration": whole} {
			p := got[metric].(metricdata.Histogram[float64]).DataPoints[0]
			slices.Sort(values)
			for _, q := range []float64{0.5, 0.9, 0.95, 0.99} {
				want, have := values[int(q*float64(len(values)))], quantile(p, q)
				if off := math.Abs(have-want) / want; off > 0.1 {
					t.Errorf("%s, %s: p%g is %.4g from the buckets, %.4g of the values: %.1f %% off", name, metric, 100*q, have, want, 100*off)
				}
			}
		}
	}
}

// quantile reads buckets as PromQL's histogram_quantile does: straight within a bucket.
func quantile(p metricdata.HistogramDataPoint[float64], q float64) float64 {
	rank, below := q*float64(p.Count), 0.0
	for i, n := range p.BucketCounts {
		if in := float64(n); below+in >= rank {
			lo := 0.0
			if i > 0 {
				lo = p.Bounds[i-1]
			}
			return lo + (p.Bounds[min(i, len(p.Bounds)-1)]-lo)*(rank-below)/in
		}
		below += float64(n)
	}
	return math.Inf(1)
}

// TestLabelsAreBounded is case C78: 10,000 ids, voices, models and paths make no series.
func TestLabelsAreBounded(t *testing.T) {
	x, read := metered(t)
	var wg sync.WaitGroup
	for part := range 4 {
		wg.Go(func() {
			for i := range 2500 {
				id := fmt.Sprintf("secret-%d-%d", part, i)
				r := sample(3, 3)
				r.RequestID, r.Model, r.Path, r.ServerRequestID = id, new("secret-model-"+id), new("/v1/secret?q="+id), &id
				r.Stages[0].Stage, r.Transfers[0].From, r.Transfers[0].Transport = "secret-stage-"+id, "secret-stage-"+id, "shm"
				r.TInSource = new("request")
				if i%2 == 0 {
					r.Terminal.State, r.Model = timeline.InvalidRequest, new("made up "+id)
				}
				x.Record(r)
			}
		})
	}
	wg.Wait()
	for name, data := range read() {
		n := 0
		check := func(a attribute.Set) {
			n++
			for _, kv := range a.ToSlice() {
				v := kv.Value.String()
				if kv.Key == "otel.metric.overflow" {
					t.Errorf("%s overflows", name)
				}
				if kv.Key != "gen_ai.request.model" && kv.Key != keyStage && kv.Key != keyEdge && len(v) > 30 || kv.Key == keyRequest {
					t.Errorf("%s has %s=%s", name, kv.Key, v)
				}
			}
		}
		switch d := data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range d.DataPoints {
				check(p.Attributes)
			}
		case metricdata.Histogram[int64]:
			for _, p := range d.DataPoints {
				check(p.Attributes)
			}
		case metricdata.Sum[int64]:
			for _, p := range d.DataPoints {
				check(p.Attributes)
			}
		}
		if n > maxSeries*9/10 {
			t.Errorf("%s has %d series", name, n)
		}
	}
	if n := len(x.meters.series.models.kept); n != maxModels {
		t.Errorf("%d models are told, want %d", n, maxModels)
	}
}

// TestModelsOfFailuresTakeNoRoom keeps what clients make up out.
func TestModelsOfFailuresTakeNoRoom(t *testing.T) {
	n := newNames(2)
	for _, c := range []struct {
		raw  string
		keep bool
		want string
	}{
		{"made-up", false, other},
		{"Qwen/Qwen3", true, "Qwen/Qwen3"},
		{"Qwen/Qwen3", false, "Qwen/Qwen3"},
		{"/srv/models/mine?token=1", true, "mine"},
		{"/srv/models/mine", true, "mine"},
		{"one too many", true, other},
		{"three", true, other},
		{"", true, other},
		{string(make([]byte, 200)), true, other},
	} {
		if got := n.of(c.raw, c.keep); got != c.want {
			t.Errorf("of(%q, %t) = %q, want %q", c.raw, c.keep, got, c.want)
		}
	}
}

// TestPacedAndOther tells what the pacer measured apart, and asks no model where none was.
func TestPacedAndOther(t *testing.T) {
	x, read := metered(t)
	r := sample(3, 0)
	r.Flags = []string{"paced"}
	x.Record(r)
	health := sample(0, 0)
	health.Flow = timeline.FlowOther
	x.Record(health)
	again := sample(3, 0)
	again.Attempt = 2
	x.Record(again)
	got := read()
	p := got["omnitap.audio.rtf"].(metricdata.Histogram[float64]).DataPoints
	if v, ok := p[0].Attributes.Value(keyPaced); len(p) != 1 || p[0].Count != 1 || !ok || !v.AsBool() {
		t.Errorf("rtf of a paced turn and a retry: %v", p)
	}
	if p := got["gen_ai.server.request.duration"].(metricdata.Histogram[float64]).DataPoints; len(p) != 1 || p[0].Count != 1 {
		t.Errorf("requests of models: %v", p)
	}
	if p := got["omnitap.request.duration"].(metricdata.Histogram[float64]).DataPoints; len(p) != 2 {
		t.Errorf("requests: %v", p)
	}
}

// TestExemplarsNameTheTrace has measurements of sampled requests carry their trace, and
// not more of them than a few.
func TestExemplarsNameTheTrace(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			c := newCollector(good)
			endpoint := c.byHTTP(t)
			if protocol == "grpc" {
				endpoint = c.byGRPC(t)
			}
			environ(t, endpoint, protocol)
			setenv(t, "OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.name=mine")
			setenv(t, "OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x")
			x, _ := start(t, Config{Version: "v1"}, Asked{Traces: true, Metrics: true})
			traces := map[string]bool{}
			for i := range 200 {
				r := sample(3, 0)
				r.TTFTMS = new(float64(10 + 10*i))
				x.Record(r)
			}
			flush(t, x)
			for _, s := range c.spans() {
				traces[hex.EncodeToString(s.TraceId)] = true
			}
			p := c.metric("omnitap.time_to_first_text").GetHistogram().DataPoints[0]
			if n := len(p.Exemplars); n == 0 || n > exemplars {
				t.Errorf("%d exemplars, want 1 to %d", n, exemplars)
			}
			for _, e := range p.Exemplars {
				if !traces[hex.EncodeToString(e.TraceId)] {
					t.Errorf("exemplar of a trace that was not exported: %v", e)
				}
			}
			if len(p.ExplicitBounds) != len(latency) || p.Count != 200 {
				t.Errorf("%d boundaries, %d values", len(p.ExplicitBounds), p.Count)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			own := fmt.Sprint(c.traces[0].Resource)
			if want := fmt.Sprint(c.metrics[0].Resource); own != want {
				t.Errorf("resources differ: %s, %s", own, want)
			}
			names := map[string]string{}
			for _, a := range c.traces[0].Resource.Attributes {
				names[a.Key] = a.Value.GetStringValue()
			}
			if names["service.name"] != "mine" || names["deployment.environment.name"] != "test" || names["service.version"] != "v1" {
				t.Errorf("resource %v", names)
			}
			if protocol != "grpc" && c.header.Get("Authorization") != "Bearer x" {
				t.Errorf("header %v", c.header)
			}
		})
	}
}

// TestUnsampledRecordsFeedMetrics all the same, and have no exemplars.
func TestUnsampledRecordsFeedMetrics(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	x, read := metered(t)
	x.route(Config{}, resource.Empty(), nowhere{})
	t.Cleanup(func() { _ = x.Shutdown(context.Background()) })
	for range 10 {
		x.Record(sample(3, 0))
	}
	p := read()["omnitap.request.duration"].(metricdata.Histogram[float64]).DataPoints[0]
	s := x.Stats()
	balanced(t, s, 10)
	if p.Count != 10 || len(p.Exemplars) != 0 || s.Records.Unsampled != 10 || s.Spans.Offered != 0 {
		t.Errorf("%d values, %d exemplars, %+v", p.Count, len(p.Exemplars), s)
	}
}
