package audiofile

import (
	"fmt"
	"math"
	"os"

	goaudio "github.com/go-audio/audio"
	"github.com/go-audio/wav"

	"github.com/omnitap/omnitap/proxy/timeline/waveform"
	"github.com/omnitap/omnitap/proxy/wire/audio"
)

// wavFile is a WAV file that is being written: 16 bits of what has no more than
// that, else 24.
type wavFile struct {
	f      *os.File
	enc    *wav.Encoder
	format audio.Format
	bits   int
	buf    goaudio.IntBuffer
	frames int64
}

func createWAV(path string, f audio.Format, rate int) (*wavFile, error) {
	if f.FrameBytes() == 0 || rate <= 0 {
		return nil, errFormat
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making a file of sound: %w", err)
	}
	w := &wavFile{f: file, format: f, bits: bitsOf(f.Encoding)}
	w.enc = wav.NewEncoder(file, rate, w.bits, f.Channels, 1)
	w.buf = goaudio.IntBuffer{Format: &goaudio.Format{NumChannels: f.Channels, SampleRate: rate}, SourceBitDepth: w.bits}
	return w, nil
}

func bitsOf(e audio.Encoding) int {
	if e == audio.ULaw || e == audio.ALaw || e.SampleBytes() <= 2 {
		return 16
	}
	return 24
}

// write takes whole frames.
func (w *wavFile) write(p []byte) error {
	size := w.format.Encoding.SampleBytes()
	full := float64(int(1) << (w.bits - 1))
	w.buf.Data = w.buf.Data[:0]
	for ; len(p) >= size; p = p[size:] {
		v := waveform.Value(p, w.format.Encoding) * full
		if math.IsNaN(v) {
			v = 0
		}
		w.buf.Data = append(w.buf.Data, int(math.Round(max(-full, min(v, full-1)))))
	}
	w.frames += int64(len(w.buf.Data) / w.format.Channels)
	if err := w.enc.Write(&w.buf); err != nil {
		return fmt.Errorf("writing sound: %w", err)
	}
	return nil
}

func (w *wavFile) close() error {
	err := w.enc.Close()
	if cerr := w.f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("completing a file of sound: %w", err)
	}
	return nil
}
