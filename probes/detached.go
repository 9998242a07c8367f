//go:build linux && amd64

package probes

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf/link"

	"github.com/omnitap/omnitap/probes/kernel"
)

// footprint is what a set has put into the kernel and into text pages, noted before it
// is taken away.
type footprint struct {
	links map[link.ID]string
	traps []place
}

// place is where a trap was.
type place struct {
	pid  int
	m    *kernel.Mapping
	sym  kernel.Symbol
	name string
}

func (s *Set) footprint() footprint {
	p := footprint{links: map[link.ID]string{}}
	for _, f := range s.families {
		if f.kernel == nil {
			continue
		}
		maps.Copy(p.links, f.kernel.Attachments())
		p.traps = append(p.traps, places(f, &s.maps)...)
	}
	return p
}

// places are where a family's traps are, in every process that maps its library.
func places(f *family, maps *mapped) (list []place) {
	for pid, entry := range maps.byPID {
		for i := range entry.maps {
			m := &entry.maps[i]
			l := f.libs[inode{m.Dev, m.Inode}]
			if l == nil || l.err != nil {
				continue
			}
			for name, sym := range l.symbols {
				list = append(list, place{pid, m, sym, name})
			}
		}
	}
	return list
}

// check looks for what is left of it. A process that has ended has no text pages.
func (p footprint) check() Detachment {
	d := Detachment{Links: len(p.links)}
	left, err := kernel.Gone(p.links)
	if err != nil {
		d.Unchecked = err.Error()
	}
	d.Left = left
	for _, t := range p.traps {
		there, err := kernel.Trapped(t.pid, t.m, t.sym)
		if err != nil {
			continue
		}
		if d.Traps++; there {
			d.Left = append(d.Left, fmt.Sprintf("a trap at %s in process %d", t.name, t.pid))
		}
	}
	slices.Sort(d.Left)
	return d
}
