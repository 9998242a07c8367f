package timeline

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"

	"github.com/omnitap/omnitap/proxy/timeline/waveform"
	"github.com/omnitap/omnitap/proxy/wire/audio"
)

// sound follows one stream of sound: counts, hash, the points that depend on
// samples, and the invariants that can be told from headers and borders.
// It holds a few hundred bytes, whatever the length of the stream.
type sound struct {
	cfg   *Config
	track audio.Track
	now   func() int64

	container audio.Container
	format    audio.Format
	hinted    bool // format came from a label, not from a header
	rateFrom  string
	chansFrom string
	// rateSources is how many kinds of declaration gave a rate, one behind the other.
	rateSources int
	model       int // rate that config or the model table gives, 0 for none
	hop         int // the model's frame hop in samples, 0 for unknown

	listener Listener // nil for nobody

	hash   hash.Hash
	bytes  int64 // sample bytes of the stream
	opaque int64 // bytes of formats that are not decoded
	base   int64 // frames ahead of the last change of format
	from   int64 // sample bytes ahead of it
	files  int   // headers read

	chunks   []chunk
	inChunk  int64 // payload bytes of the chunk at hand, headers left out
	counted  int64 // frames in chunks
	dropped  int64 // chunks beyond maxChunks, counted only
	empty    int64
	wave     *waveform.Stream // made with the first samples
	ear      *audible
	part     []byte // bytes of a frame cut by a span
	playable place
	firstAt  int64 // when the first and the last sound came
	lastAt   int64

	declared     int64 // sample bytes that headers declare
	declaredAll  bool  // every header so far declared a size
	fileStart    int64 // sample bytes ahead of the file at hand
	badFrames    int   // files that ended amid a frame
	splitChunks  int   // chunks that ended amid a frame
	problems     []problem
	formatChange string

	nominal   bool // the rate is what a label says that is known to be wrong at times
	doneBytes int64
	doneUnits int  // done events that declare a total
	doneBad   bool // one of them means nothing
	was       int64
	atStart   [2]bool // playable and audible were found ahead of the message at hand
}

// chunk is one logical chunk that holds audio.
type chunk struct {
	mono   int64
	off    int64
	frames int64 // sample frames that it completed
	bytes  int64
}

type problem struct {
	kind   string
	chunk  int
	detail string
}

// maxChunks bounds what is remembered of one stream: 262,144 chunks are 8 MiB.
const maxChunks = 1 << 18

func newSound(cfg *Config, now func() int64) *sound {
	s := &sound{cfg: cfg, now: now, declaredAll: true}
	s.track.Sink = s
	return s
}

// maxRate and maxChans bound what a label may declare: more is a mistake, or worse.
const (
	maxRate  = 1 << 24
	maxChans = 1 << 10
)

// bounded drops what no label can mean.
func (s *sound) bounded(f audio.Format) audio.Format {
	if f.Rate > maxRate || f.Channels > maxChans {
		s.fail(string(audio.HeaderInconsistent), fmt.Sprintf("%d Hz and %d channels are declared", f.Rate, f.Channels))
		f.Rate, f.Channels = 0, 0
	}
	return f
}

// implied reports whether a rate is what a dialect or an encoding means by itself.
func implied(from string) bool { return from == "dialect" || from == "encoding" }

// rated notes that a rate was declared. What a dialect means by itself is no
// declaration, and neither is a label that is known to be wrong at times.
func (s *sound) rated(from string) {
	switch {
	case implied(from):
	case s.rateSources == 0 || s.nominal:
		s.rateSources = 1
	case from != s.rateFrom:
		s.rateSources++
	}
}

// encoded notes the encoding of bare samples. G.711 is 8 kHz where no declaration
// says otherwise: OpenAI's realtime formats mean that, and so does audio/basic (RFC
// 2046 section 4.3).
func (s *sound) encoded(e audio.Encoding) {
	s.format.Encoding = e
	if (e == audio.ULaw || e == audio.ALaw) && s.bytes == 0 && (s.rateFrom == "" || s.rateFrom == "dialect") {
		s.format.Rate, s.rateFrom, s.nominal = 8000, "encoding", false
	}
}

// hint says what a label or a configuration tells of bare samples.
func (s *sound) hint(f audio.Format, rateFrom, chansFrom string) {
	f = s.bounded(f)
	if s.files > 0 {
		if f.Rate > 0 && s.format.Rate > 0 && rateFrom != "" && f.Rate != s.format.Rate {
			s.fail("rate_conflict", fmt.Sprintf("%s says %d Hz, the header %d", rateFrom, f.Rate, s.format.Rate))
		}
		if f.Rate > 0 {
			s.rated(rateFrom)
		}
		return
	}
	old := s.format
	if f.Encoding != "" {
		s.encoded(f.Encoding)
	}
	if f.Rate > 0 {
		s.rated(rateFrom)
		if said := s.rateFrom; s.bytes == 0 && !s.nominal && old.Rate > 0 && old.Rate != f.Rate && said != rateFrom && !implied(said) {
			s.fail("rate_conflict", fmt.Sprintf("%s says %d Hz, the %s %d", said, old.Rate, rateFrom, f.Rate))
		}
		if s.nominal { // what it said was known to be wrong at times
			old.Rate, s.nominal = f.Rate, false
		}
		s.format.Rate, s.rateFrom = f.Rate, rateFrom
	}
	if f.Channels > 0 {
		s.format.Channels, s.chansFrom = f.Channels, chansFrom
	}
	if s.hinted && s.bytes > 0 && (old.Rate > 0 && old.Rate != s.format.Rate || old.Channels != s.format.Channels) {
		s.changed(old)
	}
	s.hinted = true
}

// changed notes that the format is another one from here on.
func (s *sound) changed(old audio.Format) {
	if s.bytes == s.from && s.base == 0 && s.bytes == 0 {
		return
	}
	if old.Rate != s.format.Rate || old.Channels != s.format.Channels || old.Encoding != s.format.Encoding {
		s.formatChange = fmt.Sprintf("%s %d Hz %d channels, then %s %d Hz %d channels",
			old.Encoding, old.Rate, old.Channels, s.format.Encoding, s.format.Rate, s.format.Channels)
		s.fail("format_change", s.formatChange)
	}
	if fb := old.FrameBytes(); fb > 0 {
		s.base += (s.bytes - s.from) / int64(fb)
	}
	s.from = s.bytes
	s.part = s.part[:0]
}

// declaresRate reports whether the wire's own rate is what seconds are reckoned
// with: a nominal one gives way to the configuration's.
func (s *sound) declaresRate() bool { return s.format.Rate > 0 && (!s.nominal || s.model == 0) }

// rate returns what seconds are reckoned with, and whether it is assumed.
func (s *sound) rate() (rate int, assumed bool) {
	switch {
	case s.declaresRate():
		return s.format.Rate, false
	case s.model > 0:
		return s.model, false
	}
	return s.cfg.AssumedRate, true
}

// frames returns the sample frames so far, and whether they can be counted.
func (s *sound) frames() (int64, bool) {
	fb := int64(s.format.FrameBytes())
	if fb == 0 {
		return 0, s.bytes == 0 && s.opaque == 0
	}
	return s.base + (s.bytes-s.from)/fb, s.opaque == 0
}

func (s *sound) fail(kind, detail string) {
	if len(s.problems) < 64 {
		s.problems = append(s.problems, problem{kind, len(s.chunks), detail})
	}
}

// Container is part of audio.Sink.
func (s *sound) Container(c audio.Container) {
	s.endFile()
	if s.container == "" {
		s.container = c
	} else if s.container != c {
		s.fail("container_change", fmt.Sprintf("%s, then %s", s.container, c))
	}
	if c == audio.Raw {
		if s.format.Encoding == "" {
			s.format.Encoding = audio.S16LE
		}
		if s.format.Channels == 0 {
			s.format.Channels, s.chansFrom = 1, "assumed"
		}
	}
}

// endFile closes the accounts of a file that another one follows.
func (s *sound) endFile() {
	fb := int64(s.format.FrameBytes())
	if s.files == 0 {
		return // bare samples go on over the borders of events
	}
	if fb > 0 && (s.bytes-s.fileStart)%fb != 0 {
		s.badFrames++
	}
	s.fileStart = s.bytes
}

// Header is part of audio.Sink.
func (s *sound) Header(h audio.Header) {
	old := s.format
	s.files++
	s.rated("wav_header")
	if old.Rate > 0 && s.hinted && !s.nominal && !implied(s.rateFrom) && old.Rate != h.Format.Rate {
		s.fail("rate_conflict", fmt.Sprintf("%s says %d Hz, the header %d", s.rateFrom, old.Rate, h.Format.Rate))
		old.Rate = h.Format.Rate
	}
	if s.nominal || implied(s.rateFrom) && s.bytes == 0 {
		old.Rate = h.Format.Rate
	}
	s.format, s.rateFrom, s.chansFrom, s.hinted, s.nominal = h.Format, "wav_header", "wav_header", false, false
	if s.files > 1 || s.bytes > 0 {
		s.changed(old)
	}
	if h.DataBytes > 0 {
		s.declared += h.DataBytes
	} else {
		s.declaredAll = false
	}
}

// Opaque is part of audio.Sink.
func (s *sound) Opaque(p []byte, _ audio.Pos) {
	s.arrived()
	s.opaque += int64(len(p))
	s.inChunk += int64(len(p))
}

// Problem is part of audio.Sink.
func (s *sound) Problem(k audio.Problem, detail string) { s.fail(string(k), detail) }

// Samples is part of audio.Sink.
func (s *sound) Samples(p []byte, pos audio.Pos) {
	s.arrived()
	if s.cfg.Hash != "off" {
		if s.hash == nil {
			s.hash = sha256.New()
		}
		s.hash.Write(p)
	}
	s.shape(p)
	if s.listener != nil {
		rate, _ := s.rate()
		s.listener.Samples(s.format, rate, p)
	}
	s.play(len(p), pos)
	s.listen(p, pos)
	s.bytes += int64(len(p))
	s.inChunk += int64(len(p))
}

// shape has the samples' waveform looked at.
func (s *sound) shape(p []byte) {
	if s.cfg.Checks.Off {
		return
	}
	if s.wave == nil {
		cfg := s.cfg.Checks
		cfg.SilenceDBFS, cfg.Hop = s.cfg.SilenceDBFS, s.hop
		s.wave = waveform.New(cfg)
		s.wave.Skip(len(s.chunks))
		s.wave.Begin()
	}
	rate, _ := s.rate()
	s.wave.Format(s.format, rate)
	s.wave.Samples(p)
}

// arrived notes when sound came.
func (s *sound) arrived() {
	if s.lastAt = s.now(); s.firstAt == 0 {
		s.firstAt = s.lastAt
	}
}

// play finds the byte that completes the first playable audio.
func (s *sound) play(n int, pos audio.Pos) {
	fb := int64(s.format.FrameBytes())
	if s.playable.mono != 0 || fb == 0 {
		return
	}
	rate, _ := s.rate()
	need := (int64(rate)*int64(s.cfg.MinPlayableMS) + 999) / 1000
	byteNo := s.from + (need-s.base)*fb // of the stream, from 1
	if s.bytes+int64(n) >= byteNo {
		s.playable = place{s.now(), pos.Plus(int(max(byteNo, s.bytes+1) - s.bytes - 1)).Off}
	}
}

// listen finds the first audible frame; afterwards it costs nothing.
func (s *sound) listen(p []byte, pos audio.Pos) {
	fb := s.format.FrameBytes()
	if fb == 0 || s.ear != nil && s.ear.found {
		return
	}
	if s.ear == nil {
		rate, _ := s.rate()
		s.ear = newAudible(s.cfg.SilenceDBFS, rate)
	}
	now := s.now()
	if len(s.part) > 0 {
		n := min(fb-len(s.part), len(p))
		s.part = append(s.part, p[:n]...)
		if len(s.part) < fb {
			return
		}
		s.ear.read(s.part, s.format, func(int) place { return place{now, pos.Plus(n - 1).Off} })
		s.part = s.part[:0]
		p, pos = p[n:], pos.Plus(n)
	}
	whole := len(p) / fb * fb
	s.ear.read(p[:whole], s.format, func(n int) place { return place{now, pos.Plus(n - 1).Off} })
	if whole < len(p) {
		s.part = append(s.part[:0], p[whole:]...)
	}
}

// begin starts a logical chunk.
func (s *sound) begin() {
	s.inChunk = 0
	if s.wave != nil {
		s.wave.Begin()
	}
}

// end closes a logical chunk at off and reports whether it held audio.
func (s *sound) end(off int64) bool {
	frames, ok := s.frames()
	size := s.inChunk
	s.inChunk = 0
	if size == 0 {
		return false
	}
	if fb := int64(s.format.FrameBytes()); fb > 0 && (s.bytes-s.fileStart)%fb != 0 {
		s.splitChunks++
	}
	if s.wave != nil {
		s.wave.End()
	}
	if s.listener != nil {
		s.listener.Chunk()
	}
	if len(s.chunks) >= maxChunks {
		s.dropped++
		return true
	}
	if !ok {
		frames = 0
	}
	s.chunks = append(s.chunks, chunk{s.now(), off, frames - s.counted, size})
	s.counted = frames
	return true
}

func (s *sound) sum() string {
	if s.hash == nil {
		return hex.EncodeToString(sha256.New().Sum(nil))
	}
	return hex.EncodeToString(s.hash.Sum(nil))
}

var _ audio.Sink = (*sound)(nil)
