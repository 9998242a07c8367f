//go:build linux && amd64

// Package proc sees processes come and go: forks and ends of watched ones, every exec,
// signals to them, and out-of-memory kills.
package proc

import "github.com/omnitap/omnitap/probes/kernel"

// Load loads the family and attaches it.
func Load(w *kernel.Watch, ringBytes int) (*kernel.Family, error) {
	spec, err := loadBpf()
	if err != nil {
		return nil, err
	}
	f, err := kernel.Load(kernel.Config{Name: "proc", Spec: spec, Watch: w, RingBytes: ringBytes})
	if err != nil {
		return nil, err
	}
	err = f.BTF("on_exec", "on_fork", "on_exit", "on_signal")
	if err == nil {
		err = f.RawTracepoint("mark_victim", "on_victim")
	}
	return kernel.Keep(f, err)
}
