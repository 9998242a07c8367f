package join

import (
	"iter"
	"slices"

	"github.com/omnitap/omnitap/exporter/join/control"
)

// request is what is known of one request of the stages.
type request struct {
	// engine is the id as the engine has it, external the one without its random tail.
	engine, external string
	// added is when the API process sent it to its first stage, aborted when it told
	// the stages to stop, completed when the last stage said that it was done.
	added, aborted, completed int64
	first, last               int64
	// over is when it was told to be forgotten, or its last stage finished.
	over      int64
	stages    []*stage
	transfers []*Transfer
	got       []receipt // vLLM's outputs at the API process
	socks     []uint64  // that it was sent to its stages by
	items     map[itemWay]int64
	held      int
	// dropped says that something of it had to be let go.
	dropped bool
	// taken is the t_up of the request of the relay that has it, 0 for none.
	taken int64

	prev, next *request
}

// receipt is an output at the API process. It names no stage: sock is the socket.
type receipt struct {
	sock  uint64
	at    int64
	bytes int64
}

// requests finds requests by id, and lets go of those that were quiet the longest.
type requests struct {
	engine   map[string]*request
	external map[string][]*request // in order of their beginning
	head     request               // of the list: next the quietest, prev the latest
	n        int
	// held is how many transfers, outputs and receipts all requests have.
	held    int
	checked int64
}

func newRequests() requests {
	return requests{engine: make(map[string]*request), external: make(map[string][]*request)}
}

// find is the request of an id at a time; it makes one where there is none.
//
// Names may hold the engine's id or the one without the tail. The same id may be used
// again: sock, if not 0, is the socket that it is now sent to a stage by, and a request
// is sent to each stage but once.
func (q *requests) find(j *Joiner, id string, at int64, sock uint64) *request {
	if r := q.engine[id]; r != nil && !r.begun(sock) {
		r.touch(j, at)
		return r
	}
	ext := control.External(id)
	if list := q.external[ext]; len(list) > 0 {
		r := list[len(list)-1]
		switch {
		case r.begun(sock):
		case id == ext: // no tail: the latest is meant
			r.touch(j, at)
			return r
		case r.engine == ext: // it was seen without its tail before
			q.rename(r, id)
			r.touch(j, at)
			return r
		}
	}
	return q.add(j, id, ext, at)
}

// begun says whether it was sent by this socket before.
func (r *request) begun(sock uint64) bool {
	return sock != 0 && slices.Contains(r.socks, sock)
}

func (q *requests) rename(r *request, engine string) {
	if q.engine[r.engine] == r {
		delete(q.engine, r.engine)
	}
	r.engine = engine
	q.engine[engine] = r
	for _, t := range r.transfers {
		t.Engine = engine
	}
}

func (q *requests) add(j *Joiner, id, ext string, at int64) *request {
	if q.n >= j.cfg.Requests {
		r := q.oldest()
		if r.over == 0 {
			j.stats.RequestsDropped++
		}
		q.drop(j, r)
	}
	r := &request{engine: id, external: ext, first: at, last: at}
	q.engine[id] = r
	q.external[ext] = append(q.external[ext], r)
	q.n++
	j.stats.Requests++
	q.link(r)
	return r
}

func (q *requests) link(r *request) {
	if q.head.next == nil {
		q.head.next, q.head.prev = &q.head, &q.head
	}
	r.prev, r.next = q.head.prev, &q.head
	r.prev.next, q.head.prev = r, r
}

func (r *request) unlink() {
	r.prev.next, r.next.prev = r.next, r.prev
	r.prev, r.next = nil, nil
}

// touch says that something of the request was seen.
func (r *request) touch(j *Joiner, at int64) {
	r.first = min(r.first, at)
	r.last = max(r.last, at)
	q := &j.requests
	if r.next != nil && q.head.prev != r {
		r.unlink()
		q.link(r)
	}
	if j.now-q.checked > 1_000_000_000 {
		q.expire(j, j.now)
	}
}

// hold counts one thing more that a request has. Beyond the bound the quietest other
// request goes.
func (q *requests) hold(j *Joiner, r *request) {
	r.held++
	q.held++
	for q.held > j.cfg.Held {
		o := q.oldest()
		if o == r {
			if o = r.next; o == &q.head {
				return // it has all alone what is bounded by Each
			}
		}
		if o.over == 0 {
			j.stats.RequestsDropped++
		}
		q.drop(j, o)
	}
}

// oldest is the request that was quiet the longest, nil for none.
func (q *requests) oldest() *request {
	if q.n == 0 {
		return nil
	}
	return q.head.next
}

// all are the requests, from the one that was quiet the longest on.
func (q *requests) all() iter.Seq[*request] {
	return func(yield func(*request) bool) {
		for r := q.oldest(); r != nil && r != &q.head; r = r.next {
			if !yield(r) {
				return
			}
		}
	}
}

// expire lets go of what is over or was quiet for long.
func (q *requests) expire(j *Joiner, now int64) {
	q.checked = now
	for r := q.oldest(); r != nil && r != &q.head; {
		next := r.next
		idle := now - r.last
		if r.over > 0 && now-max(r.over, r.last) > j.cfg.GraceNS || idle > j.cfg.IdleNS {
			q.drop(j, r)
		} else if idle <= j.cfg.GraceNS {
			return // the rest was heard of later
		}
		if q.n == 0 {
			return
		}
		r = next
	}
}

// drop lets go of a request and tells its transfers.
func (q *requests) drop(j *Joiner, r *request) {
	if q.engine[r.engine] == r {
		delete(q.engine, r.engine)
	}
	list := slices.DeleteFunc(q.external[r.external], func(o *request) bool { return o == r })
	if len(list) == 0 {
		delete(q.external, r.external)
	} else {
		q.external[r.external] = list
	}
	r.unlink()
	q.n--
	q.held -= r.held
	for _, t := range r.transfers {
		j.release(t)
	}
}

// Forget says that a request is over: it is kept for Config.GraceNS more, since its
// last events may still come. id is any of its ids.
func (j *Joiner) Forget(id string) {
	for _, r := range j.requests.named(id) {
		if r.over == 0 {
			r.over = max(j.now, r.last)
		}
	}
}

// named are the requests of an id, with or without its tail.
func (q *requests) named(id string) []*request {
	if r := q.engine[id]; r != nil && r.engine != r.external {
		return []*request{r}
	}
	return q.external[id]
}

// stage is what is known of a request in one stage.
type stage struct {
	name string
	id   int
	pid  int32
	proc *process
	// got is when the stage was told of the request.
	got int64
	// queued and scheduled are the scheduler's own times, scheduled the first.
	queued, scheduled int64
	outputs           []output
	more              int // outputs beyond the bound
	finished          int64
	aborted           int64
}

// output is one answer of a stage about a request.
type output struct {
	sent, got int64
	bytes     int64
	chunk     int64 // -1 where none is told
	batch     int32
	tokens    int32
	payload   bool // it holds more than text: a tensor, or audio
	scheduled int64
}

// stage is the request's part in a stage of a name; it makes one where there is none.
func (r *request) stage(name string, p *process) *stage {
	for _, s := range r.stages {
		if s.name == name {
			if s.proc == nil && p != nil {
				s.proc, s.pid, s.id = p, p.pid, p.id
			}
			return s
		}
	}
	s := &stage{name: name, id: -1, proc: p}
	if p != nil {
		s.pid, s.id = p.pid, p.id
	}
	r.stages = append(r.stages, s)
	return s
}
