package verify

// The points' places in record.points; their events' kinds follow each other alike.
const (
	pIn = iota
	pBody
	pUp
	pHdr
	pText
	pAudioEvent
	pAudio
	pAudible
	pTerm
	pClose
)

var pointFields, offsetFields = func() (p, o [nPoints]string) {
	for i, n := range pointNames {
		p[i], o[i] = "points."+n, "offsets."+n
	}
	return p, o
}()

const (
	flowOpaque = "opaque"
	noTerminal = "a connection that is not HTTP has no terminal event"
)

// points holds the points and their bytes to the events (contract section 2).
func (j *judge) points() {
	mono, off := j.rec.Points.list(), j.rec.Offsets.list()
	for p := range nPoints {
		e := j.at[p]
		if p == pTerm && e == nil {
			j.noTerminal()
			continue
		}
		j.int(pointFields[p], mono[p], j.mono(p))
		var byteNo *int64
		if e != nil && e.off != absent && (p != pIn || !j.serverIngress()) {
			byteNo = &e.off
		}
		j.int(offsetFields[p], off[p], byteNo)
	}
	if e := j.at[pIn]; e != nil {
		wall := &e.wall
		if e.wall == absent {
			wall = nil
		}
		j.int("t_in_wall_ns", j.rec.TInWallNS, wall)
	}
	j.firsts()
}

// noTerminal tells that the end of a request was not written.
func (j *judge) noTerminal() {
	if j.rec.Flow != flowOpaque {
		j.say(KindOrder, "", "its terminal event is not there")
		return
	}
	for _, field := range []string{"points.t_term", "jct_ms", "terminal.state", "bytes_down"} {
		j.v.lacks(field, noTerminal)
	}
}

// mono is the moment of a point, nil for none.
func (j *judge) mono(p int) *int64 {
	if j.at[p] == nil {
		return nil
	}
	return &j.at[p].mono
}

// firsts holds the points that chunks make to the chunks.
func (j *judge) firsts() {
	if first := j.at[pText]; len(j.text) > 0 && (first == nil || first.mono != j.text[0].mono || first.off != j.text[0].off) {
		j.sayAt(j.text[0], KindValue, "the first text chunk came at %d ns, byte %d, and first_text does not say so", j.text[0].mono, j.text[0].off)
	} else if first != nil && len(j.text) == 0 {
		j.sayAt(first, KindOrder, "first_text without a text chunk")
	}
	for _, p := range []int{pAudioEvent, pAudio, pAudible} {
		e := j.at[p]
		switch {
		case e == nil:
		case p != pAudioEvent && len(j.sound) == 0:
			j.sayAt(e, KindOrder, "%s without an audio chunk", words[e.kind])
		case len(j.sound) > 0 && e.mono > j.sound[len(j.sound)-1].mono:
			j.sayAt(e, KindOrder, "%s comes behind the last audio chunk", words[e.kind])
		}
	}
}

// since is a point in milliseconds since t_in, null where one of them is missing or
// where it lies ahead of t_in (contract section 1).
func (j *judge) since(p int) *float64 {
	from, to := j.at[pIn], j.at[p]
	if from == nil || to == nil || to.mono < from.mono {
		return nil
	}
	ms := float64(to.mono-from.mono) / 1e6
	return &ms
}

// latencies reckons what contract section 3 makes of points alone.
func (j *judge) latencies() {
	r := j.rec
	j.float("ttft_ms", r.TTFTMS, j.since(pText), rounded)
	j.float("ttfa_ms", r.TTFAMS, j.since(pAudio), rounded)
	j.float("ttfaudible_ms", r.TTFAudibleMS, j.since(pAudible), rounded)
	if j.at[pTerm] != nil {
		j.float("jct_ms", r.JCTMS, j.since(pTerm), rounded)
	}
}
