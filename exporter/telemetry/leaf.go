package telemetry

import (
	"slices"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// leaf is the span of a stage or an edge: what the SDK's own spans do for those who may
// still write to them costs more than all else of a tree. Resource and scope are those of
// the span it is embedded for, its parent.
type leaf struct {
	sdktrace.ReadOnlySpan // the parent

	name       string
	context    trace.SpanContext
	from, to   time.Time
	attributes []attribute.KeyValue
	dropped    int
}

// What follows is part of sdktrace.ReadOnlySpan.

func (l *leaf) Name() string                     { return l.name }
func (l *leaf) SpanContext() trace.SpanContext   { return l.context }
func (l *leaf) Parent() trace.SpanContext        { return l.ReadOnlySpan.SpanContext() }
func (*leaf) SpanKind() trace.SpanKind           { return trace.SpanKindInternal }
func (l *leaf) StartTime() time.Time             { return l.from }
func (l *leaf) EndTime() time.Time               { return l.to }
func (l *leaf) Attributes() []attribute.KeyValue { return l.attributes }
func (*leaf) Links() []sdktrace.Link             { return nil }
func (*leaf) Events() []sdktrace.Event           { return nil }
func (*leaf) Status() sdktrace.Status            { return sdktrace.Status{} }
func (l *leaf) DroppedAttributes() int           { return l.dropped }
func (*leaf) DroppedLinks() int                  { return 0 }
func (*leaf) DroppedEvents() int                 { return 0 }
func (*leaf) ChildSpanCount() int                { return 0 }

// within gives a leaf attributes, by the limits of the environment.
func (l *leaf) within(limits *sdktrace.SpanLimits, attrs []attribute.KeyValue) {
	if n := limits.AttributeCountLimit; n >= 0 && n < len(attrs) {
		l.dropped, attrs = len(attrs)-n, attrs[:n]
	}
	l.attributes = slices.Clone(attrs)
	if n := limits.AttributeValueLengthLimit; n >= 0 {
		for i := range l.attributes {
			shorten(&l.attributes[i], n)
		}
	}
}

// shorten bounds texts to n characters each.
func shorten(a *attribute.KeyValue, n int) {
	switch a.Value.Type() {
	case attribute.STRING:
		a.Value = attribute.StringValue(first(a.Value.AsString(), n))
	case attribute.STRINGSLICE:
		list := a.Value.AsStringSlice() // a copy
		for i := range list {
			list[i] = first(list[i], n)
		}
		a.Value = attribute.StringSliceValue(list)
	default: // numbers
	}
}

// first is the first n characters of a text.
func first(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	end := 0
	for range n {
		_, size := utf8.DecodeRuneInString(s[end:])
		end += size
	}
	return s[:end]
}
