//go:build linux && amd64

package kernel

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
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
	ring  *ringbuf.Reader
	links []link.Link // kept: a link that is collected is closed, and its probe dead
	multi bool
	uses  []attachment
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
	if f.ring, err = ringbuf.NewReader(coll.Maps["events"]); err != nil {
		coll.Close()
		return nil, fmt.Errorf("%s: opening its ring: %w", c.Name, err)
	}
	return f, nil
}

// Name returns the family's name.
func (f *Family) Name() string { return f.name }

// Map returns one of the object's maps, nil where it has none of that name. It
// belongs to the family.
func (f *Family) Map(name string) *ebpf.Map { return f.coll.Maps[name] }

// Program returns one of the object's programs, nil where it has none of that name.
func (f *Family) Program(name string) *ebpf.Program { return f.coll.Programs[name] }

// Close detaches everything and frees the object.
func (f *Family) Close() error {
	var errs []error
	for _, l := range f.links {
		errs = append(errs, l.Close())
	}
	f.links = nil
	errs = append(errs, f.ring.Close())
	f.coll.Close()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: detaching: %w", f.name, err)
	}
	return nil
}

// Counts are a family's counters since it was loaded.
type Counts struct {
	// Hits counts program runs on behalf of watched processes, Sent events in the ring,
	// Lost those that it (or a table) had no room for, Beats heartbeats.
	Hits, Sent, Lost, Beats uint64
}

// Counts sums the counters up over all CPUs. It may be called while others use f.
func (f *Family) Counts() (Counts, error) {
	var each []Counts
	if err := f.coll.Maps["counters"].Lookup(uint32(0), &each); err != nil {
		return Counts{}, fmt.Errorf("%s: reading its counters: %w", f.name, err)
	}
	var c Counts
	for _, e := range each {
		c.Hits += e.Hits
		c.Sent += e.Sent
		c.Lost += e.Lost
		c.Beats += e.Beats
	}
	return c, nil
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
