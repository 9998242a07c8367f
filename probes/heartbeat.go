//go:build linux && amd64

package probes

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/probes/kernel"
)

// heartbeat tells a dead probe from a quiet stage: omnitap makes a call of its own that
// the probe has to count, asks the kernel for every attachment, and looks whether traps
// are still in the text pages.
type heartbeat struct{ last map[string]pulse }

// pulse is what a family had counted at the last look.
type pulse struct {
	of    *kernel.Family
	beats uint64
}

// check judges the calls of the last second and makes those of this one.
func (h *heartbeat) check(families []*family, maps *mapped) {
	now := map[string]pulse{}
	for _, f := range families {
		if f.kernel == nil {
			continue
		}
		f.dead = ""
		c, err := f.kernel.Counts()
		if err == nil {
			err = f.kernel.Alive()
		}
		last := h.last[f.name]
		switch {
		case err != nil:
			f.dead = err.Error()
		case f.library != nil:
			f.dead = trapless(f, maps)
		case last.of == f.kernel && f.beats() && c.Beats == last.beats:
			f.dead = "omnitap's own calls are not seen any more"
		}
		now[f.name] = pulse{f.kernel, c.Beats}
	}
	h.last = now
	beat()
}

// beats says whether the family counts calls of omnitap's own.
func (f *family) beats() bool { return f.name != "proc" } // omnitap forks nothing by itself

// beat makes calls that tracepoint families see: an open of a segment that is not
// there, and a write and a read of nothing. Sleeping in between is a switch.
func beat() {
	if fd, err := unix.Open("/dev/shm/omnitap-heartbeat", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Close(fd) // somebody's idea of a joke
	}
	_, _ = unix.Write(-1, nil)
	_, _ = unix.Read(-1, nil)
}

// trapless looks whether a family's traps are in every process that maps its library.
func trapless(f *family, maps *mapped) string {
	for _, p := range places(f, maps) {
		there, err := kernel.Trapped(p.pid, p.m, p.sym)
		if err == nil && !there {
			return fmt.Sprintf("no trap at %s in process %d", p.name, p.pid)
		}
	}
	return ""
}
