package telemetry

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"
)

// Schema is everything that the package tells: the code makes it from this, README
// describes it, and tests hold all three together.
type Schema struct {
	Spans      []Span
	Events     []SpanEvent
	Statuses   []Status
	Attributes []Attribute
	Metrics    []Metric
	Drops      []Drop
	VLLM       []Counterpart
}

// Span is one kind of span. {…} in a name stands for a value.
type Span struct{ Name, Kind, From, To, Meaning string }

// SpanEvent is an event of a request's span; Point is the record's point.
type SpanEvent struct{ Name, Point, Meaning string }

// Status is what a terminal state makes of a span.
type Status struct{ State, Status, ErrorType string }

// Attribute is an attribute; On says on which spans or metrics it stands.
type Attribute struct {
	Key         attribute.Key
	On, Meaning string
}

// Kind is a kind of instrument.
type Kind string

// The kinds.
const (
	Histogram Kind = "histogram"
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
)

// Of is what feeds a metric.
type Of string

// What feeds metrics. A failure never enters a latency, least of all as a zero.
const (
	// Success is first attempts that succeeded.
	Success Of = "success"
	// Every is records however they ended.
	Every Of = "every record"
	// Export is the export itself.
	Export Of = "export"
)

// Metric is one instrument.
type Metric struct {
	Name, Unit string
	Kind       Kind
	Of         Of
	Attributes []attribute.Key
	Meaning    string
	Bounds     []float64
}

// Drop is a reason for which items are dropped.
type Drop struct {
	Reason  Reason
	Meaning string
}

// Counterpart is a metric of the server beside ours, and how they differ.
type Counterpart struct{ Server, Ours, Difference string }

// Attributes of our own. Those of the semantic conventions come from their package.
const (
	keyFlow        attribute.Key = "omnitap.flow"
	keyDialect     attribute.Key = "omnitap.dialect"
	keyVariant     attribute.Key = "omnitap.dialect.variant"
	keyRequest     attribute.Key = "omnitap.request.id"
	keySession     attribute.Key = "omnitap.session.id"
	keyTurn        attribute.Key = "omnitap.turn"
	keyAttempt     attribute.Key = "omnitap.attempt"
	keyConnection  attribute.Key = "omnitap.connection.id"
	keyRun         attribute.Key = "omnitap.run.id"
	keyPhase       attribute.Key = "omnitap.run.phase"
	keyState       attribute.Key = "omnitap.terminal.state"
	keyReason      attribute.Key = "omnitap.terminal.reason"
	keyEndPhase    attribute.Key = "omnitap.terminal.phase"
	keyBy          attribute.Key = "omnitap.terminal.by"
	keyZero        attribute.Key = "omnitap.t_in.source"
	keyPaced       attribute.Key = "omnitap.paced"
	keyUnit        attribute.Key = "omnitap.text.unit"
	keyUnits       attribute.Key = "omnitap.text.units"
	keyDuration    attribute.Key = "omnitap.audio.duration"
	keySamples     attribute.Key = "omnitap.audio.samples"
	keyRate        attribute.Key = "omnitap.audio.sample_rate"
	keyAssumed     attribute.Key = "omnitap.audio.assumed_sample_rate"
	keyChunks      attribute.Key = "omnitap.audio.chunks"
	keyRTF         attribute.Key = "omnitap.audio.rtf"
	keyUnderruns   attribute.Key = "omnitap.playback.underruns"
	keyStall       attribute.Key = "omnitap.playback.stall"
	keyQuality     attribute.Key = "omnitap.quality"
	keyAnalysis    attribute.Key = "omnitap.analysis"
	keyDelay       attribute.Key = "omnitap.relay.delay.max"
	keyFlags       attribute.Key = "omnitap.flags"
	keyUnmeasured  attribute.Key = "omnitap.unmeasured"
	keyBorrowed    attribute.Key = "omnitap.clock.borrowed"
	keyOmitted     attribute.Key = "omnitap.spans.omitted"
	keyStage       attribute.Key = "omnitap.stage"
	keyWait        attribute.Key = "omnitap.stage.wait"
	keyQueue       attribute.Key = "omnitap.stage.queue"
	keyCPU         attribute.Key = "omnitap.stage.cpu"
	keyRunq        attribute.Key = "omnitap.stage.runq"
	keySteps       attribute.Key = "omnitap.stage.steps"
	keyBatch       attribute.Key = "omnitap.stage.batch.mean"
	keyMatch       attribute.Key = "omnitap.match"
	keyConfidence  attribute.Key = "omnitap.confidence"
	keyEdge        attribute.Key = "omnitap.edge"
	keyTransport   attribute.Key = "omnitap.transport"
	keyTransfers   attribute.Key = "omnitap.transfers"
	keyBytes       attribute.Key = "omnitap.transfer.bytes"
	keyBusy        attribute.Key = "omnitap.transfer.sum"
	keyLongest     attribute.Key = "omnitap.transfer.longest"
	keyUnread      attribute.Key = "omnitap.transfers.unread"
	keyTurns       attribute.Key = "omnitap.session.turns"
	keyClosedBy    attribute.Key = "omnitap.session.closed_by"
	keyCode        attribute.Key = "omnitap.session.close_code"
	keyTransportBy attribute.Key = "omnitap.session.ended"
	keyInput       attribute.Key = "omnitap.session.input_audio"
	keyStates      attribute.Key = "omnitap.session.states"
	keyDropped     attribute.Key = "omnitap.reason"
	keySignal      attribute.Key = "omnitap.signal"
)

// Names of events.
const (
	eventText    = "omnitap.first_text"
	eventAudio   = "omnitap.first_audio"
	eventAudible = "omnitap.first_audible"
)

// The instruments.
const (
	mGenDuration = iota
	mGenFirst
	mGenPerToken
	mText
	mAudio
	mAudible
	mDuration
	mSound
	mSamples
	mRTF
	mGapP95
	mGapMax
	mUnderruns
	mStall
	mRequests
	mSessions
	mDelayP50
	mDelayMax
	mWait
	mService
	mTransfer
	mSize
	mExported
	mDropped
	mPending
	mFailures
	nMetrics
)

// Attributes of several metrics.
var (
	byRequest = []attribute.Key{keyFlow, keyDialect, semconv.GenAIRequestModelKey, keyPhase}
	byZero    = append(byRequest[:4:4], keyZero)
	byPace    = append(byZero[:5:5], keyPaced)
	byStage   = append(byRequest[:4:4], keyStage)
	byEdge    = append(byRequest[:4:4], keyEdge, keyTransport)
	byState   = append(byRequest[:4:4], keyState)
	byGen     = []attribute.Key{semconv.GenAIOperationNameKey, semconv.GenAIProviderNameKey, semconv.GenAIRequestModelKey, keyFlow, keyPhase, keyZero}
	byGenPace = append(byGen[:6:6], keyPaced)
	byGenUnit = append(byGen[:6:6], keyUnit)
)

// metrics is every instrument, in README's order.
var metrics = [nMetrics]Metric{
	mGenDuration: {genaiconv.ServerRequestDuration{}.Name(), genaiconv.ServerRequestDuration{}.Unit(), Histogram, Success, byGenPace, "JCT: t_term − t_in", genDuration},
	mGenFirst:    {genaiconv.ServerTimeToFirstToken{}.Name(), genaiconv.ServerTimeToFirstToken{}.Unit(), Histogram, Success, byGen, "TTFT: t_text − t_in", genFirst},
	mGenPerToken: {genaiconv.ServerTimePerOutputToken{}.Name(), genaiconv.ServerTimePerOutputToken{}.Unit(), Histogram, Success, byGenUnit, "TPOT, by the unit that omnitap.text.unit names", genPerToken},
	mText:        {"omnitap.time_to_first_text", "s", Histogram, Success, byZero, "TTFT: t_text − t_in, finer", latency},
	mAudio:       {"omnitap.time_to_first_audio", "s", Histogram, Success, byZero, "TTFA: t_audio − t_in, the first playable sound", latency},
	mAudible:     {"omnitap.time_to_first_audible", "s", Histogram, Success, byZero, "t_audible − t_in, the first sound above silence", latency},
	mDuration:    {"omnitap.request.duration", "s", Histogram, Success, byPace, "JCT: t_term − t_in, finer", latency},
	mSound:       {"omnitap.audio.duration", "s", Histogram, Success, byRequest, "seconds of sound that came", work},
	mSamples:     {"omnitap.audio.samples", "{sample}", Counter, Every, byState, "sample frames that came", nil},
	mRTF:         {"omnitap.audio.rtf", "1", Histogram, Success, byPace, "JCT over seconds of sound", factor},
	mGapP95:      {"omnitap.audio.gap.p95", "s", Histogram, Success, byPace, "p95 of a request's gaps between chunks", gap},
	mGapMax:      {"omnitap.audio.gap.max", "s", Histogram, Success, byPace, "longest of a request's gaps between chunks", gap},
	mUnderruns:   {"omnitap.playback.underruns", "{underrun}", Counter, Success, byRequest, "times that a player without prebuffer would have run dry", nil},
	mStall:       {"omnitap.playback.stall", "s", Histogram, Success, byRequest, "how long that player would have stood still in a request; 0 is measured", stall},
	mRequests:    {"omnitap.requests", "{request}", Counter, Every, byState, "requests and turns by how they ended", nil},
	mSessions:    {"omnitap.sessions", "{session}", Counter, Every, []attribute.Key{keyFlow, keyDialect, keyClosedBy}, "WebSocket sessions that ended", nil},
	mDelayP50:    {"omnitap.relay.delay.p50", "s", Histogram, Every, []attribute.Key{keyFlow}, "median over a request's chunks of the delay that omnitap itself added", brief},
	mDelayMax:    {"omnitap.relay.delay.max", "s", Histogram, Every, []attribute.Key{keyFlow}, "largest of a request's chunks of the delay that omnitap itself added", brief},
	mWait:        {"omnitap.stage.wait", "s", Histogram, Success, byStage, "from a stage's input lying ready to its being taken up", work},
	mService:     {"omnitap.stage.service", "s", Histogram, Success, byStage, "from there to the stage's last output", work},
	mTransfer:    {"omnitap.transfer.duration", "s", Histogram, Success, byEdge, "one hand-over between two stages, where both ends were seen", brief},
	mSize:        {"omnitap.transfer.size", "By", Histogram, Every, byEdge, "bytes of one hand-over, where they are stated", size},
	mExported:    {"omnitap.export.records", "{record}", Counter, Export, nil, "records whose spans a collector took", nil},
	mDropped:     {"omnitap.export.dropped", "{record}", Counter, Export, []attribute.Key{keyDropped}, "sampled records whose spans were lost; all reasons from the start, at 0", nil},
	mPending:     {"omnitap.export.pending", "{record}", Gauge, Export, nil, "records whose spans wait", nil},
	mFailures:    {"omnitap.export.failures", "{export}", Counter, Export, []attribute.Key{keySignal}, "exports that failed", nil},
}

// statuses are what terminal states make of a span: what the client brought about is no
// error of the server. A 200 whose stream failed is one.
var statuses = []Status{
	{"success", "unset", ""},
	{"client-cancelled", "unset", ""},
	{"invalid-request", "unset", ""},
	{"any other", "error, with omnitap.terminal.reason", "the state"},
}
