package verify

import (
	"maps"
	"slices"
)

// ofServer is the status of an ingress that is the server's own event.
const ofServer = "server"

// serverIngress reports whether t_in is an event of the server: its byte is then one of
// the server's stream.
func (j *judge) serverIngress() bool {
	return j.at[pIn] != nil && j.v.names.text(j.at[pIn].status) == ofServer
}

// alternatives holds the other moments for t_in to their events, and the byte of one
// that is the server's.
func (j *judge) alternatives() {
	var off *int64
	if j.serverIngress() {
		off = new(j.at[pIn].off)
	}
	j.int("t_in_server_offset", j.rec.TInServerOffset, off)
	all := map[string][2]*int64{}
	for name, at := range j.rec.TInAlternatives {
		all[name] = [2]*int64{new(at)}
	}
	for _, e := range j.also {
		name := j.v.names.text(e.status)
		all[name] = [2]*int64{all[name][0], &e.mono}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		j.int("t_in_alternatives", all[name][0], all[name][1])
	}
}

// reasoning counts the text that is reasoning.
func (j *judge) reasoning() {
	r := j.rec.Reasoning
	if r == nil && j.rec.TextUnits == nil {
		return // text was not counted at all
	}
	if r == nil || len(j.reason) == 0 {
		j.bool("reasoning", r != nil, len(j.reason) > 0)
		return
	}
	chars := int64(0)
	for _, e := range j.reason {
		chars += max(e.chars, 0)
	}
	var first *float64
	if in := j.at[pIn]; in != nil {
		first = new(float64(j.reason[0].mono-in.mono) / 1e6)
	}
	j.count("reasoning.units", r.Units, int64(len(j.reason)))
	j.count("reasoning.chars", r.Chars, chars)
	j.float("reasoning.first_ms", r.FirstMS, first, rounded)
}

// blocked is how long writes to the client were blocked in all, in nanoseconds.
func (j *judge) blocked() int64 {
	sum := int64(0)
	for _, list := range [][]*event{j.wrote, j.waits} {
		for _, e := range list {
			sum += max(e.wait, 0)
		}
	}
	return sum
}

// clientWait adds up how long writes to the client were blocked. A replay measures none.
func (j *judge) clientWait() {
	if sum := j.blocked(); j.rec.ClientWaitMS != nil || sum > 0 {
		j.float("client_wait_ms", j.rec.ClientWaitMS, new(float64(sum)/1e6), rounded)
	}
}
