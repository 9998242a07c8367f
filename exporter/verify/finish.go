package verify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/verify/internal/shape"
)

// finish tells what only the whole run tells.
func (v *verifier) finish() {
	v.written()
	v.addUp()
	v.orphans()
	v.versions()
	v.lacking(rundir.RequestsFile, v.requests)
	v.lacking(rundir.SessionsFile, v.sessionLines)
	v.lacking(rundir.QualityFile, v.qualityLines)
	c := &v.res.Counts
	switch {
	case v.counted[rundir.RequestsFile].lines == 0:
		v.say(Error, KindLost, rundir.RequestsFile, 0, "no requests: there is nothing to verify")
	case c.States[success] == 0:
		v.say(Note, KindLost, rundir.RequestsFile, 0, "no request succeeded: there is no latency to speak of")
	}
	v.derivable()
}

// orphans tells of events that no record has. A session's opening has none of its own.
func (v *verifier) orphans() {
	var left []*group
	for id, list := range v.groups.open {
		if v.opened[id] > 0 {
			continue
		}
		left = append(left, list...)
	}
	slices.SortFunc(left, func(a, b *group) int { return cmp.Compare(a.events[0].line, b.events[0].line) })
	level := Error
	if v.meta.End == nil { // it was open when the process died
		level = Note
	}
	for _, g := range left {
		v.res.add(Finding{
			Level: level, Kind: KindOrphan, File: rundir.EventsFile, Line: int(g.events[0].line), RequestID: g.id,
			Text: fmt.Sprintf("%s from here on, and no record of it in %s", plural(int64(len(g.events)), "event"), rundir.RequestsFile),
		})
	}
}

// versions tells of lines of different schema versions beside each other.
func (v *verifier) versions() {
	if len(v.other) == 0 {
		return
	}
	c := &v.res.Counts
	var found []string
	if n := c.Requests + c.Sessions + c.Quality; n > 0 {
		found = append(found, fmt.Sprintf("%d in %s", version, plural(n, "line")))
	}
	for _, n := range slices.Sorted(maps.Keys(v.other)) {
		found = append(found, fmt.Sprintf("%d in %s", n, plural(v.other[n], "line")))
	}
	if len(found) > 1 {
		v.say(Error, KindVersion, "", 0, "lines of different schema versions: %s", strings.Join(found, ", "))
	}
}

// lacking tells of members that lines lack. What no line of a run has was added to the
// schema when the run was there already; what some have was taken out of the others.
func (v *verifier) lacking(file string, c *shape.Checker) {
	for _, l := range c.Lacking() {
		if l.Had > 0 {
			v.say(Error, KindSchema, file, l.First, "%s is missing, here and in %s more", l.Path, plural(l.Lacked-1, "place"))
			continue
		}
		v.say(Note, KindSchema, file, l.First, "%s is missing in all of the file: it was written by an older program", l.Path)
	}
}

// derivable lists what cannot be derived, and what is no measurement.
func (v *verifier) derivable() {
	for path, reason := range why {
		if older, ok := whyOlder[path]; ok && v.meta.EventForm < wordsForm {
			reason = older
		}
		n := v.requests.Present(path)
		switch {
		case reason == "" || n == 0:
		case reason == told:
			v.res.Told = append(v.res.Told, path)
		default:
			v.missing[Missing{Field: path, Why: reason}] += n
		}
	}
	slices.Sort(v.res.Told)
	for m, n := range v.missing {
		m.Values = n
		v.res.NotDerivable = append(v.res.NotDerivable, m)
	}
	slices.SortFunc(v.res.NotDerivable, func(a, b Missing) int {
		return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(a.Why, b.Why))
	})
}
