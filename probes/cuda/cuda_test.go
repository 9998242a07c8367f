//go:build linux && amd64

package cuda_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/probes/cuda"
	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/probes/internal/live"
	"github.com/omnitap/omnitap/probes/kernel"
)

// driver stands in for NVIDIA's: the functions' names and arguments, and nothing else.
const driver = `
#define F(name, ...) __attribute__((noinline)) int name(__VA_ARGS__) { asm volatile(""); return (int)0; }
typedef unsigned long u64; typedef void *p;
F(cuGraphLaunch, p a, p b)
F(cuStreamSynchronize, p a)
F(cuEventSynchronize, p a)
F(cuMemcpyHtoDAsync_v2, u64 to, p from, u64 n, p s)
F(cuMemcpyDtoHAsync_v2, p to, u64 from, u64 n, p s)
F(cuIpcGetMemHandle, p a, u64 b)
F(cuLaunchKernel, p f, unsigned gx, unsigned gy, unsigned gz)
`

// user calls them: FUNCTION TIMES BYTES a line.
const user = `
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
	void *lib[2] = {dlopen(argv[1], RTLD_NOW), 0};
	if (argc > 2) lib[1] = dlopen(argv[2], RTLD_NOW);
	char name[64]; unsigned long times, bytes;
	puts(lib[0] ? "ready" : dlerror()); fflush(stdout);
	while (scanf("%63s %lu %lu", name, &times, &bytes) == 3) {
		int (*f)(void *, void *, unsigned long, void *) = dlsym(lib[0], name);
		for (unsigned long i = 0; f && i < times; i++) f((void *)1, (void *)2, bytes, (void *)4);
		puts(f ? "called" : "no such function"); fflush(stdout);
	}
	return 0;
}`

func TestMain(m *testing.M) { live.Main(m, nil) }

type setup struct {
	w    *kernel.Watch
	f    *kernel.Family
	p    *live.Process
	lib  string
	maps []kernel.Mapping
}

func isDriver(p string) bool { return strings.HasPrefix(filepath.Base(p), "libcuda.so") }

func start(t testing.TB, multi bool, flags ...string) *setup {
	t.Helper()
	s := &setup{w: live.NewWatch(t)}
	f, err := cuda.Load(s.w, cuda.Config{Multi: multi})
	s.f = live.Family(t, f, err)
	s.lib = live.Compile(t, "libcuda.so.1", driver, append([]string{"-shared", "-fPIC"}, flags...)...)
	s.p = live.Run(t, []string{live.Compile(t, "user", user, "-ldl"), s.lib}, nil)
	live.Add(t, s.w, s.p)
	if s.maps, err = kernel.Mapped(s.p.Pid, isDriver); err != nil || len(s.maps) == 0 {
		t.Fatal(s.maps, err)
	}
	return s
}

// attach attaches to the library as the process maps it.
func (s *setup) attach(t testing.TB) map[string]kernel.Symbol {
	t.Helper()
	file, err := s.maps[0].Open(s.p.Pid)
	if err != nil {
		t.Fatal(err)
	}
	found, err := cuda.Attach(s.f, file, true)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestCalls: calls are told one by one with their values, small copies and launches are
// counted, and all counts are exact; by uprobe_multi and by single uprobes; where
// functions begin with endbr64 and where they do not.
func TestCalls(t *testing.T) {
	for _, tt := range []struct {
		name  string
		multi bool
		cf    string
		first kernel.First
	}{
		{"multi", true, "-fcf-protection=none", kernel.Stepped},
		{"plain", false, "-fcf-protection=none", kernel.Stepped},
		{"endbr64", true, "-fcf-protection=full", kernel.Marked},
	} {
		t.Run(tt.name, func(t *testing.T) { testCalls(t, tt.multi, tt.first, tt.cf) })
	}
}

func testCalls(t *testing.T, multi bool, first kernel.First, cf string) {
	t.Helper()
	flags := []string{cf}
	if first == kernel.Marked { // a function that begins with push behind its endbr64
		flags = append(flags, "-O0", "-fno-omit-frame-pointer")
	}
	s := start(t, multi, flags...)
	found := s.attach(t)
	for name, sym := range found {
		if sym.First != first {
			t.Errorf("%s begins %v, not %v", name, sym.First, first)
		}
		if there, err := kernel.Trapped(s.p.Pid, &s.maps[0], sym); err != nil || !there {
			t.Errorf("no trap at %s: %v", name, err)
		}
	}
	s.p.Do("cuGraphLaunch 77 0")
	s.p.Do("cuStreamSynchronize 101 0")
	s.p.Do("cuMemcpyHtoDAsync_v2 100 1048576")
	s.p.Do("cuMemcpyHtoDAsync_v2 50 100")
	s.p.Do("cuLaunchKernel 6000 0")
	counts, bytes := map[string]int{}, int64(0)
	for _, e := range live.Of(live.Drain(t, s.f), s.p.Pid, event.CUDACall) {
		if e.EnterNS == 0 || e.EnterNS > e.MonoNS || e.Args[0] != 1 || e.Ret != 0 {
			t.Fatalf("%+v", e)
		}
		bytes += e.Size
		cuda.Name(&e)
		counts[e.Path]++
	}
	want := map[string]int{"cuGraphLaunch": 77, "cuStreamSynchronize": 101, "cuMemcpyHtoDAsync_v2": 100}
	if diff := cmp.Diff(want, counts); diff != "" || bytes != 100<<20 {
		t.Errorf("%d bytes; calls (-want +got):\n%s", bytes, diff)
	}
	var c cuda.Counter
	checkCounted(t, &c, s, map[string][2]int64{"cuMemcpyHtoDAsync_v2": {50, 5000}, "cuLaunchKernel": {6000, 0}})
	checkCounted(t, &c, s, map[string][2]int64{})
	s.p.Do("cuLaunchKernel 3 0")
	checkCounted(t, &c, s, map[string][2]int64{"cuLaunchKernel": {3, 0}})
	if n := live.Counts(t, s.f); n.Lost+n.Skipped != 0 {
		t.Errorf("lost: %+v", n)
	}
}

func checkCounted(t *testing.T, c *cuda.Counter, s *setup, want map[string][2]int64) {
	t.Helper()
	events, err := c.Take(s.f)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][2]int64{}
	for _, e := range events {
		got[e.Path] = [2]int64{e.Count, e.Size}
		if e.EnterNS <= 0 || e.EnterNS > e.MonoNS || int(e.PID) != s.p.Pid {
			t.Errorf("%+v", e)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

// TestCountsUnderLoad: counts are taken again and again while the process calls; they
// add up, and none is lost.
func TestCountsUnderLoad(t *testing.T) {
	s := start(t, true)
	s.attach(t)
	const calls = 50000
	s.p.Tell("cuLaunchKernel", "50000", "0")
	done := make(chan bool)
	go func() { s.p.Answer(); close(done) }()
	var c cuda.Counter
	var sum int64
	take := func() {
		events, err := c.Take(s.f)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			sum += e.Count
		}
	}
	for looking := true; looking; {
		select {
		case <-done:
			looking = false
		default:
		}
		take()
	}
	if sum != calls {
		t.Errorf("counted %d of %d", sum, calls)
	}
}

// TestReplacedWhileMapped: the file that a process maps was replaced by another one;
// what it maps is probed all the same.
func TestReplacedWhileMapped(t *testing.T) {
	s := start(t, true)
	other := live.Compile(t, "other.so", "int cuGraphLaunch(void) { return 7; }", "-shared", "-fPIC")
	if err := os.Rename(other, s.lib); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.maps, err = kernel.Mapped(s.p.Pid, isDriver); err != nil || len(s.maps) != 1 || !s.maps[0].Deleted {
		t.Fatalf("%+v %v", s.maps, err)
	}
	s.attach(t)
	s.p.Do("cuGraphLaunch 5 0")
	if n := len(live.Of(live.Drain(t, s.f), s.p.Pid, event.CUDACall)); n != 5 {
		t.Errorf("%d of 5 calls", n)
	}
}

// TestStripped: a library needs no more than its dynamic symbols; one that hides the
// functions, a static program, and a file that is none of these are refused by name.
func TestStripped(t *testing.T) {
	s := start(t, true, "-s")
	if found := s.attach(t); len(found) != 7 {
		t.Errorf("found %d functions of 7 in a stripped library", len(found))
	}
	hidden := live.Compile(t, "libcuda.so.1", driver, "-shared", "-fPIC", "-fvisibility=hidden")
	if _, err := cuda.Attach(s.f, hidden, true); err == nil || !strings.Contains(err.Error(), "has none of the driver's functions") {
		t.Errorf("hidden: %v", err)
	}
	static := live.Compile(t, "libcuda.so.1", driver+"int main(void) { return 0; }", "-static")
	var no *kernel.NotLibraryError
	if _, err := cuda.Attach(s.f, static, true); !errors.As(err, &no) {
		t.Errorf("static program: %v", err)
	}
	text := filepath.Join(t.TempDir(), "libcuda.so.1")
	for _, junk := range []string{"", "no library", "\x7fELF\x02\x01\x01"} {
		if err := os.WriteFile(text, []byte(junk), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := cuda.Attach(s.f, text, true); err == nil || !strings.Contains(err.Error(), "reading a library") {
			t.Errorf("%q: %v", junk, err)
		}
	}
}

// TestClose leaves no trap behind.
func TestClose(t *testing.T) {
	w := live.NewWatch(t)
	f, err := cuda.Load(w, cuda.Config{Multi: true})
	if err != nil {
		t.Fatal(err)
	}
	lib := live.Compile(t, "libcuda.so.1", driver, "-shared", "-fPIC")
	p := live.Run(t, []string{live.Compile(t, "user", user, "-ldl"), lib}, nil)
	found, err := cuda.Attach(f, lib, true)
	if err != nil {
		t.Fatal(err)
	}
	maps, err := kernel.Mapped(p.Pid, isDriver)
	if err != nil || len(maps) != 1 {
		t.Fatal(maps, err)
	}
	want := true
	check := func() {
		for name, sym := range found {
			if there, err := kernel.Trapped(p.Pid, &maps[0], sym); err != nil || there != want {
				t.Errorf("trap at %s: %t, want %t (%v)", name, there, want, err)
			}
		}
	}
	check()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	want = false
	check()
}

// BenchmarkHit measures what a call that is told and one that is counted cost in the
// kernel, without the traps.
func BenchmarkHit(b *testing.B) {
	for _, fn := range []string{"cuGraphLaunch", "cuLaunchKernel"} {
		b.Run(fn, func(b *testing.B) {
			s := start(b, true)
			s.attach(b)
			stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
			if err != nil {
				b.Fatal(err)
			}
			defer stats.Close()
			for b.Loop() {
				s.p.Do(fn + " 1000 0")
				live.Drain(b, s.f)
			}
			b.ReportMetric(live.RunTime(b, s.f)/float64(live.Counts(b, s.f).Hits), "ns/hit")
			b.ReportMetric(0, "ns/op")
		})
	}
}
