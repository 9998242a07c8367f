package experiment

import (
	"fmt"
	"time"
)

// Stop says when a run ends early. A condition that is not set never holds.
type Stop struct {
	// Requests and Duration end a run once so much was measured.
	Requests int           `yaml:"requests"`
	Duration time.Duration `yaml:"duration"`
	// FailureRate ends it when more than that share of the measured attempts has failed,
	// looked at from After attempts on; 0 is at the first failure, nil never.
	FailureRate *float64 `yaml:"failure_rate"`
	After       int      `yaml:"after"`
	// WorkerLost ends it when a stage's process was lost, Contaminated when foreign CPU
	// use has passed the limit.
	WorkerLost   bool `yaml:"worker_lost"`
	Contaminated bool `yaml:"contaminated"`
}

// Progress is how far the measured part of a run has come.
type Progress struct {
	// Ended is how many attempts have ended, Failed how many of them without success,
	// WorkerLost how many with that state.
	Ended, Failed, WorkerLost int
	// Elapsed is since the measured part began.
	Elapsed time.Duration
	// ForeignCores is the peak of foreign CPU use so far, nil where it is not known.
	ForeignCores *float64
}

// Reached says whether a stop condition of the experiment holds, and which.
func (e Experiment) Reached(p Progress) (why string, stop bool) {
	s := e.Stop
	switch {
	case s.WorkerLost && p.WorkerLost > 0:
		return "a stage's process was lost", true
	case s.FailureRate != nil && p.Ended > 0 && p.Ended >= s.After && float64(p.Failed) > *s.FailureRate*float64(p.Ended):
		return tooMany(p.Failed, p.Ended, *s.FailureRate), true
	case s.Contaminated && p.ForeignCores != nil && *p.ForeignCores > e.ForeignCoresLimit:
		return fmt.Sprintf("other processes used %.2f cores, more than %v", *p.ForeignCores, e.ForeignCoresLimit), true
	case s.Requests > 0 && p.Ended >= s.Requests:
		return fmt.Sprintf("%d requests were measured", p.Ended), true
	case s.Duration > 0 && p.Elapsed >= s.Duration:
		return fmt.Sprintf("it had lasted for %v", p.Elapsed.Round(time.Millisecond)), true
	}
	return "", false
}

func (s *Stop) complain(c *complaints) {
	c.unless(s.Requests >= 0 && s.Requests <= maxRequests, "stop.requests", "must lie between 0 and %d, not %d", maxRequests, s.Requests)
	c.unless(s.Duration >= 0, "stop.duration", "must not be negative, it is %v", s.Duration)
	c.unless(s.FailureRate == nil || upTo(*s.FailureRate, 1), "stop.failure_rate", "must be a share from 0 to 1")
	c.unless(s.After >= 1 && s.After <= maxRequests, "stop.after", "must lie between 1 and %d, not %d", maxRequests, s.After)
}
