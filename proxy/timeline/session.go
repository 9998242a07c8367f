package timeline

// Session is one line of sessions.jsonl: a WebSocket connection from its upgrade
// to its end (records.md section 3). Nil and unmeasured are as in Record.
type Session struct {
	Schema int    `json:"schema"`
	RunID  string `json:"run_id,omitempty"`
	Node   string `json:"node,omitempty"`

	// SessionID is the id of the request that opened it; its turns carry it.
	SessionID    string `json:"session_id"`
	ConnectionID uint64 `json:"connection_id"`
	// ServerSessionID is the server's own name, Resumed one that was taken up again.
	ServerSessionID *string `json:"server_session_id"`
	Resumed         *string `json:"resumed"`
	// Traceparent is the client's trace context, as a record has it.
	Traceparent string `json:"traceparent,omitempty"`

	Flow           string  `json:"flow"`
	Dialect        string  `json:"dialect"`
	DialectVariant *string `json:"dialect_variant"`
	Path           *string `json:"path"`
	Model          *string `json:"model"`

	OpenedWallNS *int64 `json:"opened_wall_ns"`
	// OpenedMonoNS is the first byte of the request, UpgradedMonoNS that of the 101.
	OpenedMonoNS   int64   `json:"opened_mono_ns"`
	UpgradedMonoNS int64   `json:"upgraded_mono_ns"`
	DurationMS     float64 `json:"duration_ms"`
	// IdleMS is the longest time without a message of either side; pings are none.
	IdleMS float64 `json:"idle_ms"`

	// Turns is how many turns there were, States how they ended, Listens how often
	// the model chose to be silent unasked.
	Turns   int           `json:"turns"`
	States  map[State]int `json:"states"`
	Listens int           `json:"listens"`

	// InputAudioS is the sound that the client sent, in seconds at InputRate.
	InputAudioS *float64 `json:"input_audio_s"`
	InputRate   *int64   `json:"input_sample_rate"`

	Close Close `json:"close"`
	// CloseSeenUp and CloseSeenDown are the codes of the close frames that the
	// client and the server sent, nil for none, 0 for a frame without a code.
	CloseSeenUp   *int `json:"close_seen_up"`
	CloseSeenDown *int `json:"close_seen_down"`

	// PingRTTMS is the median over all answered pings of both sides, as seen here.
	PingRTTMS *float64 `json:"ping_rtt_ms"`
	PingsUp   int      `json:"pings_up"`
	PingsDown int      `json:"pings_down"`
	Pongs     int      `json:"pongs"`

	MessagesUp    int64 `json:"messages_up"`
	MessagesDown  int64 `json:"messages_down"`
	FragmentsUp   int64 `json:"fragments_up"`
	FragmentsDown int64 `json:"fragments_down"`
	BytesUp       int64 `json:"bytes_up"`
	BytesDown     int64 `json:"bytes_down"`
	// Compression is what was negotiated, nil for none.
	Compression *string `json:"compression"`

	// UnknownEvents are messages of no known type, ReplayedEvents those that came
	// before on a connection that was taken up again, Errors those of the server
	// that no turn answers for.
	UnknownEvents  int64 `json:"unknown_events"`
	ReplayedEvents int64 `json:"replayed_events"`
	Errors         int64 `json:"errors"`
	// Unattributed is sound that belongs to no turn: it was given to none.
	UnattributedChunks  int64 `json:"unattributed_chunks"`
	UnattributedSamples int64 `json:"unattributed_samples"`

	Flags          []string          `json:"flags"`
	Warnings       []string          `json:"warnings"`
	Analysis       string            `json:"analysis"`
	AnalysisReason *string           `json:"analysis_reason"`
	Unmeasured     map[string]string `json:"unmeasured"`
}

// Close is how a session ended: By is client, server, relay or unknown; Code is
// the first close frame's, nil where none came, 0 where it held none; Transport
// is how the connection under it ended: fin, rst, cut or open.
type Close struct {
	By        string  `json:"by"`
	Code      *int    `json:"code"`
	Reason    *string `json:"reason"`
	Transport string  `json:"transport"`
}
