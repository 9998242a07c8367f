package proxy

import (
	"cmp"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is one side of a connection: a TCP connection, with TLS on top or not.
type socket struct {
	net.Conn // what bytes go through: the TCP connection, or TLS over it; nil once a loop has it
	tcp      transport
	raw      syscall.RawConn
	fd       *descriptor // where a loop has the connection: tcp and raw are it
	clock    *clock
	tls      bool
	rx       receiver
	shut     atomic.Bool // we sent FIN
}

// transport is what ends a TCP connection, or a wait for it: Go's own
// (net.TCPConn), or a loop's.
type transport interface {
	CloseWrite() error
	SetLinger(sec int) error
	SetReadDeadline(t time.Time) error
	Close() error
}

// receiver reads with receive stamps. Its fields are arguments and results of
// recv, which is kept as one closure so that a read allocates nothing.
type receiver struct {
	short bool   // the read before left room in its buffer
	peek  bool   // first look at the first byte alone, for its stamp
	get   func() // fetches b when there may be something to read
	put   func() // gives b back when there is nothing
	b     []byte
	n     int
	errno syscall.Errno
	wall  int64 // stamp of the read's last byte, 0 for none
	first int64 // stamp of its first byte, 0 for none
	fn    func(uintptr) bool
	msg   unix.Msghdr
	iov   unix.Iovec
	oob   [128]byte
	one   [1]byte
}

// stampFlags asks for software receive stamps in a control message of each read.
const stampFlags = unix.SOF_TIMESTAMPING_RX_SOFTWARE | unix.SOF_TIMESTAMPING_SOFTWARE

// setStamps turns receive stamps on. Set on a listener they cover bytes that
// arrive ahead of accept.
func setStamps(fd uintptr) error {
	return os.NewSyscallError("setsockopt SO_TIMESTAMPING", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPING, stampFlags))
}

// control is a net.ListenConfig or net.Dialer hook; kernels without stamps do as well.
func control(_, _ string, rc syscall.RawConn) error {
	return rc.Control(func(fd uintptr) { _ = setStamps(fd) })
}

func newSocket(c *net.TCPConn, clk *clock) (*socket, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &socket{Conn: c, tcp: c, raw: raw, clock: clk}
	s.rx.fn = s.rx.recv
	return s, nil
}

// become lets a loop have the connection.
func (s *socket) become(d *descriptor) {
	_ = s.Conn.Close() // d is a copy: the connection stays
	s.Conn, s.tcp, s.raw, s.fd = nil, d, d, d
}

// Close closes the connection.
func (s *socket) Close() error {
	if s.tls {
		return s.Conn.Close()
	}
	return s.tcp.Close()
}

// recv runs on the descriptor; false means wait until it is readable. Every read
// that finds nothing does so with EAGAIN: the poller is edge-triggered, and an
// end that came together with the last bytes gives no edge of its own.
func (r *receiver) recv(fd uintptr) bool {
	if r.get != nil {
		r.get()
	}
	if r.short && !r.peek {
		// a read that left room: most likely nothing more is there, and asking so is
		// cheaper than a read with a control message
		if _, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&r.one[0])), 1, unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0); e == syscall.EAGAIN {
			r.short = false
			r.giveBack()
			return false
		} else if e != 0 && e != syscall.EINTR { // looking takes the error off the socket: a read would find a clean end
			r.n, r.errno, r.short = 0, e, false
			return true
		}
	}
	if r.peek {
		if r.call(fd, r.one[:], unix.MSG_PEEK) && r.n > 0 {
			r.first = r.wall
		}
		if r.errno == syscall.EAGAIN {
			r.giveBack()
			return false
		}
		if r.errno != 0 {
			return true
		}
	}
	r.call(fd, r.b, 0)
	r.short = r.n > 0 && r.n < len(r.b)
	if r.errno == syscall.EAGAIN {
		r.giveBack()
		return false
	}
	return true
}

func (r *receiver) giveBack() {
	if r.put != nil {
		r.put()
	}
}

// call is one recvmsg and reports whether it gave bytes.
func (r *receiver) call(fd uintptr, b []byte, flags uintptr) bool {
	r.iov.Base = &b[0]
	r.iov.SetLen(len(b))
	r.msg.Iov = &r.iov
	r.msg.SetIovlen(1)
	r.msg.Control = &r.oob[0]
	r.msg.SetControllen(len(r.oob))
	r.wall, r.n = 0, 0
	for {
		n, _, e := syscall.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&r.msg)), flags|unix.MSG_DONTWAIT)
		if r.errno = e; e == syscall.EINTR {
			continue
		}
		if e != 0 {
			return false
		}
		r.n = int(n)
		r.wall = r.stamp(int(r.msg.Controllen))
		return true
	}
}

// stamp finds the software receive stamp among n bytes of control messages.
func (r *receiver) stamp(n int) int64 {
	for off := 0; off+unix.SizeofCmsghdr <= n; {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&r.oob[off]))
		if h.Level == unix.SOL_SOCKET && h.Type == unix.SCM_TIMESTAMPING && off+unix.CmsgLen(0)+int(unsafe.Sizeof(unix.Timespec{})) <= n {
			ts := (*unix.Timespec)(unsafe.Pointer(&r.oob[off+unix.CmsgLen(0)]))
			return ts.Nano()
		}
		if h.Len < unix.SizeofCmsghdr {
			break
		}
		off += unix.CmsgSpace(int(h.Len) - unix.CmsgLen(0))
	}
	return 0
}

// stamped reads from the TCP connection and keeps the stamps: what TLS reads
// through, so that decrypted bytes carry the stamp of their last segment.
type stamped struct {
	*net.TCPConn
	s *socket
}

func (c stamped) Read(b []byte) (int, error) {
	r := &c.s.rx
	r.b, r.first = b, 0
	return c.s.receive()
}

// receive reads once from the TCP connection into rx.b. On a loop's it does not
// wait: errAgain says that there is nothing.
func (s *socket) receive() (int, error) {
	if s.fd != nil {
		if ok, err := s.fd.try(s.rx.fn); !ok || err != nil {
			return 0, cmp.Or(err, errAgain)
		}
		return s.rx.result()
	}
	if err := s.raw.Read(s.rx.fn); err != nil {
		return 0, err
	}
	return s.rx.result()
}

// result returns what recv found.
func (r *receiver) result() (int, error) {
	if r.errno != 0 {
		return 0, os.NewSyscallError("recvmsg", r.errno)
	}
	if r.n == 0 && len(r.b) > 0 {
		return 0, io.EOF
	}
	return r.n, nil
}

// closeWrite sends FIN, behind TLS's own goodbye.
func (s *socket) closeWrite() {
	s.shut.Store(true)
	if c, ok := s.Conn.(interface{ CloseWrite() error }); ok && s.tls {
		_ = c.CloseWrite() // the peer may be gone: its FIN or RST tells
	}
	_ = s.tcp.CloseWrite()
}

// abort sends RST. What the peer has not acknowledged is lost.
func (s *socket) abort() {
	_ = s.tcp.SetLinger(0)
	_ = s.tcp.Close()
}

// wasReset tells a reset from a FIN after a read gave nothing: a failed write of
// the other goroutine may have taken the error off the socket. After a FIN that
// answers ours the state is closed as well.
func (s *socket) wasReset() bool {
	if s.shut.Load() {
		return false
	}
	reset := false
	_ = s.raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		reset = err == nil && info.State == tcpClose
	})
	return reset
}

// tcpClose is TCP_CLOSE of the kernel's include/net/tcp_states.h.
const tcpClose = 7

// unsent returns how many bytes the peer has not acknowledged.
func (s *socket) unsent() int {
	n := 0
	_ = s.raw.Control(func(fd uintptr) {
		if v, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			n = v
		}
	})
	return n
}

// unread returns how many bytes wait to be read.
func (s *socket) unread() int {
	n := 0
	_ = s.raw.Control(func(fd uintptr) {
		if v, err := unix.IoctlGetInt(int(fd), unix.SIOCINQ); err == nil {
			n = v
		}
	})
	return n
}

var _ io.Reader = stamped{}
