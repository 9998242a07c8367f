package timeline

import (
	"slices"
	"strings"

	"github.com/omnitap/omnitap/proxy/timeline/waveform"
)

// checks fills in the verdict over the invariants that were looked at.
func (b *Builder) checks(r *Record, f *facts) {
	r.Quality = Quality{Verdict: "not_measured", Failed: []string{}, NotMeasured: []string{}}
	if b.snd == nil || r.Audio == nil {
		return
	}
	r.Quality.Checks = f.findings
	if reason := b.unreliable(r); reason != "" {
		r.Quality.Checks = nil
		for _, name := range CheckNames() {
			r.Quality.Checks = append(r.Quality.Checks, unmeasured(name, reason))
		}
	}
	r.Quality.Add(nil)
}

// Add adds findings and draws the verdict anew.
func (q *Quality) Add(more []waveform.Finding) {
	q.Checks = slices.Concat(q.Checks, more)
	slices.SortStableFunc(q.Checks, func(a, b waveform.Finding) int { return strings.Compare(a.Name, b.Name) })
	q.Failed, q.NotMeasured = named(q.Checks, waveform.Failed), named(q.Checks, waveform.NotMeasured)
	switch {
	case len(q.Failed) > 0:
		q.Verdict = "failed"
	case len(q.NotMeasured) < len(q.Checks):
		q.Verdict = "passed"
	}
}

// unreliable says why the checks say nothing of this sound, if they do not.
func (b *Builder) unreliable(r *Record) string {
	switch {
	case b.analysis != "full" && !b.askLost:
		return "the sound was not seen in full"
	case r.Audio.Samples == nil:
		return "the samples cannot be counted"
	}
	return ""
}
