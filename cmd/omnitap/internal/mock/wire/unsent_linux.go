package wire

import (
	"net"

	"golang.org/x/sys/unix"
)

// unsent is the number of bytes that the peer has not acknowledged.
func unsent(t *net.TCPConn) int {
	raw, err := t.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	err = raw.Control(func(fd uintptr) {
		n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) // 0 when it fails
	})
	if err != nil {
		return 0
	}
	return n
}
