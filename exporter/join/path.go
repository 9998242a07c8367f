package join

import (
	"cmp"
	"slices"
)

// Gap is one named gap on the way to the first audio.
type Gap struct {
	Name string
	NS   int64
}

// The names of gaps. Those of a stage have its name in front (thinker.queue), those of
// a hand-over both (thinker->talker.write). Where milestones between are unseen the
// first and the last name stand for the whole: thinker.queue..thinker.prefill.
const (
	gapRelay    = "relay"
	gapAPIIn    = "api_in"
	gapSubmit   = "submit"
	gapQueue    = ".queue"
	gapPrefill  = ".prefill"
	gapDecode   = ".decode"
	gapCompute  = ".compute"
	gapWrite    = ".write"
	gapInFlight = ".in_flight"
	gapRead     = ".read"
	gapForward  = "api.forward"
	gapReturn   = ".return"
	gapAPIOut   = "api_out"
)

// milestone ends a gap. at 0 is one that was not seen.
type milestone struct {
	gap string
	at  int64
}

// maxHops bounds the hand-overs on a path.
const maxHops = 64

// criticalPath names what lay between t_in and t_audio: from the last stage's first
// output back through the inputs that a stage had to wait for, down to the first
// stage and the API process.
func criticalPath(a *Ask, r *request, out *Joined) ([]Gap, string) {
	in, audio := deref(a.Points.TIn), deref(a.Points.TAudio)
	switch {
	case in == 0 || audio < in:
		return nil, "no playable audio"
	case len(out.Stages) == 0:
		return nil, "no stage was seen at work for it"
	}
	back := []milestone{{gapAPIOut, audio}}
	w := walk{out: out, r: r}
	if last := r.lastStage(); last != nil {
		o := last.firstPayload()
		back = append(back, milestone{last.name + gapReturn, o.got})
		back = append(back, w.back(last.name, cmp.Or(o.sent, o.got))...)
	} else if t := w.answer(audio); t != nil {
		hop, at := w.hop(t)
		back = append(append(back, hop...), w.back(t.From, at)...)
	} else {
		return nil, "no output of a stage was seen"
	}
	back = append(back, milestone{gapRelay, deref(a.Points.TUp)})
	chain := make([]milestone, 0, len(back)+1)
	chain = append(chain, milestone{"", in})
	for _, m := range slices.Backward(back) {
		chain = append(chain, m)
	}
	return gaps(chain), ""
}

// walk goes back from a stage's output.
type walk struct {
	out *Joined
	r   *request
}

// back are the milestones from a stage's output at a time back to the sending of the
// request to the first stage, the latest first.
func (w *walk) back(name string, at int64) []milestone {
	var list []milestone
	for range maxHops {
		t := w.awaited(name, at)
		if t == nil {
			return append(list, w.source(name, at)...)
		}
		hop, begun := w.hop(t)
		list = append(append(list, milestone{name + gapCompute, at}), hop...)
		if name, at = t.From, begun; t.forwarded && at > 0 {
			result := w.result(t.From, at)
			if result == nil {
				return append(list, w.source(w.lowest(t.To), 0)...)
			}
			hop, begun = w.hop(result)
			list = append(append(list, milestone{gapForward, at}), hop...)
			name, at = result.From, begun
		}
		if at == 0 {
			return append(list, w.source(name, 0)...)
		}
	}
	return list
}

// hop are the milestones of a transfer, the latest first, and when its sender began.
func (w *walk) hop(t *Transfer) (list []milestone, begun int64) {
	edge := t.From + "->" + t.To
	switch {
	case t.Transport == "inline" || t.TxStart == 0 && t.RxStart == 0 || t.Transport != "shm" && t.Transport != "tcp" && t.Transport != "mooncake":
		if t.RxEnd > 0 {
			list = append(list, milestone{edge + gapRead, t.RxEnd})
		}
		return append(list, milestone{edge + gapInFlight, cmp.Or(t.Heard, t.RxStart)}), t.Announced
	case t.Transport == "shm":
		return []milestone{{edge + gapRead, t.RxEnd}, {edge + gapInFlight, t.RxStart}, {edge + gapWrite, t.TxEnd}}, t.TxStart
	}
	// It is asked for by its receiver, which is then told.
	return []milestone{{edge + gapRead, t.RxEnd}, {edge + gapWrite, t.TxEnd}}, t.TxStart
}

// result is the last that the API process had of a stage before a time, of any stage
// for roleAPI: in vLLM-Omni's first generation it forwards what all stages make.
func (w *walk) result(from string, before int64) *Transfer {
	var last *Transfer
	for i := range w.out.Transfers {
		t := &w.out.Transfers[i]
		if got := t.Received(); t.To == roleAPI && got > 0 && got <= before && (from == roleAPI || t.From == from) && (last == nil || got > last.Received()) {
			last = t
		}
	}
	return last
}

// answer is the first that the API process had, by a time, of the last stage.
func (w *walk) answer(by int64) *Transfer {
	var first *Transfer
	number := func(t *Transfer) int {
		for i := range w.out.Stages {
			if s := &w.out.Stages[i]; s.Stage == t.From {
				return s.ID
			}
		}
		return -1
	}
	for i := range w.out.Transfers {
		t := &w.out.Transfers[i]
		got := t.Received()
		if t.To != roleAPI || got == 0 || got > by {
			continue
		}
		if first == nil || number(t) > number(first) || number(t) == number(first) && got < first.Received() {
			first = t
		}
	}
	return first
}

// source are the milestones below a stage whose input was not seen: it is the first,
// or what lies between the first and it is one gap.
func (w *walk) source(name string, at int64) []milestone {
	low := w.lowest(name)
	if low == name {
		return w.first(name, at)
	}
	return append([]milestone{{name + gapCompute, at}}, w.first(low, 0)...)
}

// lowest is the stage that the request came to first: the one of the lowest number.
func (w *walk) lowest(name string) string {
	low, id := name, 1<<30
	for i := range w.out.Stages {
		s := &w.out.Stages[i]
		if s.ID >= 0 && s.ID < id {
			low, id = s.Stage, s.ID
		}
	}
	return low
}

// awaited is the input that a stage's work until a time began with: the last that it
// had to wait for, else, where it never waited, the first; where polls are not seen,
// the last that it got.
func (w *walk) awaited(name string, at int64) *Transfer {
	var first, last *Transfer
	for i := range w.out.Transfers {
		t := &w.out.Transfers[i]
		got := t.Received()
		if t.To != name || t.From == name || got == 0 || got > at {
			continue
		}
		if t.From == roleAPI && w.result(roleAPI, t.Start()) == nil {
			continue // the request itself
		}
		if first == nil || got < first.Received() {
			first = t
		}
		if t.Misses != 0 && (last == nil || got > last.Received()) {
			last = t
		}
	}
	if last != nil {
		return last
	}
	return first
}

// first are the milestones of the stage that the request came to first, up to what it
// handed on at a time.
func (w *walk) first(name string, at int64) []milestone {
	var s *stage
	for _, o := range w.r.stages {
		if o.name == name {
			s = o
		}
	}
	added := milestone{gapAPIIn, w.r.added}
	if s == nil {
		return []milestone{{name + gapCompute, at}, {gapSubmit, 0}, added}
	}
	if s.queued == 0 && s.scheduled == 0 && !s.steps() {
		return []milestone{{name + gapCompute, at}, {gapSubmit, s.got}, added}
	}
	answered := int64(0)
	if len(s.outputs) > 0 {
		answered = s.outputs[0].sent
	}
	list := []milestone{{name + gapDecode, at}, {name + gapPrefill, answered}, {name + gapQueue, s.scheduled}, {gapSubmit, s.queued}, added}
	if answered == at { // it handed on its first output itself
		list = list[1:]
	}
	return list
}

// steps says whether a stage answers step by step, as vLLM's do.
func (s *stage) steps() bool {
	return len(s.outputs) > 0 && s.outputs[0].batch > 0
}

// gaps makes gaps of milestones. Those that were not seen, and the fewest that must
// go so that the rest is in order, are left out, and the gaps around them become one.
// The first and the last stay.
func gaps(chain []milestone) []Gap {
	keep := inOrderOf(chain)
	var out []Gap
	from := 0
	for i := 1; i < len(chain); i++ {
		if !keep[i] {
			continue
		}
		name := chain[i].gap
		if from+1 < i {
			name = chain[from+1].gap + ".." + name
		}
		out = append(out, Gap{name, chain[i].at - chain[from].at})
		from = i
	}
	return out
}

// inOrderOf marks the longest run of milestones that do not go back in time, with the
// first and the last of them.
func inOrderOf(chain []milestone) []bool {
	n := len(chain)
	best, prev := make([]int, n), make([]int, n)
	lo, hi := chain[0].at, chain[n-1].at
	for i := range chain {
		prev[i] = -1
		if at := chain[i].at; i == 0 || at >= lo && at <= hi && at > 0 {
			best[i] = -1
			for k := range i {
				if best[k] > 0 && chain[k].at <= at && best[k] > best[i] {
					best[i], prev[i] = best[k], k
				}
			}
			if best[i]++; i == 0 {
				best[i] = 1
			}
		}
	}
	keep := make([]bool, n)
	for i := n - 1; i >= 0; i = prev[i] {
		keep[i] = true
	}
	return keep
}
