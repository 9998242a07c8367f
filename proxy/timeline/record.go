package timeline

import "github.com/omnitap/omnitap/proxy/timeline/waveform"

// Schema is the version of the record's form: fields may be added within it,
// never renamed or given another meaning.
const Schema = 1

// Record is one line of requests.jsonl: what happened to one exchange or turn.
// A nil pointer is a value that was not measured; Unmeasured then holds its
// dotted name (`points.t_text`, `audio.samples`) with the reason. Names ending
// in _ns are integers of nanoseconds, _ms floats of milliseconds, _s seconds.
type Record struct {
	Schema int    `json:"schema"`
	RunID  string `json:"run_id,omitempty"`
	Node   string `json:"node,omitempty"`

	// RequestID is the client's X-Request-Id, else the inserted one, else our own.
	RequestID string `json:"request_id"`
	// RequestIDSource says which: client, injected or own.
	RequestIDSource string `json:"request_id_source"`
	// ServerRequestID is the id the server uses, as the answer tells it.
	ServerRequestID *string `json:"server_request_id"`
	// Traceparent is the client's trace context (W3C Trace Context, section 3.2), of a turn
	// that of the request that opened its session; absent where there is none that is valid.
	Traceparent string `json:"traceparent,omitempty"`

	ConnectionID uint64  `json:"connection_id"`
	SessionID    *string `json:"session_id"`
	Turn         *int    `json:"turn"`
	Attempt      int     `json:"attempt"`

	Flow           string  `json:"flow"`
	Dialect        string  `json:"dialect"`
	DialectVariant *string `json:"dialect_variant"`
	Method         *string `json:"method"`
	Path           *string `json:"path"`
	Status         *int    `json:"status"`
	Model          *string `json:"model"`
	// RequestSHA256 is the hash of the request's body as it was sent: who sent the
	// same can be told without what it was.
	RequestSHA256 *string `json:"request_sha256"`
	// InputChars is the number of characters (Unicode code points) that a speech
	// request asks to be spoken.
	InputChars *int64   `json:"input_chars"`
	Modalities []string `json:"modalities"`
	Stream     *bool    `json:"stream"`

	TInWallNS *int64  `json:"t_in_wall_ns"`
	TInSource *string `json:"t_in_source"`
	// TInAlternatives are other moments that could be taken for a turn's t_in, by
	// name, as monotonic nanoseconds.
	TInAlternatives map[string]int64 `json:"t_in_alternatives"`
	// TInServerOffset is the byte of the server's stream that completed t_in,
	// where the server's own event is it.
	TInServerOffset *int64 `json:"t_in_server_offset"`
	// Stamp says where read stamps come from: kernel or read.
	Stamp string `json:"stamp"`

	// Points are CLOCK_MONOTONIC nanoseconds (contract section 2).
	Points Points `json:"points"`
	// Offsets are bytes of the server's stream on this connection (of the
	// client's for t_in, t_body and t_up) up to and including the byte that
	// completed the point.
	Offsets Points `json:"offsets"`

	TTFTMS       *float64 `json:"ttft_ms"`
	TTFAMS       *float64 `json:"ttfa_ms"`
	TTFAudibleMS *float64 `json:"ttfaudible_ms"`
	JCTMS        *float64 `json:"jct_ms"`
	RTF          *float64 `json:"rtf"`
	XRT          *float64 `json:"xrt"`
	TPOTMS       *float64 `json:"tpot_ms"`
	AudioS       *float64 `json:"audio_s"`
	// AudibleS is the time from the first to the last of what is heard in the
	// sound, pauses within included, and RTFAudible JCT over it: silence ahead and
	// behind buys no better figure.
	AudibleS   *float64 `json:"audible_s"`
	RTFAudible *float64 `json:"rtf_audible"`

	Reasoning *Reasoning `json:"reasoning"`

	TextUnits  *int64  `json:"text_units"`
	TextUnit   *string `json:"text_unit"`
	TextBytes  *int64  `json:"text_bytes"`
	TextSHA256 *string `json:"text_sha256"`
	// DeclaredTokens is the number of output tokens that the server declares.
	DeclaredTokens *int64 `json:"declared_tokens"`

	Audio      *Audio    `json:"audio"`
	AudioGapMS *Gap      `json:"audio_gap_ms"`
	Playback   *Playback `json:"playback"`
	// Incremental says that audio came by more than one read: false is a server
	// that does not stream, or something on the way that holds its answer back.
	Incremental *bool `json:"incremental"`

	// Input is the sound that the client sent for a turn.
	Input *Input `json:"input"`
	// Cancel is what followed the client's cancel of a turn.
	Cancel *Cancel `json:"cancel"`

	Terminal Terminal `json:"terminal"`
	Quality  Quality  `json:"quality"`
	Flags    []string `json:"flags"`

	Analysis       string  `json:"analysis"`
	AnalysisReason *string `json:"analysis_reason"`

	OwnDelayUS *Delay `json:"own_delay_us"`
	BytesUp    int64  `json:"bytes_up"`
	BytesDown  int64  `json:"bytes_down"`

	// RunPhase is the part of an `omnitap run` that it began in, warmup or measured, or
	// cooldown for what was under way when the load was told to end; empty elsewhere.
	RunPhase string `json:"run_phase,omitempty"`

	Stages       []Stage    `json:"stages"`
	Transfers    []Transfer `json:"transfers"`
	CriticalPath []PathStep `json:"critical_path"`

	CancelQuiesceMS *float64 `json:"cancel_quiesce_ms"`
	RetryOf         *string  `json:"retry_of"`
	ClientWaitMS    *float64 `json:"client_wait_ms"`
	Warnings        []string `json:"warnings"`
	// Unmeasured maps the dotted name of every null to its reason.
	Unmeasured map[string]string `json:"unmeasured"`
}

// Points holds one value for each point of contract section 2; nil is a point
// that was not reached or not measured.
type Points struct {
	TIn         *int64 `json:"t_in"`
	TBody       *int64 `json:"t_body"`
	TUp         *int64 `json:"t_up"`
	THdr        *int64 `json:"t_hdr"`
	TText       *int64 `json:"t_text"`
	TAudioEvent *int64 `json:"t_audio_event"`
	TAudio      *int64 `json:"t_audio"`
	TAudible    *int64 `json:"t_audible"`
	TTerm       *int64 `json:"t_term"`
	TClose      *int64 `json:"t_close"`
}

// Reasoning counts text that is reasoning, which is never t_text.
type Reasoning struct {
	FirstMS *float64 `json:"first_ms"`
	Units   int64    `json:"units"`
	Chars   int64    `json:"chars"`
}

// Audio says what audio came. Samples are sample frames, Chunks logical chunks
// with audio (HTTP chunks, SSE events, whole bodies: ChunkUnit), Bytes decoded
// payload bytes, SHA256 the hash of the sample bytes without containers.
type Audio struct {
	Container         *string `json:"container"`
	Encoding          *string `json:"encoding"`
	SampleRate        *int64  `json:"sample_rate"`
	SampleRateSource  *string `json:"sample_rate_source"`
	AssumedSampleRate *int64  `json:"assumed_sample_rate"`
	Channels          *int64  `json:"channels"`
	ChannelsSource    *string `json:"channels_source"`
	Samples           *int64  `json:"samples"`
	Chunks            int64   `json:"chunks"`
	EmptyEvents       int64   `json:"empty_events"`
	ChunkUnit         *string `json:"chunk_unit"`
	Bytes             int64   `json:"bytes"`
	DeclaredSamples   *int64  `json:"declared_samples"`
	DeclaredSource    *string `json:"declared_source"`
	SHA256            *string `json:"sha256"`
}

// Input says what sound a client sent for a turn, and how fast: Pace is its
// length over the time it took to come, 1 for real time; nil for one message.
type Input struct {
	Bytes            int64    `json:"bytes"`
	Messages         int64    `json:"messages"`
	AudioS           float64  `json:"audio_s"`
	SpanMS           float64  `json:"span_ms"`
	Pace             *float64 `json:"pace"`
	SampleRate       int64    `json:"sample_rate"`
	SampleRateSource string   `json:"sample_rate_source"`
}

// Cancel says what came of a turn after it had been asked to stop, By client (its
// message) or speech (the user began to speak): ToSilenceMS is how long until its
// last sound came, nil where none did.
type Cancel struct {
	AtNS         int64    `json:"at_ns"`
	By           string   `json:"by"`
	ToSilenceMS  *float64 `json:"to_silence_ms"`
	ChunksAfter  int64    `json:"chunks_after"`
	SamplesAfter int64    `json:"samples_after"`
}

// Gap describes the gaps between audio chunks in milliseconds; CV is the
// coefficient of variation (population standard deviation over mean).
type Gap struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	CV  float64 `json:"cv"`
	N   int     `json:"n"`
}

// Delay describes the relay's own delay per chunk in microseconds: receive
// stamp to the return of the write to the client.
type Delay struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	N   int     `json:"n"`
}

// Playback is the simulated player of contract section 3. Continuity maps a
// prebuffer in milliseconds to whether playback would not have stalled.
type Playback struct {
	Underruns      int     `json:"underruns"`
	StallMS        float64 `json:"stall_ms"`
	LongestStallMS float64 `json:"longest_stall_ms"`
	MinPrebufferMS float64 `json:"min_prebuffer_ms"`
	// FirstChunkMS is the length of the sound in the first chunk: what a player has
	// until the second one comes.
	FirstChunkMS float64         `json:"first_chunk_ms"`
	Continuity   map[string]bool `json:"continuity"`
	// VLLMOmni is vLLM-Omni's own continuity: the largest lateness of a chunk
	// without moving the clock after a stall; nil with one chunk alone.
	VLLMOmni *VLLMContinuity `json:"vllm_omni"`
}

// VLLMContinuity is the server's definition of continuity beside ours.
type VLLMContinuity struct {
	MaxLateMS float64 `json:"max_late_ms"`
	OK        bool    `json:"ok"`
}

// Terminal is how the exchange ended (contract section 5).
type Terminal struct {
	State    State          `json:"state"`
	Reason   string         `json:"reason"`
	Phase    string         `json:"phase"`
	Evidence map[string]any `json:"evidence"`
	By       string         `json:"by"`
}

// Quality is the verdict over the waveform invariants that were looked at.
type Quality struct {
	Verdict     string   `json:"verdict"`
	Failed      []string `json:"failed"`
	NotMeasured []string `json:"not_measured"`
	// Checks are the findings behind it, of quality.jsonl; nil without sound.
	Checks []waveform.Finding `json:"-"`
}

// QualityLine is one line of quality.jsonl.
type QualityLine struct {
	Schema    int                `json:"schema"`
	RequestID string             `json:"request_id"`
	Checks    []waveform.Finding `json:"checks"`
}

// Stage is what one stage process did for this request (contract section 6).
type Stage struct {
	Stage string `json:"stage"`
	// Node is where it ran, where that is another machine than the record's.
	Node string `json:"node,omitempty"`
	PID  int    `json:"pid"`
	// WaitMS is W_s, from ReadyNS to StartNS, and ServiceMS S_s, from there to FinishNS.
	WaitMS    *float64       `json:"wait_ms"`
	ServiceMS *float64       `json:"service_ms"`
	CPUMS     *float64       `json:"cpu_ms"`
	RunqMS    *float64       `json:"runq_ms"`
	GPU       map[string]any `json:"gpu"`
	Match     string         `json:"match"`
	// Confidence is from 0 to 1: 1 is an identity that both sides know.
	Confidence float64 `json:"confidence"`

	// ReadyNS is when the stage's first input lay ready, StartNS when its scheduler, or
	// it itself, took it up, FinishNS its last output (CLOCK_MONOTONIC).
	ReadyNS  *int64 `json:"ready_ns"`
	StartNS  *int64 `json:"start_ns"`
	FinishNS *int64 `json:"finish_ns"`
	// QueueMS is the time in its scheduler's queue, StarvedMS the time that it polled
	// for input that was not there, BlockedMS its threads' waits.
	QueueMS   *float64 `json:"queue_ms"`
	StarvedMS *float64 `json:"starved_ms"`
	BlockedMS *float64 `json:"blocked_ms"`
	// CPUBoundMS is by how much CPUMS may be too low.
	CPUBoundMS *float64 `json:"cpu_bound_ms"`
	Steps      *int     `json:"steps"`
	Batch      *Batch   `json:"batch"`
	// FanOut is how many stages it handed on to, CopiedBytes what went to those beyond
	// the first, JoinWaitMS how long lay between the first inputs of the stages that
	// feed it.
	FanOut      *int     `json:"fan_out"`
	CopiedBytes *int64   `json:"copied_bytes"`
	JoinWaitMS  *float64 `json:"join_wait_ms"`
	// Unmeasured maps the name of a null of this stage to its reason.
	Unmeasured map[string]string `json:"unmeasured,omitempty"`
}

// Batch is how many requests were in the steps of a stage.
type Batch struct {
	Mean float64 `json:"mean"`
	Max  int     `json:"max"`
}

// Transfer is one hand-over between two stages. Null bytes are not stated anywhere
// (inline, direct CUDA IPC), a null end was never seen.
type Transfer struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Transport string `json:"transport"`
	Bytes     *int64 `json:"bytes"`
	StartNS   int64  `json:"start_ns"`
	EndNS     *int64 `json:"end_ns"`
	Match     string `json:"match"`

	Confidence float64 `json:"confidence"`
	Chunk      *int64  `json:"chunk"`
	// WriteMS is the sender's copying, InFlightMS from there to the receiver's taking
	// it, ReadMS the receiver's copying.
	WriteMS    *float64 `json:"write_ms"`
	InFlightMS *float64 `json:"in_flight_ms"`
	ReadMS     *float64 `json:"read_ms"`
	// WaitMS is how long the receiver polled for it, Misses how often it was not there,
	// EmptyPolls how often it was, and still empty.
	WaitMS     *float64 `json:"wait_ms"`
	Misses     *int64   `json:"misses"`
	EmptyPolls *int64   `json:"empty_polls"`
	// Path is the way of the bytes where more than the transport is known of it: the
	// key, the segment or the object that it went by.
	Path *string `json:"path"`
	// Unread says that it was made and never received.
	Unread bool `json:"unread,omitempty"`
}

// PathStep is one named gap on the way to first audio.
type PathStep struct {
	Gap string  `json:"gap"`
	MS  float64 `json:"ms"`
}
