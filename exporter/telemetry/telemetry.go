package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	metricapi "go.opentelemetry.io/otel/metric"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// ShutdownBound is the longest that Shutdown takes, whatever a collector does.
const ShutdownBound = 5 * time.Second

// Traces end at tracesBound of it, metrics at metricsBound: what is left is for letting go.
const (
	tracesBound  = 3 * time.Second
	metricsBound = 4500 * time.Millisecond
)

// Scope is the name of the instrumentation scope.
const Scope = "github.com/omnitap/omnitap/exporter/telemetry"

// Config is what the environment does not say. The zero value of each field means its
// default.
type Config struct {
	// Version is omnitap's own.
	Version string
	// Log is told once that exports fail, and once that they do again; nil for nobody.
	Log *slog.Logger
	// Queue bounds the spans that wait ahead of the SDK's batcher: 8192, about 20 MiB.
	Queue int
	// Parents knows the trace context of clients; nil for what records hold.
	Parents Parents

	key  *key          // of ids, drawn where nil
	draw func() uint64 // random numbers where nil
}

// Exporter sends records to OpenTelemetry. It is a timeline.Sink, for any number of
// goroutines, and keeps nothing of what it is given.
type Exporter struct {
	log    *slog.Logger
	ledger *ledger

	spans   *spanner // nil without traces
	courier *courier
	batcher sdktrace.SpanProcessor
	fed     chan struct{} // closed when the feeder has ended

	meters  *meters // nil without metrics
	metrics *sdkmetric.MeterProvider

	once  sync.Once
	ended error // of Shutdown, once it was
}

// New makes the providers that are asked for and starts their goroutines, which Shutdown
// ends. It dials nothing yet. It sets the process-wide error handler and logger of
// OpenTelemetry: the SDK tells what it cannot read in OTEL_* and each failed export of
// metrics there alone. It fails on a name of an exporter or protocol that is none.
func New(ctx context.Context, cfg Config, asked Asked) (*Exporter, error) {
	x := &Exporter{log: cfg.Log, ledger: newLedger()}
	if x.log == nil {
		x.log = slog.New(slog.DiscardHandler)
	}
	otel.SetErrorHandler(&faults{ledger: x.ledger, log: x.log})
	otel.SetLogger(logr.FromSlogHandler(x.log.Handler()))
	res, err := describe(ctx, cfg.Version)
	if err != nil {
		x.log.Warn("the resource is told in part", "error", err)
	}
	if asked.Traces {
		if err := x.trace(ctx, cfg, res); err != nil {
			return nil, fmt.Errorf("exporter of traces: %w", err)
		}
	}
	if asked.Metrics {
		if err := x.measure(ctx, cfg, res, asked.Traces); err != nil {
			return nil, errors.Join(fmt.Errorf("exporter of metrics: %w", err), x.Shutdown(ctx))
		}
	}
	return x, nil
}

// describe is the resource: what the environment says goes before ours.
func describe(ctx context.Context, version string) (*resource.Resource, error) {
	own := []resource.Option{
		resource.WithAttributes(semconv.ServiceName("omnitap"), semconv.ServiceVersion(version)),
		resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv(),
	}
	return resource.New(ctx, own...)
}

// trace makes the exporter of spans.
func (x *Exporter) trace(ctx context.Context, cfg Config, res *resource.Resource) error {
	to, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return err
	}
	x.route(cfg, res, to)
	return nil
}

// route makes the way of spans to an exporter.
func (x *Exporter) route(cfg Config, res *resource.Resource, to sdktrace.SpanExporter) {
	gen, k := drawn, newKey()
	if cfg.draw != nil {
		gen = generator{cfg.draw}
	}
	if cfg.key != nil {
		k = *cfg.key
	}
	var parents Parents = told{}
	if cfg.Parents != nil {
		parents = cfg.Parents
	}
	limit := cfg.Queue
	if limit <= 0 {
		limit = 8192
	}
	// The resource is the provider's, and no processor: spans go by hand into the queue.
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithIDGenerator(gen), sdktrace.WithoutPanicRecording())
	x.courier = newCourier(to, x.ledger, x.log)
	x.batcher = sdktrace.NewBatchSpanProcessor(x.courier, sdktrace.WithBlocking())
	x.fed = make(chan struct{})
	x.spans = &spanner{
		tracer: provider.Tracer(Scope, trace.WithInstrumentationVersion(cfg.Version), trace.WithSchemaURL(semconv.SchemaURL)),
		ids:    gen.span,
		limits: sdktrace.NewSpanLimits(),
		key:    k, parents: parents, queue: newQueue(limit), ledger: x.ledger,
	}
	go x.feed()
}

// feed hands trees to the batcher, and waits for it: nobody waits for feed.
func (x *Exporter) feed() {
	defer close(x.fed)
	for {
		t := x.spans.queue.take()
		if t == nil {
			return
		}
		for _, s := range t {
			x.batcher.OnEnd(s)
		}
	}
}

// measure makes the instruments.
func (x *Exporter) measure(ctx context.Context, cfg Config, res *resource.Resource, traces bool) error {
	reader, err := autoexport.NewMetricReader(ctx)
	if err != nil {
		return err
	}
	return x.collect(cfg, res, reader, traces)
}

func (x *Exporter) collect(cfg Config, res *resource.Resource, reader sdkmetric.Reader, traces bool) (err error) {
	opts := []sdkmetric.Option{
		sdkmetric.WithResource(res), sdkmetric.WithReader(reader),
		sdkmetric.WithView(sdkmetric.NewView(
			sdkmetric.Instrument{Name: "omnitap.*", Scope: instrumentation.Scope{Name: Scope}},
			sdkmetric.Stream{ExemplarReservoirProviderSelector: sparse})),
	}
	if os.Getenv("OTEL_GO_X_CARDINALITY_LIMIT") == "" {
		opts = append(opts, sdkmetric.WithCardinalityLimit(maxSeries))
	}
	x.metrics = sdkmetric.NewMeterProvider(opts...)
	own := x.ledger
	if !traces {
		own = nil
	}
	x.meters, err = newMeters(x.metrics.Meter(Scope, metricapi.WithInstrumentationVersion(cfg.Version), metricapi.WithSchemaURL(semconv.SchemaURL)), own)
	return err
}

// Event is part of timeline.Sink: events are not told one by one.
func (*Exporter) Event(*timeline.Event) {}

// Record is part of timeline.Sink.
func (x *Exporter) Record(r *timeline.Record) {
	ctx := context.Background()
	if x.spans != nil {
		ctx = x.spans.record(r)
	}
	if x.meters != nil {
		x.meters.record(ctx, r)
	}
}

// Session is part of timeline.Sink.
func (x *Exporter) Session(s *timeline.Session) {
	if x.spans != nil {
		x.spans.session(s)
	}
	if x.meters != nil {
		x.meters.session(context.Background(), s)
	}
}

// Stats counts what became of what was offered.
func (x *Exporter) Stats() Stats { return x.ledger.snapshot() }

// Flush has everything that was offered exported, or ends with ctx.
func (x *Exporter) Flush(ctx context.Context) error {
	var errs []error
	if x.spans != nil {
		if err := x.spans.queue.drained(ctx); err != nil {
			return err
		}
		errs = append(errs, x.batcher.ForceFlush(ctx))
	}
	if x.metrics != nil {
		errs = append(errs, x.metrics.ForceFlush(ctx))
	}
	return errors.Join(errs...)
}

// Shutdown exports what waits, ends everything and counts what is lost by it. It takes
// ShutdownBound at most, less if ctx ends before. Later records are dropped and counted,
// later calls wait for the first and return its error.
func (x *Exporter) Shutdown(ctx context.Context) error {
	x.once.Do(func() { x.ended = x.shutdown(ctx) })
	return x.ended
}

func (x *Exporter) shutdown(ctx context.Context) error {
	begun := time.Now()
	ctx, cancel := context.WithDeadline(ctx, begun.Add(ShutdownBound))
	defer cancel()
	var errs []error
	if x.spans != nil {
		errs = append(errs, x.endTraces(ctx, begun.Add(tracesBound)))
	}
	if x.metrics != nil {
		errs = append(errs, x.endMetrics(ctx, begun.Add(metricsBound)))
	}
	return errors.Join(errs...)
}

// endTraces lets exports go on until the deadline, then ends them: what the batcher
// still holds passes the courier at once and is counted.
func (x *Exporter) endTraces(ctx context.Context, deadline time.Time) error {
	patient, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	stop := context.AfterFunc(patient, x.courier.end)
	defer stop()
	defer x.courier.quiet.end()
	x.spans.queue.close()
	select {
	case <-x.fed:
	case <-ctx.Done():
		return fmt.Errorf("ending the export of traces: %w", ctx.Err())
	}
	err := x.batcher.Shutdown(ctx)
	if patient.Err() != nil && err == nil {
		err = patient.Err()
	}
	x.courier.end()
	if err != nil {
		return fmt.Errorf("ending the export of traces: %w", err)
	}
	return nil
}

// endMetrics exports metrics a last time. The wait is ours: not every exporter heeds ctx.
func (x *Exporter) endMetrics(ctx context.Context, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	done := make(chan error, 1)
	go x.shutMetrics(ctx, done)
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		x.ledger.failed(Metrics)
		return fmt.Errorf("ending the export of metrics: %w", err)
	}
	return nil
}

func (x *Exporter) shutMetrics(ctx context.Context, done chan<- error) {
	done <- x.metrics.Shutdown(ctx)
}

var _ timeline.Sink = (*Exporter)(nil)
