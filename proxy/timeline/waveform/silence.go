package waveform

import "fmt"

// silence finds where sound begins and ends, and the longest silence between. It
// takes sustained windows in a row to be sound: a click of a few milliseconds
// ends no silence.
type silence struct {
	run        int   // loud windows in a row
	runFrom    place // where the run began
	heard      bool
	start, end place // of what is heard: the first frame, and the one behind the last
	inner      gap   // the longest silence between sounds
	zero       int64 // frames that are exactly 0 in it
	zeros      int64 // the same of the silence at hand
}

type gap struct {
	from   place
	frames int64
}

// sustained is how many loud windows make a sound: 15 ms.
const sustained = 3

func (s *silence) add(w window) {
	if !w.loud {
		s.run = 0
		if w.zero {
			s.zeros += int64(w.n)
		}
		return
	}
	if s.run++; s.run == 1 {
		s.runFrom = w.from
	}
	if s.run < sustained {
		return
	}
	switch {
	case !s.heard:
		s.heard, s.start = true, s.runFrom
	case s.run == sustained:
		if n := s.runFrom.frame - s.end.frame; n > s.inner.frames {
			s.inner, s.zero = gap{s.end, n}, s.zeros
		}
	}
	s.zeros = 0
	s.end = place{w.from.chunk, w.from.frame + int64(w.n)}
}

// findings judges silence in seconds against its bounds.
func (s *silence) findings(cfg *Config, rate int, frames int64, whole bool) []Finding {
	names := []string{"leading_silence", "inner_silence", "trailing_silence"}
	if !s.heard {
		var out []Finding
		for _, name := range names {
			out = append(out, notMeasured(name, "nothing is heard"))
		}
		return out
	}
	seconds := func(n int64) float64 { return float64(n) / float64(max(1, rate)) }
	judge := func(name string, g gap, limit float64, more string) Finding {
		if v := seconds(g.frames); v > limit {
			return failed(name, g.from, v, limit, "%.3f s of silence%s, %g at most", v, more, limit)
		}
		return passed(name, seconds(g.frames), limit)
	}
	out := []Finding{
		judge(names[0], gap{place{}, s.start.frame}, cfg.LeadingSilenceS, " ahead of what is heard"),
		judge(names[1], s.inner, cfg.InnerSilenceS, fmt.Sprintf(" amid what is heard (%.3f s of it exact zeros)", seconds(s.zero))),
	}
	tail := judge(names[2], gap{s.end, frames - s.end.frame}, cfg.TrailingSilenceS, " behind what is heard")
	if !whole && tail.Verdict == Passed {
		tail = notMeasured(names[2], "the stream did not come to its end")
	}
	return append(out, tail)
}
