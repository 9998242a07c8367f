//go:build linux && amd64

package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/probes/internal/live"

	"github.com/omnitap/omnitap/probes/host/internal/hosttest"
)

// A file with the symbol that CPython exports, made by the compiler.
func TestPythonBySymbol(t *testing.T) {
	lib := live.Compile(t, "libpython3.11.so.1.0", "const unsigned long Py_Version = 0x030b09f0;\n", "-shared", "-fPIC", "-nostdlib")
	none := live.Compile(t, "libnone.so", "const unsigned long Other = 1;\n", "-shared", "-fPIC", "-nostdlib")
	good, err := os.ReadFile(lib)
	if err != nil {
		t.Fatal(err)
	}
	without, err := os.ReadFile(none)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name       string
		lib, exe   []byte
		short      string
		want, more string
	}{
		{"in the library", good, nil, "3.11", "3.11.9 executable symbol [7]", ""},
		{"in the executable", nil, good, "3.11", "3.11.9 executable symbol [7]", ""},
		{"in neither", without, without, "3.10", "3.10 executable file_name [7]", "only the first two numbers are known"},
		{"no ELF file", []byte("#!/bin/sh\n"), nil, "3.11", "3.11 executable file_name [7]", "only the first two"},
		{"a cut one", good[:len(good)/2], good[:100], "3.11", "3.11 executable file_name [7]", "only the first two"},
		{"a broken one", bytes.ReplaceAll(good, []byte{0, 0, 0, 0}, []byte{255, 255, 255, 127}), nil, "3.11", "3.11 executable file_name [7]", "only the first two"},
	} {
		f := newFixture(t)
		f.Write("box/opt/py/lib/libpython"+test.short+".so.1.0", string(test.lib))
		f.Write("exe/python"+test.short, string(test.exe))
		f.process(procSpec{
			pid: 7, container: "box", exe: filepath.Join(f.Dir, "exe/python"+test.short),
			maps: []string{"/opt/py/lib/libpython" + test.short + ".so.1.0"},
		})
		got := found(f.read(7), "python")
		if len(got) != 1 || !strings.HasPrefix(got[0], test.want) || !strings.Contains(got[0], test.more) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// FuzzELFVersion: whatever a file holds, it is a version or an error, and no panic.
func FuzzELFVersion(f *testing.F) {
	small := live.Compile(f, "x.so", "const unsigned long Py_Version = 0x030b09f0;\n",
		"-shared", "-fPIC", "-nostdlib", "-s", "-Wl,-z,noseparate-code", "-Wl,--build-id=none")
	seed, err := os.ReadFile(small)
	if err != nil {
		f.Fatal(err)
	}
	if v, err := elfVersion(bytes.NewReader(seed)); v != "3.11.9" {
		f.Fatalf("the seed is %q, %v", v, err)
	}
	f.Add(seed)
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := elfVersion(bytes.NewReader(b)); (v == "") == (err == nil) {
			t.Errorf("%q, %v", v, err)
		}
	})
}

// python3 starts a Python that has loaded what a server has: a package of Python alone,
// libraries of NVIDIA's names (empty ones), and says so.
func python3(t testing.TB, env ...string) (process *live.Process, site, version string) {
	t.Helper()
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(interpreter, "-c", "import sys; print(sys.executable); print(sys.version.split()[0])").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(out))
	if len(lines) != 2 {
		t.Fatalf("%q", out)
	}
	interpreter, version = lines[0], lines[1] // the interpreter itself, not a script in front of it
	site = filepath.Join(t.TempDir(), "site-packages")
	install := func(name, version string) {
		dir := filepath.Join(site, name+"-"+version+".dist-info")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "METADATA"), []byte("Name: "+name+"\nVersion: "+version+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	install("vllm_omni", "0.26.0")
	install("nvidia_nccl_cu12", "2.27.5")
	nccl := filepath.Join(site, "nvidia/nccl/lib/libnccl.so.2")
	cuda := filepath.Join(site, "../libcuda.so.580.159.04")
	empty, err := os.ReadFile(live.Compile(t, "x.so", "int x(void) { return 1; }\n", "-shared", "-fPIC", "-nostdlib"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{nccl, cuda} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, empty, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	script := "import sys, json, ctypes\nctypes.CDLL(" + fmt.Sprintf("%q", nccl) + ")\nctypes.CDLL(" + fmt.Sprintf("%q", cuda) + ")\n" +
		"print('ready', flush=True)\nfor line in sys.stdin: print(line, flush=True)\n"
	env = append(env, "PYTHONPATH="+site, "HF_HUB_OFFLINE=1", "SGLANG_API_KEY=abc123")
	return live.Run(t, []string{interpreter, "-c", script, "serve", "org/model", "--api-key", "sekret"}, env), site, version
}

// TestLivePython reads a running Python: its own word for its version is the truth.
func TestLivePython(t *testing.T) {
	p, site, version := python3(t)
	l, err := Read(t.Context(), Config{Redact: hide, Targets: []Target{{PID: p.Pid, Role: "stage", Stage: "talker"}, {PID: os.Getpid(), Role: "api"}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"python":    fmt.Sprintf("%s executable symbol [%d]", version, p.Pid),
		"nccl":      fmt.Sprintf("2.27.5 mapped metadata [%d]", p.Pid),
		"vllm_omni": fmt.Sprintf("0.26.0 installed metadata [%d]", p.Pid),
		"driver":    fmt.Sprintf("580.159.04 mapped file_name [%d]", p.Pid),
	} {
		if diff := cmp.Diff([]string{want}, found(l, name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	has := false
	for _, s := range l.Sites {
		has = has || s.Path == site && s.Packages["vllm-omni"] == "0.26.0"
	}
	if !has {
		t.Errorf("no %s in %+v", site, l.Sites)
	}
	py, own := l.Processes[0], l.Processes[1]
	if py.Environment["HF_HUB_OFFLINE"] != "1" || py.Environment["SGLANG_API_KEY"] != "REDACTED" || py.CommandLine[6] != "HIDDEN" || py.Stage != "talker" {
		t.Errorf("%+v", py)
	}
	if got := briefModels(l); len(got) != 1 || !strings.HasPrefix(got[0], fmt.Sprintf("org/model command_line [%d]", p.Pid)) {
		t.Errorf("%q", got)
	}
	if *own.PPID != os.Getppid() || *own.Threads < 1 || own.Cgroup.Path == nil || *own.Exe == "" || own.CPUsAllowed == nil {
		t.Errorf("%+v", own)
	}
	for _, v := range []any{py, own} {
		p := v.(Process)
		hosttest.Holds(t, p, p.Unmeasured, "")
		hosttest.Holds(t, *p.Cgroup, p.Unmeasured, "cgroup.")
	}
	hosttest.Holds(t, l.Host, l.Unmeasured, "host.")
	hosttest.Holds(t, l.GPU, l.Unmeasured, "gpu.")
	if boot := time.Unix(0, *l.Host.BootWallNS); time.Since(boot) < 0 || l.Host.KernelRelease == nil || *l.Host.MemoryBytes < 1<<20 {
		t.Errorf("%+v, booted %v", l.Host, boot)
	}
	text, err := json.Marshal(l)
	if err != nil || bytes.Contains(text, []byte("abc123")) || bytes.Contains(text, []byte("sekret")) {
		t.Errorf("%v: %s", err, text)
	}
}

// TestLiveReplaced: a library that was removed or replaced under a running process may be
// another version than the one on the disk now.
func TestLiveReplaced(t *testing.T) {
	for name, replace := range map[string]func(string) error{
		"removed": os.Remove,
		"replaced": func(file string) error { // as installers do it
			if err := os.Rename(file, file+".old"); err != nil {
				return err
			}
			return os.Remove(file + ".old")
		},
	} {
		p, site, _ := python3(t)
		if err := replace(filepath.Join(site, "nvidia/nccl/lib/libnccl.so.2")); err != nil {
			t.Fatal(err)
		}
		l, err := Read(t.Context(), Config{Redact: hide, SkipGPU: true, Targets: []Target{{PID: p.Pid}}})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{fmt.Sprintf("2.27.5 mapped metadata [%d] | a file of it was replaced or removed since the process mapped it", p.Pid)}
		if diff := cmp.Diff(want, found(l, "nccl")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// BenchmarkRead is a ledger of one process of Python.
func BenchmarkRead(b *testing.B) {
	p, _, _ := python3(b)
	c := Config{Redact: hide, SkipGPU: true, Targets: []Target{{PID: p.Pid}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
}
