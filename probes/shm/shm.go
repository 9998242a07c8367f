//go:build linux && amd64

// Package shm sees shared memory connectors: segments and lock files in /dev/shm, by
// system call tracepoints. It tells no transfers: exporter/join makes them.
package shm

import "github.com/omnitap/omnitap/probes/kernel"

// Load loads the family and attaches it. Its loss counter is kernel.Counts.Lost.
func Load(w *kernel.Watch, ringBytes int) (*kernel.Family, error) {
	spec, err := loadBpf()
	if err != nil {
		return nil, err
	}
	f, err := kernel.Load(kernel.Config{Name: "shm", Spec: spec, Watch: w, RingBytes: ringBytes})
	if err != nil {
		return nil, err
	}
	return kernel.Keep(f, f.Tracepoints(kernel.Syscalls(
		"exit_openat", "enter_openat", "enter_ftruncate", "exit_flock", "enter_flock", "enter_close",
		"exit_unlink", "enter_unlink", "exit_unlinkat", "enter_unlinkat")))
}
