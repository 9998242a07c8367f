// Package segment is what one stage hands to the next: the content of a shared
// memory segment or of a queue item. A header of little-endian numbers tells the
// parts, the chunk's number and a sum over them, so that the reader knows that the
// data really came through:
//
//	type byte | uint32 parts | uint32 length each | uint32 chunk | uint32 CRC-32 | parts
//
// The first part is msgpack, the others are raw. It is pure.
package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/vmihailenco/msgpack/v5"
)

const (
	typeObject = 1
	parts      = 3
	headBytes  = 1 + 4 + 4*parts + 4 + 4
	maxIDs     = 1 << 22
)

// ErrCorrupt says that a segment holds no payload, or a damaged one.
var ErrCorrupt = errors.New("no payload")

// Payload is one chunk.
type Payload struct {
	// ID is the engine id, Chunk the number, Finished that none follows.
	ID       string
	Chunk    int
	Finished bool
	// Prompt and Tokens are the thinker's token ids; the prompt stands in chunk 0.
	Prompt, Tokens []int
	// Seed and Frames say how the answer is spoken; they stand in chunk 0.
	Seed   uint64
	Frames int
	// Codes is the talker's frames.
	Codes []int64
	// Raw is the thinker's hidden states, or code2wav's samples.
	Raw []byte
}

// Encode returns the bytes of a segment.
func Encode(p Payload) []byte {
	var meta bytes.Buffer
	e := msgpack.NewEncoder(&meta)
	e.UseCompactInts(true)
	// Writing to memory cannot fail.
	_ = e.EncodeArrayLen(6)
	_ = e.EncodeString(p.ID)
	_ = e.EncodeBool(p.Finished)
	encodeInts(e, p.Prompt)
	encodeInts(e, p.Tokens)
	_ = e.EncodeUint(p.Seed)
	_ = e.EncodeInt(int64(p.Frames))

	size := meta.Len() + 8*len(p.Codes) + len(p.Raw)
	b := make([]byte, 0, headBytes+size)
	b = append(b, typeObject)
	for _, n := range []int{parts, meta.Len(), 8 * len(p.Codes), len(p.Raw), p.Chunk, 0} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	b = append(b, meta.Bytes()...)
	for _, c := range p.Codes {
		b = binary.LittleEndian.AppendUint64(b, uint64(c))
	}
	b = append(b, p.Raw...)
	binary.LittleEndian.PutUint32(b[headBytes-4:], crc32.ChecksumIEEE(b[headBytes:]))
	return b
}

func encodeInts(e *msgpack.Encoder, v []int) {
	_ = e.EncodeArrayLen(len(v))
	for _, n := range v {
		_ = e.EncodeInt(int64(n))
	}
}

// Decode reads the bytes of a segment; errors are ErrCorrupt. Raw is part of b.
func Decode(b []byte) (Payload, error) {
	p, err := decode(b)
	if err != nil {
		return Payload{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return p, nil
}

func decode(b []byte) (p Payload, err error) {
	if len(b) < headBytes || b[0] != typeObject {
		return p, fmt.Errorf("%d bytes without a header", len(b))
	}
	word := func(i int) uint64 { return uint64(binary.LittleEndian.Uint32(b[1+4*i:])) }
	body := b[headBytes:]
	if n := word(0); n != parts {
		return p, fmt.Errorf("%d parts, want %d", n, parts)
	}
	meta, codes, raw := word(1), word(2), word(3)
	if meta+codes+raw != uint64(len(body)) || codes%8 != 0 {
		return p, fmt.Errorf("parts of %d, %d and %d bytes in %d", meta, codes, raw, len(body))
	}
	if sum := crc32.ChecksumIEEE(body); uint64(sum) != word(5) {
		return p, fmt.Errorf("sum %08x, want %08x", sum, word(5))
	}
	if p, err = decodeMeta(body[:meta]); err != nil {
		return p, err
	}
	p.Chunk = int(word(4))
	for c := body[meta : meta+codes]; len(c) > 0; c = c[8:] {
		p.Codes = append(p.Codes, int64(binary.LittleEndian.Uint64(c)))
	}
	p.Raw = body[meta+codes:]
	return p, nil
}

func decodeMeta(b []byte) (p Payload, err error) {
	d := msgpack.NewDecoder(bytes.NewReader(b))
	n, err := d.DecodeArrayLen()
	if err != nil || n != 6 {
		return p, fmt.Errorf("an array of %d where 6 fields are due: %w", n, orShort(err))
	}
	if p.ID, err = d.DecodeString(); err != nil {
		return p, err
	}
	if p.Finished, err = d.DecodeBool(); err != nil {
		return p, err
	}
	if p.Prompt, err = decodeInts(d); err != nil {
		return p, err
	}
	if p.Tokens, err = decodeInts(d); err != nil {
		return p, err
	}
	if p.Seed, err = d.DecodeUint64(); err != nil {
		return p, err
	}
	p.Frames, err = d.DecodeInt()
	return p, err
}

var errShort = errors.New("wrong length")

func orShort(err error) error {
	if err == nil {
		return errShort
	}
	return err
}

func decodeInts(d *msgpack.Decoder) ([]int, error) {
	n, err := d.DecodeArrayLen()
	if err != nil {
		return nil, err
	}
	if n > maxIDs {
		return nil, fmt.Errorf("%d token ids", n)
	}
	var out []int
	for range n {
		v, err := d.DecodeInt()
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}
