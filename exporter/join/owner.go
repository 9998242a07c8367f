package join

import (
	"slices"
	"strings"
)

// owners is who could own what work of the stages, by time: requests of the relay on
// one side, the first of them the one in question, the stages' requests on the other.
type owners struct {
	work  []*request
	edges [][]int // of each request of the relay, places in work
}

// maxOwners bounds the requests that are looked at together.
const maxOwners = 512

// owners gathers what lies in reach of an Ask: the work that it could own, who else
// could own that, what else those could own, and so on.
func (j *Joiner) owners(kind string, a *Ask) *owners {
	up := deref(a.Points.TUp)
	var work []*request
	for r := range j.requests.all() {
		if r.free(a) && r.added > 0 && strings.HasPrefix(r.external, kind) {
			work = append(work, r)
		}
	}
	o := &owners{}
	first := sent{kind: kind, at: up, end: a.to()}
	rest := make([]sent, 0, 16)
	for _, s := range j.sent.all() {
		forgotten := s.end == 0 && j.now-s.at > j.cfg.IdleNS // nobody asked for it
		if s.kind == kind && !s.matched && s.at != up && !forgotten {
			rest = append(rest, s)
		}
	}
	o.take(first, work, func(r *request) bool { return r.fits(a) })
	for grown := true; grown && len(o.edges) < maxOwners; {
		grown = false
		rest = slices.DeleteFunc(rest, func(s sent) bool {
			if len(o.edges) >= maxOwners || !slices.ContainsFunc(o.work, s.could) {
				return false
			}
			o.take(s, work, s.could)
			grown = true
			return true
		})
	}
	return o
}

// could says whether a request of the relay could own work: it was sent before that
// was asked for, and not over by then.
func (s sent) could(r *request) bool {
	return r.added >= s.at-early && (s.end == 0 || r.added <= s.end)
}

// take adds a request of the relay with all the work that it could own.
func (o *owners) take(s sent, work []*request, also func(*request) bool) {
	var list []int
	for _, r := range work {
		if !s.could(r) || !also(r) {
			continue
		}
		i := slices.Index(o.work, r)
		if i < 0 {
			i = len(o.work)
			o.work = append(o.work, r)
		}
		list = append(list, i)
	}
	o.edges = append(o.edges, list)
}

// forced is the work that the first request must own: without it some work would have
// no owner at all. Nil where another owner could be found for each, and where there is
// more work than owners: then some of it is from elsewhere.
func (o *owners) forced() *request {
	if len(o.edges) >= maxOwners || !o.covered(-1) {
		return nil
	}
	for _, w := range o.edges[0] {
		if !o.covered(w) {
			return o.work[w]
		}
	}
	return nil
}

// covered says whether all work can have an owner of its own (a matching of the
// bipartite graph, by augmenting paths), if the first request does not own what lies
// at a place.
func (o *owners) covered(without int) bool {
	owner := make([]int, len(o.work))
	for i := range owner {
		owner[i] = -1
	}
	n := 0
	for who := range o.edges {
		if o.augment(who, without, owner, make([]bool, len(o.work))) {
			n++
		}
	}
	return n == len(o.work)
}

// augment finds work for one more request, moving others' where they have a choice.
func (o *owners) augment(who, without int, owner []int, tried []bool) bool {
	for _, w := range o.edges[who] {
		if tried[w] || who == 0 && w == without {
			continue
		}
		tried[w] = true
		if owner[w] < 0 || o.augment(owner[w], without, owner, tried) {
			owner[w] = who
			return true
		}
	}
	return false
}
