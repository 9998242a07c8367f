// Package telemetry tells OpenTelemetry of finished requests: a tree of a few spans for
// each request, turn and session, and metrics. It takes records of proxy/timeline and
// makes no figure of its own.
//
// # Off by default
//
// Nothing is made and nothing is dialled unless the environment asks for it (Asked). What
// the SDK and its exporters read from OTEL_* they read themselves: sampler, resource,
// protocol, headers, TLS, timeouts, sizes of batches.
//
// # Cost and loss
//
//	Record ─► metrics (in memory)
//	   └────► sampled? ─► room? ─► spans ─► queue ─► feeder ─► SDK's batcher ─► collector
//
// The sampler is asked before anything is built, and the queue before anything more is.
// Whoever calls Record never waits for a collector: what has no room is dropped and
// counted. Of the records offered each is unsampled, pending, exported or dropped for one
// reason (Stats). The queue holds at most Config.Queue spans, the batcher OTEL_BSP_* of
// them: that is all the memory that a collector which hangs can cost.
//
// # Spans
//
// Times are wall clock by the record's own pair of clocks. A stage has a span where both
// its ends were seen, an edge between two stages one from its first hand-over to the end
// of its last one: there is never a span a chunk. What is not known has no span and no
// event, but its reason in omnitap.unmeasured.
//
// # Out of scope
//
// No logs signal, no spans of the relay itself, no propagation: traceparent passes through
// the relay untouched. Prometheus' own endpoint is exporter/prometheus.
package telemetry
