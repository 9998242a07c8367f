package verify

import (
	"math"
	"slices"
	"strings"
)

// path holds the critical path to t_audio − t_in, to the nanosecond, and the borders
// of its gaps to the events that stand there (contract section 6).
func (j *judge) path() {
	steps := j.rec.CriticalPath
	if len(steps) == 0 {
		return
	}
	in, audio := j.at[pIn], j.at[pAudio]
	if in == nil || audio == nil {
		j.say(KindConservation, "critical_path", "a way to first audio, without t_in or t_audio")
		return
	}
	sum, now := 0.0, in.mono
	for _, s := range steps {
		if s.MS < 0 || math.IsNaN(s.MS) {
			j.say(KindConservation, "critical_path", "%s: %v ms, a gap is not below 0", clip(s.Gap), s.MS)
		}
		begin := now
		now += ns(s.MS)
		sum += s.MS
		j.gapBorders(s.Gap, begin, now)
	}
	j.count("critical_path", now-in.mono, audio.mono-in.mono)
	if ttfa := j.rec.TTFAMS; ttfa != nil {
		j.number("critical_path (sum)", sum, *ttfa, summed)
	}
}

// gapBorders holds the beginning and the end of a gap to events. Gaps that became one
// are named by the first and the last of them.
func (j *judge) gapBorders(gap string, begin, end int64) {
	first, last, joined := strings.Cut(gap, "..")
	if !joined {
		last = first
	}
	if edge, ok := strings.CutSuffix(first, ".write"); ok {
		j.border(gap, begin, transferStart, edge)
	}
	if edge, ok := strings.CutSuffix(first, ".in_flight"); ok {
		j.anyBorder(gap, begin, edge, transferEnd, announced)
	}
	if j.whole() && j.newBorder(gap, last, end) {
		return
	}
	switch edge, what := cutLast(last); {
	case last == "relay":
		j.border(gap, end, upstreamSent, "")
	case last == "submit":
		j.border(gap, end, enqueue, "")
	case what == "queue":
		j.border(gap, end, batchFormed, edge)
	case what == "write":
		j.border(gap, end, transferEnd, edge)
	case what == "read":
		j.border(gap, end, received, edge)
	case last == "api_out": // the sum
	default:
		j.v.lacks("critical_path[].ms", "no event stands at the end of "+what)
	}
}

// newBorder holds the end of a gap to events that older runs do not have, and reports
// whether it is one of those gaps.
func (j *judge) newBorder(gap, last string, end int64) bool {
	edge, what := cutLast(last)
	switch what {
	case "api_in":
		j.border(gap, end, submitted, "")
	case "prefill":
		j.border(gap, end, firstOutput, edge)
	case "decode", "compute":
		j.anyBorder(gap, end, edge, firstOutput, firstPayload, transferStart, announced)
	case "forward":
		j.anyBorder(gap, end, "", transferStart, announced)
	case "in_flight":
		j.anyBorder(gap, end, edge, heard, receiveStart)
	case "return":
		j.border(gap, end, payloadReceived, edge)
	default:
		return false
	}
	return true
}

// cutLast cuts a name at its last point; what has no point is all what.
func cutLast(s string) (before, what string) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return "", s
	}
	return s[:i], s[i+1:]
}

// border wants an event of a kind at a moment: of a stage, or of a transfer written
// FROM->TO, empty for any.
func (j *judge) border(gap string, mono int64, k kind, of string) { j.anyBorder(gap, mono, of, k) }

// anyBorder wants an event of one of some kinds.
func (j *judge) anyBorder(gap string, mono int64, of string, ks ...kind) {
	j.v.res.Compared["critical_path[].ms"]++
	k := ks[0]
	if k == upstreamSent {
		if e := j.at[pUp]; e == nil || e.mono != mono {
			j.say(KindValue, "critical_path", "%s ends at %d ns, and upstream_sent is not there", clip(gap), mono)
		}
		return
	}
	from, to, transfer := strings.Cut(of, "->")
	if transfer && toReceiver(k) {
		from, to = to, from
	}
	n := j.v.names
	fits := func(e *event) bool {
		return slices.Contains(ks, e.kind) && e.mono == mono && (of == "" || n.text(e.stage) == from && (!transfer || n.text(e.peer) == to))
	}
	if !slices.ContainsFunc(j.stage, fits) {
		j.say(KindValue, "critical_path", "a border of %s is at %d ns, and no %s event of %s is there", clip(gap), mono, words[k], clip(of))
	}
}
