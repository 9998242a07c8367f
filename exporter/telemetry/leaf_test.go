package telemetry

import (
	"reflect"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// TestLeafLimits: what the environment bounds of spans it bounds of leaves as of the SDK's
// own.
func TestLeafLimits(t *testing.T) {
	attrs := []attribute.KeyValue{
		attribute.String("a", "héllo wörld"), attribute.StringSlice("b", []string{"short", "ünd lang", ""}), attribute.Int("c", 123456789),
		attribute.Float64("d", 1.5), attribute.String("e", "xyz"), attribute.String("f", "日本語日本語"),
	}
	for _, c := range []struct{ count, length string }{{"", ""}, {"3", ""}, {"0", ""}, {"-1", ""}, {"", "5"}, {"", "0"}, {"", "-1"}, {"5", "2"}} {
		t.Run(c.count+"/"+c.length, func(t *testing.T) {
			for name, v := range map[string]string{"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": c.count, "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": c.length} {
				if v != "" {
					t.Setenv(name, v)
				}
			}
			x := toNowhere(t, false)
			_, own := x.spans.tracer.Start(t.Context(), "own")
			own.SetAttributes(attrs...)
			own.End()
			want := own.(sdktrace.ReadOnlySpan)
			var l leaf
			l.within(&x.spans.limits, attrs)
			if got := want.Attributes(); len(got)+len(l.Attributes()) > 0 && !reflect.DeepEqual(l.Attributes(), got) {
				t.Errorf("attributes %v, the SDK's %v", l.Attributes(), got)
			}
			if got := want.DroppedAttributes(); l.DroppedAttributes() != got {
				t.Errorf("%d attributes dropped, by the SDK %d", l.DroppedAttributes(), got)
			}
		})
	}
	if s := attrs[1].Value.AsStringSlice(); s[1] != "ünd lang" {
		t.Errorf("what was given is %q now", s)
	}
}
