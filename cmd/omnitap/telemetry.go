package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/exporter/telemetry"
)

// newTelemetry makes the exporter that the environment asks for (OTEL_*), nil where it
// asks for none. There is one a process.
func (s *service) newTelemetry(ctx context.Context) (*telemetry.Exporter, error) {
	asked := telemetry.Ask(os.Getenv)
	if !asked.Any() {
		return nil, nil
	}
	number, _, _ := strings.Cut(version(), " ")
	x, err := telemetry.New(ctx, telemetry.Config{Version: number, Log: s.log}, asked)
	if err != nil {
		return nil, fmt.Errorf("OpenTelemetry, as the environment asks for it: %w", err)
	}
	return x, nil
}

// hushTelemetry sends what waits, for a bounded time, and says what was lost. That is no
// failure: the records are the truth.
func (s *service) hushTelemetry(ctx context.Context) {
	if s.telemetry == nil {
		return
	}
	err := s.telemetry.Shutdown(context.WithoutCancel(ctx))
	st := s.telemetry.Stats()
	if lost := st.Records.Lost(); lost > 0 {
		var why []string
		for _, reason := range slices.Sorted(maps.Keys(st.Records.Dropped)) {
			if n := st.Records.Dropped[reason]; n > 0 {
				why = append(why, fmt.Sprintf("%s %d", reason, n))
			}
		}
		s.log.Warn("not all was exported to OpenTelemetry", "records", st.Records.Offered, "dropped", strings.Join(why, ", "))
	}
	if err != nil {
		s.log.Warn("ending OpenTelemetry", "error", err)
	}
}
