package proxy

import (
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/omnitap/omnitap/proxy/tap"
)

// anyCert is a server's TLS configuration that nobody trusts.
func anyCert(t *testing.T) *tls.Config {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	t.Cleanup(s.Close)
	return &tls.Config{Certificates: s.TLS.Certificates}
}

// ends wants Run to return soon after its context ended, with a peer that stalls.
func ends(t *testing.T, r *rig) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		r.stop()
		close(done)
	}()
	limit := time.NewTimer(10 * time.Second)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		t.Fatal("the drain limit has no effect")
	}
}

// TestDrainPastStalledPeers: the limit holds, whoever does not read, write or
// shake hands.
func TestDrainPastStalledPeers(t *testing.T) {
	short := func(c *Config) { c.Drain = 50 * time.Millisecond }
	t.Run("TLS client that does not read", func(t *testing.T) {
		up := script(t, func(c *net.TCPConn) {
			_, _ = readRequest(c, 0)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
			_, _ = io.Copy(c, zeros{})
		})
		r := startRig(t, up, func(c *Config, _ *tap.Config) {
			short(c)
			c.TLS = anyCert(t)
		})
		raw := dialRaw(t, r.addr)
		c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { return blocked(r.server, func(x *session) *socket { return x.client }) })
		ends(t, r)
	})
	t.Run("https upstream that does not read", func(t *testing.T) {
		ln, err := tls.Listen("tcp", "127.0.0.1:0", anyCert(t))
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go func() {
			c, err := ln.Accept()
			if err == nil {
				_ = c.(*tls.Conn).Handshake()
			}
		}()
		r := startRig(t, "https://"+ln.Addr().String(), func(c *Config, _ *tap.Config) {
			short(c)
			c.UpstreamTLS = &tls.Config{InsecureSkipVerify: true}
		})
		c := dialRaw(t, r.addr)
		go func() {
			_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
			_, _ = io.Copy(c, zeros{})
		}()
		waitFor(t, func() bool { return blocked(r.server, func(x *session) *socket { return x.upstream }) })
		ends(t, r)
	})
	t.Run("https upstream that never shakes hands", func(t *testing.T) {
		up := script(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
		r := startRig(t, "https://"+up[len("http://"):], func(c *Config, _ *tap.Config) { short(c) })
		c := dialRaw(t, r.addr)
		send(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		waitFor(t, func() bool { return r.server.Open() == 1 })
		ends(t, r)
	})
}

// blocked reports whether a socket of the one session has bytes that its peer does
// not take.
func blocked(s *Server, of func(*session) *socket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.open {
		if sock := of(x); sock != nil && sock.unsent() > 256<<10 {
			return true
		}
	}
	return false
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestLingerWaitsForWhoIsHeldBack: a server that a slow client holds back is not
// silent: every byte arrives.
func TestLingerWaitsForWhoIsHeldBack(t *testing.T) { bothWays(t, heldBack) }

func heldBack(t *testing.T, goroutines bool) {
	t.Helper()
	const total = 32 << 20
	up := script(t, func(c *net.TCPConn) {
		_, _ = readRequest(c, 0)
		_, _ = io.WriteString(c, switching)
		_, _ = c.Write(make([]byte, total))
	})
	looks := make(chan struct{}, 100)
	r := startRig(t, up, func(c *Config, _ *tap.Config) {
		c.linger, c.lingered, c.noLoops = 100*time.Millisecond, looks, goroutines
	})
	c := dialRaw(t, r.addr)
	send(t, c, upgrade)
	if _, err := io.ReadFull(c, make([]byte, len(switching))); err != nil {
		t.Fatal(err)
	}
	_ = c.CloseWrite()
	for range 3 { // it would have been cut by now
		<-looks
	}
	if n, err := io.Copy(io.Discard, c); n != total || err != nil {
		t.Errorf("%d of %d bytes, %v", n, total, err)
	}
}
