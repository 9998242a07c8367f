package reconcile

// Cause names why two views differ.
type Cause string

// The causes. Each is named only where the data show it.
const (
	// QueueAhead: the server's clock starts behind what the request waited for.
	QueueAhead Cause = "queueing_ahead_of_zero_point"
	// GeneratorStart: the generator's clock starts before the first byte is on the wire.
	GeneratorStart Cause = "generator_start"
	// GeneratorRead: its clock is read after the event was on the wire.
	GeneratorRead Cause = "generator_read"
	// EmptyEventAsToken: it took an event without text (role-only, empty) for a token.
	EmptyEventAsToken Cause = "empty_event_as_token"
	// ReasoningAsToken, AudioAsToken: it took reasoning, or sound, for the text.
	ReasoningAsToken Cause = "reasoning_as_token"
	AudioAsToken     Cause = "audio_as_token"
	// EmptyAudioAsAudio: it took an audio event with less than can be played for audio.
	EmptyAudioAsAudio Cause = "empty_audio_event_as_audio"
	// FailureAsSuccess: it counts what failed on the wire as a success.
	FailureAsSuccess Cause = "failure_as_success"
	// ZeroForNone: a request without the event is a 0 in its mean.
	ZeroForNone Cause = "none_as_zero"
	// BytesReadZero: hand-overs that had bytes are observed with 0.
	BytesReadZero Cause = "transfer_bytes_read_zero"
	// WarmupIncluded: one view holds requests ahead of those that the other counts.
	WarmupIncluded Cause = "warmup_included"
	// Retried: a request was sent again, and is counted once.
	Retried Cause = "retried"
	// NeverSent: it failed ahead of the wire.
	NeverSent Cause = "never_on_the_wire"
	// RefusedAhead: the server refused it ahead of its counters.
	RefusedAhead Cause = "refused_ahead_of_counters"
	// EndMarkerLeftOut: its end is the last event, and not the end marker behind it.
	EndMarkerLeftOut Cause = "end_marker_left_out"
	// OtherPercentiles: its percentiles are by another method.
	OtherPercentiles Cause = "percentile_method"
	// Restarted: the server was started anew, and forgot what it had counted.
	Restarted Cause = "server_restarted"
	// NotExplained is an answer.
	NotExplained Cause = "not_explained"
)

var causeTexts = map[Cause]string{
	QueueAhead:        "queueing ahead of the server's zero point",
	GeneratorStart:    "the generator's clock starts ahead of the first byte on the wire",
	GeneratorRead:     "the generator reads its clock after the event was on the wire",
	EmptyEventAsToken: "an empty or role-only event counted as a token",
	ReasoningAsToken:  "reasoning counted as the first token",
	AudioAsToken:      "an audio event counted as the first token",
	EmptyAudioAsAudio: "an audio event with less than can be played counted as audio",
	FailureAsSuccess:  "failures counted as successes",
	ZeroForNone:       "requests without the event enter as 0",
	BytesReadZero:     "hand-overs with bytes are observed as 0 bytes",
	WarmupIncluded:    "requests ahead of those that are counted",
	Retried:           "attempts that were sent again count once",
	NeverSent:         "failed ahead of the wire",
	RefusedAhead:      "refused ahead of the server's counters",
	EndMarkerLeftOut:  "the end is the last event, not the end marker",
	OtherPercentiles:  "percentiles by another method",
	Restarted:         "the server was started anew and lost what it had counted",
	NotExplained:      "not explained",
}

// Text is the cause in words.
func (c Cause) Text() string { return causeTexts[c] }
