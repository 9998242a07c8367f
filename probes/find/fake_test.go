package find

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fake is a folder of the shape of /proc, for what cannot be had at will: pids that
// come again, and network namespaces.
type fake struct {
	t   *testing.T
	dir string
}

// proc writes one process.
type proc struct {
	pid, ppid, start int
	comm, args       string
	netns            int
	sockets          []int // inodes of its descriptors
	unix, tcp        string
	env              string
}

func newFake(t *testing.T, processes ...proc) *fake {
	t.Helper()
	f := &fake{t, t.TempDir()}
	f.put(proc{pid: os.Getpid(), ppid: 1, start: 1, comm: "self", netns: 1})
	for _, p := range processes {
		f.put(p)
	}
	return f
}

func (f *fake) put(p proc) {
	f.t.Helper()
	dir := filepath.Join(f.dir, fmt.Sprint(p.pid))
	f.remove(p.pid)
	for _, sub := range []string{"net", "fd", "ns"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			f.t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"stat":     fmt.Sprintf("%d (%s) S %d 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n", p.pid, p.comm, p.ppid, p.start),
		"cmdline":  strings.ReplaceAll(p.args, "|", "\x00") + "\x00",
		"environ":  p.env,
		"maps":     "",
		"net/unix": p.unix,
		"net/tcp":  p.tcp,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
	links := map[string]string{"ns/net": fmt.Sprintf("net:[%d]", p.netns)}
	for i, inode := range p.sockets {
		links[fmt.Sprintf("fd/%d", i)] = fmt.Sprintf("socket:[%d]", inode)
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fake) remove(pid int) {
	f.t.Helper()
	if err := os.RemoveAll(filepath.Join(f.dir, fmt.Sprint(pid))); err != nil {
		f.t.Fatal(err)
	}
}

// listenTCP is a line of /proc/net/tcp.
func listenTCP(port, inode int) string {
	return fmt.Sprintf("0: 0100007F:%04X 00000000:0000 0A 0:0 0:0 0 0 0 %d 1\n", port, inode)
}

func TestPIDIsUsedAgain(t *testing.T) {
	api := proc{pid: 70010, ppid: 1, start: 5, comm: "vllm-omni", args: serve}
	stage := proc{pid: 70011, ppid: 70010, start: 6, comm: "VLLM::StageEngi", args: fmt.Sprintf(title, 0, 0, 0)}
	f := newFake(t, api, stage)
	finder := New(Config{Proc: f.dir})
	if r := scan(t, finder); len(r.Diff.Added) != 2 {
		t.Fatalf("first: %+v", r.Diff)
	}
	again := stage
	again.start = 99
	f.put(again)
	r := scan(t, finder)
	if len(r.Diff.Gone) != 1 || len(r.Diff.Restarted) != 1 || r.Diff.Restarted[0].Old.StartTicks != 6 || r.Diff.Restarted[0].New.StartTicks != 99 {
		t.Errorf("the same stage under the same pid: %+v", r.Diff)
	}
	other := again
	other.start, other.comm, other.args = 120, "cat", "cat"
	f.put(other)
	if r := scan(t, finder); len(r.Diff.Gone) != 1 || len(r.Diff.Added) != 0 || len(r.Processes) != 1 {
		t.Errorf("a stranger under the pid: %+v", r)
	}
	f.remove(70010)
	if r := scan(t, finder); len(r.Processes) != 0 || len(r.Diff.Gone) != 1 {
		t.Errorf("all gone: %+v", r)
	}
}

// A server in a container, behind Docker's proxy, and another one: each socket is
// looked for in its process's own network namespace.
func TestNetworkNamespaces(t *testing.T) {
	unixLine := "0: 2 0 00010000 0001 01 501 /tmp/m/completion.sock\n0: 2 0 00010000 0001 01 502 /tmp/m/stage_thinker.sock\n"
	f := newFake(t,
		proc{pid: 70001, ppid: 1, start: 1, comm: "docker-proxy", args: "docker-proxy", netns: 1, sockets: []int{900}},
		proc{pid: 70010, ppid: 1, start: 1, comm: "python", args: "python|serve.py", netns: 2, sockets: []int{501, 600}, unix: unixLine, tcp: listenTCP(8000, 600)},
		proc{pid: 70011, ppid: 70010, start: 1, comm: "python", args: spawn, netns: 2, sockets: []int{502}, unix: unixLine},
		proc{pid: 70020, ppid: 1, start: 1, comm: "vllm-omni", args: serve, netns: 3, sockets: []int{700}, tcp: listenTCP(8001, 700)},
		proc{pid: 70030, ppid: 1, start: 1, comm: "cat", args: "cat", netns: 1, sockets: []int{502, 600}},
	)
	self := proc{pid: os.Getpid(), ppid: 1, start: 1, comm: "self", netns: 1, tcp: listenTCP(8000, 900)}
	f.put(self)
	r := scan(t, New(Config{Proc: f.dir, Port: 8000}))
	want := []string{
		`70010 sglang-omni api "api" id=- replica=0 rank=0 root=70010`,
		`70011 sglang-omni stage "thinker" id=- replica=0 rank=0 root=70010`,
	}
	if diff := cmp.Diff(want, brief(r.Processes)); diff != "" {
		t.Errorf("%s\n%+v", diff, r)
	}
	if r.Root != 70010 || r.Why != "process 70010 listens on port 8000" {
		t.Errorf("root %d, why %q", r.Root, r.Why)
	}
}

// A socket that nobody can be seen to own is looked for once, not at every scan.
func TestOrphanSocketIsLookedForOnce(t *testing.T) {
	f := newFake(t, proc{pid: 70030, ppid: 1, start: 1, comm: "cat", args: "cat", netns: 1})
	f.put(proc{pid: os.Getpid(), ppid: 1, start: 1, comm: "self", netns: 1, tcp: listenTCP(8000, 900)})
	finder := New(Config{Proc: f.dir, Port: 8000})
	r := scan(t, finder)
	if len(r.Missing) != 1 || !strings.Contains(r.Missing[0], "port 8000 cannot be seen") || !finder.orphans[900] {
		t.Errorf("missing %q, orphans %v", r.Missing, finder.orphans)
	}
	f.put(proc{pid: os.Getpid(), ppid: 1, start: 1, comm: "self", netns: 1})
	if scan(t, finder); len(finder.orphans) != 0 {
		t.Errorf("a socket that is gone is kept: %v", finder.orphans)
	}
}

// Hints in any number leave bounded memory behind.
func TestHintsAreBounded(t *testing.T) {
	f := newFake(t, proc{pid: 70010, ppid: 1, start: 1, comm: "x", env: envLoggingPrefix + "=[Stage-0] "})
	now := time.Unix(1000, 0)
	finder := New(Config{Proc: f.dir, Now: func() time.Time { return now }})
	for i := range 2 * maxAtExec {
		now = now.Add(time.Second)
		f.put(proc{pid: 70010, ppid: 1, start: 1 + i%2, comm: "x", env: envLoggingPrefix + "=[Stage-0] "})
		finder.Exec(70010)
		if i > 100 {
			break
		}
	}
	for pid := range 2 * maxAtExec {
		finder.atExec[execKey{pid, 1}] = map[string]string{}
	}
	before := len(finder.atExec)
	finder.Exec(70010)
	if len(finder.atExec) > before || len(finder.due) > maxDue {
		t.Errorf("%d environments, %d scans due", len(finder.atExec), len(finder.due))
	}
	if scan(t, finder); len(finder.atExec) > 1 {
		t.Errorf("%d environments of processes that are gone", len(finder.atExec))
	}
}

func TestScanWithoutProc(t *testing.T) {
	if _, err := New(Config{Proc: filepath.Join(t.TempDir(), "none")}).Scan(); err == nil {
		t.Error("no error")
	}
	finder := New(Config{Proc: filepath.Join(t.TempDir(), "none")})
	if err := finder.Run(t.Context(), time.Hour, func(Result) {}); err == nil {
		t.Error("Run gave no error")
	}
}

// What a server's command line names and cannot be read is said.
func TestConfigurationThatCannotBeRead(t *testing.T) {
	f := newFake(t, proc{pid: 70010, ppid: 1, start: 5, comm: "vllm-omni", args: "vllm-omni|serve|Qwen3-TTS|--omni|--deploy-config=/none.yaml"},
		proc{pid: 70011, ppid: 70010, start: 5, comm: "VLLM::StageEngi", args: fmt.Sprintf(title, 0, 0, 0)})
	r := scan(t, New(Config{Proc: f.dir}))
	if len(r.Processes) != 2 || r.Processes[1].Stage != "talker" {
		t.Errorf("%v", brief(r.Processes))
	}
	if len(r.Missing) != 1 || !strings.Contains(r.Missing[0], "stage configuration of the command line") {
		t.Errorf("missing %q", r.Missing)
	}
}
