package hardware

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/omnitap/omnitap/probes/host"
	"github.com/omnitap/omnitap/probes/host/internal/null"
)

// GPU is what NVML says, or, without it, what the driver shows in /proc. Nil is not
// measured.
type GPU struct {
	// Source is "nvml" or "proc", empty where neither was there.
	Source string `json:"source"`
	// DriverVersion is the driver's, CUDAVersion the highest CUDA that it serves,
	// NVMLVersion that of its library.
	DriverVersion *string  `json:"driver_version"`
	CUDAVersion   *string  `json:"cuda_version"`
	NVMLVersion   *string  `json:"nvml_version"`
	Devices       []Device `json:"devices"`
}

// Device is one GPU as it was set when the ledger was read.
type Device struct {
	Index int     `json:"index"`
	Name  *string `json:"name"`
	UUID  *string `json:"uuid"`
	// PCIBus is domain:bus:device.function.
	PCIBus      *string `json:"pci_bus"`
	MemoryBytes *int64  `json:"memory_bytes"`
	// Clocks in MHz: those at the moment of the graphics engine and the memory, the
	// highest that the card may take, and those that were set for applications.
	GraphicsMHz     *int `json:"graphics_mhz"`
	MemoryMHz       *int `json:"memory_mhz"`
	MaxGraphicsMHz  *int `json:"max_graphics_mhz"`
	MaxMemoryMHz    *int `json:"max_memory_mhz"`
	AppsGraphicsMHz *int `json:"applications_graphics_mhz"`
	AppsMemoryMHz   *int `json:"applications_memory_mhz"`
	// Power limits in watts: the one in force, the one that was set, the card's default.
	EnforcedLimitW *float64 `json:"enforced_power_limit_w"`
	PowerLimitW    *float64 `json:"power_limit_w"`
	DefaultLimitW  *float64 `json:"default_power_limit_w"`
	// MIG says whether the card is split into instances, MIGPending whether it will be
	// after a reset.
	MIG         *bool `json:"mig"`
	MIGPending  *bool `json:"mig_pending"`
	Persistence *bool `json:"persistence"`
	ECC         *bool `json:"ecc"`
	// ComputeMode is "default", "exclusive_process", "prohibited" or "exclusive_thread".
	ComputeMode *string           `json:"compute_mode"`
	Unmeasured  map[string]string `json:"unmeasured"`
}

const gpuDir = "proc/driver/nvidia/"

// gpu asks NVML on the machine itself, and the driver's files where that fails.
func (r *reader) gpu() GPU {
	err := errors.New("these are not the machine's own files")
	if r.root.Real() {
		var g GPU
		if g, err = readNVML(r.nulls); err == nil {
			g.Source = "nvml"
			return g
		}
	}
	return r.gpuFiles(err)
}

var moduleVersion = regexp.MustCompile(`Kernel Module(?: for \S+)?\s+([0-9]+\.[0-9]+(?:\.[0-9]+)?)\s`)

// gpuFiles reads what the driver shows in /proc; nvml is why NVML does not say more.
func (r *reader) gpuFiles(nvml error) (g GPU) {
	for _, name := range []string{"gpu.cuda_version", "gpu.nvml_version"} {
		r.nulls[name] = nvml.Error()
	}
	s, err := r.root.Text(gpuDir + "version")
	if errors.Is(err, fs.ErrNotExist) {
		reason := nvml.Error() + "; no NVIDIA driver is loaded that shows itself in /proc"
		r.nulls["gpu.driver_version"], r.nulls["gpu.devices"] = reason, reason
		return g
	}
	g.Source = "proc"
	m := moduleVersion.FindStringSubmatch(s + "\n")
	if err == nil && m == nil {
		err = errors.New("/" + gpuDir + "version names no version")
		m = []string{"", ""}
	}
	if err != nil {
		m = []string{"", ""}
	}
	g.DriverVersion = null.Value(r.nulls, "gpu.driver_version", m[1], err)
	entries, err := os.ReadDir(r.root.Path(gpuDir + "gpus"))
	if err != nil {
		r.nulls["gpu.devices"] = host.Reason(err)
		return g
	}
	g.Devices = []Device{}
	for i, e := range entries[:min(len(entries), maxNodes)] {
		g.Devices = append(g.Devices, r.deviceFiles(i, e.Name(), nvml))
	}
	return g
}

// deviceFields are all that may be null of a device.
var deviceFields = []string{
	"name", "uuid", "pci_bus", "memory_bytes", "graphics_mhz", "memory_mhz", "max_graphics_mhz", "max_memory_mhz",
	"applications_graphics_mhz", "applications_memory_mhz", "enforced_power_limit_w", "power_limit_w",
	"default_power_limit_w", "mig", "mig_pending", "persistence", "ecc", "compute_mode",
}

// deviceFiles reads /proc/driver/nvidia/gpus/BUS/information.
func (r *reader) deviceFiles(index int, bus string, nvml error) Device {
	n := null.Reasons{}
	for _, name := range deviceFields {
		n[name] = nvml.Error()
	}
	d := Device{Index: index, Unmeasured: n}
	s, err := r.root.Text(gpuDir + "gpus/" + bus + "/information")
	if err != nil {
		n["name"] = host.Reason(err)
		return d
	}
	for line := range strings.Lines(s) {
		key, v, _ := strings.Cut(line, ":")
		v = null.Text(strings.TrimSpace(v))
		for name, to := range map[string]struct {
			field string
			at    **string
		}{"Model": {"name", &d.Name}, "GPU UUID": {"uuid", &d.UUID}, "Bus Location": {"pci_bus", &d.PCIBus}} {
			if strings.TrimSpace(key) == name && v != "" && !strings.Contains(v, "????") { // not read from the card yet
				*to.at = &v
				delete(n, to.field)
			}
		}
	}
	return d
}
