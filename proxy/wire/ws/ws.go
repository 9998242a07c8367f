// Package ws reads one direction of a WebSocket connection from a copy of its
// bytes as they pass (RFC 6455, and permessage-deflate of RFC 7692): frames,
// masks, fragments, control frames in between, compressed messages.
//
// A Scanner is fed the bytes behind the HTTP head, cut anywhere, and calls its
// Handler with what it found, in the order of the bytes. Offsets count bytes of
// the direction's stream from 1, the head included. Any cut of the same bytes
// gives the same calls but for the borders of Payload pieces. Text is handed
// over whole up to a bound, binary as it comes, and what is fed is never
// changed: other readers share it.
//
// It keeps no clock and never writes. It reads what a receiver may be lenient
// about (lengths that are not minimal, frames behind a close frame), and never
// joins again what it lost: after an error of framing it reports Lost once and
// ignores the rest. It does not read the handshake (proxy/wire/http1 does), and
// does not look into messages.
package ws

import "errors"

// Opcode is what a frame carries (RFC 6455 section 5.2).
type Opcode uint8

// The opcodes of RFC 6455 section 11.8; the others are reserved.
const (
	// Continuation goes on with a fragmented message (RFC 6455 section 5.4).
	Continuation Opcode = 0
	// Text is UTF-8 (RFC 6455 section 5.6).
	Text Opcode = 1
	// Binary is bytes (RFC 6455 section 5.6).
	Binary Opcode = 2
	// Close ends the connection (RFC 6455 section 5.5.1).
	Close Opcode = 8
	// Ping asks for a pong (RFC 6455 section 5.5.2).
	Ping Opcode = 9
	// Pong answers a ping (RFC 6455 section 5.5.3).
	Pong Opcode = 10
)

// control says that a frame stands for itself, also between the fragments of a
// message (RFC 6455 section 5.5).
func (o Opcode) control() bool { return o&8 != 0 }

// known says that the opcode is not reserved.
func (o Opcode) known() bool { return o <= Binary || o >= Close && o <= Pong }

// Handler is told what a Scanner finds, in the order of the bytes. Offsets are
// of bytes in the direction's stream, from 1.
type Handler interface {
	// MessageStart marks the first byte of the first frame of a data message.
	MessageStart(op Opcode, off int64)
	// Payload brings bytes of a binary message, in pieces as they come, unmasked
	// and inflated; never of a text message, and no empty pieces. p is valid
	// during the call. With wire, off is the offset of p's first byte; without
	// (the message is compressed), of the last byte of the frame at hand.
	Payload(p []byte, off int64, wire bool)
	// Message brings a complete message.
	Message(m Message)
	// Control brings a complete ping, pong or close frame whose first and last
	// byte are start and end. The payload is unmasked and valid during the call.
	Control(op Opcode, payload []byte, start, end int64)
	// Lost says that the thread is lost at byte off: the scanner is quiet from
	// here on.
	Lost(err error, off int64)
}

// Message is one data message (RFC 6455 section 5.4).
type Message struct {
	// Op is Text or Binary.
	Op Opcode
	// Data is the whole text, unmasked and inflated, valid during the call; nil
	// for a binary message, a Truncated one, or with ErrDeflate.
	Data []byte
	// Size is the payload in bytes, inflated; with ErrDeflate what was inflated
	// up to the fault, which may be nothing.
	Size int64
	// Wire is the message in bytes as it lay on the wire, frame headers included
	// (RFC 6455 section 5.2), control frames in between excluded.
	Wire int64
	// Start and End are the offsets of the first byte of the first frame and of
	// the last byte of the last one.
	Start, End int64
	// Frames counts the data frames, empty ones included.
	Frames int
	// Compressed says that RSV1 was set (RFC 7692 section 6).
	Compressed bool
	// Truncated says that the message was over the limit: a text is counted and
	// hashed instead of held, and not checked to be UTF-8; of a compressed message
	// (of either Op) that is over it while still compressed, nothing is read.
	Truncated bool
	// Sum is the SHA-256 of the inflated payload of a Truncated text without Err.
	Sum [32]byte
	// Err is ErrDeflate or ErrUTF8: the payload cannot be read, the framing goes on.
	Err error
}

// DefaultLimit bounds in bytes the text messages that are held, and the
// compressed messages before they are inflated.
const DefaultLimit = 16 << 20

// Errors of a direction. The bytes flow on all the same.
var (
	// ErrGap: bytes were not kept, and no frame border can be found behind them.
	ErrGap = errors.New("bytes not analysed")
	// ErrReserved: RSV2, RSV3, or an RSV1 that no extension or place allows
	// (RFC 6455 section 5.2, RFC 7692 section 6.1).
	ErrReserved = errors.New("reserved bit")
	// ErrOpcode: a reserved opcode (RFC 6455 section 5.2).
	ErrOpcode = errors.New("reserved opcode")
	// ErrControl: a control frame over 125 bytes or in fragments (RFC 6455 section 5.5).
	ErrControl = errors.New("malformed control frame")
	// ErrContinuation: a continuation of nothing, or a new message inside a
	// fragmented one (RFC 6455 section 5.4).
	ErrContinuation = errors.New("misplaced fragment")
	// ErrMask: a frame of a client without a mask or of a server with one
	// (RFC 6455 section 5.1).
	ErrMask = errors.New("wrong masking")
	// ErrLength: a length with its top bit set (RFC 6455 section 5.2).
	ErrLength = errors.New("malformed frame length")
	// ErrDeflate: a message that cannot be inflated (RFC 7692 section 7.2.2): it
	// is malformed, over the limit, or needs the context of one that was.
	ErrDeflate = errors.New("malformed deflate")
	// ErrUTF8: a text that is not UTF-8 (RFC 6455 section 8.1).
	ErrUTF8 = errors.New("text not utf-8")
	// ErrExtension: an answer with an extension that is not permessage-deflate,
	// or with parameters that are none (RFC 7692 section 7.1).
	ErrExtension = errors.New("extension not known")
)
