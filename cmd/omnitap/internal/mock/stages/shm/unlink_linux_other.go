//go:build linux && !amd64

package shm

import "golang.org/x/sys/unix"

// unlink is unlinkat where the architecture knows nothing else.
func unlink(name string) error { return unix.Unlink(name) }
