package verify

import (
	"math"
	"slices"
)

// arrival is sound that came at one moment, in milliseconds since playing could begin.
type arrival struct{ ms, seconds float64 }

// player plays sound in real time from prebuffer milliseconds on; a stall moves the
// rest (contract section 3). The first arrival is there when it begins. slack is how
// late sound may be without a stall, in milliseconds.
func player(in []arrival, prebuffer, slack float64) (underruns int64, stall, longest float64) {
	empty := prebuffer // when all that is there will have been played
	for i, a := range in {
		if late := a.ms - empty; i > 0 && late > slack {
			underruns++
			stall += late
			longest = max(longest, late)
			empty = a.ms
		}
		empty += 1e3 * a.seconds
	}
	return underruns, stall, longest
}

// prebuffer is the least head start without a stall.
func prebuffer(in []arrival) float64 {
	need, there := 0.0, 0.0
	for i, a := range in {
		if i > 0 {
			need = max(need, a.ms-there)
		}
		there += 1e3 * a.seconds
	}
	return need
}

// arrivals lists the sound by when it came, for a player that begins at from. Where
// from lies within a chunk, early takes all of that chunk for there at from, as records
// do, and else as much of it as makes playable sample frames in all.
func (j *judge) arrivals(from, rate int64, playable int64, early bool) []arrival {
	in := []arrival{{}}
	var there int64
	began := false
	for _, e := range j.sound {
		samples := max(e.samples, 0)
		ms := float64(e.mono-from) / 1e6
		switch {
		case e.mono <= from:
			ms = 0
		case !began && early && !j.completes(from):
			ms = 0
		case !began && !j.completes(from):
			part := min(samples, max(playable-there, 0))
			in[0].seconds += float64(part) / float64(rate)
			samples -= part
		}
		began = began || e.mono > from
		there += samples
		if last := &in[len(in)-1]; last.ms == ms {
			last.seconds += float64(samples) / float64(rate)
			continue
		}
		in = append(in, arrival{ms, float64(samples) / float64(rate)})
	}
	return in
}

// completes reports whether some chunk was complete at a moment: then all that had
// come by it is known.
func (j *judge) completes(at int64) bool {
	return slices.ContainsFunc(j.sound, func(e *event) bool { return e.mono == at })
}

// playback reckons the simulated player. Where older events leave open how much sound
// was there at a t_audio that lies within a chunk, it is reckoned twice.
func (j *judge) playback(rate int64) {
	p, from := j.rec.Playback, j.at[pAudio].mono
	playable := (rate*j.v.meta.minPlayable + 999) / 1000
	j.playable(playable)
	best := j.arrivals(from, rate, playable, true)
	worst := best
	if !j.whole() {
		worst = j.arrivals(from, rate, playable, false)
	}
	j.played(p, best, worst)
	j.number("playback.first_chunk_ms", p.FirstChunkMS, 1e3*float64(max(j.sound[0].samples, 0))/float64(rate), rounded)
	j.continuity(p)
	j.paced(best)
	j.vllm(p, rate)
}

// stallMS is how late sound must be to be a stall: what doubles lose is none.
const stallMS = 1e-6

func (j *judge) played(p *playback, best, worst []arrival) {
	n, stall, longest := player(best, 0, stallMS)
	most, stallMost, longestMost := player(worst, 0, stallMS)
	// Sound that is late by about a nanosecond is a stall by one reckoning and none by
	// another.
	fewer, _, _ := player(best, 0, 2*stallMS)
	more, _, _ := player(worst, 0, stallMS/2)
	if low, high := min(n, most, fewer), max(n, most, more); p.Underruns < low || p.Underruns > high {
		j.differs("playback.underruns", p.Underruns, n, exact)
	}
	j.v.res.Compared["playback.underruns"]++
	j.between("playback.stall_ms", p.StallMS, stall, stallMost)
	j.between("playback.longest_stall_ms", p.LongestStallMS, longest, longestMost)
	if none := p.Underruns == 0; none != (p.MinPrebufferMS <= 2*stallMS) && none != (p.MinPrebufferMS <= stallMS/2) {
		j.say(KindConservation, "playback.min_prebuffer_ms", "%v ms of head start are needed, with %d underruns without one", p.MinPrebufferMS, p.Underruns)
		return
	}
	j.between("playback.min_prebuffer_ms", p.MinPrebufferMS, prebuffer(best), prebuffer(worst))
}

// playable holds t_audio to the sample frames: it is the read that completed enough
// of them (contract section 2), in the chunk that had come by then or next.
func (j *judge) playable(need int64) {
	if !j.steady() {
		return // what was enough went by the rate of that moment
	}
	before, upTo, at := int64(0), int64(0), j.at[pAudio]
	next := int64(absent)
	for _, e := range j.sound {
		switch {
		case e.mono < at.mono:
			before += max(e.samples, 0)
		case next == absent || e.mono == next:
			next = e.mono
		default:
			continue
		}
		upTo += max(e.samples, 0)
	}
	j.v.res.Compared["points.t_audio (by samples)"]++
	if j.whole() && (at.samples < max(need, before) || at.samples > upTo) {
		j.sayAt(at, KindValue, "first_audio with %d sample frames: %d had come ahead of it and %d with its chunk, %d are enough", at.samples, before, upTo, need)
	}
	if before >= need || upTo < need {
		j.sayAt(at, KindValue, "first_audio at %d ns: %d sample frames had come ahead of it and %d with its chunk, %d are enough", at.mono, before, upTo, need)
	}
}

// steady reports whether the rate that the events carry never changes.
func (j *judge) steady() bool {
	for _, e := range j.sound {
		if e.rate != j.sound[0].rate {
			return false
		}
	}
	return true
}

// continuity holds the answers for each head start to the least one.
func (j *judge) continuity(p *playback) {
	for _, ms := range []int64{0, 50, 100, 200} {
		got, ok := p.Continuity[itoa(ms)]
		if !ok || math.Abs(p.MinPrebufferMS-float64(ms)-stallMS) < stallMS/10 {
			continue
		}
		j.bool("playback.continuity", got, p.MinPrebufferMS <= float64(ms)+stallMS)
	}
}

// vllm reckons vLLM-Omni's own continuity: how late a chunk is against the first
// arrival and the sound ahead of it, with a clock that no stall moves.
func (j *judge) vllm(p *playback, rate int64) {
	in := j.arrivals(j.sound[0].mono, rate, 0, true)
	if len(in) < 2 {
		j.bool("playback.vllm_omni", p.VLLMOmni != nil, false)
		return
	}
	late, there := math.Inf(-1), 0.0
	for i, a := range in {
		if i > 0 {
			late = max(late, a.ms-there)
		}
		there += 1e3 * a.seconds
	}
	if p.VLLMOmni == nil {
		j.differs("playback.vllm_omni", nil, late, summed.text)
		return
	}
	j.number("playback.vllm_omni.max_late_ms", p.VLLMOmni.MaxLateMS, late, summed)
	if math.Abs(late-100) > stallMS {
		j.bool("playback.vllm_omni.ok", p.VLLMOmni.OK, late <= 100)
	}
}

// paced reports whether sound was let out in real time: over three seconds of it, in
// chunks whose lead over real time hardly moves once a quarter of them has come.
func (j *judge) paced(in []arrival) {
	if j.rec.SessionID == nil || !j.whole() && !j.completes(j.at[pAudio].mono) {
		return
	}
	total, before := 0.0, 0.0
	var leads []float64
	for i, a := range in {
		if total += a.seconds; i >= max(1, len(in)/4) {
			leads = append(leads, before-a.ms/1e3)
		}
		before += a.seconds
	}
	flag := slices.Contains(j.rec.Flags, "paced")
	if total < 3 || len(leads) < 3 {
		j.bool("flags.paced", flag, false)
		return
	}
	mean, squares := 0.0, 0.0
	for _, l := range leads {
		mean += l / float64(len(leads))
	}
	for _, l := range leads {
		squares += (l - mean) * (l - mean)
	}
	if wavers := math.Sqrt(squares / float64(len(leads))); math.Abs(wavers-0.05) > 1e-6 {
		j.bool("flags.paced", flag, wavers < 0.05)
	}
}
