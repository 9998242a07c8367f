package mock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
)

// Server is the fake omni server. It is made by New and may serve several
// listeners at once.
type Server struct {
	cfg   Config
	steps chan struct{} // permits for the fault gate

	mu       sync.Mutex // protects all below
	records  []*truth.Record
	seq      int
	conns    int
	jobs     map[string]job    // video jobs by id
	outcomes map[string][]byte // GET /v1/audio/speech/{id} by id
}

const maxSteps = 1 << 16 // permits that may wait for takers

// New returns a server, or what is wrong with its script.
func New(cfg Config) (*Server, error) {
	cfg.Dialect = cmp.Or(cfg.Dialect, script.DialectVLLM)
	script, err := cfg.Script.Overlay(nil)
	if err != nil {
		return nil, err
	}
	if err := script.WithDefaults(cfg.Dialect).Validate(); err != nil {
		return nil, fmt.Errorf("checking the script: %w", err)
	}
	if _, err := script.Compile(script.Faults); err != nil {
		return nil, fmt.Errorf("checking the script: %w", err)
	}
	cfg.Script = script
	s := &Server{cfg: cfg, steps: make(chan struct{}, maxSteps)}
	s.Reset()
	return s, nil
}

// Serve answers on a listener until ctx ends or the listener fails, and
// returns when all its goroutines have ended. It closes the listener. The end
// of ctx is no error.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var conns sync.WaitGroup
	defer conns.Wait()
	defer cancel() // before the Wait: connections end with ctx
	for {
		nc, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accepting: %w", err)
		case err != nil:
			if isTemporary(err) {
				continue
			}
			return fmt.Errorf("accepting: %w", err)
		}
		s.mu.Lock()
		s.conns++
		c := newConn(ctx, s, nc, s.conns)
		s.mu.Unlock()
		conns.Go(c.serve)
	}
}

// isTemporary tells an aborted handshake from a listener that is broken.
func isTemporary(err error) bool {
	var ne interface{ Timeout() bool }
	return errors.As(err, &ne) && ne.Timeout()
}
