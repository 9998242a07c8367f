package timeline

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/proxy/timeline/waveform"
	"github.com/omnitap/omnitap/proxy/wire/audio"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// Finish decides the terminal state, reckons the metrics, sends the record out
// and returns the state. Later calls return it again.
func (b *Builder) Finish() State {
	if b.done {
		return b.state
	}
	b.done = true
	b.Identify()
	f := b.facts()
	b.settle()
	state, reason, by := decide(f)
	state, reason, by = b.inTime(f, state, reason, by)
	b.state = state
	r := b.record()
	r.Terminal = Terminal{State: state, Reason: reason, By: by, Phase: b.phase(f), Evidence: b.evidence(f)}
	b.measure(r)
	b.turnFields(r)
	b.checks(r, f)
	b.notes(r, f)
	b.unmeasured(r)
	if b.snd != nil && b.snd.listener != nil {
		b.snd.listener.End(r)
	}
	b.emit("terminal", place{b.at[pTerm].mono, b.at[pTerm].off}, Event{Status: Text(state), Bytes: N(b.bytesDown)})
	if b.sink != nil {
		b.sink.Record(r)
	}
	return state
}

// FinishOpaque sends out the record of a connection that is not HTTP.
func (b *Builder) FinishOpaque(reason string) {
	if b.done {
		return
	}
	b.done = true
	b.Identify()
	b.Analysis("lost", reason)
	b.settle()
	r := b.record()
	r.Flow = FlowOpaque
	state, why, by := tunnelEnd(&b.close)
	if b.close.unread != "" {
		state, why, by = HarnessError, "analysis_incomplete", "relay"
	}
	r.Terminal = Terminal{State: state, Reason: why, By: by, Phase: "tunnel", Evidence: b.evidence(b.facts())}
	b.measure(r)
	r.Quality = Quality{Verdict: "not_measured", Failed: []string{}, NotMeasured: []string{}}
	r.Flags = b.flagList()
	b.unmeasured(r)
	if b.sink != nil {
		b.sink.Record(r)
	}
}

// unreadType reports whether the answer is of a type that is not looked into.
func (b *Builder) unreadType() bool {
	a := &b.answer
	return b.bodyBytes > 0 && b.status < 300 && !a.Events && !a.Whole && !a.Sound
}

func (b *Builder) flow() string {
	if b.tunnel {
		return FlowOpaque
	}
	if b.turn != nil {
		return b.turn.Flow
	}
	f := flowOf(b.method, b.path)
	if b.socket {
		f = FlowOfSocket(b.path)
	}
	if f == FlowOther && b.family != dialect.Other {
		f = flowOfFamily(b.family)
	}
	return f
}

// markerDue reports whether the flow's stream ends with a marker of its own.
func (b *Builder) markerDue() bool {
	if b.turn != nil {
		return true
	}
	if !b.answer.Events || b.status >= 300 {
		return false
	}
	switch b.family {
	case dialect.Chat, dialect.Completion, dialect.SpeechEvents, dialect.SpeechChunks, dialect.Transcription, dialect.ImageEvents:
		return true
	case dialect.Other:
		switch b.flow() {
		case FlowChat, FlowCompletion, FlowSpeech, FlowTranscription, FlowTranslation:
			return b.unknown == 0
		}
	default:
	}
	return false
}

func (b *Builder) facts() *facts {
	if b.said == nil && b.status >= 400 && !b.tunnel {
		b.Refused(nil) // no body, or none that was read: the status says enough
	}
	f := &facts{
		status: b.status, complete: b.complete, marker: b.marker.mono != 0, markerDue: b.markerDue(),
		finish: b.finish || b.final, said: b.said, close: b.close, owes: owed(b.flow(), b.request.Modalities),
		text: b.textUnits > 0, noBody: b.noBody, begun: b.at[pHdr].mono != 0, trouble: b.trouble,
		other: b.tool || b.reasoning.Units > 0 || b.audioLike, unreadable: b.analysis == "unsupported_encoding" || b.close.unread != "",
		ambiguous: b.ambiguous, tunnel: b.tunnel, truncated: b.analysis == "truncated" && !b.askLost, unknownSound: b.audioLike,
	}
	if b.turn != nil {
		f.status, f.begun = 200, b.begun // what the upgrade was answered says nothing about a turn
		f.interrupted = b.interrupted != nil
		f.owes.audio = f.owes.audio && !b.tool
		if b.free {
			f.owes = owes{}
		}
	}
	if s := b.snd; s != nil {
		frames, ok := s.frames()
		f.audio = ok && frames > 0 || s.opaque > 0
		f.trouble = append(f.trouble, s.trouble(b.complete || f.marker)...)
		f.findings = s.findings(b.complete || f.marker, b.request.InputChars)
		f.failed = named(f.findings, waveform.Failed)
	}
	return f
}

// settle fixes t_term where no marker did.
func (b *Builder) settle() {
	c := &b.close
	if !b.complete && b.at[pClose].mono == 0 {
		if at := max(c.clientAt, c.serverAt); at != 0 {
			b.setAt(pClose, place{at, 0})
		}
	}
	if b.at[pTerm].mono != 0 {
		return
	}
	switch {
	case b.said != nil && b.said.event:
		b.at[pTerm] = place{b.said.at.mono, 0}
	case c.aborted != 0:
		b.at[pTerm] = place{c.aborted, 0}
	case b.interrupted != nil: // the flow has no event for it
		b.at[pTerm] = place{b.interrupted.mono, 0}
	case b.complete && b.bodyBytes > 0:
		b.at[pTerm] = b.lastBody
	case b.complete: // no payload byte: the head's end is the moment
		b.at[pTerm] = place{b.headEnd.mono, 0}
	case c.frameBy != 0:
		b.at[pTerm] = place{c.frameAt, 0}
	case c.first == 1:
		b.at[pTerm] = place{c.clientAt, 0}
	case c.serverAt != 0:
		b.at[pTerm] = place{c.serverAt, 0}
	default:
		b.at[pTerm] = place{b.now, 0}
	}
}

// record fills in what needs no reckoning.
func (b *Builder) record() *Record {
	r := &Record{
		Schema: Schema, RunID: b.id.RunID, Node: b.id.Node, RequestID: b.requestID, RequestIDSource: b.idSource,
		ServerRequestID: str(b.serverID), ConnectionID: b.id.ConnectionID, Attempt: 1,
		Flow: b.flow(), Dialect: b.dialectName(), DialectVariant: str(b.variant()),
		Method: str(b.method), Path: str(b.path), Model: str(b.model), Modalities: b.request.Modalities,
		TInSource: str("request"), Stamp: "read", Analysis: b.analysis, AnalysisReason: str(b.analysisReason),
		BytesUp: b.bytesUp, BytesDown: b.bytesDown, Warnings: b.warnings, Unmeasured: make(map[string]string, 64),
	}
	if b.requestSum != nil {
		r.RequestSHA256 = str(hex.EncodeToString(b.requestSum))
	}
	if b.request.InputChars > 0 {
		r.InputChars = new(int64(b.request.InputChars))
	}
	if b.id.Kernel {
		r.Stamp = "kernel"
	}
	if b.status != 0 {
		r.Status = &b.status
	}
	if b.id.WallOffset != nil {
		r.TInWallNS = new(b.at[pIn].mono + *b.id.WallOffset)
	}
	if r.Warnings == nil {
		r.Warnings = []string{}
	}
	stream := b.answer.Events || b.answer.Sound && b.answer.Unit != "body" || b.status == 0 && b.request.Stream
	r.Stream = &stream
	points, offsets := pointers(&r.Points), pointers(&r.Offsets)
	for p := range nPoints {
		if at := b.at[p]; at.mono != 0 {
			*points[p] = new(at.mono)
			if at.off != 0 {
				*offsets[p] = new(at.off)
			}
		}
	}
	return r
}

func (b *Builder) dialectName() string {
	if b.turn != nil {
		return b.turn.Dialect
	}
	for _, d := range []string{b.dialect, b.headDialect} {
		if d != "" {
			return d
		}
	}
	switch b.family {
	case dialect.Chat, dialect.ChatWhole, dialect.Completion, dialect.Transcription:
		return dialect.OpenAI
	default:
		return dialect.Unknown
	}
}

func (b *Builder) variant() string {
	switch {
	case b.turn != nil:
		return b.turn.Variant
	case b.answer.Events && b.family == dialect.SpeechChunks:
		return "sse_chunk"
	case b.answer.Events:
		return "sse"
	case b.answer.Sound && b.answer.Unit == "body":
		return "whole"
	case b.answer.Sound:
		return "raw"
	case b.answer.Whole:
		return "json"
	}
	return ""
}

// pointers lists the fields of Points in the order of the points.
func pointers(p *Points) [nPoints]**int64 {
	return [nPoints]**int64{&p.TIn, &p.TBody, &p.TUp, &p.THdr, &p.TText, &p.TAudioEvent, &p.TAudio, &p.TAudible, &p.TTerm, &p.TClose}
}

// since returns the milliseconds from t_in to a point, nil where it is missing.
func (b *Builder) since(p point) *float64 {
	if b.at[p].mono == 0 || b.at[pIn].mono == 0 || b.at[p].mono < b.at[pIn].mono {
		return nil
	}
	return new(float64(b.at[p].mono-b.at[pIn].mono) / 1e6)
}

// measure reckons the metrics of contract section 3.
func (b *Builder) measure(r *Record) {
	r.TTFTMS, r.TTFAMS, r.TTFAudibleMS, r.JCTMS = b.since(pText), b.since(pAudio), b.since(pAudible), b.since(pTerm)
	if r.Flow != FlowOpaque && b.analysis != "lost" && !b.unreadType() {
		b.measureText(r)
	}
	if b.snd != nil && (b.snd.bytes+b.snd.opaque > 0 || b.snd.empty > 0) {
		b.measureSound(r)
	}
	r.OwnDelayUS = delay(b.delays)
	if !b.id.Replay {
		r.ClientWaitMS = new(float64(b.waited) / 1e6)
	}
}

func (b *Builder) measureText(r *Record) {
	r.TextUnits, r.TextUnit, r.TextBytes = new(b.textUnits), str("delta"), new(b.textBytes)
	if b.declaredToks >= 0 {
		r.DeclaredTokens = new(b.declaredToks)
	}
	sum := sha256.New().Sum(nil)
	if b.text != nil {
		sum = b.text.Sum(nil)
	}
	r.TextSHA256 = str(hex.EncodeToString(sum))
	if b.textUnits > 1 {
		r.TPOTMS = new(float64(b.lastText-b.at[pText].mono) / 1e6 / float64(b.textUnits-1))
	}
	if b.reasoning.Units > 0 {
		if in := b.at[pIn].mono; in != 0 {
			b.reasoning.FirstMS = new(float64(b.reasonAt-in) / 1e6)
		}
		r.Reasoning = &b.reasoning
	}
}

func (b *Builder) measureSound(r *Record) {
	s := b.snd
	a := &Audio{
		Container: str(string(s.container)), Encoding: str(string(s.format.Encoding)), Chunks: int64(len(s.chunks)) + s.dropped,
		EmptyEvents: s.empty, ChunkUnit: str(b.chunkUnit()), Bytes: s.bytes + s.opaque,
	}
	r.Audio = a
	frames, counted := s.frames()
	if b.analysis == "truncated" && !b.askLost || b.close.unread != "" { // there may be more
		counted = false
	}
	if s.opaque > 0 && s.container != audio.Raw && s.container != audio.WAV {
		a.Encoding = str(string(s.container))
	}
	if counted {
		b.countedSound(r, a, frames)
	}
	if d, ok := s.declaredBytes(); ok && d > 0 && s.format.FrameBytes() > 0 {
		a.DeclaredSamples, a.DeclaredSource = new(d/int64(s.format.FrameBytes())), str(s.declaredFrom())
	}
	b.soundTiming(r, s, frames, counted)
}

// countedSound fills in what rests on counted samples.
func (b *Builder) countedSound(r *Record, a *Audio, frames int64) {
	s := b.snd
	a.Samples = new(frames)
	if s.cfg.Hash != "off" {
		a.SHA256 = str(s.sum())
	}
	if s.format.Channels > 0 {
		a.Channels, a.ChannelsSource = new(int64(s.format.Channels)), str(s.chansFrom)
	}
	rate, assumed := s.rate()
	switch {
	case assumed:
		a.AssumedSampleRate = new(int64(rate))
		if frames > 0 {
			b.Flag("rate_assumed")
		}
	case s.declaresRate():
		a.SampleRate, a.SampleRateSource = new(int64(rate)), str(s.rateFrom)
		if s.nominal && frames > 0 {
			b.Flag("rate_assumed")
		}
	default:
		a.SampleRate, a.SampleRateSource = new(int64(rate)), str("config")
	}
	if frames == 0 {
		return
	}
	seconds := float64(frames) / float64(rate)
	r.AudioS = new(seconds)
	if r.JCTMS != nil && *r.JCTMS > 0 {
		r.RTF, r.XRT = new(*r.JCTMS/1000/seconds), new(seconds/(*r.JCTMS/1000))
	}
	b.audible(r)
}

// audible fills in what rests on what is heard.
func (b *Builder) audible(r *Record) {
	if b.snd.wave == nil {
		return
	}
	heard, ok := b.snd.wave.Heard()
	if !ok {
		return
	}
	r.AudibleS = new(heard)
	if r.JCTMS != nil && *r.JCTMS > 0 {
		r.RTFAudible = new(*r.JCTMS / 1000 / heard)
	}
}

// incrementalNS is how far apart the first and the last sound must come to count
// as coming bit by bit: what a buffer lets go in one lump takes microseconds.
const incrementalNS = 1e6

// soundTiming fills in gaps, playback and whether sound came bit by bit.
func (b *Builder) soundTiming(r *Record, s *sound, frames int64, counted bool) {
	if len(s.chunks) == 0 {
		return
	}
	incremental := s.lastAt-s.firstAt > incrementalNS
	r.Incremental = &incremental
	if !incremental && len(s.chunks) > 1 {
		b.Flag("burst_delivery")
	}
	if b.answer.Unit == "body" || b.answer.Whole || s.dropped > 0 {
		return
	}
	r.AudioGapMS = gaps(s.chunks)
	if counted && frames > 0 && b.at[pAudio].mono != 0 {
		in := b.arrivals()
		r.Playback = playback(in)
		rate, _ := s.rate()
		r.Playback.FirstChunkMS = 1000 * float64(s.chunks[0].frames) / float64(rate)
		if b.turn != nil && paced(in) {
			b.Flag("paced")
		}
	}
}

// arrivals lists the sound by its arrival; what came up to t_audio is one.
func (b *Builder) arrivals() []arrival {
	rate, _ := b.snd.rate()
	var in []arrival
	for _, c := range b.snd.chunks {
		a := arrival{ms: float64(c.mono-b.at[pAudio].mono) / 1e6, seconds: float64(c.frames) / float64(rate)}
		if n := len(in); n > 0 && (a.ms <= 0 || in[n-1].ms == a.ms) {
			in[n-1].seconds += a.seconds
			in[n-1].ms = max(0, a.ms)
			continue
		}
		a.ms = max(0, a.ms)
		in = append(in, a)
	}
	return in
}

func (b *Builder) chunkUnit() string {
	switch {
	case b.turn != nil:
		return b.answer.Unit
	case b.answer.Events:
		return "event"
	case b.answer.Whole:
		return "body"
	}
	return b.answer.Unit
}

// checks fills in the verdict over the invariants that were looked at.
func (b *Builder) checks(r *Record, f *facts) {
	r.Quality = Quality{Verdict: "not_measured", Failed: []string{}, NotMeasured: []string{}}
	if b.snd == nil || r.Audio == nil {
		return
	}
	r.Quality.Checks = f.findings
	if reason := b.unreliable(r); reason != "" {
		r.Quality.Checks = nil
		for _, name := range CheckNames() {
			r.Quality.Checks = append(r.Quality.Checks, unmeasured(name, reason))
		}
	}
	r.Quality.Add(nil)
}

// Add adds findings and draws the verdict anew.
func (q *Quality) Add(more []waveform.Finding) {
	q.Checks = slices.Concat(q.Checks, more)
	slices.SortStableFunc(q.Checks, func(a, b waveform.Finding) int { return strings.Compare(a.Name, b.Name) })
	q.Failed, q.NotMeasured = named(q.Checks, waveform.Failed), named(q.Checks, waveform.NotMeasured)
	switch {
	case len(q.Failed) > 0:
		q.Verdict = "failed"
	case len(q.NotMeasured) < len(q.Checks):
		q.Verdict = "passed"
	}
}

// unreliable says why the checks say nothing of this sound, if they do not.
func (b *Builder) unreliable(r *Record) string {
	switch {
	case b.analysis != "full" && !b.askLost:
		return "the sound was not seen in full"
	case r.Audio.Samples == nil:
		return "the samples cannot be counted"
	}
	return ""
}

// notes adds flags and warnings.
func (b *Builder) notes(r *Record, f *facts) {
	if f.markerDue && b.complete && !f.marker && f.finish {
		b.Flag("missing_done")
	}
	if f.marker && (b.family == dialect.Chat || b.family == dialect.Completion) && !b.finish && b.said == nil {
		b.Flag("missing_finish_reason")
	}
	if f.marker && !b.complete && b.turn == nil {
		b.Flag("cut_after_terminal")
	}
	if b.waited > int64(b.cfg.SlowClientMS)*1e6 {
		b.Flag("client_slow")
	}
	if b.slow {
		b.Flag("relay_lag")
	}
	if b.limits.stalls > 0 || b.limits.told && b.state != Success {
		b.Flag("audio_stall")
	}
	if b.limits.late && b.state != DeadlineExceeded {
		b.Flag("deadline_passed")
	}
	if b.multi {
		b.Flag("multiple_choices")
	}
	if b.failedItems > 0 {
		b.Flag("items_failed")
	}
	if b.snd != nil && r.Audio != nil {
		b.soundNotes()
		r.Warnings = append([]string{}, b.warnings...)
	}
	if f.owes.text && !f.text || len(b.request.Modalities) > 0 && slices.Contains(b.request.Modalities, "text") && !f.text && f.audio {
		b.Flag("no_text")
	}
	if has(strings.ToLower(string(b.textHead)), oomContent) {
		b.Flag("oom_suspected")
	}
	r.Flags = b.flagList()
}

// oomContent begins a text that is an error of the memory sent as content.
var oomContent = []string{"cuda out of memory", "outofmemoryerror"}

func (b *Builder) flagList() []string {
	out := append([]string{}, b.flags...)
	slices.Sort(out)
	return out
}

func (b *Builder) soundNotes() {
	s := b.snd
	if rate, _ := s.rate(); s.model > 0 && s.declaresRate() && rate != s.model { // the wire wins (case C26)
		b.Warn(fmt.Sprintf("%s says %d Hz, the configuration %d for model %s", s.rateFrom, rate, s.model, b.model))
	}
	c, _, ok := audio.ByName(b.request.Format)
	if same := c == s.container || c == audio.Opus && s.container == audio.Ogg; ok && s.container != "" && !same {
		b.Flag("format_not_as_requested")
	}
	for _, p := range s.problems {
		switch audio.Problem(p.kind) {
		case audio.RepeatedHeader, audio.ByteRateWrong:
			b.Flag(p.kind)
		default: // faults, told elsewhere
		}
	}
}

func str(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
