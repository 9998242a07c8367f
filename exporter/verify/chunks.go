package verify

import "slices"

// maxChunks is how many chunks of one stream, and writes of them, have events.
const maxChunks = 1 << 18

// snapshot is the status of a text chunk that stands for all text so far.
const snapshot = "snapshot"

// lost is the analysis of what was not read at all.
const lost = "lost"

// texts reckons text units, their bytes and TPOT.
func (j *judge) texts() {
	r := j.rec
	units, size := int64(len(j.text)), int64(0)
	resets := j.resets
	for i, e := range j.text {
		if j.v.names.text(e.status) == snapshot || takenBack(&resets, int64(i)) {
			size = 0
		}
		size += max(e.bytes, 0)
	}
	if takenBack(&resets, units) {
		size = 0
	}
	if r.TextUnits == nil && units == 0 || r.TextUnits == nil && r.Analysis == lost {
		j.int("text_units", nil, nil) // nothing came that could be counted, or nothing was read
		return
	}
	j.int("text_units", r.TextUnits, &units)
	if r.TextBytes != nil && *r.TextBytes != size && !j.whole() && j.rewritten() {
		j.v.lacks("text_bytes", "no event says that a text takes the place of the text so far")
	} else {
		j.int("text_bytes", r.TextBytes, &size)
	}
	var tpot *float64
	if units > 1 {
		ms := float64(j.text[units-1].mono-j.text[0].mono) / 1e6 / float64(units-1)
		tpot = &ms
	}
	j.float("tpot_ms", r.TPOTMS, tpot, rounded)
}

// takenBack reports whether the text so far was taken back when so many chunks of it
// had come.
func takenBack(resets *[]*event, units int64) (yes bool) {
	for len(*resets) > 0 && (*resets)[0].chunk <= units {
		*resets, yes = (*resets)[1:], true
	}
	return yes
}

// rewritten reports whether the flow is one whose server sends its text again and
// again: a transcript that is being put right.
func (j *judge) rewritten() bool { return j.rec.Flow == "transcription" && j.rec.SessionID != nil }

// writes reckons the relay's own delay, from the chunks and when the client's socket
// took them.
func (j *judge) writes() {
	of := func(e *event) []*event {
		if j.v.names.text(e.status) == "text" {
			return j.text
		}
		return j.sound
	}
	var us []float64
	last := map[name]int64{}
	for _, e := range j.wrote {
		before, ok := last[e.status]
		if last[e.status] = e.chunk; ok && e.chunk <= before {
			j.sayAt(e, KindOrder, "client_write of chunk %d behind that of %d: lines were moved", e.chunk, before)
			return
		}
		chunks := of(e)
		at, found := slices.BinarySearchFunc(chunks, e.chunk, func(c *event, n int64) int { return int(c.chunk - n) })
		switch {
		case !found:
			j.sayAt(e, KindOrder, "client_write of chunk %d, and no event of that chunk", e.chunk)
			return
		case chunks[at].bytes != e.bytes:
			j.sayAt(e, KindConservation, "%d bytes of chunk %d were written, %d came (line %d)", e.bytes, e.chunk, chunks[at].bytes, chunks[at].line)
		}
		us = append(us, float64(e.mono-chunks[at].mono)/1e3)
	}
	j.delays(us)
}

func (j *judge) delays(us []float64) {
	d := j.rec.OwnDelayUS
	switch {
	case d == nil && len(us) == 0:
		j.count("own_delay_us.n", 0, 0)
		return
	case d == nil:
		j.differs("own_delay_us", nil, itoa(int64(len(us)))+" writes", exact)
		return
	case d.N >= maxChunks:
		j.v.lacks("own_delay_us", "only the first chunks of a long stream enter it")
		return
	}
	if j.count("own_delay_us.n", d.N, int64(len(us))); len(us) == 0 {
		return
	}
	slices.Sort(us)
	j.number("own_delay_us.p50", d.P50, percentile(us, 50), single)
	j.number("own_delay_us.p99", d.P99, percentile(us, 99), single)
	j.number("own_delay_us.max", d.Max, us[len(us)-1], single)
}
