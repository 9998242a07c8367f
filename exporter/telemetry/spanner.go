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
	limits  sdktrace.SpanLimits // of the environment
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
	own := s.begin(s.around(r), title(r))
	if !s.goes(own, timed && from != 0) {
		return context.Background()
	}
	b := builder{clock: c, limits: &s.limits, id: s.ids, own: own}
	b.children(r)
	x := b.root(title(r), from, to)
	b.request(x, r)
	if r.Turn != nil && r.SessionID != nil {
		ses := s.key.session(r.ConnectionID, *r.SessionID)
		parent := trace.SpanContextFromContext(s.client(s.parents.OfRecord(r)))
		x.links = []sdktrace.Link{{SpanContext: ses.within(parent)}}
	}
	if !s.hand(b.close(x)) {
		return context.Background()
	}
	return trace.ContextWithSpanContext(context.Background(), x.context)
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
	own := s.begin(context.WithValue(client, wanted{}, id), x.Flow+" session")
	if !s.goes(own, timed && mono != nil) {
		return
	}
	b := builder{clock: c, limits: &s.limits, own: own}
	out := b.root(x.Flow+" session", x.OpenedMonoNS, x.OpenedMonoNS+int64(x.DurationMS*1e6))
	attrs := borrow()
	sessionAttributes(attrs, x)
	out.take(attrs, b.limits)
	parent := trace.SpanContextFromContext(client)
	for n := range min(x.Turns, maxLinks) {
		out.links = append(out.links, sdktrace.Link{SpanContext: s.key.turn(id, n).within(parent)})
	}
	s.hand(b.close(out))
}

// begin has the SDK begin a record's own span: nil where it is not sampled. The provider
// has no processor: that span goes nowhere by itself.
func (s *spanner) begin(ctx context.Context, name string) sdktrace.ReadOnlySpan {
	_, span := s.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
	span.End()
	own, ok := span.(sdktrace.ReadOnlySpan)
	if !ok || !own.SpanContext().IsSampled() {
		return nil
	}
	return own
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
func (s *spanner) goes(own sdktrace.ReadOnlySpan, timed bool) bool {
	switch room := s.queue.room(); {
	case own == nil:
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
	own     sdktrace.ReadOnlySpan // the record's, by the SDK
	done    tree
	leaves  []outgoing // done points into it: it never grows beyond its first room
	omitted int
	unknown []string // NAME: REASON of what has no span
}

// root is the tree's own span.
func (b *builder) root(name string, from, to int64) *outgoing {
	return &outgoing{
		ReadOnlySpan: b.own, name: name, kind: trace.SpanKindServer, context: b.own.SpanContext(), parent: b.own.Parent(),
		from: b.clock.at(from), to: b.clock.at(max(from, to)),
	}
}

// close ends the tree with its own span.
func (b *builder) close(x *outgoing) tree {
	x.bound(b.limits)
	x.children = len(b.done)
	b.done = append(b.done, x)
	return b.done
}

// child adds a span with the attributes of a set, which it gives back.
func (b *builder) child(name string, from, to int64, s *set) {
	own := b.own.SpanContext()
	b.leaves = append(b.leaves, outgoing{
		ReadOnlySpan: b.own, name: name, kind: trace.SpanKindInternal, context: own.WithSpanID(b.id()), parent: own,
		from: b.clock.at(from), to: b.clock.at(max(from, to)),
	})
	x := &b.leaves[len(b.leaves)-1]
	x.take(s, b.limits)
	b.done = append(b.done, x)
}
