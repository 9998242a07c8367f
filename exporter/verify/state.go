package verify

import "slices"

// The states and phases that events bear on (contract section 5).
const (
	success       = "success"
	qualityFailed = "quality-failed"
	pastDeadline  = "deadline-exceeded"

	phaseBeforeHeaders = "before_headers"
	phaseNoContent     = "before_first_content"
)

// state holds the terminal state to the terminal event, and to what the other events
// allow.
func (j *judge) state() {
	r := j.rec
	if j.term == nil {
		return // told with the points
	}
	j.word("terminal.state", r.Terminal.State, j.v.names.text(j.term.status))
	if j.term.bytes == absent {
		j.v.lacks("bytes_down", "the terminal event carries no bytes")
	} else {
		j.count("bytes_down", r.BytesDown, j.term.bytes)
	}
	j.bytesUp()
	good := r.Terminal.State == success || r.Terminal.State == qualityFailed
	came := len(j.sound) + len(j.text)
	switch {
	case good && r.SessionID == nil && j.at[pHdr] == nil && r.Flow != flowOpaque:
		j.say(KindValue, "terminal.state", "%s without an answer", r.Terminal.State)
	case good && j.owesSound() && len(j.sound) == 0:
		j.say(KindValue, "terminal.state", "%s of a %s request without an audio chunk", r.Terminal.State, r.Flow)
	case r.Terminal.State == success && len(r.Quality.Failed) > 0:
		j.say(KindValue, "terminal.state", "success with failed checks on the sound: %v", r.Quality.Failed)
	case r.Terminal.State == qualityFailed && len(r.Quality.Failed) == 0:
		j.say(KindValue, "terminal.state", "quality-failed without a failed check")
	case r.Terminal.State == pastDeadline && r.Terminal.By == "relay" && j.limit == nil:
		j.say(KindOrder, "terminal.state", "the relay's deadline passed, and its deadline event is not there")
	}
	switch phase := r.Terminal.Phase; {
	case j.limit != nil && r.Terminal.State == pastDeadline && r.Terminal.By == "relay":
		j.word("terminal.phase", phase, j.v.names.text(j.limit.status))
	case (phase == phaseBeforeHeaders || phase == phaseNoContent) && came > 0:
		j.say(KindValue, "terminal.phase", "%s, with %d chunks", phase, came)
	}
}

// owesSound reports whether a success must hold sound: a whole request for speech
// that was answered with a body.
func (j *judge) owesSound() bool {
	r := j.rec
	return slices.Contains([]string{"speech", "speech_batch"}, r.Flow) && r.SessionID == nil &&
		r.Method != nil && *r.Method == "POST" && r.Status != nil && *r.Status == 200 && r.Analysis == "full"
}

// bytesUp holds the bytes of a request to the places of its first and its last byte.
func (j *judge) bytesUp() {
	in, body := j.at[pIn], j.at[pBody]
	switch {
	case j.rec.SessionID != nil && j.whole(): // with the turn's input
	case j.rec.SessionID != nil:
		j.v.lacks("bytes_up", "a turn's input is several messages, and no event tells their bytes")
	case in == nil || body == nil || in.off == absent || body.off == absent:
		j.v.lacks("bytes_up", "the request did not end")
	case j.rec.Flow == flowOpaque:
		j.v.lacks("bytes_up", "no event tells the bytes of a tunnel")
	default:
		j.count("bytes_up", j.rec.BytesUp, body.off-in.off+1)
	}
	if up := j.at[pUp]; up != nil && body != nil && up.off != body.off {
		j.sayAt(up, KindConservation, "%d bytes of the request were written to the server, %d came (line %d)", up.off, body.off, body.line)
	}
}

// cutOff bounds what came after a turn was asked to stop by what the events tell.
func (j *judge) cutOff() {
	c := j.rec.Cancel
	if c == nil {
		return
	}
	if j.cut == nil {
		j.v.lacks("cancel.at_ns", "no event tells when a turn was asked to stop")
	} else {
		j.count("cancel.at_ns", c.AtNS, j.cut.mono)
	}
	var least, most, leastSamples, mostSamples, last int64
	for _, e := range j.sound {
		last = max(last, e.mono)
		if e.mono < c.AtNS {
			continue
		}
		most++
		mostSamples += max(e.samples, 0)
		if e.mono > c.AtNS { // at the same moment: one read, in an order that stamps do not tell
			least++
			leastSamples += max(e.samples, 0)
		}
	}
	j.within("cancel.chunks_after", c.ChunksAfter, least, most)
	j.within("cancel.samples_after", c.SamplesAfter, leastSamples, mostSamples)
	var silence *float64
	if c.ChunksAfter > 0 {
		silence = new(float64(last-c.AtNS) / 1e6)
	}
	j.float("cancel.to_silence_ms", c.ToSilenceMS, silence, rounded)
}

// within compares an integer that the events tell the bounds of alone.
func (j *judge) within(field string, recorded, low, high int64) {
	j.v.res.Compared[field]++
	if recorded < low || recorded > high {
		j.differs(field, recorded, itoa(low)+" to "+itoa(high), "between the two")
	}
}
