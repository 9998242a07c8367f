package foreign

import "github.com/omnitap/omnitap/probes/host"

// group is whose process one is.
type group int

const (
	server group = iota
	omnitap
	load
	groups // their number
)

var groupNames = [groups]string{"the server", "omnitap", "the load"}

// tickNS is the unit of times in /proc. USER_HZ is 100 on every architecture that Go
// knows; it is no matter of the kernel's own HZ.
const tickNS = int64(10_000_000)

// cpuTimes are the columns of a line of /proc/stat, in ticks since boot.
type cpuTimes struct {
	idle, iowait, irq, softirq, steal uint64
}

// process is what one process of a group had taken when it was read.
type process struct {
	start uint64 // ticks since boot
	ppid  int
	group group
	// own is the time of all its threads, reaped that of the children it waited for,
	// nanoseconds. coarse says that own counts ticks.
	own, reaped int64
	coarse      bool
}

// sample is what the machine had done at one moment. Nothing changes it afterwards.
type sample struct {
	// mono is when the CPUs were read (CLOCK_MONOTONIC), took how long the whole took;
	// boot is CLOCK_BOOTTIME before the processes were listed.
	mono, took, boot int64
	// all is the line of all CPUs, which is rounded once and not for each; cpus has
	// those that are online.
	all    cpuTimes
	cpus   map[int]cpuTimes
	online host.CPUs
	procs  map[int]process
	// may are the CPUs that any thread of a group may use.
	may [groups]host.CPUs
	// absent is how many of the server's processes that the caller named are not there.
	absent int
	// missing says what could not be read, empty where all was.
	missing string
}
