package verify

import "strings"

// record is what is held to the events of a line of requests.jsonl. It is written
// out here, and not proxy/timeline's, so that the two readings share nothing.
type record struct {
	Schema       int64   `json:"schema"`
	RunID        string  `json:"run_id"`
	RequestID    string  `json:"request_id"`
	ConnectionID uint64  `json:"connection_id"`
	SessionID    *string `json:"session_id"`
	Turn         *int64  `json:"turn"`
	Attempt      int64   `json:"attempt"`
	Flow         string  `json:"flow"`
	Method       *string `json:"method"`
	Status       *int64  `json:"status"`
	Analysis     string  `json:"analysis"`
	TInWallNS    *int64  `json:"t_in_wall_ns"`

	TInAlternatives map[string]int64 `json:"t_in_alternatives"`
	TInServerOffset *int64           `json:"t_in_server_offset"`
	Modalities      []string         `json:"modalities"`

	Points  points `json:"points"`
	Offsets points `json:"offsets"`

	TTFTMS       *float64 `json:"ttft_ms"`
	TTFAMS       *float64 `json:"ttfa_ms"`
	TTFAudibleMS *float64 `json:"ttfaudible_ms"`
	JCTMS        *float64 `json:"jct_ms"`
	RTF          *float64 `json:"rtf"`
	XRT          *float64 `json:"xrt"`
	TPOTMS       *float64 `json:"tpot_ms"`
	AudioS       *float64 `json:"audio_s"`
	AudibleS     *float64 `json:"audible_s"`
	RTFAudible   *float64 `json:"rtf_audible"`

	TextUnits *int64 `json:"text_units"`
	TextBytes *int64 `json:"text_bytes"`

	Reasoning *reasoning `json:"reasoning"`
	Input     *input     `json:"input"`

	Audio       *audio    `json:"audio"`
	Gap         *gap      `json:"audio_gap_ms"`
	Playback    *playback `json:"playback"`
	Incremental *bool     `json:"incremental"`
	Cancel      *cutOff   `json:"cancel"`

	Terminal end      `json:"terminal"`
	Quality  verdict  `json:"quality"`
	Flags    []string `json:"flags"`

	OwnDelayUS *delay `json:"own_delay_us"`
	BytesUp    int64  `json:"bytes_up"`
	BytesDown  int64  `json:"bytes_down"`
	RunPhase   string `json:"run_phase"`

	Stages       []stage    `json:"stages"`
	Transfers    []transfer `json:"transfers"`
	CriticalPath []step     `json:"critical_path"`
	QuiesceMS    *float64   `json:"cancel_quiesce_ms"`
	ClientWaitMS *float64   `json:"client_wait_ms"`
}

// nPoints is how many points contract section 2 names.
const nPoints = 10

// points holds a value for each point.
type points struct {
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

var pointNames = [nPoints]string{"t_in", "t_body", "t_up", "t_hdr", "t_text", "t_audio_event", "t_audio", "t_audible", "t_term", "t_close"}

func (p *points) list() [nPoints]*int64 {
	return [nPoints]*int64{p.TIn, p.TBody, p.TUp, p.THdr, p.TText, p.TAudioEvent, p.TAudio, p.TAudible, p.TTerm, p.TClose}
}

type audio struct {
	SampleRate        *int64  `json:"sample_rate"`
	SampleRateSource  *string `json:"sample_rate_source"`
	AssumedSampleRate *int64  `json:"assumed_sample_rate"`
	Channels          *int64  `json:"channels"`
	Samples           *int64  `json:"samples"`
	Chunks            int64   `json:"chunks"`
	EmptyEvents       int64   `json:"empty_events"`
	ChunkUnit         *string `json:"chunk_unit"`
	Bytes             int64   `json:"bytes"`
	DeclaredSamples   *int64  `json:"declared_samples"`
}

type reasoning struct {
	FirstMS *float64 `json:"first_ms"`
	Units   int64    `json:"units"`
	Chars   int64    `json:"chars"`
}

type input struct {
	Bytes      int64    `json:"bytes"`
	Messages   int64    `json:"messages"`
	AudioS     float64  `json:"audio_s"`
	SpanMS     float64  `json:"span_ms"`
	Pace       *float64 `json:"pace"`
	SampleRate int64    `json:"sample_rate"`
}

type gap struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	CV  float64 `json:"cv"`
	N   int64   `json:"n"`
}

type delay struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	N   int64   `json:"n"`
}

type playback struct {
	Underruns      int64           `json:"underruns"`
	StallMS        float64         `json:"stall_ms"`
	LongestStallMS float64         `json:"longest_stall_ms"`
	MinPrebufferMS float64         `json:"min_prebuffer_ms"`
	FirstChunkMS   float64         `json:"first_chunk_ms"`
	Continuity     map[string]bool `json:"continuity"`
	VLLMOmni       *struct {
		MaxLateMS float64 `json:"max_late_ms"`
		OK        bool    `json:"ok"`
	} `json:"vllm_omni"`
}

type cutOff struct {
	AtNS         int64    `json:"at_ns"`
	ToSilenceMS  *float64 `json:"to_silence_ms"`
	ChunksAfter  int64    `json:"chunks_after"`
	SamplesAfter int64    `json:"samples_after"`
}

type end struct {
	State    string   `json:"state"`
	Reason   string   `json:"reason"`
	Phase    string   `json:"phase"`
	By       string   `json:"by"`
	Evidence evidence `json:"evidence"`
}

type evidence struct {
	Samples *int64 `json:"samples"`
	Unread  string `json:"unread"`
	SeenAs  string `json:"seen_as"`
	Aborted bool   `json:"aborted"`
}

// seen is the state ahead of what the stage processes told: a session has counted it.
func (e *end) seen() string {
	if state, _, ok := strings.Cut(e.Evidence.SeenAs, " ("); ok {
		return state
	}
	return e.State
}

type verdict struct {
	Verdict     string   `json:"verdict"`
	Failed      []string `json:"failed"`
	NotMeasured []string `json:"not_measured"`
}

type stage struct {
	Stage       string   `json:"stage"`
	WaitMS      *float64 `json:"wait_ms"`
	ServiceMS   *float64 `json:"service_ms"`
	CPUMS       *float64 `json:"cpu_ms"`
	RunqMS      *float64 `json:"runq_ms"`
	BlockedMS   *float64 `json:"blocked_ms"`
	StarvedMS   *float64 `json:"starved_ms"`
	ReadyNS     *int64   `json:"ready_ns"`
	StartNS     *int64   `json:"start_ns"`
	FinishNS    *int64   `json:"finish_ns"`
	QueueMS     *float64 `json:"queue_ms"`
	FanOut      *int64   `json:"fan_out"`
	CopiedBytes *int64   `json:"copied_bytes"`
	JoinWaitMS  *float64 `json:"join_wait_ms"`

	CPUBoundMS *float64       `json:"cpu_bound_ms"`
	Steps      *int64         `json:"steps"`
	Batch      *batch         `json:"batch"`
	GPU        map[string]any `json:"gpu"`
}

type batch struct {
	Mean float64 `json:"mean"`
	Max  int64   `json:"max"`
}

type transfer struct {
	From       string   `json:"from"`
	To         string   `json:"to"`
	Transport  string   `json:"transport"`
	Bytes      *int64   `json:"bytes"`
	StartNS    int64    `json:"start_ns"`
	EndNS      *int64   `json:"end_ns"`
	Chunk      *int64   `json:"chunk"`
	WriteMS    *float64 `json:"write_ms"`
	InFlightMS *float64 `json:"in_flight_ms"`
	ReadMS     *float64 `json:"read_ms"`
	WaitMS     *float64 `json:"wait_ms"`
	Unread     bool     `json:"unread"`
	Misses     *int64   `json:"misses"`
	EmptyPolls *int64   `json:"empty_polls"`
}

type step struct {
	Gap string  `json:"gap"`
	MS  float64 `json:"ms"`
}
