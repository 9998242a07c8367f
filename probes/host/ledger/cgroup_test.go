package ledger

import (
	"fmt"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/probes/host/internal/hosttest"
)

// brief writes down what bounds a process.
func briefGroup(c *Cgroup) string {
	show := func(v any) string {
		switch v := v.(type) {
		case *string:
			if v != nil {
				return *v
			}
		case *bool:
			if v != nil {
				return fmt.Sprint(*v)
			}
		case *float64:
			if v != nil {
				return fmt.Sprint(*v)
			}
		case *int64:
			if v != nil {
				return fmt.Sprint(*v)
			}
		}
		return "null"
	}
	return strings.Join([]string{
		show(c.Path), show(c.CPUs), show(c.Mems), show(c.CPULimited), show(c.CPUQuotaCores), show(c.MemoryLimited), show(c.MemoryLimitBytes),
	}, " ")
}

func TestCgroups(t *testing.T) {
	const v2 = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	const v1 = "31 20 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n" +
		"32 20 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n33 20 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
		"34 20 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	for _, test := range []struct {
		name          string
		mounts, group string
		files         map[string]string
		want, reason  string
	}{
		{
			"version 2, bounds all the way up", v2, "0::/pod/box\n",
			map[string]string{
				"pod/box/cpu.max": "400000 100000", "pod/cpu.max": "250000 100000", "pod/box/memory.max": "max", "pod/memory.max": "1073741824",
				"pod/box/cpuset.cpus.effective": "0-3,8", "pod/box/cpuset.mems.effective": "0",
			},
			"/pod/box 0-3,8 0 true 2.5 true 1073741824", "",
		},
		{
			"version 2, no bounds", v2, "0::/a\n",
			map[string]string{"a/cpu.max": "max 100000", "a/memory.max": "max", "cpuset.cpus.effective": "0-1", "cpuset.mems.effective": "0"},
			"/a 0-1 0 false null false null", "there is no limit",
		},
		{"version 2, the root", v2, "0::/\n", nil, "/ null null false null false null", "no group has a cpuset"},
		{
			"version 1", v1, "4:memory:/m\n3:cpuset:/s\n2:cpu,cpuacct:/c\n0::/\n",
			map[string]string{
				"cpu/c/cpu.cfs_quota_us": "150000", "cpu/c/cpu.cfs_period_us": "100000", "cpuset/s/cpuset.cpus": "2-3", "cpuset/s/cpuset.mems": "1",
				"memory/m/memory.limit_in_bytes": "9223372036854771712", "memory/memory.limit_in_bytes": "9223372036854771712",
			},
			"/c 2-3 1 true 1.5 false null", "there is no limit",
		},
		{
			"version 1, no quota", v1, "4:memory:/m\n3:cpuset:/s\n2:cpu,cpuacct:/c\n0::/\n",
			map[string]string{"cpu/c/cpu.cfs_quota_us": "-1", "cpu/c/cpu.cfs_period_us": "100000", "memory/m/memory.limit_in_bytes": "4096"},
			"/c null null false null true 4096", "no group has a cpuset",
		},
		{
			"of a container, seen from inside it", "30 20 0:26 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/docker/x/y\n",
			map[string]string{"y/cpu.max": "50000 100000"},
			"/docker/x/y null null true 0.5 false null", "",
		},
		{"outside of what is mounted", "30 20 0:26 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/docker/xy\n", nil, "/docker/xy null null null null null null", "outside of the control groups"},
		{"outside of the namespace", v2, "0::/../other\n", map[string]string{"../../secret/cpu.max": "1 1"}, "/../other null null null null null null", "outside of the control groups"},
		{"not mounted", "22 20 0:4 / /proc rw - proc proc rw\n", "0::/a\n", nil, "/a null null null null null null", "mounted here"},
		{"nonsense in the quota", v2, "0::/a\n", map[string]string{"a/cpu.max": "many 100000"}, "/a null null null null false null", "is no quota"},
		{"a period of nothing", v2, "0::/a\n", map[string]string{"a/cpu.max": "1 0"}, "/a null null null null false null", "is no quota"},
		{"nonsense in the limit", v2, "0::/a\n", map[string]string{"a/memory.max": "-5"}, "/a null null false null null null", "is no limit"},
		{"nothing of a group", v2, "nonsense\n", nil, "null null null null null null null", "names no control group"},
	} {
		f := newFixture(t)
		f.Write("proc/self/mountinfo", test.mounts)
		for name, content := range test.files {
			f.Write("sys/fs/cgroup/"+name, content+"\n")
		}
		f.process(procSpec{pid: 7, container: "box", exe: "/x", cgroup: test.group})
		f.Write("box/x", "")
		p := f.read(7).Processes[0]
		if got := briefGroup(p.Cgroup); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		if all := fmt.Sprint(p.Unmeasured); !strings.Contains(all, test.reason) {
			t.Errorf("%s: the reasons %s lack %q", test.name, all, test.reason)
		}
		hosttest.Holds(t, *p.Cgroup, p.Unmeasured, "cgroup.")
	}
}

func TestContainers(t *testing.T) {
	id, digest := strings.Repeat("0a", 32), "sha256:"+strings.Repeat("9f", 32)
	for _, test := range []struct {
		name, group, mounts string
		env                 []string
		id, digest, reason  string
	}{
		{"docker", "0::/system.slice/docker-" + id + ".scope\n", "", []string{"IMAGE=x@" + digest}, id, digest, ""},
		{"docker, version 1", "4:memory:/docker/" + id + "\n", "", []string{"A=" + digest}, id, "", "neither the control group nor the environment"},
		{"in a namespace of its own", "0::/\n", "800 700 254:1 /var/lib/docker/containers/" + id + "/hosts /etc/hosts rw - ext4 /dev/vda1 rw\n", nil, id, "", ""},
		{"two images", "0::/libpod-" + id + "\n", "", []string{"IMAGE=" + digest, "BASE_IMAGE=sha256:" + strings.Repeat("0", 64)}, id, "", "more than one image"},
		{"none", "0::/user.slice\n", "800 700 254:1 /x /etc/hosts rw - ext4 x rw\n", nil, "", "", "neither its control groups nor its mounts"},
		{"a longer number", "0::/" + id + "ff\n", "", nil, "", "", "neither its control groups nor its mounts"},
	} {
		f := newFixture(t)
		f.process(procSpec{pid: 7, container: "box", exe: "/x", cgroup: test.group, env: test.env})
		f.Write("box/x", "")
		f.Write("proc/7/mountinfo", test.mounts)
		p := f.read(7).Processes[0]
		if (p.Container != nil) != (test.id != "") {
			t.Errorf("%s: %+v", test.name, p.Container)
		} else if c := p.Container; c != nil && (c.ID != test.id || (c.ImageDigest == nil) != (test.digest == "") || c.ImageDigest != nil && *c.ImageDigest != test.digest) {
			t.Errorf("%s: %+v", test.name, c)
		}
		if all := fmt.Sprint(p.Unmeasured); !strings.Contains(all, test.reason) {
			t.Errorf("%s: the reasons %s lack %q", test.name, all, test.reason)
		}
	}
}
