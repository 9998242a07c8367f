package main

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/omnitap/omnitap/exporter/twin"
	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/timeline/waveform"
	"github.com/omnitap/omnitap/proxy/wire/audio"
)

// twins stands between the analysis and the sinks: the record of a request in the
// sample waits there, with its terminal event, until its twin has come, so that
// what is written says how both compare. Everything else passes at once.
type twins struct {
	next   timeline.Sink
	runner *twin.Runner
	ctx    context.Context // ends what is under way
	stop   context.CancelFunc
	wg     sync.WaitGroup
	kept   atomic.Int64 // bytes of requests and samples

	mu    sync.Mutex // protects what follows
	takes map[*timeline.Record]*take
	// held holds, by request id, the terminal events that wait for their records; an
	// entry is there while a record is to come.
	held map[string][]timeline.Event
}

// newTwins returns twins whose records go to next.
func newTwins(r *twin.Runner, next timeline.Sink) *twins {
	t := &twins{next: next, runner: r, takes: map[*timeline.Record]*take{}, held: map[string][]timeline.Event{}}
	t.ctx, t.stop = context.WithCancel(context.Background())
	return t
}

// close waits for what is under way until ctx ends, then gives it up; every record
// has gone on when it returns.
func (t *twins) close(ctx context.Context) {
	defer context.AfterFunc(ctx, t.stop)()
	t.wg.Wait()
	t.stop()
}

// take is the sound of one request, as far as it is kept. It is a timeline.Listener.
type take struct {
	t    *twins
	q    *timeline.Asked
	sum  twin.Take
	held int64  // bytes that are accounted for
	odd  string // why there is nothing to compare, empty where there is
}

const (
	// maxTake bounds the samples kept of one request: two minutes of two channels of
	// 32 bits at 48 kHz; the comparison takes no more.
	maxTake = 120 * 48000 * 8
	// maxTakes bounds what is kept of all requests.
	maxTakes = 192 << 20
)

// hold accounts for n bytes more, and reports whether there is room.
func (k *take) hold(n int) bool {
	k.held += int64(n)
	return k.t.kept.Add(int64(n)) <= maxTakes
}

// drop forgets what is kept.
func (k *take) drop() {
	k.t.kept.Add(-k.held)
	k.held, k.sum.Samples, k.q = 0, nil, nil
}

// listen is a timeline.Listen.
func (t *twins) listen(_ string, q *timeline.Asked) timeline.Listener {
	if q == nil { // it is not in the sample, or was not over
		return nil
	}
	k := &take{t: t, q: q}
	if !k.hold(len(q.Body)) {
		k.odd = noRoom
	}
	return k
}

// Samples is part of timeline.Listener.
func (k *take) Samples(f audio.Format, rate int, p []byte) {
	switch {
	case k.odd != "":
	case len(k.sum.Samples) > 0 && (f != k.sum.Format || rate != k.sum.Rate):
		k.odd = "the format changes within the stream"
	case len(k.sum.Samples)+len(p) > maxTake:
		k.odd = "the stream is too long to be kept"
	case !k.hold(len(p)):
		k.odd = noRoom
	default:
		k.sum.Format, k.sum.Rate = f, rate
		k.sum.Samples = append(k.sum.Samples, p...)
	}
	if k.odd != "" && k.held > 0 {
		k.drop()
	}
}

// noRoom is why a request has no twin where too much is kept for others.
const noRoom = "too much is kept for other twins"

// Chunk is part of timeline.Listener.
func (k *take) Chunk() {}

// End is part of timeline.Listener.
func (k *take) End(r *timeline.Record) {
	if r.Terminal.State != timeline.Success && r.Terminal.State != timeline.QualityFailed {
		k.drop() // what was cut short has no twin
		return
	}
	k.t.mu.Lock()
	defer k.t.mu.Unlock()
	k.t.takes[r] = k
	if _, there := k.t.held[r.RequestID]; !there {
		k.t.held[r.RequestID] = nil
	}
}

// Event is part of timeline.Sink.
func (t *twins) Event(e *timeline.Event) {
	if e.Event == "terminal" {
		t.mu.Lock()
		_, held := t.held[e.RequestID]
		if held {
			t.held[e.RequestID] = append(t.held[e.RequestID], *e)
		}
		t.mu.Unlock()
		if held {
			return
		}
	}
	t.next.Event(e)
}

// Session is part of timeline.Sink.
func (t *twins) Session(x *timeline.Session) { t.next.Session(x) }

// Record is part of timeline.Sink.
func (t *twins) Record(r *timeline.Record) {
	t.mu.Lock()
	k := t.takes[r]
	var ends []timeline.Event
	if k != nil {
		ends = t.held[r.RequestID]
		delete(t.takes, r)
		delete(t.held, r.RequestID)
	}
	t.mu.Unlock()
	if k == nil {
		t.next.Record(r)
		return
	}
	t.wg.Go(func() {
		r := k.judged(r)
		for i := range ends {
			ends[i].Status = timeline.Text(r.Terminal.State)
			t.next.Event(&ends[i])
		}
		t.next.Record(r)
	})
}

// judged returns a copy of a record with what its twin tells: others may still read
// the record itself.
func (k *take) judged(r *timeline.Record) *timeline.Record {
	defer k.drop()
	c := *r
	c.Terminal.Evidence = maps.Clone(r.Terminal.Evidence)
	judge(&c, k.findings(k.t.ctx))
	return &c
}

// findings sends the twin and compares. A fault of the comparison is no fault of the
// relay.
func (k *take) findings(ctx context.Context) (out []waveform.Finding) {
	defer func() {
		if r := recover(); r != nil {
			out = twin.NotMeasured(fmt.Sprintf("the comparison failed: %v", r))
		}
	}()
	if k.odd != "" {
		return twin.NotMeasured(k.odd)
	}
	q := twin.Request{Method: k.q.Method, Target: k.q.Target, Header: k.q.Header, Body: k.q.Body}
	return k.t.runner.Compare(ctx, q, k.sum)
}

// judge adds findings to a record: a success that fails one is none (contract
// section 4).
func judge(r *timeline.Record, more []waveform.Finding) {
	r.Quality.Add(more)
	for _, f := range more {
		if f.Verdict == waveform.Failed && r.Terminal.State == timeline.Success {
			r.Terminal.State, r.Terminal.Reason, r.Terminal.By = timeline.QualityFailed, f.Name, "server"
			r.Terminal.Evidence["check"] = f.Reason
		}
	}
}

// listeners has each of several listen to the sound.
type listeners []timeline.Listener

// listenAll is a timeline.Listen of several.
func listenAll(all []timeline.Listen) timeline.Listen {
	if len(all) == 0 {
		return nil
	}
	return func(id string, q *timeline.Asked) timeline.Listener {
		var out listeners
		for _, l := range all {
			if x := l(id, q); x != nil {
				out = append(out, x)
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	}
}

func (l listeners) Samples(f audio.Format, rate int, p []byte) {
	for _, x := range l {
		x.Samples(f, rate, p)
	}
}

func (l listeners) Chunk() {
	for _, x := range l {
		x.Chunk()
	}
}

func (l listeners) End(r *timeline.Record) {
	for _, x := range l {
		x.End(r)
	}
}
