package find

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/omnitap/omnitap/probes/event"
)

// resolveRoots says for each process which server it belongs to.
func (c *classifier) resolveRoots() {
	for _, s := range slices.Clone(c.order) {
		if m := c.marks[s.PID]; m != nil && m.role == RoleAPI {
			m.root = c.topServer(m)
		}
	}
	for _, s := range slices.Clone(c.order) {
		if m := c.marks[s.PID]; m != nil && m.role == RoleStage {
			m.root = c.rootOf(m)
		}
	}
	for _, s := range c.order {
		if m := c.marks[s.PID]; m != nil && m.role == RoleWorker {
			m.root = c.workerRoot(m)
		}
	}
}

// topServer is the uppermost API process of the same server above one, or itself.
func (c *classifier) topServer(m *mark) int {
	top := m.s.PID
	c.above(m.s, func(p *Snapshot) bool {
		if a := c.marks[p.PID]; a != nil && a.role == RoleAPI && a.server == m.server {
			top = p.PID
		}
		return false
	})
	return top
}

// rootOf finds the server of a stage: above it, beside its socket, by being its
// parent, or by being the only one.
func (c *classifier) rootOf(m *mark) int {
	if p := c.above(m.s, func(p *Snapshot) bool {
		a := c.marks[p.PID]
		return a != nil && a.role == RoleAPI && a.server == m.server
	}); p != nil {
		return c.topServer(c.marks[p.PID])
	}
	if m.socketDir != "" {
		if api := c.socketServer(m); api != nil {
			return api.s.PID
		}
	}
	launched := c.above(m.s, func(p *Snapshot) bool { return c.marks[p.PID] != nil && c.marks[p.PID].role == roleLauncher })
	if p := c.above(m.s, c.isParent); p != nil && launched == nil {
		c.marks[p.PID] = &mark{
			s: p, server: m.server, role: RoleAPI, root: p.PID, why: []string{"parent of stage process " + strconv.Itoa(m.s.PID)},
		}
		return p.PID
	}
	if only := c.onlyServer(m.server); only != 0 {
		m.why = append(m.why, fmt.Sprintf("not below process %d, the only %s here", only, m.server))
		return only
	}
	m.why = append(m.why, "its server is not here")
	return m.s.PID
}

// isParent says whether an unmarked process can be the server of its children: one
// that speaks ZMQ, listens, or is Python; no shell, no init, no container's shim.
func (c *classifier) isParent(p *Snapshot) bool {
	return p.PID > 1 && c.marks[p.PID] == nil && !isHelper(p.Args) &&
		(p.mapsZMQ() || len(p.TCP) > 0 || p.isPython())
}

// onlyServer is the server of that kind if there is exactly one.
func (c *classifier) onlyServer(server string) int {
	found := 0
	for _, s := range c.order {
		m := c.marks[s.PID]
		if m == nil || m.role != RoleAPI || m.server != server || m.root != s.PID {
			continue
		}
		if found != 0 {
			return 0
		}
		found = s.PID
	}
	return found
}

// workerRoot is the root of a worker's stage.
func (c *classifier) workerRoot(m *mark) int {
	if stage := c.stageAbove(m.s); stage != nil && m.socketDir == "" {
		return stage.root
	}
	return c.rootOf(m)
}

// Choose takes the processes of the server that listens on a TCP port, so that of
// several servers on a host ours is seen. Several servers may listen on one port in
// network namespaces of their own; the one in netns, ours, comes first. Where none is
// found by that, it takes all, and why says so. A port of 0 takes all.
func Choose(all []event.Process, snapshots []Snapshot, port int, netns uint64) (chosen []event.Process, root int, why string) {
	if port == 0 {
		return all, 0, "no port of the server is given: every stage process found is taken"
	}
	if len(all) == 0 {
		return nil, 0, "no stage process was found"
	}
	owner, roots := portServers(all, snapshots, port, netns)
	switch {
	case owner == nil:
		return all, 0, fmt.Sprintf("no process was seen to listen on port %d: every stage process found is taken", port)
	case len(roots) == 0:
		return all, 0, fmt.Sprintf("port %d is process %d (%q), no server that was found: every stage process found is taken",
			port, owner.PID, owner.Comm)
	case len(roots) > 1:
		return all, 0, fmt.Sprintf("%d servers listen on port %d: every stage process found is taken", len(roots), port)
	}
	for _, p := range all {
		if p.Root == roots[0] {
			chosen = append(chosen, p)
		}
	}
	return chosen, roots[0], fmt.Sprintf("process %d listens on port %d", owner.PID, port)
}

// portServers are the servers that listen on a port, those in our namespace alone
// where there are any, and the process that does.
func portServers(all []event.Process, snapshots []Snapshot, port int, netns uint64) (owner *Snapshot, roots []int) {
	byPID := map[int]*Snapshot{}
	for i := range snapshots {
		byPID[snapshots[i].PID] = &snapshots[i]
	}
	for _, ours := range []bool{true, false} {
		for i := range snapshots {
			s := &snapshots[i]
			if !s.listensOn(port) || (s.NetNS == netns) != ours {
				continue
			}
			r := serverOf(s, byPID, all)
			if owner == nil || (r != 0 && len(roots) == 0) {
				owner = s
			}
			if r != 0 && !slices.Contains(roots, r) {
				roots = append(roots, r)
			}
		}
		if len(roots) > 0 {
			break
		}
	}
	return owner, roots
}

// serverOf is the server that a listening process belongs to: its own, one above it,
// or the only one below it.
func serverOf(s *Snapshot, byPID map[int]*Snapshot, all []event.Process) int {
	roots := map[int]int{}
	for _, p := range all {
		roots[p.PID] = p.Root
	}
	at := s
	for range maxAncestors {
		if r := roots[at.PID]; r != 0 {
			return r
		}
		if at = byPID[at.PPID]; at == nil {
			break
		}
	}
	below := 0
	for _, p := range all {
		if p.PID != p.Root || !isBelow(byPID[p.PID], s.PID, byPID) {
			continue
		}
		if below != 0 {
			return 0
		}
		below = p.Root
	}
	return below
}

// isBelow says whether pid is among the ancestors of a process.
func isBelow(s *Snapshot, pid int, byPID map[int]*Snapshot) bool {
	for range maxAncestors {
		if s == nil {
			return false
		}
		if s.PPID == pid {
			return true
		}
		s = byPID[s.PPID]
	}
	return false
}
