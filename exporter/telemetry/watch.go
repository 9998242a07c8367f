package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// The signals, as Stats.Failures names them.
const (
	Traces  = "traces"
	Metrics = "metrics"
)

// watch has the export's own figures asked for at every collection.
func watch(m metric.Meter, l *ledger) error {
	counter := func(i int) (metric.Int64ObservableCounter, error) {
		return m.Int64ObservableCounter(metrics[i].Name, metric.WithUnit(metrics[i].Unit), metric.WithDescription(metrics[i].Meaning))
	}
	exported, err1 := counter(mExported)
	dropped, err2 := counter(mDropped)
	failures, err3 := counter(mFailures)
	d := &metrics[mPending]
	pending, err4 := m.Int64ObservableGauge(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Meaning))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := l.snapshot()
		o.ObserveInt64(exported, s.Records.Exported)
		o.ObserveInt64(pending, s.Records.Pending)
		for _, r := range reasons {
			o.ObserveInt64(dropped, s.Records.Dropped[r], because[r])
		}
		for _, name := range [...]string{Traces, Metrics} {
			o.ObserveInt64(failures, s.Failures[name], signals[name])
		}
		return nil
	}, exported, dropped, failures, pending)
	return err
}

// because and signals are attributes made up once.
var (
	because = map[Reason]metric.ObserveOption{}
	signals = map[string]metric.ObserveOption{}
)

func init() {
	for _, r := range reasons {
		because[r] = metric.WithAttributeSet(attribute.NewSet(keyDropped.String(string(r))))
	}
	for _, name := range [...]string{Traces, Metrics} {
		signals[name] = metric.WithAttributeSet(attribute.NewSet(keySignal.String(name)))
	}
}
