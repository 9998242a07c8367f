package control

import (
	"encoding/binary"
	"slices"
)

// Limits of what one message may name; the rest is counted as unseen or left out.
const (
	// maxNames bounds the requests, and the addresses, of one message.
	maxNames = 1024
	// maxIdentity is ZMQ's limit of a socket's identity.
	maxIdentity = 255
)

// Decode says what a message is, from its bytes alone. A message that is none of the
// known ones gives false. It keeps nothing of the frames.
//
// Frames of ZMQ's own envelope may stand before the message: a ROUTER's identity and
// the empty frame of REQ. A queue item from a pipe is one frame, with or without the
// length in front of it.
func Decode(frames []Frame) (m Message, ok bool) {
	if !m.decode(frames) {
		return Message{}, false
	}
	for i := range frames {
		m.WireBytes += max(frames[i].Size, 0)
	}
	return m, true
}

// decode fills m, which is empty. Where it says false, m holds nothing of use.
func (m *Message) decode(frames []Frame) bool {
	for i := range min(2, len(frames)-1) {
		if t := &frames[i]; t.Size == 1 && len(t.Head) == 1 {
			if m.request(t.Head[0], &frames[i+1]) {
				return true
			}
		}
	}
	if len(frames) == 0 {
		return false
	}
	// The first frame comes before the envelope: an answer of vLLM may have an empty
	// frame behind it too, that of an empty tensor.
	if m.frame(&frames[0]) {
		return true
	}
	switch {
	case len(frames) >= 2 && frames[0].Size == 0:
		return m.frame(&frames[1])
	case len(frames) >= 3 && frames[1].Size == 0 && frames[0].Size <= maxIdentity:
		return m.frame(&frames[2])
	}
	return false
}

// frame reads the frame that says everything.
func (m *Message) frame(f *Frame) bool {
	*m = Message{}
	b := whole(f)
	if len(b) == 0 {
		return false
	}
	switch t := b[0]; {
	case isPickle(b):
		return m.pickle(b)
	case t > 0x80 && t < 0x90, t == 0xde, t == 0xdf:
		return m.mapping(b, f.Tail)
	case t >= 0x90 && t < 0xa0, t == 0xdc, t == 0xdd:
		return m.outputs(b)
	case t == 'q', t == 't', t == 'i':
		return m.side(b, f.Size)
	case t < 0x40 && len(b) > 6 && isPickle(b[4:]) && int64(binary.BigEndian.Uint32(b))+4 == f.Size:
		return m.pickle(b[4:])
	}
	return false
}

// whole is the frame's bytes from its beginning: the head, and the tail where no byte
// between the two is missing.
func whole(f *Frame) []byte {
	gap := f.Size - int64(len(f.Head)) - int64(len(f.Tail))
	if f.Size <= int64(len(f.Head)) || gap > 0 {
		return f.Head
	}
	return append(slices.Clip(f.Head), f.Tail[-gap:]...)
}
