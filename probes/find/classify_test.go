package find

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/probes/event"
)

// process is a snapshot for tests: pid, parent, command line, changes.
func process(pid, ppid int, args string, set ...func(*Snapshot)) Snapshot {
	s := Snapshot{PID: pid, PPID: ppid, StartTicks: uint64(pid), Args: strings.Split(args, "|")}
	for _, f := range set {
		f(&s)
	}
	return s
}

func unix(paths ...string) func(*Snapshot) { return func(s *Snapshot) { s.Unix = paths } }
func fifos(paths ...string) func(*Snapshot) {
	return func(s *Snapshot) { s.FIFOs = paths }
}

func tcp(ports ...int) func(*Snapshot) {
	return func(s *Snapshot) {
		for _, p := range ports {
			s.TCP = append(s.TCP, Address{"127.0.0.1", p})
		}
	}
}

func env(name, value string) func(*Snapshot) {
	return func(s *Snapshot) { s.Env = map[string]string{name: value} }
}

func zmq(s *Snapshot) {
	s.Libs = []Lib{{Path: "/v/lib/python3.11/site-packages/pyzmq.libs/libzmq-c0d5e7b9.so.5.2.5", Dev: "fe:00", Inode: 7}}
}

const (
	spawn   = "python|-B|-c|from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=18, pipe_handle=20)|--multiprocessing-fork"
	tracker = "python3|-B|-c|from multiprocessing.resource_tracker import main;main(18)"
	serve   = "/v/bin/python3|/v/bin/vllm-omni|serve|MODEL|--omni|--port|28091|--deploy-config|deploy.yaml"
	title   = "VLLM::StageEngineCoreProc_stage%d_replica%d_DP%d"
	wake    = "/dev/shm/omni_shm_wake_1000_4090/%d_0123456789abcdef0123456789abcdef"
)

// brief is what tests compare: pid role stage id replica rank root.
func brief(processes []event.Process) []string {
	var out []string
	for _, p := range processes {
		id := "-"
		if p.StageID != nil {
			id = fmt.Sprint(*p.StageID)
		}
		out = append(out, fmt.Sprintf("%d %s %s %q id=%s replica=%d rank=%d root=%d", p.PID, p.Server, p.Role, p.Stage, id, p.Replica, p.Rank, p.Root))
	}
	return out
}

func omniNames(Snapshot) map[int]string { return ModelStages("Qwen3-Omni") }

func TestClassifyGenerations(t *testing.T) {
	const sock = "/tmp/qwen3-omni-7gzp5xcc/"
	for _, test := range []struct {
		name  string
		in    []Snapshot
		names Namer
		want  []string
	}{
		{"VO-2 with workers, as seen on a CPU", []Snapshot{
			process(4090, 1, serve, tcp(28091), zmq),
			process(4354, 4090, tracker),
			process(4357, 4090, fmt.Sprintf(title, 0, 0, 0), zmq),
			process(4576, 4357, "VLLM::Worker", zmq),
			process(5195, 4090, fmt.Sprintf(title, 1, 0, 0), zmq),
			process(5313, 5195, "VLLM::Worker_TP1", zmq),
			process(5584, 4090, fmt.Sprintf(title, 2, 1, 0), zmq),
		}, omniNames, []string{
			`4090 vllm-omni api "api" id=- replica=0 rank=0 root=4090`,
			`4357 vllm-omni stage "thinker" id=0 replica=0 rank=0 root=4090`,
			`5195 vllm-omni stage "talker" id=1 replica=0 rank=0 root=4090`,
			`5584 vllm-omni stage "code2wav" id=2 replica=1 rank=0 root=4090`,
			`4576 vllm-omni worker "thinker" id=0 replica=0 rank=0 root=4090`,
			`5313 vllm-omni worker "talker" id=1 replica=0 rank=1 root=4090`,
		}},
		{"VO-3 by FIFO where the title has no id, another prefix, more API servers", []Snapshot{
			process(10, 1, serve),
			process(11, 10, "my app::APIServer_0", tcp(8000)),
			process(12, 10, "my app::StageEngineCoreProc_stagenoid_replica0_DP1", fifos(fmt.Sprintf(wake, 2))),
			process(13, 10, "my app::StageEngineCoreProc_stage1_replica0", fifos(fmt.Sprintf(wake, 1))),
			process(14, 10, spawn, fifos(fmt.Sprintf(wake, 0))),
			process(15, 10, "my app::StageEngineCoreProc_stagenoid_replica0_DP0"),
		}, omniNames, []string{
			`10 vllm-omni api "api" id=- replica=0 rank=0 root=10`,
			`11 vllm-omni api "api" id=- replica=0 rank=0 root=10`,
			`15 vllm-omni stage "stage noid" id=- replica=0 rank=0 root=10`,
			`14 vllm-omni stage "thinker" id=0 replica=0 rank=0 root=10`,
			`13 vllm-omni stage "talker" id=1 replica=0 rank=0 root=10`,
			`12 vllm-omni stage "code2wav" id=2 replica=0 rank=1 root=10`,
		}},
		{"VO-1 by environment, children by parent", []Snapshot{
			process(10, 1, "/v/bin/vllm|serve|m|--omni"),
			process(11, 10, spawn, env(envLoggingPrefix, "[Stage-0] ")),
			process(12, 11, spawn, env(envLoggingPrefix, "[Stage-0] ")),
			process(13, 12, "VLLM::Worker_PP0_TP1", env(envLoggingPrefix, "[Stage-0] ")),
			process(14, 10, spawn, env(envLoggingPrefix, "[Stage-1] ")),
			process(15, 14, "VLLM::EngineCore"),
			process(16, 10, tracker, env(envLoggingPrefix, "[Stage-1] ")),
			process(17, 10, spawn, env(envLoggingPrefix, "Stage-1")),
		}, nil, []string{
			`10 vllm-omni api "api" id=- replica=0 rank=0 root=10`,
			`11 vllm-omni stage "stage 0" id=0 replica=0 rank=0 root=10`,
			`14 vllm-omni stage "stage 1" id=1 replica=0 rank=0 root=10`,
			`12 vllm-omni worker "stage 0" id=0 replica=0 rank=0 root=10`,
			`13 vllm-omni worker "stage 0" id=0 replica=0 rank=1 root=10`,
			`15 vllm-omni worker "stage 1" id=1 replica=0 rank=0 root=10`,
		}},
		{"SO-1, as recorded", []Snapshot{
			process(26583, 1, "python|serve_toy.py", unix(sock+"abort.sock", sock+"completion.sock"), zmq),
			process(26590, 26583, spawn, unix(sock+"stage_thinker.sock")),
			process(26591, 26583, spawn, unix(sock+"stage_talker_ar.sock")),
			process(26585, 26583, tracker),
		}, nil, []string{
			`26583 sglang-omni api "api" id=- replica=0 rank=0 root=26583`,
			`26591 sglang-omni stage "talker_ar" id=- replica=0 rank=0 root=26583`,
			`26590 sglang-omni stage "thinker" id=- replica=0 rank=0 root=26583`,
		}},
		{"SO-1 over TCP", []Snapshot{
			process(10, 1, "python|-m|sglang_omni.cli|serve|--model-path|Qwen/Qwen3-Omni", tcp(8000, 16000, 16001)),
			process(11, 10, spawn, tcp(16002)),
			process(12, 10, spawn, tcp(16003)),
		}, nil, []string{
			`10 sglang-omni api "api" id=- replica=0 rank=0 root=10`,
			`11 sglang-omni stage "stage 0" id=0 replica=0 rank=0 root=10`,
			`12 sglang-omni stage "stage 1" id=1 replica=0 rank=0 root=10`,
		}},
		{"SO-2 with followers and several stages in a process", []Snapshot{
			process(20, 1, "sgl-omni|serve|m", unix(sock+"completion.sock"), zmq),
			process(21, 20, spawn, unix(sock+"comm_thinker_rank0.sock", sock+"stage_thinker.sock")),
			process(22, 20, spawn, unix(sock+"comm_thinker_rank1.sock")),
			process(23, 20, spawn, unix(sock+"stage_talker_ar.sock", sock+"stage_code2wav.sock", sock+"comm_code2wav_rank0.sock")),
		}, nil, []string{
			`20 sglang-omni api "api" id=- replica=0 rank=0 root=20`,
			`23 sglang-omni stage "code2wav+talker_ar" id=- replica=0 rank=0 root=20`,
			`21 sglang-omni stage "thinker" id=- replica=0 rank=0 root=20`,
			`22 sglang-omni worker "thinker" id=- replica=0 rank=1 root=20`,
		}},
		{"an API process known only as the parent", []Snapshot{
			process(5, 1, "bash"),
			process(10, 5, "python|vllm_omni_stages.py", zmq),
			process(11, 10, fmt.Sprintf(title, 0, 0, 0), zmq),
		}, nil, []string{
			`10 vllm-omni api "api" id=- replica=0 rank=0 root=10`,
			`11 vllm-omni stage "stage 0" id=0 replica=0 rank=0 root=10`,
		}},
		{"a headless stage", []Snapshot{
			process(10, 1, "vllm-omni|serve|m|--omni|--stage-id|0"),
			process(11, 10, fmt.Sprintf(title, 0, 0, 0)),
			process(20, 1, "vllm-omni|serve|m|--omni|--headless|--stage-id=1"),
			process(21, 20, fmt.Sprintf(title, 1, 0, 0)),
		}, nil, []string{
			`10 vllm-omni api "api" id=- replica=0 rank=0 root=10`,
			`11 vllm-omni stage "stage 0" id=0 replica=0 rank=0 root=10`,
			`21 vllm-omni stage "stage 1" id=1 replica=0 rank=0 root=10`,
		}},
		{"a headless stage whose server is elsewhere", []Snapshot{
			process(20, 1, "vllm-omni|serve|m|--omni|--headless"),
			process(21, 20, fmt.Sprintf(title, 1, 0, 0)),
		}, nil, []string{`21 vllm-omni stage "stage 1" id=1 replica=0 rank=0 root=21`}},
		{"two servers", []Snapshot{
			process(10, 1, serve), process(11, 10, fmt.Sprintf(title, 0, 0, 0)),
			process(20, 1, serve), process(21, 20, fmt.Sprintf(title, 0, 0, 0)),
		}, nil, []string{
			`10 vllm-omni api "api" id=- replica=0 rank=0 root=10`,
			`11 vllm-omni stage "stage 0" id=0 replica=0 rank=0 root=10`,
			`20 vllm-omni api "api" id=- replica=0 rank=0 root=20`,
			`21 vllm-omni stage "stage 0" id=0 replica=0 rank=0 root=20`,
		}},
		{"a server without stages yet, a plain vLLM, an editor", []Snapshot{
			process(10, 1, serve), process(11, 10, spawn),
			process(20, 1, "vllm|serve|m"), process(21, 20, "VLLM::EngineCore", zmq),
			process(30, 1, "vim|vllm-omni|serve"), process(31, 1, "bash|-c|vllm-omni serve m --omni"),
		}, nil, []string{`10 vllm-omni api "api" id=- replica=0 rank=0 root=10`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Classify(test.in, nil, test.names)
			if diff := cmp.Diff(test.want, brief(got.Processes)); diff != "" {
				t.Errorf("%s\ndoubts %v", diff, got.Doubts)
			}
			for _, p := range got.Processes {
				if len(p.Why) == 0 || p.StartTicks != uint64(p.PID) || p.PPID == nil {
					t.Errorf("process %d: why %q, start %d", p.PID, p.Why, p.StartTicks)
				}
			}
		})
	}
}

// A title is another user's text. None of these is a stage.
func TestClassifyHostileTitles(t *testing.T) {
	long := strings.Repeat("A", 300) + "::StageEngineCoreProc_stage0_replica0_DP0"
	ring := []Snapshot{process(7, 8, fmt.Sprintf(title, 0, 0, 0)), process(8, 7, "VLLM::Worker"), process(9, 9, "VLLM::Worker_TP0")}
	for _, test := range []struct {
		name   string
		in     []Snapshot
		reason string
	}{
		{"a title and nothing else", []Snapshot{process(5, 1, fmt.Sprintf(title, 0, 0, 0))}, "below no server"},
		{"below a shell", []Snapshot{process(4, 1, "bash"), process(5, 4, fmt.Sprintf(title, 0, 0, 0))}, "below no server"},
		{"a line's end", []Snapshot{process(5, 1, fmt.Sprintf(title, 0, 0, 0)+"\nlevel=ERROR", zmq)}, "has not the form"},
		{"a line's end before", []Snapshot{process(5, 1, "x\n"+fmt.Sprintf(title, 0, 0, 0), zmq)}, "has not the form"},
		{"too long", []Snapshot{process(5, 1, long, zmq)}, "has not the form"},
		{"a number out of range", []Snapshot{process(5, 1, "V::StageEngineCoreProc_stage99999999999_replica0", zmq)}, "has not the form"},
		{"words in an argument", []Snapshot{process(5, 1, fmt.Sprintf(title, 0, 0, 0)+"|x", zmq)}, "has not the form"},
		{"a worker alone", []Snapshot{process(5, 1, "VLLM::Worker_TP0", zmq)}, "no stage above"},
		{"a ring of parents", ring, "below no server"},
		{"a socket alone", []Snapshot{process(5, 1, "x", unix("/tmp/a/stage_x.sock"))}, "below no server"},
		{"a comm socket alone", []Snapshot{process(5, 1, "x", unix("/tmp/a/comm_x_rank0.sock"))}, "comm socket alone"},
		{"another pipeline's server", []Snapshot{
			process(4, 1, "x", unix("/tmp/a/completion.sock"), func(s *Snapshot) { s.NetNS = 1 }, tcp(1)),
			process(5, 1, "x", unix("/tmp/a/stage_x.sock")),
		}, "below no server"},
		{"maps that cannot be read", []Snapshot{process(5, 1, fmt.Sprintf(title, 0, 0, 0), func(s *Snapshot) {
			s.Missing = []string{"maps: permission denied"}
		})}, "maps: permission denied"},
		{"a forked child", []Snapshot{process(4, 1, serve), process(5, 4, serve)}, "forked child"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Classify(test.in, nil, nil)
			for _, p := range got.Processes {
				if p.Role != RoleAPI {
					t.Errorf("taken: %+v", p)
				}
			}
			var reasons []string
			for _, d := range got.Doubts {
				reasons = append(reasons, d.Reason)
			}
			if all := strings.Join(reasons, "; "); !strings.Contains(all, test.reason) {
				t.Errorf("doubts %q, want %q", all, test.reason)
			}
		})
	}
}

func TestClassifyWhy(t *testing.T) {
	got := Classify([]Snapshot{
		process(10, 1, serve), process(11, 10, fmt.Sprintf(title, 1, 0, 0), fifos(fmt.Sprintf(wake, 1))),
		process(12, 11, "VLLM::Worker"),
	}, nil, nil)
	var why []string
	for _, p := range got.Processes {
		why = append(why, strings.Join(p.Why, "; "))
	}
	want := []string{
		"command line",
		"process title; wake-up FIFO of the same stage; below process 10, whose command line is a server's",
		"process title of a worker; stage of process 11",
	}
	if diff := cmp.Diff(want, why); diff != "" {
		t.Error(diff)
	}
}

// What the recordings' processes.json says was found by hand is what Classify finds.
func TestClassifyRecorded(t *testing.T) {
	for _, set := range []string{"vo-basic", "vo-faults", "vo-real", "so-basic"} {
		f, err := os.Open(filepath.Join("..", "..", "testdata", "stages", set, "processes.json"))
		if err != nil {
			t.Fatal(err)
		}
		recorded, err := event.ReadProcesses(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		var in []Snapshot
		for _, p := range recorded.Processes {
			s := process(p.PID, 1, strings.ReplaceAll(p.Cmdline, " ", "|"), zmq)
			if strings.HasPrefix(p.Cmdline, "VLLM::") {
				s.Args = []string{p.Cmdline}
			}
			if p.PPID != nil {
				s.PPID = *p.PPID
			}
			for _, e := range recorded.ZMQBind {
				if e.PID == p.PID {
					s.Unix = append(s.Unix, strings.TrimPrefix(e.Addr, "ipc://"))
				}
			}
			in = append(in, s)
		}
		got := Classify(in, nil, omniNames)
		found := map[int]string{}
		for _, p := range got.Processes {
			found[p.PID] = p.Stage
		}
		for _, p := range recorded.Processes {
			if found[p.PID] != p.Stage {
				t.Errorf("%s: process %d is %q, want %q", set, p.PID, found[p.PID], p.Stage)
			}
		}
		if len(found) != len(recorded.Processes) {
			t.Errorf("%s: %v", set, brief(got.Processes))
		}
	}
}

// The trees of real servers: a CPU with worker processes, and a GPU without.
func TestClassifyRealTrees(t *testing.T) {
	for file, want := range map[string]string{
		"tree-workers.txt": "4090 api, 4357 thinker, 5195 talker, 5584 code2wav, 4576 thinker, 5313 talker, 5775 code2wav",
		"tree-gpu.txt":     "13425 api, 13568 thinker, 13841 talker, 14114 code2wav",
	} {
		b, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		var in []Snapshot
		parents := map[int]int{-1: 1} // by depth
		for line := range strings.Lines(string(b)) {
			text := strings.TrimLeft(line, " ")
			depth := (len(line) - len(text)) / 2
			pid, rest, _ := strings.Cut(text, " ")
			_, args, _ := strings.Cut(strings.TrimSpace(rest), " ")
			parents[depth] = *number(pid)
			in = append(in, process(*number(pid), parents[depth-1], strings.Join(strings.Fields(args), "|")))
		}
		var got []string
		for _, p := range Classify(in, nil, omniNames).Processes {
			got = append(got, fmt.Sprintf("%d %s", p.PID, p.Stage))
		}
		if diff := cmp.Diff(want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
	}
}

func TestChoose(t *testing.T) {
	in := []Snapshot{
		process(9, 1, "nginx", tcp(80)),
		process(10, 1, serve, tcp(8000)), process(11, 10, fmt.Sprintf(title, 0, 0, 0)),
		process(20, 1, serve), process(21, 20, "VLLM::APIServer_0", tcp(8001)), process(22, 20, fmt.Sprintf(title, 0, 0, 0)),
		process(30, 1, serve, tcp(9000), func(s *Snapshot) { s.NetNS = 1 }),
		process(40, 1, serve, tcp(9000), func(s *Snapshot) { s.NetNS = 2 }),
		process(50, 1, "docker-proxy", tcp(9001)),
		process(60, 1, serve, tcp(9001), func(s *Snapshot) { s.NetNS = 3 }),
		process(70, 1, serve, tcp(8000), func(s *Snapshot) { s.NetNS = 4 }),
		process(80, 1, "supervisor", tcp(9002)), process(81, 80, serve),
	}
	all := Classify(in, nil, nil).Processes
	for _, test := range []struct {
		port, root, n int
		why           string
	}{
		{0, 0, len(all), "no port"},
		{8000, 10, 2, "process 10 listens on port 8000"},
		{8001, 20, 3, "process 21 listens on port 8001"},
		{80, 0, len(all), `port 80 is process 9 (""), no server`},
		{7, 0, len(all), "no process was seen to listen on port 7"},
		{9000, 0, len(all), "2 servers listen on port 9000"},
		{9001, 60, 1, "process 60 listens"},
		{9002, 81, 1, "process 80 listens"},
	} {
		chosen, root, why := Choose(all, in, test.port, 0)
		if root != test.root || len(chosen) != test.n || !strings.Contains(why, test.why) {
			t.Errorf("Choose(%d) = %d processes, root %d, %q; want %d, %d, %q", test.port, len(chosen), root, why, test.n, test.root, test.why)
		}
	}
	if chosen, _, why := Choose(nil, in, 8000, 0); chosen != nil || why != "no stage process was found" {
		t.Errorf("Choose of nothing: %v, %q", chosen, why)
	}
}

func TestCompare(t *testing.T) {
	id := func(n int) *int { return &n }
	stage := func(pid int, start uint64, n, root int) event.Process {
		return event.Process{PID: pid, StartTicks: start, Server: VLLMOmni, Role: RoleStage, StageID: id(n), Stage: "s", Root: root}
	}
	a, b := stage(1, 1, 0, 9), stage(2, 1, 1, 9)
	for _, test := range []struct {
		name                      string
		before, now, earlier      []event.Process
		added, gone, restartedOld []int
	}{
		{"nothing", []event.Process{a, b}, []event.Process{a, b}, nil, nil, nil, nil},
		{"first", nil, []event.Process{a, b}, nil, []int{1, 2}, nil, nil},
		{"gone", []event.Process{a, b}, []event.Process{a}, nil, nil, []int{2}, nil},
		{"restart", []event.Process{a, b}, []event.Process{a, stage(3, 1, 1, 9)}, nil, []int{3}, []int{2}, []int{2}},
		{"restart after a while", []event.Process{a}, []event.Process{a, stage(3, 1, 1, 9)}, []event.Process{b}, []int{3}, nil, []int{2}},
		{"the pid is used again", []event.Process{a, b}, []event.Process{a, stage(2, 5, 1, 9)}, nil, []int{2}, []int{2}, []int{2}},
		{"the pid is another stage's", []event.Process{a, b}, []event.Process{a, stage(2, 5, 2, 9)}, nil, []int{2}, []int{2}, nil},
		{
			"the whole server",
			[]event.Process{a, b},
			[]event.Process{stage(3, 1, 0, 8), stage(4, 1, 1, 8)},
			nil,
			[]int{3, 4},
			[]int{1, 2},
			[]int{1, 2},
		},
		{
			"the same server first", nil,
			[]event.Process{stage(7, 1, 0, 9)},
			[]event.Process{stage(5, 1, 0, 9), stage(6, 1, 0, 8)},
			[]int{7},
			nil,
			[]int{5},
		},
	} {
		d := Compare(test.before, test.now, test.earlier)
		var added, gone, old []int
		for _, p := range d.Added {
			added = append(added, p.PID)
		}
		for _, p := range d.Gone {
			gone = append(gone, p.PID)
		}
		for _, r := range d.Restarted {
			old = append(old, r.Old.PID)
		}
		if !cmp.Equal(added, test.added) || !cmp.Equal(gone, test.gone) || !cmp.Equal(old, test.restartedOld) {
			t.Errorf("%s: added %v, gone %v, restarted %v", test.name, added, gone, old)
		}
		if d.Empty() != (len(test.added)+len(test.gone) == 0) {
			t.Errorf("%s: Empty = %v", test.name, d.Empty())
		}
	}
}

func FuzzClassify(f *testing.F) {
	f.Add(fmt.Sprintf(title, 0, 0, 0), "/tmp/a/stage_x.sock", "[Stage-1] ", fmt.Sprintf(wake, 1), 3)
	f.Add("VLLM::Worker_DP0_TP1", "comm_a_rank99.sock", "", "", 1)
	f.Add("python|-m|vllm_omni|serve|--model", "/completion.sock", "[Stage-", "/dev/shm/omni_shm_wake_", 2)
	f.Fuzz(func(t *testing.T, args, sock, prefix, fifo string, parent int) {
		in := []Snapshot{
			process(2, parent, args, unix(sock), fifos(fifo), env(envLoggingPrefix, prefix), zmq),
			process(3, 2, args, unix(sock+"x")), process(parent, 3, serve),
		}
		seen := map[int]bool{}
		for _, p := range Classify(in, nil, nil).Processes {
			if seen[p.PID] || p.Stage == "" || p.Root == 0 && parent != 0 || p.Rank < 0 || p.Replica < 0 {
				t.Errorf("%+v", p)
			}
			seen[p.PID] = true
			for _, r := range p.Stage {
				if r < 0x20 {
					t.Errorf("stage %q", p.Stage)
				}
			}
		}
	})
}
