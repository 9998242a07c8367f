//go:build !linux

package stages

import (
	"context"
	"errors"
	"fmt"
)

// Engine is the server's stages; there are none on this system.
type Engine struct{}

// Main is for Linux; here no process is a stage.
func Main() bool { return false }

// Start returns errors.ErrUnsupported.
func Start(context.Context, Config) (*Engine, error) {
	return nil, fmt.Errorf("stage processes need Linux: %w", errors.ErrUnsupported)
}

// Submit returns errors.ErrUnsupported.
func (*Engine) Submit(context.Context, Request) (<-chan Output, error) {
	return nil, errors.ErrUnsupported
}

// PIDs returns none.
func (*Engine) PIDs() []int { return nil }

// TrackerPID returns 0.
func (*Engine) TrackerPID() int { return 0 }

// Err returns nil.
func (*Engine) Err() error { return nil }

// Close does nothing.
func (*Engine) Close() error { return nil }
