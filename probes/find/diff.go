package find

import (
	"slices"

	"github.com/omnitap/omnitap/probes/event"
)

// Diff is what changed between two scans.
type Diff struct {
	Added, Gone []event.Process
	// Restarted are those of Added that take the place of an earlier one.
	Restarted []Restart
}

// Restart is a process and the one whose place it takes.
type Restart struct {
	Old, New event.Process
}

// Empty says that nothing changed.
func (d *Diff) Empty() bool { return len(d.Added) == 0 && len(d.Gone) == 0 }

// who tells a process from a later one of the same pid, and from itself in another
// part: a title that changes is another process to everybody who asks.
type who struct {
	pid   int
	start uint64
	place place
}

// place is what a process is in its server.
type place struct {
	server, role, stage string
	id, replica, rank   int
}

func placeOf(p event.Process) place {
	id := -1
	if p.StageID != nil {
		id = *p.StageID
	}
	// A number tells a stage better than its name, which may become known later.
	stage := p.Stage
	if id >= 0 {
		stage = ""
	}
	return place{p.Server, p.Role, stage, id, p.Replica, p.Rank}
}

func whoOf(p event.Process) who { return who{p.PID, p.StartTicks, placeOf(p)} }

// Compare says what changed from before to now. earlier are processes that went
// before that, oldest first: a place that was empty for a while is taken again by a
// restart too. Of several that went, a predecessor is the last with the same place,
// first of all below the same server; each is one only once.
func Compare(before, now, earlier []event.Process) Diff {
	var d Diff
	had, have := map[who]bool{}, map[who]bool{}
	for _, p := range before {
		had[whoOf(p)] = true
	}
	for _, p := range now {
		have[whoOf(p)] = true
		if !had[whoOf(p)] {
			d.Added = append(d.Added, p)
		}
	}
	for _, p := range before {
		if !have[whoOf(p)] {
			d.Gone = append(d.Gone, p)
		}
	}
	free := slices.Concat(earlier, d.Gone)
	for _, p := range d.Added {
		if i := predecessor(free, p); i >= 0 {
			d.Restarted = append(d.Restarted, Restart{Old: free[i], New: p})
			free = slices.Delete(free, i, i+1)
		}
	}
	return d
}

// predecessor is the index of the process whose place p takes, -1 if there is none.
func predecessor(gone []event.Process, p event.Process) int {
	found := -1
	for i, old := range slices.Backward(gone) {
		if placeOf(old) != placeOf(p) {
			continue
		}
		if old.Root == p.Root {
			return i
		}
		if found < 0 {
			found = i
		}
	}
	return found
}
