package proxy

import (
	"net"
	"runtime"
	"testing"

	"github.com/omnitap/omnitap/proxy/tap"
)

// TestForwardAllocatesNothing: an event that is read, stamped, handed over and
// written on costs no allocation. What looks at it is off.
func TestForwardAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates; make test runs this once more without it")
	}
	const warm, n = 2000, 20000
	event := make([]byte, 220)
	start := make(chan int)
	up := script(t, func(c *net.TCPConn) {
		ack := make([]byte, 1)
		for count := range start {
			for range count {
				if _, err := c.Write(event); err != nil {
					return
				}
				if _, err := c.Read(ack); err != nil {
					return
				}
			}
		}
	})
	r := startRig(t, up, func(_ *Config, tc *tap.Config) { tc.Off = true })
	c := dialRaw(t, r.addr)
	buf, one := make([]byte, 4096), []byte{1}
	pump := func(count int) {
		start <- count
		for range count {
			for got := 0; got < len(event); {
				k, err := c.Read(buf)
				if err != nil {
					t.Fatal(err)
				}
				got += k
			}
			if _, err := c.Write(one); err != nil {
				t.Fatal(err)
			}
		}
	}
	pump(warm)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	pump(n)
	runtime.ReadMemStats(&after)
	close(start)
	if per := float64(after.Mallocs-before.Mallocs) / (2 * n); per > 0.05 {
		t.Errorf("%.3f allocations an event, want none", per)
	}
}
