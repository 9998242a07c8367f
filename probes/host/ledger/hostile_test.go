package ledger

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/probes/host"
)

// A site-packages that somebody made to harm: it is read as far as it is sound, and
// nothing of it leaves its container.
func TestHostileSite(t *testing.T) {
	f := newFixture(t)
	const site = "box/v/lib/python3.12/site-packages"
	f.dist(site, "torch", "2.9.0")
	f.dist("secret/lib/python3.12/site-packages", "vllm-omni", "6.6.6")
	f.Link("../../../../../secret/lib/python3.12/site-packages/vllm-omni-6.6.6.dist-info", site+"/vllm_omni-6.6.6.dist-info")
	f.Link(filepath.Join(f.Dir, "secret/lib/python3.12/site-packages/vllm-omni-6.6.6.dist-info"), site+"/vllm_omni-6.6.7.dist-info")
	f.Link("self-1.0.dist-info", site+"/self-1.0.dist-info")
	f.Link("/secret/lib/python3.12/site-packages", "box/secret/lib/python3.12/site-packages")
	f.Write(site+"/a.pth", "../../../../../../secret/lib/python3.12/site-packages\n"+filepath.Join(f.Dir, "secret/lib/python3.12/site-packages")+"\nimport os\n")
	f.Write(site+"/nixl-1.0.dist-info/METADATA", "Name: nixl\nVersion: <script>alert(1)</script>\n")
	f.Write(site+"/ray-2.0.dist-info/METADATA", "\xff\xfe\x00garbage")
	f.Write(site+"/pyzmq-27.0.dist-info/METADATA/x", "a folder")
	f.Write(site+"/we\xff\xfeird-1.dist-info/METADATA", "Name: we\xffird\nVersion: 1\n")
	f.Write(site+"/numpy-2.0.dist-info/direct_url.json", strings.Repeat("[", 60<<10))
	f.Write(site+"/numpy-2.0.dist-info/METADATA", "")
	if err := syscall.Mkfifo(filepath.Join(f.Dir, site, "fifo-3.0.dist-info"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A file of a terabyte with the fields in front.
	f.Write(site+"/uvloop-0.1.dist-info/METADATA", "Name: uvloop\nVersion: 0.22\n")
	if err := os.Truncate(filepath.Join(f.Dir, site, "uvloop-0.1.dist-info/METADATA"), 1<<40); err != nil {
		t.Fatal(err)
	}
	f.process(procSpec{
		pid: 5, container: "box", exe: "/opt/py/bin/python3.12", args: []string{"\xff\xfe", strings.Repeat("y", 10<<10)},
		env:  []string{"VLLM_A=" + strings.Repeat("z", 10<<10), "VLLM_\xff=1", "=1", "NCCL_B=\xff", "PYTHONPATH=/v/../../../secret/lib/python3.12/site-packages:relative:/none"},
		maps: []string{"/v/lib/python3.12/site-packages/torch/x.so", "/we\xffird/libnccl.so.2", strings.Repeat("/n", 5000) + "/libcuda.so.1.2"},
	})
	l := f.read(5)
	for name, want := range map[string][]string{
		"pytorch":   {"2.9.0 mapped metadata [5]"},
		"vllm_omni": {"6.6.6 installed folder_name [5]", "6.6.7 installed folder_name [5]"}, // names in the site itself
		"nixl":      {"1.0 installed folder_name [5]"},
		"ray":       {"2.0 installed folder_name [5]"},
		"pyzmq":     {"27.0 installed folder_name [5]"},
		"numpy":     {"2.0 installed folder_name [5]"},
		"uvloop":    {"0.22 installed metadata [5]"},
		"nccl":      {"null mapped file_name [5] | " + errNoVersion.Error()},
		"driver":    {"1.2 mapped file_name [5]"},
	} {
		if diff := cmp.Diff(want, found(l, name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if len(l.Sites) != 1 {
		t.Errorf("%d sites: %+v", len(l.Sites), l.Sites)
	}
	text, err := json.Marshal(l)
	if err != nil || !utf8.Valid(text) || len(text) > 40<<10 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	p := l.Processes[0]
	if a := p.CommandLine[1]; len(a) > maxArg+40 || !strings.HasSuffix(a, "(6144 bytes more)") {
		t.Errorf("an argument of %d bytes", len(a))
	}
	if len(p.Environment["VLLM_A"]) > maxEnvValue+40 || p.Environment["NCCL_B"] != "\ufffd" || len(p.Environment) != 3 {
		t.Errorf("%d variables", len(p.Environment))
	}
}

// More distributions than anybody has.
func TestManyDistributions(t *testing.T) {
	f := newFixture(t)
	for i := range maxDists + 5 {
		f.Write(fmt.Sprintf("box/v/lib/python3.12/site-packages/d%05d-1.dist-info/x", i), "")
	}
	f.process(procSpec{pid: 5, container: "box", exe: "/opt/py/bin/python3.12", maps: []string{"/v/lib/python3.12/site-packages/x.so"}})
	l := f.read(5)
	if len(l.Sites) != 1 || len(l.Sites[0].Packages) != maxDists || l.Sites[0].Cut == "" {
		t.Errorf("%d sites, %d packages", len(l.Sites), len(l.Sites[0].Packages))
	}
}

// Files that are longer than they may be are not half read.
func TestLongFiles(t *testing.T) {
	f := newFixture(t)
	f.process(procSpec{pid: 5, container: "box", exe: "/opt/py/bin/python3.12"})
	f.Write("box/x", "")
	for name, limit := range map[string]int64{"cmdline": maxCommand, "environ": maxEnviron, "maps": maxMaps, "cgroup": maxCgroup, "status": maxStatus} {
		if err := os.Truncate(filepath.Join(f.Dir, "proc/5", name), limit+1); err != nil {
			t.Fatal(err)
		}
	}
	p := f.read(5).Processes[0]
	for _, name := range []string{"command_line", "environment", "mappings", "cgroup.path", "cpus_allowed"} {
		if !strings.Contains(p.Unmeasured[name], host.ErrTooLong.Error()) {
			t.Errorf("%s: %q", name, p.Unmeasured[name])
		}
	}
}
