package waveform

import (
	"fmt"
	"math"
)

// hops compares the lengths of chunks with the model's frame hop, where that is
// known: a model makes whole frames, so every chunk has the same remainder (none,
// but for models that hold samples back on purpose). The first chunk and the last
// one may differ: a model starts and ends as it likes.
type hops struct {
	cfg     *Config
	chunks  int   // so far
	pending int64 // frames of the last one, which is judged when another one comes
	at      place // where it began
	usual   int64 // the length that came most lately three times, 0 for none
	alike   int   // how often the last length came in a row
	seen    [maxRemainders]remainder
	others  int // chunks with further remainders
}

// remainder is how many chunks had so many samples beyond whole hops.
type remainder struct {
	frames int64
	n      int
	at     place
}

const (
	// maxRemainders bounds the remainders that are told apart.
	maxRemainders = 8
	// chunksNeeded is how many chunks make a rule, and ruleShare which part of them
	// must follow it.
	chunksNeeded = 4
	ruleShare    = 0.8
)

func (h *hops) forget() { h.pending, h.usual, h.alike = 0, 0, 0 }

// add notes a chunk of n frames that begins at a place.
func (h *hops) add(at place, n int64) {
	if n != h.pending {
		h.alike = 0
	}
	if h.alike++; h.alike >= 3 {
		h.usual = n
	}
	if hop := int64(h.cfg.Hop); hop > 0 && h.pending > 0 && h.chunks > 1 {
		h.count(h.pending%hop, h.at)
	}
	h.pending, h.at = n, at
	h.chunks++
}

// odd reports whether the last chunk was shorter or longer than chunks are as a rule:
// what is missing where it ends is likely to be missing.
func (h *hops) odd() bool { return h.usual > 0 && h.pending != h.usual && h.alike == 1 }

func (h *hops) count(r int64, at place) {
	for i := range h.seen {
		if x := &h.seen[i]; x.n == 0 || x.frames == r {
			if x.n++; x.n == 1 {
				x.frames, x.at = r, at
			}
			return
		}
	}
	h.others++
}

// rule returns the remainder that chunks have as a rule, and how many were judged;
// ok is false where there is no rule.
func (h *hops) rule() (r remainder, judged int, ok bool) {
	judged = h.others
	for _, x := range h.seen {
		if judged += x.n; x.n > r.n {
			r = x
		}
	}
	return r, judged, judged >= chunksNeeded && float64(r.n) >= ruleShare*float64(judged)
}

// finding is measured in chunks that break the rule.
func (h *hops) finding() Finding {
	const name = "chunk_hops"
	if h.cfg.Hop <= 0 {
		return notMeasured(name, "the model's frame hop is not known (hops)")
	}
	rule, judged, ok := h.rule()
	if !ok {
		return notMeasured(name, fmt.Sprintf("%d chunks between the first and the last follow no rule in hops of %d", judged, h.cfg.Hop))
	}
	if rule.frames != 0 { // whoever cuts elsewhere has a rule of its own
		return notMeasured(name, fmt.Sprintf("chunks have %d samples beyond whole hops of %d as a rule", rule.frames, h.cfg.Hop))
	}
	odd := judged - rule.n
	if odd == 0 {
		return passed(name, 0, 0)
	}
	first := remainder{at: place{chunk: math.MaxInt}}
	for _, x := range h.seen {
		if x.n > 0 && x.frames != rule.frames && x.at.chunk < first.at.chunk {
			first = x
		}
	}
	hop := int64(h.cfg.Hop)
	lacks := (hop - first.frames) % hop
	return failed(name, first.at, float64(odd), 0, "%d of %d chunks are no whole hops of %d as the others are: the first of them lacks %d samples, or has %d too many", odd, judged, hop, lacks, hop-lacks)
}

// amount says how much every chunk lacks, where all of them do.
func (h *hops) amount() string {
	rule, judged, _ := h.rule()
	if h.cfg.Hop <= 0 || judged < bordersNeeded || rule.n < judged || rule.frames == 0 {
		return ""
	}
	return fmt.Sprintf("; every chunk between the first and the last has %d samples beyond whole hops of %d: it lacks %d, or has %d too many", rule.frames, h.cfg.Hop, int64(h.cfg.Hop)-rule.frames, rule.frames)
}
