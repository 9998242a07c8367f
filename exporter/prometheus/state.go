package prometheus

import (
	"runtime"
	"strings"

	prom "github.com/prometheus/client_golang/prometheus"
)

// Source tells what no record does.
type Source interface {
	// State is called once for each scrape, by several goroutines at a time.
	State() State
}

// State is what is known at one moment. A nil pointer is not known, and its metric absent.
type State struct {
	// OpenConnections are clients', InFlight those with a request or turn under way;
	// OldestInFlightS is how long ago the oldest of these came, in seconds.
	OpenConnections, InFlight int
	OldestInFlightS           *float64
	// RecordsWaiting are records that wait for what their stages did.
	RecordsWaiting int
	// AnalysisQueued and AnalysisDropped are bytes.
	AnalysisQueued, AnalysisDropped int64
	// ReaderFaults and ClockSteps count since the start.
	ReaderFaults, ClockSteps int64
	Exporters                []Exporter
	// Probes are the families of stage probes, empty where none are attached, and Trims
	// how often one was taken away for its cost.
	Probes []Probe
	Trims  int
	// ForeignCores is how many cores processes took that nobody watches.
	ForeignCores *float64
}

// Exporter is what becomes of what one exporter is given: Name is a word such as otlp or
// rundir, Dropped counts items since the start, Queued those that wait.
type Exporter struct {
	Name    string
	Dropped uint64
	Queued  *int
}

// Probe is the state of one family of probes, as probes.FamilyStatus has it: the counts
// are since it was attached. CostNS is nanoseconds a hit, Cores a share of a core.
type Probe struct {
	Family, State       string
	Hits, Lost, Skipped uint64
	CostNS, Cores       *float64
}

// state is the collector of what a Source tells.
type state struct {
	source Source
	descs  map[string]desc
	names  *names
}

type desc struct {
	*prom.Desc
	kind prom.ValueType
}

// maxFamilies bounds the names of probes and exporters and their states.
const maxFamilies = 64

func newState(s Source) *state {
	c := &state{source: s, descs: map[string]desc{}, names: newNames(maxFamilies, func() {})}
	for i := range schema {
		m := &schema[i]
		if m.Of != Scrape || m.Name == buildInfo {
			continue
		}
		d := desc{prom.NewDesc(m.Name, m.Help, m.Labels, nil), prom.GaugeValue}
		if m.Kind == Counter {
			d.kind = prom.CounterValue
		}
		c.descs[m.Name] = d
	}
	return c
}

// Describe is part of prometheus.Collector.
func (c *state) Describe(to chan<- *prom.Desc) {
	for _, d := range c.descs {
		to <- d.Desc
	}
}

// Collect is part of prometheus.Collector.
func (c *state) Collect(to chan<- prom.Metric) {
	s := c.source.State()
	c.send(to, "open_connections", float64(s.OpenConnections))
	c.send(to, "in_flight_connections", float64(s.InFlight))
	c.sendKnown(to, "oldest_in_flight_seconds", s.OldestInFlightS, 1)
	c.send(to, "records_waiting", float64(s.RecordsWaiting))
	c.send(to, "analysis_queued_bytes", float64(s.AnalysisQueued))
	c.send(to, "analysis_dropped_bytes_total", float64(s.AnalysisDropped))
	c.send(to, "reader_faults_total", float64(s.ReaderFaults))
	c.send(to, "clock_steps_total", float64(s.ClockSteps))
	c.send(to, "probe_trims_total", float64(s.Trims))
	c.sendKnown(to, "foreign_cores", s.ForeignCores, 1)
	seen := map[string]bool{} // the same series twice would spoil the whole scrape
	for i := range s.Exporters {
		e := &s.Exporters[i]
		name := c.names.of(e.Name, true)
		if seen[name] {
			continue
		}
		seen[name] = true
		c.send(to, "exporter_dropped_total", float64(e.Dropped), name)
		if e.Queued != nil {
			c.send(to, "exporter_queued", float64(*e.Queued), name)
		}
	}
	clear(seen)
	for i := range s.Probes {
		p := &s.Probes[i]
		if family := c.names.of(p.Family, true); !seen[family] {
			seen[family] = true
			c.probe(to, p, family)
		}
	}
}

func (c *state) probe(to chan<- prom.Metric, p *Probe, family string) {
	c.send(to, "probe_state", 1, family, c.names.of(p.State, true))
	c.send(to, "probe_hits_total", float64(p.Hits), family)
	c.send(to, "probe_lost_events_total", float64(p.Lost), family)
	c.send(to, "probe_skipped_total", float64(p.Skipped), family)
	c.sendKnown(to, "probe_hit_cost_seconds", p.CostNS, 1e-9, family)
	c.sendKnown(to, "probe_cores", p.Cores, 1, family)
}

func (c *state) send(to chan<- prom.Metric, name string, v float64, labels ...string) {
	d := c.descs["omnitap_"+name]
	m, err := prom.NewConstMetric(d.Desc, d.kind, v, labels...)
	if err != nil {
		m = prom.NewInvalidMetric(d.Desc, err)
	}
	to <- m
}

// sendKnown sends a value that is known, times a factor.
func (c *state) sendKnown(to chan<- prom.Metric, name string, v *float64, factor float64, labels ...string) {
	if v != nil {
		c.send(to, name, *v*factor, labels...)
	}
}

// buildInfo is told without a Source.
const buildInfo = "omnitap_build_info"

// newBuild makes the metric of what was built.
func newBuild(m Metric, d *Deps) prom.Gauge {
	labels := prom.Labels{"version": version(d.Version), "revision": version(d.Revision), "goversion": version(runtime.Version())}
	g := prom.NewGauge(prom.GaugeOpts{Name: m.Name, Help: m.Help, ConstLabels: labels})
	g.Set(1)
	return g
}

// version cleans a version for a label. Go's own may have words behind it.
func version(v string) string {
	v, _, _ = strings.Cut(v, " ")
	if v, ok := name(strings.Trim(v, "()")); ok {
		return v
	}
	return unknown
}
