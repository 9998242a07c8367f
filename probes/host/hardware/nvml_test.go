//go:build linux && cgo

package hardware

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/probes/host/internal/null"

	"github.com/omnitap/omnitap/probes/host/internal/hosttest"
)

// fakeNVML is a library and its only card; ret is what it answers all calls with that are
// not named in good.
type fakeNVML struct{ ret nvml.Return }

func (f fakeNVML) SystemGetDriverVersion() (string, nvml.Return)  { return "580.95.05", f.ret }
func (f fakeNVML) SystemGetCudaDriverVersion() (int, nvml.Return) { return 13020, f.ret }
func (f fakeNVML) SystemGetNVMLVersion() (string, nvml.Return)    { return "13.580.95.05", f.ret }
func (f fakeNVML) DeviceGetCount() (int, nvml.Return)             { return 2, f.ret }
func (f fakeNVML) GetName() (string, nvml.Return)                 { return "NVIDIA H200", f.ret }
func (f fakeNVML) GetUUID() (string, nvml.Return)                 { return "GPU-1", f.ret }
func (f fakeNVML) GetPciInfo() (p nvml.PciInfo, ret nvml.Return) {
	for i, c := range []byte("00000000:18:00.0\x00rest") {
		p.BusId[i] = int8(c)
	}
	return p, f.ret
}

func (f fakeNVML) GetMemoryInfo() (nvml.Memory, nvml.Return) {
	return nvml.Memory{Total: 1 << 37}, f.ret
}

func (f fakeNVML) GetClockInfo(c nvml.ClockType) (uint32, nvml.Return) {
	return 1000 + uint32(c), f.ret
}

func (f fakeNVML) GetMaxClockInfo(c nvml.ClockType) (uint32, nvml.Return) {
	return 2000 + uint32(c), f.ret
}

func (f fakeNVML) GetApplicationsClock(nvml.ClockType) (uint32, nvml.Return) {
	return 0, nvml.ERROR_NOT_SUPPORTED
}
func (f fakeNVML) GetEnforcedPowerLimit() (uint32, nvml.Return)          { return 650000, f.ret }
func (f fakeNVML) GetPowerManagementLimit() (uint32, nvml.Return)        { return 700000, f.ret }
func (f fakeNVML) GetPowerManagementDefaultLimit() (uint32, nvml.Return) { return 700500, f.ret }
func (f fakeNVML) GetMigMode() (int, int, nvml.Return)                   { return 0, 1, f.ret }
func (f fakeNVML) GetPersistenceMode() (nvml.EnableState, nvml.Return) {
	return nvml.FEATURE_ENABLED, f.ret
}

func (f fakeNVML) GetEccMode() (nvml.EnableState, nvml.EnableState, nvml.Return) {
	return nvml.FEATURE_DISABLED, nvml.FEATURE_ENABLED, f.ret
}

func (f fakeNVML) GetComputeMode() (nvml.ComputeMode, nvml.Return) {
	return nvml.COMPUTEMODE_EXCLUSIVE_PROCESS, f.ret
}

func ask(f fakeNVML, has bool) (GPU, null.Reasons) {
	n := null.Reasons{}
	return askNVML(n, f, func(string) bool { return has }, func(i int) (card, nvml.Return) {
		if i == 1 {
			return nil, nvml.ERROR_GPU_IS_LOST
		}
		return f, nvml.SUCCESS
	}), n
}

func TestNVML(t *testing.T) {
	g, n := ask(fakeNVML{nvml.SUCCESS}, true)
	hosttest.Holds(t, g, n, "gpu.")
	if len(g.Devices) != 2 || *g.DriverVersion != "580.95.05" || *g.CUDAVersion != "13.2" || *g.NVMLVersion != "13.580.95.05" {
		t.Fatalf("%+v", g)
	}
	for _, d := range g.Devices {
		hosttest.Holds(t, d, d.Unmeasured, "")
	}
	if d := g.Devices[1]; d.Name != nil || d.Index != 1 || !strings.Contains(d.Unmeasured["name"], "GPU_IS_LOST") {
		t.Errorf("%+v", d)
	}
	text, err := json.Marshal(g.Devices[0])
	if err != nil {
		t.Fatal(err)
	}
	want := `{"index":0,"name":"NVIDIA H200","uuid":"GPU-1","pci_bus":"00000000:18:00.0","memory_bytes":137438953472,"graphics_mhz":1000,` +
		`"memory_mhz":1002,"max_graphics_mhz":2000,"max_memory_mhz":2002,"applications_graphics_mhz":null,"applications_memory_mhz":null,` +
		`"enforced_power_limit_w":650,"power_limit_w":700,"default_power_limit_w":700.5,"mig":false,"mig_pending":true,"persistence":true,` +
		`"ecc":false,"compute_mode":"exclusive_process","unmeasured":{"applications_graphics_mhz":"ERROR_NOT_SUPPORTED","applications_memory_mhz":"ERROR_NOT_SUPPORTED"}}`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Error(diff)
	}
}

// A library without the newer functions is not asked for them, and one that fails is
// null with the reason.
func TestNVMLThatSaysLittle(t *testing.T) {
	g, n := ask(fakeNVML{nvml.SUCCESS}, false)
	hosttest.Holds(t, g, n, "gpu.")
	d := g.Devices[0]
	hosttest.Holds(t, d, d.Unmeasured, "")
	if g.CUDAVersion != nil || d.MIG != nil || d.Unmeasured["mig"] != errOldNVML.Error() {
		t.Errorf("%+v", d)
	}
	g, n = ask(fakeNVML{nvml.ERROR_UNKNOWN}, true)
	hosttest.Holds(t, g, n, "gpu.")
	if g.Devices != nil || g.DriverVersion != nil || n["gpu.devices"] == "" {
		t.Errorf("%+v", g)
	}
	var all Device
	all.ask(fakeNVML{nvml.ERROR_NO_PERMISSION}, func(string) bool { return true })
	hosttest.Holds(t, all, all.Unmeasured, "")
}

// stub is a library of NVML as an old driver would have it: without MIG, and without the
// version of CUDA.
const stub = `
#include <string.h>
int nvmlInit(void) { return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int r) { return "as the stub says"; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { strncpy(s, "390.46", n); return 0; }
int nvmlSystemGetNVMLVersion(char *s, unsigned n) { strncpy(s, "9.390.46", n); return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)1; return 0; }
int nvmlDeviceGetName(void *d, char *s, unsigned n) { memset(s, 'N', n); return 0; }
int nvmlDeviceGetUUID(void *d, char *s, unsigned n) { strncpy(s, "GPU-7", n); return 0; }
int nvmlDeviceGetPciInfo_v3(void *d, void *p) { return 3; }
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m) { m[0] = 1ull << 34; return 0; }
int nvmlDeviceGetClockInfo(void *d, int c, unsigned *v) { *v = 1000 + c; return 0; }
int nvmlDeviceGetMaxClockInfo(void *d, int c, unsigned *v) { return 3; }
int nvmlDeviceGetApplicationsClock(void *d, int c, unsigned *v) { return 3; }
int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *v) { *v = 250000; return 0; }
int nvmlDeviceGetPowerManagementLimit(void *d, unsigned *v) { return 4; }
int nvmlDeviceGetPowerManagementDefaultLimit(void *d, unsigned *v) { return 4; }
int nvmlDeviceGetPersistenceMode(void *d, int *v) { *v = 1; return 0; }
int nvmlDeviceGetEccMode(void *d, int *a, int *b) { return 3; }
int nvmlDeviceGetComputeMode(void *d, int *v) { *v = 99; return 0; }
`

// The real loader with an old library: what it lacks would end the program.
func TestOldNVML(t *testing.T) {
	lib := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	source := lib + ".c"
	if err := os.WriteFile(source, []byte(stub), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-w", "-o", lib, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for range 2 { // it is closed and opened again
		n := null.Reasons{}
		g, err := readNVML(n, nvml.WithLibraryPath(lib))
		if err != nil {
			t.Fatal(err)
		}
		hosttest.Holds(t, g, n, "gpu.")
		if len(g.Devices) != 1 || *g.DriverVersion != "390.46" || g.CUDAVersion != nil || n["gpu.cuda_version"] != errOldNVML.Error() {
			t.Fatalf("%+v, %v", g, n)
		}
		d := g.Devices[0]
		hosttest.Holds(t, d, d.Unmeasured, "")
		if *d.UUID != "GPU-7" || *d.MemoryMHz != 1002 || *d.EnforcedLimitW != 250 || d.MIG != nil || d.PowerLimitW != nil || len(*d.Name) > null.MaxText || d.ComputeMode != nil {
			t.Errorf("%+v", d)
		}
	}
}

// NVML is asked on the real machine: a card, or the reason that there is none.
func TestRealNVML(t *testing.T) {
	n := null.Reasons{}
	g, err := readNVML(n)
	if err != nil {
		if !strings.Contains(err.Error(), "starting NVML") {
			t.Error(err)
		}
		return
	}
	hosttest.Holds(t, g, n, "gpu.")
	for _, d := range g.Devices {
		hosttest.Holds(t, d, d.Unmeasured, "")
		text, err := json.Marshal(d)
		t.Logf("%s, %v", text, err)
	}
	if len(g.Devices) > 0 && (g.DriverVersion == nil || g.Devices[0].Name == nil) {
		t.Errorf("a card without driver or name: %+v", g)
	}
}
