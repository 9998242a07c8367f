package waveform

import "fmt"

func passed(name string, measured, threshold float64) Finding {
	return Finding{Name: name, Verdict: Passed, Measured: &measured, Threshold: &threshold}
}

func failed(name string, at place, measured, threshold float64, format string, args ...any) Finding {
	return Finding{
		Name: name, Verdict: Failed, Reason: fmt.Sprintf(format, args...),
		Chunk: &at.chunk, Sample: &at.frame, Measured: &measured, Threshold: &threshold,
	}
}

func notMeasured(name, reason string) Finding {
	return Finding{Name: name, Verdict: NotMeasured, Reason: reason}
}

// finite fails where a sample is NaN or infinite; measured in frames.
func (s *Stream) finite() Finding {
	if s.badFrames > 0 {
		return failed("finite", s.badAt, float64(s.badFrames), 0, "%d blocks of sample frames hold NaN or infinity", s.badFrames)
	}
	return passed("finite", 0, 0)
}
