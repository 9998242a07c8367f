//go:build linux && cgo

package hardware

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/omnitap/omnitap/probes/host/internal/null"
)

// library and card are what is used of NVML.
type library interface {
	SystemGetDriverVersion() (string, nvml.Return)
	SystemGetCudaDriverVersion() (int, nvml.Return)
	SystemGetNVMLVersion() (string, nvml.Return)
	DeviceGetCount() (int, nvml.Return)
}

type card interface {
	GetName() (string, nvml.Return)
	GetUUID() (string, nvml.Return)
	GetPciInfo() (nvml.PciInfo, nvml.Return)
	GetMemoryInfo() (nvml.Memory, nvml.Return)
	GetClockInfo(nvml.ClockType) (uint32, nvml.Return)
	GetMaxClockInfo(nvml.ClockType) (uint32, nvml.Return)
	GetApplicationsClock(nvml.ClockType) (uint32, nvml.Return)
	GetEnforcedPowerLimit() (uint32, nvml.Return)
	GetPowerManagementLimit() (uint32, nvml.Return)
	GetPowerManagementDefaultLimit() (uint32, nvml.Return)
	GetMigMode() (int, int, nvml.Return)
	GetPersistenceMode() (nvml.EnableState, nvml.Return)
	GetEccMode() (nvml.EnableState, nvml.EnableState, nvml.Return)
	GetComputeMode() (nvml.ComputeMode, nvml.Return)
}

// maxDevices bounds what a library may claim.
const maxDevices = 256

// readNVML asks the driver's library, which go-nvml opens when it is asked for and not
// when the program starts.
func readNVML(n null.Reasons, options ...nvml.LibraryOption) (GPU, error) {
	lib := nvml.New(options...)
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return GPU{}, fmt.Errorf("starting NVML: %w", failure(ret))
	}
	defer func() { _ = lib.Shutdown() }()
	has := func(symbol string) bool { return lib.Extensions().LookupSymbol(symbol) == nil }
	return askNVML(n, lib, has, func(i int) (card, nvml.Return) { return lib.DeviceGetHandleByIndex(i) }), nil
}

// failure is an error, or nil: nvml.SUCCESS is an error value like all others.
func failure(ret nvml.Return) error {
	if ret == nvml.SUCCESS {
		return nil
	}
	return ret
}

// askNVML reads the library and its devices. A function that an old library has not
// would end the program: has says whether it is there.
func askNVML(n null.Reasons, lib library, has func(string) bool, device func(int) (card, nvml.Return)) (g GPU) {
	driver, ret := lib.SystemGetDriverVersion()
	g.DriverVersion = null.Value(n, "gpu.driver_version", null.Text(driver), failure(ret))
	version, ret := lib.SystemGetNVMLVersion()
	g.NVMLVersion = null.Value(n, "gpu.nvml_version", null.Text(version), failure(ret))
	cuda, err := 0, errOldNVML
	if has("nvmlSystemGetCudaDriverVersion") {
		cuda, ret = lib.SystemGetCudaDriverVersion()
		err = failure(ret)
	}
	g.CUDAVersion = null.Value(n, "gpu.cuda_version", fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10), err)
	count, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		n["gpu.devices"] = ret.Error()
		return g
	}
	g.Devices = []Device{}
	for i := range min(count, maxDevices) {
		d := Device{Index: i}
		c, ret := device(i)
		if ret == nvml.SUCCESS {
			d.ask(c, has)
		} else {
			d.Unmeasured = null.Reasons{}
			for _, name := range deviceFields {
				d.Unmeasured[name] = ret.Error()
			}
		}
		g.Devices = append(g.Devices, d)
	}
	return g
}

var errOldNVML = errors.New("the driver's library is too old to say")

// ask reads one card.
func (d *Device) ask(c card, has func(string) bool) {
	n := null.Reasons{}
	d.Unmeasured = n
	name, ret := c.GetName()
	d.Name = null.Value(n, "name", null.Text(name), failure(ret))
	uuid, ret := c.GetUUID()
	d.UUID = null.Value(n, "uuid", null.Text(uuid), failure(ret))
	pci, ret := c.GetPciInfo()
	d.PCIBus = null.Value(n, "pci_bus", null.Text(chars(pci.BusId[:])), failure(ret))
	memory, ret := c.GetMemoryInfo()
	d.MemoryBytes = null.Value(n, "memory_bytes", int64(memory.Total), failure(ret))

	mhz := func(name string, get func(nvml.ClockType) (uint32, nvml.Return), clock nvml.ClockType) *int {
		v, ret := get(clock)
		return null.Value(n, name, int(v), failure(ret))
	}
	d.GraphicsMHz = mhz("graphics_mhz", c.GetClockInfo, nvml.CLOCK_GRAPHICS)
	d.MemoryMHz = mhz("memory_mhz", c.GetClockInfo, nvml.CLOCK_MEM)
	d.MaxGraphicsMHz = mhz("max_graphics_mhz", c.GetMaxClockInfo, nvml.CLOCK_GRAPHICS)
	d.MaxMemoryMHz = mhz("max_memory_mhz", c.GetMaxClockInfo, nvml.CLOCK_MEM)
	d.AppsGraphicsMHz = mhz("applications_graphics_mhz", c.GetApplicationsClock, nvml.CLOCK_GRAPHICS)
	d.AppsMemoryMHz = mhz("applications_memory_mhz", c.GetApplicationsClock, nvml.CLOCK_MEM)

	watts := func(name string, get func() (uint32, nvml.Return)) *float64 {
		milli, ret := get()
		return null.Value(n, name, float64(milli)/1000, failure(ret))
	}
	d.EnforcedLimitW = watts("enforced_power_limit_w", c.GetEnforcedPowerLimit)
	d.PowerLimitW = watts("power_limit_w", c.GetPowerManagementLimit)
	d.DefaultLimitW = watts("default_power_limit_w", c.GetPowerManagementDefaultLimit)
	d.modes(n, c, has)
}

func (d *Device) modes(n null.Reasons, c card, has func(string) bool) {
	now, pending, err := 0, 0, errOldNVML
	if has("nvmlDeviceGetMigMode") { // since driver 450
		var ret nvml.Return
		now, pending, ret = c.GetMigMode()
		err = failure(ret)
	}
	d.MIG = null.Value(n, "mig", now == nvml.DEVICE_MIG_ENABLE, err)
	d.MIGPending = null.Value(n, "mig_pending", pending == nvml.DEVICE_MIG_ENABLE, err)
	persistence, ret := c.GetPersistenceMode()
	d.Persistence = null.Value(n, "persistence", persistence == nvml.FEATURE_ENABLED, failure(ret))
	ecc, _, ret := c.GetEccMode()
	d.ECC = null.Value(n, "ecc", ecc == nvml.FEATURE_ENABLED, failure(ret))
	mode, ret := c.GetComputeMode()
	names := map[nvml.ComputeMode]string{
		nvml.COMPUTEMODE_DEFAULT: "default", nvml.COMPUTEMODE_EXCLUSIVE_THREAD: "exclusive_thread",
		nvml.COMPUTEMODE_PROHIBITED: "prohibited", nvml.COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive_process",
	}
	err = failure(ret)
	if names[mode] == "" && err == nil {
		err = fmt.Errorf("%d is no mode that is known", mode)
	}
	d.ComputeMode = null.Value(n, "compute_mode", names[mode], err)
}

// chars is a string of C.
func chars(s []int8) string {
	b := make([]byte, len(s))
	for i, c := range s {
		b[i] = byte(c)
	}
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}
