package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/omnitap/omnitap/probes/host"
)

// idleTime is how long a connection may wait for its next request.
const idleTime = 2 * time.Second

// maxRefused is how many connections in a row may not come about before there is no
// server: a closed loop would go through its plan in no time.
const maxRefused = 100

// Run sends the plan's requests to the server at base (http://HOST:PORT), the set in
// turns, each with the X-Request-Id idPrefix-INDEX. The prefix is of [0-9A-Za-z-], at
// most 64 of them, and must be the caller's own for each run: servers build names from
// the id.
//
// It ends when all are answered, or soon after ctx ends, which cuts off what is under
// way. What goes wrong with an answer is in Sent. An error of Run says that requests were
// not sent, and the result holds what was.
func Run(ctx context.Context, base string, set Set, plan Plan, idPrefix string) (Result, error) {
	r, err := newRunner(base, set, plan, idPrefix)
	if err != nil {
		return Result{}, err
	}
	defer r.transport.CloseIdleConnections()
	return r.run(ctx)
}

// runner carries out one plan.
type runner struct {
	plan      Plan
	set       []ready
	prefix    string
	transport *http.Transport
	now       func() int64 // CLOCK_MONOTONIC

	sent  []Sent // each request's goroutine writes its own
	slots chan struct{}
	work  sync.WaitGroup

	refused    atomic.Int64 // connections in a row that did not come about
	connected  atomic.Bool  // one did
	lastRefuse atomic.Pointer[error]
	own        atomic.Int64 // requests that failed for want of something of ours
	lastOwn    atomic.Pointer[error]
}

func newRunner(base string, set Set, plan Plan, prefix string) (*runner, error) {
	if err := plan.Validate(); err != nil {
		return nil, fmt.Errorf("the plan of requests: %w", err)
	}
	if !idForm.MatchString(prefix) {
		return nil, errors.New("the prefix of request ids must be 1 to 64 letters, digits and hyphens")
	}
	ready, err := prepare(base, set)
	if err != nil {
		return nil, err
	}
	return &runner{
		plan: plan, set: ready, prefix: prefix, now: host.SystemClocks().Mono,
		sent: make([]Sent, plan.count()), slots: make(chan struct{}, MaxUnderWay),
		transport: &http.Transport{
			DialContext: (&net.Dialer{}).DialContext, DisableCompression: true, // bytes are counted as they come
			MaxIdleConns: MaxUnderWay, MaxIdleConnsPerHost: MaxUnderWay, IdleConnTimeout: idleTime,
			// one that is just being given back is waited for: 0, of an open loop, is no bound
			MaxConnsPerHost: plan.Concurrency,
			ReadBufferSize:  16 << 10, WriteBufferSize: 16 << 10,
		},
	}, nil
}

// run carries out the plan.
func (r *runner) run(ctx context.Context) (Result, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	out := Result{StartNS: r.now()}
	if r.plan.closed() {
		var next atomic.Int64
		for range min(r.plan.Concurrency, len(r.sent)) {
			r.work.Go(func() { r.keepOne(ctx, stop, &next) })
		}
	} else {
		r.dispatch(ctx, stop, out.StartNS)
	}
	r.work.Wait()
	out.EndNS = r.now()
	out.Sent = slices.DeleteFunc(r.sent, func(s Sent) bool { return s.RequestID == "" })
	return out, r.shortfall(ctx, out.Sent)
}

// keepOne keeps one request under way.
func (r *runner) keepOne(ctx context.Context, stop context.CancelCauseFunc, next *atomic.Int64) {
	for ctx.Err() == nil {
		i := int(next.Add(1)) - 1
		if i >= len(r.sent) {
			return
		}
		r.send(ctx, stop, i)
	}
}

// dispatch gives out the requests of an open loop, each when it is due.
func (r *runner) dispatch(ctx context.Context, stop context.CancelCauseFunc, start int64) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i, offset := range r.plan.schedule() {
		due := start + int64(offset)
		if !r.until(ctx, timer, due) {
			return
		}
		r.sent[i].PlannedNS = due
		select {
		case r.slots <- struct{}{}:
			r.work.Go(func() { r.sendOne(ctx, stop, i) })
		default: // waiting for a free one would be coordinated omission
			r.label(i)
			r.sent[i].Err = fmt.Sprintf("not sent: %d requests are under way", MaxUnderWay)
		}
	}
}

// until waits until the clock says due and reports whether the context lives.
func (r *runner) until(ctx context.Context, timer *time.Timer, due int64) bool {
	for {
		left := due - r.now()
		if left <= 0 {
			return ctx.Err() == nil
		}
		timer.Reset(time.Duration(left))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
	}
}

// sendOne sends a request of an open loop and gives its slot back.
func (r *runner) sendOne(ctx context.Context, stop context.CancelCauseFunc, i int) {
	defer func() { <-r.slots }()
	r.send(ctx, stop, i)
}

// label names a request.
func (r *runner) label(i int) {
	s := &r.sent[i]
	s.Index, s.Name, s.RequestID = i, r.set[i%len(r.set)].name, r.prefix+"-"+strconv.Itoa(i)
}

// shortfall is an error where not all of the plan was sent.
func (r *runner) shortfall(ctx context.Context, sent []Sent) error {
	if own := r.own.Load(); own > 0 {
		return fmt.Errorf("%d of %d requests could not be sent by this process: %w", own, len(r.sent), *r.lastOwn.Load())
	}
	if refusal := r.lastRefuse.Load(); refusal != nil && !r.connected.Load() {
		return fmt.Errorf("none of %d requests reached the server: %w", len(sent), *refusal)
	}
	given := 0
	for i := range sent {
		if sent[i].SentNS != 0 {
			given++
		}
	}
	switch {
	case given == len(r.sent):
		return nil
	case len(sent) == len(r.sent):
		return fmt.Errorf("%d of %d requests were not sent: %d were under way", len(sent)-given, len(sent), MaxUnderWay)
	default:
		return fmt.Errorf("%d of %d requests were sent: %w", given, len(r.sent), context.Cause(ctx))
	}
}
