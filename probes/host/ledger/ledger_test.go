package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/probes/host"

	"github.com/omnitap/omnitap/probes/host/internal/hosttest"
)

const (
	commitA = "0123456789abcdef0123456789abcdef01234567"
	commitB = "89abcdef0123456789abcdef0123456789abcdef"
)

// twoVersions is a server whose stages run in environments that differ.
func twoVersions(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	const one, two = "box/venv/lib/python3.11/site-packages", "box/other/lib/python3.11/site-packages"
	for site, torch := range map[string]string{one: "2.9.0+cu128", two: "2.10.0"} {
		f.dist(site, "torch", torch)
		f.dist(site, "nvidia_nccl_cu12", "2.27.5")
		f.dist(site, "transformers", "4.57.1")
	}
	f.dist(one, "vllm_omni", "0.26.0")
	f.Write(one+"/vllm_omni-0.26.0.dist-info/direct_url.json", `{"url":"https://u:p@example.org/x.git","vcs_info":{"vcs":"git","commit_id":"`+commitA+`"}}`)
	f.dist(one, "pyzmq", "27.1.0")
	f.Write("box/venv/pyvenv.cfg", "home = /opt/py/bin\ninclude-system-site-packages = false\nversion = 3.11.9\n")
	f.Write("box/opt/py/include/python3.11/patchlevel.h", "#define PY_MINOR_VERSION 11\n#define PY_VERSION      \"3.11.8\"\n")
	f.dist("box/opt/py/lib/python3.11/site-packages", "transformers", "1.0")
	f.process(procSpec{
		pid: 100, container: "box", exe: "/opt/py/bin/python3.11", cwd: "/srv",
		args: []string{"/venv/bin/python3", "/venv/bin/vllm-omni", "serve", "Qwen/Qwen3-Omni", "--omni", "--revision", "main", "--api-key", "sekret"},
		env:  []string{"HF_HOME=/cache", "HF_HUB_OFFLINE=1", "VLLM_API_KEY=abc", "VLLM_URL=http://sekret@x", "PATH=/bin", "LD_PRELOAD=", "HF_TOKEN=hf_x"},
		maps: []string{
			"/opt/py/lib/python3.11/lib-dynload/_ssl.so", "/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so",
			"/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2", "/venv/lib/python3.11/site-packages/zmq/backend/cython/_zmq.abi3.so",
			"/usr/lib/libcuda.so.580.159.04", "/usr/local/cuda/lib64/libcudart.so.12.8.90",
		},
		cgroup: "0::/kubepods/pod1/cri-containerd-" + strings.Repeat("ab", 32) + ".scope\n",
	})
	f.Write("box/cache/hub/models--Qwen--Qwen3-Omni/refs/main", commitB)
	f.process(procSpec{
		pid: 101, container: "box", exe: "/opt/py/bin/python3.11", args: []string{"VLLM::StageEngineCoreProc_stage1_replica0"},
		maps: []string{
			"/opt/py/lib/python3.11/lib-dynload/_ssl.so", "/other/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so (deleted)",
			"/opt/nccl/libnccl.so.2.29.1", "/usr/lib/libcuda.so.580.159.04",
		},
	})
	f.Write("box/other/pyvenv.cfg", "include-system-site-packages = false\n")
	return f
}

func TestTwoVersionsAreBothTold(t *testing.T) {
	l := twoVersions(t).read(100, 101)
	for name, want := range map[string][]string{
		"pytorch": {
			"2.10.0 mapped metadata [101] | a file of it was replaced or removed since the process mapped it",
			"2.9.0+cu128 mapped metadata [100]",
		},
		"nccl": {
			"2.29.1 mapped file_name [101]", "2.27.5 mapped metadata [100]", "2.27.5 installed metadata [101]",
		},
		"driver":       {"580.159.04 mapped file_name [100 101]"},
		"cuda_runtime": {"12.8.90 mapped file_name [100]"},
		"transformers": {"4.57.1 installed metadata [101]", "4.57.1 installed metadata [100]"}, // the base's own is shut out
		"pyzmq":        {"27.1.0 mapped metadata [100]"},
		"vllm_omni":    {"0.26.0 installed metadata [100] | " + commitA},
		"python":       {"3.11.8 executable header [100 101]"},
		"nixl":         nil,
	} {
		if diff := cmp.Diff(want, found(l, name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for _, name := range []string{"software.nixl", "software.mooncake"} {
		if l.Unmeasured[name] == "" {
			t.Errorf("%s has no reason: %v", name, l.Unmeasured)
		}
	}
	if l.Unmeasured["software.pytorch"] != "" || l.Unmeasured["software.server"] != "" {
		t.Errorf("%v", l.Unmeasured)
	}
	if len(l.Sites) != 2 || l.Sites[1].Packages["vllm-omni"] != "0.26.0" || cmp.Diff([]int{101}, l.Sites[0].PIDs) != "" {
		t.Errorf("%+v", l.Sites)
	}
	text, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"sekret", "abc\"", "hf_x", "u:p"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the ledger holds the secret %q", secret)
		}
	}
}

// What is installed while a process runs is not what it runs.
func TestInstalledTooLate(t *testing.T) {
	f := newFixture(t)
	f.dist("box/v/lib/python3.12/site-packages", "vllm-omni", "0.27.0")
	f.process(procSpec{pid: 1, container: "box", exe: "/opt/py/bin/python3.12", maps: []string{"/v/lib/python3.12/site-packages/x.so"}})
	if got := found(f.readAt(-time.Hour, 1), "vllm_omni"); len(got) != 1 || !strings.HasSuffix(got[0], "| it was installed or changed after the process had started") {
		t.Errorf("%q", got)
	}
	if got := found(f.read(1), "vllm_omni"); cmp.Diff([]string{"0.27.0 installed metadata [1]"}, got) != "" {
		t.Errorf("%q", got)
	}
}

func TestProcess(t *testing.T) {
	l := twoVersions(t).read(100, 101)
	ptr := func(s string) *string { return &s }
	n, threads, nice, ticks := 1, 17, -5, uint64(4711)
	want := Process{
		PID: 100, Role: "stage", Stage: "s100", PPID: &n, StartTicks: &ticks, Comm: ptr("VLLM) x"), Exe: ptr("/opt/py/bin/python3.11"),
		CommandLine: []string{"/venv/bin/python3", "/venv/bin/vllm-omni", "serve", "Qwen/Qwen3-Omni", "--omni", "--revision", "main", "--api-key", "HIDDEN"},
		Environment: map[string]string{"HF_HOME": "/cache", "HF_HUB_OFFLINE": "1", "VLLM_API_KEY": "REDACTED", "VLLM_URL": "http://HIDDEN@x", "LD_PRELOAD": ""},
		Threads:     &threads, Nice: &nice, CPUsAllowed: ptr("0-3"), MemsAllowed: ptr("0"),
		Container: &Container{ID: strings.Repeat("ab", 32)},
	}
	got := l.Processes[0]
	if reason := got.Unmeasured["container.image_digest"]; reason == "" {
		t.Errorf("no reason for the image: %v", got.Unmeasured)
	}
	got.Cgroup, got.Unmeasured = nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	stage := l.Processes[1]
	if stage.Environment != nil || !strings.Contains(stage.Unmeasured["environment"], "title") || stage.Unmeasured["container"] == "" {
		t.Errorf("%+v", stage)
	}
	if m := l.Models; len(m) != 1 || m[0].ID != "Qwen/Qwen3-Omni" || m[0].RevisionSource != "cache" || *m[0].Revision != commitB {
		t.Errorf("%+v", m)
	}
}

// Null is never without its reason, for any process.
func TestEveryNullHasItsReason(t *testing.T) {
	f := twoVersions(t)
	l := f.read(100, 101, 999)
	for _, p := range l.Processes {
		hosttest.Holds(t, p, p.Unmeasured, "")
		if p.Cgroup != nil {
			hosttest.Holds(t, *p.Cgroup, p.Unmeasured, "cgroup.")
		}
		if p.Container != nil {
			hosttest.Holds(t, *p.Container, p.Unmeasured, "container.")
		}
	}
	hosttest.Holds(t, l.Host, l.Unmeasured, "host.")
	hosttest.Holds(t, l.GPU, l.Unmeasured, "gpu.")
	for _, m := range l.Models {
		hosttest.Holds(t, m, m.Unmeasured, "")
	}
	gone := l.Processes[2]
	if gone.PPID != nil || gone.Comm != nil || !strings.Contains(gone.Unmeasured["comm"], "no such file") {
		t.Errorf("%+v", gone)
	}
	if reason := l.Unmeasured["software.nixl"]; !strings.Contains(reason, "process 999") {
		t.Errorf("nixl: %q", reason)
	}
}

func TestAnotherProcessOfThatNumber(t *testing.T) {
	f := twoVersions(t)
	c := Config{Root: f.Root(), Redact: hide, Targets: []Target{{PID: 100, StartTicks: 4712}, {PID: 101, StartTicks: 4711}}}
	l, err := Read(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if p := l.Processes[0]; p.Exe != nil || p.StartTicks != nil || !strings.Contains(p.Unmeasured["exe"], "another process") {
		t.Errorf("%+v", p)
	}
	if p := l.Processes[1]; p.Exe == nil {
		t.Errorf("%+v", p)
	}
	if got := found(l, "vllm_omni"); got != nil {
		t.Errorf("%q", got)
	}
}

func TestNothingToRedactWith(t *testing.T) {
	f := twoVersions(t)
	for name, redact := range map[string]func([]string) []string{
		"none":           nil,
		"one that loses": func(words []string) []string { return words[1:] },
	} {
		l, err := Read(t.Context(), Config{Root: f.Root(), Redact: redact, Targets: []Target{{PID: 100}}})
		if err != nil {
			t.Fatal(err)
		}
		p := l.Processes[0]
		if p.CommandLine != nil || p.Environment != nil || len(l.Models) != 0 {
			t.Errorf("%s: %q %q %v", name, p.CommandLine, p.Environment, l.Models)
		}
		for _, reason := range []string{p.Unmeasured["command_line"], p.Unmeasured["environment"], l.Unmeasured["models"]} {
			if reason == "" || strings.Contains(reason, "sekret") {
				t.Errorf("%s: reason %q", name, reason)
			}
		}
		if len(l.Software) == 0 {
			t.Errorf("%s: no software", name)
		}
	}
}

func TestNoTargets(t *testing.T) {
	l := newFixture(t).read()
	for _, name := range []string{"models", "software.python", "software.pytorch", "software.server"} {
		if !strings.Contains(l.Unmeasured[name], "no process of a server was given") {
			t.Errorf("%s: %q", name, l.Unmeasured[name])
		}
	}
	if l.Software == nil || l.Processes == nil || l.Models == nil || l.Sites == nil {
		t.Errorf("lists are empty, not null: %+v", l)
	}
	if l.MonoNS == 0 || l.WallNS == 0 {
		t.Errorf("taken at %d, %d", l.WallNS, l.MonoNS)
	}
}

func TestTooManyTargets(t *testing.T) {
	f := newFixture(t)
	l, err := Read(t.Context(), Config{Root: f.Root(), Targets: make([]Target, maxTargets+1)})
	if err != nil || len(l.Processes) != maxTargets || !strings.Contains(l.Unmeasured["processes"], "513 processes") {
		t.Errorf("%d processes, %q, %v", len(l.Processes), l.Unmeasured["processes"], err)
	}
}

func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Read(ctx, Config{Root: host.Root(t.TempDir()), SkipGPU: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
