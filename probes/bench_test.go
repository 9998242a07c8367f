//go:build linux && amd64

package probes

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/probes/internal/live"
	"github.com/omnitap/omnitap/probes/kernel"
	"github.com/omnitap/omnitap/probes/pipe"
	"github.com/omnitap/omnitap/probes/proc"
	"github.com/omnitap/omnitap/probes/sched"
	"github.com/omnitap/omnitap/probes/shm"
	"github.com/omnitap/omnitap/probes/socket"
)

// BenchmarkHit measures what a hit costs, by family: the program, as the kernel
// measures it, for a watched process and for one that nobody watches.
func BenchmarkHit(b *testing.B) {
	for _, bb := range []struct {
		family string
		act    string
		load   func(w *kernel.Watch) (*kernel.Family, error)
	}{
		{"shm", "unlink", func(w *kernel.Watch) (*kernel.Family, error) { return shm.Load(w, 16<<20) }},
		{"shm", "miss", func(w *kernel.Watch) (*kernel.Family, error) { return shm.Load(w, 16<<20) }},
		{"shm", "null", func(w *kernel.Watch) (*kernel.Family, error) { return shm.Load(w, 16<<20) }},
		{"pipe", "null", func(w *kernel.Watch) (*kernel.Family, error) { return pipe.Load(w, 16<<20) }},
		{"socket", "null", func(w *kernel.Watch) (*kernel.Family, error) {
			return socket.Load(w, socket.Config{ZMTP: true, RingBytes: 16 << 20})
		}},
		{"socket", "pair", func(w *kernel.Watch) (*kernel.Family, error) {
			return socket.Load(w, socket.Config{ZMTP: true, RingBytes: 16 << 20})
		}},
		{"sched", "yield", func(w *kernel.Watch) (*kernel.Family, error) { return sched.Load(w, 16<<20) }},
		{"proc", "signal", func(w *kernel.Watch) (*kernel.Family, error) { return proc.Load(w, 16<<20) }},
	} {
		for _, watched := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/%s/watched=%t", bb.family, bb.act, watched), func(b *testing.B) {
				w := live.NewWatch(b)
				f, err := bb.load(w)
				live.Family(b, f, err)
				p := live.Start(b, "calls")
				if watched {
					live.Add(b, w, p)
				}
				stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
				if err != nil {
					b.Fatal(err)
				}
				defer stats.Close()
				fam := &family{kernel: f}
				before, calls := runtimeOf(fam), 0
				for b.Loop() {
					p.Do(bb.act, "1000")
					calls += 1000
					live.Drain(b, f)
				}
				now := runtimeOf(fam)
				if watched {
					b.ReportMetric(float64(now.ns-before.ns)/float64(max(now.hits-before.hits, 1)), "ns/hit")
					b.ReportMetric(float64(now.hits-before.hits)/float64(calls), "hits/call")
				}
				b.ReportMetric(float64(now.ns-before.ns)/float64(max(now.runs-before.runs, 1)), "ns/run")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// callsOf makes one kind of system call, as often as it is told.
func callsOf(args []string) (string, error) {
	var n int
	fmt.Sscan(args[1], &n)
	if args[0] == "unlink" {
		return unlinks(args[1:])
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	msg := make([]byte, 200)
	for range n {
		switch args[0] {
		case "miss":
			_, _ = unix.Open("/dev/shm/omt-not-there", unix.O_RDONLY, 0)
		case "null":
			_, _ = unix.Open("/nowhere", unix.O_RDONLY, 0)
			_, _ = unix.Write(-1, nil)
		case "pair":
			_, _ = unix.Write(fds[0], msg)
			_, _ = unix.Read(fds[1], msg)
		case "yield":
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 1}, nil)
		case "signal":
			_ = unix.Kill(unix.Getpid(), unix.SIGWINCH)
		}
	}
	return "done", nil
}

// BenchmarkReader measures what omnitap itself spends on reading: its CPU time, with
// nobody there, with a quiet stage, and at 1,000 events a second.
func BenchmarkReader(b *testing.B) {
	for _, rate := range []int{-1, 0, 1000} {
		b.Run(fmt.Sprintf("events=%d", rate), func(b *testing.B) {
			p := live.Start(b, "unlink")
			src := newSource(p)
			if rate < 0 {
				src = newSource()
			}
			s, err := Open(b.Context(), Config{}, src, &recorder{}, slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			cpu := func() time.Duration {
				var u unix.Rusage
				if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
					b.Fatal(err)
				}
				return time.Duration(u.Utime.Nano() + u.Stime.Nano())
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var used time.Duration
			polls := 0
			for b.Loop() {
				if rate > 0 { // of 200 polls a second
					p.Do(fmt.Sprint(rate / 200))
				}
				from := cpu()
				s.poll()
				used += cpu() - from
				polls++
			}
			a := 1 / pollIdle.Seconds()
			if rate > 0 {
				a = 1 / pollBusy.Seconds()
			}
			b.ReportMetric(used.Seconds()/float64(polls)*a*100, "%core")
			b.ReportMetric(used.Seconds()*1e9/float64(polls), "ns/poll")
			b.ReportMetric(0, "ns/op")
			from := cpu()
			for range 20 {
				s.maintain()
			}
			b.ReportMetric((cpu()-from).Seconds()/20*100, "%core_maintain")
		})
	}
}
