package telemetry

import (
	"slices"
	"strconv"

	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// children builds the spans of a record's stages and edges.
func (b *builder) children(r *timeline.Record) {
	ways := edges(r.Transfers)
	n := min(len(r.Stages)+len(ways), maxChildren)
	b.done, b.leaves = make(tree, 0, n+1), make([]outgoing, 0, n)
	for i := range r.Stages {
		b.stage(&r.Stages[i])
	}
	for i := range ways {
		b.edge(&ways[i])
	}
}

// full reports whether a request has all the children that it may have.
func (b *builder) full() bool {
	if len(b.done) < maxChildren {
		return false
	}
	b.omitted++
	return true
}

func (b *builder) stage(t *timeline.Stage) {
	if t.StartNS == nil || t.FinishNS == nil {
		for _, end := range [...]struct {
			name string
			at   *int64
		}{{"start_ns", t.StartNS}, {"finish_ns", t.FinishNS}} {
			if end.at == nil {
				b.unknown = append(b.unknown, "stage "+clip(t.Stage)+" "+end.name+": "+clip(t.Unmeasured[end.name]))
			}
		}
		return
	}
	if b.full() {
		return
	}
	s := borrow()
	s.text(keyStage, t.Stage)
	*s = append(*s, semconv.ProcessPIDKey.Int(t.PID), keyConfidence.Float64(t.Confidence))
	s.text(keyMatch, t.Match)
	s.seconds(keyWait, t.WaitMS)
	s.seconds(keyQueue, t.QueueMS)
	s.seconds(keyCPU, t.CPUMS)
	s.seconds(keyRunq, t.RunqMS)
	s.integer(keySteps, t.Steps)
	if t.Batch != nil {
		s.float(keyBatch, &t.Batch.Mean)
	}
	var why []string
	for _, name := range [...]string{"wait_ms", "queue_ms", "cpu_ms", "runq_ms"} {
		if reason := t.Unmeasured[name]; reason != "" {
			why = append(why, name+": "+clip(reason))
		}
	}
	if len(why) > 0 {
		*s = append(*s, keyUnmeasured.StringSlice(why))
	}
	b.child("stage "+clip(t.Stage), *t.StartNS, *t.FinishNS, s)
}

// edge is all hand-overs of a request between two stages on one way.
type edge struct {
	from, to, transport, match string
	// start is that of the first, end the latest known; 0 where none is.
	start, end int64
	// n is how many there were, ended how many of them have an end, unread how many were
	// never received, stated how many state their bytes.
	n, ended, unread, stated int
	bytes, sum, longest      int64
	confidence               float64
}

// edges gathers hand-overs: of a stream there is one a chunk.
func edges(transfers []timeline.Transfer) (out []edge) {
	for i := range transfers {
		t := &transfers[i]
		at := slices.IndexFunc(out, func(e edge) bool { return e.from == t.From && e.to == t.To && e.transport == t.Transport })
		if at < 0 {
			at = len(out)
			out = append(out, edge{from: t.From, to: t.To, transport: t.Transport, match: t.Match, start: t.StartNS, confidence: t.Confidence})
		}
		out[at].add(t)
	}
	return out
}

func (e *edge) add(t *timeline.Transfer) {
	e.n++
	e.start = min(e.start, t.StartNS)
	e.confidence = min(e.confidence, t.Confidence)
	if t.Unread {
		e.unread++
	}
	if t.Bytes != nil {
		e.stated++
		e.bytes += *t.Bytes
	}
	if t.EndNS != nil {
		took := *t.EndNS - t.StartNS
		e.ended++
		e.end = max(e.end, *t.EndNS)
		e.sum += took
		e.longest = max(e.longest, took)
	}
}

// name is as metrics have it.
func (e *edge) name() string { return e.from + "→" + e.to }

func (b *builder) edge(e *edge) {
	if e.ended == 0 {
		b.unknown = append(b.unknown, "transfer "+clip(e.name())+": no end was seen")
		return
	}
	if b.full() {
		return
	}
	s := borrow()
	s.text(keyEdge, e.name())
	s.text(keyTransport, e.transport)
	s.text(keyMatch, e.match)
	*s = append(*s, keyConfidence.Float64(e.confidence), keyTransfers.Int(e.n),
		keyBusy.Float64(float64(e.sum)/1e9), keyLongest.Float64(float64(e.longest)/1e9))
	var why []string
	if e.stated > 0 {
		*s = append(*s, keyBytes.Int64(e.bytes))
	}
	if e.stated < e.n {
		why = append(why, "bytes: not stated by "+strconv.Itoa(e.n-e.stated))
	}
	if e.unread > 0 {
		*s = append(*s, keyUnread.Int(e.unread))
	}
	if e.ended < e.n {
		why = append(why, "ends: not seen of "+strconv.Itoa(e.n-e.ended))
	}
	if len(why) > 0 {
		*s = append(*s, keyUnmeasured.StringSlice(why))
	}
	b.child("transfer "+clip(e.from)+" → "+clip(e.to), e.start, e.end, s)
}
