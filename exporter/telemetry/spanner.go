package telemetry

import (
	"context"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// maxLinks is how many turns a session's span links to, the SDK's own limit.
const maxLinks = 128

// maxChildren is how many stages and edges of a request have spans.
const maxChildren = 64

// spanner builds trees and puts them into the queue.
type spanner struct {
	tracer  trace.Tracer
	ids     func() trace.SpanID // of children
	limits  sdktrace.SpanLimits // of children: the tracer knows them for itself
	key     key
	parents Parents
	queue   *queue
	ledger  *ledger
	clocks  clocks
}

// record builds the tree of a request or turn. It returns the context of its span where
// that goes out, for exemplars, else an empty one.
func (s *spanner) record(r *timeline.Record) context.Context {
	c, timed := s.clocks.of(r.Points.TIn, r.TInWallNS)
	from, to := extent(&r.Points)
	_, own := s.tracer.Start(s.around(r), title(r), trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(c.at(from)))
	if !s.goes(own, timed && from != 0) {
		return context.Background()
	}
	b := builder{clock: c, limits: &s.limits, id: s.ids}
	b.children(own, r)
	b.request(own, r)
	if r.Turn != nil && r.SessionID != nil {
		ses := s.key.session(r.ConnectionID, *r.SessionID)
		parent := trace.SpanContextFromContext(s.client(s.parents.OfRecord(r)))
		own.AddLink(trace.Link{SpanContext: ses.within(parent)})
	}
	if !s.hand(b.close(own, to)) {
		return context.Background()
	}
	return trace.ContextWithSpan(context.Background(), own)
}

// session builds the span of a session.
func (s *spanner) session(x *timeline.Session) {
	mono := &x.OpenedMonoNS
	if x.OpenedMonoNS == 0 {
		mono = nil
	}
	c, timed := s.clocks.of(mono, x.OpenedWallNS)
	id := s.key.session(x.ConnectionID, x.SessionID)
	client := s.client(s.parents.OfSession(x))
	_, own := s.tracer.Start(context.WithValue(client, wanted{}, id), x.Flow+" session",
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(c.at(x.OpenedMonoNS)))
	if !s.goes(own, timed && mono != nil) {
		return
	}
	b := builder{clock: c}
	attrs := borrow()
	sessionAttributes(attrs, x)
	attrs.into(own)
	parent := trace.SpanContextFromContext(client)
	for n := range min(x.Turns, maxLinks) {
		own.AddLink(trace.Link{SpanContext: s.key.turn(id, n).within(parent)})
	}
	s.hand(b.close(own, x.OpenedMonoNS+int64(x.DurationMS*1e6)))
}

// around is the context that a request's span begins in: the client's span, and for a
// turn its ids.
func (s *spanner) around(r *timeline.Record) context.Context {
	ctx := s.client(s.parents.OfRecord(r))
	if r.Turn == nil || r.SessionID == nil {
		return ctx
	}
	return context.WithValue(ctx, wanted{}, s.key.turn(s.key.session(r.ConnectionID, *r.SessionID), *r.Turn))
}

func (*spanner) client(parent, state string) context.Context {
	return under(context.Background(), parent, state)
}

// goes reports whether a span that was begun is worth building, and counts it where not.
func (s *spanner) goes(own trace.Span, timed bool) bool {
	switch room := s.queue.room(); {
	case !own.SpanContext().IsSampled():
		s.ledger.unsampled()
	case room != "":
		s.ledger.unbuilt(room)
	case !timed:
		s.ledger.unbuilt(NoClock)
	default:
		return true
	}
	return false
}

// hand puts a tree into the queue, or counts it as dropped. It is counted first: who
// takes it may be faster.
func (s *spanner) hand(t tree) bool {
	s.ledger.offered(len(t))
	if r := s.queue.put(t); r != "" {
		s.ledger.dropped(r, 1, len(t))
		return false
	}
	return true
}

// title names a request's span: flows are few.
func title(r *timeline.Record) string {
	if r.Turn != nil {
		return r.Flow + " turn"
	}
	return r.Flow
}

// extent is where a request's span begins and ends: t_in or without it the first point,
// t_term, or without it t_close, or without that the last point. 0 without any.
func extent(p *timeline.Points) (from, to int64) {
	for _, at := range [...]*int64{p.TIn, p.TBody, p.TUp, p.THdr, p.TText, p.TAudioEvent, p.TAudio, p.TAudible, p.TTerm, p.TClose} {
		if at != nil {
			to = max(to, *at)
			if from == 0 || *at < from {
				from = *at
			}
		}
	}
	if p.TIn != nil {
		from = *p.TIn
	}
	switch {
	case p.TTerm != nil:
		to = *p.TTerm
	case p.TClose != nil:
		to = *p.TClose
	}
	return from, max(from, to)
}

// builder builds one tree.
type builder struct {
	clock   clock
	limits  *sdktrace.SpanLimits
	id      func() trace.SpanID
	own     sdktrace.ReadOnlySpan // what children are below
	done    tree
	omitted int
	unknown []string // NAME: REASON of what has no span
}

// close ends the tree's own span. The SDK's own spans can be read: without a processor
// nobody else does.
func (b *builder) close(own trace.Span, mono int64) tree {
	own.End(trace.WithTimestamp(b.clock.at(mono)))
	if r, ok := own.(sdktrace.ReadOnlySpan); ok {
		b.done = append(b.done, r)
	}
	return b.done
}

// child adds a span with the attributes of a set, which it gives back.
func (b *builder) child(name string, from, to int64, s *set) {
	l := &leaf{ReadOnlySpan: b.own, name: name, from: b.clock.at(from), to: b.clock.at(max(from, to))}
	l.context = b.own.SpanContext().WithSpanID(b.id())
	l.within(b.limits, *s)
	s.done()
	b.done = append(b.done, l)
}
