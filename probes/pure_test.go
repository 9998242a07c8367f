//go:build linux && amd64

package probes

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/probes/kernel"
)

func TestValidate(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
	for _, tt := range []struct {
		c    Config
		want string
	}{
		{Config{Budget: -0.1}, "stages.budget"},
		{Config{Budget: 1.5}, "stages.budget"},
		{Config{Scan: time.Millisecond}, "stages.scan"},
		{Config{Scan: -time.Second}, "stages.scan"},
		{Config{SHM: Family{Use: "yes"}}, "stages.shm.use"},
		{Config{ZMQ: Family{RingKiB: 3}}, "stages.zmq.ring_kib"},
		{Config{ZMQ: Family{RingKiB: -4}}, "stages.zmq.ring_kib"},
		{Config{CUDA: Family{RingKiB: 100}}, "stages.cuda.ring_kib"},
		{Config{Sched: Family{RingKiB: 1 << 21}}, "stages.sched.ring_kib"},
		{Config{Pipe: Family{RingKiB: 4}}, "stages.pipe.ring_kib must be a power of two from 8 "},
		{Config{Socket: Family{RingKiB: 8}}, "stages.socket.ring_kib must be a power of two from 16 "},
	} {
		if err := tt.c.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %s", tt.c, err, tt.want)
		}
	}
	small := Config{SHM: Family{RingKiB: 4}, Pipe: Family{RingKiB: 8}, Socket: Family{RingKiB: 16}, Budget: 1, Scan: time.Second}
	if err := small.Validate(); err != nil {
		t.Error(err)
	}
}

func TestPerHit(t *testing.T) {
	for _, tt := range []struct {
		name     string
		old, now sum
		idle     float64
		want     float64
		ok       bool
	}{
		{"only hits", sum{}, sum{ns: 100_000, runs: 200, hits: 200}, 40, 500, true},
		{"others' runs are taken out", sum{}, sum{ns: 140_000, runs: 1200, hits: 200}, 40, 500, true},
		{"from a beginning", sum{ns: 1000, runs: 10, hits: 10}, sum{ns: 101_000, runs: 210, hits: 210}, 40, 500, true},
		{"others' runs cost more than thought", sum{}, sum{ns: 1000, runs: 10_200, hits: 200}, 40, 0, true},
		{"too few hits", sum{}, sum{ns: 100_000, runs: 49, hits: 49}, 40, 0, false},
		{"attached anew", sum{ns: 5000, runs: 500, hits: 0}, sum{ns: 100, runs: 100, hits: 100}, 40, 0, false},
	} {
		got, ok := perHit(tt.old, tt.now, tt.idle)
		if ok != tt.ok || got != tt.want {
			t.Errorf("%s: %v %t, want %v %t", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}

// loaded makes families that look attached, all but two.
func loaded() []*family {
	families := newFamilies(&Config{})
	for _, f := range families {
		if f.name != "cuda" && f.name != "pipe" {
			f.kernel = new(kernel.Family)
		}
	}
	return families
}

// TestJudge: only what is over the limit for some looks in a row loses a family, the
// first of the order that is a good part of the cost; the dearest stage is told.
func TestJudge(t *testing.T) {
	b := newBudget(0.01)
	calm := map[string]map[string]float64{"thinker": {"shm": 0.004, "sched": 0.002}, "talker": {"shm": 0.001}}
	if s := b.judge(loaded(), calm); s != "" || b.over != 0 {
		t.Errorf("within the budget: %q", s)
	}
	families := loaded()
	dear := map[string]map[string]float64{"thinker": {"shm": 0.02, "sched": 0.0005, "socket": 0.01}, "talker": {"shm": 0.001}}
	for range patience - 1 {
		if name, _ := b.decide(dear); name != "" {
			t.Errorf("%s was taken after %d looks", name, b.over)
		}
	}
	judgeCores(families, dear)
	for _, f := range families {
		want, has := dear["thinker"][f.name]
		if has != (f.cores != nil) || has && *f.cores != want {
			t.Errorf("%s takes %v, want %v", f.name, f.cores, want)
		}
	}
	if name, why := b.decide(dear); name != "socket" || !strings.Contains(why, `"thinker"`) || !strings.Contains(why, "3.05 %") {
		t.Errorf("%q: %s", name, why)
	}
	if b.over != 0 {
		t.Error("the next one would go at once")
	}
	b.decide(dear)
	b.decide(calm)
	b.decide(dear)
	if name, _ := b.decide(dear); name != "" {
		t.Errorf("%s was taken although a look between was calm", name)
	}
	strict := newBudget(0)
	strict.over = patience
	if name, _ := strict.decide(map[string]map[string]float64{"x": {"proc": 1}}); name != "" {
		t.Errorf("%s was taken", name)
	}
}

func TestSacrificeNamesEveryFamily(t *testing.T) {
	want := slices.DeleteFunc(slices.Clone(kernel.Families[:]), func(n string) bool { return n == "proc" })
	got := slices.Clone(sacrifice)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, f := range newFamilies(&Config{}) {
		if !slices.Contains(kernel.Families[:], f.name) {
			t.Errorf("%s has no place in the table of processes", f.name)
		}
	}
}

func TestUsesQueues(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    event.Process
		want bool
	}{
		{"api", event.Process{Server: "vllm-omni", Role: "api"}, false},
		{"first generation", event.Process{Server: "vllm-omni", Role: "stage", Cmdline: "python -c from multiprocessing.spawn"}, true},
		{"second generation", event.Process{Server: "vllm-omni", Role: "stage", Cmdline: "VLLM::StageEngineCoreProc_stage0_replica0_DP0"}, false},
		{"leader", event.Process{Server: "sglang-omni", Role: "stage"}, false},
		{"follower", event.Process{Server: "sglang-omni", Role: "stage", Rank: 1}, true},
		{"own", event.Process{Server: "mine", Role: "stage"}, true},
	} {
		if got := usesQueues([]event.Process{tt.p}); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// TestC69ReadOnly: the objects use only helpers that read, keep and tell. None writes to
// a process, signals it, changes what a call returns, or moves a socket's data.
func TestC69ReadOnly(t *testing.T) {
	allowed := []asm.BuiltinFunc{
		asm.FnMapLookupElem, asm.FnMapUpdateElem, asm.FnMapDeleteElem, asm.FnKtimeGetNs, asm.FnGetCurrentPidTgid, asm.FnGetNsCurrentPidTgid,
		asm.FnGetCurrentComm, asm.FnGetCurrentTask, asm.FnProbeReadUser, asm.FnProbeReadUserStr, asm.FnProbeReadKernel, asm.FnProbeReadKernelStr,
		asm.FnRingbufReserve, asm.FnRingbufSubmit, asm.FnRingbufDiscard, asm.FnGetAttachCookie, asm.FnLoop,
		asm.FnTaskStorageGet, // our own word kept with the kernel's thread
	}
	types := []ebpf.ProgramType{ebpf.TracePoint, ebpf.RawTracepoint, ebpf.Tracing, ebpf.Kprobe}
	for _, name := range kernel.Families {
		spec, err := ebpf.LoadCollectionSpec(name + "/bpf_x86_bpfel.o")
		if err != nil {
			t.Fatal(err)
		}
		used := map[asm.BuiltinFunc]bool{}
		for _, p := range spec.Programs {
			if !slices.Contains(types, p.Type) {
				t.Errorf("%s: %s is a %v", name, p.Name, p.Type)
			}
			for i := range p.Instructions {
				if in := &p.Instructions[i]; in.IsBuiltinCall() {
					used[asm.BuiltinFunc(in.Constant)] = true
				} else if in.IsKfuncCall() {
					t.Errorf("%s: %s calls a function of the kernel", name, p.Name)
				}
			}
		}
		if len(used) < 5 {
			t.Errorf("%s: only %v was found", name, used)
		}
		for fn := range maps.Keys(used) {
			if !slices.Contains(allowed, fn) {
				t.Errorf("%s uses %v", name, fn)
			}
		}
	}
}
