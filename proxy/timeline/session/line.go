package session

import (
	"slices"

	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// NoDialect is the reason of a session whose messages tell no known dialect.
const NoDialect = "messages of no known dialect"

// line returns the session's line.
func (s *Session) line(mono int64) *timeline.Session {
	c := &s.count
	server, variant := s.dialect()
	r := &timeline.Session{
		Schema: timeline.Schema, RunID: s.id.RunID, Node: s.id.Node, SessionID: s.info.RequestID, ConnectionID: s.id.ConnectionID,
		ServerSessionID: text(c.serverID), Resumed: text(c.resumed), Traceparent: s.info.Traceparent, Flow: s.flow, Dialect: server, DialectVariant: text(variant),
		Path: text(s.info.Path), Model: text(s.model), OpenedMonoNS: s.info.Opened, UpgradedMonoNS: s.info.Upgraded,
		DurationMS: float64(s.over0(mono)-s.info.Upgraded) / 1e6, IdleMS: float64(max(c.idle, s.over0(mono)-c.lastAt)) / 1e6,
		Turns: s.begun, States: c.states, Listens: c.listens,
		PingRTTMS: s.pings.median(), PingsUp: s.pings.n[0], PingsDown: s.pings.n[1], Pongs: s.pings.pongs,
		MessagesUp: c.up, MessagesDown: c.down, FragmentsUp: c.framesUp, FragmentsDown: c.framesDown,
		Compression: text(s.info.Compression), UnknownEvents: c.unknown, ReplayedEvents: c.replayed, Errors: c.errors,
		UnattributedChunks: c.looseChunks, UnattributedSamples: c.looseSamples,
		BytesUp: c.bytesUp, BytesDown: c.bytesDown, Flags: slices.Clone(s.flags), Warnings: s.warnings, Analysis: s.analysis, AnalysisReason: text(s.reason), Unmeasured: map[string]string{},
	}
	if s.id.WallOffset != nil {
		r.OpenedWallNS = new(s.info.Opened + *s.id.WallOffset)
	}
	if (s.form == dialect.NoForm && c.down > 0 || s.guessed) && s.analysis == "full" {
		r.Analysis, r.AnalysisReason = "lost", text(NoDialect)
	}
	if s.inRate > 0 && s.takesSound() {
		r.InputAudioS, r.InputRate = new(float64(s.inBytes/2)/float64(s.inRate)), new(int64(s.inRate))
	}
	s.closed(r)
	if r.Flags == nil {
		r.Flags = []string{}
	}
	if r.Warnings == nil {
		r.Warnings = []string{}
	}
	slices.Sort(r.Flags)
	unmeasured(r)
	return r
}

// takesSound reports whether the client of this form sends sound at all.
func (s *Session) takesSound() bool {
	switch s.form {
	case dialect.SpeechVLLM, dialect.SpeechSGLang, dialect.VideoOut:
		return false
	default:
		return true
	}
}

// over0 is when the session was over: its first end, or else now.
func (s *Session) over0(mono int64) int64 {
	at := max(s.ends.clientAt, s.ends.serverAt)
	if at == 0 {
		return mono
	}
	return at
}

// closed says how the session ended.
func (s *Session) closed(r *timeline.Session) {
	e := &s.ends
	r.Close.By = [...]string{"unknown", "client", "server"}[e.first]
	if (e.shutdown || e.aborted != 0) && e.first == 0 {
		r.Close.By = "relay"
	}
	for d, f := range e.frames {
		if f == nil {
			continue
		}
		if d == 0 {
			r.CloseSeenUp = &f.code
		} else {
			r.CloseSeenDown = &f.code
		}
		if e.first == d+1 {
			r.Close.Code, r.Close.Reason = &f.code, text(f.reason)
		}
	}
	transport := e.server
	if e.first == 1 && e.client != timeline.Open {
		transport = e.client
	}
	if transport == timeline.Open {
		transport = e.client
	}
	r.Close.Transport = transport.String()
	if r.CloseSeenUp == nil && r.CloseSeenDown == nil {
		s.flags = append(s.flags, "no_close_frame")
		r.Flags = append(r.Flags, "no_close_frame")
	}
}

func text(t string) *string {
	if t == "" {
		return nil
	}
	return &t
}

// unmeasured gives every null of the line its reason.
func unmeasured(r *timeline.Session) {
	put := func(name string, null bool, reason string) {
		if null {
			r.Unmeasured[name] = reason
		}
	}
	put("server_session_id", r.ServerSessionID == nil, "the server names none")
	put("resumed", r.Resumed == nil, "no session was taken up again")
	put("dialect_variant", r.DialectVariant == nil, "messages of no known dialect")
	put("path", r.Path == nil, "the request names none")
	put("model", r.Model == nil, "no message names it")
	put("opened_wall_ns", r.OpenedWallNS == nil, "the capture holds no wall clock")
	put("input_audio_s", r.InputAudioS == nil, "no sound of the client in this form")
	put("input_sample_rate", r.InputRate == nil, "no sound of the client in this form")
	put("close.code", r.Close.Code == nil, "no close frame came first")
	put("close.reason", r.Close.Reason == nil, "no close frame says one")
	put("close_seen_up", r.CloseSeenUp == nil, "the client sent no close frame")
	put("close_seen_down", r.CloseSeenDown == nil, "the server sent no close frame")
	put("ping_rtt_ms", r.PingRTTMS == nil, "no ping was answered")
	put("compression", r.Compression == nil, "none was negotiated")
	put("analysis_reason", r.AnalysisReason == nil, "analysis is full")
}
