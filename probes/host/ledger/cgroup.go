package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/omnitap/omnitap/probes/host"
	"github.com/omnitap/omnitap/probes/host/internal/null"
)

// Cgroup is what bounds a process. The narrowest bound on the way to the root counts.
type Cgroup struct {
	// Path is the group's, of version 2 where it has one that bounds, else that of
	// version 1's cpu.
	Path *string `json:"path"`
	// CPUs and Mems are the cpuset's, as lists; nil without one.
	CPUs *string `json:"cpuset_cpus"`
	Mems *string `json:"cpuset_mems"`
	// CPULimited says whether there is a quota, CPUQuotaCores how many cores it is.
	CPULimited    *bool    `json:"cpu_limited"`
	CPUQuotaCores *float64 `json:"cpu_quota_cores"`
	// MemoryLimited says whether there is a limit, MemoryLimitBytes what it is.
	MemoryLimited    *bool  `json:"memory_limited"`
	MemoryLimitBytes *int64 `json:"memory_limit_bytes"`
}

// Container is what a process's groups and mounts say of the container it is in.
type Container struct {
	// ID is the engine's, 64 hex digits.
	ID string `json:"id"`
	// ImageDigest is "sha256:…" where the environment names it.
	ImageDigest *string `json:"image_digest"`
}

const maxCgroup = 1 << 20

// mount is where a hierarchy of control groups is.
type mount struct {
	// point is where it is mounted, root which of its folders that is.
	point, root string
	v2          bool
	controllers []string
}

// parseMounts finds the control groups in /proc/self/mountinfo.
func parseMounts(b []byte) (out []mount) {
	for line := range bytes.Lines(b) {
		head, tail, ok := strings.Cut(string(line), " - ")
		f, g := strings.Fields(head), strings.Fields(tail)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		switch m := (mount{point: f[4], root: f[3]}); g[0] {
		case "cgroup2":
			m.v2 = true
			out = append(out, m)
		case "cgroup":
			m.controllers = strings.Split(g[2], ",")
			out = append(out, m)
		}
	}
	return out
}

// parseGroups reads /proc/PID/cgroup: the path for each controller, and for "" that of
// version 2.
func parseGroups(b []byte) map[string]string {
	out := map[string]string{}
	for line := range bytes.Lines(b) {
		f := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(f) != 3 || !path.IsAbs(f[2]) {
			continue
		}
		for c := range strings.SplitSeq(f[1], ",") {
			out[c] = f[2]
		}
	}
	return out
}

// way lists the folders from a group to the root of what is mounted, in names below the
// root of the machine.
func (m mount) way(group string) ([]string, error) {
	rest, ok := group, true
	if m.root != "/" {
		rest, ok = strings.CutPrefix(group, m.root)
		ok = ok && (rest == "" || rest[0] == '/')
	}
	if !ok || slices.Contains(strings.Split(rest, "/"), "..") {
		return nil, errors.New("the group lies outside of the control groups that are mounted here")
	}
	var out []string
	for at := path.Join("/", rest); ; at = path.Dir(at) {
		out = append(out, strings.TrimPrefix(path.Join(m.point, at), "/"))
		if at == "/" || len(out) > 64 {
			return out, nil
		}
	}
}

// cgroup reads what bounds a process.
func (r *reader) cgroup(pid int, n null.Reasons) *Cgroup {
	c := &Cgroup{}
	fail := func(err error) *Cgroup {
		for _, name := range []string{"path", "cpuset_cpus", "cpuset_mems", "cpu_limited", "cpu_quota_cores", "memory_limited", "memory_limit_bytes"} {
			n["cgroup."+name] = host.Reason(err)
		}
		return c
	}
	groups, err := r.Root.Read(proc(pid, "cgroup"), maxCgroup)
	if err != nil {
		return fail(err)
	}
	info, err := r.Root.Read("proc/self/mountinfo", 8*maxCgroup)
	if err != nil {
		return fail(err)
	}
	own := parseGroups(groups)
	mounts := parseMounts(info)
	shown := own[""]
	if (shown == "" || shown == "/") && own["cpu"] != "" {
		shown = own["cpu"]
	}
	if shown == "" {
		return fail(errors.New("the kernel names no control group"))
	}
	shown = null.Text(shown)
	c.Path = &shown

	cpus, err := r.first(mounts, own, "cpuset", "cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
	c.CPUs = null.Value(n, "cgroup.cpuset_cpus", cpus, err)
	mems, err := r.first(mounts, own, "cpuset", "cpuset.mems.effective", "cpuset.effective_mems", "cpuset.mems")
	c.Mems = null.Value(n, "cgroup.cpuset_mems", mems, err)

	cores, limited, err := r.least(mounts, own, "cpu", quota)
	c.CPULimited = null.Value(n, "cgroup.cpu_limited", limited, err)
	c.CPUQuotaCores = bound(n, "cgroup.cpu_quota_cores", cores, limited, err)
	bytes, limited, err := r.least(mounts, own, "memory", memory)
	c.MemoryLimited = null.Value(n, "cgroup.memory_limited", limited, err)
	c.MemoryLimitBytes = bound(n, "cgroup.memory_limit_bytes", int64(bytes), limited, err)
	return c
}

// bound is a limit, or nil where there is none.
func bound[T any](n null.Reasons, name string, v T, limited bool, err error) *T {
	if err == nil && !limited {
		err = errors.New("there is no limit")
	}
	return null.Value(n, name, v, err)
}

// hierarchy is where a controller's files of a process are: version 1's if it has the
// controller, else version 2's. The nearest comes first.
func hierarchy(mounts []mount, own map[string]string, controller string) ([]string, bool, error) {
	for _, m := range mounts {
		if group, ok := own[controller]; ok && slices.Contains(m.controllers, controller) {
			way, err := m.way(group)
			return way, false, err
		}
	}
	for _, m := range mounts {
		if group, ok := own[""]; ok && m.v2 {
			way, err := m.way(group)
			return way, true, err
		}
	}
	return nil, false, fmt.Errorf("no control groups of %s are mounted here", controller)
}

// first is the text of the nearest of some files.
func (r *reader) first(mounts []mount, own map[string]string, controller string, names ...string) (string, error) {
	way, _, err := hierarchy(mounts, own, controller)
	if err != nil {
		return "", err
	}
	for _, folder := range way {
		for _, name := range names {
			if s, err := r.Root.Text(folder + "/" + name); err == nil && s != "" {
				return null.Text(s), nil
			}
		}
	}
	return "", errors.New("no group has a cpuset")
}

// limitOf reads one group's limit; ok says whether it has one.
type limitOf func(read func(string) (string, error), v2 bool) (limit float64, ok bool, err error)

// least is the smallest limit on the way to the root.
func (r *reader) least(mounts []mount, own map[string]string, controller string, limit limitOf) (float64, bool, error) {
	way, v2, err := hierarchy(mounts, own, controller)
	if err != nil {
		return 0, false, err
	}
	least := math.Inf(1)
	for _, folder := range way {
		v, ok, err := limit(func(name string) (string, error) { return r.Root.Text(folder + "/" + name) }, v2)
		if err != nil {
			return 0, false, err
		}
		if ok {
			least = min(least, v)
		}
	}
	if math.IsInf(least, 1) {
		return 0, false, nil
	}
	return least, true, nil
}

// quota reads a group's CPU quota, in cores. The root has none, and no file either.
func quota(read func(string) (string, error), v2 bool) (float64, bool, error) {
	var runtime, period string
	if v2 {
		s, err := read("cpu.max")
		if err != nil {
			return 0, false, absent(err)
		}
		runtime, period, _ = strings.Cut(s, " ")
	} else {
		var err error
		if runtime, err = read("cpu.cfs_quota_us"); err != nil {
			return 0, false, absent(err)
		}
		if period, err = read("cpu.cfs_period_us"); err != nil {
			return 0, false, absent(err)
		}
	}
	if runtime == "max" || runtime == "-1" {
		return 0, false, nil
	}
	a, errA := strconv.ParseUint(runtime, 10, 62)
	b, errB := strconv.ParseUint(period, 10, 62)
	if errA != nil || errB != nil || b == 0 {
		return 0, false, fmt.Errorf("%.40q in %.40q is no quota", runtime, period)
	}
	return float64(a) / float64(b), true, nil
}

// memory reads a group's limit, bytes. Version 1 says "none" with the largest number of
// pages.
func memory(read func(string) (string, error), v2 bool) (float64, bool, error) {
	name := "memory.limit_in_bytes"
	if v2 {
		name = "memory.max"
	}
	s, err := read(name)
	if err != nil {
		return 0, false, absent(err)
	}
	if s == "max" {
		return 0, false, nil
	}
	v, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, false, fmt.Errorf("%.40q is no limit", s)
	}
	return float64(v), v < 1<<62, nil
}
