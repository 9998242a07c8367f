package telemetry

import (
	"context"
	"errors"
	"slices"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// meters are the instruments.
type meters struct {
	series   *series
	floats   [nMetrics]metric.Float64Histogram
	integers [nMetrics]metric.Int64Histogram
	counts   [nMetrics]metric.Int64Counter
}

func newMeters(m metric.Meter, l *ledger) (*meters, error) {
	x := &meters{series: newSeries()}
	var errs []error
	for i := range metrics {
		errs = append(errs, x.make(m, i))
	}
	if l != nil {
		errs = append(errs, watch(m, l))
	}
	return x, errors.Join(errs...)
}

// make makes one instrument from its row of the schema.
func (x *meters) make(m metric.Meter, i int) (err error) {
	d := &metrics[i]
	buckets := metric.WithExplicitBucketBoundaries(d.Bounds...)
	switch {
	case d.Of == Export: // they are asked for, see watch
	case i == mGenDuration:
		h, herr := genaiconv.NewServerRequestDuration(m, buckets)
		x.floats[i], err = h.Inst(), herr
	case i == mGenFirst:
		h, herr := genaiconv.NewServerTimeToFirstToken(m, buckets)
		x.floats[i], err = h.Inst(), herr
	case i == mGenPerToken:
		h, herr := genaiconv.NewServerTimePerOutputToken(m, buckets)
		x.floats[i], err = h.Inst(), herr
	case d.Kind == Counter:
		x.counts[i], err = m.Int64Counter(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Meaning))
	case i == mSize:
		x.integers[i], err = m.Int64Histogram(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Meaning), buckets)
	default:
		x.floats[i], err = m.Float64Histogram(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Meaning), buckets)
	}
	return err
}

// record takes a record's figures. What is null is no figure, and no zero.
func (x *meters) record(ctx context.Context, r *timeline.Record) {
	w := x.series.where(r)
	state := label{key: string(keyState), value: x.series.words.of(string(r.Terminal.State), true)}
	x.counts[mRequests].Add(ctx, 1, x.series.of(ofRequest, w, state).add...)
	if r.Audio != nil && r.Audio.Samples != nil {
		x.counts[mSamples].Add(ctx, *r.Audio.Samples, x.series.of(ofRequest, w, state).add...)
	}
	if d := r.OwnDelayUS; d != nil {
		o := x.series.of(ofFlow, w, label{}).record
		x.floats[mDelayP50].Record(ctx, d.P50/1e6, o...)
		x.floats[mDelayMax].Record(ctx, d.Max/1e6, o...)
	}
	first := r.Terminal.State == timeline.Success && r.Attempt <= 1 // of a retry nobody waited for that time alone
	if first {
		x.request(ctx, r, w)
		x.sound(ctx, r, w)
		x.stages(ctx, r, w)
	}
	x.transfers(ctx, r, w, first)
}

// request takes the times of contract section 3.
func (x *meters) request(ctx context.Context, r *timeline.Record, w where) {
	pace := pacing(r)
	zero := x.series.of(ofZero, w, label{}).record
	x.seconds(ctx, mText, r.TTFTMS, zero)
	x.seconds(ctx, mAudio, r.TTFAMS, zero)
	x.seconds(ctx, mAudible, r.TTFAudibleMS, zero)
	x.seconds(ctx, mDuration, r.JCTMS, x.series.of(ofZero, w, pace).record)
	if operation(w.flow) == "" {
		return
	}
	x.seconds(ctx, mGenDuration, r.JCTMS, x.series.of(ofGen, w, pace).record)
	x.seconds(ctx, mGenFirst, r.TTFTMS, x.series.of(ofGen, w, label{}).record)
	if r.TPOTMS != nil && r.TextUnit != nil {
		unit := label{key: string(keyUnit), value: x.series.words.of(*r.TextUnit, true)}
		x.seconds(ctx, mGenPerToken, r.TPOTMS, x.series.of(ofGen, w, unit).record)
	}
}

// pacing marks what a server let out in real time: the figure is the pacer's.
func pacing(r *timeline.Record) label {
	if slices.Contains(r.Flags, "paced") {
		return label{key: string(keyPaced), value: "true"}
	}
	return label{}
}

func (x *meters) sound(ctx context.Context, r *timeline.Record, w where) {
	pace := x.series.of(ofZero, w, pacing(r)).record
	plain := x.series.of(ofRequest, w, label{})
	if r.AudioS != nil {
		x.floats[mSound].Record(ctx, *r.AudioS, plain.record...)
	}
	if r.RTF != nil {
		x.floats[mRTF].Record(ctx, *r.RTF, pace...)
	}
	if g := r.AudioGapMS; g != nil {
		x.seconds(ctx, mGapP95, &g.P95, pace)
		x.seconds(ctx, mGapMax, &g.Max, pace)
	}
	if p := r.Playback; p != nil {
		x.counts[mUnderruns].Add(ctx, int64(p.Underruns), plain.add...)
		x.seconds(ctx, mStall, &p.StallMS, plain.record)
	}
}

func (x *meters) stages(ctx context.Context, r *timeline.Record, w where) {
	for i := range r.Stages {
		t := &r.Stages[i]
		o := x.series.of(ofRequest, w, label{key: string(keyStage), value: x.series.stages.of(t.Stage, true)}).record
		x.seconds(ctx, mWait, t.WaitMS, o)
		x.seconds(ctx, mService, t.ServiceMS, o)
	}
}

// transfers takes each hand-over: bytes of every record, times of successes.
func (x *meters) transfers(ctx context.Context, r *timeline.Record, w where, timed bool) {
	var before *timeline.Transfer
	var o option
	for i := range r.Transfers {
		t := &r.Transfers[i]
		if before == nil || before.From != t.From || before.To != t.To || before.Transport != t.Transport {
			o, before = x.series.of(ofRequest, w, label{
				key: string(keyEdge), value: x.series.edge(t.From, t.To),
				key2: string(keyTransport), value2: x.series.words.of(t.Transport, true),
			}), t
		}
		if t.Bytes != nil {
			x.integers[mSize].Record(ctx, *t.Bytes, o.record...)
		}
		if timed && t.EndNS != nil {
			x.floats[mTransfer].Record(ctx, float64(*t.EndNS-t.StartNS)/1e9, o.record...)
		}
	}
}

// session counts a session.
func (x *meters) session(ctx context.Context, s *timeline.Session) {
	w := where{flow: x.series.words.of(s.Flow, true), dialect: x.series.words.of(s.Dialect, true)}
	by := label{key: string(keyClosedBy), value: x.series.words.of(s.Close.By, true)}
	x.counts[mSessions].Add(ctx, 1, x.series.of(ofEnd, w, by).add...)
}

// seconds records milliseconds, if they were measured.
func (x *meters) seconds(ctx context.Context, i int, ms *float64, o []metric.RecordOption) {
	if ms != nil {
		x.floats[i].Record(ctx, *ms/1e3, o...)
	}
}
