package verify

import "slices"

// relayLagNS is how long the relay itself may take over a chunk.
const relayLagNS = 50_000_000

// flags holds those flags to the events that follow from them alone, or are excluded by
// them; burst_delivery and paced are reckoned with the sound. All others are what the
// wire told: after_terminal, missing_done and the like.
func (j *judge) flags() {
	r := j.rec
	if r.Flow == flowOpaque {
		return // a tunnel has none of these
	}
	has := func(name string) bool { return slices.Contains(r.Flags, name) }
	if r.ClientWaitMS != nil {
		j.bool("flags.relay_lag", has("relay_lag"), j.lagged())
		if limit := j.v.meta.slowClient; limit > 0 {
			j.bool("flags.client_slow", has("client_slow"), j.blocked() > limit*1e6)
		}
	}
	if j.term != nil {
		late := j.limit != nil && (j.term.mono > j.limit.mono || r.Terminal.Evidence.Aborted) && r.Terminal.seen() != pastDeadline
		j.bool("flags.deadline_passed", has("deadline_passed"), late)
	}
	if j.stalled() {
		j.bool("flags.audio_stall", has("audio_stall"), true)
	}
	if has("no_text") || slices.Contains(r.Modalities, "text") && len(j.text) == 0 && j.sounded() {
		j.bool("flags.no_text", has("no_text"), len(j.text) == 0)
	}
}

// lagged reports whether the relay held a chunk back by itself: what the client made it
// wait is told once for all chunks that one write took.
func (j *judge) lagged() bool {
	wait, at := int64(0), int64(absent)
	for _, e := range j.wrote {
		if e.mono != at {
			wait, at = max(e.wait, 0), e.mono
		}
		chunks := j.sound
		if j.v.names.text(e.status) == "text" {
			chunks = j.text
		}
		if e.chunk >= 0 && e.chunk < int64(len(chunks)) && e.mono-chunks[e.chunk].mono-wait > relayLagNS {
			return true
		}
	}
	return false
}

// stalled reports whether sound stayed away and came again, or never came again in a
// request that failed.
func (j *judge) stalled() bool {
	if len(j.stalls) == 0 {
		return false
	}
	if j.rec.Terminal.seen() != success {
		return true
	}
	again := func(e *event) bool { return e.mono > j.stalls[0].mono && e.samples > 0 }
	return slices.ContainsFunc(j.sound, again)
}

// sounded reports whether sound came, counted or not.
func (j *judge) sounded() bool {
	return slices.ContainsFunc(j.sound, func(e *event) bool { return e.samples != 0 })
}
