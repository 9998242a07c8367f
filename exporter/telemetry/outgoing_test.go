package telemetry

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// TestLimits: what the environment bounds of spans it bounds of ours as of the SDK's own.
func TestLimits(t *testing.T) {
	attrs := []attribute.KeyValue{
		attribute.String("a", "héllo wörld"), attribute.StringSlice("b", []string{"short", "ünd lang", ""}), attribute.Int("c", 123456789),
		attribute.Float64("d", 1.5), attribute.String("e", "xyz"), attribute.String("f", "日本語日本語"),
	}
	for _, c := range [][]string{
		{},
		{"ATTRIBUTE_COUNT", "3"},
		{"ATTRIBUTE_COUNT", "0"},
		{"ATTRIBUTE_COUNT", "-1"},
		{"ATTRIBUTE_VALUE_LENGTH", "5"},
		{"ATTRIBUTE_VALUE_LENGTH", "0"},
		{"ATTRIBUTE_VALUE_LENGTH", "-1"},
		{"ATTRIBUTE_COUNT", "5", "ATTRIBUTE_VALUE_LENGTH", "2"},
		{"EVENT_COUNT", "2"},
		{"EVENT_COUNT", "0"},
		{"EVENT_COUNT", "-1"},
		{"LINK_COUNT", "1"},
		{"LINK_COUNT", "0"},
		{"LINK_COUNT", "9"},
	} {
		t.Run(strings.Join(c, " "), func(t *testing.T) {
			for i := 0; i < len(c); i += 2 {
				t.Setenv("OTEL_SPAN_"+c[i]+"_LIMIT", c[i+1])
			}
			x := toNowhere(t, false)
			b := builder{limits: &x.spans.limits, own: x.spans.begin(t.Context(), "own")}
			got := b.root("own", 1, 2)
			_, own := x.spans.tracer.Start(t.Context(), "own")
			s := borrow()
			*s = append(*s, attrs...)
			got.take(s, b.limits)
			own.SetAttributes(attrs...)
			for _, name := range []string{"a", "b", "c"} {
				at := time.Unix(1, 0)
				got.events = append(got.events, sdktrace.Event{Name: name, Time: at})
				own.AddEvent(name, trace.WithTimestamp(at))
				l := trace.Link{SpanContext: ids{trace.TraceID{1}, trace.SpanID{name[0]}}.within(trace.SpanContext{})}
				got.links = append(got.links, sdktrace.Link{SpanContext: l.SpanContext})
				own.AddLink(l)
			}
			b.close(got)
			own.End()
			want := own.(sdktrace.ReadOnlySpan)
			if d := cmp.Diff(shown(want), shown(got)); d != "" {
				t.Errorf("(-the SDK's +ours)\n%s", d)
			}
		})
	}
}

// shown is what of a span limits bear on.
func shown(x sdktrace.ReadOnlySpan) map[string]any {
	attrs, events, links := map[string]any{}, []string{}, []string{}
	for _, a := range x.Attributes() {
		attrs[string(a.Key)] = a.Value.AsInterface()
	}
	for _, e := range x.Events() {
		events = append(events, e.Name)
	}
	for _, l := range x.Links() {
		links = append(links, l.SpanContext.SpanID().String())
	}
	return map[string]any{
		"attributes": attrs, "events": events, "links": links,
		"dropped": []int{x.DroppedAttributes(), x.DroppedEvents(), x.DroppedLinks()},
	}
}
