package experiment

import (
	"cmp"
	"fmt"
	"iter"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// Goodput is how many requests were within an SLO. Requests is Failed, Met, Missed and
// NotMeasured together.
type Goodput struct {
	SLO SLO `json:"slo"`
	// Attempts is every record of the window, Requests the initial ones: a retry adds
	// cost, never a success, and does not count as within.
	Attempts int `json:"attempts"`
	Requests int `json:"requests"`
	// Failed ended without success. Of the successes Met were within the SLO, Missed
	// broke a limit, and of NotMeasured it is not known: these do not count as within.
	Failed      int `json:"failed"`
	Met         int `json:"met"`
	Missed      int `json:"missed"`
	NotMeasured int `json:"not_measured"`
	// MissedBy and NotMeasuredBy count the limits that stood against those, by key; one
	// request may count at several.
	MissedBy      map[string]int `json:"missed_by"`
	NotMeasuredBy map[string]int `json:"not_measured_by"`
	// Outside is the records whose t_in lies not in the window, Unreadable the lines that
	// could not be used: both are in no other figure.
	Outside    int `json:"outside"`
	Unreadable int `json:"unreadable"`

	// Share is Met over Requests; null where Unmeasured says why.
	Share *float64 `json:"share"`
	// RatePerS is Met a second of the window, ThroughputPerS the successes a second.
	RatePerS       *float64 `json:"rate_per_s"`
	ThroughputPerS *float64 `json:"throughput_per_s"`
	// Unmeasured maps the name of a null to its reason.
	Unmeasured map[string]string `json:"unmeasured"`
}

// Goodput counts the requests that began in a window, startNS ≤ t_in ≤ endNS
// (CLOCK_MONOTONIC: the measured phase, up to the end of its last request). A record
// without t_in, a turn that nothing asked for, counts as within the window.
func (s SLO) Goodput(records iter.Seq2[*timeline.Record, error], startNS, endNS int64) Goodput {
	g := Goodput{SLO: s, MissedBy: map[string]int{}, NotMeasuredBy: map[string]int{}, Unmeasured: map[string]string{}}
	for r, err := range records {
		switch {
		case err != nil || r == nil:
			g.Unreadable++
		case r.Points.TIn != nil && (*r.Points.TIn < startNS || *r.Points.TIn > endNS):
			g.Outside++
		default:
			g.add(s, r)
		}
	}
	g.finish(s, startNS, endNS)
	return g
}

// add counts one record.
func (g *Goodput) add(s SLO, r *timeline.Record) {
	g.Attempts++
	if r.Attempt > 1 || r.RetryOf != nil {
		return
	}
	g.Requests++
	if r.Terminal.State != timeline.Success {
		g.Failed++
		return
	}
	broken, unknown := s.judge(r)
	by := g.MissedBy
	switch {
	case len(broken) > 0:
		g.Missed++
	case len(unknown) > 0 || s.Empty():
		g.NotMeasured++
		broken, by = unknown, g.NotMeasuredBy
	default:
		g.Met++
	}
	for _, f := range broken {
		by[f.key]++
	}
}

// finish makes shares and rates of the counts.
func (g *Goodput) finish(s SLO, startNS, endNS int64) {
	seconds := float64(endNS-startNS) / 1e9
	put := func(name string, to **float64, part int, whole float64, why string) {
		if why != "" {
			g.Unmeasured[name] = why
			return
		}
		*to = new(float64(part) / whole)
	}
	noRequests, noTime, noLimit := "", "", ""
	if g.Requests == 0 {
		noRequests = "no request began in the window"
	}
	if seconds <= 0 {
		noTime = "the window has no length"
	}
	if s.Empty() {
		noLimit = "the SLO has no limit"
	}
	put("share", &g.Share, g.Met, float64(g.Requests), cmp.Or(noLimit, noRequests))
	put("rate_per_s", &g.RatePerS, g.Met, seconds, cmp.Or(noLimit, noRequests, noTime))
	put("throughput_per_s", &g.ThroughputPerS, g.Requests-g.Failed, seconds, cmp.Or(noRequests, noTime))
}

// Allows says whether a run failed no more often than the experiment allows, and why not.
// A run without a request is not allowed.
func (e Experiment) Allows(g Goodput) (why string, ok bool) {
	switch {
	case g.Requests == 0:
		return "no request was measured", false
	case float64(g.Failed) > e.AllowedFailureRate*float64(g.Requests):
		return tooMany(g.Failed, g.Requests, e.AllowedFailureRate), false
	}
	return "", true
}

// tooMany tells of failures above a share.
func tooMany(failed, of int, share float64) string {
	return fmt.Sprintf("%d of %d failed, more than %.3g %%", failed, of, 100*share)
}
