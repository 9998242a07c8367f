package verify

import (
	"slices"

	"github.com/omnitap/omnitap/exporter/rundir"
)

// inputs are the messages with sound that the client of a session has sent and no turn
// was given yet, in order of their numbers.
type inputs struct {
	list  []said
	next  int64 // the number of the next one
	mixed bool  // two sessions of one id sent at the same time
}

// said is one message with sound: when its last byte came, its sound and its bytes on
// the wire.
type said struct{ n, mono, bytes, wire int64 }

// said takes an event of a session's input.
func (v *verifier) said(e *event) {
	in := v.inputs[e.session]
	switch {
	case in == nil || e.chunk == 0 && in.next > 0:
		in = &inputs{mixed: in != nil && (in.mixed || len(in.list) > 0)}
		v.inputs[e.session] = in
	case e.chunk != in.next && !in.mixed:
		v.say(Error, KindOrder, rundir.EventsFile, int(e.line), "input_chunk %d of session %s comes behind %d", e.chunk, clip(v.names.text(e.session)), in.next-1)
	}
	in.next = e.chunk + 1
	in.list = append(in.list, said{e.chunk, e.mono, max(e.bytes, 0), max(e.wire, 0)})
}

// take removes and returns the messages from a number on, fewer where some are not
// there.
func (in *inputs) take(from, count int64) []said {
	if in == nil || count <= 0 || from < 0 {
		return nil
	}
	lo := slices.IndexFunc(in.list, func(s said) bool { return s.n >= from })
	if lo < 0 {
		return nil
	}
	hi := lo
	for hi < len(in.list) && in.list[hi].n-from < count && in.list[hi].n >= from {
		hi++
	}
	out := slices.Clone(in.list[lo:hi])
	in.list = slices.Delete(in.list, lo, hi)
	return out
}

const oneID = "two sessions of one id were open at the same time"

// input reckons what the client said for a turn, and with it the turn's bytes.
func (j *judge) input() {
	if j.rec.SessionID == nil {
		return
	}
	up := int64(0)
	for _, e := range j.asks {
		up += max(e.bytes, 0)
	}
	in := j.v.inputs[j.v.names.number([]byte(*j.rec.SessionID))]
	var heard []said
	for _, e := range j.taken {
		heard = in.take(e.chunk, e.count)
		if in != nil && in.mixed {
			j.v.lacks("input", oneID)
			j.v.lacks("bytes_up", oneID)
			return
		}
		if int64(len(heard)) != e.count {
			j.sayAt(e, KindOrder, "%d input_chunk events of the session from %d on are the turn's, %d are there", e.count, e.chunk, len(heard))
			return
		}
		for _, s := range heard {
			up += s.wire
		}
	}
	j.count("bytes_up", j.rec.BytesUp, up)
	r := j.rec.Input
	if r == nil || len(heard) == 0 {
		j.bool("input", r != nil, len(heard) > 0)
		return
	}
	j.inputOf(r, j.taken[len(j.taken)-1], heard)
}

// inputOf compares the sound that a turn was given last: mono PCM of 16 bits.
func (j *judge) inputOf(r *input, e *event, heard []said) {
	size, last := int64(0), heard[len(heard)-1]
	for _, s := range heard {
		size += s.bytes
	}
	rate, span := float64(max(e.rate, 1)), last.mono-e.mono
	var pace *float64
	if len(heard) > 1 && span > 0 {
		pace = new(float64((size-last.bytes)/2) / rate * 1e9 / float64(span))
	}
	j.count("input.bytes", r.Bytes, size)
	j.count("input.messages", r.Messages, int64(len(heard)))
	j.count("input.sample_rate", r.SampleRate, int64(e.rate))
	j.number("input.audio_s", r.AudioS, float64(size/2)/rate, rounded)
	j.number("input.span_ms", r.SpanMS, float64(span)/1e6, rounded)
	j.float("input.pace", r.Pace, pace, rounded)
}
