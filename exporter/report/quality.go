package report

import (
	"iter"
	"maps"
	"slices"

	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/timeline/waveform"
)

// Check counts what one check on the sound said of the requests that had sound.
// What was not measured is no pass.
type Check struct {
	Name        string `json:"check"`
	Passed      int    `json:"passed"`
	Failed      int    `json:"failed"`
	NotMeasured int    `json:"not_measured"`
	// FirstRequest and FirstReason are of the first request that failed it.
	FirstRequest string `json:"first_request"`
	FirstReason  string `json:"first_reason"`
}

// AddQuality adds the quality gate: a line a check. An error that the iterator
// yields counts as an unreadable line.
func (r *Report) AddQuality(lines iter.Seq2[*timeline.QualityLine, error]) {
	checks := map[string]*Check{}
	for l, err := range lines {
		if err != nil {
			r.Unreadable++
			if len(r.Problems) < maxProblems {
				r.Problems = append(r.Problems, err.Error())
			}
			continue
		}
		for _, f := range l.Checks {
			if checks[f.Name] == nil {
				checks[f.Name] = &Check{Name: f.Name}
			}
			checks[f.Name].add(l.RequestID, f)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		r.Checks = append(r.Checks, *checks[name])
	}
}

func (c *Check) add(request string, f waveform.Finding) {
	switch f.Verdict {
	case waveform.Passed:
		c.Passed++
	case waveform.Failed:
		if c.Failed++; c.Failed == 1 {
			c.FirstRequest, c.FirstReason = request, f.Reason
		}
	default: // anything else was not measured
		c.NotMeasured++
	}
}

// gate is the table of the checks.
func (r Report) gate() string {
	t := newTable(1, "check on the sound", "passed", "failed", "not measured")
	for _, c := range r.Checks {
		t.AppendRow([]any{c.Name, c.Passed, c.Failed, c.NotMeasured})
	}
	return t.Render()
}

// failures says of each check that failed where it did first.
func (r Report) failures() (out []string) {
	for _, c := range r.Checks {
		if c.Failed > 0 {
			out = append(out, c.Name+" failed first in "+c.FirstRequest+": "+c.FirstReason)
		}
	}
	return out
}
