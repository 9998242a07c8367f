package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"

// TestHalfClose: FIN is passed on as FIN, and what comes behind it arrives (case C47).
func TestHalfClose(t *testing.T) { bothWays(t, halfClose) }

func halfClose(t *testing.T, goroutines bool) {
	t.Helper()
	up := script(t, func(c *net.TCPConn) {
		b, err := io.ReadAll(c) // to the client's FIN
		if err != nil {
			t.Errorf("server: %v", err)
		}
		send(t, c, "LATE "+string(b))
	})
	r := startRig(t, up, func(c *Config, _ *tap.Config) { c.noLoops = goroutines })
	c := dialRaw(t, r.addr)
	send(t, c, "hello")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if string(got) != "LATE hello" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestResetIsReset: a reset arrives as one, whichever side it comes from.
func TestResetIsReset(t *testing.T) { bothWays(t, resetIsReset) }

func resetIsReset(t *testing.T, goroutines bool) {
	t.Helper()
	t.Run("server", func(t *testing.T) {
		up := script(t, func(c *net.TCPConn) {
			_, _ = readRequest(c, 0)
			send(t, c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal")
			_ = c.SetLinger(0)
		})
		r := startRig(t, up, func(c *Config, _ *tap.Config) { c.noLoops = goroutines })
		c := dialRaw(t, r.addr)
		send(t, c, "GET / HTTP/1.1\r\n\r\n")
		got, err := io.ReadAll(c)
		if !errors.Is(err, syscall.ECONNRESET) || !strings.HasSuffix(string(got), "hal") {
			t.Errorf("got %q, %v; want the bytes, then a reset", got, err)
		}
		rec := one(t, r.stop())
		if rec.Terminal.State != timeline.TransportError || rec.Terminal.Reason != "reset" {
			t.Errorf("terminal %+v", rec.Terminal)
		}
	})
	t.Run("client", func(t *testing.T) {
		seen := make(chan error, 1)
		up := script(t, func(c *net.TCPConn) {
			_, _ = readRequest(c, 0)
			_, err := c.Read(make([]byte, 1))
			seen <- err
		})
		r := startRig(t, up, func(c *Config, _ *tap.Config) { c.noLoops = goroutines })
		c := dialRaw(t, r.addr)
		send(t, c, "GET / HTTP/1.1\r\n\r\n")
		waitFor(t, func() bool { return r.server.Open() == 1 })
		_ = c.SetLinger(0)
		_ = c.Close()
		if err := <-seen; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the server saw %v, want a reset", err)
		}
		rec := one(t, r.stop())
		if rec.Terminal.State != timeline.ClientCancelled {
			t.Errorf("terminal %+v", rec.Terminal)
		}
	})
}

// TestResetBehindFIN: a reset of a side that was sent FIN arrives as one: looking
// for more bytes must not take it off the socket.
func TestResetBehindFIN(t *testing.T) { bothWays(t, resetBehindFIN) }

func resetBehindFIN(t *testing.T, goroutines bool) {
	t.Helper()
	change := func(c *Config, _ *tap.Config) { c.noLoops = goroutines }
	t.Run("server", func(t *testing.T) {
		for _, size := range []int{40, 3 << 20} {
			up := script(t, func(c *net.TCPConn) {
				_, _ = io.ReadAll(c)
				_, _ = c.Write(make([]byte, size))
				_ = c.SetLinger(0)
			})
			r := startRig(t, up, change)
			for range 50 {
				c := dialRaw(t, r.addr)
				send(t, c, "hello")
				_ = c.CloseWrite()
				if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
					t.Fatalf("the client of %d bytes saw %v, want a reset", size, err)
				}
			}
		}
	})
	t.Run("client", func(t *testing.T) {
		seen := make(chan error, 1)
		up := script(t, func(c *net.TCPConn) {
			_, _ = readRequest(c, 0)
			send(t, c, ok)
			_ = c.CloseWrite()
			_, err := io.ReadAll(c)
			seen <- err
		})
		r := startRig(t, up, change)
		c := dialRaw(t, r.addr)
		send(t, c, "GET / HTTP/1.1\r\n\r\n")
		if _, err := io.ReadAll(c); err != nil {
			t.Fatal(err)
		}
		_ = c.SetLinger(0)
		_ = c.Close()
		if err := <-seen; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the server saw %v, want a reset", err)
		}
	})
}

// TestAnswerAheadOfReset: a server answers 413 and resets while the upload runs;
// every answer arrives whole.
func TestAnswerAheadOfReset(t *testing.T) { bothWays(t, answerAheadOfReset) }

func answerAheadOfReset(t *testing.T, goroutines bool) {
	t.Helper()
	const rounds = 300
	answer := "HTTP/1.1 413 Payload Too Large\r\nContent-Length: 2000\r\nConnection: close\r\n\r\n" + strings.Repeat("x", 2000)
	up := script(t, func(c *net.TCPConn) {
		_, _ = readRequest(c, 1000)
		send(t, c, answer)
		// closing with the upload unread makes the kernel reset the connection
	})
	r := startRig(t, up, func(c *Config, _ *tap.Config) { c.noLoops = goroutines })
	upload := bytes.Repeat([]byte("u"), 4<<20)
	whole := 0
	for range rounds {
		c := dialRaw(t, r.addr)
		send(t, c, "POST / HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n")
		go func() { _, _ = c.Write(upload) }()
		got, _ := io.ReadAll(c)
		if string(got) == answer {
			whole++
		}
		_ = c.Close()
	}
	if whole != rounds {
		t.Errorf("%d of %d answers arrived whole", whole, rounds)
	}
	seen := 0
	for _, rec := range r.stop() {
		switch {
		case rec.Analysis != "full": // 4 MB a round may be more than a busy machine looks at
			if rec.Terminal.State == timeline.Success {
				t.Errorf("terminal %+v of what was not seen", rec.Terminal)
			}
			continue
		case rec.Terminal.State != timeline.InvalidRequest || *rec.Status != 413:
			t.Fatalf("terminal %+v", rec.Terminal)
		}
		seen++
	}
	if seen < rounds/3 {
		t.Errorf("%d of %d rounds were seen in full", seen, rounds)
	}
}

// TestUnreachable: the client gets a 502 that names the reason, and the record too.
func TestUnreachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	r := startRig(t, "http://"+addr, nil)
	c := dialRaw(t, r.addr)
	send(t, c, "POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
	got, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 502 ") || !strings.Contains(string(got), "connect_refused") {
		t.Errorf("got %q, %v", got, err)
	}
	_ = c.Close()
	rec := one(t, r.stop())
	if rec.Terminal.State != timeline.TransportError || rec.Terminal.Evidence["errno"] != "ECONNREFUSED" || rec.Status != nil {
		t.Errorf("terminal %+v, status %v", rec.Terminal, rec.Status)
	}
}

// TestNotResolved: a name that does not resolve is a fault of the setting (case C61).
func TestNotResolved(t *testing.T) {
	r := startRig(t, "http://no-such-host.invalid:1", nil)
	c := dialRaw(t, r.addr)
	send(t, c, "GET / HTTP/1.1\r\n\r\n")
	if got, _ := io.ReadAll(c); !strings.Contains(string(got), "name_not_resolved") {
		t.Errorf("got %q", got)
	}
	_ = c.Close()
	if rec := one(t, r.stop()); rec.Terminal.State != timeline.HarnessError {
		t.Errorf("terminal %+v", rec.Terminal)
	}
}

// TestStampsAreTheKernels: on loopback every record carries kernel stamps in order.
func TestStampsAreTheKernels(t *testing.T) {
	up := script(t, func(c *net.TCPConn) {
		for {
			if _, err := readRequest(c, 0); err != nil {
				return
			}
			send(t, c, ok)
		}
	})
	r := startRig(t, up, nil)
	c := dialRaw(t, r.addr)
	for range 3 {
		send(t, c, "GET / HTTP/1.1\r\n\r\n")
		if _, err := io.ReadFull(c, make([]byte, len(ok))); err != nil {
			t.Fatal(err)
		}
	}
	_ = c.Close()
	recs := r.stop()
	if len(recs) != 3 {
		t.Fatalf("%d records", len(recs))
	}
	last := int64(0)
	for _, rec := range recs {
		p := rec.Points
		if rec.Stamp != "kernel" {
			t.Errorf("stamp %q", rec.Stamp)
		}
		if *p.TIn <= last || *p.TBody < *p.TIn || *p.TUp < *p.TBody || *p.THdr < *p.TIn || *p.TTerm < *p.THdr {
			t.Errorf("points out of order: in %d body %d up %d hdr %d term %d", *p.TIn, *p.TBody, *p.TUp, *p.THdr, *p.TTerm)
		}
		last = *p.TTerm
	}
}

// TestInjection: a head without X-Request-Id gets one and nothing else changes.
func TestInjection(t *testing.T) {
	got := make(chan string, 8)
	up := script(t, func(c *net.TCPConn) {
		for _, n := range []int{2, 2, 20} {
			s, err := readRequest(c, n)
			got <- s
			if err != nil {
				return
			}
			send(t, c, ok)
		}
	})
	r := startRig(t, up, func(c *Config, _ *tap.Config) { c.Correlation = Inject })
	c := dialRaw(t, r.addr)
	bare := "POST /a;b?x=%zz&c;d HTTP/1.1\r\nhOsT: x\r\nContent-Length: 2\r\n\r\n{}"
	mine := "POST /b HTTP/1.1\r\nx-request-id: abc\r\nContent-Length: 2\r\n\r\n{}"
	body := "POST /c HTTP/1.1\r\nContent-Length: 20\r\n\r\n{\"request_id\":\"abc\"}"
	var seen []string
	for _, s := range []string{bare, mine, body} {
		send(t, c, s)
		if _, err := io.ReadFull(c, make([]byte, len(ok))); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, <-got)
	}
	_ = c.Close()
	recs := r.stop()
	if len(recs) != 3 {
		t.Fatalf("%d records", len(recs))
	}
	id := recs[0].RequestID
	if want := strings.Replace(bare, "\r\n\r\n", "\r\nX-Request-Id: "+id+"\r\n\r\n", 1); seen[0] != want {
		t.Errorf("the server got\n%q, want\n%q", seen[0], want)
	}
	if recs[0].RequestIDSource != "injected" || recs[1].RequestIDSource != "client" || recs[1].RequestID != "abc" || recs[2].RequestIDSource != "own" {
		t.Errorf("sources %q %q %q", recs[0].RequestIDSource, recs[1].RequestIDSource, recs[2].RequestIDSource)
	}
	if seen[1] != mine || seen[2] != body {
		t.Errorf("requests with an id of their own changed: %q %q", seen[1], seen[2])
	}
}

func one(t *testing.T, recs []*timeline.Record) *timeline.Record {
	t.Helper()
	if len(recs) != 1 {
		t.Fatalf("%d records, want 1", len(recs))
	}
	return recs[0]
}
