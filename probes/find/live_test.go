package find

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/probes/event"
)

// lines are brief's, with the pids replaced by names.
func named(r Result, names map[int]string) []string {
	var out []string
	for _, p := range r.Processes {
		id := "-"
		if p.StageID != nil {
			id = fmt.Sprint(*p.StageID)
		}
		name := names[p.PID]
		if name == "" {
			name = fmt.Sprint(p.PID)
		}
		out = append(out, fmt.Sprintf("%s %s %s id=%s rank=%d root=%s", name, p.Role, p.Stage, id, p.Rank, names[p.Root]))
	}
	return out
}

func stageSpec(n int, set ...func(*spec)) spec {
	s := spec{Args: []string{fmt.Sprintf(title, n, 0, 0)}, Comm: "VLLM::StageEngi"}
	for _, f := range set {
		f(&s)
	}
	return s
}

func TestLiveVLLMOmni(t *testing.T) {
	dir := t.TempDir()
	config := "stages:\n - {stage_id: 0, model_stage: ears}\n"
	if err := os.WriteFile(filepath.Join(dir, "deploy.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	model := filepath.Join(dir, "model")
	if err := os.Mkdir(model, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(model, "config.json"), []byte(`{"architectures":["Qwen3OmniMoeForConditionalGeneration"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	zmqSocket := filepath.Join(dir, "z")
	v := launch(t, spec{
		Args: []string{"vllm-omni", "serve", model, "--omni", "--deploy-config", "deploy.yaml", "--api-key", "k"},
		Dir:  dir, TCP: true, Unix: []string{zmqSocket},
		Child: []spec{
			stageSpec(0, func(s *spec) { s.Child = []spec{{Args: []string{"VLLM::Worker_TP1"}, Comm: "VLLM::Worker_TP"}} }),
			stageSpec(1),
			{Args: []string{"VLLM::StageEngineCoreProc_stagenoid_replica0_DP0"}, Comm: "VLLM::StageEngi", FIFO: fifo(t, 2)},
			{Args: []string{"python3", "-c", "from multiprocessing.resource_tracker import main;main(18)"}},
		},
	})
	names := map[int]string{v.pid: "server", v.pids[0]: "s0", v.pids[1]: "w0", v.pids[2]: "s1", v.pids[3]: "s2"}
	f := New(Config{Port: v.port, Names: map[int]string{2: "mouth"}})
	r := scan(t, f)
	want := []string{
		"server api api id=- rank=0 root=server",
		"s0 stage ears id=0 rank=0 root=server",
		"s1 stage talker id=1 rank=0 root=server",
		"s2 stage mouth id=2 rank=0 root=server",
		"w0 worker ears id=0 rank=1 root=server",
	}
	if diff := cmp.Diff(want, named(r, names)); diff != "" {
		t.Fatalf("%s\n%+v", diff, r)
	}
	if r.Root != v.pid || r.Why != fmt.Sprintf("process %d listens on port %d", v.pid, v.port) || len(r.Missing) != 0 {
		t.Errorf("root %d, why %q, missing %q", r.Root, r.Why, r.Missing)
	}
	if len(r.Diff.Added) != 5 || strings.Contains(r.Processes[0].Cmdline, "--api-key k") {
		t.Errorf("added %d, command line %q", len(r.Diff.Added), r.Processes[0].Cmdline)
	}
	if !slices.Contains(r.Endpoints, event.Endpoint{PID: v.pid, Addr: "ipc://" + zmqSocket}) {
		t.Errorf("endpoints %v", r.Endpoints)
	}
	checkSnapshot(t, f, v.pids[0])
	checkRestart(t, f, v, names)
}

// checkSnapshot looks at what attaching probes needs: files by inode.
func checkSnapshot(t *testing.T, f *Finder, pid int) {
	t.Helper()
	s, ok := f.Snapshot(pid)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(self)
	if err != nil {
		t.Fatal(err)
	}
	inode := info.Sys().(*syscall.Stat_t).Ino
	if !ok || s.NetNS == 0 || s.MountNS == 0 || s.PIDNS == 0 || len(s.Pipes) == 0 ||
		!slices.ContainsFunc(s.Libs, func(l Lib) bool { return l.Inode == inode && !l.Deleted }) {
		t.Errorf("snapshot %+v", s)
	}
	if _, ok := f.Snapshot(1 << 30); ok {
		t.Error("a snapshot of nobody")
	}
}

// checkRestart ends a stage and starts it again.
func checkRestart(t *testing.T, f *Finder, v *server, names map[int]string) {
	t.Helper()
	old := v.pids[2]
	if r := scan(t, f); !r.Diff.Empty() {
		t.Errorf("nothing happened, and %+v", r.Diff)
	}
	v.tell("end 1")
	r := scan(t, f)
	if len(r.Diff.Gone) != 1 || r.Diff.Gone[0].PID != old || len(r.Diff.Added) != 0 || len(r.Processes) != 4 {
		t.Fatalf("after the exit %+v", r.Diff)
	}
	fresh := v.start(stageSpec(1))
	r = scan(t, f)
	if len(r.Diff.Restarted) != 1 || r.Diff.Restarted[0].Old.PID != old || r.Diff.Restarted[0].New.PID != fresh || len(r.Diff.Gone) != 0 {
		t.Fatalf("after the restart of %s: %+v", names[old], r.Diff)
	}
	if r := scan(t, f); !r.Diff.Empty() {
		t.Errorf("the restart is told twice: %+v", r.Diff)
	}
}

func TestLiveSGLangOmni(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	python := strings.Split(spawn, "|")
	v := launch(t, spec{
		Args: []string{"python3", "serve_toy.py"}, TCP: true, Unix: []string{at("completion.sock"), at("abort.sock")},
		Child: []spec{
			{Args: python, Unix: []string{at("stage_thinker.sock"), at("comm_thinker_rank0.sock")}},
			{Args: python, Unix: []string{at("comm_thinker_rank1.sock")}},
			{Args: python, Unix: []string{at("stage_talker_ar.sock"), at("stage_code2wav.sock")}},
		},
	})
	names := map[int]string{v.pid: "server", v.pids[0]: "a", v.pids[1]: "b", v.pids[2]: "c"}
	r := scan(t, New(Config{Port: v.port}))
	want := []string{
		"server api api id=- rank=0 root=server",
		"c stage code2wav+talker_ar id=- rank=0 root=server",
		"a stage thinker id=- rank=0 root=server",
		"b worker thinker id=- rank=1 root=server",
	}
	if diff := cmp.Diff(want, named(r, names)); diff != "" {
		t.Errorf("%s\n%+v", diff, r)
	}
	var b bytes.Buffer
	if err := event.WriteProcesses(&b, r.File()); err != nil || !strings.Contains(b.String(), "ipc://"+at("stage_thinker.sock")) {
		t.Errorf("%v: %s", err, b.String())
	}
}

// The environment at exec is gone once a title cleared it; the hint came before.
func TestLiveEnvironmentAtExec(t *testing.T) {
	v := launch(t, spec{Args: []string{"vllm", "serve", "m", "--omni"}, TCP: true, Child: []spec{{
		Args: strings.Split(spawn, "|"), Env: []string{"CUDA_VISIBLE_DEVICES=3", envLoggingPrefix + "=[Stage-1] "},
	}}})
	stage := v.pids[0]
	told, late := New(Config{Port: v.port}), New(Config{Port: v.port})
	seen := New(Config{Port: v.port})
	told.Exec(stage)
	if n := len(scan(t, seen).Processes); n != 2 {
		t.Fatalf("%d processes are seen before, want 2", n)
	}
	clearEnvironment(t, v)
	for name, f := range map[string]*Finder{"told": told, "seen": seen} {
		r := scan(t, f)
		if len(r.Processes) != 2 || r.Processes[1].PID != stage || r.Processes[1].Stage != "stage 1" {
			t.Errorf("%s: %v", name, brief(r.Processes))
		}
		if s, ok := f.Snapshot(stage); !ok || s.Env[envDevices] != "3" {
			t.Errorf("%s: environment %v", name, s.Env)
		}
	}
	if r := scan(t, late); len(r.Processes) != 1 {
		t.Errorf("without having seen it: %v", brief(r.Processes))
	}
}

// clearEnvironment has the stage below a server clear its environment, and checks it.
func clearEnvironment(t *testing.T, v *server) {
	t.Helper()
	v.tell("child 0 clear")
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", v.pids[0]))
	if err != nil || bytes.Contains(b, []byte(envLoggingPrefix)) {
		t.Fatalf("the environment still stands: %q, %v", b, err)
	}
}

// A title that comes after the exec, as it does by many seconds.
func TestLiveTitleLater(t *testing.T) {
	long := strings.Repeat("x", 200)
	v := launch(t, spec{Args: []string{"vllm-omni", "serve", "m", "--omni"}, TCP: true, Child: []spec{{
		Args: append(strings.Split(spawn, "|"), long),
	}}})
	now := time.Now()
	f := New(Config{Port: v.port, Now: func() time.Time { return now }})
	if r := scan(t, f); len(r.Processes) != 1 {
		t.Fatalf("before: %v", brief(r.Processes))
	}
	now = now.Add(time.Hour)
	scan(t, f)
	v.tell("child 0 title %s", fmt.Sprintf(title, 1, 0, 0))
	r := scan(t, f)
	if len(r.Processes) != 2 || r.Processes[1].Stage != "stage 1" || r.Processes[1].Cmdline != fmt.Sprintf(title, 1, 0, 0) {
		t.Errorf("after: %v", brief(r.Processes))
	}
}

func TestLiveRuleBySocket(t *testing.T) {
	dir := t.TempDir()
	rules, err := ParseRules(strings.NewReader("rules:\n - {server: mine, listen: '^" + dir + "/(?P<stage>[a-z]+)$'}\n"))
	if err != nil {
		t.Fatal(err)
	}
	v := launch(t, spec{Args: []string{"anything"}, Unix: []string{filepath.Join(dir, "ears")}})
	f := New(Config{Rules: rules})
	for range 2 {
		r := scan(t, f)
		if !slices.ContainsFunc(r.Processes, func(p event.Process) bool {
			return p.PID == v.pid && p.Server == "mine" && p.Stage == "ears"
		}) {
			t.Errorf("%v", brief(r.Processes))
		}
	}
}

// Who listens on the upstream's port and is no server is named, and all are taken.
func TestLivePortOfAnother(t *testing.T) {
	other := launch(t, spec{Args: []string{"any\nthing"}, Comm: "a\nb", TCP: true})
	v := launch(t, spec{Args: []string{"vllm-omni", "serve", "m", "--omni"}})
	r := scan(t, New(Config{Port: other.port}))
	want := fmt.Sprintf("port %d is process %d (%q), no server that was found", other.port, other.pid, "a\nb")
	if r.Root != 0 || !strings.Contains(r.Why, want) {
		t.Errorf("root %d, why %q, want %q", r.Root, r.Why, want)
	}
	if !slices.ContainsFunc(r.Processes, func(p event.Process) bool { return p.PID == v.pid }) {
		t.Errorf("%v", brief(r.Processes))
	}
}

func TestLiveHostileTitles(t *testing.T) {
	evil := fmt.Sprintf(title, 0, 0, 0) + "\n{\"pid\":1}"
	long := strings.Repeat("V", 255) + "::StageEngineCoreProc_stage0_replica0_DP0"
	child := []spec{{Args: []string{evil}, Comm: "VLLM::StageEngi"}, {Args: []string{long}, Comm: "x) R 1 ("}, {Args: []string{"\xff\xfe::Worker"}}}
	v := launch(t, spec{Args: []string{"vllm-omni", "serve", "m", "--omni", evil}, TCP: true, Child: child})
	alone := launch(t, spec{Args: []string{fmt.Sprintf(title, 0, 0, 0)}, Comm: "VLLM::StageEngi"})
	r := scan(t, New(Config{Port: v.port}))
	if len(r.Processes) != 1 || r.Processes[0].PID != v.pid {
		t.Errorf("taken: %v", brief(r.Processes))
	}
	for _, pid := range append(v.pids, alone.pid) {
		if !slices.ContainsFunc(r.Doubts, func(d Doubt) bool { return d.PID == pid }) {
			t.Errorf("no doubt about %d: %+v", pid, r.Doubts)
		}
	}
	var b bytes.Buffer
	if err := event.WriteProcesses(&b, r.File()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "\n{\"pid\":1}") {
		t.Error("a title made a line of its own")
	}
}

// What another user may not read is named, and what anybody may read is still used.
func TestLivePermission(t *testing.T) {
	if os.Getuid() != 0 {
		if _, err := procfs("/proc").descriptors(1); err == nil || !strings.Contains(reason("fd", err), "CAP_SYS_PTRACE") {
			t.Errorf("the descriptors of process 1: %v", err)
		}
		return
	}
	// The thread may be the one that started a helper, and its end would end that: it
	// ends after them.
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	v := launch(t, spec{Args: []string{"vllm-omni", "serve", "m", "--omni"}, TCP: true, Child: []spec{stageSpec(1)}})
	alone := launch(t, spec{Args: []string{fmt.Sprintf(title, 0, 0, 0)}})
	done := make(chan Result)
	go func() {
		// Only this thread becomes another user, and it ends with the goroutine.
		runtime.LockOSThread()
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, 65534, 65534, 65534); e != 0 {
			t.Errorf("becoming another user: %v", e)
		}
		r, err := New(Config{Port: v.port}).Scan()
		if err != nil {
			t.Error(err)
		}
		done <- r
		<-release
	}()
	r := <-done
	has := func(pid int) bool {
		return slices.ContainsFunc(r.Processes, func(p event.Process) bool { return p.PID == pid })
	}
	if !has(v.pid) || !has(v.pids[0]) || has(alone.pid) {
		t.Errorf("found %v", brief(r.Processes))
	}
	all := strings.Join(r.Missing, "\n")
	for _, want := range []string{
		"fd: permission denied; CAP_SYS_PTRACE", "maps: permission denied", "environ: permission denied",
		fmt.Sprintf("the process that listens on port %d cannot be seen", v.port),
	} {
		if !strings.Contains(all, want) {
			t.Errorf("missing %q lacks %q", all, want)
		}
	}
	i := slices.IndexFunc(r.Doubts, func(d Doubt) bool { return d.PID == alone.pid })
	if i < 0 || !strings.Contains(r.Doubts[i].Reason, "maps: permission denied") {
		t.Errorf("doubts %+v", r.Doubts)
	}
}

// Run scans when it is told of something, and not otherwise.
func TestLiveRun(t *testing.T) {
	v := launch(t, spec{Args: []string{"vllm-omni", "serve", "m", "--omni"}, TCP: true, Child: []spec{stageSpec(0)}})
	f := New(Config{Port: v.port})
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	results, ended := make(chan Result, 100), make(chan error, 1)
	go func() { ended <- f.Run(ctx, time.Hour, func(r Result) { results <- r }) }()
	wait := func(what string, ok func(Result) bool) {
		t.Helper()
		for {
			select {
			case r := <-results:
				if ok(r) {
					return
				}
			case <-ctx.Done():
				t.Fatalf("%s was not seen", what)
			}
		}
	}
	wait("the start", func(r Result) bool { return len(r.Processes) == 2 })
	pid := v.start(stageSpec(1))
	f.Fork(pid, v.pid)
	wait("the fork", func(r Result) bool { return len(r.Diff.Added) == 1 && r.Diff.Added[0].PID == pid })
	v.tell("end 1")
	f.Exit(pid)
	wait("the exit", func(r Result) bool { return len(r.Diff.Gone) == 1 && r.Diff.Gone[0].PID == pid })
	pid = v.start(stageSpec(1))
	f.Exec(pid)
	wait("the restart", func(r Result) bool { return len(r.Diff.Restarted) == 1 && r.Diff.Restarted[0].New.PID == pid })
	f.Exec(1 << 30)
	f.Fork(1<<30, 1<<29)
	f.Exit(1 << 30)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v", err)
	}
}

// A scan among 500 processes of which six matter.
func BenchmarkScan(b *testing.B) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		b.Fatal(err)
	}
	v := launch(b, spec{Args: []string{"vllm-omni", "serve", "m", "--omni"}, TCP: true, Child: []spec{
		stageSpec(0), stageSpec(1), stageSpec(2),
	}})
	proc := procfs("/proc")
	for {
		pids, err := proc.pids()
		if err != nil {
			b.Fatal(err)
		}
		if len(pids) >= 500 {
			break
		}
		cmd := exec.CommandContext(b.Context(), sleep, "600")
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	var later time.Duration // the first seconds, when every title is read again, are over
	f := New(Config{Port: v.port, Now: func() time.Time { return time.Now().Add(later) }})
	if r := scan(b, f); len(r.Processes) != 4 {
		b.Fatalf("%v", brief(r.Processes))
	}
	later = time.Hour
	scan(b, f)
	b.ReportAllocs()
	before, n := cpuTime(b), 0
	for b.Loop() {
		scan(b, f)
		n++
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(n), "cpu-ms/scan")
}

// cpuTime is what this process used: the clock on the wall also counts the others.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The kernel is made to give a stage's pid to the next process. TestPIDIsUsedAgain
// has the same without a kernel, for those who may not.
func TestLivePIDIsUsedAgain(t *testing.T) {
	const last = "/proc/sys/kernel/ns_last_pid"
	v := launch(t, spec{Args: []string{"vllm-omni", "serve", "m", "--omni"}, TCP: true, Child: []spec{stageSpec(0)}})
	f := New(Config{Port: v.port})
	old := scan(t, f).Processes[1]
	v.tell("end 0")
	for try := 1; ; try++ {
		if err := os.WriteFile(last, []byte(fmt.Sprint(old.PID-1)), 0); err != nil {
			if os.Getenv("REQUIRE_KERNEL") == "1" {
				t.Fatal(err)
			}
			t.Skipf("the next pid cannot be chosen here: %v", err)
		}
		if pid := v.start(stageSpec(0)); pid == old.PID {
			break
		}
		if try == 200 {
			t.Fatal("somebody else got the pid each of 200 times")
		}
		v.tell("end %d", try)
	}
	r := scan(t, f)
	if len(r.Diff.Restarted) != 1 || r.Diff.Restarted[0].Old.StartTicks != old.StartTicks ||
		r.Diff.Restarted[0].New.PID != old.PID || r.Diff.Restarted[0].New.StartTicks == old.StartTicks {
		t.Errorf("%+v", r.Diff)
	}
}
