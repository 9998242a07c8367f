package mock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/session"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/wire"
)

// Server is the fake omni server. It is made by New and may serve several
// listeners at once.
type Server struct {
	cfg    Config
	faults script.Set // of cfg
	log    truth.Log
	steps  chan struct{} // permits for the fault gate

	sessions session.Store

	mu       sync.Mutex // protects all below
	conns    int
	jobs     map[string]job    // video jobs by id
	outcomes map[string][]byte // GET /v1/audio/speech/{id} by id
}

const maxSteps = 1 << 16 // permits that may wait for takers

// New returns a server, or what is wrong with its script.
func New(cfg Config) (*Server, error) {
	cfg.Dialect = cmp.Or(cfg.Dialect, DialectVLLM)
	own, err := cfg.Script.Overlay(nil)
	if err != nil {
		return nil, err
	}
	if cfg.Stages != nil && !reflect.ValueOf(own).IsZero() {
		return nil, errors.New("stages and a script for requests that bring none exclude each other")
	}
	cfg.Script = own
	complete := own.WithDefaults(cfg.Dialect)
	s := &Server{cfg: cfg, steps: make(chan struct{}, maxSteps)}
	if s.faults, err = script.Compile(own.Faults); err == nil {
		err = complete.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("checking the script: %w", err)
	}
	s.Reset()
	return s, nil
}

// Serve answers on a listener until ctx ends or the listener fails, and
// returns when all its goroutines have ended. It closes the listener. The end
// of ctx is no error.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var conns sync.WaitGroup
	defer conns.Wait()
	defer cancel() // before the wait: connections end with ctx
	for {
		nc, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = nc.Close()
			}
			return nil
		}
		switch {
		case err == nil:
			conns.Go(func() { s.serveConn(ctx, nc) })
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
			pause(ctx, acceptPause)
		default:
			return fmt.Errorf("accepting: %w", err)
		}
	}
}

const acceptPause = 10 * time.Millisecond // while there are no descriptors

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (s *Server) serveConn(ctx context.Context, nc net.Conn) {
	s.mu.Lock()
	s.conns++
	id := s.conns
	s.mu.Unlock()
	wire.Run(ctx, nc, func(c *wire.Conn) { newConn(s, c, id).serve() })
}

// Requests returns what was done so far, oldest first. It may be called at any
// time; requests under way have the ending "running".
func (s *Server) Requests() []Truth { return s.log.All() }

// Reset forgets all requests and starts ids and noise anew.
func (s *Server) Reset() {
	s.log.Reset()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs, s.outcomes = map[string]job{}, map[string][]byte{}
}
