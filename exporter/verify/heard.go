package verify

// audible reckons how long something is heard, from the sample frames that begin and
// end it, and RTF over that. Older events do not tell them: then RTF alone is held, to
// the record's own audible_s.
func (j *judge) audible(audioS *float64) {
	r := j.rec
	var heard *float64
	if j.whole() {
		heard = j.heardS()
		j.float("audible_s", r.AudibleS, heard, rounded)
	} else if heard = r.AudibleS; heard == nil {
		return
	}
	if heard != nil && audioS != nil && !rounded.near(*heard, *audioS) && *heard > *audioS {
		j.say(KindConservation, "audible_s", "%v s are heard of %v s", *heard, *audioS)
	}
	var rtf *float64
	if jct := j.since(pTerm); jct != nil && *jct > 0 && heard != nil && *heard > 0 {
		rtf = new(*jct / 1e3 / *heard)
	}
	if j.at[pTerm] != nil {
		j.float("rtf_audible", r.RTFAudible, rtf, rounded)
	}
}

// heardS is how long something is heard, in seconds, nil for never. The chunks that the
// two events name must hold their sample frames.
func (j *judge) heardS() *float64 {
	first, last := j.heard[0], j.heard[1]
	if first == nil || last == nil || first.rate <= 0 {
		for _, e := range j.heard {
			if e != nil {
				j.sayAt(e, KindOrder, "%s without the other end of what is heard", words[e.kind])
			}
		}
		return nil
	}
	if last.rate != first.rate || last.samples < first.samples {
		j.sayAt(last, KindValue, "what is heard ends with frame %d at %d Hz and begins with frame %d at %d Hz", last.samples, last.rate, first.samples, first.rate)
	}
	for _, e := range j.heard {
		if e.chunk != absent && !j.holds(e) {
			j.sayAt(e, KindValue, "sample frame %d does not lie in chunk %d, or that did not come at %d ns", e.samples, e.chunk, e.mono)
		}
	}
	return new(float64(last.samples-first.samples+1) / float64(first.rate))
}

// holds reports whether an event's sample frame lies in its chunk, and its moment is the
// chunk's.
func (j *judge) holds(e *event) bool {
	before := int64(0)
	for _, c := range j.sound {
		if c.chunk == e.chunk {
			return c.mono == e.mono && before < e.samples && e.samples <= before+max(c.samples, 0)
		}
		before += max(c.samples, 0)
	}
	return false
}
