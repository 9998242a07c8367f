package verify

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// WriteText writes the result for a person: the summary first, then a line for each
// finding, then what could not be derived.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	r.summary(&b)
	for i := range r.Findings {
		b.WriteString(r.Findings[i].String() + "\n")
	}
	if r.Unlisted > 0 {
		fmt.Fprintf(&b, "and %d findings more\n", r.Unlisted)
	}
	for _, m := range r.NotDerivable {
		fmt.Fprintf(&b, "not derivable: %s: %s (%s)\n", m.Field, m.Why, plural(m.Values, "value"))
	}
	if len(r.Told) > 0 {
		fmt.Fprintf(&b, "as told, no measurements: %s\n", strings.Join(r.Told, ", "))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

func (r *Result) summary(b *strings.Builder) {
	verdict := "verified"
	if !r.OK() {
		verdict = "NOT verified: " + plural(r.Errors, "error")
	}
	fmt.Fprintf(b, "run %s in %s: %s\n", printable(r.RunID), printable(r.Dir), verdict)
	c := &r.Counts
	fmt.Fprintf(b, "  %s, %s, %s, %s of quality\n", plural(c.Requests, "request"), plural(c.Events, "event"), plural(c.Sessions, "session"),
		plural(c.Quality, "line"))
	var states []string
	for _, s := range slices.Sorted(maps.Keys(c.States)) {
		states = append(states, fmt.Sprintf("%s %d", printable(s), c.States[s]))
	}
	if states != nil {
		fmt.Fprintf(b, "  attempts by state: %s\n", strings.Join(states, ", "))
	}
	values := int64(0)
	for _, n := range r.Compared {
		values += n
	}
	fmt.Fprintf(b, "  %s of %s derived again from the events\n", plural(values, "value"), plural(int64(len(r.Compared)), "field"))
	if r.Seal != nil && r.Seal.Sealed {
		fmt.Fprintf(b, "  sealed: %s, SHA-256 of SHA256SUMS %s\n", plural(int64(r.Seal.Files), "file"), r.Seal.Digest)
	}
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// WriteJSON writes the result for a program.
func (r *Result) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}
