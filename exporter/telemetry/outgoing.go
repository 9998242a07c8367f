package telemetry

import (
	"slices"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// outgoing is a span as it is handed on. The SDK begins the span of each record: it asks
// the sampler, draws the ids, and knows resource and scope. Its spans can do more, for those
// who write to them at any time, and that costs more than all that a tree needs. (Attributes
// that a sampler adds are not taken over: none of those that the environment can name does.)
type outgoing struct {
	sdktrace.ReadOnlySpan // the record's own, by the SDK

	name            string
	kind            trace.SpanKind
	context, parent trace.SpanContext
	from, to        time.Time
	attributes      []attribute.KeyValue
	events          []sdktrace.Event
	links           []sdktrace.Link
	status          sdktrace.Status
	children        int
	dropped         struct{ attributes, events, links int } // by the limits of the environment
}

// What follows is part of sdktrace.ReadOnlySpan.

func (x *outgoing) Name() string                     { return x.name }
func (x *outgoing) SpanKind() trace.SpanKind         { return x.kind }
func (x *outgoing) SpanContext() trace.SpanContext   { return x.context }
func (x *outgoing) Parent() trace.SpanContext        { return x.parent }
func (x *outgoing) StartTime() time.Time             { return x.from }
func (x *outgoing) EndTime() time.Time               { return x.to }
func (x *outgoing) Attributes() []attribute.KeyValue { return x.attributes }
func (x *outgoing) Events() []sdktrace.Event         { return x.events }
func (x *outgoing) Links() []sdktrace.Link           { return x.links }
func (x *outgoing) Status() sdktrace.Status          { return x.status }
func (x *outgoing) DroppedAttributes() int           { return x.dropped.attributes }
func (x *outgoing) DroppedEvents() int               { return x.dropped.events }
func (x *outgoing) DroppedLinks() int                { return x.dropped.links }
func (x *outgoing) ChildSpanCount() int              { return x.children }

var _ sdktrace.ReadOnlySpan = (*outgoing)(nil)

// take gives the span the attributes of a set, which it gives back.
func (x *outgoing) take(s *set, limits *sdktrace.SpanLimits) {
	defer s.done()
	attrs := *s
	if n := limits.AttributeCountLimit; n >= 0 && n < len(attrs) {
		x.dropped.attributes, attrs = len(attrs)-n, attrs[:n]
	}
	x.attributes = slices.Clone(attrs)
	if n := limits.AttributeValueLengthLimit; n >= 0 {
		for i := range x.attributes {
			shorten(&x.attributes[i], n)
		}
	}
}

// bound keeps the last events and links, as many as the limits allow.
func (x *outgoing) bound(limits *sdktrace.SpanLimits) {
	x.events, x.dropped.events = lastOf(x.events, limits.EventCountLimit)
	x.links, x.dropped.links = lastOf(x.links, limits.LinkCountLimit)
}

func lastOf[T any](list []T, n int) (kept []T, dropped int) {
	if n < 0 || n >= len(list) {
		return list, 0
	}
	return list[len(list)-n:], len(list) - n
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
