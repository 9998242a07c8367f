//go:build linux && amd64

package foreign

import (
	"os"
	"os/exec"
	"testing"

	"github.com/omnitap/omnitap/probes/host"
)

// children starts processes that wait until the benchmark ends.
func children(b *testing.B, n int) []Process {
	b.Helper()
	in, hold, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	var started []*exec.Cmd
	out := make([]Process, 0, n)
	for range n {
		c := exec.Command("cat")
		c.Stdin = in
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}
		started = append(started, c)
		out = append(out, Process{PID: c.Process.Pid})
	}
	in.Close()
	b.Cleanup(func() {
		hold.Close()
		for _, c := range started {
			if err := c.Wait(); err != nil {
				b.Error(err)
			}
		}
	})
	return out
}

// BenchmarkSample is what one sample costs on a machine with 500 more processes, of
// which so many are the server's.
func BenchmarkSample(b *testing.B) {
	all := children(b, 500)
	nobody := []Process{{PID: 1 << 30}} // so that the children are not omnitap's
	for name, n := range map[string]int{"server=20": 20, "server=500": 500} {
		b.Run(name, func(b *testing.B) {
			c := newCollector("", host.SystemClocks())
			g := Groups{Server: all[:n], Omnitap: nobody}
			last := c.sample(g)
			b.ReportAllocs()
			for b.Loop() {
				next := c.sample(g)
				if w := between(last, next, second); w.Processes != n {
					b.Fatalf("%d processes", w.Processes)
				}
				last = next
			}
		})
	}
}
