package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/exporter/stats"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// Alike compares the lengths of sound that successes with one and the same
// request body got: a server that cuts sound under load looks faster, and every
// request looks well (case C25).
type Alike struct {
	Flow string `json:"flow"`
	// Body begins the hash of the request body.
	Body string `json:"request_sha256"`
	N    int    `json:"n"`
	// MedianS, MinS and MaxS are seconds of sound.
	MedianS float64 `json:"median_s"`
	MinS    float64 `json:"min_s"`
	MaxS    float64 `json:"max_s"`
	// Outliers are the requests whose sound is shorter or longer than the others':
	// by over 5 % of the median, and by over four times what the group differs by
	// (the median absolute deviation, scaled to a standard deviation).
	Outliers []Outlier `json:"outliers"`
}

// Outlier is a request whose length of sound differs from its group's.
type Outlier struct {
	RequestID string  `json:"request_id"`
	AudioS    float64 `json:"audio_s"`
	// Share is the difference from the median as a share of it.
	Share float64 `json:"share"`
}

const (
	// alikeMin is how many requests make a group that says something.
	alikeMin = 4
	// alikeShare and alikeSpread are the bounds of an outlier.
	alikeShare  = 0.05
	alikeSpread = 4
	// madScale makes a standard deviation of the median absolute deviation of
	// normal values.
	madScale = 1.4826
	// maxAlike bounds the requests that are kept for it.
	maxAlike = 1 << 17
)

type twinKey struct{ flow, body string }

type length struct {
	id      string
	seconds float64
}

// lengths collects the lengths of sound by request body.
type lengths struct {
	of map[twinKey][]length
	n  int
}

func (l *lengths) add(r *timeline.Record) {
	if r.Terminal.State != timeline.Success || r.AudioS == nil || r.RequestSHA256 == nil || l.n >= maxAlike {
		return
	}
	if l.of == nil {
		l.of = map[twinKey][]length{}
	}
	k := twinKey{r.Flow, *r.RequestSHA256}
	l.of[k] = append(l.of[k], length{r.RequestID, *r.AudioS})
	l.n++
}

// groups returns the groups that are large enough, by flow and body.
func (l *lengths) groups() []Alike {
	out := []Alike{}
	for k, v := range l.of {
		if len(v) >= alikeMin {
			out = append(out, alike(k, v))
		}
	}
	slices.SortFunc(out, func(a, b Alike) int { return cmp.Or(strings.Compare(a.Flow, b.Flow), strings.Compare(a.Body, b.Body)) })
	return out
}

func alike(k twinKey, v []length) Alike {
	seconds := make([]float64, len(v))
	for i := range v {
		seconds[i] = v[i].seconds
	}
	mid := stats.Summarize(slices.Clone(seconds)).P50
	a := Alike{Flow: k.flow, Body: k.body[:min(12, len(k.body))], N: len(v), MedianS: mid, MinS: slices.Min(seconds), MaxS: slices.Max(seconds), Outliers: []Outlier{}}
	off := make([]float64, len(v))
	for i, s := range seconds {
		off[i] = math.Abs(s - mid)
	}
	bound := max(alikeShare*mid, alikeSpread*madScale*stats.Summarize(off).P50)
	for _, x := range v {
		if math.Abs(x.seconds-mid) > bound {
			a.Outliers = append(a.Outliers, Outlier{x.id, x.seconds, (x.seconds - mid) / mid})
		}
	}
	slices.SortFunc(a.Outliers, func(a, b Outlier) int {
		return cmp.Or(cmp.Compare(a.Share, b.Share), strings.Compare(a.RequestID, b.RequestID))
	})
	return a
}

// alikes is the table of the groups.
func (r Report) alikes() string {
	t := newTable(2, "same request body", "flow", "n", "audio p50 s", "min s", "max s", "spread %", "outliers")
	for _, a := range r.Alike {
		t.AppendRow([]any{a.Body, a.Flow, a.N, number(a.MedianS, 3), number(a.MinS, 3), number(a.MaxS, 3), number(100*(a.MaxS-a.MinS)/a.MedianS, 1), len(a.Outliers)})
	}
	return t.Render()
}

// maxOutliers bounds the outliers that a note names.
const maxOutliers = 5

// outlierNotes names the outliers of each group.
func (r Report) outlierNotes() (out []string) {
	for _, a := range r.Alike {
		if len(a.Outliers) == 0 {
			continue
		}
		var names []string
		for _, o := range a.Outliers[:min(maxOutliers, len(a.Outliers))] {
			names = append(names, fmt.Sprintf("%s %+.1f %%", o.RequestID, 100*o.Share))
		}
		if more := len(a.Outliers) - len(names); more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		out = append(out, fmt.Sprintf("%s %s: %d of %d successes have sound of another length than the rest (%s): their RTF and throughput say nothing beside the others'.",
			a.Flow, a.Body, len(a.Outliers), a.N, strings.Join(names, ", ")))
	}
	return out
}
