package main

import (
	"context"
	"sync"

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
	odd  string // why there is nothing to compare, empty where there is
	most int
}

// maxTake bounds the samples kept of one request: two minutes of two channels of
// 32 bits at 48 kHz; the comparison takes no more.
const maxTake = 120 * 48000 * 8

// listen is a timeline.Listen.
func (t *twins) listen(id string, q *timeline.Asked) timeline.Listener {
	if q == nil || !t.runner.Wants(id) {
		return nil
	}
	return &take{t: t, q: q, most: maxTake}
}

// Samples is part of timeline.Listener.
func (k *take) Samples(f audio.Format, rate int, p []byte) {
	switch {
	case k.odd != "":
	case len(k.sum.Samples) > 0 && (f != k.sum.Format || rate != k.sum.Rate):
		k.odd = "the format changes within the stream"
	case len(k.sum.Samples)+len(p) > k.most:
		k.odd = "the stream is too long to be kept"
	default:
		k.sum.Format, k.sum.Rate = f, rate
		k.sum.Samples = append(k.sum.Samples, p...)
	}
	if k.odd != "" {
		k.sum.Samples = nil
	}
}

// Chunk is part of timeline.Listener.
func (k *take) Chunk() {}

// End is part of timeline.Listener.
func (k *take) End(r *timeline.Record) {
	if r.Terminal.State != timeline.Success && r.Terminal.State != timeline.QualityFailed {
		return // what was cut short has no twin
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
		judge(r, k.findings(t.ctx))
		for i := range ends {
			ends[i].Status = timeline.Text(r.Terminal.State)
			t.next.Event(&ends[i])
		}
		t.next.Record(r)
	})
}

// findings sends the twin and compares.
func (k *take) findings(ctx context.Context) []waveform.Finding {
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
