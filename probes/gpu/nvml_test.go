//go:build linux && cgo

package gpu

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// compile makes a library of NVML's name from C.
func compile(t *testing.T, source string) string {
	t.Helper()
	lib := filepath.Join(t.TempDir(), libraryName)
	if err := os.WriteFile(lib+".c", []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-w", "-o", lib, lib+".c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return lib
}

// least is what every NVML has. It knows no text of an error: nobody may ask for it.
const least = `
#include <string.h>
#include <stdint.h>
int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = COUNT; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(uintptr_t)(i + 1); return i == 2 ? 15 : 0; }
int nvmlDeviceGetUUID(void *d, char *s, unsigned n) { strcpy(s, "GPU-1"); s[4] += (uintptr_t)d - 1; return 0; }
`

// modern is a driver of 2025: card 1 is split and has one instance of the seven that it
// may have.
const modern = least + `
int nvmlSystemGetDriverVersion(char *s, unsigned n) { strncpy(s, "580.159.04", n); return 0; }
int nvmlSystemGetNVMLVersion(char *s, unsigned n) { strncpy(s, "13.580", n); return 0; }
int nvmlDeviceGetName(void *d, char *s, unsigned n) { strncpy(s, "NVIDIA H200", n); return 0; }
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *then) { *now = *then = d == (void *)2; return 0; }
int nvmlDeviceGetMaxMigDeviceCount(void *d, unsigned *n) { *n = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *d, unsigned i, void **m) { *m = (void *)9; return i == 3 ? 0 : 6; }
struct field { unsigned id, scope; long long stamp, latency; unsigned type, ret; union { unsigned u; unsigned long long ull; } v; };
int nvmlDeviceGetFieldValues(void *d, int n, struct field *f) {
	if (d == (void *)9) return 3;
	for (int i = 0; i < n; i++) {
		memset(&f[i].v, 0xff, sizeof f[i].v); // what the union has behind its 32 bits
		f[i].ret = 0; f[i].type = 1; f[i].v.u = f[i].id * 1000;
	}
	return 0;
}
int nvmlDeviceGetPowerUsage(void *d, unsigned *v) { *v = 99000; return d == (void *)9 ? 3 : 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *v) { *v = 5000000000ull; return d == (void *)9 ? 3 : 0; }
int nvmlDeviceGetUtilizationRates(void *d, unsigned *v) { v[0] = 80; v[1] = 30; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m) { return 999; }
int nvmlDeviceGetMemoryInfo_v2(void *d, unsigned char *m) {
	if (*(unsigned *)m != ((2u << 24) | 40)) return 25;
	unsigned long long *v = (unsigned long long *)(m + 8);
	v[0] = 140ull << 30; v[3] = 7ull << 30;
	return 0;
}
int nvmlDeviceGetClockInfo(void *d, int c, unsigned *v) { *v = 1000 + c; return 0; }
int nvmlDeviceGetTemperature(void *d, int s, unsigned *v) { *v = 44; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(void *d, unsigned long long *v) { *v = 4; return 0; }
struct process { unsigned pid; unsigned long long bytes; unsigned gi, ci; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, struct process *p) {
	if (*n < 2) { *n = 2; return 7; }
	*n = 2;
	p[0] = (struct process){11, 1ull << 30, 0, 0};
	p[1] = (struct process){12, ~0ull, 0, 0};
	return 0;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *d, unsigned *n, struct process *p) { *n = 0; return 0; }
struct sample { unsigned pid; unsigned long long stamp; unsigned sm, mem, enc, dec; };
int nvmlDeviceGetProcessUtilization(void *d, struct sample *s, unsigned *n, unsigned long long after) {
	if (after >= 50) return 6;
	if (!s) { *n = 2; return 7; }
	s[0] = (struct sample){11, 50, 60, 20, 0, 0};
	s[1] = (struct sample){0, 0, 0, 0, 0, 0}; // the driver leaves empty ones behind
	return 0;
}
int nvmlEventSetCreate(void **s) { *s = (void *)77; return 0; }
int nvmlEventSetFree(void *s) { return s == (void *)77 ? 0 : 2; }
static int watched;
int nvmlDeviceRegisterEvents(void *d, unsigned long long types, void *s) { if (types == 8) watched++; return 0; }
struct event { void *d; unsigned long long type, data; unsigned gi, ci; };
int nvmlEventSetWait_v2(void *s, struct event *e, unsigned ms) {
	if (watched <= 0 || ms) return 10;
	watched = -1;
	*e = (struct event){(void *)2, 8, 63, 0, 0};
	return 0;
}
`

// alone runs the test that calls it again in a process of its own, and says whether this
// is that process: the functions of the first library that is loaded stay bound. That
// process ends by itself, which is what these tests are about.
func alone(t *testing.T) bool {
	t.Helper()
	const mark = "OMNITAP_TEST_ALONE"
	if os.Getenv(mark) != "" {
		return true
	}
	run := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", run, "-test.count=1")
	cmd.Env = append(os.Environ(), mark+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PASS") || strings.Contains(string(out), "no tests to run") {
		t.Errorf("%v: %s", err, out)
	}
	return false
}

func source(s, ret, count string) string {
	return "#define INIT " + ret + "\n#define COUNT " + count + "\n" + s
}

func TestModernDriver(t *testing.T) {
	if !alone(t) {
		return
	}
	d := &driver{path: compile(t, source(modern, "0", "3"))}
	for range 2 { // it is closed and opened again
		version, err := d.open()
		if err != nil || version.Driver != "580.159.04" || version.NVML != "13.580" {
			t.Fatalf("%+v, %v", version, err)
		}
		cards, err := d.cards()
		if err != nil || len(cards) != 4 {
			t.Fatalf("%d cards, %v", len(cards), err)
		}
		var got []Device
		for _, c := range cards {
			r := newReader(c, testClocks())
			got = append(got, r.device(true))
			holds(t, got[len(got)-1])
		}
		if d := got[0]; *d.PowerW != 186 || *d.PowerAverageW != 185 || d.PowerKind != KindInstant || *d.EnergyMJ != 5e9 || *d.GPUPercent != 80 ||
			*d.MemoryUsedBytes != 7<<30 || *d.MemoryTotalBytes != 140<<30 || d.MemorySource != "nvml_v2" || *d.SMClockMHz != 1001 || *d.MemoryClockMHz != 1002 ||
			*d.TemperatureC != 44 || *d.Throttle != 4 || d.UUID != "GPU-1" || d.Model != "NVIDIA H200" {
			t.Errorf("%+v", d)
		}
		if p := got[0].Processes; len(p) != 2 || *p[0].MemoryBytes != 1<<30 || *p[0].SMPercent != 60 || p[1].MemoryBytes != nil || p[1].SMPercent != nil {
			t.Errorf("%+v", p)
		}
		if d := got[1]; d.Name != "gpu1" || !d.MIG || d.Instance || d.GPUPercent != nil || d.PowerW == nil {
			t.Errorf("%+v", d)
		}
		if d := got[2]; d.Name != "gpu1/mig3" || !d.Instance || d.PowerW != nil || d.EnergyMJ != nil || d.MemoryUsedBytes == nil {
			t.Errorf("%+v", d)
		}
		if d := got[3]; d.Name != "gpu2" || d.Lost != "ERROR_GPU_IS_LOST" {
			t.Errorf("%+v", d)
		}
		told, err := d.xids()
		if err != nil || len(told) != 1 || told[0] != (xid{"GPU-2", 63}) {
			t.Errorf("%+v, %v", told, err)
		}
		if told, err = d.xids(); err != nil || len(told) != 0 {
			t.Errorf("%+v, %v", told, err)
		}
		d.close()
	}
}

// old is a driver before fields, energy counters and lists of processes of version 2.
const old = least + `
int nvmlDeviceGetPowerUsage(void *d, unsigned *v) { *v = 99000; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m) { m[0] = 16ull << 30; m[2] = 1ull << 30; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *v) { *v = 0; return 0; }
struct process { unsigned pid; unsigned long long bytes; };
int nvmlDeviceGetComputeRunningProcesses(void *d, unsigned *n, struct process *p) { *n = 1; p[0].pid = 5; p[0].bytes = 9; return 0; }
`

// C72: a function that the library lacks would end the program. Each is looked up before.
func TestOldDriver(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		null   []string
	}{
		"old": {old, []string{fieldPowerAverage, fieldEnergy, fieldGPU, fieldMemoryPercent, fieldSM, fieldMemoryClock, fieldTemperature}},
		"bare": {least, []string{
			fieldPower, fieldPowerAverage, fieldEnergy, fieldGPU, fieldMemoryPercent, fieldUsed, fieldTotal, fieldSM, fieldMemoryClock,
			fieldTemperature, fieldThrottle, fieldProcesses,
		}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			if !alone(t) {
				return
			}
			lib := &driver{path: compile(t, source(c.source, "0", "1"))}
			if _, err := lib.open(); err != nil {
				t.Fatal(err)
			}
			defer lib.close()
			cards, err := lib.cards()
			if err != nil || len(cards) != 1 {
				t.Fatalf("%d cards, %v", len(cards), err)
			}
			d := newReader(cards[0], testClocks()).device(true)
			holds(t, d)
			got := columns(d)
			for _, name := range c.null {
				if got[name] != nil || !strings.Contains(d.Unmeasured[name], errOld.Error()) {
					t.Errorf("%s is %v: %q", name, got[name], d.Unmeasured[name])
				}
			}
			if len(got) != len(fields)-len(c.null) {
				t.Errorf("%v", got)
			}
			if name == "old" && (d.PowerKind != KindUsage || d.MemorySource != "nvml_v1" || *d.MemoryUsedBytes != 1<<30 || *d.Processes[0].MemoryBytes != 9) {
				t.Errorf("%+v", d)
			}
			if _, err := lib.xids(); !errors.Is(err, errOld) {
				t.Error(err)
			}
		})
	}
}

// C72: what is no NVML at all, and what refuses to start, is told and ends nothing.
func TestBrokenLibrary(t *testing.T) {
	for name, c := range map[string]struct{ source, says string }{
		"another":         {"int something(void) { return 0; }", "lacks the functions that every NVML has: nvmlInit"},
		"driver mismatch": {source(least, "18", "1"), "ERROR_LIB_RM_VERSION_MISMATCH"},
		"unknown":         {source(least, "999", "1"), "ERROR_UNKNOWN"},
		"unheard of":      {source(least, "777", "1"), "NVML error 777"},
		"no driver":       {source(least, "9", "1"), "ERROR_DRIVER_NOT_LOADED"},
		"no card":         {source(least, "0", "0"), "NVML lists no card"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			if !alone(t) {
				return
			}
			path := compile(t, c.source)
			synctest.Test(t, func(t *testing.T) {
				s, got, stop := start(t, &driver{path: path})
				time.Sleep(25 * time.Second)
				synctest.Wait()
				if status := s.Status(); status.State != StateUnavailable || !strings.Contains(status.Reason, c.says) || status.Tries != 2 {
					t.Errorf("%+v", status)
				}
				if err := stop(); err != nil || len(got.all()) != 0 {
					t.Errorf("%v, %d samples", err, len(got.all()))
				}
			})
		})
	}
}

// C72: no library, and an empty file of its name.
func TestNoLibrary(t *testing.T) {
	empty := filepath.Join(t.TempDir(), libraryName)
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{empty, filepath.Join(t.TempDir(), "none.so")} {
		_, err := (&driver{path: path}).open()
		if !errors.Is(err, errLibraryNotFound) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
