// Package audio knows the forms in which the servers send sound: WAV walked
// chunk by chunk, bare PCM, base64, and the magic of compressed files.
//
// A Track takes the payload of one stream of sound, cut anywhere, as bytes of a
// body or as one decoded payload an event, finds headers wherever they are
// allowed to be, and hands the bare sample bytes on with the place on the wire
// of each.
//
// It decodes no compressed format, judges no waveform and keeps no clock: that
// is proxy/timeline.
package audio

import "strings"

// Encoding names how a sample is written, as ffmpeg names it.
type Encoding string

// Encodings of samples that can be counted.
const (
	U8    Encoding = "pcm_u8"
	S16LE Encoding = "pcm_s16le"
	S24LE Encoding = "pcm_s24le"
	S32LE Encoding = "pcm_s32le"
	F32LE Encoding = "pcm_f32le"
	F64LE Encoding = "pcm_f64le"
	S16BE Encoding = "pcm_s16be"
	S24BE Encoding = "pcm_s24be"
	S32BE Encoding = "pcm_s32be"
	ULaw  Encoding = "g711_ulaw"
	ALaw  Encoding = "g711_alaw"
)

// Container names what holds the samples.
type Container string

// Containers.
const (
	Raw  Container = "raw"
	WAV  Container = "wav"
	MP3  Container = "mp3"
	FLAC Container = "flac"
	Opus Container = "opus"
	Ogg  Container = "ogg"
	AAC  Container = "aac"
	MP4  Container = "mp4"
	WebM Container = "webm"
)

// Format is how samples are laid out. A zero Rate is one that is not known.
type Format struct {
	Encoding Encoding
	// Rate is sample frames a second.
	Rate int
	// Channels is samples a frame.
	Channels int
}

// SampleBytes returns the size of one sample, 0 where it is not known.
func (e Encoding) SampleBytes() int {
	switch e {
	case U8, ULaw, ALaw:
		return 1
	case S16LE, S16BE:
		return 2
	case S24LE, S24BE:
		return 3
	case S32LE, S32BE, F32LE:
		return 4
	case F64LE:
		return 8
	}
	return 0
}

// FrameBytes returns the size of one sample frame, 0 where it is not known.
func (f Format) FrameBytes() int { return f.Encoding.SampleBytes() * f.Channels }

// ByName returns the container and encoding that a format name or a media type
// of the servers means; ok is false for a name that says neither.
func ByName(name string) (c Container, e Encoding, ok bool) {
	name, _, _ = strings.Cut(strings.ToLower(name), ";")
	name = strings.TrimPrefix(strings.TrimSpace(name), "audio/")
	switch strings.TrimPrefix(name, "x-") {
	case "pcm", "pcm16", "pcm_s16le", "s16le", "raw":
		return Raw, S16LE, true
	case "l16":
		return Raw, S16BE, true // RFC 2586: network byte order
	case "wav", "wave", "vnd.wave":
		return WAV, "", true
	case "mpeg", "mp3":
		return MP3, "", true
	case "flac":
		return FLAC, "", true
	case "opus":
		return Opus, "", true
	case "ogg":
		return Ogg, "", true
	case "aac", "aacp":
		return AAC, "", true
	case "mp4", "m4a":
		return MP4, "", true
	case "webm":
		return WebM, "", true
	case "g711_ulaw", "pcmu", "basic", "ulaw":
		return Raw, ULaw, true
	case "g711_alaw", "pcma", "alaw":
		return Raw, ALaw, true
	}
	return "", "", false
}

// Sniff tells the container from a payload's first bytes. more says that they
// are too few to tell. MPEG audio without a tag is told only where it was
// declared, or where b is a whole file and holds a second frame right behind the
// first: its two-byte sync also begins quiet PCM.
func Sniff(b []byte, declared Container, whole bool) (c Container, more bool) {
	type magic struct {
		at   int
		text string
		c    Container
	}
	magics := [...]magic{
		{0, "RIFF", WAV},
		{0, "RIFX", WAV},
		{0, "RF64", WAV},
		{0, "ID3", MP3},
		{0, "fLaC", FLAC},
		{0, "OggS", Ogg},
		{4, "ftyp", MP4},
		{0, "\x1aE\xdf\xa3", WebM},
	}
	for _, m := range magics {
		n := min(len(b), m.at+len(m.text))
		if n <= m.at {
			more = more || m.at == 0
			continue
		}
		if string(b[m.at:n]) != m.text[:n-m.at] {
			continue
		}
		if n < m.at+len(m.text) {
			more = true
			continue
		}
		if m.c == WAV && len(b) < 12 {
			return "", true
		}
		if m.c == WAV && string(b[8:12]) != "WAVE" {
			continue
		}
		return m.c, false
	}
	if more {
		return "", true
	}
	if len(b) >= 2 && b[0] == 0xFF {
		switch {
		case b[1]&0xF6 == 0xF0 && (declared == AAC || whole && syncsAgain(b, adtsFrame)):
			return AAC, false
		case b[1]&0xE0 == 0xE0 && (declared == MP3 || whole && syncsAgain(b, mpegFrame)):
			return MP3, false
		}
	}
	return Raw, false
}

// syncsAgain reports whether a second frame starts right where the first one
// says that it ends: quiet PCM may look like one header, not like two.
func syncsAgain(b []byte, frame func([]byte) int) bool {
	n := frame(b)
	return n > 0 && len(b) >= n+4 && b[n] == 0xFF && frame(b[n:]) > 0
}

// adtsFrame returns the length of the AAC frame that b starts with, 0 for none.
func adtsFrame(b []byte) int {
	if len(b) < 6 || b[0] != 0xFF || b[1]&0xF6 != 0xF0 {
		return 0
	}
	n := int(b[3]&3)<<11 | int(b[4])<<3 | int(b[5])>>5
	if n < 7 {
		return 0
	}
	return n
}

// mpegFrame returns the length of the MPEG layer III frame that b starts with,
// 0 for none (ISO 11172-3 section 2.4.1.3).
func mpegFrame(b []byte) int {
	if len(b) < 4 || b[0] != 0xFF || b[1]&0xE6 != 0xE2 {
		return 0
	}
	version, rateIdx, freqIdx := b[1]>>3&3, b[2]>>4, b[2]>>2&3
	if version == 1 || rateIdx == 0 || rateIdx == 15 || freqIdx == 3 {
		return 0
	}
	kbits := [...]int{0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320}
	factor, div := 144, 1
	if version != 3 { // MPEG 2 and 2.5
		kbits = [...]int{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160}
		factor, div = 72, 2
		if version == 0 {
			div = 4
		}
	}
	rate := [...]int{44100, 48000, 32000}[freqIdx] / div
	return factor*kbits[rateIdx]*1000/rate + int(b[2]>>1&1)
}

// compressed reports whether samples in a container cannot be counted here.
func (c Container) compressed() bool { return c != "" && c != Raw && c != WAV }
