package verify

import (
	"maps"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/verify/internal/scan"
)

// qualities are the lines of quality.jsonl that were read ahead of their records.
type qualities struct {
	lines *lines // nil where there is no file
	over  bool
	held  map[string][]qualityLine
}

// qualityLine is the names of the checks of one line, by verdict, joined with commas.
type qualityLine struct {
	failed, notMeasured name
	checks, open        int // how many there are, and how many were not measured
	line                int
}

// take returns the line of a request, nil for none.
func (q *qualities) take(v *verifier, id string) *qualityLine {
	for n := 0; len(q.held[id]) == 0; n++ {
		if n >= lookahead || q.over || q.lines == nil {
			return nil
		}
		q.read(v)
	}
	list := q.held[id]
	if len(list) == 1 {
		delete(q.held, id)
	} else {
		q.held[id] = list[1:]
	}
	return &list[0]
}

// rest reads what is left, and tells the lines that no record with sound has.
func (q *qualities) rest(v *verifier) {
	if q.lines == nil {
		return
	}
	for !q.over {
		q.read(v)
	}
	q.lines.close()
	for _, id := range slices.Sorted(maps.Keys(q.held)) {
		for _, l := range q.held[id] {
			v.res.add(Finding{
				Level: Error, Kind: KindOrphan, File: rundir.QualityFile, Line: l.line, RequestID: id,
				Text: "a line of quality without a record that holds sound",
			})
		}
	}
}

// read takes one line.
func (q *qualities) read(v *verifier) {
	line := v.next(q.lines)
	if line == nil {
		q.over = true
		return
	}
	if !v.fits(v.qualityLines, q.lines, line) {
		return
	}
	id, l := parseQuality(line, v.names)
	l.line = q.lines.n
	v.res.Counts.Quality++
	if q.held == nil {
		q.held = map[string][]qualityLine{}
	}
	q.held[id] = append(q.held[id], l)
}

// parseQuality reads a line that fits its schema.
func parseQuality(line []byte, n *names) (id string, out qualityLine) {
	var failed, notMeasured []string
	r := scan.New(line)
	for r.Object(); ; {
		key, more := r.Key()
		switch {
		case !more:
			out.failed = n.number([]byte(strings.Join(failed, ",")))
			out.notMeasured = n.number([]byte(strings.Join(notMeasured, ",")))
			out.open = len(notMeasured)
			return id, out
		case string(key) == "request_id":
			id = string(r.String())
		case string(key) == "checks" && r.Peek() == scan.Array:
			for r.Array(); r.Element(); out.checks++ {
				switch check, verdict := parseCheck(r); verdict {
				case "failed":
					failed = append(failed, check)
				case "not_measured":
					notMeasured = append(notMeasured, check)
				}
			}
		default:
			r.Skip()
		}
	}
}

func parseCheck(r *scan.Reader) (check, verdict string) {
	for r.Object(); ; {
		key, more := r.Key()
		switch {
		case !more:
			return check, verdict
		case string(key) == "name":
			check = string(r.String())
		case string(key) == "verdict":
			verdict = string(r.String())
		default:
			r.Skip()
		}
	}
}

// verdict is what contract section 4 makes of the checks: not measured is never
// passed.
func (l *qualityLine) verdict() string {
	switch {
	case l.failed != 0:
		return "failed"
	case l.open == l.checks:
		return "not_measured"
	default:
		return "passed"
	}
}

// qualityOf holds a record to its line of quality.
func (j *judge) qualityOf() {
	r := j.rec
	if r.Audio == nil {
		return // a line of its own would be left over
	}
	l := j.v.quality.take(j.v, r.RequestID)
	if l == nil {
		j.say(KindOrphan, "quality", "the record holds sound, and %s has no line for it", rundir.QualityFile)
		return
	}
	j.word("quality.failed", strings.Join(r.Quality.Failed, ","), j.v.names.text(l.failed))
	j.word("quality.not_measured", strings.Join(r.Quality.NotMeasured, ","), j.v.names.text(l.notMeasured))
	j.word("quality.verdict", r.Quality.Verdict, l.verdict())
}
