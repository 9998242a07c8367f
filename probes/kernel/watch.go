//go:build linux && amd64

package kernel

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Stage is what the kernel side keeps of one watched process.
type Stage struct {
	// Index numbers the process's stage.
	Index uint32
	Flags uint32
	// Hits counts, by family in the order of Families, the program runs on the
	// process's behalf.
	Hits [8]uint64
}

// Families names the families in the order of Stage.Hits.
var Families = [...]string{"shm", "zmq", "pipe", "socket", "cuda", "sched", "proc"}

// FlagSelf marks omnitap's own process, whose calls are heartbeats.
const FlagSelf = 1

// Watch is the table of watched processes, shared by all families.
type Watch struct {
	stages       *ebpf.Map
	nsDev, nsIno uint64
}

// initPidNS is the inode of the kernel's first pid namespace (include/linux/proc_ns.h,
// PROC_PID_INIT_INO).
const initPidNS = 0xEFFFFFFC

// NewWatch makes an empty table. Pids are those of omnitap's own pid namespace.
func NewWatch() (*Watch, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "stages", Type: ebpf.Hash, KeySize: 4, ValueSize: 72, MaxEntries: 1024})
	if err != nil {
		return nil, fmt.Errorf("making the table of processes: %w", cause(err))
	}
	w := &Watch{stages: m}
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err == nil && st.Ino != initPidNS {
		w.nsDev, w.nsIno = st.Dev, st.Ino
	}
	return w, nil
}

// Namespaced reports whether omnitap runs in a pid namespace of its own: probes that
// the scheduler drives see the kernel's numbers, not ours, and cannot be used there.
func (w *Watch) Namespaced() bool { return w.nsIno != 0 }

// Add watches a process.
func (w *Watch) Add(pid int, index uint32) error {
	if err := w.stages.Update(uint32(pid), Stage{Index: index}, ebpf.UpdateNoExist); err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("watching process %d: %w", pid, err)
	}
	return nil
}

// AddSelf marks omnitap's own process for heartbeats.
func (w *Watch) AddSelf() error {
	if err := w.stages.Update(uint32(os.Getpid()), Stage{Flags: FlagSelf}, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("watching omnitap itself: %w", err)
	}
	return nil
}

// Remove watches a process no longer.
func (w *Watch) Remove(pid int) error {
	if err := w.stages.Delete(uint32(pid)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("watching process %d no longer: %w", pid, err)
	}
	return nil
}

// Hits returns the entry of a process and whether there is one.
func (w *Watch) Hits(pid int) (Stage, bool) {
	var s Stage
	return s, w.stages.Lookup(uint32(pid), &s) == nil
}

// Close frees the table.
func (w *Watch) Close() error { return w.stages.Close() }
