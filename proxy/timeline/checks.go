package timeline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/proxy/timeline/waveform"
	"github.com/omnitap/omnitap/proxy/wire/audio"
)

// ownChecks are the invariants that headers, events and whole chunks tell; those
// of the samples are waveform's.
var ownChecks = []string{
	"declared_total", "embedded_header", "format_constant", "over_length", "rate_agrees", "silence", "whole_frames",
}

// CheckNames lists the invariants of the sound that are looked at, sorted.
func CheckNames() []string {
	return slices.Sorted(slices.Values(slices.Concat(ownChecks, waveform.Names())))
}

// checkOf maps a problem to the check that it fails.
var checkOf = map[string]string{
	"format_change": "format_constant", "container_change": "format_constant", "rate_conflict": "rate_agrees",
	string(audio.EmbeddedHeader): "embedded_header",
}

// trouble lists what of the sound could not be decoded as declared. whole says
// that the stream came to its end.
func (s *sound) trouble(whole bool) []trouble {
	var out []trouble
	for _, p := range s.problems {
		switch audio.Problem(p.kind) {
		case audio.HeaderInconsistent, audio.FormatMismatch:
			out = append(out, trouble{p.kind, p.detail})
		default: // faults of quality, or notes
		}
	}
	if f := s.wholeFrames(whole); f.Verdict == waveform.Failed {
		out = append(out, trouble{"partial_frame", f.Reason})
	}
	return out
}

// wholeFrames wants the stream, and each file in it, to end with a whole sample
// frame. A chunk may end amid one: the rest comes with the next. Measured are the
// chunks that do.
func (s *sound) wholeFrames(whole bool) waveform.Finding {
	const name = "whole_frames"
	fb := int64(s.format.FrameBytes())
	switch {
	case s.bytes == 0 || fb == 0:
		return unmeasured(name, "no samples")
	case !whole:
		return unmeasured(name, "the stream did not come to its end")
	}
	f := waveform.Finding{Name: name, Verdict: waveform.Passed, Measured: new(float64(s.splitChunks))}
	if over := (s.bytes - s.fileStart) % fb; over != 0 || s.badFrames > 0 {
		f.Verdict, f.Reason = waveform.Failed, fmt.Sprintf("%d bytes beyond whole frames", over)
		if s.badFrames > 0 {
			f.Reason += fmt.Sprintf(", and %d files ended amid a frame", s.badFrames)
		}
	} else if s.splitChunks > 0 {
		f.Reason = fmt.Sprintf("%d chunks end amid a frame, which the next one goes on with", s.splitChunks)
	}
	return f
}

// findings says of each check what it found, sorted by name. whole says that the
// stream came to its end; chars is how many characters were to be spoken, 0 for
// unknown.
func (s *sound) findings(whole bool, chars int) []waveform.Finding {
	w := s.wave
	if w == nil {
		w = waveform.New(s.cfg.Checks)
	}
	out := append(w.Findings(whole), s.total(whole), s.heard(whole), s.length(chars), s.wholeFrames(whole))
	for _, name := range ownChecks {
		switch name {
		case "declared_total", "over_length", "silence", "whole_frames":
		default:
			out = append(out, s.problem(name))
		}
	}
	slices.SortFunc(out, func(a, b waveform.Finding) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// problem judges a check by the problems noted; measured is their number. Where
// there was nothing to look at it is not measured.
func (s *sound) problem(name string) waveform.Finding {
	f := s.noted(name)
	switch {
	case f.Verdict == waveform.Failed:
	case s.bytes == 0:
		return unmeasured(name, "no samples")
	case name == "rate_agrees" && s.rateSources < 2:
		return unmeasured(name, "fewer than two declare a rate")
	}
	return f
}

func (s *sound) noted(name string) waveform.Finding {
	f := waveform.Finding{Name: name, Verdict: waveform.Passed, Measured: new(float64), Threshold: new(float64)}
	for _, p := range s.problems {
		if checkOf[p.kind] != name {
			continue
		}
		if f.Verdict == waveform.Passed {
			f.Verdict, f.Reason, f.Chunk = waveform.Failed, strings.TrimPrefix(p.kind+": "+p.detail, ": "), new(p.chunk)
		}
		*f.Measured++
	}
	return f
}

// total compares what came with what is declared; measured are the sample bytes
// beyond it, negative for missing ones.
func (s *sound) total(whole bool) waveform.Finding {
	const name = "declared_total"
	d, ok := s.declaredBytes()
	switch {
	case s.opaque > 0:
		return unmeasured(name, "the samples cannot be counted")
	case ok && d == 0 && s.bytes == 0:
		return unmeasured(name, "no samples")
	case !ok:
		return unmeasured(name, "nothing declares a total")
	case !whole: // what is missing may be late, or never have come
		return unmeasured(name, fmt.Sprintf("the stream did not come to its end: %d of %d sample bytes came", s.bytes, d))
	}
	f := waveform.Finding{Name: name, Verdict: waveform.Passed, Measured: new(float64(s.bytes - d)), Threshold: new(float64)}
	if d != s.bytes {
		f.Verdict = waveform.Failed
		f.Reason = fmt.Sprintf("%s declares %d sample bytes, %d came", s.declaredFrom(), d, s.bytes)
	}
	return f
}

// length holds the sound's length to what its text can take (case C24); measured in
// seconds a character. It also holds for a stream that was cut.
func (s *sound) length(chars int) waveform.Finding {
	const name = "over_length"
	limit := s.cfg.MaxSecondsPerChar
	frames, ok := s.frames()
	rate, _ := s.rate()
	switch {
	case limit <= 0:
		return unmeasured(name, "no bound is set (max_seconds_per_char)")
	case chars <= 0:
		return unmeasured(name, "what was to be spoken is not known")
	case !ok || frames == 0 || rate <= 0:
		return unmeasured(name, "no samples")
	}
	seconds := float64(frames) / float64(rate)
	f := waveform.Finding{Name: name, Verdict: waveform.Passed, Measured: new(seconds / float64(chars)), Threshold: &s.cfg.MaxSecondsPerChar}
	if seconds > limit*float64(chars) {
		f.Verdict = waveform.Failed
		f.Reason = fmt.Sprintf("%.3f s of sound for %d characters, %g s each at most", seconds, chars, limit)
	}
	return f
}

// heard wants something above the silence threshold.
func (s *sound) heard(whole bool) waveform.Finding {
	const name = "silence"
	frames, ok := s.frames()
	switch {
	case s.ear != nil && s.ear.found:
		return waveform.Finding{Name: name, Verdict: waveform.Passed, Threshold: &s.cfg.SilenceDBFS}
	case !whole:
		return unmeasured(name, "the stream did not come to its end")
	case !ok || frames == 0 || s.ear == nil:
		return unmeasured(name, "no samples")
	}
	return waveform.Finding{
		Name: name, Verdict: waveform.Failed, Threshold: &s.cfg.SilenceDBFS,
		Reason: fmt.Sprintf("none of %d sample frames is heard%s", frames, s.howQuiet()),
	}
}

// howQuiet tells digital silence from what is merely quiet.
func (s *sound) howQuiet() string {
	switch {
	case s.wave == nil:
		return ""
	case s.wave.Zero():
		return ": each is exactly 0"
	}
	return ": they are quiet, not 0"
}

func unmeasured(name, reason string) waveform.Finding {
	return waveform.Finding{Name: name, Verdict: waveform.NotMeasured, Reason: reason}
}

// named lists the checks with a verdict.
func named(list []waveform.Finding, v waveform.Verdict) []string {
	out := []string{}
	for _, f := range list {
		if f.Verdict == v {
			out = append(out, f.Name)
		}
	}
	return out
}

// declaredBytes returns the sample bytes that headers declare, if all of them
// do, or those that done events declare.
func (s *sound) declaredBytes() (int64, bool) {
	if s.doneUnits > 0 && s.files == 0 {
		return s.doneBytes, !s.doneBad && s.opaque == 0
	}
	return s.declared, s.files > 0 && s.declaredAll
}

// declaredFrom names what declares the total.
func (s *sound) declaredFrom() string {
	if s.files == 0 {
		return "done_event"
	}
	return "wav_header"
}
