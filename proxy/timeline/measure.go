package timeline

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/omnitap/omnitap/proxy/wire/audio"
)

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
	first, behind, rate := b.snd.wave.Heard()
	if rate == 0 {
		return
	}
	heard := float64(behind-first) / float64(rate)
	r.AudibleS = new(heard)
	if r.JCTMS != nil && *r.JCTMS > 0 {
		r.RTFAudible = new(*r.JCTMS / 1000 / heard)
	}
	b.heardFrame(EventHeardFirst, first+1, rate)
	b.heardFrame(EventHeardLast, behind, rate)
}

// heardFrame sends out which sample frame, from 1, begins or ends what is heard.
func (b *Builder) heardFrame(word string, frame int64, rate int) {
	s := b.snd
	at, e := s.lastAt, Event{Samples: N(frame), Rate: N(int64(rate))}
	var frames int64
	for i, c := range s.chunks {
		if frames += c.frames; frames >= frame {
			at, e.ChunkID = c.mono, N(int64(i))
			break
		}
	}
	b.emit(word, place{at, 0}, e)
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
	if s.firstAt != s.chunks[0].mono {
		b.emit(EventFirstSound, place{s.firstAt, 0}, Event{})
	}
	if s.lastAt != s.chunks[len(s.chunks)-1].mono {
		b.emit(EventLastSound, place{s.lastAt, 0}, Event{})
	}
	r.Incremental = &incremental
	if !incremental && len(s.chunks) > 1 {
		b.Flag("burst_delivery")
	}
	if b.answer.Unit == "body" || b.answer.Whole || s.dropped > 0 {
		return
	}
	r.AudioGapMS = gaps(s.chunks)
	if counted && frames > 0 && b.at[pAudio].mono != 0 {
		in := b.arrivals(b.at[pAudio].mono)
		r.Playback = playback(in, b.arrivals(s.chunks[0].mono))
		rate, _ := s.rate()
		r.Playback.FirstChunkMS = 1000 * float64(s.chunks[0].frames) / float64(rate)
		if b.turn != nil && paced(in) {
			b.Flag("paced")
		}
	}
}

// arrivals lists the sound by its arrival since a moment; what came up to it, and the
// chunk that it lies in, is one.
func (b *Builder) arrivals(from int64) []arrival {
	rate, _ := b.snd.rate()
	var in []arrival
	begun := false
	for _, c := range b.snd.chunks {
		a := arrival{ms: float64(c.mono-from) / 1e6, seconds: float64(c.frames) / float64(rate)}
		if !begun {
			a.ms, begun = 0, c.mono >= from
		}
		if n := len(in); n > 0 && in[n-1].ms == a.ms {
			in[n-1].seconds += a.seconds
			continue
		}
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
