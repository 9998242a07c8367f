package join

import (
	"cmp"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// Ask is what the relay knows of a request that it wants the stages of.
type Ask struct {
	// RequestID is the client's or the inserted X-Request-Id, ServerRequestID the id in
	// the server's answer. Either may be empty: an id of our own is no id of the server.
	RequestID, ServerRequestID string
	// Flow and Dialect are the record's.
	Flow, Dialect string
	// Points are CLOCK_MONOTONIC nanoseconds, as the stages' events.
	Points timeline.Points
	// CancelNS is when the client left or cancelled, 0 if it did not.
	CancelNS int64
}

// AskOf is what a record knows.
func AskOf(r *timeline.Record) Ask {
	a := Ask{Flow: r.Flow, Dialect: r.Dialect, Points: r.Points}
	if r.RequestIDSource != "own" {
		a.RequestID = r.RequestID
	}
	if r.ServerRequestID != nil {
		a.ServerRequestID = *r.ServerRequestID
	}
	switch {
	case r.Cancel != nil:
		a.CancelNS = r.Cancel.AtNS
	case r.Terminal.State == timeline.ClientCancelled && r.Points.TClose != nil:
		a.CancelNS = cmp.Or(deref(r.Points.TTerm), *r.Points.TClose)
	}
	return a
}

func deref(p *int64) int64 {
	if p == nil {
		return 0
	}
	return *p
}

// from and to are the time within which the stages must have been asked. The request
// was not whole before its last byte came in; t_up is when the write to the server had
// returned, and on a busy machine the server has worked for milliseconds by then.
func (a *Ask) from() int64 {
	return cmp.Or(deref(a.Points.TBody), deref(a.Points.TIn), deref(a.Points.TUp))
}

func (a *Ask) to() int64 {
	end := max(deref(a.Points.TTerm), deref(a.Points.TClose), a.CancelNS)
	if end == 0 {
		return Everything
	}
	return end
}

// early is how much the stages may seem to be asked before the last byte was sent:
// the stamps of t_up are taken when the write returned.
const early = 5_000_000

// sent is a request that the relay sent to the server and that may have no id.
type sent struct {
	kind string
	at   int64
	// end is when it was over, 0 while it is not; matched says that its work is known.
	end     int64
	matched bool
}

// Sent says that the relay has sent a request of a flow to the server, at its t_up.
// It must be called before that request is asked for, for every request of the flow:
// one without an id is matched by time only where no other could be meant.
func (j *Joiner) Sent(flow string, tUp int64) {
	j.sent.add(sent{kind: kindOf(flow), at: tUp})
}

// kindOf is the beginning of the engine's ids of a flow.
func kindOf(flow string) string {
	switch flow {
	case "speech", "speech_batch", "speech_ws":
		return "speech-"
	case "realtime", "duplex", "video_chat":
		return "rt-ws-"
	case "chat":
		return "chatcmpl-"
	case "completion":
		return "cmpl-"
	}
	return ""
}

// found is a request of the stages, how it was found, or why none was.
type found struct {
	r          *request
	match      string
	confidence float64
	why        string
}

// match finds the request that an Ask is about.
func (j *Joiner) match(a *Ask) found {
	f := j.byIDs(a)
	if f.r == nil && f.why == "" {
		f = j.byWindow(a)
	}
	if f.r != nil {
		f.r.taken = a.from()
	}
	kind, at := kindOf(a.Flow), deref(a.Points.TUp)
	for i := range j.sent.len() {
		if s := j.sent.at(i); s.at == at && s.kind == kind {
			s.matched, s.end = f.r != nil, a.to()
		}
	}
	return f
}

// byIDs looks for the server's id and for the client's: vLLM makes chatcmpl-X of X,
// SGLang-Omni tells its X as chatcmpl-X.
func (j *Joiner) byIDs(a *Ask) found {
	var ids []string
	if id := a.ServerRequestID; id != "" {
		ids = append(ids, id)
		if bare, ok := strings.CutPrefix(id, "chatcmpl-"); ok && bare != "" {
			ids = append(ids, bare)
		}
	}
	if id := a.RequestID; id != "" {
		ids = append(ids, "chatcmpl-"+id, id)
	}
	for _, id := range ids {
		list := slices.DeleteFunc(slices.Clone(j.requests.named(id)), func(r *request) bool {
			at := cmp.Or(r.added, r.first)
			return a.from() > 0 && (at < a.from()-early || at > a.to())
		})
		if len(list) > 1 {
			list = slices.DeleteFunc(list, func(r *request) bool { return !r.free(a) || !r.fits(a) })
		}
		switch len(list) {
		case 0:
		case 1:
			return found{r: list[0], match: ByID, confidence: Certain}
		default:
			return found{why: "the id was in use by several requests at once"}
		}
	}
	return found{}
}

// byWindow looks for the work of the stages that was asked for after t_up, and that
// must be this request's.
func (j *Joiner) byWindow(a *Ask) found {
	kind, up := kindOf(a.Flow), deref(a.Points.TUp)
	switch {
	case up == 0:
		return found{why: "no request of the stages has its id, and t_up is not known"}
	case kind == "":
		return found{why: "no request of the stages has its id, and none can be told by time in this flow"}
	}
	if a.ServerRequestID != "" && kind != "rt-ws-" {
		return found{why: "no request of the stages has its id"}
	}
	o := j.owners(kind, a)
	if len(o.edges[0]) == 0 {
		return found{why: "the stages were asked for nothing of this flow in its time"}
	}
	if r := o.forced(); r != nil {
		return found{r: r, match: ByWindow, confidence: Alone}
	}
	return found{why: "two requests in flight could own the same work of the stages"}
}

// free says whether no other request of the relay has it.
func (r *request) free(a *Ask) bool { return r.taken == 0 || r.taken == a.from() }

// fits says whether a request's answers lie where the client had its audio and end.
func (r *request) fits(a *Ask) bool {
	s := r.lastStage()
	if s == nil {
		return true
	}
	o := s.firstPayload()
	if t := deref(a.Points.TAudio); t > 0 && o != nil && o.sent > t {
		return false
	}
	if t := deref(a.Points.TTerm); t > 0 && a.CancelNS == 0 && s.finished > t {
		return false
	}
	return true
}

// lastStage is the stage whose answers the client hears: the one of the highest
// number, or, without numbers, the last that answered with more than text.
func (r *request) lastStage() *stage {
	var last *stage
	for _, s := range r.stages {
		if len(s.outputs) == 0 {
			continue
		}
		if last == nil || s.id > last.id || s.id == last.id && s.speaks() && !last.speaks() {
			last = s
		}
	}
	return last
}

// speaks says whether a stage answered with more than text.
func (s *stage) speaks() bool { o := s.firstPayload(); return o != nil && o.payload }

// firstPayload is the first output with more than text, else the first output.
func (s *stage) firstPayload() *output {
	for i := range s.outputs {
		if s.outputs[i].payload {
			return &s.outputs[i]
		}
	}
	if len(s.outputs) > 0 {
		return &s.outputs[0]
	}
	return nil
}
