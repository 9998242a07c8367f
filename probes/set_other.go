//go:build !(linux && amd64)

package probes

import (
	"context"
	"errors"
	"log/slog"
)

// Set is the probes of one server. There are none for this system.
type Set struct{}

// ErrSystem is why there are no probes here.
var ErrSystem = errors.New("stage probes are built for Linux on x86-64 alone")

// Open returns ErrSystem.
func Open(context.Context, Config, Source, Sink, *slog.Logger) (*Set, error) {
	return nil, ErrSystem
}

// Run does nothing.
func (s *Set) Run(context.Context) error { return ErrSystem }

// Ready is never closed.
func (s *Set) Ready() <-chan struct{} { return nil }

// Status is empty.
func (s *Set) Status() Status { return Status{} }

// Close does nothing.
func (s *Set) Close() error { return nil }
