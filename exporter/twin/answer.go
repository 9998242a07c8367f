package twin

import (
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/omnitap/omnitap/proxy/wire/audio"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// decode returns the sound of a whole answer: a body of sound, or the sound in a
// JSON answer.
func decode(h http.Header, body []byte) (Take, error) {
	media, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		media, _, _ = strings.Cut(strings.ToLower(h.Get("Content-Type")), ";")
		media = strings.TrimSpace(media)
	}
	if enc := strings.ToLower(h.Get("Content-Encoding")); enc != "" && enc != "identity" {
		return Take{}, fmt.Errorf("%w: it is compressed", ErrFormat)
	}
	switch {
	case media == "text/event-stream":
		return Take{}, ErrStreamed
	case media == "application/json" || strings.HasSuffix(media, "+json"):
		return decodeJSON(body)
	case strings.HasPrefix(media, "audio/"), media == "application/octet-stream", media == "":
		c, enc, _ := audio.ByName(media)
		f := audio.Format{Encoding: enc, Rate: number(params["rate"]), Channels: number(params["channels"])}
		if n := number(h.Get("X-Sample-Rate")); n > 0 {
			f.Rate = n
		}
		if n := number(h.Get("X-Channels")); n > 0 {
			f.Channels = n
		}
		return decodeSound(c, f, body)
	}
	return Take{}, ErrNoSound
}

// decodeJSON returns the one piece of sound in a JSON answer.
func decodeJSON(body []byte) (Take, error) {
	var r dialect.Reader
	ev, err := r.Whole(body)
	switch {
	case err != nil:
		return Take{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	case ev.Err != nil:
		return Take{}, &StatusError{Code: ev.Err.Code}
	case len(ev.Parts) == 0:
		return Take{}, ErrNoSound
	case len(ev.Parts) > 1:
		return Take{}, fmt.Errorf("%w: it holds %d sounds", ErrMalformed, len(ev.Parts))
	}
	p := ev.Parts[0]
	raw, _, err := audio.Decode(nil, p.Base64)
	if err != nil {
		return Take{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	c, enc, _ := audio.ByName(p.Format)
	return decodeSound(c, audio.Format{Encoding: enc, Rate: p.Rate, Channels: p.Channels}, raw)
}

// decodeSound returns the samples of one file, or of bare ones in a format that was
// declared: 16 bits and one channel where nothing says otherwise.
func decodeSound(declared audio.Container, f audio.Format, body []byte) (Take, error) {
	s := sink{format: f}
	t := audio.Track{Sink: &s, Declared: declared}
	t.Begin()
	t.Write(body, audio.Pos{Wire: true})
	t.End()
	size := s.format.FrameBytes()
	switch {
	case s.fault != nil:
		return Take{}, s.fault
	case s.opaque:
		return Take{}, fmt.Errorf("%w: %s", ErrFormat, s.container)
	case len(s.samples) == 0:
		return Take{}, ErrNoSound
	case s.declared > 0 && int64(len(s.samples)) == s.declared+1: // the pad byte of an odd size
		s.samples = s.samples[:s.declared]
	case s.declared > 0 && int64(len(s.samples)) != s.declared:
		return Take{}, fmt.Errorf("%w: %d sample bytes, its header says %d", ErrMalformed, len(s.samples), s.declared)
	}
	if size == 0 || len(s.samples)%size != 0 {
		return Take{}, fmt.Errorf("%w: %d sample bytes in frames of %d", ErrMalformed, len(s.samples), size)
	}
	return Take{Format: s.format, Rate: s.format.Rate, Samples: s.samples}, nil
}

// number reads what a header declares of samples, 0 for nonsense.
func number(s string) int {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || n < 0 || n > 1<<24 {
		return 0
	}
	return n
}

// sink gathers the samples of one file.
type sink struct {
	format    audio.Format
	container audio.Container
	declared  int64
	samples   []byte
	opaque    bool
	fault     error
}

// Container is part of audio.Sink.
func (s *sink) Container(c audio.Container) {
	s.container = c
	if c != audio.Raw {
		return
	}
	if s.format.Encoding == "" {
		s.format.Encoding = audio.S16LE
	}
	if s.format.Channels == 0 {
		s.format.Channels = 1
	}
}

// Header is part of audio.Sink.
func (s *sink) Header(h audio.Header) { s.format, s.declared = h.Format, h.DataBytes }

// Samples is part of audio.Sink. Nearly always they come in one piece, which is kept.
func (s *sink) Samples(p []byte, _ audio.Pos) {
	if s.samples == nil {
		s.samples = slices.Clip(p)
		return
	}
	s.samples = append(s.samples, p...)
}

// Opaque is part of audio.Sink.
func (s *sink) Opaque([]byte, audio.Pos) { s.opaque = true }

// Problem is part of audio.Sink.
func (s *sink) Problem(k audio.Problem, _ string) {
	if k == audio.ByteRateWrong || k == audio.FormatMismatch && s.container == audio.WAV {
		return
	}
	if s.fault == nil {
		s.fault = fmt.Errorf("%w: %s", ErrMalformed, k)
	}
}

var _ audio.Sink = (*sink)(nil)
