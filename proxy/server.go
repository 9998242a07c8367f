package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// Server relays connections. Make it with New.
type Server struct {
	cfg    Config
	target target
	log    *slog.Logger
	clock  *clock
	ids    *idSource
	dialer net.Dialer
	probes atomic.Bool
	count  atomic.Uint64
	// aborted is when a client last left by a reset
	aborted atomic.Int64

	loops []*loop        // Run's
	wg    sync.WaitGroup // open sessions and their goroutines

	mu   sync.Mutex // protects what follows, and which sockets a session has
	open map[*session]struct{}
}

// DefaultDrain is how long open exchanges may take to end at shutdown.
const DefaultDrain = 30 * time.Second

// New checks the configuration.
func New(cfg Config) (*Server, error) {
	t, err := parseUpstream(cfg.Upstream)
	if err != nil {
		return nil, err
	}
	switch cfg.Correlation {
	case "":
		cfg.Correlation = Auto
	case Auto, Inject, Passive:
	default:
		return nil, fmt.Errorf("correlation must be auto, inject or passive, not %q", cfg.Correlation)
	}
	if cfg.Drain == 0 {
		cfg.Drain = DefaultDrain
	}
	if cfg.linger == 0 {
		cfg.linger = lingerLimit
	}
	s := &Server{cfg: cfg, target: t, log: cfg.Log, clock: newClock(), ids: newIDSource(), open: map[*session]struct{}{}}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.dialer.Control = control
	return s, nil
}

// ClockSteps returns how often the wall clock was seen to be set.
func (s *Server) ClockSteps() int64 { return s.clock.steps.Load() }

// Lag returns the longest time that bytes had waited in the kernel before the relay
// read them since it was last asked: what the relay, or the machine, was late by. A
// client that does not read makes its server's bytes wait, too. It is false where no
// read had a stamp of the kernel's.
func (s *Server) Lag() (time.Duration, bool) {
	ns := s.clock.lag.Swap(0)
	return time.Duration(ns), ns > 0
}

// Open returns the number of open connections.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// ProbesAttached says whether stage probes want ids on the wire (Auto).
func (s *Server) ProbesAttached(on bool) { s.probes.Store(on) }

func (s *Server) injecting() bool {
	return s.cfg.Correlation == Inject || s.cfg.Correlation == Auto && s.probes.Load()
}

// Listen opens a listener whose connections carry receive stamps from their
// first byte on.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	lc := net.ListenConfig{Control: control}
	return lc.Listen(ctx, "tcp", addr)
}

// Run serves ln until ctx ends, then stops accepting, lets open exchanges
// finish within the drain limit, closes idle connections, and returns. It owns ln.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	defer s.startLoops()()
	err := s.accept(ctx, ln)
	s.drain()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// startLoops starts as many loops as the tap has workers by default; the function
// it returns ends them.
func (s *Server) startLoops() (end func()) {
	var wg sync.WaitGroup
	n := min(max(1, runtime.GOMAXPROCS(0)/4), 4)
	if s.cfg.noLoops {
		n = 0
	}
	for range n {
		l, err := newLoop(s.clock)
		if err != nil {
			s.log.Warn("connections get goroutines of their own", "reason", err.Error())
			break
		}
		s.loops = append(s.loops, l)
	}
	n = len(s.loops)
	addProcessors(n)
	for _, l := range s.loops {
		wg.Go(l.run)
	}
	return func() {
		for _, l := range s.loops {
			l.stop()
		}
		wg.Wait()
		addProcessors(-n)
		s.loops = nil
	}
}

// accept takes connections; a failure to take one is ours and passes.
func (s *Server) accept(ctx context.Context, ln net.Listener) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		c, err := ln.Accept()
		switch {
		case err == nil:
			s.wg.Go(func() { s.serve(ctx, c.(*net.TCPConn)) })
			continue
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accepting: %w", err)
		}
		s.log.Warn("accepting a connection", "reason", err.Error())
		pause.Reset(50 * time.Millisecond) // out of descriptors, mostly
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// serve relays one client connection.
func (s *Server) serve(ctx context.Context, c *net.TCPConn) {
	n := s.count.Add(1)
	client, err := newSocket(c, s.clock)
	if err != nil {
		_ = c.Close()
		return
	}
	// a client that waits for the upstream must not be cut by a shutdown in between
	dialing, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.dialLimit())
	defer cancel()
	x := &session{s: s, n: n, client: client, cancel: cancel}
	if s.cfg.TLS != nil {
		if err := client.startTLS(ctx, s.cfg.TLS, false); err != nil {
			s.log.Debug("refused a connection", "reason", err.Error())
			_ = c.Close()
			return
		}
	}
	x.h = s.cfg.Analyzer.Open(n, x.identify)
	if s.cfg.AbortAfter > 0 {
		x.h.OnDeadline(x.expire)
	}
	s.remember(x)
	up, err := s.dial(dialing)
	if err != nil {
		x.refuse(err)
		x.close()
		return
	}
	s.mu.Lock()
	x.upstream = up
	s.mu.Unlock()
	if x.ending.Load() { // ended while it dialled
		x.close()
		return
	}
	x.relay()
}

// dialLimit bounds how long reaching the upstream may take, its TLS handshake
// included.
const dialLimit = time.Minute

func (s *Server) dialLimit() time.Duration {
	if d := s.cfg.AbortAfter; d > 0 {
		return min(d, dialLimit)
	}
	return dialLimit
}

func (x *session) identify(n int) timeline.Identity {
	// one offset a connection, so that a capture of it tells the same wall clock;
	// another one only where the wall clock was set
	off := x.s.clock.wallOffset()
	if d := off - x.wall; x.wall != 0 && d < stepNS && d > -stepNS {
		off = x.wall
	}
	x.wall = off
	return timeline.Identity{
		RunID: x.s.cfg.RunID, Node: x.s.cfg.Node, ConnectionID: x.n, OwnID: fmt.Sprintf("own-%s-%d-%d", x.s.cfg.RunID, x.n, n),
		Kernel: x.kernel.Load(), WallOffset: &off, LastAbort: x.s.aborted.Load(),
	}
}

func (s *Server) remember(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wg.Add(1)
	s.open[x] = struct{}{}
}

func (s *Server) forget(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wg.Done()
	delete(s.open, x)
}

// hold adds to what drain waits for, if the session is still open: then it does
// wait.
func (s *Server) hold(x *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, open := s.open[x]
	if open {
		s.wg.Add(1)
	}
	return open
}

// drainTick is how often a shutdown looks for idle connections.
const drainTick = 20 * time.Millisecond

// drain closes connections as they fall idle, and all of them at the limit, and
// waits for them. One that was accepted at the last moment is served like any other.
func (s *Server) drain() {
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	tick := time.NewTicker(drainTick)
	defer tick.Stop()
	limit := time.NewTimer(s.cfg.Drain)
	defer limit.Stop()
	end := func(x *session) {
		if x.h.Idle() && !x.ending.Load() && s.hold(x) {
			x.ending.Store(true)
			go func() { // TLS may have to wait to say goodbye
				defer s.wg.Done()
				x.quit()
			}()
		}
	}
	for {
		s.each(end)
		select {
		case <-tick.C:
		case <-limit.C:
			end = (*session).kill // also of those that dial at this moment
		case <-done:
			return
		}
	}
}

// each calls f for every open session, without the lock: ending one may take a while.
func (s *Server) each(f func(*session)) {
	s.mu.Lock()
	open := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	for _, x := range open {
		f(x)
	}
}
