package verify

import (
	"math"
	"slices"
)

// sounds reckons what the audio chunks tell.
func (j *judge) sounds() {
	a := j.rec.Audio
	if a == nil {
		j.count("audio.chunks", 0, int64(len(j.sound)))
		if len(j.empty) > 0 {
			j.count("audio.empty_events", 0, int64(len(j.empty)))
		}
		return
	}
	if j.whole() {
		j.count("audio.empty_events", a.EmptyEvents, int64(len(j.empty)))
	}
	if a.Chunks > maxChunks && int64(len(j.sound)) == maxChunks {
		for _, field := range []string{"audio", "audio_s", "rtf", "xrt"} {
			j.v.lacks(field, "only the first 262144 chunks of a stream have events")
		}
		return
	}
	samples, size := j.sum()
	j.count("audio.chunks", a.Chunks, int64(len(j.sound)))
	if a.Bytes > size && a.EmptyEvents > 0 && j.rec.Terminal.State == "invalid-output" {
		j.v.lacks("audio.bytes", "sound that cannot be decoded has no event")
	} else {
		j.count("audio.bytes", a.Bytes, size)
	}
	j.counted(a, samples)
	j.gaps(a)
	j.incremental(a)
	j.seconds(a)
}

// sum adds up sample frames, nil where they are not counted, and bytes.
func (j *judge) sum() (samples *int64, size int64) {
	var n int64
	counted := true
	for _, e := range j.sound {
		counted = counted && e.samples != absent
		n += max(e.samples, 0)
		size += max(e.bytes, 0)
	}
	if counted {
		samples = &n
	}
	return samples, size
}

// partly reports whether a part of the request was not read: what is counted may then
// be null.
func (r *record) partly() bool { return r.Analysis != "full" || r.Terminal.Evidence.Unread != "" }

// counted holds sample frames and their format to the events.
func (j *judge) counted(a *audio, samples *int64) {
	switch {
	case a.Samples == nil && samples != nil && (j.rec.partly() || *samples == 0):
		return // null: not all of it was seen, or none of it could be counted
	case a.Samples != nil && samples == nil && len(j.sound) == 0:
		samples = new(int64)
	}
	j.int("audio.samples", a.Samples, samples)
	if n := j.rec.Terminal.Evidence.Samples; n != nil && samples != nil {
		j.int("terminal.evidence.samples", n, samples)
	}
	if len(j.sound) == 0 || a.Samples == nil {
		return
	}
	last := j.sound[len(j.sound)-1]
	if last.channels != absent && a.Channels != nil {
		j.count("audio.channels", *a.Channels, int64(last.channels))
	}
	j.rates(a, last.rate)
}

// rates holds the sample rate that seconds are reckoned with to the last chunk's.
func (j *judge) rates(a *audio, last int32) {
	field, rate := "audio.sample_rate", a.SampleRate
	if rate == nil {
		field, rate = "audio.assumed_sample_rate", a.AssumedSampleRate
	}
	config := a.SampleRateSource != nil && *a.SampleRateSource == "config"
	switch {
	case rate == nil:
	case last == absent:
		j.v.lacks(field, "the events carry the rate that the wire had told by then, and it had told none")
	case config && *rate != int64(last):
		j.v.lacks(field, "the events carry the rate that the wire tells, and the configuration's was used")
	default:
		j.count(field, *rate, int64(last))
	}
}

// rate is what seconds are reckoned with, by the record: 0 for nothing.
func (a *audio) rate() int64 {
	switch {
	case a.SampleRate != nil:
		return *a.SampleRate
	case a.AssumedSampleRate != nil:
		return *a.AssumedSampleRate
	}
	return 0
}

// seconds reckons audio_s, RTF, xRT and the playback (contract section 3).
func (j *judge) seconds(a *audio) {
	r := j.rec
	samples, _ := j.sum()
	var audioS, rtf, xrt *float64
	rate := a.rate()
	if a.Samples != nil && samples != nil && *samples > 0 && rate > 0 {
		s := float64(*samples) / float64(rate)
		audioS = &s
		if jct := j.since(pTerm); jct != nil && *jct > 0 {
			rtf, xrt = new(*jct/1e3/s), new(1e3*s / *jct)
		}
	}
	j.float("audio_s", r.AudioS, audioS, rounded)
	if j.at[pTerm] != nil {
		j.float("rtf", r.RTF, rtf, rounded)
		j.float("xrt", r.XRT, xrt, rounded)
	}
	j.audible(audioS)
	if audioS != nil && j.at[pAudio] == nil && j.steady() && *samples >= (rate*j.v.meta.minPlayable+999)/1000 {
		j.say(KindOrder, "", "%d sample frames came, and its first_audio event is not there", *samples)
	}
	if audioS == nil || j.wholeBody() || j.at[pAudio] == nil {
		j.bool("playback", r.Playback != nil, false)
		return
	}
	if r.Playback == nil {
		j.differs("playback", nil, "a stream of countable audio", exact)
		return
	}
	j.playback(rate)
}

// wholeBody reports whether the sound came as one body: it has no chunks that arrive
// by themselves.
func (j *judge) wholeBody() bool {
	unit := j.rec.Audio.ChunkUnit
	return unit != nil && *unit == "body"
}

// gaps reckons the gaps between audio chunks.
func (j *judge) gaps(a *audio) {
	g := j.rec.Gap
	if len(j.sound) < 2 || j.wholeBody() {
		j.bool("audio_gap_ms", g != nil, false)
		return
	}
	if g == nil {
		j.differs("audio_gap_ms", nil, itoa(a.Chunks)+" chunks", exact)
		return
	}
	ms := make([]float64, len(j.sound)-1)
	for i := range ms {
		ms[i] = float64(j.sound[i+1].mono-j.sound[i].mono) / 1e6
	}
	cv := variation(ms)
	slices.Sort(ms)
	j.count("audio_gap_ms.n", g.N, int64(len(ms)))
	j.number("audio_gap_ms.p50", g.P50, percentile(ms, 50), rounded)
	j.number("audio_gap_ms.p95", g.P95, percentile(ms, 95), rounded)
	j.number("audio_gap_ms.p99", g.P99, percentile(ms, 99), rounded)
	j.number("audio_gap_ms.max", g.Max, ms[len(ms)-1], rounded)
	// One pass over squares loses what two passes keep: the squares of the two
	// coefficients differ by some units in the last place of 1 for each gap.
	slack := tolerance{1e-9, math.Sqrt(4e-16 * float64(len(ms)+10)), "what squares lose, or 1e-9 of it"}
	if math.Abs(g.CV*g.CV-cv*cv) <= 4e-16*float64(len(ms)+10)*(1+cv*cv) {
		g.CV = cv
	}
	j.number("audio_gap_ms.cv", g.CV, cv, slack)
}

// percentile is Hyndman and Fan's seventh, of ascending values: the value at the rank
// that the share makes of the last one, or between its neighbours in proportion.
func percentile(sorted []float64, percent float64) float64 {
	rank := percent / 100 * float64(len(sorted)-1)
	low, part := math.Modf(rank)
	if int(low)+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	a, b := sorted[int(low)], sorted[int(low)+1]
	return a*(1-part) + b*part
}

// variation is the coefficient of variation: the population's standard deviation over
// the mean; 0 where there is no mean above 0.
func variation(v []float64) float64 {
	n := float64(len(v))
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	mean := sum / n
	if mean <= 0 {
		return 0
	}
	squares := 0.0
	for _, x := range v {
		squares += (x - mean) * (x - mean)
	}
	return math.Sqrt(squares/n) / mean
}

// incrementalNS is how far apart sound must come to have come bit by bit.
const incrementalNS = 1e6

// incremental holds whether sound came bit by bit to when it and its chunks came. Of a
// chunk that comes in several reads older events tell no times within.
func (j *judge) incremental(a *audio) {
	got := j.rec.Incremental
	if got == nil || len(j.sound) == 0 {
		j.bool("incremental", got != nil, len(j.sound) > 0)
		return
	}
	first, last := j.sound[0].mono, j.sound[len(j.sound)-1].mono
	if j.framed[0] != nil {
		first = j.framed[0].mono
	}
	if j.framed[1] != nil {
		last = j.framed[1].mono
	}
	spread := last-first > incrementalNS
	if *got && !spread && !j.whole() && a.ChunkUnit != nil && *a.ChunkUnit != "event" && *a.ChunkUnit != "read" {
		j.v.lacks("incremental", "a chunk came in several reads, and no event tells when")
		return
	}
	j.bool("incremental", *got, spread)
	j.bool("flags.burst_delivery", slices.Contains(j.rec.Flags, "burst_delivery"), !spread && len(j.sound) > 1)
}
