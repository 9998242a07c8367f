package load

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Bounds and defaults of a Plan.
const (
	// MaxRequests bounds a plan; ids then never end like the server's own tail, a hyphen
	// and eight hex digits.
	MaxRequests = 1_000_000
	// MaxUnderWay bounds the requests under way, and so goroutines and connections.
	MaxUnderWay = 4096
	// DefaultTimeout is a request's where the plan has none.
	DefaultTimeout = 10 * time.Minute
	// maxSpan bounds an open loop's plan.
	maxSpan = 7 * 24 * time.Hour
)

// Plan says when requests are sent. Exactly one of Concurrency, Rate and Times is set.
type Plan struct {
	// Requests is how many are sent; with Times it may be 0, for all of them.
	Requests int
	// Concurrency makes a closed loop: so many are kept under way, at most MaxUnderWay.
	Concurrency int
	// Rate makes an open loop with Poisson arrivals, requests a second.
	Rate float64
	// Times makes an open loop: offsets from the start, in ascending order.
	Times []time.Duration
	// Seed is that of the arrivals: the same plan has the same ones.
	Seed uint64
	// Timeout is how long after it was sent a request must have its whole answer; 0 is
	// DefaultTimeout.
	Timeout time.Duration
}

// Validate returns all complaints, joined.
func (p Plan) Validate() error {
	var all []error
	complain := func(bad bool, format string, args ...any) {
		if bad {
			all = append(all, fmt.Errorf(format, args...))
		}
	}
	ways := 0
	for _, used := range []bool{p.Concurrency != 0, p.Rate != 0, len(p.Times) != 0} {
		if used {
			ways++
		}
	}
	complain(ways != 1, "exactly one of concurrency, rate and times must be set, not %d of them", ways)
	complain(p.count() < 1 || p.count() > MaxRequests, "requests must lie between 1 and %d, not %d", MaxRequests, p.count())
	complain(p.Concurrency < 0 || p.Concurrency > MaxUnderWay, "concurrency must lie between 1 and %d, not %d", MaxUnderWay, p.Concurrency)
	complain(p.Timeout < 0, "timeout %v is negative", p.Timeout)
	if p.Rate != 0 { // true for NaN as well
		// The sum of the gaps may come out longer than what is expected, but not ten times.
		span := float64(p.Requests) / p.Rate
		complain(!(p.Rate > 0) || math.IsInf(p.Rate, 0), "rate must be a number of requests a second above 0, not %v", p.Rate)
		complain(p.Rate > 0 && span > maxSpan.Seconds(), "%d requests at %v a second take longer than %v", p.Requests, p.Rate, maxSpan)
	}
	if n := len(p.Times); n > 0 {
		complain(p.Requests != 0 && p.Requests != n, "%d requests, but %d times", p.Requests, n)
		complain(p.Times[0] < 0, "times begin before the start: %v", p.Times[0])
		complain(!slices.IsSorted(p.Times), "times are not in ascending order")
		complain(p.Times[n-1] > maxSpan, "times go on for longer than %v", maxSpan)
	}
	return errors.Join(all...)
}

// count is how many requests are sent.
func (p Plan) count() int {
	if p.Requests == 0 {
		return len(p.Times)
	}
	return p.Requests
}

// timeout is Timeout or its default.
func (p Plan) timeout() time.Duration {
	if p.Timeout == 0 {
		return DefaultTimeout
	}
	return p.Timeout
}

// closed says that it is a closed loop.
func (p Plan) closed() bool { return p.Concurrency > 0 }

// schedule is when the requests of an open loop are due, from the start.
func (p Plan) schedule() []time.Duration {
	if p.Rate == 0 {
		return p.Times
	}
	rng := rand.New(rand.NewPCG(p.Seed, 0))
	due, at := make([]time.Duration, p.Requests), 0.0
	for i := range due {
		at += rng.ExpFloat64() / p.Rate
		due[i] = time.Duration(at * float64(time.Second))
	}
	return due
}
