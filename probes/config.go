package probes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/omnitap/omnitap/probes/event"
)

// Mode says whether a family is used.
type Mode string

// The modes: Auto uses a family where there is something for it to see.
const (
	Auto Mode = "auto"
	On   Mode = "on"
	Off  Mode = "off"
)

// Family is the configuration that every family has.
type Family struct {
	Use Mode `yaml:"use"`
	// RingKiB is the size of its ring: a power of two, at least 4, for pipe 8, for
	// socket 16; 1024 by default.
	RingKiB int `yaml:"ring_kib"`
}

// Config is the stages block of the configuration. The zero value means the defaults.
type Config struct {
	// Budget is the share of a core that probing may cost a stage: default 0.01. Beyond
	// it probes are taken away, dearest luxury first, and the record says so.
	Budget float64 `yaml:"budget"`
	// Scan is how often processes are looked for apart from what the kernel tells:
	// default 10 s: a look at some hundred processes takes tens of milliseconds.
	Scan time.Duration `yaml:"scan"`
	// Rules is a file that tells the stages of other servers (configs/stages.yaml).
	Rules string `yaml:"rules"`
	// Names overrides the names of stages by number.
	Names map[int]string `yaml:"names"`

	SHM    Family `yaml:"shm"`
	ZMQ    Family `yaml:"zmq"`
	Pipe   Family `yaml:"pipe"`
	Socket Family `yaml:"socket"`
	CUDA   Family `yaml:"cuda"`
	Sched  Family `yaml:"sched"`
	Proc   Family `yaml:"proc"`
	// Launches counts kernel launches too: called at launch rate, off by default.
	Launches bool `yaml:"cuda_launches"`
	// LeastCopy is the bytes from which a CUDA copy is told one by one: default 64 KiB.
	LeastCopy uint64 `yaml:"cuda_least_copy"`
}

// Defaults of Config.
const (
	DefaultBudget    = 0.01
	DefaultScan      = 10 * time.Second
	DefaultLeastCopy = 64 << 10
)

// defaultRings are the sizes of the rings in KiB: a second of what was seen at 30
// requests a second with 32 in flight, and more where an event holds a message.
var defaultRings = map[string]int{"shm": 1024, "zmq": 4096, "pipe": 4096, "socket": 4096, "cuda": 1024, "sched": 1024, "proc": 256}

// leastRingKiB is the smallest ring that holds at least one of a family's events.
var leastRingKiB = map[string]int{"shm": 4, "zmq": 4, "pipe": 8, "socket": 16, "cuda": 4, "sched": 4, "proc": 4}

// families lists the blocks by name.
func (c *Config) families() map[string]*Family {
	return map[string]*Family{
		"shm": &c.SHM, "zmq": &c.ZMQ, "pipe": &c.Pipe, "socket": &c.Socket, "cuda": &c.CUDA, "sched": &c.Sched, "proc": &c.Proc,
	}
}

// Family is the block of a family, nil for a name of none. Changing it changes c.
func (c *Config) Family(name string) *Family { return c.families()[name] }

// FamilyNames lists the families in alphabetical order.
func FamilyNames() []string { return slices.Sorted(maps.Keys((&Config{}).families())) }

// WithDefaults fills in what is not set.
func (c Config) WithDefaults() Config {
	c.Budget = cmp.Or(c.Budget, DefaultBudget)
	c.Scan = cmp.Or(c.Scan, DefaultScan)
	c.LeastCopy = cmp.Or(c.LeastCopy, DefaultLeastCopy)
	for name, f := range c.families() {
		f.Use = cmp.Or(f.Use, Auto)
		f.RingKiB = cmp.Or(f.RingKiB, defaultRings[name])
	}
	return c
}

// Validate returns an error that names the first key with a bad value.
func (c Config) Validate() error {
	c = c.WithDefaults()
	if c.Budget < 0 || c.Budget > 1 {
		return fmt.Errorf("stages.budget must be between 0 and 1 core, not %v", c.Budget)
	}
	if c.Scan < 100*time.Millisecond {
		return fmt.Errorf("stages.scan must be at least 100ms, not %v", c.Scan)
	}
	all := c.families()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		if !slices.Contains([]Mode{Auto, On, Off}, f.Use) {
			return fmt.Errorf("stages.%s.use must be auto, on or off, not %q", name, f.Use)
		}
		if f.RingKiB < leastRingKiB[name] || f.RingKiB > 1<<20 || f.RingKiB&(f.RingKiB-1) != 0 {
			return fmt.Errorf("stages.%s.ring_kib must be a power of two from %d to 1048576, not %d", name, leastRingKiB[name], f.RingKiB)
		}
	}
	return nil
}

// Sink takes what the probes see. Events and Processes are called from a goroutine each.
type Sink interface {
	// Events gets a batch in order of time, empty where nothing happened; it is valid
	// during the call. Everything that happened before now (CLOCK_MONOTONIC) has been
	// handed over, but for what is counted (CUDACount, Loss), which comes once a second.
	Events(batch []event.Event, now int64)
	// Processes gets the whole table whenever it has changed, ahead of the first event of
	// a new process.
	Processes(p event.Processes)
}

// State is what has become of a family.
type State string

// The states of a family.
const (
	Attached State = "attached"
	Unused   State = "unused"
	Disabled State = "off"
	Trimmed  State = "trimmed"
	Failed   State = "failed"
	Dead     State = "dead"
)

// FamilyStatus is what is known of one family.
type FamilyStatus struct {
	Name   string `json:"name"`
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Points are the tracepoints and functions that it is attached to.
	Points []string `json:"points,omitempty"`
	// Hits, Sent and Lost count since it was attached, as kernel.Counts has them; Skipped
	// are runs that the kernel left out.
	Hits    uint64 `json:"hits"`
	Sent    uint64 `json:"sent"`
	Lost    uint64 `json:"lost"`
	Skipped uint64 `json:"skipped,omitempty"`
	// CostNS is what one hit costs the process that is hit, nanoseconds, as measured on
	// this host; nil before it was.
	CostNS *float64 `json:"cost_ns"`
	// Cores is the share of a core that it took of the dearest stage at the last look.
	Cores *float64 `json:"cores"`
}

// Status is what is known of the probes.
type Status struct {
	Families  []FamilyStatus  `json:"families"`
	Processes []event.Process `json:"processes"`
	// Why says how the server was told from others, Missing what could not be read of
	// processes, Doubts what looked like a part of a server and was not taken.
	Why     string   `json:"why,omitempty"`
	Missing []string `json:"missing,omitempty"`
	Doubts  []string `json:"doubts,omitempty"`
	// Trims says what was taken away for its cost, and when.
	Trims []string `json:"trims,omitempty"`
	// ForeignCores is how many cores processes that nobody watches took during the last
	// second, ForeignPeak the most of any second (contract section 6); nil without the
	// sched family.
	ForeignCores *float64 `json:"foreign_cores"`
	ForeignPeak  *float64 `json:"foreign_cores_peak"`
	// Lost is all families' losses.
	Lost uint64 `json:"lost"`
	// Detached is what was looked for behind the end, nil until then.
	Detached *Detachment `json:"detached,omitempty"`
}

// Detachment is the proof that nothing of a set is left (contract section 7).
type Detachment struct {
	// Links is how many attachments the kernel was asked for, Traps how many places in
	// text pages were read.
	Links int `json:"links"`
	Traps int `json:"traps"`
	// Left names what is still there.
	Left []string `json:"left"`
	// Unchecked says why the kernel could not be asked, empty where it could.
	Unchecked string `json:"unchecked,omitempty"`
}

// Verified says that it was looked for, and that nothing is left.
func (d *Detachment) Verified() bool {
	return d != nil && d.Unchecked == "" && len(d.Left) == 0
}

// Unwatched says why a family watches nothing, by its name; one that is attached, or
// that has nothing to attach to, is not in it.
func (s Status) Unwatched() map[string]string {
	var off map[string]string
	for _, f := range s.Families {
		switch f.State {
		case Attached, Unused:
		case Failed, Trimmed, Dead, Disabled:
			if off == nil {
				off = map[string]string{}
			}
			off[f.Name] = "the " + f.Name + " probes are " + string(f.State)
			if f.Reason != "" {
				off[f.Name] += ": " + f.Reason
			}
		}
	}
	return off
}

// Words is the state of the families in one line.
func (s Status) Words() string {
	var on, off []string
	for _, f := range s.Families {
		switch f.State {
		case Attached:
			on = append(on, f.Name)
		case Unused, Disabled:
		case Failed, Trimmed, Dead:
			off = append(off, fmt.Sprintf("%s %s (%s)", f.Name, f.State, f.Reason))
		}
	}
	out := fmt.Sprintf("%d processes; attached: %s", len(s.Processes), cmp.Or(strings.Join(on, ", "), "none"))
	if len(off) > 0 {
		out += "; " + strings.Join(off, "; ")
	}
	return out
}
