package proxy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/proxy/tap"
)

// readSize is the buffer of one read; roomLeft how much of a buffer must be
// free to read into it again.
const (
	readSize = 32 << 10
	roomLeft = 16 << 10
)

var readBlocks = tap.NewPool(readSize)

// flow moves the bytes of one direction.
type flow struct {
	dir      tap.Dir
	src, dst *socket
	h        *tap.Handle
	inject   *injector
	kernel   *atomic.Bool // stamps of the connection are the kernel's
	// fresh says that bytes went the other way since the last read: the next read
	// begins a message, whose first byte gets a stamp of its own.
	fresh, otherFresh *atomic.Bool
	// each says that messages begin at any time: every read's first byte gets a
	// stamp of its own. nil is never.
	each *atomic.Bool
	// upgraded is called once, where a read begins with an answer that makes the
	// connection a WebSocket; nil then.
	upgraded func()

	buf   *buffer
	wrote writer
	last  int64 // the last receive stamp

	// rest is what a loop could not write on at once, err what ended its reading.
	rest rest
	err  error
}

// rest is what is left of n bytes that were read: b, to be written on.
type rest struct {
	b     []byte
	since int64 // when the write began to be blocked
	n     int
	kept  bool
}

// buffer is what is read into: the free part of a block.
type buffer struct {
	block *tap.Block
	used  int
}

// room returns where to read to, of at least roomLeft bytes.
func (b *buffer) room() []byte {
	if b.block == nil {
		b.block, b.used = tap.Take(readBlocks), 0
	}
	return b.block.B[b.used:]
}

// release gives the block back.
func (b *buffer) release() {
	if b.block != nil {
		b.block.Release()
		b.block = nil
	}
}

// advance goes past n bytes that somebody keeps.
func (b *buffer) advance(n int) {
	if b.used += n; len(b.block.B)-b.used < roomLeft {
		b.release()
	}
}

// writer writes on; like receiver it is one closure that allocates nothing.
type writer struct {
	b     []byte
	errno syscall.Errno
	clock *clock
	since int64 // when it began to be blocked, 0 for not
	fn    func(uintptr) bool
}

func (w *writer) send(fd uintptr) bool {
	for len(w.b) > 0 {
		n, _, e := syscall.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&w.b[0])), uintptr(len(w.b)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
		switch e {
		case 0:
			w.b = w.b[n:]
		case syscall.EINTR:
		case syscall.EAGAIN:
			if w.since == 0 {
				w.since = w.clock.now()
			}
			return false
		default:
			w.errno = e
			return true
		}
	}
	return true
}

func (f *flow) init() {
	f.wrote.fn, f.wrote.clock = f.wrote.send, f.src.clock
	f.src.rx.get, f.src.rx.put = f.take, f.release
	if f.buf == nil {
		f.buf = &buffer{}
	}
}

// take makes sure that there is room to read into.
func (f *flow) take() { f.src.rx.b = f.buf.room() }

// release gives the buffer back: nothing is there to read.
func (f *flow) release() { f.buf.release() }

// writeError marks an error that came from writing.
type writeError struct{ error }

// errParked says that the flow is its loop's again.
var errParked = errors.New("nothing to read: the loop goes on")

// run moves bytes until the source ends (nil for FIN) or either side fails. A
// loop's flow is given back where nothing is left to read.
func (f *flow) run() error {
	f.init()
	for err := f.resume(); ; err = f.move() {
		if err == nil {
			continue
		}
		f.release() // ahead of giving back: from there on the flow is somebody else's
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case !errors.Is(err, errAgain):
			return err
		case f.src.fd.giveBack():
			return errParked
		}
	}
}

// resume goes on where a loop left.
func (f *flow) resume() error {
	left, err := f.rest, f.err
	f.rest, f.err = rest{}, nil
	if len(left.b) == 0 {
		return err
	}
	f.wrote.since = left.since
	waited, err := f.write(left.b)
	if err != nil {
		f.h.Blocked(f.dir, waited)
		return writeError{err}
	}
	f.written(f.buf, left.n, left.kept, waited)
	return nil
}

// move reads once and writes on.
func (f *flow) move() error {
	p, mono, first, err := f.read()
	if len(p) > 0 {
		if werr := f.forward(p, mono, first); werr != nil {
			return writeError{werr}
		}
	}
	return err
}

// peeks reports whether the next read's first byte gets a stamp of its own.
func (f *flow) peeks() bool { return f.fresh.Load() || f.each != nil && f.each.Load() }

// read reads once and stamps what it read.
func (f *flow) read() (p []byte, mono, first int64, err error) {
	r := &f.src.rx
	var n int
	if f.src.tls {
		r.get, r.put = nil, nil // the records' buffer is TLS's own
		r.peek = false
		n, err = f.src.Read(f.buf.room())
	} else {
		r.peek, r.first = f.peeks(), 0
		n, err = f.src.receive()
	}
	if n == 0 {
		return nil, 0, 0, err
	}
	mono, first = f.stamp(r)
	b := f.buf
	return b.block.B[b.used : b.used+n : b.used+n], mono, first, err
}

// stamp returns the stamps of what was just read: of its last byte, and of its
// first one where that was looked at (else 0).
func (f *flow) stamp(r *receiver) (mono, first int64) {
	if r.peek {
		f.fresh.Store(false)
	}
	now := f.src.clock.now()
	mono = now
	if r.wall != 0 {
		if m, ok := f.src.clock.received(r.wall, now); ok {
			mono = m
			f.src.clock.lagged(now - m)
			if !f.kernel.Load() {
				f.kernel.Store(true)
			}
		}
	}
	mono = max(mono, f.last) // a stream's stamps do not go back; the offset's error may
	f.last = mono
	if r.first != 0 && r.first != r.wall {
		if m, ok := f.src.clock.received(r.first, now); ok && m <= mono {
			first = m
		}
	}
	return mono, first
}

// handOver lets the tap have bytes of a buffer and returns what to write on. kept
// says that the tap holds the buffer.
func (f *flow) handOver(b *buffer, p []byte, mono, first int64) (out []byte, kept bool) {
	if f.dir == tap.Server && !f.otherFresh.Load() {
		f.otherFresh.Store(true)
	}
	if f.upgraded != nil && switches(p) {
		f.upgraded()
		f.upgraded = nil
	}
	out = p
	if f.inject != nil {
		out = f.inject.pass(p, f.h)
	}
	return out, f.h.Data(f.dir, b.block, p, mono, first)
}

// written notes that n bytes of a buffer were written on, after waited nanoseconds
// of being blocked.
func (f *flow) written(b *buffer, n int, kept bool, waited int64) {
	if f.h != nil {
		f.h.Wrote(f.dir, f.src.clock.now(), waited)
	}
	if kept {
		b.advance(n)
	}
}

// forward hands bytes over and writes them on.
func (f *flow) forward(p []byte, mono, first int64) error {
	out, kept := f.handOver(f.buf, p, mono, first)
	f.wrote.since = 0
	waited, err := f.write(out)
	if err != nil {
		f.h.Blocked(f.dir, waited)
		return err
	}
	f.written(f.buf, len(p), kept, waited)
	return nil
}

// maxSwitch bounds what of a read is looked at for the answer to an upgrade.
const maxSwitch = 4 << 10

// switches reports whether a read holds the head that makes the connection a
// WebSocket, behind other informational ones or not.
func switches(p []byte) bool {
	if !bytes.HasPrefix(p, []byte("HTTP/1.1 1")) {
		return false
	}
	head := p[:min(len(p), maxSwitch)]
	return bytes.Contains(head, []byte("HTTP/1.1 101 ")) && bytes.Contains(bytes.ToLower(head), []byte("websocket"))
}

// write writes all of b and tells how long it was blocked, from wrote.since on
// where that is set.
func (f *flow) write(b []byte) (waited int64, err error) {
	if f.dst.tls {
		from := f.src.clock.now()
		_, err = f.dst.Write(b)
		return f.src.clock.now() - from, err
	}
	w := &f.wrote
	w.b, w.errno = b, 0
	err = f.dst.raw.Write(w.fn)
	if w.since != 0 {
		waited = w.clock.now() - w.since
	}
	if err == nil && w.errno != 0 {
		err = os.NewSyscallError("send", w.errno)
	}
	return waited, err
}
