package verify

// group is the events of one request, in the order of the file.
type group struct {
	id     string
	events []event
	ended  bool // its terminal event with a state came
	mixed  bool // another request of the same id was open at the same time
	began  int64
}

func (g *group) add(e *event) {
	switch {
	case e.kind == ingress && g.began != absent:
		g.mixed = true
	case e.kind == ingress:
		g.began = e.mono
	case e.kind == terminal && e.status != 0:
		g.ended = true
	}
	g.events = append(g.events, *e)
}

// groups holds the requests whose events were read and whose record was not. A
// client may use an id again: each use is a group of its own, the oldest first.
type groups struct {
	open  map[string][]*group
	spare []*group // to be used again
}

func newGroups() groups { return groups{open: map[string][]*group{}} }

// add gives an event to its request, and returns the group.
func (q *groups) add(id []byte, e *event) *group {
	list := q.open[string(id)]
	if n := len(list); n > 0 && !list[n-1].ended {
		list[n-1].add(e)
		return list[n-1]
	}
	g := q.fresh()
	g.id, g.began = string(id), absent
	g.add(e)
	q.open[g.id] = append(list, g)
	return g
}

func (q *groups) fresh() *group {
	n := len(q.spare)
	if n == 0 {
		return &group{}
	}
	g := q.spare[n-1]
	q.spare = q.spare[:n-1]
	return g
}

// fits reports whether a group may be of a request that began at a time: absent is
// not known, or not said.
func (g *group) fits(began int64) bool {
	return began == absent || g.began == absent || g.began == began
}

// take removes and returns the group of a request that began at a time, nil for
// none; began is absent for a request without t_in. whole says that only one that has
// ended, and fits, will do.
func (q *groups) take(id string, began int64, whole bool) *group {
	list := q.open[id]
	at := -1
	for i, g := range list {
		if whole && (!g.ended || !g.fits(began)) {
			continue
		}
		if at < 0 || g.began == began && list[at].began != began {
			at = i
		}
	}
	if at < 0 {
		return nil
	}
	g := list[at]
	if len(list) == 1 {
		delete(q.open, id)
	} else {
		q.open[id] = append(list[:at:at], list[at+1:]...)
	}
	return g
}

// maxSpare bounds the groups that are kept to be used again.
const maxSpare = 256

// free gives a group back.
func (q *groups) free(g *group) {
	if len(q.spare) < maxSpare && cap(g.events) <= 4096 {
		*g = group{events: g.events[:0]}
		q.spare = append(q.spare, g)
	}
}
