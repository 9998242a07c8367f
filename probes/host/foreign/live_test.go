//go:build linux && amd64

package foreign

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/probes/host"
	"github.com/omnitap/omnitap/probes/internal/live"
)

const spinEnv = "FOREIGN_TEST_SPIN"

func TestMain(m *testing.M) {
	if ms := os.Getenv(spinEnv); ms != "" { // a grandchild
		if _, err := spin([]string{ms}); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	live.Main(m, map[string]live.Act{"spin": spin, "fork": fork})
}

// spin takes so many milliseconds of CPU time, and answers with what the kernel says
// that the process took since its start, nanoseconds.
func spin(args []string) (string, error) {
	ms, err := strconv.Atoi(args[0])
	if err != nil {
		return "", err
	}
	for begin, now := took(syscall.RUSAGE_SELF), int64(0); now-begin < int64(ms)*1e6; now = took(syscall.RUSAGE_SELF) {
		for range 10_000 {
			sink++
		}
	}
	return strconv.FormatInt(took(syscall.RUSAGE_SELF), 10), nil
}

var sink int

// fork runs a child that spins, waits for it, and answers with what its children took.
func fork(args []string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	c := exec.Command(exe)
	c.Env = append(os.Environ(), spinEnv+"="+args[0])
	if err := c.Run(); err != nil {
		return "", err
	}
	return strconv.FormatInt(took(syscall.RUSAGE_CHILDREN), 10), nil
}

func took(who int) int64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(who, &r); err != nil {
		panic(err)
	}
	return r.Utime.Nano() + r.Stime.Nano()
}

func ns(t *testing.T, answer string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(answer, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLive: a server and a stranger take known times. What the kernel says of each by
// its own rusage must be what the windows say, however busy the machine is beside: one
// collector is told of the stranger and one is not, and they must differ by its time.
func TestLive(t *testing.T) {
	spinner, forker, other := live.Start(t, "spin"), live.Start(t, "fork"), live.Start(t, "spin")
	strange := Groups{Server: []Process{{PID: spinner.Pid}, {PID: forker.Pid}}, Omnitap: []Process{}} // or all were omnitap's children
	named := strange
	named.Load = []Process{{PID: other.Pid}}
	one, two := newCollector("", host.SystemClocks()), newCollector("", host.SystemClocks())
	before := []int64{ns(t, spinner.Do("0")), ns(t, forker.Do("0")), ns(t, other.Do("0"))}
	first, firstNamed := one.sample(strange), two.sample(named)
	after := []int64{ns(t, spinner.Do("300")), ns(t, forker.Do("250")), ns(t, other.Do("350"))}
	w := between(first, one.sample(strange), second)
	n := between(firstNamed, two.sample(named), second)
	if w.ForeignCores == nil || n.ForeignCores == nil {
		t.Fatalf("not measured: %v, %v", w.Unmeasured, n.Unmeasured)
	}
	elapsed := float64(w.EndMonoNS-w.StartMonoNS) / 1e9
	server := float64(after[0]-before[0]+after[1]-before[1]) / 1e9
	stranger := float64(after[2]-before[2]) / 1e9
	for name, v := range map[string][2]float64{
		"the server took":                    {*w.ServerCores * elapsed, server},
		"the load took":                      {*n.LoadCores * elapsed, stranger},
		"the windows differ by the stranger": {(*w.ForeignCores - *n.ForeignCores) * elapsed, stranger},
	} {
		if d := v[0] - v[1]; d > 0.1*v[1]+0.06 || d < -0.1*v[1]-0.06 {
			t.Errorf("%s: told %.3f s of CPU time, the kernel's own count is %.3f s", name, v[0], v[1])
		}
	}
	if *w.ForeignHighCores*elapsed < stranger || *w.ForeignCores*elapsed < 0.9*stranger-0.06 {
		t.Errorf("foreign %v (to %v) cores in %.2f s, a stranger alone took %.2f s", *w.ForeignCores, *w.ForeignHighCores, elapsed, stranger)
	}
	if *w.ServerCores+*w.ForeignCores > float64(w.CPUs)+0.1 || w.CPUs < 1 || w.Processes != 2 {
		t.Errorf("%+v", w)
	}
}

// A thread that ended and a process that nobody waits for yet keep their time.
func TestLiveZombie(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.StartProcess(exe, []string{exe}, &os.ProcAttr{Env: append(os.Environ(), spinEnv+"=60")})
	if err != nil {
		t.Fatal(err)
	}
	live.Until(t, "a child that ended", func() bool {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, p.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		return err == nil
	})
	cpu, err := cpuTime(p.Pid)
	if err != nil || cpu < 55e6 {
		t.Errorf("a child that ended took %d ns, %v; it spun 60 ms", cpu, err)
	}
	state, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if d := int64(state.UserTime()+state.SystemTime()) - cpu; d > 1e6 || d < -1e6 {
		t.Errorf("%d ns by its clock, %v by its exit", cpu, state.UserTime()+state.SystemTime())
	}
	if cpu, err := cpuTime(p.Pid); err == nil {
		t.Errorf("a process that is gone took %d ns", cpu)
	}
}

// The clock of a process and the table say the same.
func TestLiveClockIsTheTable(t *testing.T) {
	c := newCollector("", host.SystemClocks())
	for _, pid := range []int{1, os.Getpid()} {
		before, err := cpuTime(pid)
		if err != nil {
			t.Fatal(err)
		}
		st, err := c.stat(pid)
		if err != nil {
			t.Fatal(err)
		}
		after, err := cpuTime(pid)
		if table := int64(st.own) * tickNS; err != nil || table < before-30e6 || table > after+30e6 {
			t.Errorf("process %d: the table says %d ns, its clock from %d to %d, %v", pid, table, before, after, err)
		}
	}
}

// TestLiveRun drives the whole sampler over the test's own process.
func TestLiveRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var got []Window
	s, err := New(Config{
		Window: 100 * time.Millisecond,
		Groups: func() Groups { return Groups{Server: []Process{{PID: os.Getppid()}}} },
		Sink: func(w Window) {
			if got = append(got, w); len(got) == 3 {
				cancel()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	for _, w := range got {
		if w.OmnitapCores == nil || w.SampleNS <= 0 || w.EndMonoNS <= w.StartMonoNS {
			t.Errorf("%+v", w)
		}
	}
	if sum := s.Summary(); sum.Windows != len(got) || sum.SampleS <= 0 {
		t.Errorf("%+v after %d windows", sum, len(got))
	}
}
