package tone

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/go-audio/audio"
	"github.com/go-audio/wav"
)

// HeaderSize is the length in bytes of every header made here.
const HeaderSize = 44

// SizeUnknown is what streaming servers write when they do not know the
// length.
const SizeUnknown = 0xFFFFFFFF

const riffOverhead = 36 // bytes of the header that the RIFF size counts

// headers caches the header of an empty file a rate and channel count.
var headers sync.Map

type shape struct{ rate, channels int }

// Header returns a header whose data size is size. The RIFF size is the one
// that goes with it, except for SizeUnknown and other sizes that no file can
// have, where it is the same placeholder.
func Header(rate, channels int, size uint32) ([]byte, error) {
	h, err := template(rate, channels)
	if err != nil {
		return nil, err
	}
	riff := size + riffOverhead
	if riff < size || size == 0x7FFFFFFF {
		riff = size
	}
	binary.LittleEndian.PutUint32(h[4:], riff)
	binary.LittleEndian.PutUint32(h[40:], size)
	return h, nil
}

// template returns a copy of the header of an empty file.
func template(rate, channels int) ([]byte, error) {
	key := shape{rate, channels}
	if h, ok := headers.Load(key); ok {
		return append([]byte(nil), h.([]byte)...), nil
	}
	var f memory
	e := wav.NewEncoder(&f, rate, 16, channels, 1)
	// The encoder writes its header with the first buffer, also an empty one.
	err := e.Write(&audio.IntBuffer{
		Format:         &audio.Format{NumChannels: channels, SampleRate: rate},
		SourceBitDepth: 16,
	})
	if err := errors.Join(err, e.Close()); err != nil {
		return nil, fmt.Errorf("making a wav header: %w", err)
	}
	if len(f.b) < HeaderSize || string(f.b[36:40]) != "data" {
		return nil, fmt.Errorf("making a wav header: %d bytes without a data chunk at 36", len(f.b))
	}
	h := f.b[:HeaderSize:HeaderSize]
	headers.Store(key, h)
	return append([]byte(nil), h...), nil
}

// memory is the file that the encoder writes and seeks in.
type memory struct {
	b   []byte
	pos int
}

// Write implements io.Writer.
func (m *memory) Write(p []byte) (int, error) {
	if need := m.pos + len(p); need > len(m.b) {
		m.b = append(m.b, make([]byte, need-len(m.b))...)
	}
	m.pos += copy(m.b[m.pos:], p)
	return len(p), nil
}

// Seek implements io.Seeker.
func (m *memory) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += int64(m.pos)
	case io.SeekEnd:
		offset += int64(len(m.b))
	}
	if offset < 0 {
		return 0, errors.New("seeking before the start")
	}
	m.pos = int(offset)
	return offset, nil
}

var _ io.WriteSeeker = (*memory)(nil)
