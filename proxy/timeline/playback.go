package timeline

import (
	"math"
	"slices"
)

// arrival is sound that came at one moment.
type arrival struct {
	ms      float64 // since the first audio
	seconds float64 // of sound
}

// prebuffers are the head starts in milliseconds at which continuity is told.
var prebuffers = []int{0, 50, 100, 200}

// vllmContinuityMS is vLLM-Omni's default limit.
const vllmContinuityMS = 100

// player simulates a client that starts prebuffer milliseconds after the first
// audio and plays in real time; a stall moves the rest of the playback.
func player(in []arrival, prebuffer float64) (underruns int, stall, longest float64) {
	played := prebuffer // the moment, since the first audio, at which what is there will be used up
	for i, a := range in {
		if wait := a.ms - played; i > 0 && wait > 1e-6 {
			underruns++
			stall += wait
			longest = max(longest, wait)
			played = a.ms
		}
		played += a.seconds * 1000
	}
	return underruns, stall, longest
}

// minPrebuffer is the smallest head start without an underrun: the largest
// lateness of a chunk against a player that never waits.
func minPrebuffer(in []arrival) float64 {
	var need, sound float64
	for _, a := range in {
		need = max(need, a.ms-sound)
		sound += a.seconds * 1000
	}
	return need
}

// playback reckons the simulated player of contract section 3. in is since t_audio,
// since the same since the first chunk, which is where vLLM-Omni's clock begins.
func playback(in, since []arrival) *Playback {
	p := &Playback{Continuity: map[string]bool{}}
	p.Underruns, p.StallMS, p.LongestStallMS = player(in, 0)
	p.MinPrebufferMS = minPrebuffer(in)
	for _, ms := range prebuffers {
		p.Continuity[itoa(ms)] = p.MinPrebufferMS <= float64(ms)+1e-6
	}
	if len(since) > 1 {
		late := math.Inf(-1)
		var sound float64
		for i, a := range since {
			if i > 0 {
				late = max(late, a.ms-sound)
			}
			sound += a.seconds * 1000
		}
		p.VLLMOmni = &VLLMContinuity{MaxLateMS: late, OK: late <= vllmContinuityMS}
	}
	return p
}

// quantile is the linear interpolation between closest ranks (Hyndman and
// Fan's seventh) of sorted values.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	h := float64(len(sorted)-1) * q
	i := int(h)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (h-float64(i))*(sorted[i+1]-sorted[i])
}

// gaps describes the gaps between chunks.
func gaps(chunks []chunk) *Gap {
	if len(chunks) < 2 {
		return nil
	}
	v := make([]float64, 0, len(chunks)-1)
	var sum, sq float64
	for i := 1; i < len(chunks); i++ {
		ms := float64(chunks[i].mono-chunks[i-1].mono) / 1e6
		v = append(v, ms)
		sum += ms
		sq += ms * ms
	}
	n := float64(len(v))
	mean := sum / n
	g := &Gap{N: len(v)}
	if mean > 0 {
		g.CV = math.Sqrt(max(0, sq/n-mean*mean)) / mean
	}
	slices.Sort(v)
	g.P50, g.P95, g.P99, g.Max = quantile(v, .5), quantile(v, .95), quantile(v, .99), v[len(v)-1]
	return g
}

// delay describes the relay's own delays.
func delay(us []float32) *Delay {
	if len(us) == 0 {
		return nil
	}
	v := make([]float64, len(us))
	for i, d := range us {
		v[i] = float64(d)
	}
	slices.Sort(v)
	return &Delay{P50: quantile(v, .5), P99: quantile(v, .99), Max: v[len(v)-1], N: len(v)}
}
