package reconcile

import (
	"fmt"
	"math"

	"github.com/omnitap/omnitap/exporter/stats"
	"github.com/omnitap/omnitap/exporter/upstream"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// matchPart is by how much of a difference what explains it may miss it.
const matchPart = 0.1

// serverMeans explains the mean of a duration that the server has over the whole run. It
// always counts from behind t_in, so it is smaller than the wire's where both are over the
// same requests.
func (w *world) serverMeans(d duration, row Row) {
	f := w.server[d.server]
	instant := d.instant
	if d.counted != nil {
		instant = d.counted
	}
	values := since(w.records, instant)
	if f.resets > 0 {
		w.restarted(d.quantity)
		return
	}
	w.emptyAudio(d, row)
	if w.tokensWithoutText(d, deref(row.Server.N), len(values)); len(values) == 0 {
		return
	}
	wire := stats.Mean(values)
	left := *row.Server.Mean - wire
	if math.Abs(left) <= w.tolerance(wire) {
		return
	}
	if deref(row.Server.N) != len(values) {
		w.find(Finding{Quantity: d.quantity, A: Server, B: Wire, Cause: NotExplained, Amount: &left, N: deref(row.Server.N), Evidence: fmt.Sprintf("its mean is over %d requests, the wire's over %d: not the same ones", deref(row.Server.N), len(values))})
		return
	}
	ahead, n, what := zeroBound(f.meaning.Zero, w.records)
	hit := math.Max(w.in.Tolerance, matchPart*math.Abs(left)) // of what is to be explained, not of the mean
	switch {
	case left > 0:
		w.find(Finding{Quantity: d.quantity, A: Server, B: Wire, Cause: NotExplained, Amount: &left, N: len(values), Evidence: "its clock starts behind t_in, and its mean is longer"})
	case n == len(values) && math.Abs(-left-ahead) <= hit:
		w.find(Finding{Quantity: d.quantity, A: Server, B: Wire, Cause: QueueAhead, Amount: &left, N: n, Evidence: fmt.Sprintf("it counts from %s; %s is %.1f ms on the mean", f.meaning.Zero, what, ahead)})
	case n == len(values) && f.meaning.Zero == upstream.ZeroScheduler && ahead < -left:
		w.find(Finding{Quantity: d.quantity, A: Server, B: Wire, Cause: QueueAhead, Amount: new(-ahead), N: n, Evidence: fmt.Sprintf("it counts from %s; %s is %.1f ms on the mean", f.meaning.Zero, what, ahead)})
		w.find(Finding{Quantity: d.quantity, A: Server, B: Wire, Cause: NotExplained, Amount: new(left + ahead), N: n, Evidence: "what is left of it"})
	default:
		evidence := fmt.Sprintf("it counts from %s to %s", f.meaning.Zero, f.meaning.End)
		if n > 0 {
			evidence += fmt.Sprintf("; at most %.1f ms of it lie ahead of its zero point (%s, %d requests)", ahead, what, n)
		}
		w.find(Finding{Quantity: d.quantity, A: Server, B: Wire, Cause: NotExplained, Amount: &left, N: len(values), Evidence: evidence})
	}
}

// tokensWithoutText tells of requests in which the server has a first token and the wire no
// text: its tokens gave none.
func (w *world) tokensWithoutText(d duration, server, wire int) {
	if d.quantity != TTFT || server <= wire {
		if wire == 0 {
			w.find(Finding{Quantity: d.quantity, A: Server, B: Wire, Cause: NotExplained, N: server, Evidence: "no request on the wire has reached it"})
		}
		return
	}
	f := Finding{Quantity: d.quantity, A: Server, B: Wire, Cause: EmptyEventAsToken, N: server - wire, Evidence: fmt.Sprintf("it has a first token in %d requests, of the %d on the wire %d have text", server, len(w.records), wire)}
	for _, r := range w.records {
		if r.Points.TText == nil && r.Reasoning != nil {
			f.Cause, f.Evidence = ReasoningAsToken, f.Evidence+"; others have reasoning"
		}
	}
	if server > len(w.records) {
		f.Cause = NotExplained
	}
	w.find(f)
}

// emptyAudio tells what the server's audio event is less than audio that can be played.
func (w *world) emptyAudio(d duration, row Row) {
	if d.counted == nil {
		return
	}
	n, sum, never := 0, 0.0, 0
	for _, r := range w.records {
		e, a := d.counted(r), d.instant(r)
		switch {
		case e == nil:
		case a == nil:
			never++
		case *a-*e > slack:
			n++
			sum += ms(*e - *a)
		}
	}
	if never > 0 && deref(row.Server.N) == len(since(w.records, d.counted)) {
		w.find(Finding{Quantity: d.quantity, A: Server, B: Wire, Cause: EmptyAudioAsAudio, N: never, Evidence: fmt.Sprintf("%d requests have an audio event and nothing that can be played; the server counts them", never)})
	}
	if n > 0 {
		mean := sum / float64(len(since(w.records, d.instant)))
		w.find(Finding{Quantity: d.quantity, A: Server, B: Wire, Cause: EmptyAudioAsAudio, Amount: &mean, N: n, Evidence: "first audio event less first playable audio, mean on the wire"})
	}
}

// zeroBound is how far behind t_in a zero point lies at most, on the mean, and what says so:
// for a scheduler when the first stage's input lay ready, for the API process the answer's
// head, which these servers send before they generate.
func zeroBound(zero upstream.Zero, records []*timeline.Record) (mean float64, n int, what string) {
	what = "the time to the answer's head"
	if zero == upstream.ZeroScheduler {
		what = "the time until the first stage's input lay ready"
	}
	var values []float64
	for _, r := range records {
		t := r.Points.THdr
		if ready := firstReady(r); zero == upstream.ZeroScheduler || (ready != nil && t != nil && *ready < *t) {
			t = ready
		}
		if t != nil && r.Points.TIn != nil {
			values = append(values, ms(*t-*r.Points.TIn))
		}
	}
	if len(values) == 0 {
		return 0, 0, what
	}
	return stats.Mean(values), len(values), what
}

// firstReady is when the first stage's input lay ready.
func firstReady(r *timeline.Record) (first *int64) {
	for i := range r.Stages {
		if t := r.Stages[i].ReadyNS; t != nil && (first == nil || *t < *first) {
			first = t
		}
	}
	return first
}
