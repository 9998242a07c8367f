package prometheus

import (
	"math"
	"sync/atomic"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
)

// lazy is a histogram that is made with its first value: a flow without sound has no
// series of sound.
type lazy struct {
	vec    *prom.HistogramVec
	labels []string
	made   atomic.Pointer[observer]
	gate   gate
}

// observer is behind a pointer of our own.
type observer struct{ prom.Observer }

func (l *lazy) get() prom.Observer {
	if o := l.made.Load(); o != nil {
		return o.Observer
	}
	o := &observer{l.vec.WithLabelValues(l.labels...)} // the same one for whoever comes at once
	l.made.Store(o)
	return o.Observer
}

// measured reports whether a value can be one of a histogram: what was not measured, and
// what cannot have been, does not enter as 0.
func measured(v *float64) bool {
	return v != nil && *v >= 0 && !math.IsInf(*v, 0)
}

// observe keeps a value that was measured, times a factor.
func (l *lazy) observe(v *float64, factor float64) {
	if measured(v) {
		l.get().Observe(*v * factor)
	}
}

// traced keeps milliseconds that were measured as seconds, with the trace where one is
// known.
func (l *lazy) traced(ms *float64, trace string) {
	if !measured(ms) {
		return
	}
	o := l.get()
	if e, ok := o.(prom.ExemplarObserver); ok && trace != "" && l.gate.open(time.Now().UnixNano(), *ms) {
		e.ObserveWithExemplar(*ms/1e3, prom.Labels{"trace_id": trace})
		return
	}
	o.Observe(*ms / 1e3)
}

// gate lets some exemplars through: each costs some 2 µs and 7 allocations, and a scrape
// takes one a bucket at most.
type gate struct {
	at  atomic.Int64  // when the last one passed, nanoseconds
	top atomic.Uint64 // its value, as bits
}

// gateNS is how long after an exemplar none passes but of a higher value.
const gateNS = 100e6

// open reports whether an exemplar passes: the first one in a while, and what is slower
// than it. Of two at once both may.
func (g *gate) open(now int64, v float64) bool {
	if now-g.at.Load() < gateNS && v <= math.Float64frombits(g.top.Load()) {
		return false
	}
	g.at.Store(now)
	g.top.Store(math.Float64bits(v))
	return true
}
