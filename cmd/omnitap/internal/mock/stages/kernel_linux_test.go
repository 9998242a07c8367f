package stages

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/record"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/shm"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/thread"
)

// What an observer finds in /proc.
func TestProcesses(t *testing.T) {
	read := func(pid int, file string) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	r := start(t, Config{})
	for i, pid := range r.PIDs() {
		if got, want := read(pid, "cmdline"), fmt.Sprintf("VLLM::StageEngineCoreProc_stage%d_replica0_DP0\x00", i); got != want {
			t.Errorf("stage %d: cmdline %q, want %q", i, got, want)
		}
		if got := read(pid, "comm"); got != "VLLM::StageEngi\n" {
			t.Errorf("stage %d: comm %q", i, got)
		}
		if got := read(pid, "stat"); !strings.Contains(got, fmt.Sprintf(" S %d ", os.Getpid())) && !strings.Contains(got, fmt.Sprintf(" R %d ", os.Getpid())) {
			t.Errorf("stage %d: no child of ours: %s", i, got)
		}
	}
	if got := read(r.TrackerPID(), "cmdline"); !strings.Contains(got, "multiprocessing.resource_tracker") {
		t.Errorf("tracker: cmdline %q", got)
	}
	// The API process listens on two sockets a stage.
	var paths int
	for line := range strings.SplitSeq(read(os.Getpid(), "net/unix"), "\n") {
		if strings.Contains(line, r.dir+"/") && strings.Contains(line, " 00010000 ") {
			paths++
		}
	}
	if paths != 6 {
		t.Errorf("%d listening sockets, want 6", paths)
	}
	q := start(t, Config{Mode: Queues})
	for i, pid := range q.PIDs() {
		if got := read(pid, "environ"); !strings.Contains(got, fmt.Sprintf("\x00VLLM_LOGGING_PREFIX=[Stage-%d] \x00", i)) {
			t.Errorf("queue stage %d: environ %q", i, got)
		}
		if got := read(pid, "cmdline"); strings.Contains(got, "VLLM::") || !strings.Contains(got, "spawn_main") {
			t.Errorf("queue stage %d: cmdline %q", i, got)
		}
	}
}

// transfers checks what two stages say of the chunks between them, and returns how many
// were read.
func transfers(t *testing.T, wrote, got []record.Event, id string) int {
	t.Helper()
	starts, ends := having(wrote, "write_start", id), having(wrote, "write_end", id)
	reads, readEnds, gets := having(got, "read_start", id), having(got, "read_end", id), having(got, "get_start", id)
	if len(starts) != len(ends) || len(reads) != len(readEnds) || len(reads) != len(gets) || len(reads) > len(starts) {
		t.Fatalf("%d writes, %d ended, %d reads, %d ended, %d gets", len(starts), len(ends), len(reads), len(readEnds), len(gets))
	}
	for i, s := range starts {
		if *s.Chunk != i || *ends[i].Chunk != i || *s.Bytes != *ends[i].Bytes || s.MonoNS > ends[i].MonoNS {
			t.Errorf("write %d: %+v, %+v", i, s, ends[i])
		}
		if i >= len(reads) {
			continue
		}
		if *reads[i].Chunk != i || *gets[i].Bytes != *s.Bytes || *gets[i].Key != *s.Key || readEnds[i].MonoNS < s.MonoNS {
			t.Errorf("chunk %d: written %+v, read %+v", i, s, gets[i])
		}
		if *gets[i].Misses > 0 && gets[i].FirstPollNS > gets[i].MonoNS {
			t.Errorf("chunk %d: first polled after it came", i)
		}
	}
	return len(reads)
}

// Chunks are cut as by the server: the prompt and two steps, then one a step; four
// frames, then 25 at a time, then the rest.
func TestChunks(t *testing.T) {
	r := start(t, Config{})
	req := r.request("chunks", 9, 60)
	check(t, req, gather(r.submit(t.Context(), req)))
	logs := [3][]record.Event{r.log("thinker"), r.log("talker"), r.log("code2wav")}
	if n := transfers(t, logs[0], logs[1], req.ID); n != 8 {
		t.Errorf("%d chunks to the talker, want 8", n)
	}
	if n := transfers(t, logs[1], logs[2], req.ID); n != 4 { // 4, 25, 25, 6
		t.Errorf("%d chunks to code2wav, want 4", n)
	}
	if adds := having(r.log("api"), "add_sent", req.ID); len(adds) != 3 {
		t.Errorf("%d ADDs, want one a stage", len(adds))
	}
	for i, steps := range []int{9, 60, 4} {
		if n := len(having(logs[i], "compute_end", req.ID)); n != steps {
			t.Errorf("%s: %d steps, want %d", Names[i], n, steps)
		}
	}
	// The later stages waited for their first chunk, and said so.
	if g := having(logs[2], "get_start", req.ID)[0]; *g.Misses == 0 || g.FirstPollNS == 0 {
		t.Errorf("code2wav's first get: %+v", g)
	}
}

func TestTextLeavesAChunk(t *testing.T) {
	r := start(t, Config{})
	req := r.request("text", 5, 0)
	check(t, req, gather(r.submit(t.Context(), req)))
	if !eventually(func() bool { return len(having(r.log("thinker"), "write_end", req.ID)) == 1 }) {
		t.Fatal("no chunk was written")
	}
	left := leftovers(t, r.prefix)
	if len(left) != 2 || !slices.ContainsFunc(left, func(n string) bool { return strings.HasSuffix(n, "_0_0") }) {
		t.Errorf("in %s: %v, want a chunk and its lock", shm.Dir, left)
	}
	if adds := having(r.log("api"), "add_sent", req.ID); len(adds) != 1 || adds[0].ToStage != "thinker" {
		t.Errorf("ADDs: %+v", adds)
	}
}

func TestFaults(t *testing.T) {
	const late = 150 * time.Millisecond
	r := start(t, Config{Faults: []Fault{
		{Kind: FaultSlow, Stage: 0, Request: "slow", Chunk: 3, Extra: late},
		{Kind: FaultOrphan, Request: "orphan", Chunk: 77, Bytes: 5000},
		{Kind: FaultStale, Stage: 1, Request: "stale", Chunk: 1, Bytes: 333},
	}})
	slow := r.request("slow", 6, 10)
	check(t, slow, gather(r.submit(t.Context(), slow)))
	log := r.log("thinker")
	s, e := having(log, "compute_start", slow.ID)[3], having(log, "compute_end", slow.ID)[3]
	if d := time.Duration(e.MonoNS - s.MonoNS); *s.Chunk != 3 || d < late {
		t.Errorf("the slow step took %v", d)
	}
	orphan := r.request("orphan", 3, 8)
	check(t, orphan, gather(r.submit(t.Context(), orphan)))
	if !eventually(func() bool { return len(leftovers(t, orphan.ID)) == 2 }) {
		t.Errorf("orphans: %v", leftovers(t, orphan.ID))
	}
	stale := r.request("stale", 3, 20)
	check(t, stale, gather(r.submit(t.Context(), stale)))
	if v := having(r.log("api"), "fault_stale", stale.ID); len(v) != 1 || *v[0].Bytes != 333 {
		t.Errorf("fault_stale: %+v", v)
	}
	if left := leftovers(t, stale.ID); len(left) != 0 {
		t.Errorf("the stale segment was not replaced: %v", left)
	}
}

// beParent starts stages, tells their processes and waits to be killed.
func beParent(dir string) int {
	e, err := Start(context.Background(), Config{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	out, err := e.Submit(context.Background(), Request{ID: filepath.Base(dir), Words: words(3), Audio: true, Frames: 1 << 14})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	<-out
	_, _ = fmt.Fprintln(os.Stdout, e.dir, e.PIDs(), e.TrackerPID())
	for range out {
	}
	return 0
}

// Whatever becomes of the parent, no process, segment, lock or socket stays.
func TestParentIsKilled(t *testing.T) {
	id := fmt.Sprintf("test-killed-%d", os.Getpid())
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), parentEnv+"=/"+id)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var dir string
	var pids [4]int
	if _, err := fmt.Sscanf(line, "%s [%d %d %d] %d", &dir, &pids[0], &pids[1], &pids[2], &pids[3]); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if len(leftovers(t, id)) == 0 && !eventually(func() bool { return len(leftovers(t, id)) > 0 }) {
		t.Error("nothing in /dev/shm before the end: the test shows nothing")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	for _, pid := range pids {
		// Whoever takes orphans in may be slow to wait for them: a zombie is dead too.
		if !eventually(func() bool { return gone(pid) }) {
			t.Errorf("process %d lives on", pid)
		}
	}
	if !eventually(func() bool { return len(leftovers(t, id)) == 0 }) {
		t.Errorf("left in %s: %v", shm.Dir, leftovers(t, id))
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is left", dir)
	}
}

func gone(pid int) bool {
	if err := unix.Kill(pid, 0); errors.Is(err, unix.ESRCH) {
		return true
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

func TestStartFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	if _, err := Start(t.Context(), Config{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a temporary folder: %v", err)
	}
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	e, err := Start(t.Context(), Config{})
	if err != nil {
		t.Fatalf("with a temporary folder whose name is too long for a socket: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

func TestCloseEndsRequests(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			r := start(t, Config{Mode: mode})
			out := r.submit(t.Context(), r.request("open", 1000, 1000))
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			if a := gather(out); !errors.Is(a.err, ErrClosed) {
				t.Errorf("error %v", a.err)
			}
			if _, err := r.Submit(t.Context(), r.request("late", 1, 1)); !errors.Is(err, ErrClosed) {
				t.Errorf("a request after Close: %v", err)
			}
		})
	}
}

// BenchmarkStart is a start and an end, with the memory of the stages.
func BenchmarkStart(b *testing.B) {
	var rss, first int64
	n := 0
	for b.Loop() {
		t0 := thread.MonoNS()
		e, err := Start(b.Context(), Config{})
		if err != nil {
			b.Fatal(err)
		}
		first += thread.MonoNS() - t0
		for _, pid := range append(e.PIDs(), e.TrackerPID()) {
			rss += pss(b, pid)
		}
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(first)/float64(n)/1e6, "ms/start")
	b.ReportMetric(float64(rss)/float64(n)/1024, "MiB-PSS")
}

// BenchmarkRequests is answers of 20 tokens and 3 s of audio, 32 at a time.
func BenchmarkRequests(b *testing.B) {
	e, err := Start(b.Context(), Config{})
	if err != nil {
		b.Fatal(err)
	}
	req := Request{Words: words(20), Audio: true, Frames: 38}
	places := make(chan struct{}, 32)
	var all sync.WaitGroup
	for i := 0; b.Loop(); i++ {
		places <- struct{}{}
		req.ID = fmt.Sprint("bench-", i)
		out, err := e.Submit(b.Context(), req)
		if err != nil {
			b.Fatal(err)
		}
		all.Go(func() {
			if a := gather(out); a.err != nil {
				b.Error(a.err)
			}
			<-places
		})
	}
	all.Wait()
	if err := e.Close(); err != nil {
		b.Fatal(err)
	}
}

// pss is a process's share of memory in KiB.
func pss(b *testing.B, pid int) (kb int64) {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			if _, err := fmt.Sscan(rest, &kb); err != nil {
				b.Fatal(err)
			}
		}
	}
	return kb
}

// A stage whose step lasts, with all its threads in calls, has a monitor that looks after
// them: see monitor.Keep. The runtime starts it first of all threads.
func TestMonitorSleepsShortly(t *testing.T) {
	r := start(t, Config{Steps: [3]time.Duration{time.Minute, time.Minute, time.Minute}, Busy: -1})
	r.submit(t.Context(), r.request("-long", 2, 4))
	// It is awake more often about the start of threads, and then hardly at all.
	started := time.Now()
	eventually(func() bool { return time.Since(started) > time.Second })
	const enough = 10 // a second
	for i, pid := range append(r.PIDs(), r.TrackerPID()) {
		first := 0
		for _, tid := range threads(t, pid) {
			if tid != pid && (first == 0 || tid < first) {
				first = tid
			}
		}
		wakes := func() int { return wakeups(t, pid, first) }
		began, since := time.Now(), wakes()
		eventually(func() bool { return time.Since(began) > time.Second || wakes() >= since+enough })
		if n := wakes() - since; n < enough {
			t.Errorf("process %d of %v and the tracker: the monitor woke %d times in a second", i, Names, n)
		}
	}
}

// threads are the threads of a process.
func threads(t *testing.T, pid int) (tids []int) {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}

// wakeups is how often a thread has waited so far.
func wakeups(t *testing.T, pid, tid int) (n int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "\nvoluntary_ctxt_switches:")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return n
}
