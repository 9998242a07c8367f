//go:build linux && amd64

package kernel

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Config says how a family's object is loaded.
type Config struct {
	// Name is the family's: shm, zmq, …
	Name string
	// Spec is its object.
	Spec *ebpf.CollectionSpec
	// Watch is the table of watched processes that all families share.
	Watch *Watch
	// RingBytes is the size of its ring, a power of two and of pages; 0 for 1 MiB.
	RingBytes int
	// Variables are set in the object's read-only data before it is loaded.
	Variables map[string]any
	// Multi has the uprobe programs loaded for uprobe_multi, which also attaches
	// without CAP_SYS_ADMIN.
	Multi bool
}

// Family is one loaded object with its links, ring and counters. It is not safe for
// use by several goroutines at once, but for Counts.
type Family struct {
	name  string
	coll  *ebpf.Collection
	ring  *reader
	links []link.Link // kept: a link that is collected is closed, and its probe dead
	multi bool
	uses  []attachment // one a link
}

// defaultRing is the size of a ring where none is asked for.
const defaultRing = 1 << 20

// Load loads a family's object; nothing is attached yet.
func Load(c Config) (*Family, error) {
	spec := c.Spec.Copy()
	size := c.RingBytes
	if size == 0 {
		size = defaultRing
	}
	spec.Maps["events"].MaxEntries = uint32(size)
	vars := map[string]any{"pidns_dev": c.Watch.nsDev, "pidns_ino": c.Watch.nsIno}
	maps.Copy(vars, c.Variables)
	for name, v := range vars {
		s := spec.Variables[name]
		if s == nil {
			continue // the compiler dropped what the object does not use
		}
		if err := s.Set(v); err != nil {
			return nil, fmt.Errorf("%s: setting %s: %w", c.Name, name, err)
		}
	}
	for _, p := range spec.Programs {
		if c.Multi && p.Type == ebpf.Kprobe {
			p.AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{"stages": c.Watch.stages}})
	if err != nil {
		return nil, fmt.Errorf("%s: loading: %w", c.Name, cause(err))
	}
	f := &Family{name: c.Name, coll: coll, multi: c.Multi}
	if f.ring, err = newReader(coll.Maps["events"].FD(), size); err != nil {
		coll.Close()
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return f, nil
}

// Name returns the family's name.
func (f *Family) Name() string { return f.name }

// Map returns one of the object's maps, nil where it has none of that name. It
// belongs to the family.
func (f *Family) Map(name string) *ebpf.Map { return f.coll.Maps[name] }

// Set sets one of the object's variables.
func (f *Family) Set(name string, value any) error {
	v := f.coll.Variables[name]
	if v == nil {
		return fmt.Errorf("%s: no variable %s", f.name, name)
	}
	if err := v.Set(value); err != nil {
		return fmt.Errorf("%s: setting %s: %w", f.name, name, err)
	}
	return nil
}

// Program returns one of the object's programs, nil where it has none of that name.
func (f *Family) Program(name string) *ebpf.Program { return f.coll.Programs[name] }

// Close detaches everything and frees the object.
func (f *Family) Close() error {
	var errs []error
	for _, l := range f.links {
		errs = append(errs, l.Close())
	}
	f.links = nil
	errs = append(errs, f.ring.close())
	f.coll.Close()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: detaching: %w", f.name, err)
	}
	return nil
}

// Counts are a family's counters since it was loaded.
type Counts struct {
	// Hits counts program runs on behalf of watched processes, Sent events in the ring.
	Hits, Sent uint64
	// Lost counts what should have been told and was not: no room in the ring or in a
	// table, or memory that could not be read. Skipped counts runs that the kernel left
	// out, for any process, because another program ran on that CPU.
	Lost, Skipped uint64
	// Beats counts heartbeats.
	Beats uint64
}

// perCPU is struct counts of common.h.
type perCPU struct{ Hits, Sent, Beats uint64 }

// Counts sums the counters up over all CPUs. It may be called while others use f.
func (f *Family) Counts() (Counts, error) {
	var each []perCPU
	if err := f.coll.Maps["counters"].Lookup(uint32(0), &each); err != nil {
		return Counts{}, fmt.Errorf("%s: reading its counters: %w", f.name, err)
	}
	var c Counts
	for _, e := range each {
		c.Hits += e.Hits
		c.Sent += e.Sent
		c.Beats += e.Beats
	}
	for name, p := range f.coll.Programs {
		st, err := p.Stats()
		if err != nil {
			return Counts{}, fmt.Errorf("%s: reading the statistics of %s: %w", f.name, name, err)
		}
		c.Skipped += st.RecursionMisses
	}
	var err error
	c.Lost, err = f.Lost()
	return c, err
}

// Lost is Counts.Lost alone. It is read from mapped memory and costs no system call.
func (f *Family) Lost() (n uint64, err error) {
	if err := f.coll.Variables["lost"].Get(&n); err != nil {
		return 0, fmt.Errorf("%s: reading its losses: %w", f.name, err)
	}
	return n, nil
}

// Alive returns an error that names the first attachment which is not there any more.
func (f *Family) Alive() error {
	for i, l := range f.links {
		info, err := l.Info()
		if err != nil {
			return fmt.Errorf("%s: %s is not attached any more: %w", f.name, f.uses[i].what, err)
		}
		if info.ID != f.uses[i].id {
			return fmt.Errorf("%s: %s is not attached any more", f.name, f.uses[i].what)
		}
	}
	return nil
}

// Keep returns f, or closes it where err is not nil: a family that is attached in part
// would tell half of what happens.
func Keep(f *Family, err error) (*Family, error) {
	if err == nil {
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}

// Programs returns the object's programs. They belong to the family.
func (f *Family) Programs() map[string]*ebpf.Program { return f.coll.Programs }
