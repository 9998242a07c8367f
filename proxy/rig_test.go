package proxy

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// memory is a Sink that keeps what it is sent.
type memory struct {
	mu      sync.Mutex // protects what follows
	records []*timeline.Record
	events  []timeline.Event
}

func (m *memory) Session(*timeline.Session) {}

func (m *memory) Record(r *timeline.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = append(m.records, r)
}

func (m *memory) Event(e *timeline.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, *e)
}

// rig is a relay before an upstream, with the records that it made.
type rig struct {
	t      testing.TB
	addr   string
	server *Server
	sink   *memory
	stop   func() []*timeline.Record
}

// startRig relays to upstream, with captures or not; stop ends it and returns the
// records.
func startRig(t testing.TB, upstream string, change func(*Config, *tap.Config), captures ...tap.Reels) *rig {
	t.Helper()
	r := &rig{t: t, sink: &memory{}}
	cfg, tc := Config{Upstream: upstream, RunID: "t", Node: "n", Drain: 5 * time.Second}, tap.Config{}
	if change != nil {
		change(&cfg, &tc)
	}
	analyzer := tap.NewAnalyzer(tc, r.sink, nil)
	for _, c := range captures {
		if err := analyzer.Record(c); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Analyzer = analyzer
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr, r.server = ln.Addr().String(), s
	ctx, cancel := context.WithCancel(context.Background())
	actx, acancel := context.WithCancel(context.Background())
	var relay, analysis sync.WaitGroup
	relay.Go(func() {
		if err := s.Run(ctx, ln); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	analysis.Go(func() { analyzer.Run(actx) })
	var once sync.Once
	r.stop = func() []*timeline.Record {
		once.Do(func() {
			cancel()
			relay.Wait()
			acancel()
			analysis.Wait()
		})
		return r.sink.records
	}
	t.Cleanup(func() { r.stop() })
	return r
}

// script runs a raw TCP server: one call a connection.
func script(t testing.TB, serve func(c *net.TCPConn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				serve(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		wg.Wait()
	})
	return "http://" + ln.Addr().String()
}

func dialRaw(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

func send(t testing.TB, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

// readHead reads a request up to its blank line and n bytes of body.
func readRequest(c net.Conn, n int) (string, error) {
	var got []byte
	b := make([]byte, 1)
	for len(got) < 4 || string(got[len(got)-4:]) != "\r\n\r\n" {
		if _, err := c.Read(b); err != nil {
			return string(got), err
		}
		got = append(got, b[0])
	}
	body := make([]byte, n)
	_, err := io.ReadFull(c, body)
	return string(got) + string(body), err
}
