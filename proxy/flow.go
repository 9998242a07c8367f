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

	block *tap.Block
	used  int
	wrote writer
	last  int64 // the last receive stamp
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
}

// take makes sure that there is room to read into.
func (f *flow) take() {
	if f.block == nil {
		f.block, f.used = tap.Take(readBlocks), 0
	}
	f.src.rx.b = f.block.B[f.used:]
}

// release gives the buffer back: nothing is there to read.
func (f *flow) release() {
	if f.block != nil {
		f.block.Release()
		f.block = nil
	}
}

// writeError marks an error that came from writing.
type writeError struct{ error }

// run moves bytes until the source ends (nil for FIN) or either side fails.
func (f *flow) run() error {
	f.init()
	defer f.release()
	for {
		p, mono, first, err := f.read()
		if len(p) > 0 {
			if werr := f.forward(p, mono, first); werr != nil {
				return writeError{werr}
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// read reads once and stamps what it read.
func (f *flow) read() (p []byte, mono, first int64, err error) {
	r := &f.src.rx
	var n int
	if f.src.tls {
		r.get, r.put = nil, nil // the records' buffer is TLS's own
		f.take()
		p := f.block.B[f.used:]
		n, err = f.src.Read(p)
		first = 0
	} else {
		r.peek, r.first = f.fresh.Load() || f.each != nil && f.each.Load(), 0
		n, err = f.src.receive()
		if r.peek && n > 0 {
			f.fresh.Store(false)
		}
	}
	if n == 0 {
		return nil, 0, 0, err
	}
	now := f.src.clock.now()
	mono = now
	if r.wall != 0 {
		if m, ok := f.src.clock.received(r.wall, now); ok {
			mono = m
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
	return f.block.B[f.used : f.used+n : f.used+n], mono, first, err
}

// forward hands bytes over and writes them on.
func (f *flow) forward(p []byte, mono, first int64) error {
	if f.dir == tap.Server && !f.otherFresh.Load() {
		f.otherFresh.Store(true)
	}
	if f.upgraded != nil && switches(p) {
		f.upgraded()
		f.upgraded = nil
	}
	out := p
	if f.inject != nil {
		out = f.inject.pass(p, f.h)
	}
	kept := f.h.Data(f.dir, f.block, p, mono, first)
	waited, err := f.write(out)
	if err != nil {
		f.h.Blocked(f.dir, waited)
		return err
	}
	if f.h != nil {
		f.h.Wrote(f.dir, f.src.clock.now(), waited)
	}
	if kept {
		if f.used += len(p); len(f.block.B)-f.used < roomLeft {
			f.release()
		}
	}
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

// write writes all of b and tells how long it was blocked.
func (f *flow) write(b []byte) (waited int64, err error) {
	if f.dst.tls {
		from := f.src.clock.now()
		_, err = f.dst.Write(b)
		return f.src.clock.now() - from, err
	}
	w := &f.wrote
	w.b, w.errno, w.since = b, 0, 0
	err = f.dst.raw.Write(w.fn)
	if w.since != 0 {
		waited = w.clock.now() - w.since
	}
	if err == nil && w.errno != 0 {
		err = os.NewSyscallError("send", w.errno)
	}
	return waited, err
}
