package resources

// Kinds of rows.
const (
	// KindGPU is a card; KindMIG an instance of a card that is split.
	KindGPU = "gpu"
	KindMIG = "mig"
	// KindGPUProcess is one process's part of a device.
	KindGPUProcess = "gpu_process"
	// KindProcess is a stage's process, KindMachine the node, KindNetwork a network
	// namespace.
	KindProcess = "process"
	KindMachine = "machine"
	KindNetwork = "network"
)

// Row is one row of resources.parquet. Names carry units; counters grow from the start
// that is said of them. Nil is NULL: not measured, with the reason under the column's
// name in Unmeasured, or not applicable to the kind, without one.
type Row struct {
	// Kind is one of the kinds above. Node is the host.
	Kind string `parquet:"kind,dict"`
	Node string `parquet:"node,dict"`
	// MonoNS is CLOCK_MONOTONIC of the node, WallNS the wall clock.
	MonoNS int64 `parquet:"mono_ns,delta"`
	WallNS int64 `parquet:"wall_ns,delta"`
	// Device is "gpu0", "gpu0/mig1"; DeviceUUID the driver's name of it.
	Device     *string `parquet:"device,optional,dict"`
	DeviceUUID *string `parquet:"device_uuid,optional,dict"`
	// PID and StartTicks (clock ticks since boot) name a process, Stage what it serves.
	// A gpu_process has start and stage where it is one of the stages' processes.
	PID        *int64  `parquet:"pid,optional,dict"`
	StartTicks *int64  `parquet:"start_ticks,optional,dict"`
	Stage      *string `parquet:"stage,optional,dict"`
	// State says what is the matter: "lost" of a card, "ended" of a process's last row,
	// NULL is well. StateReason says why.
	State       *string `parquet:"state,optional,dict"`
	StateReason *string `parquet:"state_reason,optional,dict"`

	// Of a gpu or mig. PowerW is of PowerKind: "instant", or "usage" where the card does
	// not say which it is; PowerAverageW is over a second. EnergyMJ counts from the
	// loading of the driver.
	PowerW        *float64 `parquet:"power_w,optional"`
	PowerKind     *string  `parquet:"power_kind,optional,dict"`
	PowerAverageW *float64 `parquet:"power_average_w,optional"`
	EnergyMJ      *int64   `parquet:"energy_mj,optional"`
	// GPUPercent is the time in which a kernel ran, of a gpu_process its part;
	// GPUMemoryPercent that in which memory was read or written.
	GPUPercent       *int32 `parquet:"gpu_percent,optional"`
	GPUMemoryPercent *int32 `parquet:"gpu_memory_percent,optional"`
	// GPUMemoryUsedBytes is without what the driver keeps where GPUMemorySource is
	// "nvml_v2", with it where it is "nvml_v1"; of a gpu_process what it holds.
	GPUMemoryUsedBytes  *int64  `parquet:"gpu_memory_used_bytes,optional"`
	GPUMemoryTotalBytes *int64  `parquet:"gpu_memory_total_bytes,optional,dict"`
	GPUMemorySource     *string `parquet:"gpu_memory_source,optional,dict"`
	SMClockMHz          *int32  `parquet:"sm_clock_mhz,optional"`
	MemoryClockMHz      *int32  `parquet:"memory_clock_mhz,optional"`
	TemperatureC        *int32  `parquet:"temperature_c,optional"`
	// ThrottleBits are nvmlClocksEventReasons, Throttle their names, joined by "+", ""
	// where nothing throttles.
	ThrottleBits *int64  `parquet:"throttle_bits,optional,dict"`
	Throttle     *string `parquet:"throttle,optional,dict"`
	// MIG says that the card is split. XID is the last critical error of the driver's.
	MIG *bool  `parquet:"mig,optional"`
	XID *int64 `parquet:"xid,optional,dict"`

	// Of a process: CPU time of all its threads since it started. Of the machine: the
	// time that its CPUs were not idle, and idle, since boot. CPUCoarse says that it
	// counts ticks of 10 ms.
	CPUNS     *int64 `parquet:"cpu_ns,optional"`
	CPUIdleNS *int64 `parquet:"cpu_idle_ns,optional"`
	CPUCoarse *bool  `parquet:"cpu_coarse,optional"`
	// Of a process. PSSBytes is there every ten seconds.
	RSSBytes *int64 `parquet:"rss_bytes,optional"`
	PSSBytes *int64 `parquet:"pss_bytes,optional"`
	Threads  *int64 `parquet:"threads,optional,dict"`
	// Of the machine.
	MemoryTotalBytes     *int64 `parquet:"memory_total_bytes,optional,dict"`
	MemoryAvailableBytes *int64 `parquet:"memory_available_bytes,optional"`
	// NetNamespace is a network's, and the one that a process is in; NetOwn says that it
	// is omnitap's. The counters are sums over the interfaces that it has at the moment:
	// they fall where one goes away.
	NetNamespace     *string `parquet:"net_namespace,optional,dict"`
	NetOwn           *bool   `parquet:"net_own,optional"`
	NetReceivedBytes *int64  `parquet:"net_received_bytes,optional"`
	NetSentBytes     *int64  `parquet:"net_sent_bytes,optional"`
	NetLoopbackBytes *int64  `parquet:"net_loopback_bytes,optional"`

	// SampleTookNS and SampleCPUNS are what it cost to take the sample that the row is
	// of, in the first row of it alone, so that they can be summed.
	SampleTookNS *int64 `parquet:"sample_took_ns,optional"`
	SampleCPUNS  *int64 `parquet:"sample_cpu_ns,optional"`
	// Unmeasured is a JSON object of column names and reasons, NULL where there are none.
	Unmeasured *string `parquet:"unmeasured,optional,dict"`
}
