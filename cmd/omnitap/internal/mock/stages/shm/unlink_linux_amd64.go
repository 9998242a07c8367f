package shm

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// unlink calls unlink, as the server's C library does; x/sys would call unlinkat.
func unlink(name string) error {
	p, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	if _, _, no := unix.Syscall(unix.SYS_UNLINK, uintptr(unsafe.Pointer(p)), 0, 0); no != 0 {
		return no
	}
	return nil
}
