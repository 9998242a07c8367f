package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// Incident is a burst of failures, of several connections, that are likely to have
// one cause: each came within a second of the one before it. A stream that exceeded its deadline
// counts from when its server fell silent.
type Incident struct {
	// AtWallNS is when it began, Seconds how long until its last failure.
	AtWallNS int64   `json:"at_wall_ns"`
	Seconds  float64 `json:"seconds"`
	// Failures counts attempts, Connections those that they were on.
	Failures    int `json:"failures"`
	Connections int `json:"connections"`
	// Kinds says how they ended: `state/reason`, most frequent first.
	Kinds []Kind `json:"kinds"`
}

// Kind is how many failures of an incident ended in one way.
type Kind struct {
	Name string `json:"kind"`
	N    int    `json:"n"`
}

const (
	// incidentGap is how far apart two failures of one incident are at most.
	incidentGap = int64(time.Second)
	// incidentMin is how many failures make an incident.
	incidentMin = 3
	// maxFailures bounds what is kept to find incidents.
	maxFailures = 1 << 17
)

// failure is what is kept of an attempt that failed.
type failure struct {
	at          int64 // CLOCK_MONOTONIC
	wall        int64
	clock, kind string // whose clock at is of; how it ended
	conn        uint64
}

// failureOf returns what to keep of a record: failures that a part of the server,
// or what lies between, may cause for many at once.
func failureOf(r *timeline.Record) (failure, bool) {
	switch r.Terminal.State {
	case timeline.WorkerLost, timeline.TransportError, timeline.DeadlineExceeded, timeline.ServerError, timeline.OOM:
	default:
		return failure{}, false
	}
	in, term := r.Points.TIn, r.Points.TTerm
	if in == nil || term == nil || r.TInWallNS == nil { // captures of different days have no clock in common
		return failure{}, false
	}
	f := failure{at: *term, conn: r.ConnectionID, clock: r.Node + "/" + r.RunID, kind: string(r.Terminal.State) + "/" + r.Terminal.Reason}
	if ms, ok := r.Terminal.Evidence["last_output_ms"].(float64); ok && r.Terminal.State == timeline.DeadlineExceeded {
		f.at = *in + int64(ms*1e6)
	}
	f.wall = *r.TInWallNS + f.at - *in
	return f, true
}

// incidents finds bursts of failures.
func incidents(all []failure) []Incident {
	out := []Incident{}
	slices.SortFunc(all, func(a, b failure) int { return cmp.Or(cmp.Compare(a.clock, b.clock), cmp.Compare(a.at, b.at)) })
	for from := 0; from < len(all); {
		to := from + 1
		for to < len(all) && all[to].clock == all[from].clock && all[to].at-all[to-1].at <= incidentGap {
			to++
		}
		if i := incidentOf(all[from:to]); i.Failures >= incidentMin && i.Connections > 1 {
			out = append(out, i)
		}
		from = to
	}
	return out
}

func incidentOf(burst []failure) Incident {
	n, conns := map[string]int{}, map[uint64]bool{}
	for _, f := range burst {
		n[f.kind]++
		conns[f.conn] = true
	}
	i := Incident{
		AtWallNS: burst[0].wall, Seconds: float64(burst[len(burst)-1].at-burst[0].at) / 1e9, Failures: len(burst), Connections: len(conns),
	}
	for name, k := range n {
		i.Kinds = append(i.Kinds, Kind{name, k})
	}
	slices.SortFunc(i.Kinds, func(a, b Kind) int { return cmp.Or(cmp.Compare(b.N, a.N), strings.Compare(a.Name, b.Name)) })
	return i
}

// incidentNotes tells of each incident in a line.
func (r Report) incidentNotes() (out []string) {
	for _, i := range r.Incidents {
		when := " at " + time.Unix(0, i.AtWallNS).UTC().Format("15:04:05.000") + " UTC"
		var kinds []string
		for _, k := range i.Kinds {
			kinds = append(kinds, fmt.Sprintf("%s %d", k.Name, k.N))
		}
		out = append(out, fmt.Sprintf("Incident%s: %d failures on %d connections within %.1f s, likely of one cause: %s.", when, i.Failures, i.Connections, i.Seconds, strings.Join(kinds, ", ")))
	}
	return out
}
