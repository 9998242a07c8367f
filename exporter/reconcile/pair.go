package reconcile

import (
	"cmp"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// Pairing is how a generator's requests were tied to records.
type Pairing string

// The ways. Summed is none: only sums are compared.
const (
	ByID    Pairing = "x-request-id"
	ByStart Pairing = "start times"
	Summed  Pairing = "not paired"
)

// pair is one request in two views. Pairs by start times with one group could be exchanged.
type pair struct {
	client *GeneratorRequest
	wire   *timeline.Record
	group  int
}

// pairs is what pairing came to.
type pairs struct {
	how   Pairing
	why   string // it is Summed
	pairs []pair
	// alone are requests of the generator without a record, rest records without one of its.
	alone []*GeneratorRequest
	rest  []*timeline.Record
	// close is the number of pairs by start times that could be another's as well: their
	// sums are right, their own figures may be exchanged.
	close int
	// members are the records of each group.
	members [][]*timeline.Record
}

const (
	// slack is by how much a start may seem to lie behind the first byte that it caused:
	// start times of a file are floats of seconds, the relay's stamps the kernel's.
	slack = 1_000_000
	// maxDelay bounds the time from a generator's start to the first byte at the relay.
	maxDelay = 10_000_000_000
)

// ingress is a record's t_in on a generator's clock.
func (c Clock) ingress(r *timeline.Record) *int64 {
	if c == Wall {
		return r.TInWallNS
	}
	return r.Points.TIn
}

// match ties a generator's requests to records: by id where each that has a start has one,
// else in the order of their starts, each to the first record that is not older.
func match(g *Generator, records []*timeline.Record) pairs {
	if g == nil || len(g.Requests) == 0 {
		return pairs{how: Summed, why: "the file does not tell the requests one by one", rest: records}
	}
	if p, ok := matchIDs(g, records); ok {
		return p
	}
	if g.Clock == NoClock {
		return pairs{how: Summed, why: "the file has neither ids nor start times", rest: records}
	}
	p := matchStarts(g, records)
	if len(p.pairs) == 0 || 2*len(p.pairs) < len(g.Requests) {
		return pairs{how: Summed, why: "its start times are not of this node's clock, or of another run", rest: records}
	}
	return p
}

func matchIDs(g *Generator, records []*timeline.Record) (pairs, bool) {
	byID := map[string][]*timeline.Record{}
	for _, r := range records {
		byID[r.RequestID] = append(byID[r.RequestID], r)
	}
	p := pairs{how: ByID}
	taken := map[*timeline.Record]bool{}
	for i := range g.Requests {
		c := &g.Requests[i]
		found := byID[c.ID]
		if c.ID == "" || len(found) == 0 {
			p.alone = append(p.alone, c)
			continue
		}
		r := found[len(found)-1] // the last attempt
		byID[c.ID] = found[:len(found)-1]
		taken[r] = true
		p.pairs = append(p.pairs, pair{c, r, len(p.members)})
		p.members = append(p.members, []*timeline.Record{r})
	}
	p.rest = slices.DeleteFunc(slices.Clone(records), func(r *timeline.Record) bool { return taken[r] })
	return p, len(p.pairs) > 0
}

func matchStarts(g *Generator, records []*timeline.Record) pairs {
	p := pairs{how: ByStart}
	clients := make([]*GeneratorRequest, len(g.Requests))
	for i := range g.Requests {
		clients[i] = &g.Requests[i]
	}
	slices.SortStableFunc(clients, func(a, b *GeneratorRequest) int { return cmp.Compare(a.StartNS, b.StartNS) })
	var timed []*timeline.Record
	for _, r := range records {
		if g.Clock.ingress(r) != nil {
			timed = append(timed, r)
		} else {
			p.rest = append(p.rest, r)
		}
	}
	slices.SortStableFunc(timed, func(a, b *timeline.Record) int {
		return cmp.Compare(*g.Clock.ingress(a), *g.Clock.ingress(b))
	})
	next, together := 0, false
	for i, c := range clients {
		for next < len(timed) && *g.Clock.ingress(timed[next]) < c.StartNS-slack {
			p.rest = append(p.rest, timed[next])
			next++
		}
		if next == len(timed) || *g.Clock.ingress(timed[next]) > c.StartNS+maxDelay {
			p.alone = append(p.alone, c)
			together = false
			continue
		}
		if !together {
			p.members = append(p.members, nil)
		}
		group := len(p.members) - 1
		p.pairs = append(p.pairs, pair{c, timed[next], group})
		p.members[group] = append(p.members[group], timed[next])
		together = i+1 < len(clients) && clients[i+1].StartNS <= *g.Clock.ingress(timed[next])
		next++
	}
	for _, m := range p.members {
		if len(m) > 1 {
			p.close += len(m)
		}
	}
	p.rest = append(p.rest, timed[next:]...)
	return p
}

// reach is what the records of a group have of an instant: the earliest one, and whether
// some, and all, have it.
type reach struct {
	first     int64
	some, all bool
}

// reaches is the reach of each group.
func (p pairs) reaches(instant func(*timeline.Record) *int64) []reach {
	out := make([]reach, len(p.members))
	for i, members := range p.members {
		out[i].all = true
		for _, r := range members {
			t := instant(r)
			if t == nil {
				out[i].all = false
				continue
			}
			if !out[i].some || *t < out[i].first {
				out[i].first = *t
			}
			out[i].some = true
		}
	}
	return out
}

// loads says whether a record is of what load generators send and servers count.
func loads(r *timeline.Record) bool {
	switch r.Flow {
	case "other", "opaque", "":
		return false
	}
	return r.Path == nil || !strings.HasSuffix(*r.Path, "/metrics")
}
