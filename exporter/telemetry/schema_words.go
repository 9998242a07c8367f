package telemetry

import (
	"slices"

	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
)

// Table is the schema.
func Table() Schema {
	return Schema{
		Spans: slices.Clone(spans), Events: slices.Clone(events), Statuses: slices.Clone(statuses), Attributes: slices.Clone(attributes),
		Metrics: slices.Clone(metrics[:]), Drops: slices.Clone(drops), VLLM: slices.Clone(counterparts),
	}
}

var spans = []Span{
	{"{flow}", "server", "t_in", "t_term, else t_close, else the last point", "a request; child of the client's traceparent"},
	{"{flow} turn", "server", "t_in", "t_term, else t_close, else the last point", "a turn of a session; linked to the session's span"},
	{"{flow} session", "server", "first byte of the upgrade", "end of the connection", "a WebSocket session; linked to its turns' spans, the first 128"},
	{"stage {stage}", "internal", "start_ns", "finish_ns", "a stage's work on a request, where both ends were seen"},
	{"transfer {from} → {to}", "internal", "the first hand-over's start", "the last one's end", "all hand-overs of a request on one edge and transport"},
}

var events = []SpanEvent{
	{eventText, "t_text", "the first text that is not empty"},
	{eventAudio, "t_audio", "the first playable sound"},
	{eventAudible, "t_audible", "the first sound above silence"},
}

var drops = []Drop{
	{QueueFull, "the queue held all that it may"},
	{NoClock, "nothing ties the record to the wall clock, or it has no point at all"},
	{Unreachable, "no connection to the collector, or it broke"},
	{TLS, "the collector's certificate, or that it speaks no TLS"},
	{Timeout, "no answer in time"},
	{Busy, "the collector went on asking to come again (429, 502, 503, 504)"},
	{Rejected, "the collector refused part of a batch"},
	{Failed, "any other answer"},
	{Shutdown, "the program ended before it was sent"},
	{Closed, "offered after the end"},
}

// Where attributes stand.
const (
	onEach    = "requests, turns, metrics"
	onRequest = "requests, turns"
	onStage   = "stages"
	onEdge    = "edges"
	onSession = "sessions"
	onMetrics = "metrics"
)

var attributes = []Attribute{
	{semconv.GenAIOperationNameKey, onEach, "chat, text_completion, generate_content, or the flow where the conventions have no word"},
	{semconv.GenAIProviderNameKey, onEach, "the dialect"},
	{semconv.GenAIRequestModelKey, onEach + ", " + onSession, "the model; in metrics the first 16 that succeeded, then other"},
	{semconv.GenAIRequestStreamKey, onRequest, "whether the answer came as a stream"},
	{semconv.GenAIResponseIDKey, onRequest, "the server's name of the request"},
	{semconv.GenAIConversationIDKey, onSession, "the server's name of the session"},
	{semconv.GenAIOutputTypeKey, onRequest, "speech where sound came, else text where text did"},
	{semconv.GenAIUsageOutputTokensKey, onRequest, "output tokens that the server declares"},
	{semconv.HTTPRequestMethodKey, onRequest, "the method"},
	{semconv.HTTPResponseStatusCodeKey, onRequest, "the status"},
	{semconv.URLPathKey, onRequest + ", " + onSession, "the path, without its query"},
	{semconv.ErrorTypeKey, onRequest, "the terminal state, where it is an error"},
	{keyFlow, onEach + ", " + onSession, "the flow"},
	{keyDialect, onEach + ", " + onSession, "the dialect"},
	{keyVariant, onRequest + ", " + onSession, "the form on the wire"},
	{keyRequest, onRequest, "the request's id"},
	{keySession, onRequest + ", " + onSession, "the session's id"},
	{keyTurn, onRequest, "the turn's number, from 0"},
	{keyAttempt, onRequest, "place in a group of retries, where it is not the first"},
	{keyConnection, onRequest + ", " + onSession, "the connection's number"},
	{keyRun, onRequest, "the run"},
	{keyPhase, onEach, "warmup, measured or cooldown; only in a run"},
	{keyState, onEach, "the terminal state"},
	{keyReason, onRequest, "its reason"},
	{keyEndPhase, onRequest, "how far it had come"},
	{keyBy, onRequest, "who ended it"},
	{keyZero, onEach, "which event t_in is"},
	{keyPaced, onMetrics, "true where the server paced its output: the figure is the pacer's"},
	{keyUnit, onEach, "token or delta"},
	{keyUnits, onRequest, "text units that came"},
	{keyDuration, onRequest, "seconds of sound"},
	{keySamples, onRequest, "sample frames"},
	{keyRate, onRequest, "sample rate in Hz, as declared or configured"},
	{keyAssumed, onRequest, "sample rate in Hz that was assumed"},
	{keyChunks, onRequest, "chunks of sound"},
	{keyRTF, onRequest, "JCT over seconds of sound"},
	{keyUnderruns, onRequest, "times that a player without prebuffer would have run dry"},
	{keyStall, onRequest, "seconds that it would have stood still"},
	{keyQuality, onRequest, "passed, failed or not_measured"},
	{keyAnalysis, onRequest, "how much of it could be read"},
	{keyDelay, onRequest, "largest own delay of a chunk, seconds"},
	{keyFlags, onRequest + ", " + onSession, "the record's flags"},
	{keyUnmeasured, onRequest + ", " + onStage + ", " + onEdge, "name and reason of each span, event or end that is missing"},
	{keyBorrowed, onRequest, "true where times are by an earlier record's pair of clocks"},
	{keyOmitted, onRequest, "stages and edges beyond the 64 that a request may have"},
	{keyStage, onStage + ", " + onMetrics, "the stage"},
	{keyWait, onStage, "wait before it, seconds"},
	{keyQueue, onStage, "of that in its scheduler's queue, seconds"},
	{keyCPU, onStage, "processor time, seconds"},
	{keyRunq, onStage, "waiting for a processor, seconds"},
	{keySteps, onStage, "steps"},
	{keyBatch, onStage, "mean of requests in a step"},
	{semconv.ProcessPIDKey, onStage, "the process"},
	{keyMatch, onStage + ", " + onEdge, "how it was tied to the request"},
	{keyConfidence, onStage + ", " + onEdge, "0 to 1; of an edge the least"},
	{keyEdge, onEdge + ", " + onMetrics, "FROM→TO"},
	{keyTransport, onEdge + ", " + onMetrics, "the way"},
	{keyTransfers, onEdge, "hand-overs"},
	{keyBytes, onEdge, "bytes of those that state them"},
	{keyBusy, onEdge, "sum of their times, seconds"},
	{keyLongest, onEdge, "longest of their times, seconds"},
	{keyUnread, onEdge, "hand-overs that nobody received"},
	{keyTurns, onSession, "turns"},
	{keyClosedBy, onSession + ", " + onMetrics, "client, server, relay or unknown"},
	{keyCode, onSession, "the close frame's code"},
	{keyTransportBy, onSession, "how the connection ended: fin, rst, cut or open"},
	{keyInput, onSession, "seconds of sound that the client sent"},
	{keyStates, onSession, "how its turns ended, STATE=COUNT"},
	{keyDropped, onMetrics, "why it was dropped, as below"},
	{keySignal, onMetrics, "traces or metrics"},
}

// counterparts are the server's own metrics beside ours.
var counterparts = []Counterpart{
	{"vllm:time_to_first_token_seconds", "gen_ai.server.time_to_first_token, omnitap.time_to_first_text", "starts at the engine, after parsing and preprocessing; ours at the first byte of the request"},
	{"vllm:request_time_per_output_token_seconds", "gen_ai.server.time_per_output_token", "per token; ours per the unit that is named"},
	{"vllm:e2e_request_latency_seconds", "omnitap.stage.service", "of one stage's engine, not of the request"},
	{"vllm:request_queue_time_seconds", "omnitap.stage.wait", "the scheduler's queue alone; ours from the input lying ready"},
	{"vllm_omni:e2e_request_latency_s", "gen_ai.server.request.duration, omnitap.request.duration", "ends inside the server; ours when the answer was read, and successes only"},
	{"vllm_omni:requests_success_total, vllm_omni:requests_failed", "omnitap.requests", "an answer cut off by its client counts as an abort that succeeded; ours by terminal state"},
	{"vllm_omni:generation_tokens_total", "–", "tokens that a request declares stand on its span"},
	{"vllm_omni:audio_ttfp_s", "omnitap.time_to_first_audio", "fires on the first event of type audio, even an empty one; ours on playable sound"},
	{"vllm_omni:audio_duration_s", "omnitap.audio.duration", "none: seconds of sound"},
	{"vllm_omni:audio_rtf", "omnitap.audio.rtf", "time inside the server over seconds of sound; ours JCT over them"},
	{"vllm_omni:audio_frames_total", "omnitap.audio.samples", "counts as mono 16-bit; ours sample frames as declared, of every record"},
	{"vllm_omni:audio_underrun_s", "omnitap.playback.stall", "largest lateness without moving the clock; ours the sum of stalls that move the rest"},
	{"vllm_omni:audio_continuity_ok_total", "omnitap.playback.underruns", "requests with a lateness up to 100 ms; ours times that playback ran dry"},
	{"vllm_omni:audio_skipped_requests_total", "omnitap.requests with a state other than success", "requests without sound that it tells of; ours with their states"},
	{"vllm_omni:stage_gen_time_s", "omnitap.stage.service", "told by the stage itself; ours seen from outside"},
	{"vllm_omni:request_queue_wait_s", "omnitap.stage.wait", "of the orchestrator; ours of each stage"},
	{"vllm_omni:transfer_size_bytes", "omnitap.transfer.size", "0 for some connectors; ours none where it is not stated"},
	{"vllm_omni:transfer_tx_s, vllm_omni:transfer_in_flight_s, vllm_omni:transfer_rx_s", "omnitap.transfer.duration", "three parts; ours all of it from the sender's start to the receiver's end"},
	{"vllm_omni:num_requests_running, vllm_omni:num_requests_waiting", "–", "the moment's state of the server; on omnitap's /metrics there is in-flight as seen from outside"},
}
