//go:build linux && amd64

// Package pipe sees queues over pipes, as Python's multiprocessing makes them: what is
// written to and read from pipes that watched processes share.
package pipe

import (
	"errors"
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

// Watch sets the pipes that are watched, by inode, as /proc/PID/fd shows them.
func Watch(f *kernel.Family, inodes []uint64) error {
	m := f.Map("pipes")
	want := map[uint64]bool{}
	for _, ino := range inodes {
		want[ino] = true
	}
	var key uint64
	var value uint32
	var gone []uint64
	it := m.Iterate()
	for it.Next(&key, &value) {
		if !want[key] {
			gone = append(gone, key)
		}
		delete(want, key)
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("pipe: reading the watched pipes: %w", err)
	}
	for _, ino := range gone {
		if err := m.Delete(ino); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("pipe: watching a pipe no longer: %w", err)
		}
	}
	for ino := range want {
		if err := m.Update(ino, uint32(1), ebpf.UpdateAny); err != nil {
			return fmt.Errorf("pipe: watching a pipe: %w", err)
		}
	}
	return nil
}
