// Package ipc puts go-zeromq/zmq4 on Unix sockets the way libzmq does: a thread
// named ZMQbg/IO/N sends and receives with sendto and recvfrom, whole messages in one
// call where they fit, so that who watches the kernel sees what he would see of the
// real server. The library would do several writes a message, on any thread.
package ipc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/go-zeromq/zmq4"
	zmqtransport "github.com/go-zeromq/zmq4/transport"
	"golang.org/x/sys/unix"
)

// Endpoint is what a socket listens on or dials: the path of the Unix socket. Its
// connections' threads are named ZMQbg/IO/thread, 0 or 1.
func Endpoint(path string, thread int) string { return fmt.Sprintf("omni%d://%s", thread&1, path) }

// Quiet keeps the library from writing to stderr: a handshake that breaks off is a peer
// that has ended.
var Quiet = zmq4.WithLogger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelError))

func init() {
	for i := range 2 {
		// Refused only if the name is taken, which no other package does.
		_ = zmq4.RegisterTransport(fmt.Sprintf("omni%d", i), transport{fmt.Sprintf("ZMQbg/IO/%d", i)})
	}
}

// transport makes connections whose threads have this name.
type transport struct{ thread string }

// Dial implements zmqtransport.Transport.
func (t transport) Dial(_ context.Context, _ zmqtransport.Dialer, addr string) (net.Conn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: addr}); err != nil {
		return nil, errors.Join(os.NewSyscallError("connect", err), unix.Close(fd))
	}
	a := &net.UnixAddr{Name: addr, Net: "unix"}
	return newConn(fd, t.thread, &net.UnixAddr{Net: "unix"}, a)
}

// Listen implements zmqtransport.Transport.
func (t transport) Listen(_ context.Context, addr string) (net.Listener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"})
	if err != nil {
		return nil, err
	}
	return &listener{l, t.thread}, nil
}

// Addr implements zmqtransport.Transport.
func (transport) Addr(ep string) (string, error) { return ep, nil }

type listener struct {
	*net.UnixListener
	thread string
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	u, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	defer u.Close() // the connection lives on in fd
	raw, err := u.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, dupErr := -1, error(nil)
	err = raw.Control(func(p uintptr) { fd, dupErr = unix.FcntlInt(p, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, dupErr); err != nil {
		return nil, err
	}
	return newConn(fd, l.thread, u.LocalAddr(), u.RemoteAddr())
}

// greeting is the length of ZMTP 3's greeting, which comes before all frames.
const greeting = 64

const (
	flagMore = 1
	flagLong = 2
)

// whole returns how many of the first bytes of b are whole messages, or belong to the
// greeting, of which greet bytes are to come, and what of the greeting is to come then.
func whole(b []byte, greet int) (n, left int) {
	n = min(greet, len(b))
	left = greet - n
	for at := n; ; {
		head, size := 2, uint64(0)
		switch {
		case at+head > len(b):
			return n, left
		case b[at]&flagLong == 0:
			size = uint64(b[at+1])
		case at+9 > len(b):
			return n, left
		default:
			head, size = 9, binary.BigEndian.Uint64(b[at+1:])
		}
		if size > uint64(len(b)-at-head) {
			return n, left
		}
		more := b[at]&flagMore != 0
		if at += head + int(size); !more {
			n = at
		}
	}
}
