package upstream

// Quantity is what a known name counts or measures.
type Quantity string

// The quantities that other views have as well.
const (
	Requests      Quantity = "requests"       // requests that the server brought to an end
	Failures      Quantity = "failures"       // requests that it brought to a bad end
	TTFT          Quantity = "ttft"           // seconds to the first token
	TTFA          Quantity = "ttfa"           // seconds to the first audio event, even an empty one
	JCT           Quantity = "jct"            // seconds to the end
	AudioSeconds  Quantity = "audio_s"        // seconds of sound, one observation a request
	AudioSkipped  Quantity = "audio_skipped"  // requests that owed sound and had none
	QueueWait     Quantity = "queue_wait"     // seconds in a scheduler's queue
	TransferBytes Quantity = "transfer_bytes" // bytes handed over between stages
)

// Zero is the moment that a duration is counted from.
type Zero string

// The zero points, from the earliest to the latest. Each is behind t_in: what a request
// waits ahead of it is in no figure of the server.
const (
	// ZeroHandler is the first line of the server's code that sees the request's head: what
	// waited in the socket, or for a busy event loop, is ahead of it.
	ZeroHandler Zero = "the request's arrival at the server's handler"
	// ZeroEngine is when the request was handed to the engine: reading and rendering it are ahead.
	ZeroEngine Zero = "the request's hand-over to the engine in the API process"
	// ZeroScheduler is the entry into a stage's own queue.
	ZeroScheduler Zero = "the request's arrival in the stage's scheduler"
)

// Meaning is what a known name means.
type Meaning struct {
	Name     string
	Quantity Quantity
	Zero     Zero
	// End is the moment that a duration is counted to.
	End string
	// Failing are values of the label Label that are failures; a name without Label counts
	// what its Quantity says.
	Label   string
	Failing []string
}

// known holds the names whose meaning was read in the server's own source: vLLM-Omni
// 0.26.0 (vllm_omni/metrics, entrypoints), vLLM 0.26.0 (v1/metrics), SGLang
// (srt/metrics/collector.py). SGLang-Omni 0.1.9 has no /metrics. What later versions add is
// not known until it was read there.
var known = map[string]Meaning{}

func init() {
	const first = "the first output that the API process takes from the engine"
	for _, m := range []Meaning{
		// request_timestamp of the outermost middleware; finished_reason is abort where a client left, too.
		{Name: "vllm_omni:requests_success_total", Quantity: Requests, Label: "finished_reason", Failing: []string{"abort", "error"}},
		{Name: "vllm_omni:e2e_request_latency_s", Quantity: JCT, Zero: ZeroHandler, End: "the last output of the last stage, before it is written"},
		// Observed before the output is looked at: an empty one counts.
		{Name: "vllm_omni:audio_ttfp_s", Quantity: TTFA, Zero: ZeroHandler, End: "the first audio-typed output, even one without samples"},
		{Name: "vllm_omni:audio_duration_s", Quantity: AudioSeconds},
		{Name: "vllm_omni:audio_skipped_requests_total", Quantity: AudioSkipped},
		{Name: "vllm_omni:transfer_size_bytes", Quantity: TransferBytes},

		// arrival_time is the middleware's where vLLM-Omni hands one on, else the moment of the hand-over.
		{Name: "vllm:request_success_total", Quantity: Requests, Label: "finished_reason", Failing: []string{"abort", "error"}},
		{Name: "vllm:time_to_first_token_seconds", Quantity: TTFT, Zero: ZeroEngine, End: first},
		{Name: "vllm:e2e_request_latency_seconds", Quantity: JCT, Zero: ZeroEngine, End: "the last output that the API process takes from the engine"},
		{Name: "vllm:request_queue_time_seconds", Quantity: QueueWait, Zero: ZeroScheduler, End: "the first step that it is in"},

		{Name: "sglang:num_requests_total", Quantity: Requests},
		{Name: "sglang:num_aborted_requests_total", Quantity: Failures},
		{Name: "sglang:time_to_first_token_seconds", Quantity: TTFT, Zero: ZeroEngine, End: first},
		{Name: "sglang:e2e_request_latency_seconds", Quantity: JCT, Zero: ZeroEngine, End: "the last output that the API process takes from the engine"},
		{Name: "sglang:queue_time_seconds", Quantity: QueueWait, Zero: ZeroScheduler, End: "the first step that it is in"},
	} {
		known[m.Name] = m
	}
}

// Known is the meaning of a name; false for one that is not known, however much it looks
// like another.
func Known(name string) (Meaning, bool) {
	m, ok := known[name]
	return m, ok
}
