package telemetry

import (
	"context"
	"errors"
	"log/slog"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// courier hands batches to the exporter and counts what becomes of them. It never fails:
// the batcher drops a batch after an error as after a success, and would log each one.
type courier struct {
	to     sdktrace.SpanExporter
	quiet  *quiet
	ledger *ledger
	log    *slog.Logger
	// over ends exports that are under way, and all later ones at once.
	over context.Context
	end  context.CancelFunc
}

func newCourier(to sdktrace.SpanExporter, l *ledger, log *slog.Logger) *courier {
	c := &courier{to: to, quiet: newQuiet(), ledger: l, log: log}
	c.over, c.end = context.WithCancel(context.Background())
	return c
}

// ExportSpans is part of sdktrace.SpanExporter.
func (c *courier) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	records := 0
	for _, s := range spans {
		if s.SpanKind() == trace.SpanKindServer { // the record's own; all others are internal
			records++
		}
	}
	c.quiet.run(func() { c.settle(c.try(ctx, spans), records, len(spans)) })
	return nil
}

// try hands a batch on, until ctx ends or the courier.
func (c *courier) try(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if c.over.Err() != nil {
		return errOver
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(c.over, cancel)
	defer stop()
	err := c.to.ExportSpans(ctx, spans)
	if err != nil && c.over.Err() != nil {
		return errOver
	}
	return err
}

var errOver = errors.New("the export was ended")

// settle counts a batch.
func (c *courier) settle(err error, records, spans int) {
	if err == nil {
		c.ledger.exported(records, spans)
		c.resumed()
		return
	}
	if errors.Is(err, errOver) {
		c.ledger.dropped(Shutdown, records, spans)
		return
	}
	c.ledger.failed(Traces)
	if n, ok := refusedPart(err); ok { // which ones is not told: a record counts as lost as long as it may be
		n = min(n, spans)
		lost := min(n, records)
		c.ledger.exported(records-lost, spans-n)
		c.ledger.dropped(Rejected, lost, n)
		c.failing(Rejected, err)
		return
	}
	r := why(err)
	c.ledger.dropped(r, records, spans)
	c.failing(r, err)
}

// failing says once that exports fail, until one does not.
func (c *courier) failing(r Reason, err error) {
	if c.ledger.turned(r) == "" {
		c.log.Warn("traces cannot be exported: they are dropped and counted until they can", "reason", r, "error", err)
	}
}

func (c *courier) resumed() {
	if before := c.ledger.turned(""); before != "" {
		s := c.ledger.snapshot()
		c.log.Info("traces are exported again", "reason", before, "records_dropped", s.Records.Lost())
	}
}

// Shutdown is part of sdktrace.SpanExporter.
func (c *courier) Shutdown(ctx context.Context) error { return c.to.Shutdown(ctx) }

var _ sdktrace.SpanExporter = (*courier)(nil)
