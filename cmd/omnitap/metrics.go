package main

import (
	"strings"

	"github.com/omnitap/omnitap/exporter/prometheus"
	"github.com/omnitap/omnitap/probes"
	"github.com/omnitap/omnitap/proxy/tap"
)

// newMetrics makes what GET /metrics answers with. It is asked for State once the service
// stands: the admin listener answers then.
func (s *service) newMetrics(c prometheus.Config) (*prometheus.Sink, error) {
	number, revision, _ := strings.Cut(version(), " ")
	return prometheus.New(c, prometheus.Deps{Source: s, Version: number, Revision: revision})
}

// State is part of prometheus.Source.
func (s *service) State() prometheus.State {
	out := prometheus.State{
		OpenConnections: s.server.Open(), AnalysisQueued: s.analyzer.Queued(), AnalysisDropped: s.analyzer.Dropped(),
		ReaderFaults: s.analyzer.Faults(), ClockSteps: s.server.ClockSteps(),
	}
	oldest, busy := s.analyzer.Oldest()
	if out.InFlight = busy; oldest != 0 {
		out.OldestInFlightS = new(float64(tap.Monotonic()-oldest) / 1e9)
	}
	if s.out != nil {
		st := s.out.Stats()
		out.Exporters = append(out.Exporters, prometheus.Exporter{
			Name: "rundir", Dropped: uint64(st.Requests.LostLines + st.Events.LostLines + st.Sessions.LostLines + st.Quality.LostLines),
		})
	}
	if s.telemetry != nil {
		st := s.telemetry.Stats()
		out.Exporters = append(out.Exporters, prometheus.Exporter{Name: "otlp", Dropped: uint64(st.Records.Lost()), Queued: new(int(st.Records.Pending))})
	}
	if s.stages != nil {
		out.RecordsWaiting = s.stages.held()
		probed(&out, s.stages.set.Status())
	}
	return out
}

// probed adds what the probes say of themselves.
func probed(out *prometheus.State, st probes.Status) {
	out.Trims, out.ForeignCores = len(st.Trims), st.ForeignCores
	for i := range st.Families {
		f := &st.Families[i]
		out.Probes = append(out.Probes, prometheus.Probe{
			Family: f.Name, State: string(f.State), Hits: f.Hits, Lost: f.Lost, Skipped: f.Skipped, CostNS: f.CostNS, Cores: f.Cores,
		})
	}
}
