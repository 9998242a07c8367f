package hardware

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/probes/host/internal/hosttest"
)

// both is what Read returns.
type both struct {
	Host       Machine
	GPU        GPU
	Unmeasured map[string]string
}

func read(f *hosttest.Tree) both {
	reasons := map[string]string{}
	m, g := Read(f.Root(), false, reasons)
	return both{m, g, reasons}
}

// server is a machine of two sockets with two nodes.
func server(f *hosttest.Tree) {
	f.Write("proc/sys/kernel/osrelease", "6.8.0-50-generic\n")
	f.Write("proc/sys/kernel/version", "#51-Ubuntu SMP\n")
	f.Write("proc/sys/kernel/random/boot_id", "276f9053-a180\n")
	f.Write("proc/stat", "cpu  1 2 3 4\nintr 1 2\nbtime 1796041593\n")
	f.Write("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 9554\nprocessor\t: 1\nmodel name\t: other\n")
	f.Write("proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n")
	f.Write("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n")
	f.Write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
	f.Write(cpuDir+"online", "0-3\n")
	f.Write(cpuDir+"isolated", "\n")
	f.Write(cpuDir+"nohz_full", "2-3\n")
	f.Write(cpuDir+"smt/active", "1\n")
	f.Write(cpuDir+"intel_pstate/no_turbo", "1\n")
	for n, where := range [][2]string{{"0", "0"}, {"0", "0"}, {"1", "0"}, {"1", "1"}} {
		cpu := cpuDir + "cpu" + string(rune('0'+n)) + "/"
		f.Write(cpu+"topology/physical_package_id", where[0]+"\n")
		f.Write(cpu+"topology/core_id", where[1]+"\n")
		f.Write(cpu+"cpufreq/scaling_governor", []string{"performance", "performance", "powersave", "performance"}[n]+"\n")
		f.Write(cpu+"cpufreq/scaling_driver", "amd-pstate-epp\n")
		f.Write(cpu+"cpufreq/scaling_min_freq", "400000\n")
		f.Write(cpu+"cpufreq/scaling_max_freq", "3100000\n")
	}
	f.Write(nodeDir+"online", "0-1\n")
	f.Write(nodeDir+"node0/cpulist", "0-1\n")
	f.Write(nodeDir+"node0/meminfo", "Node 0 MemTotal:       8192 kB\n")
	f.Write(nodeDir+"node1/cpulist", "2-3\n")
	f.Write(nodeDir+"node10/cpulist", "\n")
	f.Write(nodeDir+"node1/meminfo", "nothing\n")
	f.Write(nodeDir+"node10/meminfo", "Node 10 MemTotal: 1 kB\n")
}

func TestMachine(t *testing.T) {
	f := hosttest.New(t)
	server(f)
	l := read(f)
	l.Host.Arch = ""
	text, err := json.Marshal(l.Host)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"kernel_release":"6.8.0-50-generic","kernel_version":"#51-Ubuntu SMP","arch":"","boot_wall_ns":1796041593000000000,"boot_id":"276f9053-a180",` +
		`"cpu_model":"AMD EPYC 9554","cpus_online":"0-3","cores":3,"sockets":2,"smt":true,"governors":[` +
		`{"governor":"performance","driver":"amd-pstate-epp","min_khz":400000,"max_khz":3100000,"cpus":"0-1,3"},` +
		`{"governor":"powersave","driver":"amd-pstate-epp","min_khz":400000,"max_khz":3100000,"cpus":"2"}],"boost":false,"isolated":"","nohz_full":"2-3",` +
		`"numa_nodes":[{"node":0,"cpus":"0-1","memory_bytes":8388608},{"node":1,"cpus":"2-3","memory_bytes":null},{"node":10,"cpus":"","memory_bytes":1024}],` +
		`"memory_bytes":16777216,"transparent_hugepages":"madvise","clock_source":"tsc"}`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Error(diff)
	}
	hosttest.Holds(t, l.Host, l.Unmeasured, "host.")
	if l.Unmeasured["host.numa_nodes.1.memory_bytes"] == "" {
		t.Errorf("%v", l.Unmeasured)
	}
}

// A machine that says nothing has a reason for everything.
func TestBareMachine(t *testing.T) {
	f := hosttest.New(t)
	l := read(f)
	hosttest.Holds(t, l.Host, l.Unmeasured, "host.")
	hosttest.Holds(t, l.GPU, l.Unmeasured, "gpu.")
	if l.Host.CPUModel != nil || l.Host.NUMA != nil || l.Host.Governors != nil || l.Host.BootWallNS != nil {
		t.Errorf("%+v", l.Host)
	}
	f.Write("proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\nprocessor : 1\n")
	f.Write("proc/stat", "btime soon\n")
	f.Write("proc/meminfo", "MemTotal: many kB\n")
	f.Write(cpuDir+"online", "all\n")
	l = read(f)
	if l.Host.CPUModel == nil || *l.Host.CPUModel != "implementer 0x41, part 0xd40" {
		t.Errorf("%v", l.Host.CPUModel)
	}
	if l.Host.BootWallNS != nil || l.Host.MemoryBytes != nil || l.Host.Cores != nil {
		t.Errorf("%+v", l.Host)
	}
	hosttest.Holds(t, l.Host, l.Unmeasured, "host.")
}

func TestGPUFiles(t *testing.T) {
	f := hosttest.New(t)
	f.Write(gpuDir+"version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (x)\nGCC version:  gcc 11\n")
	f.Write(gpuDir+"gpus/0000:18:00.0/information", "Model: \t\t NVIDIA H200\nIRQ:   \t\t 0\nGPU UUID: \t GPU-1234\nBus Location: \t 0000:18:00.0\n")
	f.Write(gpuDir+"gpus/0000:19:00.0/information", "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-????????-????-????-????-????????????\n")
	f.Write(gpuDir+"gpus/0000:1a:00.0/other", "")
	l := read(f)
	if l.GPU.Source != "proc" || *l.GPU.DriverVersion != "580.95.05" || len(l.GPU.Devices) != 3 {
		t.Fatalf("%+v", l.GPU)
	}
	hosttest.Holds(t, l.GPU, l.Unmeasured, "gpu.")
	for i, d := range l.GPU.Devices {
		hosttest.Holds(t, d, d.Unmeasured, "")
		if d.Index != i {
			t.Errorf("device %d has index %d", i, d.Index)
		}
	}
	if d := l.GPU.Devices[0]; *d.Name != "NVIDIA H200" || *d.UUID != "GPU-1234" || *d.PCIBus != "0000:18:00.0" || d.MIG != nil {
		t.Errorf("%+v", d)
	}
	if d := l.GPU.Devices[1]; d.UUID != nil || d.PCIBus != nil {
		t.Errorf("%+v", d)
	}
	f.Write(gpuDir+"version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n")
	if got := read(f).GPU.DriverVersion; got == nil || *got != "535.104.05" {
		t.Errorf("%v", got)
	}
	f.Write(gpuDir+"version", "something else\n")
	if l := read(f); l.GPU.DriverVersion != nil || !strings.Contains(l.Unmeasured["gpu.driver_version"], "names no version") {
		t.Errorf("%v, %v", l.GPU.DriverVersion, l.Unmeasured)
	}
}
