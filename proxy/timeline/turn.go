package timeline

import (
	"crypto/sha256"

	"github.com/omnitap/omnitap/proxy/wire/audio"
)

// Turn says which turn of which session a Builder follows.
type Turn struct {
	// Session is the session's id, N the turn's number in it, from 0.
	Session string
	N       int
	// Flow, Dialect and Variant are as in Record.
	Flow, Dialect, Variant string
	// Method and Path are those of the request that opened the session.
	Method, Path string
	// Model, Modalities and Format are what the session was asked for.
	Model      string
	Modalities []string
	Format     string
	// ServerID is the server's name of the turn, empty for none.
	ServerID string
	// RequestID and Source name the turn and say where that name comes from.
	RequestID, Source string
	// Traceparent is that of the request that opened the session, empty for none.
	Traceparent string
	// Rate is the sample rate of bare samples as the session's description or its
	// dialect has it, 0 for unknown; RateFrom says which. Nominal says that it is
	// known to be wrong at times.
	Rate     int
	RateFrom string
	Nominal  bool
}

// NewTurn returns a Builder for a turn. Asked says what asked for it.
func NewTurn(cfg *Config, id Identity, sink Sink, t Turn) *Builder {
	b := New(cfg, id, sink, 0, 0)
	b.turn = &t
	b.requestID, b.idSource = t.RequestID, t.Source
	b.traceparent = t.Traceparent
	b.method, b.path, b.status, b.serverID, b.model = t.Method, t.Path, 101, t.ServerID, t.Model
	b.dialect = t.Dialect
	b.request.Modalities, b.request.Format = t.Modalities, t.Format
	b.ready = true
	b.answer = Answer{Unit: "message", Events: true, Rate: t.Rate, RateFrom: t.RateFrom}
	return b
}

// Asked notes the message that asked for the turn: its first byte came at mono,
// its last is byte off of the client's stream (0 where the server's own event
// started the turn; see InServer). source names it.
func (b *Builder) Asked(source string, mono, off int64) {
	b.asked = source
	b.setAt(pIn, place{mono, off})
	b.renew()
	b.Now(b.now)
}

// InServer notes that t_in is byte off of the server's stream.
func (b *Builder) InServer(off int64) { b.inServer = off }

// PartlyAsked notes that a message of the client which may have asked for the
// turn could not be read: the answer could.
func (b *Builder) PartlyAsked(why string) {
	b.Analysis("truncated", why)
	b.askLost = b.analysisReason == why
}

// Also notes another moment that could be taken for t_in.
func (b *Builder) Also(name string, mono int64) {
	if b.also == nil {
		b.also = map[string]int64{}
	}
	if _, ok := b.also[name]; !ok {
		b.also[name] = mono
		b.emit(EventAlternative, place{mono, 0}, Event{Status: Text(name)})
	}
}

// InputEnd notes the last byte of what the client said for the turn.
func (b *Builder) InputEnd(mono, off int64) { b.setAt(pBody, place{mono, off}) }

// Message notes a message of the client that asked for the turn: size bytes on the
// wire, the last of which is byte off of its stream and came at mono.
func (b *Builder) Message(size, mono, off int64) {
	b.AddBytes(size, 0)
	b.emit(EventMessage, place{mono, off}, Event{Bytes: N(size)})
}

// Heard notes the sound that the client sent for the turn: its messages of that kind
// from the first-th of the session on, wire bytes in all. It began to come at mono.
func (b *Builder) Heard(in Input, first, wire, mono int64) {
	b.input = &in
	b.AddBytes(wire, 0)
	b.emit(EventInputTaken, place{mono, 0}, Event{ChunkID: N(first), Count: N(in.Messages), Rate: N(in.SampleRate)})
}

// OwesNothing notes that the server said that there is nothing to come.
func (b *Builder) OwesNothing() { b.free = true }

// Begin notes that the server has begun the turn.
func (b *Builder) Begin() { b.begun = true }

// Named notes the server's name of the turn.
func (b *Builder) Named(id string) {
	if b.serverID == "" {
		b.serverID = id
	}
}

// Snapshot takes a text that stands for all text so far; its last byte is off.
func (b *Builder) Snapshot(p []byte, off int64) {
	if len(p) == 0 {
		if b.textUnits > 0 { // it takes back what was heard
			b.text, b.textBytes = sha256.New(), 0
			b.emit(EventTextReset, place{b.now, off}, Event{ChunkID: N(b.textUnits)})
		}
		return
	}
	b.text, b.textBytes, b.textHead = sha256.New(), 0, b.textHead[:0]
	b.snapshot = true
	b.addText(p, off)
	b.snapshot = false
}

// Marker notes the turn's end marker, whose last byte is off.
func (b *Builder) Marker(off int64) {
	if b.marker.mono == 0 {
		b.marker = place{b.now, off}
		b.set(pTerm, off)
	}
}

// MarkerAt notes that what was taken for a part of the turn was its end marker.
func (b *Builder) MarkerAt(mono, off int64) {
	if b.marker.mono == 0 {
		b.marker = place{mono, off}
		b.setAt(pTerm, b.marker)
	}
}

// Interrupted notes that the user cut the turn off; detail is the server's word.
func (b *Builder) Interrupted(detail string) {
	if b.interrupted == nil {
		b.interrupted = &interruption{detail, b.now}
	}
}

// Said notes a failure that the server put into a status rather than an error.
func (b *Builder) Said(state State, reason string, off int64) {
	if b.said == nil {
		b.said = &said{state: state, reason: reason, at: place{b.now, off}, event: true}
	}
}

// Cancelled notes when the turn was asked to stop, by the client's message or the
// user's speech: what comes after is counted.
func (b *Builder) Cancelled(mono int64, by string) {
	if b.cancel == nil {
		b.cancel = &Cancel{AtNS: mono, By: by}
		b.cancelChunks, b.cancelFrames = b.heardSoFar()
		b.emit("cancel", place{mono, 0}, Event{Status: Text(by)})
	}
}

func (b *Builder) heardSoFar() (chunks, frames int64) {
	if b.snd == nil {
		return 0, 0
	}
	frames, _ = b.snd.frames()
	return int64(len(b.snd.chunks)) + b.snd.dropped, frames
}

// CloseFrame notes a close frame that came before the turn was over: by is 1
// for the client, 2 for the server; code 0 is a frame without one.
func (b *Builder) CloseFrame(by, code int, reason string, mono int64) {
	c := &b.close
	if c.frameBy == 0 {
		c.frameBy, c.frameCode, c.frameAt, c.frameReason = by, code, mono, reason
	}
}

// Left notes that the client said, at mono, that it leaves.
func (b *Builder) Left(mono int64) {
	if b.close.left == 0 {
		b.close.left = mono
	}
}

// Over notes that the server said that the session is over.
func (b *Builder) Over() { b.close.over = true }

// PingTimeout notes that the side that closed had waited for a pong in vain.
func (b *Builder) PingTimeout() { b.close.pingTimeout = true }

// BadFrames notes that the server broke the protocol amid the turn: reason is a
// word for it.
func (b *Builder) BadFrames(reason, why string) {
	b.close.badReason, b.close.badFrames = reason, why
	if b.close.serverAt == 0 {
		b.close.serverAt = b.now
	}
}

// Declared adds a total that a done event declares, in bytes of bare samples.
func (b *Builder) Declared(n int64) {
	s := b.sound()
	s.doneBytes += n
	s.doneUnits++
}

// Undeclared notes a done event whose total means nothing.
func (b *Builder) Undeclared() { b.sound().doneBad = true }

// Rate learns the rate of bare samples from a message.
func (b *Builder) Rate(rate int, from string, nominal bool) {
	if rate <= 0 {
		return
	}
	s := b.sound()
	if nominal && (s.files > 0 || s.format.Rate > 0 && !s.nominal) {
		return // the wire knows better
	}
	s.hint(audio.Format{Rate: rate}, from, from)
	s.nominal = nominal
}

// BinaryStart starts a binary message of sound of that format.
func (b *Builder) BinaryStart(format string) {
	s := b.sound()
	c, enc, _ := audio.ByName(format)
	s.track.Declared, s.track.Files = c, true
	if enc != "" && s.files == 0 {
		s.hint(audio.Format{Encoding: enc}, "", "")
	}
	s.begin()
	s.was = s.bytes + s.opaque
	s.atStart = [2]bool{s.playable.mono != 0, s.ear != nil && s.ear.found}
	s.track.Begin()
}

// Binary takes bytes of the message.
func (b *Builder) Binary(p []byte) { b.snd.track.Write(p, audio.Pos{}) }

// BinaryEnd ends the message, whose last byte is off: whatever it completed was
// complete then.
func (b *Builder) BinaryEnd(off int64) {
	s := b.snd
	s.track.End()
	at := place{b.now, off}
	b.setAt(pAudioEvent, at)
	if s.playable.mono != 0 && !s.atStart[0] {
		s.playable = at
	}
	if s.ear != nil && s.ear.found && !s.atStart[1] {
		s.ear.at = at
	}
	b.heard()
	if s.bytes+s.opaque == s.was || !s.end(off) {
		b.noSound(off)
		return
	}
	b.chunkSound(off)
}

// interruption is a turn that the user cut off.
type interruption struct {
	detail string
	mono   int64
}

// answered reports whether the server began to answer.
func (b *Builder) answered() bool { return b.at[pHdr].mono != 0 || b.begun }

// turnFields fills in what only turns have.
func (b *Builder) turnFields(r *Record) {
	t := b.turn
	if t == nil {
		return
	}
	r.SessionID, r.Turn = str(t.Session), &t.N
	r.TInSource, r.TInAlternatives = str(b.asked), b.also
	if b.inServer > 0 {
		r.TInServerOffset = &b.inServer
	}
	r.Input = b.input
	if c := b.cancel; c != nil {
		chunks, frames := b.heardSoFar()
		c.ChunksAfter, c.SamplesAfter = chunks-b.cancelChunks, frames-b.cancelFrames
		if c.ChunksAfter > 0 {
			c.ToSilenceMS = new(float64(b.snd.lastAt-c.AtNS) / 1e6)
		}
		r.Cancel = c
	}
}
