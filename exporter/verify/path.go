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
		j.border(gap, begin, transferEnd, edge)
	}
	switch edge, what, _ := cutLast(last); {
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

// cutLast cuts a name at its last point; what has no point is all what.
func cutLast(s string) (before, what string, ok bool) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+1:], true
}

// border wants an event of a kind at a moment: of a stage, or of a transfer written
// FROM->TO, empty for any.
func (j *judge) border(gap string, mono int64, k kind, of string) {
	j.v.res.Compared["critical_path[].ms"]++
	if k == upstreamSent {
		if e := j.at[pUp]; e == nil || e.mono != mono {
			j.say(KindValue, "critical_path", "%s ends at %d ns, and upstream_sent is not there", clip(gap), mono)
		}
		return
	}
	from, to, transfer := strings.Cut(of, "->")
	if transfer && k == received {
		from, to = to, from
	}
	n := j.v.names
	fits := func(e *event) bool {
		return e.kind == k && e.mono == mono && (of == "" || n.text(e.stage) == from && (!transfer || n.text(e.peer) == to))
	}
	if !slices.ContainsFunc(j.stage, fits) {
		j.say(KindValue, "critical_path", "a border of %s is at %d ns, and no %s event of %s is there", clip(gap), mono, words[k], clip(of))
	}
}
