package proxy

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

const upgrade = "GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

// silent is a server that answers head, takes everything and never closes until
// its connection is gone.
func silent(t *testing.T, head string, gone chan<- error) string {
	t.Helper()
	return script(t, func(c *net.TCPConn) {
		_, _ = readRequest(c, 0)
		send(t, c, head)
		for {
			if _, err := c.Read(make([]byte, 1)); err != nil && !errors.Is(err, io.EOF) {
				gone <- err
				return
			} else if err != nil { // the client's FIN is ignored: wait for more than that
				waitFor(t, func() bool { _, err := c.Write(nil); return err != nil || closed(c) })
				gone <- syscall.ECONNRESET
				return
			}
		}
	})
}

// closed reports whether the connection's state is CLOSE.
func closed(c *net.TCPConn) bool {
	s, err := newSocket(c, newClock())
	return err != nil || s.wasReset()
}

// TestLinger: a WebSocket's client that closed for good ends its silent server's
// side too (case C47); so does one that is told to be gone by a reset behind its
// FIN, upgraded or not.
func TestLinger(t *testing.T) { bothWays(t, lingers) }

func lingers(t *testing.T, goroutines bool) {
	t.Helper()
	for _, v := range []struct {
		name, request, head string
		reset               bool
		linger              time.Duration
	}{
		{"upgraded, silent", upgrade, switching, false, 20 * time.Millisecond},
		{"upgraded, reset", upgrade, switching, true, time.Hour},
		{"an answer under way, reset", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", true, 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			gone := make(chan error, 1)
			r := startRig(t, silent(t, v.head, gone), func(c *Config, _ *tap.Config) { c.linger, c.noLoops = v.linger, goroutines })
			c := dialRaw(t, r.addr)
			send(t, c, v.request)
			if _, err := io.ReadFull(c, make([]byte, len(v.head))); err != nil {
				t.Fatal(err)
			}
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if v.reset {
				waitFor(t, func() bool { return lingering(r.server) })
				_ = c.SetLinger(0)
				_ = c.Close()
			}
			if err := <-gone; !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the server saw %v", err)
			}
			waitFor(t, func() bool { return r.server.Open() == 0 })
			for _, rec := range r.stop() {
				if rec.Terminal.State != timeline.ClientCancelled && rec.Terminal.State != timeline.Success {
					t.Errorf("terminal %+v", rec.Terminal)
				}
			}
		})
	}
}

func lingering(s *Server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.open {
		if x.lingering.Load() {
			return true
		}
	}
	return false
}

// TestNoLingerForAnAnswer: a client that only ended its request waits for the
// answer as long as it likes, and so does one of a WebSocket whose server sends.
func TestNoLingerForAnAnswer(t *testing.T) { bothWays(t, noLinger) }

func noLinger(t *testing.T, goroutines bool) {
	t.Helper()
	for _, head := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", switching} {
		late := make(chan struct{})
		up := script(t, func(c *net.TCPConn) {
			_, _ = readRequest(c, 0)
			send(t, c, head)
			_, _ = io.Copy(io.Discard, c)
			<-late
			send(t, c, "LATE")
		})
		r := startRig(t, up, func(c *Config, _ *tap.Config) {
			c.noLoops = goroutines
			if c.linger = time.Millisecond; head == switching {
				c.linger = time.Hour
			}
		})
		c := dialRaw(t, r.addr)
		send(t, c, upgrade)
		if _, err := io.ReadFull(c, make([]byte, len(head))); err != nil {
			t.Fatal(err)
		}
		_ = c.CloseWrite()
		waitFor(t, func() bool { return lingering(r.server) })
		close(late)
		if got, err := io.ReadAll(c); string(got) != "LATE" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		waitFor(t, func() bool { return r.server.Open() == 0 })
	}
}
