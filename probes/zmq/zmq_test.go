//go:build linux && amd64

package zmq_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/probes/internal/live"
	"github.com/omnitap/omnitap/probes/kernel"
	"github.com/omnitap/omnitap/probes/zmq"
)

func TestMain(m *testing.M) { live.Main(m, nil) }

// content is what pair.py sends.
func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*13 + i>>8)
	}
	return b
}

func isZMQ(p string) bool { return strings.HasPrefix(filepath.Base(p), "libzmq") }

// clientPython returns the Python that has pyzmq.
func clientPython(t testing.TB) string {
	t.Helper()
	if p := os.Getenv("OMNITAP_CLIENTS"); p != "" {
		return p
	}
	out, err := exec.CommandContext(t.Context(), "../../testdata/clients/install.sh", "--path").Output()
	if err != nil {
		t.Fatalf("the test clients are not installed: run `make clients` (%v)", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "bin", "python")
}

// pair is two Python processes that are connected by pyzmq.
type pair struct {
	push, pull *live.Process
	mapping    kernel.Mapping
	file       string
	endpoint   string
}

func startPair(t testing.TB) *pair {
	t.Helper()
	live.Require(t)
	python := clientPython(t)
	p := &pair{endpoint: "ipc://" + t.TempDir() + "/stage_talker.sock"}
	p.push = live.Run(t, []string{python, "testdata/pair.py", "push", p.endpoint}, nil)
	p.pull = live.Run(t, []string{python, "testdata/pair.py", "pull", p.endpoint}, nil)
	maps, err := kernel.Mapped(p.push.Pid, isZMQ)
	if err != nil || len(maps) != 1 {
		t.Fatalf("pyzmq maps %+v %v", maps, err)
	}
	p.mapping = maps[0]
	if p.file, err = maps[0].Open(p.push.Pid); err != nil {
		t.Fatal(err)
	}
	return p
}

// attach loads the family and puts it on pyzmq's libzmq; both processes are watched.
func (p *pair) attach(t testing.TB, multi bool) (*kernel.Family, map[string]kernel.Symbol) {
	t.Helper()
	w := live.NewWatch(t)
	f, err := zmq.Load(w, 16<<20, multi)
	live.Family(t, f, err)
	found, err := zmq.Attach(f, p.file)
	if err != nil {
		t.Fatal(err)
	}
	live.Add(t, w, p.push)
	live.Add(t, w, p.pull)
	return f, found
}

// checkFrame says how a frame of a size is told.
func checkFrame(t *testing.T, e *event.Event, n int, more bool) {
	t.Helper()
	all := content(n)
	head, tail := all, []byte(nil)
	if n > 1024 {
		head, tail = all[:1024], all[n-64:]
	}
	if e.Size != int64(n) || e.Ret != int64(n) || e.More != more || e.Sock == 0 || e.EnterNS == 0 || e.EnterNS > e.MonoNS || e.TID != e.PID {
		t.Errorf("%v of %d bytes: %+v", e.Probe, n, *e)
	}
	if !bytes.Equal(e.Head, head) || !bytes.Equal(e.Tail, tail) {
		t.Errorf("%v of %d bytes, type %d: head %d, equal %t; tail %d, equal %t", e.Probe, n, e.MsgType,
			len(e.Head), bytes.Equal(e.Head, head), len(e.Tail), bytes.Equal(e.Tail, tail))
	}
}

// TestFrames: messages of every type and many sizes, of one frame and of several, are
// told once each, in order, with their first and last bytes.
func TestFrames(t *testing.T) {
	for _, multi := range []bool{true, false} {
		p := startPair(t)
		f, found := p.attach(t, multi)
		for name, s := range found {
			if s.First == kernel.Stepped {
				t.Errorf("%s has to be single-stepped", name)
			}
		}
		types, socks := map[uint8]bool{}, map[int]uint64{}
		for _, message := range [][]int{
			{0}, {1}, {32}, {33}, {34}, {63}, {64}, {65}, {1023}, {1024}, {1025}, {1088}, {65536}, {1 << 20}, {3, 500, 0}, {0, 33, 34, 100000}, {1 << 20, 5},
		} {
			for _, mode := range []string{"", "z"} { // zero-copy
				args := []string{"send"}
				for _, n := range message {
					args = append(args, fmt.Sprint(mode, n))
				}
				p.push.Do(args...)
				p.pull.Do("recv", fmt.Sprint(len(message)))
				events := live.Drain(t, f)
				for pid, probe := range map[int]event.Probe{p.push.Pid: event.ZMQSend, p.pull.Pid: event.ZMQRecv} {
					got := live.Of(events, pid, probe)
					// pyzmq tells a thread of its own by ZMQ that a zero-copy message is gone
					if socks[pid] == 0 && len(got) > 0 {
						socks[pid] = got[0].Sock
					}
					got = slices.DeleteFunc(got, func(e event.Event) bool { return e.Sock != socks[pid] })
					if len(got) != len(message) {
						t.Errorf("%v %v: %d frames of %d", probe, args, len(got), len(message))
						continue
					}
					for i := range got {
						checkFrame(t, &got[i], message[i], i < len(message)-1)
						types[got[i].MsgType] = true
					}
				}
			}
		}
		for typ, name := range map[uint8]string{101: "inline", 102: "long", 105: "zero-copy"} {
			if !types[typ] {
				t.Errorf("no %s message was among them", name)
			}
		}
		if c := live.Counts(t, f); c.Lost+c.Skipped != 0 {
			t.Errorf("lost: %+v", c)
		}
	}
}

// TestAsync: the sends of an event loop come once each, in order.
func TestAsync(t *testing.T) {
	p := startPair(t)
	f, _ := p.attach(t, true)
	const count, size = 300, 70000
	p.push.Tell("async_send", fmt.Sprint(count), fmt.Sprint(size))
	p.pull.Do("recv", fmt.Sprint(count))
	p.push.Answer()
	events := live.Drain(t, f)
	sends, recvs := live.Of(events, p.push.Pid, event.ZMQSend), live.Of(events, p.pull.Pid, event.ZMQRecv)
	if len(sends) != count || len(recvs) != count {
		t.Fatalf("%d sends, %d receives of %d", len(sends), len(recvs), count)
	}
	for i := range sends {
		checkFrame(t, &sends[i], size, false)
		checkFrame(t, &recvs[i], size, false)
		if sends[i].EnterNS > recvs[i].MonoNS {
			t.Errorf("message %d was received before it was sent", i)
		}
	}
}

// TestAgain: a send that is told to come again is not told.
func TestAgain(t *testing.T) {
	p := startPair(t)
	f, _ := p.attach(t, true)
	const size = 70000
	sent := p.push.Do("fill", fmt.Sprint(size))
	p.pull.Do("recv", sent)
	events := live.Drain(t, f)
	sends, recvs := live.Of(events, p.push.Pid, event.ZMQSend), live.Of(events, p.pull.Pid, event.ZMQRecv)
	if fmt.Sprint(len(sends)) != sent || fmt.Sprint(len(recvs)) != sent {
		t.Errorf("%d sends, %d receives of %s", len(sends), len(recvs), sent)
	}
	for i := range sends {
		checkFrame(t, &sends[i], size, false)
	}
}

// TestEndpoints: what is bound and connected while probes are there.
func TestEndpoints(t *testing.T) {
	p := startPair(t)
	w := live.NewWatch(t)
	f, err := zmq.Load(w, 0, true)
	live.Family(t, f, err)
	if _, err := zmq.Attach(f, p.file); err != nil {
		t.Fatal(err)
	}
	python := clientPython(t)
	long := "ipc://" + t.TempDir() + "/comm_thinker_rank0.sock"
	// The process waits before it binds, so that it can be watched.
	late := live.Run(t, []string{python, "-c", `import sys, zmq
print("ready", flush=True)
s = zmq.Context().socket(zmq.PULL)
sys.stdin.readline()
s.bind(sys.argv[1])
s.connect(sys.argv[1])
print("done", flush=True)
sys.stdin.readline()`, long}, nil)
	live.Add(t, w, late)
	if got := late.Do("go"); got != "done" {
		t.Fatal(got)
	}
	var got []string
	for _, e := range live.Of(live.Drain(t, f), late.Pid) {
		got = append(got, fmt.Sprint(e.Probe, " ", e.Path))
	}
	if len(got) != 2 || got[0] != "zmq_bind "+long || got[1] != "zmq_connect "+long {
		t.Errorf("told %q", got)
	}
}

// TestC67AttachDetach attaches to and detaches from two Python processes under load, a
// hundred times. They live on, every message arrives, and no trap is left.
func TestC67AttachDetach(t *testing.T) {
	p := startPair(t)
	const messages = 100000
	p.pull.Tell("recv", fmt.Sprint(messages))
	p.push.Tell("many", fmt.Sprint(messages), "500")
	w := live.NewWatch(t)
	live.Add(t, w, p.push)
	live.Add(t, w, p.pull)
	for range 25 { // four at once: the kernel makes each wait for all CPUs
		var at [4]*kernel.Family
		var found map[string]kernel.Symbol
		for i := range at {
			f, err := zmq.Load(w, 0, true)
			if err != nil {
				t.Fatal(err)
			}
			if found, err = zmq.Attach(f, p.file); err != nil {
				t.Fatal(err)
			}
			at[i] = f
		}
		p.trapped(t, found, true)
		var closing sync.WaitGroup
		errs := make([]error, len(at))
		for i, f := range at {
			closing.Go(func() { errs[i] = f.Close() })
		}
		closing.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		p.trapped(t, found, false)
	}
	// whoever is done by now goes on with more
	if got := p.push.Answer(); got != "done" {
		t.Errorf("the sender says %q", got)
	}
	if got := p.pull.Answer(); got != "done" {
		t.Errorf("the receiver says %q", got)
	}
	for _, end := range []*live.Process{p.push, p.pull} {
		if st := end.End(); !st.Success() {
			t.Errorf("after 100 times: %v", st)
		}
	}
}

// trapped wants a trap at every function of both processes, or none.
func (p *pair) trapped(t *testing.T, found map[string]kernel.Symbol, want bool) {
	t.Helper()
	for _, end := range []*live.Process{p.push, p.pull} {
		maps, err := kernel.Mapped(end.Pid, isZMQ)
		if err != nil || len(maps) != 1 {
			t.Fatalf("%+v %v", maps, err)
		}
		for name, s := range found {
			if there, err := kernel.Trapped(end.Pid, &maps[0], s); err != nil || there != want {
				t.Fatalf("trap at %s of process %d: %t, want %t (%v)", name, end.Pid, there, want, err)
			}
		}
	}
}

// BenchmarkHit measures what a hit costs in the kernel, without the trap.
func BenchmarkHit(b *testing.B) {
	for _, size := range []string{"20", "500", "100000"} {
		b.Run(size, func(b *testing.B) {
			p := startPair(b)
			f, _ := p.attach(b, true)
			stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
			if err != nil {
				b.Fatal(err)
			}
			defer stats.Close()
			for b.Loop() {
				p.pull.Tell("recv", "1000")
				p.push.Do("many", "1000", size)
				p.pull.Answer()
				live.Drain(b, f)
			}
			b.ReportMetric(live.RunTime(b, f)/float64(live.Counts(b, f).Hits), "ns/hit")
			b.ReportMetric(0, "ns/op")
		})
	}
}
