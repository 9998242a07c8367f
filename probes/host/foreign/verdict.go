package foreign

import (
	"fmt"
)

// DefaultLimit is how many cores others may take at their peak (contract section 6).
const DefaultLimit = 2.0

// Verdict is what foreign CPU use says of a run.
type Verdict string

// The verdicts. A run that was not measured is not clean.
const (
	Clean        Verdict = "clean"
	Contaminated Verdict = "contaminated"
	NotMeasured  Verdict = "not_measured"
)

// Peak is the window in which others took most, in cores.
type Peak struct {
	Cores     float64 `json:"cores"`
	LowCores  float64 `json:"low_cores"`
	HighCores float64 `json:"high_cores"`
	// StartMonoNS and EndMonoNS are the window's.
	StartMonoNS int64  `json:"start_mono_ns"`
	EndMonoNS   int64  `json:"end_mono_ns"`
	CPUSet      string `json:"cpuset"`
}

// Summary is what all windows say together.
type Summary struct {
	// Windows counts all windows, Failed those without foreign time, Late those more
	// than half as long again as they should be: a peak inside of one is flattened.
	Windows int `json:"windows"`
	Failed  int `json:"failed"`
	Late    int `json:"late"`
	// MeasuredS is how many seconds have a value. MeanCores is over them.
	MeasuredS float64  `json:"measured_s"`
	MeanCores *float64 `json:"mean_cores"`
	// Peak is the dearest window, nil where none was measured.
	Peak *Peak `json:"peak"`
	// LateCores is what others may have taken during one window's time inside of a late
	// one, at worst; nil without late windows.
	LateCores *float64 `json:"late_cores"`
	// SampleS is how long all samples took to read.
	SampleS float64 `json:"sample_s"`
	// Reason says why a window, or all, could not be measured.
	Reason string `json:"reason,omitempty"`

	foreignS float64
}

// add takes a window in.
func (s *Summary) add(w *Window) {
	s.Windows++
	s.SampleS += float64(w.SampleNS) / 1e9
	if w.ForeignCores == nil {
		s.Failed++
		if s.Reason == "" {
			s.Reason = w.Unmeasured["foreign_cores"]
		}
		return
	}
	long, full := w.EndMonoNS-w.StartMonoNS, w.WindowNS
	seconds := float64(long) / 1e9
	s.MeasuredS += seconds
	s.foreignS += seconds * *w.ForeignCores
	mean := s.foreignS / s.MeasuredS
	s.MeanCores = &mean
	if long > full+full/2 {
		s.Late++
		// All of it may have happened within one window's time, but no CPU can run twice.
		most := min(*w.ForeignCores*float64(long)/float64(full), float64(w.CPUs))
		if s.LateCores == nil || most > *s.LateCores {
			s.LateCores = &most
		}
	}
	// The last window may be short: a peak is over a whole window's time.
	part := min(1, float64(long)/float64(full))
	if s.Peak == nil || *w.ForeignCores*part > s.Peak.Cores {
		s.Peak = &Peak{
			Cores: *w.ForeignCores * part, LowCores: *w.ForeignLowCores * part, HighCores: *w.ForeignHighCores * part,
			StartMonoNS: w.StartMonoNS, EndMonoNS: w.EndMonoNS, CPUSet: w.CPUSet,
		}
	}
}

// Judge says whether others took more than limit cores in any window, and why it says
// so. One window above the limit is enough; clean is a run of which every window was
// measured.
func (s Summary) Judge(limit float64) (Verdict, string) {
	switch {
	case !(limit >= 0):
		return NotMeasured, fmt.Sprintf("%v cores are no limit", limit)
	case s.Peak == nil && s.Reason != "":
		return NotMeasured, "foreign CPU use was not measured: " + s.Reason
	case s.Peak == nil:
		return NotMeasured, "foreign CPU use was not measured: no window ended"
	case s.Peak.Cores > limit:
		return Contaminated, fmt.Sprintf("other processes took %s of the server's CPUs %s at their peak, over the limit of %g", s.Peak, s.Peak.CPUSet, limit)
	case s.Failed > 0:
		return NotMeasured, fmt.Sprintf("%d of %d windows have no foreign CPU use: %s", s.Failed, s.Windows, s.Reason)
	case s.LateCores != nil && *s.LateCores > limit:
		return NotMeasured, fmt.Sprintf("%d of %d windows came late: others may have taken %.2f cores inside of one, over the limit of %g", s.Late, s.Windows, *s.LateCores, limit)
	}
	return Clean, fmt.Sprintf("other processes took %s of the server's CPUs %s at their peak, within the limit of %g", s.Peak, s.Peak.CPUSet, limit)
}

// String is "1.25 cores (1.10 to 1.40)".
func (p *Peak) String() string {
	return fmt.Sprintf("%.2f cores (%.2f to %.2f)", p.Cores, p.LowCores, p.HighCores)
}

// copy is a summary that shares nothing.
func (s *Summary) copy() Summary {
	out := *s
	for _, p := range []**float64{&out.MeanCores, &out.LateCores} {
		if *p != nil {
			v := **p
			*p = &v
		}
	}
	if s.Peak != nil {
		peak := *s.Peak
		out.Peak = &peak
	}
	return out
}
