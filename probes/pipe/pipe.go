//go:build linux && amd64

// Package pipe sees queues over pipes, as Python's multiprocessing makes them: what is
// written to and read from pipes that watched processes share.
package pipe

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/omnitap/omnitap/probes/kernel"
)

// Load loads the family and attaches it; no pipe is watched yet.
func Load(w *kernel.Watch, ringBytes int) (*kernel.Family, error) {
	spec, err := loadBpf()
	if err != nil {
		return nil, err
	}
	f, err := kernel.Load(kernel.Config{Name: "pipe", Spec: spec, Watch: w, RingBytes: ringBytes})
	if err != nil {
		return nil, err
	}
	return kernel.Keep(f, f.Tracepoints(kernel.Syscalls("exit_write", "enter_write", "exit_read", "enter_read")))
}

// Watch adds pipes by inode, as /proc/PID/fd shows them.
func Watch(f *kernel.Family, inodes []uint64) error {
	for _, ino := range inodes {
		if err := f.Map("pipes").Update(ino, uint32(1), ebpf.UpdateAny); err != nil {
			return fmt.Errorf("pipe: watching a pipe: %w", err)
		}
	}
	return nil
}
