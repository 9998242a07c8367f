package compare

import (
	"fmt"
	"math"

	"github.com/omnitap/omnitap/exporter/stats"
)

// Pairing says how requests of different runs were paired.
type Pairing struct {
	// By is request_id, request_sha256 or none, with the reason in Why.
	By  string `json:"by"`
	Why string `json:"why,omitempty"`
	// Common is how many requests every run has, Succeeded how many of them succeeded in
	// every run, of Of requests that the largest run has.
	Common    int `json:"common"`
	Succeeded int `json:"succeeded_in_all"`
	Of        int `json:"of"`
}

// Words of Pairing.By.
const (
	ByID   = "request_id"
	ByBody = "request_sha256"
	ByNone = "none"
)

// Bounds of pairing.
const (
	// commonShare is what all runs must have of the largest run's requests.
	commonShare = 0.5
	// keyedShare is how many of a run's requests must have the key.
	keyedShare = 0.95
)

// count is in how many runs a key was seen, and in how many of them with a value.
type count struct {
	runs, ok int32
	last     int32 // the run that had it last, from 1
	values   [nLatencies]int32
}

// paired are a group's latencies by run. Where requests are paired they are those that
// every run has a value for.
type paired struct {
	Pairing
	values [nLatencies]stats.Blocks
}

// pair pairs the requests of all runs, in the order in which they are given.
func pair(runs []*digest) paired {
	byID, why := tryPair(runs, ByID, func(w *row) uint64 { return w.id })
	if why == "" {
		return byID
	}
	byBody, whyBody := tryPair(runs, ByBody, func(w *row) uint64 { return w.body })
	if whyBody == "" {
		return byBody
	}
	return unpaired(runs, why+"; "+whyBody)
}

func unpaired(runs []*digest, why string) paired {
	p := paired{Pairing: Pairing{By: ByNone, Why: why}}
	for _, d := range runs {
		p.Of = max(p.Of, d.requests)
		p.take(d, func(*row, int) bool { return true })
	}
	return p
}

// take adds the values of one run's successes that are wanted.
func (p *paired) take(d *digest, wanted func(w *row, metric int) bool) {
	for m := range p.values {
		var v []float64
		for i := range d.rows {
			w := &d.rows[i]
			if w.ok && !math.IsNaN(w.v[m]) && wanted(w, m) {
				v = append(v, w.v[m])
			}
		}
		p.values[m] = append(p.values[m], v)
	}
}

// tryPair pairs by a key, or says why that cannot be.
func tryPair(runs []*digest, by string, key func(*row) uint64) (paired, string) {
	p := paired{Pairing: Pairing{By: by}}
	seen := map[uint64]*count{}
	for i, d := range runs {
		p.Of = max(p.Of, d.requests)
		if why := note(seen, d, int32(i+1), key); why != "" {
			return p, "by " + by + ": " + why
		}
	}
	n := int32(len(runs))
	for _, c := range seen {
		if c.runs == n {
			p.Common++
		}
		if c.ok == n {
			p.Succeeded++
		}
	}
	if least := commonShare * float64(p.Of); float64(p.Common) < least || p.Common == 0 {
		return p, fmt.Sprintf("by %s: %d of %d requests are in every run", by, p.Common, p.Of)
	} else if float64(p.Succeeded) < least || p.Succeeded == 0 {
		return p, fmt.Sprintf("by %s: %d of %d requests succeeded in every run", by, p.Succeeded, p.Of)
	}
	for _, d := range runs {
		p.take(d, func(w *row, m int) bool {
			c := seen[key(w)]
			return c != nil && c.values[m] == n
		})
	}
	return p, ""
}

// note counts the keys of one run.
func note(seen map[uint64]*count, d *digest, run int32, key func(*row) uint64) (why string) {
	without := 0
	for i := range d.rows {
		w := &d.rows[i]
		k := key(w)
		if k == 0 {
			without++
			continue
		}
		c := seen[k]
		if c == nil {
			c = &count{}
			seen[k] = c
		}
		if c.last == run {
			return "it repeats within a run"
		}
		c.last = run
		c.runs++
		if !w.ok {
			continue
		}
		c.ok++
		for m, v := range w.v {
			if !math.IsNaN(v) {
				c.values[m]++
			}
		}
	}
	if float64(d.requests-without) < keyedShare*float64(d.requests) {
		return fmt.Sprintf("%d of a run's %d requests have none", without, d.requests)
	}
	return ""
}
