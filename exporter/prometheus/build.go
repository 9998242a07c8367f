package prometheus

import (
	"errors"
	"fmt"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
)

// builder makes and registers the metrics that the schema describes.
type builder struct {
	registry *prom.Registry
	native   bool
	err      error
}

// register looks a metric up and registers what open makes of it.
func register[C prom.Collector](b *builder, name string, kind Kind, open func(Metric) C) C {
	m, ok := described(name)
	if !ok || m.Kind != kind {
		b.join(fmt.Errorf("the schema has no %s %s", kind, name))
	}
	c := open(m)
	if err := b.registry.Register(c); err != nil {
		b.join(fmt.Errorf("registering %s: %w", name, err))
	}
	return c
}

// join keeps an error, nil for none.
func (b *builder) join(err error) { b.err = errors.Join(b.err, err) }

func (b *builder) counter(name string) *prom.CounterVec {
	return register(b, name, Counter, func(m Metric) *prom.CounterVec {
		return prom.NewCounterVec(prom.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
	})
}

// What bounds a native histogram: buckets beyond so many make its steps wider, and it
// begins anew at most that often.
const (
	nativeFactor  = 1.1
	nativeBuckets = 160
	nativeReset   = time.Hour
)

func (b *builder) histogram(name string) *prom.HistogramVec {
	return register(b, name, Histogram, func(m Metric) *prom.HistogramVec {
		o := prom.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: m.Buckets}
		if b.native {
			o.NativeHistogramBucketFactor, o.NativeHistogramMaxBucketNumber, o.NativeHistogramMinResetDuration = nativeFactor, nativeBuckets, nativeReset
		}
		return prom.NewHistogramVec(o, m.Labels)
	})
}
