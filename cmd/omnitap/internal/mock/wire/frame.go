package wire

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
)

// The opcodes of WebSocket frames.
const (
	OpContinue = 0x0
	OpText     = 0x1
	OpBinary   = 0x2
	OpClose    = 0x8
	OpPing     = 0x9
	OpPong     = 0xA
)

// Frame renders one unmasked frame; bits are or-ed into the first byte's
// upper half: FIN, RSV1 to RSV3.
func Frame(op, bits byte, payload []byte) []byte {
	out := make([]byte, 0, len(payload)+10)
	out = append(out, bits|op)
	switch n := len(payload); {
	case n < 126:
		out = append(out, byte(n))
	case n < 1<<16:
		out = append(out, 126)
		out = binary.BigEndian.AppendUint16(out, uint16(n))
	default:
		out = append(out, 127)
		out = binary.BigEndian.AppendUint64(out, uint64(n))
	}
	return append(out, payload...)
}

// The bits of a frame's first byte.
const (
	FIN  = 0x80
	RSV1 = 0x40
	RSV2 = 0x20
)

// Message renders a message as n frames of about equal length, with a ping
// behind every frame but the last if ping is not nil. More frames than bytes
// makes empty ones.
func Message(op byte, payload []byte, deflated bool, n int, ping []byte) []byte {
	n = max(n, 1)
	var out []byte
	for i := range n {
		bits := byte(0)
		if i == n-1 {
			bits |= FIN
		}
		if i == 0 && deflated {
			bits |= RSV1
		}
		if i > 0 {
			op = OpContinue
		}
		out = append(out, Frame(op, bits, payload[i*len(payload)/n:(i+1)*len(payload)/n])...)
		if ping != nil && i < n-1 {
			out = append(out, Frame(OpPing, FIN, ping)...)
		}
	}
	return out
}

// deflate compresses a message without context take-over (RFC 7692, 7.2.1).
func deflate(payload []byte) []byte {
	var b bytes.Buffer
	z, err := flate.NewWriter(&b, flate.DefaultCompression)
	if err != nil { // the level is valid
		return payload
	}
	_, _ = z.Write(payload) // a bytes.Buffer does not fail
	_ = z.Flush()
	return bytes.TrimSuffix(b.Bytes(), []byte{0, 0, 0xff, 0xff})
}

// BadFrames are the frames that no server should send, by name.
var BadFrames = map[string][]byte{
	"masked":       maskedFrame(),
	"rsv1":         Frame(OpText, FIN|RSV1, []byte(`{"type":"mock.rsv1"}`)),
	"rsv2":         Frame(OpText, FIN|RSV2, []byte(`{"type":"mock.rsv2"}`)),
	"opcode":       Frame(0x3, FIN, []byte("mock")),
	"big-ping":     Frame(OpPing, FIN, bytes.Repeat([]byte("p"), 126)),
	"split-ping":   Frame(OpPing, 0, []byte("mock")),
	"continuation": Frame(OpContinue, FIN, []byte("mock")),
	"utf8":         Frame(OpText, FIN, []byte("{\"type\":\"mock.\xff\"}")),
	"long-length":  append([]byte{FIN | OpText, 127, 0, 0, 0, 0, 0, 0, 0, 2}, "{}"...),
}

func maskedFrame() []byte {
	text, key := []byte(`{"type":"mock.masked"}`), [4]byte{1, 2, 3, 4}
	out := append([]byte{FIN | OpText, 0x80 | byte(len(text))}, key[:]...)
	for i, c := range text {
		out = append(out, c^key[i%4])
	}
	return out
}

// ClosePayload is a close frame's payload; reason may be empty.
func ClosePayload(code int, reason string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(code)), reason...)
}

// CloseText says what a close payload holds: empty, N bytes or the code.
func CloseText(payload []byte) string {
	if len(payload) < 2 {
		return fmt.Sprintf("%d bytes", len(payload))
	}
	return fmt.Sprint(binary.BigEndian.Uint16(payload))
}
