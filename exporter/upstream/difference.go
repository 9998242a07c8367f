package upstream

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Difference is what a server counted between its first scrape and its last.
type Difference struct {
	// FromNS and ToNS are the CLOCK_MONOTONIC nanoseconds of the two, 0 where not known;
	// Scrapes is how many of them were good, Failed how many were not.
	FromNS  int64 `json:"from_ns"`
	ToNS    int64 `json:"to_ns"`
	Scrapes int   `json:"scrapes"`
	Failed  int   `json:"failed"`
	// Incomplete says why the figures are not those of the whole run, empty where they are.
	Incomplete string `json:"incomplete,omitempty"`
	// Restarts is how often the server was seen to have been started anew.
	Restarts int     `json:"restarts"`
	Deltas   []Delta `json:"deltas"`
	// Problems are errors of scrapes, each once.
	Problems []string `json:"problems,omitempty"`
}

// Delta is what happened to one series. For a counter Increase, for a histogram or summary
// Count and Sum (and Buckets, cumulative) are increases; a gauge or untyped one has First,
// Last, Min and Max over the scrapes.
type Delta struct {
	Name   string            `json:"name"`
	Type   Type              `json:"type"`
	Labels map[string]string `json:"labels,omitempty"`

	Increase *Number  `json:"increase,omitempty"`
	Count    *Number  `json:"count,omitempty"`
	Sum      *Number  `json:"sum,omitempty"`
	Buckets  []Bucket `json:"buckets,omitempty"`

	First *Number `json:"first,omitempty"`
	Last  *Number `json:"last,omitempty"`
	Min   *Number `json:"min,omitempty"`
	Max   *Number `json:"max,omitempty"`
	// Resets is how often it began again at 0: what it had counted since the scrape before
	// is lost, so its increase is a lower bound.
	Resets int `json:"resets,omitempty"`
	// Gone says that the last scrape does not have it.
	Gone bool `json:"gone,omitempty"`
}

const processStart = "process_start_time_seconds"

// Between adds up what scrapes say, which are whole and in the order of their time (Read
// gives them so). A series that is not there in the first good scrape counts from 0: servers
// make one when they first use its labels.
func Between(scrapes []Scrape) Difference {
	d := Difference{Deltas: []Delta{}}
	tracks := map[string]*Delta{}
	var prev map[string]Series
	var first, last *Scrape
	for i := range scrapes {
		s := &scrapes[i]
		if s.Error != "" {
			d.Failed++
			if !slices.Contains(d.Problems, s.Error) && len(d.Problems) < maxProblems {
				d.Problems = append(d.Problems, s.Error)
			}
			continue
		}
		d.Scrapes++
		cur := make(map[string]Series, len(s.Series))
		for _, x := range s.Series {
			cur[x.key()] = x
		}
		if first == nil {
			first = s
		} else if restarted(prev, cur) {
			d.Restarts++
		}
		advance(tracks, prev, cur)
		last, prev = s, cur
	}
	d.Incomplete = incomplete(first, last)
	if first != nil {
		d.FromNS, d.ToNS = first.MonoNS, last.MonoNS
	}
	for k, t := range tracks {
		_, there := prev[k]
		t.Gone = !there
		d.Deltas = append(d.Deltas, *t)
	}
	slices.SortFunc(d.Deltas, func(a, b Delta) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(labelKey(a.Labels), labelKey(b.Labels)))
	})
	return d
}

func incomplete(first, last *Scrape) string {
	switch {
	case first == nil:
		return "no scrape was good"
	case first.Phase != Before:
		return "the scrape ahead of the load failed: what was counted until the first good one is missing"
	case last.Phase != After:
		return "the scrape behind the load failed: what was counted since the last good one is missing"
	}
	return ""
}

// restarted says that the server is another process than it was, or has forgotten what it
// counted.
func restarted(prev, cur map[string]Series) bool {
	if p, c := prev[processStart], cur[processStart]; p.Value != nil && c.Value != nil && *p.Value != *c.Value {
		return true
	}
	for k, c := range cur {
		if p, ok := prev[k]; ok && began(&p, &c, prev, cur) {
			return true
		}
	}
	return false
}

// advance takes the tracks from one scrape to the next; prev is nil for the first.
func advance(tracks map[string]*Delta, prev, cur map[string]Series) {
	anew := prev != nil && restarted(prev, cur)
	for k, c := range cur {
		t, seen := tracks[k]
		if !seen {
			t = &Delta{Name: c.Name, Type: c.Type, Labels: c.Labels}
			tracks[k] = t
		}
		p, had := prev[k]
		switch {
		case c.Type == Gauge || c.Type == Untyped:
			t.gauge(c.Value)
			continue
		case prev == nil:
			p = c // its increase is 0
		case !had || p.Type != c.Type:
			p = Series{} // from 0: new, or back again
			if seen {
				t.Resets++
			}
		case anew && reset(&p, &c, prev, cur):
			p = Series{}
			t.Resets++
		}
		t.add(&p, &c)
	}
}

// reset says whether, in a server that has begun anew, this series has: one whose value and
// time of creation are as they were was not touched.
func reset(p, c *Series, prev, cur map[string]Series) bool {
	if began(p, c, prev, cur) {
		return true
	}
	a, b := prev[processStart], cur[processStart]
	return a.Value != nil && b.Value != nil && *a.Value != *b.Value
}

// began says that the series itself shows that it began again: it fell, or was created anew.
func began(p, c *Series, prev, cur map[string]Series) bool {
	switch c.Type {
	case Counter:
		if p.Value != nil && c.Value != nil && *c.Value < *p.Value {
			return true
		}
	case Histogram, Summary:
		if p.Count != nil && c.Count != nil && *c.Count < *p.Count {
			return true
		}
	default:
		return false
	}
	k := created(c)
	x, y := prev[k], cur[k]
	return x.Value != nil && y.Value != nil && *x.Value != *y.Value
}

// created is the key of the series that says when c was created.
func created(c *Series) string {
	return (&Series{Name: strings.TrimSuffix(c.Name, "_total") + "_created", Labels: c.Labels}).key()
}

func (d *Delta) gauge(v *Number) {
	if v == nil {
		return
	}
	if d.First == nil {
		d.First, d.Min, d.Max = v, v, v
	}
	d.Last = v
	if *v < *d.Min {
		d.Min = v
	}
	if *v > *d.Max {
		d.Max = v
	}
}

// add adds what c has beyond p, which is empty for a beginning at 0.
func (d *Delta) add(p, c *Series) {
	fresh := d.Increase == nil && d.Count == nil
	d.Increase = plus(d.Increase, p.Value, c.Value)
	d.Count = plus(d.Count, p.Count, c.Count)
	d.Sum = plus(d.Sum, p.Sum, c.Sum)
	if !fresh && !sameBounds(d.Buckets, c.Buckets) {
		d.Buckets = nil
		return
	}
	if fresh {
		d.Buckets = make([]Bucket, len(c.Buckets))
		for i, b := range c.Buckets {
			d.Buckets[i].LE = b.LE
		}
	}
	for i := range d.Buckets {
		d.Buckets[i].Count += c.Buckets[i].Count
		if sameBounds(p.Buckets, c.Buckets) {
			d.Buckets[i].Count -= p.Buckets[i].Count
		}
	}
}

func sameBounds(a, b []Bucket) bool {
	return slices.EqualFunc(a, b, func(x, y Bucket) bool { return x.LE == y.LE })
}

func plus(sum, p, c *Number) *Number {
	if c == nil {
		return sum
	}
	v := *c
	if p != nil {
		v -= *p
	}
	if sum != nil {
		v += *sum
	}
	return &v
}

func labelKey(m map[string]string) string { return (&Series{Labels: m}).key() }

// values are the series of a state, in order.
func values(state map[string]Series) []Series {
	out := make([]Series, 0, len(state))
	for _, k := range slices.Sorted(maps.Keys(state)) {
		out = append(out, state[k])
	}
	return out
}

// String names a series for a text: its labels in braces.
func (d Delta) String() string {
	if len(d.Labels) == 0 {
		return d.Name
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(d.Labels)) {
		parts = append(parts, fmt.Sprintf("%s=%q", k, d.Labels[k]))
	}
	return d.Name + "{" + strings.Join(parts, ",") + "}"
}
