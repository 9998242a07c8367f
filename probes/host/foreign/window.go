package foreign

// Window is what ran on the server's CPUs between two samples. Values are in cores:
// seconds of CPU time a second. Nil is not measured; Unmeasured then has the reason.
type Window struct {
	// StartMonoNS and EndMonoNS are CLOCK_MONOTONIC, WindowNS the time that a window
	// should have.
	StartMonoNS int64 `json:"start_mono_ns"`
	EndMonoNS   int64 `json:"end_mono_ns"`
	WindowNS    int64 `json:"window_ns"`
	// CPUSet are the CPUs that the server may use, as a list; CPUs is their number.
	CPUSet string `json:"cpuset"`
	CPUs   int    `json:"cpus"`
	// BusyCores is all time that was not idle. IRQCores (interrupts) and StealCores
	// (taken by the hypervisor) are parts of it that are no process's.
	BusyCores  *float64 `json:"busy_cores"`
	IRQCores   *float64 `json:"irq_cores"`
	StealCores *float64 `json:"steal_cores"`
	// ServerCores, OmnitapCores and LoadCores are what the named processes and their
	// descendants took, on whatever CPUs.
	ServerCores  *float64 `json:"server_cores"`
	OmnitapCores *float64 `json:"omnitap_cores"`
	LoadCores    *float64 `json:"load_cores"`
	// ForeignCores is the rest. The true value lies between the low and the high one.
	ForeignCores     *float64 `json:"foreign_cores"`
	ForeignLowCores  *float64 `json:"foreign_low_cores"`
	ForeignHighCores *float64 `json:"foreign_high_cores"`
	// Processes are the processes of all groups, Ended those that ended in the window.
	Processes int `json:"processes"`
	Ended     int `json:"ended"`
	// SampleNS is how long it took to read the sample at the end.
	SampleNS int64 `json:"sample_ns"`
	// Notes say what makes the interval wide.
	Notes      []string          `json:"notes,omitempty"`
	Unmeasured map[string]string `json:"unmeasured,omitempty"`
}

// fail makes it a window that nothing is known of.
func (w *Window) fail(reason string) {
	w.Unmeasured = map[string]string{}
	for _, name := range []string{
		"busy_cores", "irq_cores", "steal_cores", "server_cores", "omnitap_cores", "load_cores",
		"foreign_cores", "foreign_low_cores", "foreign_high_cores",
	} {
		w.Unmeasured[name] = reason
	}
}

// failForeign leaves what was measured of the groups.
func (w *Window) failForeign(reason string) {
	w.ForeignCores, w.ForeignLowCores, w.ForeignHighCores = nil, nil, nil
	w.Unmeasured = map[string]string{
		"foreign_cores": reason, "foreign_low_cores": reason, "foreign_high_cores": reason,
	}
}
