package proxy

import (
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// askFrame is a client's response.create, masked with zeros.
const askFrame = "\x81\x9a\x00\x00\x00\x00" + `{"type":"response.create"}`

// TestC47Rounds: clients that close for good before servers that stay silent and hold
// their sockets, reading to the FIN or nothing at all: each server's side is over
// within the limit, each turn is cancelled by its client, and nothing is left over.
func TestC47Rounds(t *testing.T) { bothWays(t, lingerRounds) }

func lingerRounds(t *testing.T, goroutines bool) {
	t.Helper()
	const (
		rounds, wave = 500, 25
		limit        = 20 * time.Millisecond
	)
	for name, reads := range map[string]bool{"to the FIN": true, "nothing more": false} {
		t.Run(name, func(t *testing.T) {
			over := make(chan int64, wave)
			up := script(t, func(c *net.TCPConn) {
				_, _ = readRequest(c, 0)
				send(t, c, switching)
				if reads {
					_, _ = io.Copy(io.Discard, struct{ io.Reader }{c})
				}
				if err := waitReset(c); err != nil {
					t.Error(err)
				}
				over <- newClock().now()
			})
			r := startRig(t, up, func(c *Config, _ *tap.Config) { c.linger, c.noLoops = limit, goroutines })
			round := func() {
				gone := make(chan int64, wave)
				var clients sync.WaitGroup
				for range wave {
					clients.Go(func() {
						c, err := net.Dial("tcp", r.addr)
						if err != nil {
							t.Error(err)
							return
						}
						_, err = io.WriteString(c, upgrade+askFrame)
						if _, rerr := io.ReadFull(c, make([]byte, len(switching))); err != nil || rerr != nil {
							t.Error(err, rerr)
						}
						gone <- newClock().now()
						_ = c.Close()
					})
				}
				clients.Wait()
				close(gone)
				first := int64(0)
				for at := range gone {
					if first == 0 || at < first {
						first = at
					}
				}
				for range wave {
					if d := time.Duration(<-over - first); d < limit || d > limit+2*time.Second {
						t.Errorf("a server's side ended %v behind the first client's close, want %v at least", d, limit)
					}
				}
				waitFor(t, func() bool { return r.server.Open() == 0 })
			}
			round() // what is made once is made now
			settled := func(files, routines int) func() bool {
				return func() bool { return descriptors(t) <= files && runtime.NumGoroutine() <= routines }
			}
			files, routines := descriptors(t), runtime.NumGoroutine()
			for range rounds/wave - 1 {
				round()
			}
			waitFor(t, settled(files, routines))
			recs := r.stop()
			if len(recs) != rounds {
				t.Errorf("%d records, want %d", len(recs), rounds)
			}
			for _, rec := range recs {
				if s := rec.Terminal; s.State != timeline.ClientCancelled || s.By != "client" {
					t.Fatalf("terminal %+v, want client-cancelled by client", s)
				}
			}
		})
	}
}

// waitReset waits until a connection was reset, without reading it.
func waitReset(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var n int
	var pollErr error
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}} // errors and hang-ups alone
		for pollErr = unix.EINTR; errors.Is(pollErr, unix.EINTR); {
			n, pollErr = unix.Poll(fds, 10_000)
		}
	})
	if err == nil && pollErr == nil && n != 1 {
		return errors.New("no reset within ten seconds")
	}
	return errors.Join(err, pollErr)
}
