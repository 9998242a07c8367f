package ledger

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMetadata(t *testing.T) {
	for in, want := range map[string][2]string{
		"Metadata-Version: 2.1\nName: Torch\nVersion: 2.9.0+cu128\n\nName: no\n": {"Torch", "2.9.0+cu128"},
		"name:x\r\nVERSION:  1.0.post1  \r\n\r\n":                                {"x", "1.0.post1"},
		"Name: a\nName: b\nVersion: 1\nVersion: 2\n":                             {"a", "1"},
		"":                                     {"", ""},
		"\nName: x\nVersion: 1\n":              {"", ""},
		"Name: -x\nVersion: 1 2\n":             {"", ""},
		"Name: x\nVersion: 1\x00\n":            {"x", ""},
		"Name: " + strings.Repeat("x", 200):    {"", ""},
		"Version: " + strings.Repeat("1", 200): {"", ""},
		"Name x\nVersion 1\n":                  {"", ""},
	} {
		name, version := parseMetadata([]byte(in))
		if got := [2]string{name, version}; got != want {
			t.Errorf("parseMetadata(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestParseFolder(t *testing.T) {
	for in, want := range map[string][3]string{
		"torch-2.9.0.dist-info":             {"torch", "2.9.0", "true"},
		"nvidia_nccl_cu12-2.27.5.dist-info": {"nvidia_nccl_cu12", "2.27.5", "true"},
		"six-1.16.0-py3.11.egg-info":        {"six", "1.16.0", "true"},
		"vllm-0.11.0+cu128-py3.12.egg-info": {"vllm", "0.11.0+cu128", "true"},
		"vllm.egg-info":                     {"vllm", "", "true"},
		"torch":                             {"", "", "false"},
		".dist-info":                        {"", "", "false"},
		"-1.dist-info":                      {"", "", "false"},
		"a b-1.dist-info":                   {"", "", "false"},
		"a-1 2.dist-info":                   {"a", "", "true"},
		"a-" + strings.Repeat("1", 200) + ".dist-info": {"a", "", "true"},
	} {
		name, version, ok := parseFolder(in)
		if got := [3]string{name, version, map[bool]string{true: "true", false: "false"}[ok]}; got != want {
			t.Errorf("parseFolder(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestParseMaps(t *testing.T) {
	in := `55d0c0a00000-55d0c0a01000 r--p 00000000 fe:00 18500                      /opt/python/bin/python3.11
55d0c0a01000-55d0c0a02000 r-xp 00001000 fe:00 18500                      /opt/python/bin/python3.11
7f0000000000-7f0000001000 rw-p 00000000 00:00 0 
7f0000001000-7f0000002000 r-xp 00000000 00:00 0                          [vdso]
7f0000002000-7f0000003000 r--p 00004000 fe:00 791234                     /cache/models--a--b/blobs/x y (deleted)
7f0000003000-7f0000004000 rw-p 00008000 00:00 0                          /not/a file
7f0000005000-7f0000006000 r-xp
nonsense /x
`
	want := []mapped{{path: "/opt/python/bin/python3.11"}, {path: "/cache/models--a--b/blobs/x y", deleted: true}}
	if diff := cmp.Diff(want, parseMaps([]byte(in)), cmp.AllowUnexported(mapped{})); diff != "" {
		t.Error(diff)
	}
}

func TestParseEnviron(t *testing.T) {
	in := strings.Repeat("\x00", 1500) + "A=[1] =x\x00PATH=/bin\x00B\x00A=2\x00=x\x00C=\x00"
	want := map[string]string{"A": "[1] =x", "PATH": "/bin", "C": ""}
	if diff := cmp.Diff(want, parseEnviron([]byte(in))); diff != "" {
		t.Error(diff)
	}
}

func TestEnvironThatMatters(t *testing.T) {
	for name, want := range map[string]bool{
		"VLLM_USE_V1": true, "SGLANG_X": true, "CUDA_VISIBLE_DEVICES": true, "NCCL_DEBUG": true, "OMP_NUM_THREADS": true,
		"PYTORCH_CUDA_ALLOC_CONF": true, "TORCHINDUCTOR_CACHE_DIR": true, "MOONCAKE_MASTER": true, "HF_HUB_OFFLINE": true,
		"PYTHONHASHSEED": true, "LD_PRELOAD": true, "PATH": false, "HF_TOKEN": false, "HOME": false, "XVLLM_": false,
		"VLLM_\xff": false, "VLLM_A B": false, "VLLM_" + strings.Repeat("A", 300): false, "": false,
	} {
		if got := envMatters(name); got != want {
			t.Errorf("%q matters: %v, want %v", name, got, want)
		}
	}
	for name, want := range map[string]bool{
		"VLLM_API_KEY": true, "SGLANG_TOKEN": true, "RAY_AUTH": true, "nccl_password": true,
		"VLLM_MAX_TOKENS_PER_SEC": false, "TOKENIZERS_PARALLELISM": false, "MALLOC_KEYS": false, "PYTHONHASHSEED": false,
	} {
		if got := envIsSecret(name); got != want {
			t.Errorf("%q is a secret: %v, want %v", name, got, want)
		}
	}
}

func TestHexVersion(t *testing.T) {
	for in, want := range map[uint32]string{
		0x030b07f0: "3.11.7", 0x030e00b2: "3.14.0b2", 0x030d00c1: "3.13.0rc1", 0x030c01a0: "3.12.1a0", 0x020712f0: "2.7.18",
	} {
		if got, err := hexVersion(in); err != nil || got != want {
			t.Errorf("hexVersion(%#x) = %q, %v", in, got, err)
		}
	}
	for _, in := range []uint32{0, 0xffffffff, 0x030b0700, 0x010000f0} {
		if got, err := hexVersion(in); err == nil {
			t.Errorf("hexVersion(%#x) = %q", in, got)
		}
	}
}

func TestModelArgs(t *testing.T) {
	for in, want := range map[string]namedModel{
		"vllm-omni serve Qwen/Q --omni":                         {model: "Qwen/Q"},
		"python -m vllm_omni.x serve /m --revision=r":           {model: "/m", revision: "r"},
		"sgl-omni serve --model-path a/b --served-model-name c": {model: "a/b", served: "c"},
		"x --model a --model=b":                                 {model: "b"},
		"x --model_path a --download_dir /d":                    {model: "a", cache: "/d"},
		"vllm serve pos --model flag":                           {model: "flag"},
		"vllm serve --omni":                                     {},
		"vllm serve":                                            {},
		"x --model":                                             {},
		"x --model --omni":                                      {},
		"x --models a":                                          {},
		"":                                                      {},
	} {
		if got := modelArgs(strings.Fields(in)); got != want {
			t.Errorf("%q: %+v, want %+v", in, got, want)
		}
	}
}

func TestIsDist(t *testing.T) {
	for _, c := range components {
		for _, d := range c.dists {
			if canonical(strings.TrimSuffix(d, "*")+"x") != strings.TrimSuffix(d, "*")+"x" {
				t.Errorf("%s: %q is not canonical", c.name, d)
			}
		}
		if len(c.dists)+len(c.libs) == 0 {
			t.Errorf("%s is known by nothing", c.name)
		}
	}
	c := component{dists: []string{"nvidia-nccl*", "nixl"}}
	for name, want := range map[string]bool{"nvidia-nccl-cu13": true, "nvidia-nccl": true, "nixl": true, "nixl-x": false, "nvidia": false} {
		if got := c.isDist(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestLibraries(t *testing.T) {
	c := component{libs: []string{"libcudart"}}
	for name, want := range map[string]string{
		"/a/libcudart.so.12.8.90": "12.8.90", "/a/libcudart-1a2b3c4d.so.12.8.90": "12.8.90", "/a/libcudart.so.13": "null",
		"/a/libcudart.so": "null", "/a/libcudart_static.so.1.2": "", "/a/libcudartx.so.1.2": "", "/a/libcudart.so.1.2.bak": "",
		"/libcudart.so.1.2/x": "", "": "",
	} {
		got := ""
		if c.isLib(name) {
			f := fromFile(mapped{path: name})
			got = "null"
			if f.Version != nil {
				got = *f.Version
			} else if f.Reason == "" {
				t.Errorf("%q: no reason", name)
			}
		}
		if got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("Name: torch\nVersion: 2.9.0\n"), "torch-2.9.0.dist-info")
	f.Add([]byte("7f0-7f1 r-xp 0 fe:00 7 /a (deleted)\n"), "libcuda.so.580.1")
	f.Add([]byte("30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"), "/a/../b")
	f.Add([]byte("0::/kubepods/x\n4:cpu,cpuacct:/y\n"), "/kubepods")
	f.Add([]byte("A=1\x00B=2"), "--model")
	f.Fuzz(func(t *testing.T, b []byte, s string) {
		name, version := parseMetadata(b)
		if name != "" && !distName.MatchString(name) || version != "" && !distVersion.MatchString(version) {
			t.Errorf("%q %q", name, version)
		}
		if name, _, ok := parseFolder(s); ok && name == "" {
			t.Errorf("parseFolder(%q) has no name", s)
		}
		for _, m := range parseMaps(b) {
			if !strings.HasPrefix(m.path, "/") {
				t.Errorf("%+v", m)
			}
		}
		for _, m := range parseMounts(b) {
			way, err := m.way(s)
			for _, folder := range way {
				if err == nil && strings.Contains("/"+folder+"/", "/../") && !strings.Contains(m.point, "..") {
					t.Errorf("%+v: way(%q) leads to %q", m, s, folder)
				}
			}
		}
		parseGroups(b)
		mountedID(b)
		for name := range parseEnviron(b) {
			envMatters(name)
			envIsSecret(name)
		}
		modelArgs(strings.Split(s, "\x00"))
		setting(b, s)
		if c := canonical(s); c != canonical(c) {
			t.Errorf("canonical(%q) is %q", s, c)
		}
		component{libs: []string{"libcuda"}}.check(t, s)
	})
}

func (c component) check(t *testing.T, s string) {
	t.Helper()
	if c.isLib(s) {
		if f := fromFile(mapped{path: s}); (f.Version == nil) == (f.Reason == "") {
			t.Errorf("%q: %+v", s, f)
		}
	}
}
