package verify

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/omnitap/omnitap/exporter/rundir"
)

// judge holds one record to the events of its request.
type judge struct {
	v    *verifier
	rec  *record
	line int
	g    *group

	at    [nPoints]*event // the event of each point, nil for none
	term  *event          // the terminal event with the state
	text  []*event        // text chunks, in order of their numbers
	sound []*event        // audio chunks
	wrote []*event        // writes to the client
	limit *event          // the deadline that passed
	cut   *event          // the turn was asked to stop
	stage []*event        // of the stages

	heard, framed [2]*event // the first and the last: sample frame heard, sound read
	resets        []*event  // what took back the text so far
	reason        []*event  // deltas of reasoning
	empty         []*event  // audio events without sound
	waits         []*event  // writes to the client that completed no chunk
	also          []*event  // other moments for t_in
	asks          []*event  // messages that asked for the turn
	taken         []*event  // the client's sound that the turn was given
	stalls        []*event
}

// judge compares a record with its events, g, which is nil where there are none.
func (v *verifier) judge(r *record, line int, g *group) {
	j := &judge{v: v, rec: r, line: line, g: g}
	v.turn(r, line)
	j.conserve()
	j.qualityOf()
	switch {
	case g == nil && v.res.Counts.Events == 0:
		return // told once, for all
	case g == nil:
		j.say(KindOrphan, "", "no event of it is in %s", rundir.EventsFile)
		return
	case g.mixed:
		v.lacks("all of the request", "another request of the same id was open at the same time, and events do not tell which of the two they are of")
		return
	}
	j.sort()
	j.identity()
	j.points()
	j.latencies()
	j.texts()
	j.writes()
	j.sounds()
	if j.whole() {
		j.alternatives()
		j.reasoning()
		j.clientWait()
		j.input()
		j.flags()
	}
	j.state()
	j.cutOff()
	if j.whole() {
		all, works := j.handovers(), j.works()
		j.stages(works, all)
		j.numberedTransfers(all)
		j.quiesce(works, all)
	} else {
		j.stages(nil, nil)
		j.transfers()
	}
	j.path()
}

// whole reports whether events tell all measurements, and not points and chunks alone.
func (j *judge) whole() bool { return j.v.meta.EventForm >= wordsForm }

// say adds an error about the record.
func (j *judge) say(kind Kind, field, format string, a ...any) {
	j.v.res.add(Finding{
		Level: Error, Kind: kind, File: rundir.RequestsFile, Line: j.line, RequestID: j.rec.RequestID, Field: field, Text: fmt.Sprintf(format, a...),
	})
}

// sayAt adds an error about an event.
func (j *judge) sayAt(e *event, kind Kind, format string, a ...any) {
	j.v.res.add(Finding{
		Level: Error, Kind: kind, File: rundir.EventsFile, Line: int(e.line), RequestID: j.rec.RequestID, Text: fmt.Sprintf(format, a...),
	})
}

// sort puts the events where they belong, and tells of those that are there twice.
func (j *judge) sort() {
	for i := range j.g.events {
		switch e := &j.g.events[i]; e.kind {
		case textChunk:
			j.text = append(j.text, e)
		case outputChunk:
			j.sound = append(j.sound, e)
		case clientWrite:
			j.wrote = append(j.wrote, e)
		case deadline:
			j.limit = e
		case audioStall:
			j.stalls = append(j.stalls, e)
		case terminal:
			j.terminal(e)
		case ingress, requestBodyEnd, upstreamSent, responseHeaders, firstText, firstAudioEvent, firstAudio, firstAudible, closed:
			j.once(&j.at[e.kind-ingress], e)
		default:
			j.sortMore(e)
		}
	}
	j.numbered(&j.text, "text_chunk")
	j.numbered(&j.sound, "output_chunk")
	j.numbered(&j.reason, "reasoning_chunk")
	j.numbered(&j.empty, "empty_audio")
}

// sortMore puts an event where it belongs that is no point, chunk, or limit.
func (j *judge) sortMore(e *event) {
	switch e.kind {
	case textReset:
		j.resets = append(j.resets, e)
	case reasoningChunk:
		j.reason = append(j.reason, e)
	case emptyAudio:
		j.empty = append(j.empty, e)
	case clientWait:
		j.waits = append(j.waits, e)
	case alternative:
		j.also = append(j.also, e)
	case requestMessage:
		j.asks = append(j.asks, e)
	case inputTaken:
		j.taken = append(j.taken, e)
	case heardFirst, heardLast:
		j.once(&j.heard[e.kind-heardFirst], e)
	case firstSound, lastSound:
		j.once(&j.framed[e.kind-firstSound], e)
	default:
		if e.kind == cancel && e.stage == 0 {
			j.cut = e
			return
		}
		j.stage = append(j.stage, e)
	}
}

// once takes an event that a request has one of.
func (j *judge) once(p **event, e *event) {
	if *p != nil {
		j.sayAt(e, KindOrder, "a second %s, the first is line %d", words[e.kind], (*p).line)
		return
	}
	*p = e
}

// terminal takes a terminal event: the one without a state is the end marker's, at
// its moment, and the one with it is the record's.
func (j *judge) terminal(e *event) {
	if e.status == 0 {
		if j.at[terminal-ingress] == nil {
			j.at[terminal-ingress] = e
		}
		return
	}
	if m := j.at[terminal-ingress]; m != nil && (m.mono != e.mono || m.off != e.off) {
		j.sayAt(e, KindValue, "the end is at %d ns, byte %d, its marker (line %d) at %d ns, byte %d", e.mono, e.off, m.line, m.mono, m.off)
	}
	j.term, j.at[terminal-ingress] = e, e
}

// numbered wants chunks with the numbers from 0 on, in order, and puts them in order.
func (j *judge) numbered(list *[]*event, what string) {
	ordered := true
	for i := 1; i < len(*list) && ordered; i++ {
		if a, b := (*list)[i-1], (*list)[i]; b.chunk < a.chunk {
			ordered = false
			j.sayAt(b, KindOrder, "%s %d comes behind %d (line %d): lines were moved", what, b.chunk, a.chunk, a.line)
		}
	}
	if !ordered {
		slices.SortStableFunc(*list, func(a, b *event) int { return int(a.chunk - b.chunk) })
	}
	for i, e := range *list {
		switch {
		case e.chunk == int64(i):
			continue
		case e.chunk < int64(i):
			j.sayAt(e, KindOrder, "%s %d is there twice", what, e.chunk)
		default:
			j.sayAt(e, KindOrder, "%s %d is missing ahead of it", what, i)
		}
		return
	}
}

// identity holds the names that events carry to the record's.
func (j *judge) identity() {
	session := ""
	if j.rec.SessionID != nil {
		session = *j.rec.SessionID
	}
	for i := range j.g.events {
		e := &j.g.events[i]
		if int64(e.attempt) != j.rec.Attempt {
			j.sayAt(e, KindValue, "attempt %d, the record has %d", e.attempt, j.rec.Attempt)
			return
		}
		if got := j.v.names.text(e.session); got != session {
			j.sayAt(e, KindValue, "session_id %q, the record has %q", clip(got), clip(session))
			return
		}
	}
}

func (j *judge) differs(field string, recorded, derived any, tolerance string) {
	j.v.res.add(Finding{
		Level: Error, Kind: KindValue, File: rundir.RequestsFile, Line: j.line, RequestID: j.rec.RequestID, Field: field,
		Recorded: recorded, Derived: derived, Tolerance: tolerance,
		Text: fmt.Sprintf("%s in the record, %s from the events (%s)", shown(recorded), shown(derived), tolerance),
	})
}

func shown(v any) string {
	switch t := v.(type) {
	case nil:
		return "null"
	case float64:
		return strconv.FormatFloat(t, 'g', -1, 64)
	case string:
		return strconv.Quote(clip(t))
	default:
		return fmt.Sprint(t)
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// exact is the tolerance of what is counted, named or true.
const exact = "exact"

// int compares an integer, nil for null.
func (j *judge) int(field string, recorded, derived *int64) {
	j.v.res.Compared[field]++
	if (recorded == nil) != (derived == nil) || recorded != nil && *recorded != *derived {
		j.differs(field, value(recorded), value(derived), exact)
	}
}

// count compares an integer that is never null.
func (j *judge) count(field string, recorded, derived int64) { j.int(field, &recorded, &derived) }

func (j *judge) word(field, recorded, derived string) {
	j.v.res.Compared[field]++
	if recorded != derived {
		j.differs(field, recorded, derived, exact)
	}
}

func (j *judge) bool(field string, recorded, derived bool) {
	j.v.res.Compared[field]++
	if recorded != derived {
		j.differs(field, recorded, derived, exact)
	}
}

// value is what a pointer points to, nil for nil.
func value[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

// tolerance says how far two floats may lie apart.
type tolerance struct {
	relative, absolute float64
	text               string
}

var (
	// rounded is of one formula of a few steps: what doubles lose.
	rounded = tolerance{1e-9, 1e-12, "1e-9 of it"}
	// summed is of times that are added up chunk by chunk: a nanosecond.
	summed = tolerance{1e-9, 1e-6, "1e-9 of it, or 1 ns"}
	// single is of what went through single precision.
	single = tolerance{3e-7, 1e-6, "3e-7 of it: single precision"}
)

// near reports whether two floats are the same but for rounding.
func (t tolerance) near(a, b float64) bool {
	return math.Abs(a-b) <= max(t.absolute, t.relative*max(math.Abs(a), math.Abs(b)))
}

// float compares a float, nil for null.
func (j *judge) float(field string, recorded, derived *float64, t tolerance) {
	j.v.res.Compared[field]++
	if (recorded == nil) != (derived == nil) || recorded != nil && !t.near(*recorded, *derived) {
		j.differs(field, value(recorded), value(derived), t.text)
	}
}

// number compares a float that is never null.
func (j *judge) number(field string, recorded, derived float64, t tolerance) {
	j.float(field, &recorded, &derived, t)
}

// between compares a float that the events tell the bounds of alone.
func (j *judge) between(field string, recorded, low, high float64) {
	j.v.res.Compared[field]++
	if low > high {
		low, high = high, low
	}
	if recorded < low-summed.absolute || recorded > high+summed.absolute {
		j.differs(field, recorded, fmt.Sprintf("%v to %v", low, high), "between the two")
	}
}
