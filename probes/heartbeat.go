//go:build linux && amd64

package probes

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/probes/kernel"
)

// heartbeat tells a dead probe from a quiet stage: omnitap makes a call of its own that
// the probe has to count, and looks whether traps are still in the text pages.
type heartbeat struct{ beats map[string]uint64 }

// check judges the calls of the last second and makes those of this one.
func (h *heartbeat) check(families []*family, maps *mapped) {
	if h.beats == nil {
		h.beats = map[string]uint64{}
	}
	for _, f := range families {
		if f.kernel == nil {
			delete(h.beats, f.name)
			continue
		}
		f.dead = ""
		if f.library != nil {
			f.dead = trapless(f, maps)
			continue
		}
		c, err := f.kernel.Counts()
		if err != nil {
			f.dead = err.Error()
			continue
		}
		if last, there := h.beats[f.name]; there && f.beats() && c.Beats == last {
			f.dead = "omnitap's own calls are not seen any more"
		}
		h.beats[f.name] = c.Beats
	}
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
	for pid, entry := range maps.byPID {
		for i := range entry.maps {
			m := &entry.maps[i]
			l := f.libs[inode{m.Dev, m.Inode}]
			if l == nil || l.err != nil {
				continue
			}
			for name, sym := range l.symbols {
				there, err := kernel.Trapped(pid, m, sym.Offset+sym.At())
				if err == nil && !there {
					return fmt.Sprintf("no trap at %s in process %d", name, pid)
				}
			}
		}
	}
	return ""
}
