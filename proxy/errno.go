package proxy

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// errnoName gives an error number its name (ECONNREFUSED).
func errnoName(e syscall.Errno) string {
	if s := unix.ErrnoName(e); s != "" {
		return s
	}
	return e.Error()
}
