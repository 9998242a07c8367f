package usage

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/probes/host"
)

// The real kernel: a child's CPU time, memory and end.
func TestReal(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "echo up; read x")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 3)); err != nil { // it is the shell by now
		t.Fatal(err)
	}
	runtime.LockOSThread() // as Run does: the cost is the thread's
	defer runtime.UnlockOSThread()
	c := newCollector("", host.SystemClocks())
	named := []Process{{PID: cmd.Process.Pid, Stage: "sh"}, {PID: os.Getpid(), Stage: "self"}}
	s := c.sample(named)
	holds(t, s)
	for _, u := range s.Processes {
		if u.CPUNS == nil || u.CPUCoarse || u.RSSBytes == nil || *u.RSSBytes < 100<<10 || u.StartTicks == 0 || u.Namespace == "" || u.Ended != "" {
			t.Errorf("%+v", u)
		}
		if u.PSSBytes != nil && *u.PSSBytes > *u.RSSBytes+4<<20 {
			t.Errorf("%d PSS of %d RSS", *u.PSSBytes, *u.RSSBytes)
		}
	}
	if s.Machine.BusyNS == nil || s.Networks[0].LoopbackBytes == nil || *s.CPUNS <= 0 {
		t.Errorf("%+v", s)
	}
	_ = in.Close()
	_ = cmd.Wait()
	s = c.sample(named)
	if u := s.Processes[0]; !strings.HasPrefix(u.Ended, "the process ended, after ") {
		t.Errorf("%+v", u)
	}
}

// BenchmarkSample is a sample of one process, of the machine and of its network.
func BenchmarkSample(b *testing.B) {
	c := newCollector("", host.SystemClocks())
	named := []Process{{PID: os.Getpid(), Stage: "self"}}
	b.ReportAllocs()
	for b.Loop() {
		c.sample(named)
	}
}
