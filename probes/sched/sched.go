//go:build linux && amd64

// Package sched sees what the scheduler did with the threads of watched processes, and
// how long all others ran.
package sched

import (
	"errors"
	"fmt"
	"os"

	"github.com/omnitap/omnitap/probes/kernel"
)

// errNoInfo names what the kernel lacks.
var errNoInfo = errors.New("sched: the kernel does not say how long threads wait for a CPU (CONFIG_SCHED_INFO)")

// Load loads the family and attaches it.
func Load(w *kernel.Watch, ringBytes int) (*kernel.Family, error) {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil { // it is there with the same setting
		return nil, errNoInfo
	}
	spec, err := loadBpf()
	if err != nil {
		return nil, err
	}
	f, err := kernel.Load(kernel.Config{Name: "sched", Spec: spec, Watch: w, RingBytes: ringBytes})
	if err != nil {
		return nil, err
	}
	return kernel.Keep(f, f.BTF("on_switch"))
}

// foreign is struct foreign of sched.bpf.c.
type foreign struct{ Since, NS uint64 }

// Foreign returns how long processes that nobody watches ran so far, nanoseconds
// summed over all CPUs: a difference over its time is cores.
func Foreign(f *kernel.Family) (ns uint64, err error) {
	var each []foreign
	if err := f.Map("foreigns").Lookup(uint32(0), &each); err != nil {
		return 0, fmt.Errorf("sched: reading foreign time: %w", err)
	}
	for _, e := range each {
		ns += e.NS
	}
	return ns, nil
}
