package main

import (
	"encoding/json"
	"net/http"

	"github.com/omnitap/omnitap/exporter/nodes"
	"github.com/omnitap/omnitap/exporter/telemetry"
	"github.com/omnitap/omnitap/probes"
	"github.com/omnitap/omnitap/proxy/tap"
)

// routes are what the admin listener answers.
func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.health()) // who does not take it is gone
	})
	mux.Handle("GET /clock", nodes.Handler(s.node))
	mux.Handle("GET /metrics", s.metrics.Handler())
	return mux
}

// health is what /healthz says; null is what there is nothing of.
type health struct {
	Status      string `json:"status"`
	Connections int    `json:"open_connections"`
	// InFlight is the connections with a request or turn under way, OldestMS how long
	// ago the oldest of these came.
	InFlight int      `json:"in_flight"`
	OldestMS *float64 `json:"oldest_in_flight_ms"`
	// ReadLagMS is how long bytes waited to be read at worst since it was last asked.
	ReadLagMS *float64 `json:"read_lag_ms"`
	Queued    int64    `json:"analysis_queued_bytes"`
	Dropped   int64    `json:"analysis_dropped_bytes"`
	Faults    int64    `json:"reader_faults"`
	Steps     int64    `json:"clock_steps"`
	// Telemetry is what became of what was offered to OpenTelemetry, null where it is off.
	Telemetry *telemetry.Stats `json:"telemetry"`
	// Stages is the state of the stage probes, or why there are none.
	Stages   *probes.Status `json:"stages"`
	Unprobed string         `json:"stages_missing,omitempty"`
}

func (s *service) health() health {
	h := health{
		Status: "ok", Connections: s.server.Open(), Queued: s.analyzer.Queued(), Dropped: s.analyzer.Dropped(),
		Faults: s.analyzer.Faults(), Steps: s.server.ClockSteps(),
	}
	oldest, busy := s.analyzer.Oldest()
	if h.InFlight = busy; oldest != 0 {
		h.OldestMS = new(float64(tap.Monotonic()-oldest) / 1e6)
	}
	if lag, ok := s.server.Lag(); ok {
		h.ReadLagMS = new(float64(lag) / 1e6)
	}
	if s.telemetry != nil {
		h.Telemetry = new(s.telemetry.Stats())
	}
	h.Unprobed = s.unprobed
	if s.stages != nil {
		h.Stages = new(s.stages.set.Status())
	}
	return h
}
