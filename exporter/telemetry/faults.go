package telemetry

import (
	"log/slog"
	"strings"
	"sync"
)

// maxFaults bounds how many faults are told of.
const maxFaults = 32

// faults takes what the SDK reports of itself. Exports of metrics fail here alone: their
// reader is made by autoexport and cannot be wrapped.
type faults struct {
	ledger *ledger
	log    *slog.Logger

	mu      sync.Mutex // protects what follows
	told    map[string]bool
	metrics bool // it was told that metrics fail
}

// Handle is part of otel.ErrorHandler.
func (f *faults) Handle(err error) {
	text := err.Error()
	f.mu.Lock()
	defer f.mu.Unlock()
	if strings.Contains(text, "upload metrics") || strings.Contains(text, "reader collect and export timeout") {
		f.ledger.failed(Metrics)
		if !f.metrics {
			f.metrics = true
			f.log.Warn("metrics cannot be exported: it goes on being tried, and failures are counted", "reason", why(err), "error", err)
		}
		return
	}
	if f.told[text] || len(f.told) >= maxFaults {
		return
	}
	if f.told == nil {
		f.told = map[string]bool{}
	}
	f.told[text] = true
	f.log.Warn("OpenTelemetry's SDK reports a fault", "error", err)
}
