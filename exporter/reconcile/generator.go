package reconcile

// Clock says what a generator's start times are readings of.
type Clock string

// The clocks.
const (
	// Monotonic is CLOCK_MONOTONIC: Python's perf_counter on Linux. It is the node's own.
	Monotonic Clock = "monotonic"
	Wall      Clock = "wall"
	NoClock   Clock = "none"
)

// Generator is a load generator's account of a run.
type Generator struct {
	// Tool is what wrote it, Backend what it spoke to.
	Tool    string `json:"tool"`
	Backend string `json:"backend,omitempty"`
	Clock   Clock  `json:"clock"`
	// Completed and Failed are its own counts, nil where it has none.
	Completed *int `json:"completed"`
	Failed    *int `json:"failed"`
	// Requests are told one by one, nil where the file has sums alone. Warm-up that the
	// file names as such is left out and counted in Warmup.
	Requests []GeneratorRequest `json:"-"`
	Warmup   int                `json:"warmup"`
	// Figures are what the file says of a Quantity.
	Figures map[Quantity]Figures `json:"figures"`
	// Reading says what the tool's source takes for what.
	Reading Reading `json:"reading"`
	// Problems are what of the file could not be used.
	Problems []string `json:"problems,omitempty"`
}

// GeneratorRequest is one request as a generator saw it; nil is a value it does not have.
type GeneratorRequest struct {
	// ID is the X-Request-Id that it sent, if it says so.
	ID string
	// StartNS is when its clock began, of Generator.Clock; 0 where it does not say.
	StartNS int64
	// TTFTMS, TTFAMS and JCTMS count from there.
	TTFTMS, TTFAMS, JCTMS *float64
	AudioS                *float64
	Failed                bool
}

// Figures are what a generator's file says of a quantity, in its Unit; Percentiles by their
// percent (50, 99, 99.9).
type Figures struct {
	Mean        *float64            `json:"mean"`
	Total       *float64            `json:"total"`
	Percentiles map[float64]float64 `json:"-"`
}

// Reading is what a tool takes for what, as its source has it.
type Reading struct {
	// FailuresAsSuccess: whatever answers 200 is a success, an error in its stream as well.
	FailuresAsSuccess bool `json:"failures_as_success"`
	// ZeroForNone: a request without a token (sound) enters its means as 0.
	ZeroForNone bool `json:"zero_for_none"`
	// FirstEvent: the first event of a stream is its first token.
	FirstEvent bool `json:"first_event"`
	// AudioAsText: sound in delta.content is text to it.
	AudioAsText bool `json:"audio_as_text"`
	// EmptyAudio: an audio event without samples is its first packet.
	EmptyAudio bool `json:"empty_audio"`
	// EndsEarly: its end is the last event with content, ahead of the end marker.
	EndsEarly bool `json:"ends_early"`
}
