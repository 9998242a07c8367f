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

// finite fails where a sample is NaN or infinite; measured in samples.
func (s *Stream) finite() Finding {
	if s.bad > 0 {
		return failed("finite", s.badAt, float64(s.bad), 0, "%d samples are NaN or infinite", s.bad)
	}
	return passed("finite", 0, 0)
}
