package ledger

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/omnitap/omnitap/probes/host"
	"github.com/omnitap/omnitap/probes/host/internal/hosttest"
)

// fixture is a machine in a folder: proc/, sys/, and a file system for each container.
type fixture struct {
	*hosttest.Tree
	t *testing.T
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{hosttest.New(t), t}
	f.Write("proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	return f
}

// procSpec is what the tests set of a process.
type procSpec struct {
	pid       int
	container string // the folder that is its root
	exe, cwd  string
	args      []string
	env       []string
	maps      []string
	cgroup    string
}

func (f *fixture) process(p procSpec) {
	f.t.Helper()
	dir := fmt.Sprintf("proc/%d/", p.pid)
	f.Write(dir+"stat", fmt.Sprintf("%d (VLLM) x) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 -5 17 0 4711 0 0\n", p.pid))
	f.Write(dir+"status", "Name:\tVLLM\nCpus_allowed_list:\t0-3\nMems_allowed_list:\t0\n")
	f.Write(dir+"cmdline", strings.Join(p.args, "\x00")+"\x00")
	f.Write(dir+"environ", strings.Join(p.env, "\x00")+"\x00")
	if p.cgroup == "" {
		p.cgroup = "0::/\n"
	}
	f.Write(dir+"cgroup", p.cgroup)
	maps := ""
	for i, name := range p.maps {
		maps += fmt.Sprintf("7f%010x-7f%010x r-xp 00000000 fe:00 %d                      %s\n", i, i+1, 100+i, name)
	}
	f.Write(dir+"maps", maps+"7fff0000-7fff1000 r-xp 00000000 00:00 0                          [vdso]\n")
	f.Link(filepath.Join(f.Dir, p.container), dir+"root")
	f.Link(p.exe, dir+"exe")
	if p.cwd != "" {
		f.Link(p.cwd, dir+"cwd")
	}
}

// dist installs a distribution.
func (f *fixture) dist(site, name, version string) {
	f.t.Helper()
	f.Write(site+"/"+name+"-"+version+".dist-info/METADATA", "Metadata-Version: 2.1\nName: "+name+"\nVersion: "+version+"\n\nVersion: 0\n")
}

// hide is a redactor that the tests can see the work of.
func hide(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = strings.ReplaceAll(w, "sekret", "HIDDEN")
	}
	return out
}

// clocks are of a machine that was booted so long from now.
func clocks(from time.Duration) host.Clocks {
	mono := func() int64 { return int64(time.Second) }
	return host.Clocks{Mono: mono, Boot: mono, Wall: func() int64 { return time.Now().Add(from).UnixNano() }}
}

// read reads the ledger, later than all that the fixture has installed.
func (f *fixture) read(pids ...int) Ledger {
	f.t.Helper()
	return f.readAt(time.Hour, pids...)
}

func (f *fixture) readAt(from time.Duration, pids ...int) Ledger {
	f.t.Helper()
	c := Config{Root: f.Root(), Redact: hide, Clocks: clocks(from)}
	for _, pid := range pids {
		c.Targets = append(c.Targets, Target{PID: pid, Role: "stage", Stage: fmt.Sprint("s", pid)})
	}
	l, err := Read(f.t.Context(), c)
	if err != nil {
		f.t.Fatal(err)
	}
	return l
}

// found writes down a component's findings, one a line.
func found(l Ledger, name string) (out []string) {
	for _, c := range l.Software {
		if c.Name != name {
			continue
		}
		for _, f := range c.Found {
			version := "null"
			if f.Version != nil {
				version = *f.Version
			}
			line := fmt.Sprint(version, " ", f.Evidence, " ", f.Source, " ", f.PIDs)
			for _, more := range []string{f.Commit, f.Editable, f.Stale, f.Reason} {
				if more != "" {
					line += " | " + more
				}
			}
			out = append(out, line)
		}
	}
	return out
}
