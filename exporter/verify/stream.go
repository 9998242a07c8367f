package verify

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/omnitap/omnitap/exporter/rundir"
)

// lookahead is how many events are read ahead for the end of one request. A record
// follows its events closely in time; beyond this it waits until they come.
const lookahead = 1 << 17

// pending is a record that waits for its events.
type pending struct {
	rec  *record
	line int
}

// readRecords goes through requests.jsonl, and with it through the events and the
// lines of quality.
func (v *verifier) readRecords() {
	v.events = v.open(rundir.EventsFile, true)
	v.quality.lines = v.open(rundir.QualityFile, false)
	if l := v.open(rundir.RequestsFile, true); l != nil {
		defer l.close()
		for line := v.next(l); line != nil; line = v.next(l) {
			v.record(l, line)
		}
	}
	for v.events != nil {
		v.pull()
	}
	if v.res.Counts.Events == 0 && v.res.Counts.Requests > 0 {
		v.say(Error, KindLost, rundir.EventsFile, 0, "it holds no event: nothing of %s can be derived", plural(v.res.Counts.Requests, "request"))
	}
	for _, id := range slices.Sorted(maps.Keys(v.waiting)) {
		for _, p := range v.waiting[id] {
			v.judge(p.rec, p.line, v.groups.take(id, began(p.rec), false))
		}
	}
	v.quality.rest(v)
}

// record takes one line of requests.jsonl.
func (v *verifier) record(l *lines, line []byte) {
	if !v.fits(v.requests, l, line) {
		return
	}
	r := &record{}
	if err := json.Unmarshal(line, r); err != nil {
		v.say(Error, KindSchema, l.name, l.n, "%v", err)
		return
	}
	v.res.Counts.Requests++
	v.res.Counts.States[r.Terminal.State]++
	v.run(l.name, l.n, r.RunID)
	if before := v.unique(r.RequestID, r.Attempt, l.n); before > 0 {
		v.res.add(Finding{
			Level: Error, Kind: KindConservation, File: l.name, Line: l.n, RequestID: r.RequestID,
			Text: "the id, and the attempt, are those of line " + itoa(int64(before)) + ": it is not unique",
		})
	}
	if g := v.ended(r); g != nil {
		v.judge(r, l.n, g)
		v.groups.free(g)
		return
	}
	v.waiting[r.RequestID] = append(v.waiting[r.RequestID], &pending{r, l.n})
}

// began is when a request began by its record, absent for one that nothing asked for.
func began(r *record) int64 {
	if r.Points.TIn == nil {
		return absent
	}
	return *r.Points.TIn
}

// ended reads events until those of a request are whole; nil if they do not come.
func (v *verifier) ended(r *record) *group {
	if g := v.groups.take(r.RequestID, began(r), true); g != nil {
		return g
	}
	for range lookahead {
		if v.events == nil {
			return nil
		}
		if g := v.pull(); g != nil && g.id == r.RequestID {
			return v.groups.take(r.RequestID, began(r), true)
		}
	}
	return nil
}

// form tells of events that are newer than the run says they are: whoever takes its
// word for it passes over what they tell.
func (v *verifier) form(e *event) {
	if e.kind < heardFirst || v.meta.EventForm >= wordsForm || v.newer {
		return
	}
	v.newer = true
	if v.meta.read {
		v.say(Error, KindConservation, rundir.EventsFile, int(e.line), "%s is of event_form %d, %s says %d", words[e.kind], wordsForm, rundir.MetadataFile, v.meta.EventForm)
	}
}

// pull reads one event. It returns the request that ended with it, unless a record
// waited for that.
func (v *verifier) pull() *group {
	line := v.next(v.events)
	if line == nil {
		v.events.close()
		v.events = nil
		return nil
	}
	var e event
	if err := v.parser.parse(line, &e); err != nil {
		v.say(Error, KindSchema, v.events.name, v.events.n, "%v", err)
		return nil
	}
	v.res.Counts.Events++
	e.line = int32(v.events.n)
	if run := v.parser.text(mRun); string(run) != v.meta.RunID {
		v.run(v.events.name, v.events.n, string(run))
	}
	v.form(&e)
	if e.kind == inputChunk {
		v.said(&e)
		return nil
	}
	g := v.groups.add(v.parser.text(mRequest), &e)
	if !g.ended {
		return nil
	}
	if v.release(g) {
		return nil
	}
	return g
}

// release judges a record that waited for these events, if there is one.
func (v *verifier) release(g *group) bool {
	list := v.waiting[g.id]
	for i, p := range list {
		if !g.fits(began(p.rec)) {
			continue
		}
		if len(list) == 1 {
			delete(v.waiting, g.id)
		} else {
			v.waiting[g.id] = append(list[:i:i], list[i+1:]...)
		}
		g = v.groups.take(g.id, g.began, true)
		v.judge(p.rec, p.line, g)
		v.groups.free(g)
		return true
	}
	return false
}
