package hardware

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/omnitap/omnitap/probes/host"
	"github.com/omnitap/omnitap/probes/host/internal/null"
)

// Machine is what the server runs on. Nil is not measured.
type Machine struct {
	KernelRelease *string `json:"kernel_release"`
	KernelVersion *string `json:"kernel_version"`
	Arch          string  `json:"arch"`
	// BootWallNS is when it was booted, to the second; BootID tells one boot from
	// another.
	BootWallNS *int64  `json:"boot_wall_ns"`
	BootID     *string `json:"boot_id"`
	CPUModel   *string `json:"cpu_model"`
	// CPUsOnline are the logical CPUs, as a list; Cores and Sockets count what they are
	// parts of.
	CPUsOnline *string `json:"cpus_online"`
	Cores      *int    `json:"cores"`
	Sockets    *int    `json:"sockets"`
	SMT        *bool   `json:"smt"`
	// Governors are how the frequency is governed, one entry for all CPUs that have the
	// same. Boost says whether frequencies above the nominal one are allowed.
	Governors []Governor `json:"governors"`
	Boost     *bool      `json:"boost"`
	// Isolated and NoHzFull are the CPUs that the kernel keeps free, as lists.
	Isolated *string    `json:"isolated"`
	NoHzFull *string    `json:"nohz_full"`
	NUMA     []NUMANode `json:"numa_nodes"`
	// MemoryBytes is the memory that the kernel manages, HugePages its mode of
	// transparent huge pages.
	MemoryBytes *int64  `json:"memory_bytes"`
	HugePages   *string `json:"transparent_hugepages"`
	ClockSource *string `json:"clock_source"`
}

// Governor is how the frequency of some CPUs is governed.
type Governor struct {
	Governor string `json:"governor"`
	Driver   string `json:"driver"`
	MinKHz   int64  `json:"min_khz"`
	MaxKHz   int64  `json:"max_khz"`
	CPUs     string `json:"cpus"`
}

// NUMANode is a node of the memory.
type NUMANode struct {
	Node        int    `json:"node"`
	CPUs        string `json:"cpus"`
	MemoryBytes *int64 `json:"memory_bytes"`
}

const (
	maxTable = 16 << 20
	maxNodes = 1024
	cpuDir   = "sys/devices/system/cpu/"
	nodeDir  = "sys/devices/system/node/"
)

// reader reads one machine.
type reader struct {
	root  host.Root
	nulls null.Reasons
}

// Read reads the machine and its GPUs. What could not be read is nil, and reasons gets
// its dotted name ("host.cpu_model", "gpu.driver_version") with the reason.
func Read(root host.Root, skipGPU bool, reasons map[string]string) (Machine, GPU) {
	r := &reader{root, reasons}
	m := r.machine()
	if skipGPU {
		r.nulls["gpu"] = "it was not asked for"
		return m, GPU{}
	}
	return m, r.gpu()
}

func (r *reader) machine() Machine {
	m := Machine{Arch: runtime.GOARCH}
	line := func(field, name string) *string {
		s, err := r.root.Text(name)
		return null.Value(r.nulls, "host."+field, null.Text(s), err)
	}
	m.KernelRelease = line("kernel_release", "proc/sys/kernel/osrelease")
	m.KernelVersion = line("kernel_version", "proc/sys/kernel/version")
	m.BootID = line("boot_id", "proc/sys/kernel/random/boot_id")
	m.CPUsOnline = line("cpus_online", cpuDir+"online")
	m.Isolated = line("isolated", cpuDir+"isolated")
	m.NoHzFull = line("nohz_full", cpuDir+"nohz_full")
	m.ClockSource = line("clock_source", "sys/devices/system/clocksource/clocksource0/current_clocksource")
	m.HugePages = chosen(line("transparent_hugepages", "sys/kernel/mm/transparent_hugepage/enabled"))

	boot, err := r.bootTime()
	m.BootWallNS = null.Value(r.nulls, "host.boot_wall_ns", boot, err)
	model, err := r.cpuModel()
	m.CPUModel = null.Value(r.nulls, "host.cpu_model", model, err)
	smt, err := r.flag(cpuDir+"smt/active", "")
	m.SMT = null.Value(r.nulls, "host.smt", smt, err)
	memory, err := r.memory("proc/meminfo", "MemTotal:")
	m.MemoryBytes = null.Value(r.nulls, "host.memory_bytes", memory, err)
	r.topology(&m)
	m.Governors, err = r.governors(m.CPUsOnline)
	if err != nil {
		r.nulls["host.governors"] = host.Reason(err)
	}
	boost, err := r.flag(cpuDir+"cpufreq/boost", cpuDir+"intel_pstate/no_turbo")
	m.Boost = null.Value(r.nulls, "host.boost", boost, err)
	m.NUMA, err = r.numa()
	if err != nil {
		r.nulls["host.numa_nodes"] = host.Reason(err)
	}
	return m
}

// chosen is the word in brackets of "always [madvise] never".
func chosen(s *string) *string {
	if s == nil {
		return nil
	}
	if _, rest, ok := strings.Cut(*s, "["); ok {
		word, _, _ := strings.Cut(rest, "]")
		return &word
	}
	return s
}

// flag reads a file that holds 0 or 1; not holds the contrary, where yes is missing.
func (r *reader) flag(yes, not string) (bool, error) {
	s, err := r.root.Text(yes)
	if err != nil && not != "" {
		var notErr error
		if s, notErr = r.root.Text(not); notErr == nil {
			return s == "0", nil
		}
	}
	return s == "1", err
}

func (r *reader) bootTime() (int64, error) {
	b, err := r.root.Read("proc/stat", maxTable)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("btime ")); ok {
			s, err := strconv.ParseInt(string(bytes.TrimSpace(rest)), 10, 33)
			return s * 1e9, err
		}
	}
	return 0, errors.New("/proc/stat has no btime")
}

// cpuModel reads the first model name. The arm64 kernel prints numbers instead.
func (r *reader) cpuModel() (string, error) {
	b, err := r.root.Read("proc/cpuinfo", maxTable)
	if err != nil {
		return "", err
	}
	var arm []string
	for line := range bytes.Lines(b) {
		key, v, _ := strings.Cut(string(line), ":")
		switch key, v = strings.TrimSpace(key), strings.TrimSpace(v); key {
		case "model name":
			return null.Text(v), nil
		case "CPU implementer", "CPU variant", "CPU part", "CPU revision":
			if len(arm) < 4 {
				arm = append(arm, key[len("CPU "):]+" "+v)
			}
		}
	}
	if len(arm) == 0 {
		return "", errors.New("/proc/cpuinfo names no model")
	}
	return null.Text(strings.Join(arm, ", ")), nil
}

// topology counts cores and sockets.
func (r *reader) topology(m *Machine) {
	sockets, cores := map[string]bool{}, map[string]bool{}
	err := errors.New("the CPUs that are online are not known")
	if m.CPUsOnline != nil {
		var cpus host.CPUs
		cpus, err = host.ParseCPUs(*m.CPUsOnline)
		for _, n := range cpus {
			dir := cpuDir + "cpu" + strconv.Itoa(n) + "/topology/"
			socket, socketErr := r.root.Text(dir + "physical_package_id")
			core, coreErr := r.root.Text(dir + "core_id")
			if err = errors.Join(socketErr, coreErr); err != nil {
				break
			}
			sockets[socket], cores[socket+"/"+core] = true, true
		}
	}
	m.Sockets = null.Value(r.nulls, "host.sockets", len(sockets), err)
	m.Cores = null.Value(r.nulls, "host.cores", len(cores), err)
}

// governors reads how frequencies are governed.
func (r *reader) governors(online *string) ([]Governor, error) {
	if online == nil {
		return nil, errors.New("the CPUs that are online are not known")
	}
	cpus, err := host.ParseCPUs(*online)
	if err != nil {
		return nil, err
	}
	groups := map[Governor]host.CPUs{}
	for _, n := range cpus {
		dir := cpuDir + "cpu" + strconv.Itoa(n) + "/cpufreq/"
		g := Governor{}
		if g.Governor, err = r.root.Text(dir + "scaling_governor"); err != nil {
			return nil, fmt.Errorf("the kernel does not govern the frequency (in a virtual machine its host does): %w", err)
		}
		g.Driver, _ = r.root.Text(dir + "scaling_driver") // what is missing of the rest is left out
		lowest, _ := r.root.Text(dir + "scaling_min_freq")
		highest, _ := r.root.Text(dir + "scaling_max_freq")
		g.Governor, g.Driver = null.Text(g.Governor), null.Text(g.Driver)
		g.MinKHz, _ = strconv.ParseInt(lowest, 10, 64)
		g.MaxKHz, _ = strconv.ParseInt(highest, 10, 64)
		groups[g] = append(groups[g], n)
	}
	out := []Governor{}
	for g, of := range groups {
		g.CPUs = of.String()
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b Governor) int { return strings.Compare(a.CPUs, b.CPUs) })
	return out, nil
}

// numa lists the nodes.
func (r *reader) numa() ([]NUMANode, error) {
	entries, err := os.ReadDir(r.root.Path(nodeDir))
	if err != nil {
		return nil, errors.New("the kernel lists no nodes: " + host.Reason(errors.Unwrap(err)))
	}
	out := []NUMANode{}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), "node")
		n, err := strconv.Atoi(number)
		if !ok || err != nil || len(out) >= maxNodes {
			continue
		}
		cpus, err := r.root.Text(nodeDir + e.Name() + "/cpulist")
		if err != nil {
			return nil, err
		}
		node := NUMANode{Node: n, CPUs: null.Text(cpus)}
		memory, err := r.memory(nodeDir+e.Name()+"/meminfo", "MemTotal:")
		node.MemoryBytes = null.Value(r.nulls, fmt.Sprintf("host.numa_nodes.%d.memory_bytes", n), memory, err)
		out = append(out, node)
	}
	slices.SortFunc(out, func(a, b NUMANode) int { return a.Node - b.Node })
	return out, nil
}

// memory reads "MemTotal: 123 kB", which a node's file has behind "Node 0 ".
func (r *reader) memory(name, key string) (int64, error) {
	b, err := r.root.Read(name, 1<<20)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		if i := slices.Index(f, key); i >= 0 && i+1 < len(f) {
			kib, err := strconv.ParseInt(f[i+1], 10, 52)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/%s has no %s", name, key)
}
