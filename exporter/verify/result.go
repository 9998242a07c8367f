package verify

import (
	"fmt"
	"strings"

	"github.com/omnitap/omnitap/exporter/rundir"
)

// Level says whether a finding makes the run one that cannot be relied on.
type Level string

// The levels. A note is worth knowing and breaks nothing.
const (
	Error Level = "error"
	Note  Level = "note"
)

// Kind is what a finding is about.
type Kind string

// The kinds of findings.
const (
	// KindSeal is a difference between the directory and SHA256SUMS.
	KindSeal Kind = "seal"
	// KindFile is a file that is missing, foreign, compressed, or not read.
	KindFile Kind = "file"
	// KindLine is a line that is cut or no JSON.
	KindLine Kind = "line"
	// KindSchema is a line that its schema refuses, KindVersion one of another schema
	// version.
	KindSchema  Kind = "schema"
	KindVersion Kind = "version"
	// KindOrder is a line that stands where it was not written, or is gone.
	KindOrder Kind = "order"
	// KindValue is a value that the events give another of.
	KindValue Kind = "value"
	// KindOrphan is a record without events, or events without a record.
	KindOrphan Kind = "orphan"
	// KindConservation is a sum that does not come out.
	KindConservation Kind = "conservation"
	// KindLost is what the run itself says that it lost.
	KindLost Kind = "lost"
)

// Finding is one thing that was found. File and Line say where, RequestID and Field
// of what, where they apply. Recorded and Derived are the two values of a
// difference, nil for null, Tolerance is how far they may lie apart.
type Finding struct {
	Level     Level  `json:"level"`
	Kind      Kind   `json:"kind"`
	File      string `json:"file,omitempty"`
	Line      int    `json:"line,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	Field     string `json:"field,omitempty"`
	Recorded  any    `json:"recorded,omitempty"`
	Derived   any    `json:"derived,omitempty"`
	Tolerance string `json:"tolerance,omitempty"`
	Text      string `json:"text"`
}

// String is the finding on one line.
func (f *Finding) String() string {
	var b strings.Builder
	b.WriteString(string(f.Level) + ": ")
	if f.File != "" {
		b.WriteString(f.File)
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d", f.Line)
		}
		b.WriteString(": ")
	}
	if f.RequestID != "" {
		fmt.Fprintf(&b, "request %s: ", printable(f.RequestID))
	}
	if f.Field != "" {
		b.WriteString(f.Field + ": ")
	}
	b.WriteString(printable(f.Text))
	return b.String()
}

// printable keeps a finding on its line, whatever a file holds.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' {
			return '\ufffd'
		}
		return r
	}, s)
}

// Missing is a field of records that cannot be derived, or some of whose values
// cannot, with the reason and the number of those values.
type Missing struct {
	Field  string `json:"field"`
	Why    string `json:"why"`
	Values int64  `json:"values"`
}

// Counts is how much there was.
type Counts struct {
	Requests int64 `json:"requests"`
	Events   int64 `json:"events"`
	Sessions int64 `json:"sessions"`
	Quality  int64 `json:"quality"`
	// States are the attempts by terminal state.
	States map[string]int64 `json:"states"`
}

// Result is what Verify found.
type Result struct {
	Dir   string `json:"dir"`
	RunID string `json:"run_id"`
	// Passed is OK, for whoever reads the JSON.
	Passed bool              `json:"ok"`
	Seal   *rundir.SealState `json:"seal"`
	Counts Counts            `json:"counts"`
	// Compared is how many values of each field were derived again and compared.
	Compared map[string]int64 `json:"compared"`
	// Errors and Notes count all findings; Findings lists the first of them, Unlisted
	// is how many more there are.
	Errors   int64     `json:"errors"`
	Notes    int64     `json:"notes"`
	Findings []Finding `json:"findings"`
	Unlisted int64     `json:"unlisted"`
	// NotDerivable are the fields, or the cases of one, that events.jsonl does not hold
	// enough for; Told the fields that are descriptions and no measurements.
	NotDerivable []Missing `json:"not_derivable"`
	Told         []string  `json:"told"`

	max int
}

// OK reports whether there is no error.
func (r *Result) OK() bool { return r.Errors == 0 }

// maxText bounds what a finding shows of a file, whatever stands there.
const maxText = 500

func bounded(s string) string {
	if len(s) <= maxText {
		return s
	}
	return s[:maxText] + "…"
}

func (r *Result) add(f Finding) {
	f.RequestID, f.Text = bounded(f.RequestID), bounded(f.Text)
	for _, v := range [...]*any{&f.Recorded, &f.Derived} {
		if s, ok := (*v).(string); ok {
			*v = bounded(s)
		}
	}
	switch f.Level {
	case Error:
		r.Errors++
	case Note:
		r.Notes++
	}
	if len(r.Findings) < r.max {
		r.Findings = append(r.Findings, f)
		return
	}
	r.Unlisted++
}
