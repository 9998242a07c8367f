package audio

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrHeader says that a WAV header contradicts itself or is malformed.
var ErrHeader = errors.New("wav header inconsistent")

// Sizes from here up stand for "not known yet": writers that stream put
// 0xFFFFFFFF, 0x7FFFFFFF, 2,000,000,000 or values close to them.
const placeholderSize = 0x70000000

// Header is what a WAV header says.
type Header struct {
	Format Format
	// Tag is the format tag, of the extension where there is one.
	Tag uint16
	// DataBytes is the declared size of the data chunk, -1 where it is a
	// placeholder.
	DataBytes int64
	// Size is the length of the header itself in bytes, up to the samples.
	Size int64
	// ByteRateWrong says that the redundant byte rate contradicts the rest.
	ByteRateWrong bool
	// Bits is the declared bits a sample.
	Bits int
}

// wavWalker walks the chunks of a RIFF, RIFX or RF64 file up to its samples.
type wavWalker struct {
	h     Header
	order binary.ByteOrder
	rf64  bool
	ds64  int64
	buf   [64]byte
	n     int   // bytes of buf
	need  int   // bytes that buf waits for
	skip  int64 // bytes of a chunk to pass over
	id    string
	size  int64
	fmted bool
	step  uint8
}

const (
	wavRIFF = iota
	wavChunk
	wavBody
	wavSkip
	wavData
)

// feed takes header bytes; used is how many. done says that samples follow.
func (w *wavWalker) feed(b []byte) (used int, done bool, err error) {
	if w.need == 0 {
		w.need = 12
	}
	for used < len(b) && !done && err == nil {
		if w.step == wavSkip {
			n := min(w.skip, int64(len(b)-used))
			used += int(n)
			w.skip -= n
			if w.skip == 0 {
				w.step, w.need = wavChunk, 8
			}
			continue
		}
		n := copy(w.buf[w.n:w.need], b[used:])
		w.n += n
		used += n
		if w.n == w.need {
			w.n = 0
			done, err = w.piece(w.buf[:w.need])
		}
	}
	w.h.Size += int64(used)
	return used, done, err
}

// piece handles a gathered piece of the header.
func (w *wavWalker) piece(b []byte) (done bool, err error) {
	switch w.step {
	case wavRIFF:
		w.order = binary.LittleEndian
		if string(b[:4]) == "RIFX" {
			w.order = binary.BigEndian
		}
		w.rf64 = string(b[:4]) == "RF64"
		w.step, w.need = wavChunk, 8
	case wavChunk:
		w.id, w.size = string(b[:4]), int64(w.order.Uint32(b[4:8]))
		return w.chunk()
	case wavBody:
		switch w.id {
		case "fmt ":
			if err := w.format(b); err != nil {
				return false, err
			}
		case "ds64":
			w.ds64 = int64(w.order.Uint64(b[8:16]))
		}
		w.passOver(w.size + w.size&1 - int64(len(b)))
	}
	return false, nil
}

// chunk decides what to do with a chunk by its header.
func (w *wavWalker) chunk() (done bool, err error) {
	least := int64(0)
	switch w.id {
	case "fmt ":
		least = 16
	case "ds64":
		least = 24
	}
	switch {
	case w.id == "data":
		if !w.fmted {
			return false, fmt.Errorf("%w: data ahead of fmt", ErrHeader)
		}
		w.h.DataBytes = w.size
		if w.rf64 && w.size == 0xFFFFFFFF && w.ds64 > 0 {
			w.h.DataBytes = w.ds64
		} else if w.size >= placeholderSize {
			w.h.DataBytes = -1
		}
		w.step = wavData
		return true, nil
	case least > 0:
		if w.size < least {
			return false, fmt.Errorf("%w: %s chunk of %d bytes", ErrHeader, w.id, w.size)
		}
		w.step, w.need = wavBody, int(min(w.size, 40))
	default:
		w.passOver(w.size + w.size&1)
	}
	return false, nil
}

func (w *wavWalker) passOver(n int64) {
	w.step, w.need = wavChunk, 8
	if n > 0 {
		w.step, w.skip = wavSkip, n
	}
}

// format reads a fmt chunk.
func (w *wavWalker) format(b []byte) error {
	h := &w.h
	h.Tag = w.order.Uint16(b)
	h.Format.Channels = int(w.order.Uint16(b[2:]))
	h.Format.Rate = int(w.order.Uint32(b[4:]))
	byteRate := int64(w.order.Uint32(b[8:]))
	align := int(w.order.Uint16(b[12:]))
	h.Bits = int(w.order.Uint16(b[14:]))
	if h.Tag == 0xFFFE && len(b) >= 26 {
		h.Tag = w.order.Uint16(b[24:])
	}
	w.fmted = true
	h.Format.Encoding = wavEncoding(h.Tag, h.Bits, w.order == binary.BigEndian)
	if h.Format.Encoding == "" {
		return nil // a codec inside WAV: nothing to count, nothing to contradict
	}
	switch {
	case h.Format.Channels == 0 || h.Format.Rate == 0:
		return fmt.Errorf("%w: %d channels at %d Hz", ErrHeader, h.Format.Channels, h.Format.Rate)
	case align != h.Format.FrameBytes():
		return fmt.Errorf("%w: block align %d with %d channels of %d bits", ErrHeader, align, h.Format.Channels, h.Bits)
	}
	h.ByteRateWrong = byteRate != int64(align)*int64(h.Format.Rate)
	return nil
}

// wavEncoding names the encoding of a format tag, empty for a codec.
func wavEncoding(tag uint16, bits int, big bool) Encoding {
	type key struct {
		tag  uint16
		bits int
	}
	little := map[key]Encoding{
		{1, 8}: U8, {1, 16}: S16LE, {1, 24}: S24LE, {1, 32}: S32LE,
		{3, 32}: F32LE, {3, 64}: F64LE, {6, 8}: ALaw, {7, 8}: ULaw,
	}
	e := little[key{tag, bits}]
	if !big {
		return e
	}
	return map[Encoding]Encoding{U8: U8, S16LE: S16BE, S24LE: S24BE, S32LE: S32BE, ULaw: ULaw, ALaw: ALaw}[e]
}
