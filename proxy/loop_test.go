package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/proxy/tap"
)

// bothWays runs a test with loops that move the bytes, and with goroutines.
func bothWays(t *testing.T, test func(t *testing.T, goroutines bool)) {
	t.Helper()
	t.Run("loop", func(t *testing.T) { test(t, false) })
	t.Run("goroutines", func(t *testing.T) { test(t, true) })
}

// isParked reports whether both directions of the one session wait for an event.
func isParked(r *rig) func() bool { return func() bool { return r.server.parked() == 2 } }

// TestLoopHasFlowsBack: a goroutine helps while a client does not read; behind it
// the loop goes on, and every byte arrives in its order.
func TestLoopHasFlowsBack(t *testing.T) {
	want := make([]byte, 24<<20)
	for i := range want {
		want[i] = byte(i * 31 >> 3)
	}
	more := make(chan struct{})
	up := script(t, func(c *net.TCPConn) {
		_, _ = c.Write(want)
		for range more {
			_, _ = c.Write([]byte("x"))
		}
	})
	r := startRig(t, up, nil)
	c := dialRaw(t, r.addr)
	// a goroutine has the flow whose write is blocked, the loop the other one
	waitFor(t, func() bool {
		return r.server.parked() == 1 && blocked(r.server, func(x *session) *socket { return x.client })
	})
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the bytes changed, %v", err)
	}
	waitFor(t, isParked(r))
	goroutines := runtime.NumGoroutine()
	for range 100 {
		more <- struct{}{}
		if _, err := io.ReadFull(c, got[:1]); err != nil {
			t.Fatal(err)
		}
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, %d before: single bytes need none", n, goroutines)
	}
	close(more)
}

// TestLoopSeesAnEndBehindUrgentData: urgent data cuts a read short, and what
// stands behind it gives no edge of its own.
func TestLoopSeesAnEndBehindUrgentData(t *testing.T) {
	got := make(chan string, 2)
	up := script(t, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		got <- string(b)
	})
	r := startRig(t, up, nil)
	other := dialRaw(t, r.addr)
	waitFor(t, isParked(r))
	var d *descriptor
	r.server.each(func(x *session) { d = x.client.fd })
	c := dialRaw(t, r.addr)
	waitFor(t, func() bool { return r.server.parked() == 4 })
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// what comes while the loop is kept by the other connection is one event
	d.mu.Lock()
	send(t, other, "x")
	waitFor(t, func() bool { return d.state.Load() == busy })
	send(t, c, "abc")
	_ = raw.Control(func(fd uintptr) { err = unix.Sendto(int(fd), []byte("!"), unix.MSG_OOB, nil) })
	if err != nil {
		t.Fatal(err)
	}
	send(t, c, "def")
	d.mu.Unlock()
	waitFor(t, func() bool { return r.server.passed() == len("x"+"abcdef") })
	for _, c := range []*net.TCPConn{other, c} {
		_ = c.CloseWrite()
	}
	if s := <-got + <-got; s != "xabcdef" && s != "abcdefx" {
		t.Errorf("the server got %q", s)
	}
}

// parked returns how many directions wait for an event.
func (s *Server) parked() int {
	n := 0
	s.sockets(func(sock *socket) {
		if sock.fd != nil && sock.fd.state.Load() == parked {
			n++
		}
	})
	return n
}

// passed returns how many bytes upstreams were sent and have acknowledged.
func (s *Server) passed() int {
	n := 0
	s.sockets(func(sock *socket) {
		_ = sock.raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			if peer, _ := unix.Getpeername(int(fd)); err == nil && peer.(*unix.SockaddrInet4).Port == s.port() {
				n += int(info.Bytes_acked) - 1 // the handshake's
			}
		})
	})
	return n
}

func (s *Server) port() int {
	a, err := net.ResolveTCPAddr("tcp", s.target.addr)
	if err != nil {
		return 0
	}
	return a.Port
}

// sockets calls f for every socket of every session.
func (s *Server) sockets(f func(*socket)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.open {
		f(x.client)
		if x.upstream != nil {
			f(x.upstream)
		}
	}
}

// TestLoopUnderFire: connections of all kinds at once, ended in all ways, amid
// collections: each gets its own bytes, and no descriptor is left.
func TestLoopUnderFire(t *testing.T) {
	bothWays(t, func(t *testing.T, goroutines bool) {
		t.Helper()
		up := script(t, echo)
		r := startRig(t, up, func(c *Config, tc *tap.Config) { c.noLoops, tc.Off = goroutines, true })
		fire(t, r.addr) // it runs from here on
		waitFor(t, func() bool { return r.server.Open() == 0 })
		before := descriptors(t)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 40 {
					fire(t, r.addr)
				}
			})
		}
		for range 50 {
			runtime.GC()
		}
		wg.Wait()
		waitFor(t, func() bool { return r.server.Open() == 0 && descriptors(t) <= before })
	})
}

// echo gives back what it gets, until FIN or an error.
func echo(c *net.TCPConn) {
	_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
}

func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// fire sends something through an echo and compares, then ends in some way.
func fire(t *testing.T, addr string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = c.Close() }()
	sent := make([]byte, 1+rand.N(1<<rand.N(19)))
	for i := range sent {
		sent[i] = byte(rand.Uint32())
	}
	end := rand.N(4)
	go func() {
		for p := sent; len(p) > 0; {
			n := min(len(p), 1+rand.N(32<<10))
			if _, err := c.Write(p[:n]); err != nil {
				return
			}
			p = p[n:]
		}
		if end == 0 {
			_ = c.(*net.TCPConn).CloseWrite()
		}
	}()
	got := make([]byte, len(sent))
	if end == 3 { // leaves amid the transfer
		got = got[:len(got)/2]
	}
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent[:len(got)]) {
		t.Errorf("the bytes changed: %v", err)
	}
	switch end {
	case 0:
		if n, err := c.Read(got[:1]); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("behind a FIN: %d bytes, %v", n, err)
		}
	case 1:
		_ = c.(*net.TCPConn).SetLinger(0)
	}
}

// TestLoopIsNotKeptByBulk: streams of small events go on while another connection
// moves all it can.
func TestLoopIsNotKeptByBulk(t *testing.T) {
	up := script(t, func(c *net.TCPConn) {
		b := make([]byte, 1)
		if _, err := c.Read(b); err != nil {
			return
		}
		if b[0] == 'b' {
			_, _ = io.Copy(c, zeros{})
			return
		}
		_, _ = c.Write(b)
		echo(c)
	})
	r := startRig(t, up, func(_ *Config, tc *tap.Config) { tc.Off = true })
	bulk := dialRaw(t, r.addr)
	send(t, bulk, "b")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, bulk)
	}()
	small := dialRaw(t, r.addr)
	b := make([]byte, 1)
	for range 300 {
		send(t, small, "s")
		if _, err := io.ReadFull(small, b); err != nil {
			t.Fatal(err)
		}
	}
	_ = bulk.SetLinger(0)
	_ = bulk.Close()
	<-done
}

// TestDescriptorTellsOfItsClosing: whoever waits or comes later learns of it.
func TestDescriptorTellsOfItsClosing(t *testing.T) {
	l, err := newLoop(newClock())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(l.run)
	defer wg.Wait()
	defer l.stop()
	up := script(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	c := dialRaw(t, up[len("http://"):])
	d, err := l.adopt(c)
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan struct{})
	d.follow = func() { close(left) }
	d.start()
	wait, in := make(chan error), make(chan struct{})
	var once sync.Once
	go func() {
		wait <- d.Read(func(uintptr) bool {
			once.Do(func() { close(in) })
			return false
		})
	}()
	<-in
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-wait; !errors.Is(err, net.ErrClosed) {
		t.Errorf("who waited got %v", err)
	}
	<-left
	for name, err := range map[string]error{"Close": d.Close(), "CloseWrite": d.CloseWrite(), "Write": d.Write(func(uintptr) bool { return true })} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s of a closed descriptor: %v", name, err)
		}
	}
	if _, err := c.Write([]byte("x")); err != nil && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the connection that was copied: %v", err)
	}
}

// TestLoopKeepsWhatTheTapHolds: bytes that the tap has yet to look at are not
// read over where writing them on failed.
func TestLoopKeepsWhatTheTapHolds(t *testing.T) {
	const size = 12 << 10 // such reads are kept, not copied
	reset := make(chan struct{})
	up := script(t, func(c *net.TCPConn) {
		b := make([]byte, 1)
		if _, err := c.Read(b); err == nil && b[0] == 'a' {
			<-reset
			_ = c.SetLinger(0)
			return
		}
		_, _ = c.Write(b)
		echo(c)
	})
	dir := t.TempDir()
	r := startRig(t, up, func(_ *Config, tc *tap.Config) { tc.Latency = time.Hour }, tap.Reels{Dir: dir})
	other := dialRaw(t, r.addr)
	waitFor(t, isParked(r))
	var kept, lost *session
	r.server.each(func(x *session) { kept = x })
	a := dialRaw(t, r.addr)
	waitFor(t, func() bool { return r.server.parked() == 4 })
	r.server.each(func(x *session) {
		if x != kept {
			lost = x
		}
	})
	b := dialRaw(t, r.addr)
	waitFor(t, func() bool { return r.server.parked() == 6 })
	send(t, a, "a")
	send(t, b, "b")
	if _, err := io.ReadFull(b, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return r.server.parked() == 6 && r.server.passed() == 2 })
	// the loop is kept while the client's bytes come, then the server's reset, then another client's bytes
	kept.client.fd.mu.Lock()
	send(t, other, "x")
	waitFor(t, func() bool { return kept.client.fd.state.Load() == busy })
	send(t, a, strings.Repeat("a", size))
	close(reset)
	waitFor(t, lost.upstream.wasReset)
	send(t, b, strings.Repeat("b", size))
	kept.client.fd.mu.Unlock()
	if _, err := io.ReadFull(b, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	_, _, _ = a.Close(), b.Close(), other.Close()
	r.stop()
	if n := captured(t, dir, 'a'); n != size+1 {
		t.Errorf("%d of %d bytes were captured as they came", n, size+1)
	}
}

// captured counts a byte in what clients sent.
func captured(t *testing.T, dir string, b byte) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	n := 0
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		for d := json.NewDecoder(f); ; {
			var line struct {
				Dir string `json:"dir"`
				B64 []byte `json:"b64"`
			}
			if err := d.Decode(&line); err != nil {
				break
			}
			if line.Dir == "c" {
				n += bytes.Count(line.B64, []byte{b})
			}
		}
	}
	return n
}
