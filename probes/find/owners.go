package find

import (
	"slices"
)

// owners tells which process listens on which socket. Tables are read once a network
// namespace, descriptors once a process.
type owners struct {
	proc   procfs
	own    uint64 // our network namespace
	tables map[uint64]listeners
	procs  map[int]*owner
}

// owner is what one process's descriptors say.
type owner struct {
	links links
	unix  []string
	tcp   []Address
	netns uint64
	err   error
}

// of reads the descriptors of a process and what it listens on, once.
func (o *owners) of(pid int) *owner {
	if p := o.procs[pid]; p != nil {
		return p
	}
	p := &owner{netns: o.proc.namespace(pid, "net")}
	o.procs[pid] = p
	p.links, p.err = o.proc.descriptors(pid)
	if len(p.links.sockets) == 0 {
		return p
	}
	table, ok := o.tables[p.netns]
	if !ok || p.netns == 0 {
		table, _ = o.proc.listeners(pid)
		o.tables[p.netns] = table
	}
	for _, inode := range p.links.sockets {
		if path, ok := table.unix[inode]; ok && !slices.Contains(p.unix, path) {
			p.unix = append(p.unix, path)
		}
		if a, ok := table.tcp[inode]; ok && !slices.Contains(p.tcp, a) {
			p.tcp = append(p.tcp, a)
		}
	}
	slices.Sort(p.unix)
	return p
}

// owners finds the owners of the sockets that matter in our own network namespace: of
// those that no candidate has, every process is asked, and who has one is a candidate
// from then on. An inode that nobody can be seen to own is not looked for again.
func (f *Finder) owners(want []int) *owners {
	o := &owners{proc: f.proc, tables: map[uint64]listeners{}, procs: map[int]*owner{}}
	table, err := f.proc.listeners(f.self)
	if err != nil {
		return o
	}
	o.own = f.proc.namespace(f.self, "net")
	o.tables[o.own] = table
	f.netns = o.own
	f.portOpen = false
	for _, a := range table.tcp {
		f.portOpen = f.portOpen || (f.port != 0 && a.Port == f.port)
	}
	open := f.wanted(table)
	if len(open) == 0 {
		clear(f.orphans)
		return o
	}
	for _, pid := range want {
		o.take(pid, open)
	}
	for inode := range f.orphans {
		if !open[inode] {
			delete(f.orphans, inode)
			continue
		}
		delete(open, inode)
	}
	if len(open) == 0 {
		return o
	}
	for pid, e := range f.known {
		if !slices.Contains(want, pid) && o.take(pid, open) {
			f.held[execKey{pid, e.StartTicks}] = true
			f.again = true
		}
	}
	for inode := range open {
		f.orphans[inode] = true
	}
	return o
}

// take removes a process's sockets from the open ones. It says whether it had any.
func (o *owners) take(pid int, open map[uint64]bool) bool {
	had := false
	for _, inode := range o.of(pid).links.sockets {
		if open[inode] {
			delete(open, inode)
			had = true
		}
	}
	return had
}

// wanted are the listening sockets that say something: those of SGLang-Omni, of a
// rule, and the upstream's port.
func (f *Finder) wanted(table listeners) map[uint64]bool {
	out := map[uint64]bool{}
	for inode, path := range table.unix {
		if _, ok := readSockets([]string{path}); ok || f.ruleListens(path) {
			out[inode] = true
		}
	}
	for inode, a := range table.tcp {
		if a.Port == f.port || f.ruleListens(a.String()) {
			out[inode] = true
		}
	}
	return out
}

func (f *Finder) ruleListens(address string) bool {
	for i := range f.rules {
		if l := f.rules[i].Listen; l != nil && l.re.MatchString(address) {
			return true
		}
	}
	return false
}
