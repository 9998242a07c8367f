package timeline

import (
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/omnitap/omnitap/proxy/wire/audio"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// scratch holds decoded payloads for the time of one call.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// Event takes what an event or a whole answer means; its last byte is off.
func (b *Builder) Event(ev *dialect.Event, off int64) {
	if b.marker.mono != 0 {
		b.afterMarker++
		b.Flag("after_terminal")
		return
	}
	b.learn(ev)
	if ev.Err != nil {
		b.fault(ev.Err, off)
	}
	if len(ev.Text) > 0 && (!ev.Final || b.textUnits == 0) {
		b.addText(ev.Text, off)
	}
	if len(ev.Reasoning) > 0 {
		if b.reasoning.Units == 0 {
			b.reasonAt = b.now
		}
		chars := int64(utf8.RuneCount(ev.Reasoning))
		b.emit(EventReasoning, place{b.now, off}, Event{ChunkID: N(b.reasoning.Units), Bytes: N(int64(len(ev.Reasoning))), Chars: N(chars)})
		b.reasoning.Units++
		b.reasoning.Chars += chars
	}
	b.tool = b.tool || ev.Tool || len(ev.Refusal) > 0
	if ev.AudioTyped {
		b.set(pAudioEvent, off)
		b.parts(ev.Parts, off)
	}
	if ev.HasFinish && ev.Finish != "" {
		b.finish = true
	}
	b.hasFinish = b.hasFinish || ev.HasFinish
	b.final = b.final || ev.Final
	if ev.Done {
		b.marker = place{b.now, off}
		b.set(pTerm, off)
	}
}

// Learned reports whether events need not be read for ids and names any more.
func (b *Builder) Learned() bool { return b.serverID != "" && b.dialect != "" && b.model != "" }

// learn keeps ids and names that an event carries.
func (b *Builder) learn(ev *dialect.Event) {
	if b.family == dialect.Other {
		b.family = ev.Family
	}
	if b.dialect == "" {
		b.dialect = ev.Dialect
	}
	if b.serverID == "" {
		b.serverID = ev.ID
	}
	if b.model == "" {
		b.model = ev.Model
	}
	if ev.Tokens >= 0 {
		b.declaredToks = max(b.declaredToks, ev.Tokens)
	}
	if ev.Unknown {
		b.unknown++
		b.audioLike = b.audioLike || ev.AudioLike
		if b.answer.Events {
			b.Flag("unknown_events")
		}
	}
	if ev.Choices > 1 && ev.Family == dialect.Chat {
		b.multi = true
	}
	b.failedItems += ev.Failed
}

// parts takes the sound of one event.
func (b *Builder) parts(parts []dialect.Part, off int64) {
	s := b.sound()
	s.track.Files = true
	before := s.bytes + s.opaque
	s.begin()
	for i := range parts {
		b.part(&parts[i], off)
	}
	if s.bytes+s.opaque == before || !s.end(off) {
		b.noSound(off)
		return
	}
	b.chunkSound(off)
}

func (b *Builder) part(p *dialect.Part, off int64) {
	s := b.snd
	buf := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	raw, lenient, err := audio.Decode(*buf, p.Base64)
	if err != nil {
		b.trouble = append(b.trouble, trouble{"base64", fmt.Sprintf("audio event %d", int64(len(s.chunks))+s.empty)})
		s.opaque += int64(len(p.Base64)) // it is there, and cannot be counted
		return
	}
	if cap(raw) > cap(*buf) {
		*buf = raw[:0]
	}
	if lenient {
		b.Flag("lenient_base64")
	}
	c, enc, _ := audio.ByName(p.Format)
	s.track.Declared = c
	if enc != "" || p.Rate > 0 || p.Channels > 0 {
		from := ""
		if p.Rate > 0 {
			from = "event"
		}
		if s.files == 0 {
			s.hint(audio.Format{Encoding: enc, Rate: p.Rate, Channels: p.Channels}, from, "event")
		}
	}
	headed := s.files > 0 // else the label was a hint, which a header contradicts by itself
	s.track.Begin()
	s.track.Write(raw, audio.Pos{Off: off})
	s.track.End()
	b.heard()
	if !headed || p.Rate <= 0 || s.format.Rate == 0 {
		return
	}
	if s.rated("event"); p.Rate != s.format.Rate {
		s.fail("rate_conflict", fmt.Sprintf("the event says %d Hz, its header %d", p.Rate, s.format.Rate))
	}
}

// sound returns the exchange's sound, made when first needed.
func (b *Builder) sound() *sound {
	if b.snd == nil {
		b.snd = newSound(b.cfg, func() int64 { return b.now })
		b.snd.listener = b.listener()
		b.snd.model = b.cfg.Rates[b.model]
		if u := b.chunkUnit(); u == "event" || u == "message" || u == "http_chunk" { // reads are cut by the network
			b.snd.hop = b.cfg.Hops[b.model]
		}
		if b.answer.Rate > 0 || b.answer.Channels > 0 {
			b.snd.hint(audio.Format{Rate: b.answer.Rate, Channels: b.answer.Channels}, b.answer.RateFrom, b.answer.RateFrom)
			b.snd.nominal = b.turn != nil && b.turn.Nominal
		}
	}
	return b.snd
}

// heard lets the points out that samples completed.
func (b *Builder) heard() {
	s := b.snd
	if s.playable.mono != 0 && b.at[pAudio].mono == 0 {
		b.byAudio, _ = s.frames()
		b.setAt(pAudio, s.playable)
	}
	if s.ear != nil && s.ear.found {
		b.setAt(pAudible, s.ear.at)
	}
	b.sounded()
}

func (b *Builder) chunkSound(off int64) {
	s := b.snd
	n := len(s.chunks)
	if n == 0 || s.dropped > 0 {
		return
	}
	c := s.chunks[n-1]
	b.chunkOut("output_chunk", int64(n-1), off, c.bytes, c.frames, false)
}

// SoundStart starts a body of sound.
func (b *Builder) SoundStart() {
	s := b.sound()
	c, enc, _ := audio.ByName(b.answer.ContentType)
	s.track.Declared = c
	if enc != "" {
		s.encoded(enc)
	}
	s.track.Begin()
	s.begin()
}

// Sound takes bytes of a body of sound; the first lies at pos.
func (b *Builder) Sound(p []byte, pos audio.Pos) {
	s := b.snd
	before := s.bytes
	if b.headDialect == dialect.SGLangOmni { // its own metric counts the first body message
		b.set(pAudioEvent, pos.Off)
	}
	if before == 0 && s.container == audio.WAV || s.container == "" {
		// the first sample lies behind a header of which this span may hold a part
		s.track.Write(p, pos)
		if got := s.bytes + s.opaque; got > 0 {
			b.set(pAudioEvent, pos.Plus(len(p)-int(min(int64(len(p)), got))).Off)
		}
	} else {
		s.track.Write(p, pos)
	}
	b.heard()
	if b.answer.Unit == "read" {
		b.soundChunk(pos.Plus(len(p) - 1).Off)
		s.begin()
	}
}

// SoundChunkStart notes the start of an HTTP chunk.
func (b *Builder) SoundChunkStart() {
	if b.answer.Unit == "http_chunk" {
		b.snd.track.Border()
		b.snd.begin()
	}
}

// SoundChunkEnd notes the last payload byte of an HTTP chunk.
func (b *Builder) SoundChunkEnd(off int64) {
	if b.answer.Unit == "http_chunk" {
		b.snd.track.BorderEnd()
		b.soundChunk(off)
	}
}

func (b *Builder) soundChunk(off int64) {
	if b.snd.end(off) {
		b.chunkSound(off)
	} else {
		b.noSound(off)
	}
}

// noSound notes an audio event without sound, whose last byte is off.
func (b *Builder) noSound(off int64) {
	b.emit(EventEmptyAudio, place{b.now, off}, Event{ChunkID: N(b.snd.empty)})
	b.snd.empty++
}

// SoundEnd ends a body of sound: what came of a last chunk counts as one.
func (b *Builder) SoundEnd(off int64) {
	s := b.snd
	s.track.End()
	b.heard()
	if s.inChunk > 0 {
		b.soundChunk(off)
	}
}

// Body counts payload bytes of the answer; the last of them is byte off.
func (b *Builder) Body(n int, off int64) {
	b.bodyBytes += int64(n)
	b.lastBody = place{b.now, off}
}

// Complete notes the end of the answer as its framing says.
func (b *Builder) Complete() { b.complete = true }
