package telemetry

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// Parents tells the trace context that a client sent with a request, as the W3C header
// fields traceparent and tracestate, empty for none. Turns have that of the request that
// opened their session, as the session itself has.
type Parents interface {
	OfRecord(*timeline.Record) (traceparent, tracestate string)
	OfSession(*timeline.Session) (traceparent, tracestate string)
}

// told is the trace context that records and sessions hold themselves.
type told struct{}

func (told) OfRecord(r *timeline.Record) (parent, state string)   { return r.Traceparent, "" }
func (told) OfSession(s *timeline.Session) (parent, state string) { return s.Traceparent, "" }

// key makes the ids of sessions and turns. They are derived, not drawn: a turn links to
// its session before that has a span, a session to turns whose records come after it, and
// nothing must be kept for either.
type key [16]byte

// ids are those of one span.
type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

// session returns the ids of a session's span.
func (k key) session(connection uint64, id string) (x ids) {
	b := append(make([]byte, 0, 96), k[:]...)
	b = binary.LittleEndian.AppendUint64(b, connection)
	sum := sha256.Sum256(append(b, id...))
	copy(x.trace[:], sum[:])
	copy(x.span[:], sum[16:])
	return x
}

// turn returns the ids of a turn's span. The second half of its trace's id is the
// session's: samplers that go by the id, and they take that half, say the same of both.
func (k key) turn(session ids, n int) (x ids) {
	b := append(make([]byte, 0, 64), k[:]...)
	b = append(b, session.trace[:]...)
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64(b, uint64(n)))
	copy(x.trace[:8], sum[:])
	copy(x.trace[8:], session.trace[8:])
	copy(x.span[:], sum[16:])
	return x
}

// within is the context of a span whose ids are x, in the client's trace where there is one.
func (x ids) within(parent trace.SpanContext) trace.SpanContext {
	if parent.IsValid() {
		x.trace = parent.TraceID()
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: x.trace, SpanID: x.span, TraceFlags: trace.FlagsSampled})
}

// wanted carries ids to the generator.
type wanted struct{}

// generator draws ids, and uses those that the context wants.
type generator struct{ draw func() uint64 }

// NewIDs is part of sdktrace.IDGenerator.
func (g generator) NewIDs(ctx context.Context) (t trace.TraceID, s trace.SpanID) {
	if x, ok := ctx.Value(wanted{}).(ids); ok {
		return x.trace, x.span
	}
	for !t.IsValid() {
		binary.LittleEndian.PutUint64(t[:8], g.draw())
		binary.LittleEndian.PutUint64(t[8:], g.draw())
	}
	return t, g.span()
}

// NewSpanID is part of sdktrace.IDGenerator.
func (g generator) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if x, ok := ctx.Value(wanted{}).(ids); ok {
		return x.span
	}
	return g.span()
}

func (g generator) span() (s trace.SpanID) {
	for !s.IsValid() {
		binary.LittleEndian.PutUint64(s[:], g.draw())
	}
	return s
}

var _ sdktrace.IDGenerator = generator{}

// drawn is the generator of every day.
var drawn = generator{rand.Uint64}

// newKey draws a key: ids of two processes must not be alike.
func newKey() (k key) {
	binary.LittleEndian.PutUint64(k[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(k[8:], rand.Uint64())
	return k
}

// fields are the client's header fields as the propagator reads them.
type fields struct{ parent, state string }

func (f fields) Get(name string) string {
	switch name {
	case "traceparent":
		return f.parent
	case "tracestate":
		return f.state
	}
	return ""
}

func (fields) Set(string, string) {}
func (fields) Keys() []string     { return nil }

// under puts the client's span into ctx, where the fields name one.
func under(ctx context.Context, parent, state string) context.Context {
	if parent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, fields{parent, state})
}
