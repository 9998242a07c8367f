package telemetry

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// TestREADME holds the schema to README's tables.
func TestREADME(t *testing.T) {
	const begin, end = "<!-- telemetry schema -->\n", "<!-- /telemetry schema -->\n"
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), begin)
	table, _, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("README.md lacks %q or %q", begin, end)
	}
	if *update {
		text := strings.Replace(string(b), begin+table+end, begin+Markdown()+end, 1)
		if err := os.WriteFile("README.md", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != Markdown() {
		t.Errorf("README.md has another schema than the code; with -update it is written anew:\n%s", Markdown())
	}
}

// everything is a record with every field that is told.
func everything() *timeline.Record {
	r := sample(3, 3)
	r.RunID, r.RunPhase, r.Attempt = "run", "measured", 2
	r.SessionID, r.Turn = new("s-1"), new(0)
	r.DeclaredTokens = new(int64(20))
	r.Audio.AssumedSampleRate = new(int64(24000))
	r.Flags = []string{"paced"}
	r.Terminal.State = timeline.QualityFailed
	r.Unmeasured["points.t_text"] = "no text came"
	r.Points.TText, r.Points.TIn = nil, nil
	r.Stages[0].QueueMS, r.Stages[0].RunqMS, r.Stages[0].Steps, r.Stages[0].Batch = new(1.0), new(1.0), new(3), &timeline.Batch{Mean: 2, Max: 3}
	r.Transfers[0].Unread = true
	for i := range maxChildren { // more than have a span
		r.Transfers = append(r.Transfers, timeline.Transfer{From: "thinker", To: "talker", Transport: fmt.Sprint("t", i), StartNS: 1, EndNS: new(int64(2))})
	}
	return r
}

// TestSchemaIsWhatIsTold sends everything, and compares what arrives with the schema in
// both ways: names, kinds, units, boundaries and attributes.
func TestSchemaIsWhatIsTold(t *testing.T) {
	c := newCollector(good)
	environ(t, c.byHTTP(t), "http/protobuf")
	x, _ := start(t, Config{}, Asked{Traces: true, Metrics: true})
	_, ses := turns(1, 1)
	ses.DialectVariant, ses.ServerSessionID, ses.Model, ses.Path, ses.InputAudioS, ses.Flags = new("v"), new("id"), new("m"), new("/p"), new(1.0), []string{"f"}
	whole := sample(3, 3) // a success in a run, and its twin that was paced
	whole.RunPhase = "measured"
	x.Record(whole)
	paced := *whole
	paced.Flags = []string{"paced"}
	x.Record(&paced)
	x.Record(everything())
	x.Session(ses)
	flush(t, x)

	told := map[attribute.Key]bool{}
	for _, s := range c.spans() {
		for _, a := range s.Attributes {
			told[attribute.Key(a.Key)] = true
		}
		if !slices.ContainsFunc(spans, func(d Span) bool { return shape(s, d) }) {
			t.Errorf("no row for the span %q of kind %s", s.Name, s.Kind)
		}
		for _, e := range s.Events {
			if !slices.ContainsFunc(events, func(d SpanEvent) bool { return d.Name == e.Name }) {
				t.Errorf("no row for the event %q", e.Name)
			}
		}
	}
	for i := range metrics {
		d := &metrics[i]
		m := c.metric(d.Name)
		if m == nil {
			t.Errorf("%s was not told", d.Name)
			continue
		}
		keys := map[attribute.Key]bool{}
		for _, k := range attributesOf(t, m, d) {
			keys[k], told[k] = true, true
		}
		want := map[attribute.Key]bool{}
		for _, k := range d.Attributes {
			want[k] = true
		}
		if !maps.Equal(keys, want) {
			t.Errorf("%s has the attributes %v, the schema says %v", d.Name, keys, want)
		}
		if m.Unit != d.Unit {
			t.Errorf("%s is in %s, the schema says %s", d.Name, m.Unit, d.Unit)
		}
	}
	for _, a := range attributes {
		if !told[a.Key] && a.Key != keyBorrowed {
			t.Errorf("the schema has %s, which nothing tells", a.Key)
		}
		delete(told, a.Key)
	}
	if len(told) > 0 {
		t.Errorf("the schema lacks %v", told)
	}
	for _, r := range reasons {
		if !slices.ContainsFunc(drops, func(d Drop) bool { return d.Reason == r }) {
			t.Errorf("no row for the reason %s", r)
		}
	}
}

// shape reports whether a span is of a row.
func shape(s *tracepb.Span, d Span) bool {
	kind := map[tracepb.Span_SpanKind]string{tracepb.Span_SPAN_KIND_SERVER: "server", tracepb.Span_SPAN_KIND_INTERNAL: "internal"}[s.Kind]
	have, want := strings.Fields(s.Name), strings.Fields(d.Name)
	if kind != d.Kind || len(have) != len(want) {
		return false
	}
	for i := range want {
		if want[i] != have[i] && !strings.HasPrefix(want[i], "{") {
			return false
		}
	}
	return true
}

// attributesOf lists the attributes of all series, and checks kind and boundaries.
func attributesOf(t *testing.T, m *metricspb.Metric, d *Metric) (out []attribute.Key) {
	t.Helper()
	var kind Kind
	switch v := m.Data.(type) {
	case *metricspb.Metric_Histogram:
		kind = Histogram
		for _, p := range v.Histogram.DataPoints {
			if !slices.Equal(p.ExplicitBounds, d.Bounds) {
				t.Errorf("%s has the boundaries %v, the schema says %v", d.Name, p.ExplicitBounds, d.Bounds)
			}
			for _, a := range p.Attributes {
				out = append(out, attribute.Key(a.Key))
			}
		}
	case *metricspb.Metric_Sum:
		kind = Counter
		for _, p := range v.Sum.DataPoints {
			for _, a := range p.Attributes {
				out = append(out, attribute.Key(a.Key))
			}
		}
	case *metricspb.Metric_Gauge:
		kind = Gauge
	}
	if kind != d.Kind {
		t.Errorf("%s is %T, the schema says %s", d.Name, m.Data, d.Kind)
	}
	return out
}

// TestBoundariesAscend holds every list of boundaries.
func TestBoundariesAscend(t *testing.T) {
	for i := range metrics {
		if b := metrics[i].Bounds; !slices.IsSorted(b) || len(slices.Compact(slices.Clone(b))) != len(b) {
			t.Errorf("%s: %v", metrics[i].Name, b)
		}
	}
	for i := 4; i < len(latency); i++ {
		if r := latency[i] / latency[i-1]; r > 1.15 {
			t.Errorf("latency steps by %.3f at %g: p95 is not within 10 %%", r, latency[i])
		}
	}
	if s := fmt.Sprint(steps(0.01, 0.1, 5)); s != "[0.01 0.018 0.0315 0.056 0.1]" {
		t.Errorf("steps %s", s)
	}
}
