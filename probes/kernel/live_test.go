package kernel_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/probes/kernel"
	"github.com/omnitap/omnitap/probes/proc"
	"github.com/omnitap/omnitap/probes/sched"
	"github.com/omnitap/omnitap/probes/shm"
	"github.com/omnitap/omnitap/probes/zmq"
)

func TestTryLive(t *testing.T) {
	if os.Getenv("TRY") == "" {
		t.Skip()
	}
	w, _ := kernel.NewWatch()
	var fs []*kernel.Family
	for _, load := range []func() (*kernel.Family, error){
		func() (*kernel.Family, error) { return shm.Load(w, 0) },
		func() (*kernel.Family, error) { return sched.Load(w, 0) },
		func() (*kernel.Family, error) { return proc.Load(w, 0) },
		func() (*kernel.Family, error) { return zmq.Load(w, 0, true) },
	} {
		f, err := load()
		if err != nil {
			t.Fatal(err)
		}
		fs = append(fs, f)
	}
	libs := map[string]bool{}
	known := map[int]bool{}
	out, _ := os.Create(os.Getenv("TRY"))
	defer out.Close()
	end := time.Now().Add(25 * time.Second)
	var b kernel.Batch
	counts := map[event.Probe]int{}
	for i := 0; time.Now().Before(end); i++ {
		if i%20 == 0 {
			all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, p := range all {
				c, _ := os.ReadFile(p)
				var pid int
				fmt.Sscanf(p, "/proc/%d/", &pid)
				if known[pid] {
					continue
				}
				if strings.HasPrefix(string(c), "VLLM::StageEngineCoreProc") || strings.Contains(string(c), "vllm_omni_stages.py") && !strings.Contains(string(c), "timeout") {
					known[pid] = true
					w.Add(pid, 1)
					fmt.Fprintln(out, "#", pid, string(c))
				}
			}
			for pid := range known {
				m, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
				for _, l := range strings.Split(string(m), "\n") {
					if i := strings.Index(l, "/"); i > 0 && strings.Contains(l[i:], "libzmq") && !libs[l[i:]] {
						libs[l[i:]] = true
						fmt.Fprintln(out, "# lib", l[i:], func() error { _, err := zmq.Attach(fs[3], l[i:]); return err }())
					}
				}
			}
		}
		b.Reset()
		for _, f := range fs {
			if err := f.Drain(&b); err != nil {
				t.Fatal(err)
			}
		}
		sort.SliceStable(b.Events, func(i, j int) bool { return b.Events[i].MonoNS < b.Events[j].MonoNS })
		for i := range b.Events {
			counts[b.Events[i].Probe]++
			out.Write(append(b.Events[i].AppendJSON(nil), '\n'))
		}
		time.Sleep(5 * time.Millisecond)
	}
	for _, f := range fs {
		c, err := f.Counts()
		t.Log(f.Name(), c, err)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Log(counts)
}
