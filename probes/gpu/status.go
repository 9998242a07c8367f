package gpu

import "maps"

// States of a sampler.
const (
	StateStarting    = "starting"
	StateSampling    = "sampling"
	StateUnavailable = "unavailable" // tried again later
	StateGivenUp     = "given_up"    // tried often enough
	StateStuck       = "stuck"       // a call does not return
)

// Status is how the sampling goes, and what it costs.
type Status struct {
	State string `json:"state"`
	// Reason says why no card is sampled, "" while they are.
	Reason  string `json:"reason,omitempty"`
	Driver  string `json:"driver,omitempty"`
	NVML    string `json:"nvml,omitempty"`
	Devices int    `json:"devices"`
	// Lost are the devices that are gone, with the reasons.
	Lost map[string]string `json:"lost,omitempty"`
	// Tries is how often in a row the library could not be used.
	Tries      int   `json:"tries"`
	IntervalNS int64 `json:"interval_ns"`
	Samples    int64 `json:"samples"`
	// Overruns are samples that took longer than the interval.
	Overruns int64 `json:"overruns"`
	// BusySinceNS is when the sample that is under way began, 0 between samples: a call
	// that hangs shows here (CLOCK_MONOTONIC).
	BusySinceNS int64 `json:"busy_since_mono_ns"`
	// TookNS is how long samples took in all, TookMaxNS the longest; CPUNS the CPU time
	// of the sampler's thread in them, nil where threads have no clock. Divide by
	// Samples.
	TookNS    int64  `json:"took_ns"`
	TookMaxNS int64  `json:"took_max_ns"`
	CPUNS     *int64 `json:"cpu_ns"`
}

// Status returns how it goes. The caller may keep it.
func (s *Sampler) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.status
	out.Lost = maps.Clone(out.Lost)
	if out.CPUNS != nil {
		out.CPUNS = new(*out.CPUNS)
	}
	return out
}

func (s *Sampler) available(v Version, readers []*reader) {
	s.mu.Lock()
	s.status.State, s.status.Reason, s.status.Tries = StateSampling, "", 0
	s.status.Driver, s.status.NVML, s.status.Devices = v.Driver, v.NVML, len(readers)
	s.mu.Unlock()
	s.log.Info("sampling GPUs", "devices", len(readers), "driver", v.Driver)
}

// unavailable puts down why the library cannot be used, and logs it when the reason is
// a new one.
func (s *Sampler) unavailable(err error, tries int) {
	s.mu.Lock()
	told := s.status.Reason == err.Error()
	s.status.State, s.status.Reason, s.status.Tries = StateUnavailable, err.Error(), tries
	if tries == maxTries {
		s.status.State = StateGivenUp
	}
	s.status.Devices, s.status.Lost, s.status.BusySinceNS = 0, nil, 0
	s.mu.Unlock()
	if !told {
		s.log.Info("GPUs are not sampled", "reason", err.Error())
	}
}

func (s *Sampler) busy(since int64) {
	s.mu.Lock()
	s.status.BusySinceNS = since
	s.mu.Unlock()
}

// took counts a sample, and says whether anybody still takes it.
func (s *Sampler) took(out *Sample) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.status
	t.BusySinceNS = 0
	t.Samples++
	t.TookNS += out.TookNS
	t.TookMaxNS = max(t.TookMaxNS, out.TookNS)
	if out.TookNS > t.IntervalNS {
		t.Overruns++
	}
	if out.CPUNS != nil {
		if t.CPUNS == nil {
			t.CPUNS = new(int64(0))
		}
		*t.CPUNS += *out.CPUNS
	}
	t.Lost = nil
	for i := range out.Devices {
		if d := &out.Devices[i]; d.Lost != "" {
			if t.Lost == nil {
				t.Lost = map[string]string{}
			}
			t.Lost[d.Name] = d.Lost
		}
	}
	return !s.over
}
