// Package waveform looks at the samples of one stream of sound and says, check
// by check, whether they are what a player should get: passed, failed, or not
// measured with the reason (contract section 4).
//
//	bytes ── decode ──▶ frames ──▶ levels ──▶ silence, clipping, offset
//	                         └───▶ borders ──▶ jumps, overlaps, repeats
//
// Each check is a file of its own, sees the stream once, and holds a bounded
// state: together some 16 KiB a stream, whatever its length.
//
// Values are looked at in 16 bits, whatever the encoding: finer differences are
// nobody's fault. It knows samples and chunks alone: no containers, no times of arrival, no
// requests; what headers and events declare is judged by its caller.
package waveform

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/omnitap/omnitap/proxy/wire/audio"
)

// Verdict is what a check says.
type Verdict string

// Verdicts. NotMeasured is never Passed.
const (
	Passed      Verdict = "passed"
	Failed      Verdict = "failed"
	NotMeasured Verdict = "not_measured"
)

// Finding is the outcome of one check: one entry of `checks` in quality.jsonl.
// What does not apply is nil.
type Finding struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	// Reason says what failed or why nothing was measured, with its amounts.
	Reason string `json:"reason"`
	// Chunk is the logical chunk where it was first seen, from 0, and Sample the
	// sample frame of the stream.
	Chunk  *int   `json:"chunk"`
	Sample *int64 `json:"sample"`
	// Measured and Threshold are in the unit that the check's documentation names.
	Measured  *float64 `json:"measured"`
	Threshold *float64 `json:"threshold"`
}

// Config holds the thresholds. The zero value of each field means its default.
type Config struct {
	// Off looks at no sample: every check is not measured.
	Off bool `yaml:"off"`
	// SilenceDBFS is the level up to which 5 ms are silent, in dB of full scale,
	// as RMS about their own mean: -60.
	SilenceDBFS float64 `yaml:"-"`
	// LeadingSilenceS, InnerSilenceS and TrailingSilenceS bound silence ahead of,
	// amid and behind what is heard, in seconds: 5, 5 and 5.
	LeadingSilenceS  float64 `yaml:"leading_silence_s"`
	InnerSilenceS    float64 `yaml:"inner_silence_s"`
	TrailingSilenceS float64 `yaml:"trailing_silence_s"`
	// ClippedShare bounds the share of sample frames in runs of at least three at
	// full scale: 0.01.
	ClippedShare float64 `yaml:"clipped_share"`
	// DCOffset bounds the constant offset, of full scale: 0.05.
	DCOffset float64 `yaml:"dc_offset"`
	// BorderJump is how far above the largest rest of a prediction within 10 ms a chunk
	// border must surprise to count for border_jumps: 1; BorderShare the share of
	// borders that must: 0.1. BorderBreak is what one border alone must surprise by: 4.
	BorderJump  float64 `yaml:"border_jump"`
	BorderShare float64 `yaml:"border_share"`
	BorderBreak float64 `yaml:"border_break"`
	// Hop is the model's frame hop in samples, with which the amount lost at
	// borders is told; 0 for unknown.
	Hop int `yaml:"-"`
}

// WithDefaults returns the configuration with the defaults of a file filled in.
func (c Config) WithDefaults() Config {
	def := func(p *float64, v float64) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.LeadingSilenceS, 5)
	def(&c.InnerSilenceS, 5)
	def(&c.TrailingSilenceS, 5)
	def(&c.ClippedShare, 0.01)
	def(&c.DCOffset, 0.05)
	def(&c.BorderJump, 1)
	def(&c.BorderShare, 0.1)
	def(&c.BorderBreak, 4)
	return c
}

// Names lists the checks of this package, sorted.
func Names() []string {
	return []string{
		"border_break", "border_jumps", "border_overlap", "chunk_hops", "clipping", "dc_offset", "dropout", "finite",
		"inner_silence", "leading_silence", "repeated_audio", "repeated_chunk", "trailing_silence",
	}
}

// block is how many frames are decoded at a time.
const block = 256

// Stream looks at one stream. Make it with New; it is not safe for concurrent use.
type Stream struct {
	cfg    Config
	format audio.Format
	rate   int
	part   []byte // bytes of a frame cut by a span
	frames int64
	chunk  int
	odd    string // why samples cannot be looked at, empty where they can

	first, loud [block]int16 // of each frame the first channel, and the loudest
	raw         [2 * block]byte
	bad         int64 // samples that are NaN or infinite
	badAt       place

	levels  levels
	border  border
	overlap overlap
	repeat  repeat
	dropout dropout
}

// place is where in the stream something is.
type place struct {
	chunk int
	frame int64
}

// New returns a Stream. Format tells it what the bytes are, ahead of them.
func New(cfg Config) *Stream {
	s := &Stream{cfg: cfg.WithDefaults()}
	if s.cfg.SilenceDBFS == 0 {
		s.cfg.SilenceDBFS = -60
	}
	s.levels.cfg, s.border.cfg, s.border.hops.cfg = &s.cfg, &s.cfg, &s.cfg
	return s
}

// Skip counts n chunks that held no samples to look at.
func (s *Stream) Skip(n int) { s.chunk += n }

// Format says what the next bytes are; rate is what seconds are reckoned with.
// A change leaves an unfinished frame behind, and what stands on either side of
// it is not compared.
func (s *Stream) Format(f audio.Format, rate int) {
	if f == s.format && rate == s.rate {
		return
	}
	if s.format.Encoding != "" && f != s.format {
		s.border.forget()
		s.overlap.forget()
		s.repeat.forget()
	}
	s.format, s.rate, s.part = f, rate, s.part[:0]
	s.levels.setRate(rate)
	s.border.setRate(rate)
	s.dropout.setRate(rate)
	switch {
	case f.FrameBytes() == 0:
		s.odd = "samples of " + string(f.Encoding) + " are not decoded"
	default:
		s.odd = ""
	}
}

// Begin starts a logical chunk.
func (s *Stream) Begin() {
	s.border.begin(s.frames)
	s.overlap.begin(s.frames)
	s.repeat.begin(s.frames)
}

// End ends a logical chunk.
func (s *Stream) End() {
	o := &s.overlap
	again := s.repeat.end(s.chunk, o, s.silentBelow())
	s.border.end(place{s.chunk, s.frames}, o, again, s.silentBelow())
	o.end(s.chunk, again, s.silentBelow())
	s.chunk++
}

// Samples takes sample bytes, cut anywhere.
func (s *Stream) Samples(p []byte) {
	size := s.format.FrameBytes()
	if size == 0 || s.cfg.Off {
		return
	}
	s.repeat.add(p)
	if len(s.part) > 0 {
		n := min(size-len(s.part), len(p))
		s.part = append(s.part, p[:n]...)
		if len(s.part) < size {
			return
		}
		s.look(s.part, size)
		s.part, p = s.part[:0], p[n:]
	}
	whole := len(p) / size * size
	for from := 0; from < whole; from += block * size {
		s.look(p[from:min(whole, from+block*size)], size)
	}
	s.part = append(s.part, p[whole:]...)
}

// look takes whole frames, at most block of them.
func (s *Stream) look(p []byte, size int) {
	n := len(p) / size
	at := place{s.chunk, s.frames}
	s.frames += int64(n)
	if s.format.Encoding == audio.S16LE && size == 2 {
		s.levels.addMono(p, at)
		s.dropout.addMono(p, at)
		s.border.addMono(p)
		s.overlap.add(p)
		return
	}
	first, loud := s.first[:n], s.first[:n]
	s.decode(at, first, p, 0)
	if s.format.Channels > 1 {
		loud = s.loud[:n]
		copy(loud, first)
		var other [block]int16
		for c := 1; c < s.format.Channels; c++ {
			s.decode(at, other[:n], p, c)
			louder(loud, other[:n])
		}
	}
	s.levels.add(loud, at)
	s.dropout.add(loud, at)
	s.border.add(first)
	s.overlap.add(s.bytes(first))
}

// bytes returns values as bytes.
func (s *Stream) bytes(x []int16) []byte {
	b := s.raw[:0]
	for _, v := range x {
		b = binary.LittleEndian.AppendUint16(b, uint16(v))
	}
	return b
}

// louder keeps of each frame the value that is further from 0.
func louder(loud, other []int16) {
	for i, v := range other {
		if magnitude(v) > magnitude(loud[i]) {
			loud[i] = v
		}
	}
}

// decode decodes a channel of frames from at on, and notes what is not finite.
func (s *Stream) decode(at place, x []int16, p []byte, c int) {
	bad, first := decode(x, p, s.format, c)
	if bad == 0 {
		return
	}
	if i := at.frame + int64(first); s.bad == 0 || i < s.badAt.frame {
		s.badAt = place{at.chunk, i}
	}
	s.bad += int64(bad)
}

// silentBelow is the silence threshold as a value.
func (s *Stream) silentBelow() float64 { return amplitude(s.cfg.SilenceDBFS) }

// Heard returns the sample frames ahead of what is heard and those up to its end,
// pauses within included, and the rate in Hz that seconds are reckoned with: 0 where
// nothing is heard.
func (s *Stream) Heard() (first, behind int64, rate int) {
	if !s.levels.silence.heard || s.rate <= 0 {
		return 0, 0, 0
	}
	return s.levels.silence.start.frame, s.levels.silence.end.frame, s.rate
}

// Zero reports whether every sample so far, but for less than the last 5 ms, is
// exactly 0. Call it behind Findings to have all of them.
func (s *Stream) Zero() bool { return !s.levels.nonzero }

// Findings returns what the checks say, sorted by name. whole says that the
// stream came to its own end: what is at the end of another one was cut off by
// whoever ended it.
func (s *Stream) Findings(whole bool) []Finding {
	var out []Finding
	if s.frames == 0 {
		reason := cmp.Or(s.odd, "no samples")
		if s.cfg.Off {
			reason = "the checks are off"
		}
		for _, name := range Names() {
			out = append(out, Finding{Name: name, Verdict: NotMeasured, Reason: reason})
		}
		return out
	}
	out = append(out, s.border.hops.finding(), s.overlap.finding(), s.dropout.finding(), s.finite())
	out = append(out, s.border.findings()...)
	out = append(out, s.repeat.findings(s.frames, s.format.FrameBytes())...)
	out = append(out, s.levels.findings(s.frames, whole)...)
	slices.SortFunc(out, func(a, b Finding) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
