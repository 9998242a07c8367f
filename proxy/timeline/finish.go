package timeline

import (
	"encoding/hex"

	"github.com/omnitap/omnitap/proxy/timeline/waveform"
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
	b.tellHeld()
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
	b.tellHeld()
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
	b.emit("terminal", b.at[pTerm], Event{Status: Text(state), Bytes: N(b.bytesDown)})
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
		ServerRequestID: str(b.serverID), Traceparent: b.traceparent, ConnectionID: b.id.ConnectionID, Attempt: 1,
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

func str(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
