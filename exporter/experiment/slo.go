package experiment

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// SLO is what a request must keep to count for goodput: upper limits, each itself still
// kept; nil is no limit.
type SLO struct {
	TTFTMS       *float64 `yaml:"ttft_ms" json:"ttft_ms,omitempty"`
	TTFAMS       *float64 `yaml:"ttfa_ms" json:"ttfa_ms,omitempty"`
	TTFAudibleMS *float64 `yaml:"ttfaudible_ms" json:"ttfaudible_ms,omitempty"`
	JCTMS        *float64 `yaml:"jct_ms" json:"jct_ms,omitempty"`
	RTF          *float64 `yaml:"rtf" json:"rtf,omitempty"`
	TPOTMS       *float64 `yaml:"tpot_ms" json:"tpot_ms,omitempty"`
	// AudioGapMS is the longest gap between chunks of sound.
	AudioGapMS *float64 `yaml:"audio_gap_ms" json:"audio_gap_ms,omitempty"`
	// Underruns and StallMS are those of the simulated player without prebuffer.
	Underruns *int     `yaml:"underruns" json:"underruns,omitempty"`
	StallMS   *float64 `yaml:"stall_ms" json:"stall_ms,omitempty"`
}

// limit is one key of an SLO.
type limit struct {
	key string
	of  func(*SLO) *float64
	// value is a record's, nil where it was not measured; reason names the record's null.
	value  func(*timeline.Record) *float64
	reason string
	// pacer: a server that paces its output to real time settles it.
	pacer bool
	// zero: 0 is a limit that can be kept.
	zero bool
}

var limits = []limit{
	{"ttft_ms", func(s *SLO) *float64 { return s.TTFTMS }, func(r *timeline.Record) *float64 { return r.TTFTMS }, "ttft_ms", false, false},
	{"ttfa_ms", func(s *SLO) *float64 { return s.TTFAMS }, func(r *timeline.Record) *float64 { return r.TTFAMS }, "ttfa_ms", false, false},
	{"ttfaudible_ms", func(s *SLO) *float64 { return s.TTFAudibleMS }, func(r *timeline.Record) *float64 { return r.TTFAudibleMS }, "ttfaudible_ms", false, false},
	{"jct_ms", func(s *SLO) *float64 { return s.JCTMS }, func(r *timeline.Record) *float64 { return r.JCTMS }, "jct_ms", true, false},
	{"rtf", func(s *SLO) *float64 { return s.RTF }, func(r *timeline.Record) *float64 { return r.RTF }, "rtf", true, false},
	{"tpot_ms", func(s *SLO) *float64 { return s.TPOTMS }, func(r *timeline.Record) *float64 { return r.TPOTMS }, "tpot_ms", false, false},
	{"audio_gap_ms", func(s *SLO) *float64 { return s.AudioGapMS }, longestGap, "audio_gap_ms", true, false},
	{"underruns", underruns, playerUnderruns, "playback", false, true},
	{"stall_ms", func(s *SLO) *float64 { return s.StallMS }, playerStall, "playback", false, true},
}

func underruns(s *SLO) *float64 {
	if s.Underruns == nil {
		return nil
	}
	return new(float64(*s.Underruns))
}

func longestGap(r *timeline.Record) *float64 {
	if r.AudioGapMS == nil || r.AudioGapMS.N == 0 {
		return nil
	}
	return &r.AudioGapMS.Max
}

func playerUnderruns(r *timeline.Record) *float64 {
	if r.Playback == nil {
		return nil
	}
	return new(float64(r.Playback.Underruns))
}

func playerStall(r *timeline.Record) *float64 {
	if r.Playback == nil {
		return nil
	}
	return &r.Playback.StallMS
}

// Empty says that there is no limit: nothing can be said of goodput.
func (s SLO) Empty() bool {
	return !slices.ContainsFunc(limits, func(l limit) bool { return l.of(&s) != nil })
}

// Met says whether a request is within the SLO; only a success can be. A value that was not
// measured keeps no limit, nor does one that is the server's pacer and not the server:
// unless another limit is broken, measured is false then. why says what stands against it.
func (s SLO) Met(r *timeline.Record) (met, measured bool, why string) {
	if s.Empty() {
		return false, false, "the SLO has no limit"
	}
	if r.Terminal.State != timeline.Success {
		return false, true, fmt.Sprintf("it ended as %s", cmp.Or(r.Terminal.State, "unknown"))
	}
	broken, unknown := s.judge(r)
	switch {
	case len(broken) > 0:
		return false, true, words(broken)
	case len(unknown) > 0:
		return false, false, words(unknown)
	}
	return true, true, ""
}

// finding is what stands against one limit.
type finding struct{ key, text string }

func words(list []finding) string {
	var out []string
	for _, f := range list {
		out = append(out, f.key+" "+f.text)
	}
	return strings.Join(out, "; ")
}

// judge lists the limits that a success breaks, and those whose value is not known.
func (s SLO) judge(r *timeline.Record) (broken, unknown []finding) {
	paced := slices.Contains(r.Flags, "paced")
	for _, l := range limits {
		most := l.of(&s)
		if most == nil {
			continue
		}
		v := l.value(r)
		switch {
		case v == nil || math.IsNaN(*v) || math.IsInf(*v, 0):
			unknown = append(unknown, finding{l.key, "was not measured: " + cmp.Or(r.Unmeasured[l.reason], "no reason is given")})
		case paced && l.pacer:
			unknown = append(unknown, finding{l.key, "is the pacer's: the server paces its output to real time"})
		case *v > *most:
			broken = append(broken, finding{l.key, fmt.Sprintf("is %.6g, above %.6g", *v, *most)})
		}
	}
	return broken, unknown
}

func (s *SLO) complain(c *complaints) {
	for _, l := range limits {
		v := l.of(s)
		if v == nil {
			continue
		}
		if l.zero {
			c.unless(upTo(*v, math.MaxFloat64), "slo."+l.key, "must be a limit from 0 on, not %v", *v)
		} else {
			c.unless(*v > 0 && upTo(*v, math.MaxFloat64), "slo."+l.key, "must be a limit above 0, not %v", *v)
		}
	}
}
