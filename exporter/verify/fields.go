package verify

// why says of each place in a line of requests.jsonl what is done with it: "" for one
// that is derived again and compared, told for a description, a reason for one that
// the events do not hold enough for. A test holds the list to the schema: a field
// that is added has to be decided upon here. Flags are what the wire told, but for those
// that judge.flags, incremental and paced derive.
var why = map[string]string{
	"schema": "", "run_id": "", "run_phase": "", "attempt": "", "session_id": "", "request_id": "",

	"node": told, "request_id_source": told, "server_request_id": told, "traceparent": told, "connection_id": told, "turn": told, "flow": told, "dialect": told,
	"dialect_variant": told, "method": told, "path": told, "status": told, "model": told, "input_chars": told, "modalities[]": told,
	"stream": told, "t_in_source": told, "stamp": told, "text_unit": told, "declared_tokens": told, "analysis": told, "analysis_reason": told,
	"retry_of": told, "warnings[]": told, "unmeasured.*": told, "terminal.reason": told, "terminal.by": told, "terminal.evidence": told,
	"audio.container": told, "audio.encoding": told, "audio.sample_rate_source": told, "audio.channels_source": told, "audio.chunk_unit": told,
	"audio.declared_samples": told, "audio.declared_source": told, "input.sample_rate_source": told, "cancel.by": told,
	"stages[].stage": told, "stages[].node": told, "stages[].pid": told, "stages[].match": told, "stages[].confidence": told, "stages[].unmeasured.*": told,
	"transfers[].match": told, "transfers[].confidence": told, "transfers[].path": told, "critical_path[].gap": told,

	"t_in_wall_ns": "", "ttft_ms": "", "ttfa_ms": "", "ttfaudible_ms": "", "jct_ms": "", "rtf": "", "xrt": "", "tpot_ms": "", "audio_s": "",
	"points.t_in": "", "points.t_body": "", "points.t_up": "", "points.t_hdr": "", "points.t_text": "", "points.t_audio_event": "",
	"points.t_audio": "", "points.t_audible": "", "points.t_term": "", "points.t_close": "",
	"offsets.t_in": "", "offsets.t_body": "", "offsets.t_up": "", "offsets.t_hdr": "", "offsets.t_text": "", "offsets.t_audio_event": "",
	"offsets.t_audio": "", "offsets.t_audible": "", "offsets.t_term": "", "offsets.t_close": "",
	"text_units": "", "text_bytes": "", "rtf_audible": "", "incremental": "", "flags[]": told,
	"audio.samples": "", "audio.chunks": "", "audio.bytes": "", "audio.sample_rate": "", "audio.assumed_sample_rate": "", "audio.channels": "",
	"audio_gap_ms.p50": "", "audio_gap_ms.p95": "", "audio_gap_ms.p99": "", "audio_gap_ms.max": "", "audio_gap_ms.cv": "", "audio_gap_ms.n": "",
	"playback.underruns": "", "playback.stall_ms": "", "playback.longest_stall_ms": "", "playback.min_prebuffer_ms": "",
	"playback.first_chunk_ms": "", "playback.continuity.*": "", "playback.vllm_omni.max_late_ms": "", "playback.vllm_omni.ok": "",
	"cancel.at_ns": "", "cancel.to_silence_ms": "", "cancel.chunks_after": "", "cancel.samples_after": "",
	"terminal.state": "", "terminal.phase": "", "quality.verdict": "", "quality.failed[]": "", "quality.not_measured[]": "",
	"own_delay_us.p50": "", "own_delay_us.p99": "", "own_delay_us.max": "", "own_delay_us.n": "", "bytes_up": "", "bytes_down": "",
	"stages[].wait_ms": "", "stages[].service_ms": "", "stages[].ready_ns": "", "stages[].start_ns": "", "stages[].finish_ns": "",
	"stages[].queue_ms": "", "stages[].fan_out": "", "stages[].copied_bytes": "", "stages[].join_wait_ms": "",
	"transfers[].from": "", "transfers[].to": "", "transfers[].transport": "", "transfers[].unread": "", "transfers[].chunk": "",
	"transfers[].bytes": "", "transfers[].start_ns": "", "transfers[].end_ns": "", "transfers[].write_ms": "", "critical_path[].ms": "",

	"request_sha256": noPayload, "text_sha256": noPayload, "audio.sha256": noPayload,

	"audible_s": "", "reasoning.first_ms": "", "reasoning.units": "", "reasoning.chars": "", "audio.empty_events": "", "client_wait_ms": "",
	"t_in_alternatives.*": "", "t_in_server_offset": "", "input.bytes": "", "input.messages": "", "input.audio_s": "", "input.span_ms": "", "input.pace": "",
	"input.sample_rate": "",
	"cancel_quiesce_ms": "", "stages[].cpu_ms": "", "stages[].runq_ms": "", "stages[].blocked_ms": "", "stages[].cpu_bound_ms": "", "stages[].gpu": "",
	"stages[].starved_ms": "", "stages[].steps": "", "stages[].batch.mean": "", "stages[].batch.max": "", "transfers[].misses": "",
	"transfers[].empty_polls": "", "transfers[].wait_ms": "", "transfers[].read_ms": "", "transfers[].in_flight_ms": "",
}

// whyOlder says of places that why has derived what the events of older programs
// (metadata.json's event_form below 2) do not hold enough for.
var whyOlder = map[string]string{
	"input.sample_rate": told, "t_in_alternatives.*": "no event tells of the other moments", "t_in_server_offset": "the ingress event carries no byte of the server's stream",
	"audible_s":          "no event tells the first and the last sample frame that are heard",
	"reasoning.first_ms": noReasoning, "reasoning.units": noReasoning, "reasoning.chars": noReasoning,
	"audio.empty_events": "an audio event that held no sound has no event",
	"input.bytes":        noInput, "input.messages": noInput, "input.audio_s": noInput, "input.span_ms": noInput, "input.pace": noInput,
	"client_wait_ms":    "no event tells how long a write to the client was blocked",
	"cancel_quiesce_ms": "no event tells when the client left, nor each output of a stage",
	"stages[].cpu_ms":   noSched, "stages[].runq_ms": noSched, "stages[].blocked_ms": noSched, "stages[].cpu_bound_ms": noSched,
	"stages[].gpu":             "the calls of the driver have no events of their own",
	"stages[].starved_ms":      noPolls,
	"stages[].steps":           noSteps,
	"stages[].batch.mean":      noSteps,
	"stages[].batch.max":       noSteps,
	"transfers[].misses":       noPolls,
	"transfers[].empty_polls":  noPolls,
	"transfers[].wait_ms":      noPolls,
	"transfers[].read_ms":      noTaking,
	"transfers[].in_flight_ms": noTaking,
}

const (
	told        = "a description"
	noPayload   = "payloads are not kept"
	noReasoning = "text that is reasoning has no event"
	noInput     = "the sound that a client sends has no events"
	noSched     = "the scheduler's samples have no events"
	noPolls     = "a receiver's polls have no events"
	noSteps     = "a stage's steps have no events but the first"
	noTaking    = "no event tells when a receiver began to take a transfer: its sum with the other of the two is compared"
)
