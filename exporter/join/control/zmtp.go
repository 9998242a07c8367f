package control

import "encoding/binary"

// What is kept of a frame, as the probes on libzmq do, and of a message.
const (
	keepHead   = 1024
	keepTail   = 64
	keepFrames = 64 // further frames are told as one, by their size
	keepBytes  = 8  // frames whose bytes are kept, the first ones
)

// The greeting of ZMTP 3 (RFC 23): a signature of 10 bytes, 64 bytes in all.
const greetingSize = 64

// The flags of a frame (RFC 23).
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// maxFrame bounds what is believed to be a frame's length.
const maxFrame = 1 << 40

type zmtpState uint8

const (
	// zmtpOut: where the next frame begins is not known.
	zmtpOut zmtpState = iota
	zmtpGreeting
	zmtpHeader
	zmtpBody
)

// Zmtp puts the messages of one direction of one ZMQ connection together again, from
// the socket calls that carried its bytes. It is for where libzmq itself cannot be
// probed. It understands ZMTP 3 without encryption. The zero value is ready, also in
// the middle of a connection; a new connection needs a new one.
//
// It holds at most 16 KiB. It may be used by one goroutine at a time.
type Zmtp struct {
	state zmtpState
	lost  int64
	// left is how many bytes of the greeting or of the frame's body are to come.
	left   int64
	header [9]byte
	have   int // bytes of the header

	flags byte
	frame Frame
	// open says that no byte of the frame was missing so far.
	open   bool
	cut    bool // the message that is emitted has frames that were not seen
	frames []Frame
	keep   []*kept
}

// kept is the memory for one frame's first and last bytes.
type kept struct {
	head [keepHead]byte
	tail [keepTail]byte
}

// Lost is how often the thread was lost: a frame began in bytes that were not copied,
// or what should have been a frame's header was none. Each time some messages are
// missing. Calls before the first frame of a running connection do not count.
func (z *Zmtp) Lost() int64 { return z.lost }

// Cut says, while a message is emitted, that only its first frames were seen whole: the
// header of the next one lies in bytes that were not copied, as it does where an engine
// answers several requests at once with sound. How long the message is is not known.
func (z *Zmtp) Cut() bool { return z.cut }

// Feed takes one socket call of n bytes, of which head is the first ones and tail the
// last ones; what lies between was not copied. It calls emit for each message that is
// complete, in order. The frames are valid until emit returns.
func (z *Zmtp) Feed(head, tail []byte, n int64, emit func(frames []Frame)) {
	if n <= 0 {
		return
	}
	head = head[:min(int64(len(head)), n)]
	if over := int64(len(head)) + int64(len(tail)) - n; over > 0 {
		tail = tail[min(over, int64(len(tail))):]
	}
	if z.state == zmtpOut && !z.begin(head, n) {
		return
	}
	z.bytes(head, emit)
	z.missing(n-int64(len(head))-int64(len(tail)), emit)
	z.bytes(tail, emit)
}

// begin looks for the thread at the beginning of a call.
func (z *Zmtp) begin(head []byte, n int64) bool {
	switch {
	case isGreeting(head):
		z.state, z.left = zmtpGreeting, greetingSize
	case plausible(head, n):
		z.state = zmtpHeader
	default:
		return false
	}
	z.have, z.frames = 0, z.frames[:0]
	return true
}

// isGreeting says whether b begins with the signature of a greeting: ff, eight bytes
// of which libzmq fills the last, 7f. It may arrive in pieces.
func isGreeting(b []byte) bool {
	if len(b) == 0 || b[0] != 0xff || len(b) >= 10 && b[9] != 0x7f {
		return false
	}
	for i := 1; i < min(len(b), 8); i++ {
		if b[i] != 0 {
			return false
		}
	}
	return true
}

// lose gives up the message at hand.
func (z *Zmtp) lose() {
	z.state = zmtpOut
	z.lost++
}

// bytes takes bytes that were copied.
func (z *Zmtp) bytes(b []byte, emit func([]Frame)) {
	for len(b) > 0 {
		switch z.state {
		case zmtpGreeting:
			n := min(z.left, int64(len(b)))
			b = b[n:]
			z.greeted(n)
		case zmtpHeader:
			z.header[z.have] = b[0]
			z.have++
			b = b[1:]
			z.readHeader(emit)
		case zmtpBody:
			n := min(z.left, int64(len(b)))
			z.body(b[:n])
			b = b[n:]
			z.passed(n, emit)
		default:
			return
		}
	}
}

// missing takes n bytes that were not copied.
func (z *Zmtp) missing(n int64, emit func([]Frame)) {
	for n > 0 {
		switch z.state {
		case zmtpGreeting:
			take := min(z.left, n)
			n -= take
			z.greeted(take)
		case zmtpBody:
			take := min(z.left, n)
			n -= take
			z.open, z.frame.Tail = false, z.frame.Tail[:0]
			z.passed(take, emit)
		case zmtpHeader:
			z.abandon(emit)
			return
		default:
			return
		}
	}
}

// abandon loses the thread amid a message, and emits what of it was whole.
func (z *Zmtp) abandon(emit func([]Frame)) {
	if len(z.frames) > 0 {
		z.cut = true
		emit(z.frames)
		z.cut, z.frames = false, z.frames[:0]
	}
	z.lose()
}

func (z *Zmtp) greeted(n int64) {
	if z.left -= n; z.left == 0 {
		z.state = zmtpHeader
	}
}

// readHeader starts the frame when its header is complete.
func (z *Zmtp) readHeader(emit func([]Frame)) {
	flags, size, length := parseHeader(z.header[:z.have])
	switch {
	case length < 0:
		z.lose()
	case length > 0:
		z.have = 0
		z.start(flags, size)
		z.passed(0, emit)
	}
}

// parseHeader reads a frame's header: its length is 0 where more bytes are needed, -1
// where this is none.
func parseHeader(b []byte) (flags byte, size int64, length int) {
	if len(b) == 0 {
		return 0, 0, 0
	}
	flags = b[0]
	if flags > flagLong|flagCommand || flags&(flagCommand|flagMore) == flagCommand|flagMore {
		return 0, 0, -1
	}
	if flags&flagLong == 0 {
		if len(b) < 2 {
			return flags, 0, 0
		}
		return flags, int64(b[1]), 2
	}
	if len(b) < 9 {
		return flags, 0, 0
	}
	long := binary.BigEndian.Uint64(b[1:])
	if long > maxFrame {
		return 0, 0, -1
	}
	return flags, int64(long), 9
}

// start begins a frame of size bytes.
func (z *Zmtp) start(flags byte, size int64) {
	z.state, z.flags, z.left, z.open = zmtpBody, flags, size, true
	z.frame = Frame{Size: size}
	at := len(z.frames)
	if flags&flagCommand != 0 || at >= keepBytes {
		z.open = false
		return
	}
	if at == len(z.keep) {
		z.keep = append(z.keep, new(kept))
	}
	z.frame.Head, z.frame.Tail = z.keep[at].head[:0], z.keep[at].tail[:0]
}

// body keeps the first and the last bytes of the frame.
func (z *Zmtp) body(b []byte) {
	f := &z.frame
	if room := keepHead - len(f.Head); z.open && room > 0 {
		f.Head = append(f.Head, b[:min(room, len(b))]...)
	}
	if f.Tail == nil || f.Size <= keepHead && z.open {
		return
	}
	if len(b) >= keepTail {
		f.Tail = append(f.Tail[:0], b[len(b)-keepTail:]...)
		return
	}
	if drop := len(f.Tail) + len(b) - keepTail; drop > 0 {
		f.Tail = f.Tail[:copy(f.Tail, f.Tail[drop:])]
	}
	f.Tail = append(f.Tail, b...)
}

// passed counts n bytes of the body, and ends the frame and the message with the last.
func (z *Zmtp) passed(n int64, emit func([]Frame)) {
	if z.left -= n; z.left > 0 {
		return
	}
	z.state = zmtpHeader
	if z.flags&flagCommand != 0 {
		return
	}
	if int64(len(z.frame.Head)) == z.frame.Size {
		z.frame.Tail = nil
	}
	if len(z.frames) < keepFrames {
		z.frames = append(z.frames, z.frame)
	} else {
		z.frames[keepFrames-1].Size += z.frame.Size
	}
	if z.flags&flagMore == 0 {
		emit(z.frames)
		z.frames = z.frames[:0]
	}
}

// plausible says whether a call of n bytes that begins with head begins with a frame:
// the frames whose headers can be seen must follow one another, and either end a
// message with the call, or one of them must look like more than chance.
func plausible(head []byte, n int64) bool {
	more, strong := false, false
	for at := int64(0); at < n; {
		if at >= int64(len(head)) {
			return strong
		}
		flags, size, length := parseHeader(head[at:])
		switch {
		case length == 0:
			return strong
		case length < 0,
			flags&flagLong != 0 && size <= 255, // libzmq writes these short
			size == 0 && flags&flagMore == 0 && !more:
			return false
		}
		body := head[min(at+int64(length), int64(len(head))):]
		strong = strong || flags&flagLong != 0 || size > 0 && opensMessage(body)
		more = flags&flagMore != 0
		at += int64(length) + size
		if at > n {
			return strong
		}
	}
	return strong || !more
}

// opensMessage says whether a body begins like one of the messages that Decode knows.
func opensMessage(body []byte) bool {
	if len(body) == 0 {
		return false
	}
	t := body[0]
	return t >= 0x80 && t < 0xa0 || t >= 0xdc && t < 0xe0
}
