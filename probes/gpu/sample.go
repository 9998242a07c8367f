package gpu

// Sample is all devices at about one moment.
type Sample struct {
	Devices []Device
	// TookNS is how long the reading took, CPUNS what it cost its thread. CPUNS is nil
	// where threads have no clock.
	TookNS int64
	CPUNS  *int64
}

// Device is one card, or one instance of a card that is split (MIG), at MonoNS. Nil is
// not measured: Unmeasured has the reason under the field's name in resources.parquet.
type Device struct {
	// Name is "gpu0", an instance's "gpu0/mig1".
	Name  string
	UUID  string
	Model string
	// MIG says that the card is split, Instance that this is one of the parts.
	MIG, Instance bool
	// MonoNS (CLOCK_MONOTONIC) and WallNS are when power and energy were read.
	MonoNS, WallNS int64

	// PowerW is watts, of PowerKind: KindInstant, or KindUsage where the card does not
	// say which it is. PowerAverageW is the card's own average over a second.
	PowerW        *float64
	PowerKind     string
	PowerAverageW *float64
	// EnergyMJ is the card's counter, millijoules since its driver was loaded. Not every
	// sample has it where reading it costs much.
	EnergyMJ *uint64
	// GPUPercent is the share of the card's last sampling period in which a kernel ran,
	// MemoryPercent that in which its memory was read or written.
	GPUPercent, MemoryPercent *uint32
	// MemoryUsedBytes without what the driver keeps for itself where MemorySource is
	// "nvml_v2", with it where it is "nvml_v1".
	MemoryUsedBytes, MemoryTotalBytes *uint64
	MemorySource                      string
	SMClockMHz, MemoryClockMHz        *uint32
	TemperatureC                      *uint32
	// Throttle are the bits of nvmlClocksEventReasons; Names says them.
	Throttle *uint64

	// Processes are those with memory on the card; ProcessesRead says whether this
	// sample asked for them.
	Processes     []Process
	ProcessesRead bool

	// XID is the last critical error that the driver told of the card.
	XID *uint64
	// Lost says why the card is gone. All else is nil then.
	Lost string

	// Unmeasured belongs to the sampler, which shares it between samples: read only.
	Unmeasured map[string]string
}

// What PowerW of a device may be.
const (
	KindInstant = "instant"
	KindUsage   = "usage"
)

// Process is what one process has of a device. PID is NVML's, which is that of the
// caller's namespace.
type Process struct {
	PID         int
	MemoryBytes *uint64
	// SMPercent and MemoryPercent are its last sampled share of the card.
	SMPercent, MemoryPercent *uint32
	Unmeasured               map[string]string
}

// throttles are the reasons in the order of their bits.
var throttles = [...]string{
	"gpu_idle", "applications_clocks", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal", "hw_thermal",
	"hw_power_brake", "display_clocks", "board_limit", "reliability",
}

// Names says what the bits of Device.Throttle mean. Bits that are not known are "other".
func Names(bits uint64) []string {
	names := []string{}
	for i, name := range throttles {
		if bits&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if bits>>len(throttles) != 0 {
		names = append(names, "other")
	}
	return names
}

// ColumnProcesses is the key of Device.Unmeasured for the list of processes. It is no
// column: each process has a row.
const ColumnProcesses = fieldProcesses

// Columns are the keys that Unmeasured of a Device or Process may have.
func Columns() []string { return append([]string{}, fields[:]...) }
