package ledger

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/probes/host"
	"github.com/omnitap/omnitap/probes/host/internal/null"
)

// Component is a part of the software, and each version of it that was found.
type Component struct {
	// Name is of this package's: pytorch, cuda_runtime, nccl, …
	Name  string    `json:"name"`
	Found []Finding `json:"found"`
}

// Finding is one version of a component, found in one place in one way.
type Finding struct {
	// Version is nil where a file is mapped that tells none; Reason then says so.
	Version *string `json:"version"`
	Reason  string  `json:"reason,omitempty"`
	// Source is where the version stands: "metadata" (of the distribution),
	// "folder_name", "file_name", "symbol" (of the executable), "header", "venv".
	Source string `json:"source"`
	// Evidence is "mapped" where the processes map a file of it, and so use it,
	// "executable", or "installed": it is where they would load it from.
	Evidence string `json:"evidence"`
	// Path is the file or folder, as the processes see it.
	Path string `json:"path"`
	PIDs []int  `json:"pids"`
	// Commit is the revision that it was installed from, or, of a folder that it is
	// developed in (Editable), the one that is checked out there.
	Commit   string `json:"commit,omitempty"`
	Editable string `json:"editable,omitempty"`
	// Stale says why the processes may run another version than the one on the disk.
	Stale string `json:"stale,omitempty"`
}

// Sources and kinds of evidence.
const (
	sourceMetadata = "metadata"
	sourceFolder   = "folder_name"
	sourceFile     = "file_name"

	evidenceMapped     = "mapped"
	evidenceInstalled  = "installed"
	evidenceExecutable = "executable"
)

// component says by what a component is known.
type component struct {
	name string
	// dists are names of distributions (canonical; "*" at the end for any rest).
	dists []string
	// folders are folders in a site-packages that are the component's alone, libs the
	// names of its libraries up to ".so".
	folders, libs []string
	// must says that the contract asks for it.
	must bool
}

// driver is a library of the driver's and no distribution.
const driver = "driver"

var components = []component{
	{name: "cuda_runtime", dists: []string{"nvidia-cuda-runtime*"}, folders: []string{"nvidia/cuda_runtime"}, libs: []string{"libcudart"}, must: true},
	{name: "cublas", dists: []string{"nvidia-cublas*"}, folders: []string{"nvidia/cublas"}, libs: []string{"libcublas"}},
	{name: "cudnn", dists: []string{"nvidia-cudnn*"}, folders: []string{"nvidia/cudnn"}, libs: []string{"libcudnn"}},
	{name: driver, libs: []string{"libcuda"}, must: true},
	{name: "flash_attn", dists: []string{"flash-attn*"}, folders: []string{"flash_attn"}},
	{name: "flashinfer", dists: []string{"flashinfer-python", "flashinfer"}, folders: []string{"flashinfer"}},
	{name: "huggingface_hub", dists: []string{"huggingface-hub"}},
	{name: "mooncake", dists: []string{"mooncake-transfer-engine*"}, folders: []string{"mooncake"}, must: true},
	{name: "msgspec", dists: []string{"msgspec"}, folders: []string{"msgspec"}},
	{name: "nccl", dists: []string{"nvidia-nccl*"}, folders: []string{"nvidia/nccl"}, libs: []string{"libnccl"}, must: true},
	{name: "nixl", dists: []string{"nixl", "nixl-cu*"}, folders: []string{"nixl", "nixl_cu12", "nixl_cu13"}, libs: []string{"libnixl"}, must: true},
	{name: "numpy", dists: []string{"numpy"}, folders: []string{"numpy"}},
	{name: "nvshmem", dists: []string{"nvidia-nvshmem*"}, folders: []string{"nvidia/nvshmem"}, libs: []string{"libnvshmem_host"}},
	{name: "pytorch", dists: []string{"torch"}, folders: []string{"torch"}, libs: []string{"libtorch_python"}, must: true},
	{name: "pyzmq", dists: []string{"pyzmq"}, folders: []string{"zmq", "pyzmq.libs"}},
	{name: "ray", dists: []string{"ray"}, folders: []string{"ray"}},
	{name: "safetensors", dists: []string{"safetensors"}, folders: []string{"safetensors"}},
	{name: "sgl_kernel", dists: []string{"sgl-kernel"}, folders: []string{"sgl_kernel"}},
	{name: "sglang", dists: []string{"sglang"}, folders: []string{"sglang"}},
	{name: "sglang_omni", dists: []string{"sglang-omni"}, folders: []string{"sglang_omni"}},
	{name: "tokenizers", dists: []string{"tokenizers"}, folders: []string{"tokenizers"}},
	{name: "torchaudio", dists: []string{"torchaudio"}, folders: []string{"torchaudio"}},
	{name: "torchvision", dists: []string{"torchvision"}, folders: []string{"torchvision"}},
	{name: "transformers", dists: []string{"transformers"}},
	{name: "triton", dists: []string{"triton", "pytorch-triton"}, folders: []string{"triton"}},
	{name: "ucx", dists: []string{"libucx-cu*"}, folders: []string{"libucx"}, libs: []string{"libucp"}},
	{name: "uvicorn", dists: []string{"uvicorn"}},
	{name: "uvloop", dists: []string{"uvloop"}, folders: []string{"uvloop"}},
	{name: "vllm", dists: []string{"vllm"}, folders: []string{"vllm"}},
	{name: "vllm_omni", dists: []string{"vllm-omni"}, folders: []string{"vllm_omni"}},
}

// python is the component that python.go finds.
const python = "python"

// software collects findings.
type software struct {
	found map[string][]Finding
	// blinds are why processes could not be looked at.
	blinds map[int]string
}

func newSoftware() *software {
	return &software{found: map[string][]Finding{}, blinds: map[int]string{}}
}

// blind says that a process could not be looked at.
func (s *software) blind(pid int, err error) { s.blinds[pid] = host.Reason(err) }

// add puts a finding down for a process. The same finding of more processes is one.
func (s *software) add(name string, f Finding, pid int) {
	for i := range s.found[name] {
		g := &s.found[name][i]
		if same(g, &f) {
			if !slices.Contains(g.PIDs, pid) {
				g.PIDs = append(g.PIDs, pid)
			}
			return
		}
	}
	f.PIDs = []int{pid}
	s.found[name] = append(s.found[name], f)
}

func same(a, b *Finding) bool {
	if (a.Version == nil) != (b.Version == nil) || a.Version != nil && *a.Version != *b.Version {
		return false
	}
	return a.Source == b.Source && a.Evidence == b.Evidence && a.Path == b.Path && a.Stale == b.Stale && a.Reason == b.Reason
}

// list is what was found, by name. What the contract asks for and was not found is put
// down with the reason.
func (s *software) list(n null.Reasons, targets int) []Component {
	out := []Component{}
	for name, found := range s.found {
		for i := range found {
			slices.Sort(found[i].PIDs)
		}
		slices.SortFunc(found, func(a, b Finding) int {
			return strings.Compare(a.Evidence+a.Path+a.Source, b.Evidence+b.Path+b.Source)
		})
		slices.SortStableFunc(found, func(a, b Finding) int { return rank(a.Evidence) - rank(b.Evidence) })
		out = append(out, Component{Name: name, Found: found})
	}
	slices.SortFunc(out, func(a, b Component) int { return strings.Compare(a.Name, b.Name) })
	reason := "no process maps a file of it, and no site-packages that a process uses has it"
	for _, pid := range slices.Sorted(maps.Keys(s.blinds)) {
		reason = fmt.Sprintf("%s, as far as they could be read; process %d: %s", reason, pid, s.blinds[pid])
		break
	}
	if targets == 0 {
		reason = "no process of a server was given"
	}
	must := []string{python}
	for _, c := range components {
		if c.must {
			must = append(must, c.name)
		}
	}
	for _, name := range must {
		if len(s.found[name]) == 0 {
			n["software."+name] = reason
		}
	}
	if len(s.found["vllm_omni"])+len(s.found["vllm"])+len(s.found["sglang_omni"])+len(s.found["sglang"]) == 0 {
		n["software.server"] = reason
	}
	return out
}

// rank sorts the surest evidence first.
func rank(evidence string) int {
	if evidence == evidenceInstalled {
		return 1
	}
	return 0
}

// libraries looks for each component in one process.
func (r *reader) libraries(s *subject) {
	for i := range components {
		c := &components[i]
		known := map[string]bool{} // mapped files that a distribution explains
		for _, st := range s.sites {
			for j := range st.dists {
				if d := &st.dists[j]; c.isDist(d.name) {
					r.soft.add(c.name, fromDist(c, st, d, s, known), s.pid)
				}
			}
		}
		for _, f := range s.files {
			if !known[f.path] && c.isLib(f.path) {
				r.soft.add(c.name, fromFile(f), s.pid)
			}
		}
	}
}

// fromDist is the finding of an installed distribution, and marks the mapped files that
// it explains.
func fromDist(c *component, st *site, d *dist, s *subject, known map[string]bool) Finding {
	f := Finding{
		Version: &d.version, Source: d.source, Evidence: evidenceInstalled, Path: null.Text(d.folder), Commit: d.commit, Editable: null.Text(d.editable),
	}
	for _, m := range s.files {
		if !c.owns(st, d, s.jail.Name(m.path)) {
			continue
		}
		f.Evidence = evidenceMapped
		known[m.path] = true
		if m.deleted {
			f.Stale = "a file of it was replaced or removed since the process mapped it"
		}
	}
	if f.Stale == "" && d.changed != 0 && s.start != 0 && d.changed > s.start+1 {
		f.Stale = "it was installed or changed after the process had started"
	}
	return f
}

// owns says whether a mapped file belongs to a distribution of the component.
func (c *component) owns(st *site, d *dist, file string) bool {
	if d.editable != "" && strings.HasPrefix(file, d.editable+"/") {
		return true
	}
	rest, ok := strings.CutPrefix(file, st.path+"/")
	if !ok {
		return false
	}
	return c.isLib(file) || slices.ContainsFunc(c.folders, func(folder string) bool { return strings.HasPrefix(rest, folder+"/") })
}

func (c *component) isDist(name string) bool {
	return slices.ContainsFunc(c.dists, func(d string) bool {
		stem, any := strings.CutSuffix(d, "*")
		return name == d || any && strings.HasPrefix(name, stem)
	})
}

// soName splits the name of a library: "libzmq-c0d5.so.5.2" is libzmq, 5.2.
var soName = regexp.MustCompile(`^(lib[A-Za-z0-9_+]+)(?:-[0-9a-f]{8,})?\.so(?:\.([0-9]+(?:\.[0-9]+)*))?$`)

func (c *component) isLib(file string) bool {
	m := soName.FindStringSubmatch(path.Base(file))
	return m != nil && slices.Contains(c.libs, m[1])
}

// fromFile is the finding of a mapped library that no distribution explains. One number
// is the interface's and no version: libcudart.so.13.
func fromFile(f mapped) Finding {
	out := Finding{Source: sourceFile, Evidence: evidenceMapped, Path: null.Text(f.path)}
	if f.deleted {
		out.Stale = "the file was replaced or removed since the process mapped it"
	}
	m := soName.FindStringSubmatch(path.Base(f.path))
	if version := m[2]; strings.Contains(version, ".") {
		out.Version = &version
	} else {
		out.Reason = errNoVersion.Error()
	}
	return out
}

var errNoVersion = errors.New("the file's name has no version, and no distribution beside it has one")
