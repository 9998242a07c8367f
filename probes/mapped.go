//go:build linux && amd64

package probes

import (
	"slices"
	"time"

	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/probes/kernel"
)

// mapped is what the watched processes map of libraries that matter. Reading it takes
// milliseconds for a process of PyTorch's size, so a process is read at once, again
// soon, for a library may come with a late import, and ever more seldom.
type mapped struct{ byPID map[int]*mapsOf }

type mapsOf struct {
	start uint64 // of the process, as in event.Process
	maps  []kernel.Mapping
	next  time.Time
	pause time.Duration
}

const (
	firstPause = 2 * time.Second
	lastPause  = time.Minute
)

// refresh reads what is due, and forgets who is gone.
func (m *mapped) refresh(found []event.Process) {
	old := m.byPID
	m.byPID = map[int]*mapsOf{}
	now := time.Now()
	for i := range found {
		p := &found[i]
		e := old[p.PID]
		if e == nil || e.start != p.StartTicks {
			e = &mapsOf{start: p.StartTicks, pause: firstPause / 2}
		}
		m.byPID[p.PID] = e
		if now.Before(e.next) {
			continue
		}
		maps, err := kernel.Mapped(p.PID, func(p string) bool { return isZMQ(p) || isCUDA(p) || isMooncake(p) })
		if err == nil { // else it is gone, or discovery has said what is missing
			e.maps = maps
		}
		e.pause = min(2*e.pause, lastPause)
		e.next = now.Add(e.pause)
	}
}

// of returns what a process maps. It is not to be changed.
func (m *mapped) of(pid int) []kernel.Mapping {
	if e := m.byPID[pid]; e != nil {
		return e.maps
	}
	return nil
}

// has says whether any process maps such a file.
func (m *mapped) has(match func(string) bool) bool {
	for _, e := range m.byPID {
		if slices.ContainsFunc(e.maps, func(m kernel.Mapping) bool { return match(m.Path) }) {
			return true
		}
	}
	return false
}
