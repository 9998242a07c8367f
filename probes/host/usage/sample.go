package usage

// Sample is the machine and the processes at about one moment.
type Sample struct {
	// MonoNS (CLOCK_MONOTONIC) and WallNS are when the sample began, TookNS how long it
	// took, CPUNS what it cost its thread (nil where threads have no clock).
	MonoNS, WallNS int64
	TookNS         int64
	CPUNS          *int64
	Machine        Machine
	Networks       []Network
	Processes      []Use
	// Left are processes over the bound, which were not looked at.
	Left int
}

// Machine is what is there in all. Nil is not measured.
type Machine struct {
	// BusyNS and IdleNS are the time of all CPUs since boot in ticks of 10 ms; waiting
	// for a disk is idle.
	BusyNS, IdleNS *int64
	// MemoryTotalBytes and MemoryAvailableBytes are /proc/meminfo's.
	MemoryTotalBytes, MemoryAvailableBytes *int64
	Unmeasured                             map[string]string
}

// Network is the traffic of one network namespace: of the interfaces that it has at the
// moment, each since it was made.
type Network struct {
	// Namespace is its number, "" where that is not known; Own says that it is
	// omnitap's.
	Namespace string
	Own       bool
	// ReceivedBytes and SentBytes are of all interfaces but loopback, LoopbackBytes what
	// was sent through that. A bridge and what is behind it count both.
	ReceivedBytes, SentBytes, LoopbackBytes *int64
	Unmeasured                              map[string]string
}

// Use is one process.
type Use struct {
	PID        int
	StartTicks uint64
	Stage      string
	MonoNS     int64
	WallNS     int64
	// CPUNS is the CPU time of all its threads since it started; CPUCoarse says that it
	// is counted in ticks of 10 ms.
	CPUNS     *int64
	CPUCoarse bool
	RSSBytes  *int64
	// PSSBytes is nil in samples that did not read it.
	PSSBytes *int64
	Threads  *int64
	// Namespace is the number of its network namespace, "" where it is not known.
	Namespace string
	// Ended says why this is its last sample, "" in all others.
	Ended string
	// Unmeasured may be shared between samples: read only.
	Unmeasured map[string]string
}

// Names of what may be null, as in resources.parquet.
const (
	fieldBusy      = "cpu_ns"
	fieldIdle      = "cpu_idle_ns"
	fieldTotal     = "memory_total_bytes"
	fieldAvailable = "memory_available_bytes"
	fieldReceived  = "net_received_bytes"
	fieldSent      = "net_sent_bytes"
	fieldLoopback  = "net_loopback_bytes"
	fieldCPU       = "cpu_ns"
	fieldRSS       = "rss_bytes"
	fieldPSS       = "pss_bytes"
	fieldThreads   = "threads"
	fieldNamespace = "net_namespace"
)

// Columns are the keys that the Unmeasured of a sample may have.
func Columns() []string {
	return []string{
		fieldBusy, fieldIdle, fieldTotal, fieldAvailable, fieldReceived, fieldSent, fieldLoopback, fieldRSS, fieldPSS, fieldThreads, fieldNamespace,
	}
}
