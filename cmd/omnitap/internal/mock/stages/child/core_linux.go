package child

import (
	"cmp"
	"slices"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/message"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/record"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/segment"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/shm"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/thread"
)

// request is one request of a stage, from its ADD to its last step.
type request struct {
	add      message.Add
	queuedNS int64
	// ran tells that it was scheduled before; step counts its steps.
	ran  bool
	step int

	// input is a chunk that was received and not yet used, next the number of the one to
	// ask for, exhausted that there is none after those.
	input     *segment.Payload
	next      int
	exhausted bool

	// seed, frames and codes are the talker's: what it speaks and what it has not sent.
	seed   uint64
	frames int
	codes  []int64
	sent   int

	all segment.Payload // what the first generation gathers before it answers
}

// result is what a step made for one request.
type result struct {
	out message.Output
	// send is a chunk for the next stage, nil without one.
	send *segment.Payload
	done bool
}

// plane is a stage's way to the other processes.
type plane interface {
	// ask has the chunk r.next of a request fetched. drop gives a request up.
	ask(r *request)
	drop(r *request)
	// emit hands out a step's results; stats is nil without statistics.
	emit(rs []*request, results []result, stats *message.Stats)
}

// arrival is a chunk that was received.
type arrival struct {
	id string
	p  segment.Payload
}

// task is a request to begin; input is what it begins with, if it does not have to ask.
type task struct {
	add   message.Add
	input *segment.Payload
}

// core is a stage's engine: one thread that takes requests and chunks and makes steps.
type core struct {
	spec    Spec
	truth   *record.Log
	tracker *shm.Tracker
	plane   plane

	inbox    chan any // task, []string (abort)
	arrivals chan arrival
	requests []*request // in the order of arrival
	statsNS  int64      // of the last statistics
}

func newCore(s Spec, truth *record.Log) *core {
	return &core{
		spec: s, truth: truth, tracker: shm.NewTracker(FDTracker),
		inbox: make(chan any, 256), arrivals: make(chan arrival, 256),
	}
}

// statsEvery is how often a scheduler tells its state.
const statsEvery = time.Second

// loop runs until the process ends.
func (c *core) loop() {
	tick := time.NewTicker(statsEvery)
	defer tick.Stop()
	for {
		c.drain()
		if batch := c.runnable(); len(batch) > 0 {
			c.step(batch)
			continue
		}
		select {
		case m := <-c.inbox:
			c.take(m)
		case a := <-c.arrivals:
			c.arrive(a)
		case <-tick.C:
			if len(c.requests) > 0 {
				c.plane.emit(nil, nil, c.stats())
			}
		}
	}
}

// drain takes what has come without waiting.
func (c *core) drain() {
	for {
		select {
		case m := <-c.inbox:
			c.take(m)
		case a := <-c.arrivals:
			c.arrive(a)
		default:
			return
		}
	}
}

func (c *core) take(m any) {
	switch m := m.(type) {
	case task:
		r := &request{add: m.add, input: m.input, queuedNS: thread.MonoNS()}
		c.truth.Request("request_added", r.add.HTTPID)
		c.requests = append(c.requests, r)
		if c.spec.Stage > 0 && r.input == nil {
			c.plane.ask(r)
		}
	case []string:
		for _, id := range m {
			if r := c.find(id); r != nil {
				c.truth.Request("request_aborted", r.add.HTTPID)
				c.plane.drop(r)
				c.forget(r)
			}
		}
	}
}

func (c *core) arrive(a arrival) {
	if r := c.find(a.id); r != nil {
		r.input = &a.p
	}
}

func (c *core) find(id string) *request {
	for _, r := range c.requests {
		if r.add.ID == id {
			return r
		}
	}
	return nil
}

func (c *core) forget(r *request) {
	c.requests = slices.DeleteFunc(c.requests, func(o *request) bool { return o == r })
}

// runnable returns the requests that the next step is made for.
func (c *core) runnable() []*request {
	var batch []*request
	for _, r := range c.requests {
		if len(batch) == c.spec.Batch {
			break
		}
		if c.spec.Stage == 0 || r.input != nil || r.exhausted {
			batch = append(batch, r)
		}
	}
	return batch
}

// step is one step of the model for a batch: a share of its time burns CPU, the rest
// is blocked, as one waits for a GPU.
func (c *core) step(batch []*request) {
	start := thread.MonoNS()
	took := int64(0)
	events := make([][]message.Event, len(batch))
	for i, r := range batch {
		events[i] = c.schedule(r, start)
		c.truth.Step("compute_start", r.add.HTTPID, r.step)
		took = max(took, cmp.Or(r.add.StepNS, c.spec.StepNS))
	}
	for _, r := range batch {
		if f := c.spec.fault(FaultSlow, r.add.HTTPID, r.step); f != nil {
			took += int64(f.Extra)
		}
	}
	results := make([]result, len(batch))
	for i, r := range batch {
		results[i] = c.advance(r)
		results[i].out.Events = events[i]
	}
	burn(start + int64(float64(took)*c.spec.Busy))
	thread.Sleep(start + took)
	for _, r := range batch {
		c.truth.Step("compute_end", r.add.HTTPID, r.step)
		c.maybeExit(r)
	}
	c.plane.emit(batch, results, c.due())
	for i, r := range batch {
		c.after(r, results[i])
	}
}

// schedule notes the scheduler's events of a request, which go out with its output.
func (c *core) schedule(r *request, now int64) []message.Event {
	scheduled := message.Event{Type: message.Scheduled, NS: now}
	if !r.ran {
		r.ran = true
		return []message.Event{{Type: message.Queued, NS: r.queuedNS}, scheduled}
	}
	if c.spec.Stage == 2 {
		return []message.Event{scheduled} // a chunk is a new scheduling there
	}
	return nil
}

// after brings a request behind its step: done, or waiting for its next chunk.
func (c *core) after(r *request, res result) {
	r.step++
	switch {
	case res.done:
		c.plane.drop(r)
		c.forget(r)
	case c.spec.Stage > 0 && !r.exhausted && r.input == nil:
		c.plane.ask(r)
	}
}

func (c *core) maybeExit(r *request) {
	if f := c.spec.fault(FaultExit, r.add.HTTPID, r.step); f != nil {
		c.truth.Step("fault_exit", r.add.HTTPID, r.step)
		exit(f.Status)
	}
}

func (c *core) stats() *message.Stats {
	c.statsNS = thread.MonoNS()
	s := &message.Stats{}
	for _, r := range c.requests {
		if r.ran {
			s.Running++
		} else {
			s.Waiting++
		}
	}
	s.Usage = float64(s.Running) / 1000
	return s
}

// due returns statistics when a step's outputs are to carry some.
func (c *core) due() *message.Stats {
	if thread.MonoNS()-c.statsNS < int64(statsEvery) {
		return nil
	}
	return c.stats()
}

// burn uses the CPU until a time of CLOCK_MONOTONIC.
func burn(until int64) {
	for thread.MonoNS() < until {
	}
}
